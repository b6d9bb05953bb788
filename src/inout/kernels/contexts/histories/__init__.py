"""`Histories`: weights of features of what a context remembers, in a table that grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.kernels.contexts.arrays import Integers, Numbers, Streams
from inout.kernels.contexts.histories import cpu

if TYPE_CHECKING:
    from inout.kernels.contexts.op import Lattice

Vector = NDArray[np.float64]

_reinsert: Callable[..., Any] = cpu.reinsert
_child: Callable[..., Any] = cpu.child
_strings: Callable[..., Any] = cpu.strings
_rows: Callable[..., Any] = cpu.rows
_add_gradient: Callable[..., Any] = cpu.add_gradient
_adagrad: Callable[..., Any] = cpu.adagrad


class Histories:
    """The weights of all features (history, action): a row for each history that has occurred.

    A history is a node: node and symbol lead to the node of the string with this symbol more, by
    a hash table. It is exact: no two histories share a row. Histories that have no row count 0.
    Memory: widths[s] numbers for each history, twice more in training.
    """

    BEGIN, STAR = -1, -2  # beside 0, 1, … in strings that are given to `row`

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        shown = streams.num_actions * np.where(streams.pairs, streams.num_inputs + 1, 1)
        self._ranges = shown.astype(np.int64)  # [s]: behind the symbols: beginning, ⋆, inputs
        stride = int(self._ranges.max(initial=0)) + 2 + streams.num_inputs + 1
        self._stride = stride
        self._keys = np.full(1024, -1, np.int64)
        self._values = np.zeros(1024, np.int32)
        self._row_starts = np.full(1024, -1, np.int64)
        self._counts = np.array([len(streams.widths), 0, 0], np.int64)
        self._weights = np.zeros(1024)
        self._squares = np.zeros(0)
        self._gradient = np.zeros(0)
        self._touched = np.zeros((0, 2), np.int64)
        self._num_touched = 0
        self.begins = self._repeated(0)
        self.stars = self._repeated(1)

    def _repeated(self, which: int) -> Integers:
        """The nodes of the strings of 0, 1, …, depth times one symbol: [s 1+d]."""
        streams = self.streams
        nodes = np.empty((len(streams.widths), streams.depth + 1), np.int32)
        for s, symbol in enumerate(self._ranges + which):
            nodes[s, 0] = s
            for k in range(streams.depth):
                grown = partial(self._child, nodes[s, k], symbol)
                nodes[s, k + 1] = self._sure(grown)
        return nodes

    def _child(self, node: int, symbol: int) -> int:
        return int(_child(*self._table, node, symbol, True))

    @property
    def weights(self) -> Vector:
        """All weights, one row after the other: a view that can be written to."""
        return self._weights[: self.num_weights]

    @property
    def num_weights(self) -> int:
        """How many weights there are."""
        return int(self._counts[cpu.WEIGHTS])

    @property
    def num_nodes(self) -> int:
        """How many histories there are, with and without weights."""
        return int(self._counts[cpu.NODES])

    @property
    def _table(self) -> tuple[Any, ...]:
        return self._keys, self._values, self._row_starts, self._counts, self._stride

    @property
    def arrays(self) -> tuple[Any, ...]:
        """(streams, table, ⋆, beginnings, weights), as the kernel takes them."""
        s = self.streams
        streams = (
            s.symbols, s.places, s.widths, s.pairs, s.next_input, s.lengths, self._ranges,
            s.num_actions, s.deepest,
        )  # fmt: skip
        return streams, self._table, self.stars, self.begins, self._weights

    @property
    def is_full(self) -> bool:
        """Whether something found no room; `enlarge`, and do it again."""
        return bool(self._counts[cpu.IS_FULL])

    def enlarge(self) -> None:
        """Room for twice as much of whatever is more than half full."""
        self._counts[cpu.IS_FULL] = 0
        if 4 * self.num_nodes > len(self._keys):
            keys = np.full(2 * len(self._keys), -1, np.int64)
            values = np.zeros(len(keys), np.int32)
            _reinsert(self._keys, self._values, keys, values)
            self._keys, self._values = keys, values
        if 2 * self.num_nodes > len(self._row_starts):
            self._row_starts = _longer(self._row_starts, -1)
        if 2 * self.num_weights + 2 * int(self.streams.widths.max()) > len(self._weights):
            self._weights = _longer(self._weights, 0.0, int(self.streams.widths.max()))

    def _sure(self, do: Callable[[], Any]) -> Any:
        """Do it, again with more room as long as there is too little."""
        result = do()
        while self.is_full:
            self.enlarge()
            result = do()
        return result

    def row(
        self, stream: int, symbols: Sequence[int], given: int | None = None, *, grow: bool = True
    ) -> slice:
        """Where the weights of a history are; an empty slice if it has none, without `grow`.

        `symbols` from the oldest to the latest, with `BEGIN` and `STAR`; `given`: the next input.
        """
        starts = self.rows(
            stream,
            np.asarray(symbols, np.int64),
            np.array([0, len(symbols)], np.int64),
            None if given is None else np.array([given], np.int64),
            grow=grow,
        )
        start = int(starts[0])
        return slice(start, start + int(self.streams.widths[stream])) if start >= 0 else slice(0)

    def rows(
        self,
        stream: int,
        symbols: Numbers,
        offsets: Numbers,
        given: Numbers | None = None,
        *,
        grow: bool = True,
    ) -> Numbers:
        """Where the weights of many histories begin: [h], -1 for those that have none."""
        longest = int(np.diff(offsets).max(initial=0))
        if longest > self.streams.depth:
            raise ArgumentError(
                f"a history must have at most {self.streams.depth} symbols. Got {longest}"
            )
        own = int(self._ranges[stream])
        numbers = np.where(symbols == self.BEGIN, own, symbols)
        numbers = np.where(symbols == self.STAR, own + 1, numbers)
        if given is not None:
            # The input comes last.
            numbers = np.insert(numbers, offsets[1:], own + 2 + np.asarray(given) + 1)
            offsets = offsets + np.arange(len(offsets))
        starts = np.empty(len(offsets) - 1, np.int64)

        def find() -> None:
            nodes = np.full(len(offsets) - 1, stream, np.int64)
            _strings(self._table, offsets[:-1], offsets[1:], numbers, nodes, grow)
            width = int(self.streams.widths[stream])
            _rows(self._table, nodes, width, len(self._weights), grow, starts)

        self._sure(find)
        return starts

    def items(self) -> Iterator[tuple[int, tuple[int, ...], int | None, slice]]:
        """(stream, symbols, next input, place of the weights) of every history that has some.

        Symbols are as `row` takes them.
        """
        roots = len(self.streams.widths)
        found: list[tuple[int, tuple[int, ...], int | None]] = [(s, (), None) for s in range(roots)]
        for key in self.to_arrays()["keys"].tolist():
            stream, symbols, _ = found[key // self._stride]
            symbol, own = key % self._stride, int(self._ranges[stream])
            if symbol < own + 2:
                shown = {own: self.BEGIN, own + 1: self.STAR}.get(symbol, symbol)
                found.append((stream, (*symbols, shown), None))
            else:
                found.append((stream, symbols, symbol - own - 3))
        for (stream, symbols, given), start in zip(found, self._row_starts.tolist(), strict=False):
            if start >= 0:
                width = int(self.streams.widths[stream])
                yield stream, symbols, given, slice(start, start + width)

    def add_gradient(self, lattice: Lattice, edge_weights: Vector, scale: float = 1.0) -> None:
        """Add the weights of edges to the gradient, for the next step of `adagrad`."""
        if len(self._gradient) < len(self._weights):
            self._gradient = np.concatenate(
                [self._gradient, np.zeros(len(self._weights) - len(self._gradient))]
            )
        wanted = self._num_touched + lattice.slot_rows.size
        if len(self._touched) < wanted:
            self._touched = np.resize(self._touched, (2 * wanted, 2))
        self._num_touched = self._add(
            lattice, edge_weights, scale, self._gradient, self._touched, self._num_touched
        )

    def counts(self, lattice: Lattice, edge_weights: Vector) -> Vector:
        """The weights of edges added up for each weight of a feature: [weights]."""
        found = np.zeros(self.num_weights)
        self._add(lattice, edge_weights, 1.0, found, np.zeros((0, 2), np.int64), 0)
        return found

    def _add(
        self,
        lattice: Lattice,
        edge_weights: Vector,
        scale: float,
        into: Vector,
        touched: Numbers,
        num_touched: int,
    ) -> int:
        columns = lattice.columns
        return int(
            _add_gradient(
                (lattice.slot_offsets, lattice.edge_offsets, lattice.slot_rows),
                np.stack([columns.first_actions, columns.end_actions], 1),
                self.streams.places, edge_weights, scale, into, touched, num_touched,
            )
        )  # fmt: skip

    def adagrad(self, step: float, delta: float) -> None:
        """One step along the gradient that was added up, which is cleared.

        w += step · g / (delta + √Σ g²), the sum over all steps so far (Duchi et al. 2010).
        """
        if len(self._squares) < len(self._weights):
            self._squares = np.concatenate(
                [self._squares, np.zeros(len(self._weights) - len(self._squares))]
            )
        _adagrad(
            self._weights, self._gradient, self._squares, self._touched, self._num_touched, step,
            delta,
        )  # fmt: skip
        self._num_touched = 0

    def copy(self) -> Histories:
        """The same weights in a table of their own, without what training remembers."""
        return Histories.from_arrays(self.streams, self.to_arrays())

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All there is to keep, for `from_arrays`."""
        used = np.flatnonzero(self._keys >= 0)
        order = used[np.argsort(self._values[used])]
        return {
            "keys": self._keys[order],
            "row_starts": self._row_starts[: self.num_nodes].copy(),
            "weights": self.weights.copy(),
        }

    @staticmethod
    def from_arrays(streams: Streams, arrays: dict[str, NDArray[Any]]) -> Histories:
        """What `to_arrays` gave; `ArgumentError` if it does not fit together."""
        found = Histories(streams)
        roots = len(streams.widths)
        keys = np.asarray(arrays["keys"], np.int64)
        starts = np.asarray(arrays["row_starts"], np.int64)
        weights = np.asarray(arrays["weights"], np.float64)
        count = len(starts)
        limit = len(weights) - int(streams.widths.max(initial=0))
        fits = (
            len(keys) == count - roots
            and (keys >= 0).all()
            and (keys // found._stride < roots + np.arange(len(keys))).all()
            and len(np.unique(keys)) == len(keys)
            and (starts >= -1).all()
            and (starts <= max(limit, -1)).all()
        )
        if not fits:
            raise ArgumentError("keys, row_starts and weights of histories do not fit together")
        size = 1024
        while size < 4 * count:
            size *= 2
        found._keys = np.full(size, -1, np.int64)
        found._values = np.zeros(size, np.int32)
        found._row_starts = np.full(size, -1, np.int64)
        found._row_starts[:count] = starts
        found._weights = np.concatenate([weights, np.zeros(1024)])
        for node, key in zip(range(roots, count), keys, strict=True):
            cpu.insert(found._keys, found._values, key, node)
        found._counts[:] = count, len(weights), 0
        found.begins, found.stars = found._repeated(0), found._repeated(1)
        return found


def _longer(array: NDArray[Any], fill: float, more: int = 0) -> NDArray[Any]:
    return np.concatenate([array, np.full(len(array) + more, fill, array.dtype)])
