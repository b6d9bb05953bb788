"""GPU work of many small launches, recorded once for each shape and then replayed as one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cache, cached_property
from math import inf
from threading import RLock
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from inout.kernels.limits import RECORDED_SHARE, RECORDING_PATIENCE, RECORDINGS, REMEMBERED_SHAPES

Results = TypeVar("Results")
Owned = TypeVar("Owned")


class Recording(Generic[Results]):
    """A function of CUDA tensors whose launches are replayed without Python in between.

    The function must not wait for the device. Every call returns the same tensors and overwrites
    them: copy results to keep them. All calls must be on the stream that was current when it was
    made. It may use what another one, which runs before it, used for what it no longer needs.
    """

    def __init__(
        self, function: Callable[..., Results], *inputs: Tensor, after: Recording[Any] | None = None
    ) -> None:
        # Ordinary tensors, whatever mode the caller is in: later calls may be in another one.
        with torch.inference_mode(False), torch.no_grad(), torch.cuda.device(inputs[0].device):
            self._inputs = [x.clone() for x in inputs]
            aside, current = _stream_aside(inputs[0].device), torch.cuda.current_stream()
            # Kernels must be compiled, and libraries ready, before anything can be recorded.
            aside.wait_stream(current)
            with torch.cuda.stream(aside):
                function(*self._inputs)
            current.wait_stream(aside)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(
                self._graph,
                pool=None if after is None else after._graph.pool(),
                stream=aside,
                capture_error_mode="thread_local",  # other threads may go on
            ):
                self._results = function(*self._inputs)

    def __call__(self, *inputs: Tensor) -> Results:
        """The results for other inputs of the same shapes."""
        with torch.no_grad(), torch.cuda.device(inputs[0].device):
            for own, given in zip(self._inputs, inputs, strict=True):
                own.copy_(given)
            self._graph.replay()
        return self._results

    @cached_property
    def num_bytes(self) -> int:
        """Memory of the device that it keeps, with all of what it shares with the one before it."""
        pool = tuple(self._graph.pool())
        segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        shared = [int(x["total_size"]) for x in segments if tuple(x["segment_pool_id"]) == pool]
        return sum(shared) + self.input_bytes

    @property
    def input_bytes(self) -> int:
        """Memory of its copies of the inputs."""
        return sum(x.numel() * x.element_size() for x in self._inputs)


@cache
def _stream_aside(device: torch.device) -> torch.cuda.Stream:
    """The stream on which recordings are made: one, because memory cached for one stays with it."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class _Kept(NamedTuple):
    """One object of a shelf, its size, and when it was taken last."""

    key: Hashable
    owned: Any
    size: float
    turn: int


class Shelf(Generic[Owned]):
    """Expensive objects, lent to one user at a time.

    There are at most `most`, and all together are at most as large as the `room`. Nothing is
    created when a key is first requested: it may never recur. What would be too large on its own
    is not made again. Where there is no more room, what has been unused for long makes some: if
    everything is in use, by turns, new keys get nothing, and nothing is made over and over.
    """

    def __init__(
        self,
        most: int,
        size: Callable[[Owned], float] = lambda _: 0,
        room: Callable[[], float] = lambda: 0,
    ) -> None:
        self._most, self._size, self._room = most, size, room
        # The collector may give something back while we look for another.
        self._lock = RLock()
        self._sizes: dict[Hashable, float] = {}  # of the keys seen; 0 if it is not known
        self._free: OrderedDict[int, _Kept] = OrderedDict()
        self._lent: dict[int, _Kept] = {}
        self._turn = 0

    def take(self, key: Hashable, make: Callable[[], Owned]) -> Owned | None:
        """An unused object for this key, or None."""
        with self._lock:
            self._turn += 1
            if key not in self._sizes:
                if len(self._sizes) >= REMEMBERED_SHAPES:
                    self._sizes.clear()
                self._sizes[key] = 0
                return None
            for kept in reversed(self._free.values()):
                if kept.key == key:
                    del self._free[id(kept.owned)]
                    return self._lend(kept._replace(turn=self._turn))
            return self._new(key, make) if self._make_room(self._sizes[key]) else None

    def _lend(self, kept: _Kept) -> Owned:
        self._lent[id(kept.owned)] = kept
        owned: Owned = kept.owned
        return owned

    def _new(self, key: Hashable, make: Callable[[], Owned]) -> Owned | None:
        """A new object, if it turns out to fit."""
        try:
            owned = make()
        except torch.cuda.OutOfMemoryError:
            self._sizes[key] = inf
        else:
            size = self._sizes[key] = self._size(owned)
            if self._make_room(size):
                return self._lend(_Kept(key, owned, size, self._turn))
            del owned
        torch.cuda.empty_cache()
        return None

    def _make_room(self, size: float) -> bool:
        """Drop what has been unused for long until there is room for this size; whether there is.

        The longest unused is first, because objects come back to the end.
        """
        room, dropped = self._room(), False
        while not (fits := self._fits(size, room)) and self._free:
            patience = RECORDING_PATIENCE * (len(self._free) + len(self._lent))
            if size > room or self._turn - next(iter(self._free.values())).turn <= patience:
                break
            self._free.popitem(last=False)
            dropped = True
        if dropped:
            torch.cuda.empty_cache()  # a recording's memory is of no use to others before
        return fits

    def _fits(self, size: float, room: float) -> bool:
        kept = [*self._free.values(), *self._lent.values()]
        return len(kept) < self._most and size + sum(x.size for x in kept) <= room

    def give_back(self, owned: Owned) -> None:
        """Return an object."""
        with self._lock:
            kept = self._lent.pop(id(owned))
            self._free[id(owned)] = kept._replace(size=self._size(owned))  # it may have grown

    def clear(self) -> bool:
        """Free all unused objects; whether there were any."""
        with self._lock:
            had = bool(self._free)
            self._free.clear()
        if had:
            torch.cuda.empty_cache()
        return had


def room_for_recordings() -> float:
    """Bytes of this device that recordings may keep."""
    return RECORDED_SHARE * torch.cuda.get_device_properties().total_memory


# All recordings, each lent to one object at a time.
SHELF: Shelf[Any] = Shelf(RECORDINGS, lambda owned: owned.num_bytes, room_for_recordings)


def freeing(function: Callable[[], Results], shelf: Shelf[Any] = SHELF) -> Results:
    """What the function returns; if memory is short, once more without unused recordings."""
    try:
        return function()
    except torch.cuda.OutOfMemoryError:
        if not shelf.clear():
            raise
    return function()


def signature(*tensors: Tensor) -> tuple[Any, ...]:
    """What two lists of tensors must share for a recording to serve both; and the stream."""
    shapes = tuple((x.shape, x.dtype, x.device) for x in tensors)
    return torch.cuda.current_stream(tensors[0].device), shapes
