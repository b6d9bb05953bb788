"""GPU work of many small launches, recorded once for each shape and then replayed as one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from inout.kernels.limits import REMEMBERED_SHAPES

Results = TypeVar("Results")
Owned = TypeVar("Owned")


class Recording(Generic[Results]):
    """A function of CUDA tensors whose launches are replayed without Python in between.

    The function must not wait for the device. Every call returns the same tensors and overwrites
    them: copy results to keep them.
    """

    def __init__(self, function: Callable[..., Results], *inputs: Tensor) -> None:
        self._inputs = [x.clone() for x in inputs]
        # Kernels must be compiled, and libraries ready, before anything can be recorded.
        aside = torch.cuda.Stream(inputs[0].device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(inputs[0].device))
        with torch.cuda.stream(aside):
            function(*self._inputs)
        torch.cuda.current_stream(inputs[0].device).wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._results = function(*self._inputs)

    def __call__(self, *inputs: Tensor) -> Results:
        """The results for other inputs of the same shapes."""
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return self._results


class Shelf(Generic[Owned]):
    """Expensive objects, lent to one user at a time; the latest few are kept.

    Nothing is created when a key is first requested: it may never recur. At most `most` are lent
    at a time, and as many unused ones are kept.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lent = most, 0
        # The collector may give something back while we look for another.
        self._lock = RLock()
        self._seen: set[Hashable] = set()
        self._free: OrderedDict[int, tuple[Hashable, Owned]] = OrderedDict()

    def take(self, key: Hashable, make: Callable[[], Owned]) -> Owned | None:
        """An unused object for this key, or None."""
        with self._lock:
            if key not in self._seen or self._lent >= self._most:
                if len(self._seen) >= REMEMBERED_SHAPES:
                    self._seen.clear()
                self._seen.add(key)
                return None
            for place, (own, _) in reversed(list(self._free.items())):
                if own == key:
                    self._lent += 1
                    return self._free.pop(place)[1]
            owned = make()
            self._lent += 1
            return owned

    def give_back(self, key: Hashable, owned: Owned) -> None:
        """Return an object; the one unused for longest may be dropped."""
        with self._lock:
            self._lent -= 1
            self._free[id(owned)] = (key, owned)
            while len(self._free) > self._most:
                self._free.popitem(last=False)

    def clear(self) -> None:
        """Free all unused objects."""
        with self._lock:
            self._free.clear()


def signature(*tensors: Tensor) -> tuple[Any, ...]:
    """What two lists of tensors must share for a recording to serve both."""
    return tuple((x.shape, x.dtype, x.device) for x in tensors)
