"""`Histories`: weights of features of what a context remembers, in a table that grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.kernels.lattice.arrays import (
    Features,
    Integers,
    Nodes,
    Numbers,
    Slots,
    Streams,
    Table,
    Vector,
)
from inout.kernels.lattice.cpu import histories
from inout.kernels.lattice.ties import BEGIN, LOCK, STAR, Ties
from inout.kernels.limits import LATTICE_TIED

if TYPE_CHECKING:
    from inout.kernels.lattice.op import Lattice


class Histories:
    """The weights of all features (history, action): a row for each history that has occurred.

    A history is a node: node and symbol lead to the node of the string with this symbol more, by
    a hash table. It is exact: no two histories share a row, except where `ties` say so. Histories
    that have no row count 0. Memory: widths[s] numbers for each history, twice more in training.
    """

    BEGIN, STAR = BEGIN, STAR  # beside 0, 1, … in strings that are given to `row`

    def __init__(self, streams: Streams, ties: Ties | None = None) -> None:
        self.streams = streams
        self.ties = Ties([None] * len(streams.widths)) if ties is None else ties
        self._tied = list(self.ties.lengths(streams))
        self._most_nodes = LATTICE_TIED  # then the table is cleared of them
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
        self.begins = self._repeated(0)
        self.stars = self._repeated(1)

    def _repeated(self, which: int) -> Integers:
        """The nodes of the strings of 0, 1, …, depth times one symbol: [s 1+d]."""
        lengths = np.arange(self.streams.depth + 1)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        nodes = [
            self._nodes(np.full(len(lengths), s), offsets, np.full(offsets[-1], symbol), grow=True)
            for s, symbol in enumerate(self._ranges + which)
        ]
        return np.array(nodes, np.int32).reshape(len(nodes), len(lengths))

    def _nodes(self, starts: Numbers, offsets: Numbers, symbols: Numbers, *, grow: bool) -> Numbers:
        """The nodes of strings, each from a node to start from."""

        def find() -> Numbers:
            found = starts.copy()
            histories.strings(self._table, offsets, symbols, found, grow)
            return found

        return self._sure(find)

    @property
    def weights(self) -> Vector:
        """All weights, one row after the other: a view that can be written to."""
        return self._weights[: self.num_weights]

    @property
    def num_weights(self) -> int:
        """How many weights there are."""
        return int(self._counts[histories.WEIGHTS])

    @property
    def num_nodes(self) -> int:
        """How many histories there are, with and without weights."""
        return int(self._counts[histories.NODES])

    @property
    def _table(self) -> Table:
        return Table(self._keys, self._values, self._row_starts, self._counts, self._stride)

    @property
    def features(self) -> Features:
        """All of it, as the kernels take it.

        Threads can read it while another one adds to the table, holding `LOCK`: they miss what is
        new, and nothing else.
        """
        with LOCK:
            return Features(self.streams, self._table, self.stars, self.begins, self._weights)

    @property
    def is_full(self) -> bool:
        """Whether something found no room; `enlarge`, and do it again."""
        return bool(self._counts[histories.IS_FULL])

    def enlarge(self) -> None:
        """Room for twice as much of whatever is more than half full."""
        self._counts[histories.IS_FULL] = 0
        if 4 * self.num_nodes > len(self._keys):
            keys = np.full(2 * len(self._keys), -1, np.int64)
            values = np.zeros(len(keys), np.int32)
            histories.reinsert(self._keys, self._values, keys, values)
            self._keys, self._values = keys, values
        if 2 * self.num_nodes > len(self._row_starts):
            self._row_starts = padded(self._row_starts, 2 * len(self._row_starts), -1)
        widest = int(self.streams.widths.max())
        if 2 * self.num_weights + 2 * widest > len(self._weights):
            self._weights = padded(self._weights, 2 * len(self._weights) + widest)

    def _sure(self, do: Callable[[], Numbers]) -> Numbers:
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
        string, offsets = np.asarray(symbols, np.int64), np.array([0, len(symbols)], np.int64)
        inputs = None if given is None else np.array([given], np.int64)
        start = int(self.rows(stream, string, offsets, inputs, grow=grow)[0])
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
                "symbols",
                f": a history must have at most {self.streams.depth} symbols. Got {longest}",
            )
        own = int(self._ranges[stream])
        numbers = np.where(symbols == self.BEGIN, own, symbols)
        numbers = np.where(symbols == self.STAR, own + 1, numbers)
        if given is not None:
            # The input comes last.
            numbers = np.insert(numbers, offsets[1:], own + 2 + np.asarray(given) + 1)
            offsets = offsets + np.arange(len(offsets))
        nodes = self._nodes(np.full(len(offsets) - 1, stream), offsets, numbers, grow=grow)

        def find() -> Numbers:
            starts = np.empty(len(nodes), np.int64)
            width = int(self.streams.widths[stream])
            histories.rows(self._table, nodes, width, len(self._weights), grow, starts)
            return starts

        return self._sure(find)

    @property
    def guard(self) -> AbstractContextManager[Any]:
        """To be held during a selection, which adds histories even where nothing is learned."""
        return LOCK if self._tied else nullcontext()

    def growth(self, grow: bool) -> NDArray[np.int8]:
        """What new histories of each stream get in a selection: [s]; see `cpu.GROW_NODES`."""
        found = np.full(len(self.streams.widths), histories.GROW_ROWS if grow else 0, np.int8)
        found[[s for s, _ in self._tied]] = histories.GROW_NODES
        return found

    def settle(self, nodes: Nodes, slots: Slots, inputs: Integers, *, grow: bool) -> bool:
        """Whether contexts have histories that got a row only now: select again; see `Ties`."""
        if not self._tied:
            return False
        if self.ties.settle(self, nodes, slots, inputs, grow):
            return True
        if self.num_nodes > self._most_nodes:
            self._forget()
        return False

    def before(self, stream: int, nodes: Integers, given: Integers) -> Numbers:
        """The nodes of histories with the next input, which a selection has made."""
        symbols = self._ranges[stream] + 3 + given.astype(np.int64)
        offsets = np.arange(len(nodes) + 1)
        return self._nodes(nodes.astype(np.int64), offsets, symbols, grow=False)

    def starts(self, nodes: Integers) -> Numbers:
        """Where the rows of nodes begin, or why they have none."""
        return self._row_starts[nodes]

    def tie(self, nodes: NDArray[Any], starts: Numbers) -> None:
        """Say where the rows of nodes begin."""
        self._row_starts[nodes] = starts

    def untie(self, reason: int, instead: int) -> None:
        """Give all nodes that have no row for this reason another one."""
        self._row_starts[self._row_starts == reason] = instead

    def new_row(self, stream: int) -> int:
        """A row of zeros; where it begins."""
        start, width = self.num_weights, int(self.streams.widths[stream])
        while start + width > len(self._weights):
            self.enlarge()
        self._counts[histories.WEIGHTS] += width
        return start

    def _forget(self) -> None:
        """Drop the histories that share rows: functions will be asked again."""
        kept = self.to_arrays()
        self._fill(kept["keys"], kept["row_starts"])

    def items(self) -> Iterator[tuple[int, tuple[int, ...], int | None, slice]]:
        """(stream, symbols, next input, place of the weights) of every history that has some.

        Symbols are as `row` takes them. Those that share rows are in `shared_items`.
        """
        roots = len(self.streams.widths)
        found: list[tuple[int, tuple[int, ...], int | None]] = [(s, (), None) for s in range(roots)]
        kept = self.to_arrays()
        for key in kept["keys"].tolist():
            stream, symbols, _ = found[key // self._stride]
            symbol, own = key % self._stride, int(self._ranges[stream])
            if symbol < own + 2:
                shown = {own: self.BEGIN, own + 1: self.STAR}.get(symbol, symbol)
                found.append((stream, (*symbols, shown), None))
            else:
                found.append((stream, symbols, symbol - own - 3))
        for (stream, symbols, given), start in zip(found, kept["row_starts"].tolist(), strict=True):
            if start >= 0:
                width = int(self.streams.widths[stream])
                yield stream, symbols, given, slice(start, start + width)

    def shared_items(self) -> Iterator[tuple[int, str, slice]]:
        """(stream, key, place of the weights) of all histories that share rows."""
        for s, _ in self._tied:
            width = int(self.streams.widths[s])
            for key, start in self.ties.rows[s].items():
                yield s, key, slice(start, start + width)

    def counts(self, lattice: Lattice, edge_weights: Vector) -> Vector:
        """The weights of edges added up for each weight of a feature: [weights]."""
        found = np.zeros(self.num_weights)
        histories.add_gradient(
            lattice.slots, lattice.edge_offsets, lattice.columns, self.streams.places,
            edge_weights, 1.0, found, np.zeros((0, 2), np.int64), 0,
        )  # fmt: skip
        return found

    @property
    def capacity(self) -> int:
        """The number of weights that there is room for; rows end before it."""
        return len(self._weights)

    @property
    def trained(self) -> tuple[Vector, Vector]:
        """All weights, and the sums of their squared gradients: arrays to be written to.

        Another thread may make larger ones meanwhile: then what is written here is lost.
        """
        with LOCK:
            self._squares = padded(self._squares, self.capacity)
            return self._weights, self._squares

    def copy(self) -> Histories:
        """The same weights in a table of their own, without what training remembers."""
        return Histories.from_arrays(self.streams, self.to_arrays(), self.ties.copy())

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All there is to keep, for `from_arrays`, beside `ties`.

        Histories that share rows are left out: their keys say all about them.
        """
        with self.guard:
            used = np.flatnonzero(self._keys >= 0)
            keys = self._keys[used[np.argsort(self._values[used])]]
            starts, weights = self._row_starts[: self.num_nodes].copy(), self.weights.copy()
        if self._tied:
            roots = len(self.streams.widths)
            parents, symbols = np.divmod(keys, self._stride)
            is_tied = np.zeros(len(starts), np.bool_)
            is_tied[[s for s, _ in self._tied]] = True
            for _ in range(self.streams.depth + 1):
                is_tied[roots:] = is_tied[parents]
            is_tied[:roots] = False
            numbers = np.cumsum(~is_tied) - 1
            is_kept = ~is_tied[roots:]
            keys = numbers[parents[is_kept]] * self._stride + symbols[is_kept]
            starts = starts[~is_tied]
        return {"keys": keys, "row_starts": starts, "weights": weights}

    @staticmethod
    def from_arrays(
        streams: Streams, arrays: dict[str, NDArray[Any]], ties: Ties | None = None
    ) -> Histories:
        """What `to_arrays` gave; `ArgumentError` if it does not fit together."""
        found = Histories(streams, ties)
        roots = len(streams.widths)
        keys = np.asarray(arrays["keys"], np.int64)
        starts = np.asarray(arrays["row_starts"], np.int64)
        weights = np.asarray(arrays["weights"], np.float64)
        parents = keys // found._stride
        fits = (
            len(keys) == len(starts) - roots
            and (keys >= 0).all()
            and (parents < roots + np.arange(len(keys))).all()
            and len(np.unique(keys)) == len(keys)
            and (starts >= -1).all()
            and (starts + _widths(streams, parents) <= len(weights))[starts >= 0].all()
            and all(row.start >= 0 for _, _, row in found.shared_items())
            and all(row.stop <= len(weights) for _, _, row in found.shared_items())
        )
        if not fits:
            raise ArgumentError(
                "arrays", ": keys, row_starts and weights of histories do not fit together"
            )
        found._weights = np.concatenate([weights, np.zeros(1024)])
        found._counts[histories.WEIGHTS] = len(weights)
        found._fill(keys, starts)
        return found

    def _fill(self, keys: Numbers, starts: Numbers) -> None:
        """Replace all histories by those that `to_arrays` gave."""
        count, roots = len(starts), len(self.streams.widths)
        size = 1024
        while size < 4 * count:
            size *= 2
        self._keys = np.full(size, -1, np.int64)
        self._values = np.zeros(size, np.int32)
        self._row_starts = np.full(size, -1, np.int64)
        self._row_starts[:count] = starts
        for node, key in zip(range(roots, count), keys, strict=True):
            histories.insert(self._keys, self._values, key, node)
        self._counts[histories.NODES], self._counts[histories.IS_FULL] = count, 0
        self.begins, self.stars = self._repeated(0), self._repeated(1)
        self._most_nodes = self.num_nodes + LATTICE_TIED


def _widths(streams: Streams, parents: Numbers) -> Numbers:
    """How long the row of each node is, by its stream; parents come before their children."""
    roots = np.arange(len(streams.widths))
    owners = np.concatenate([roots, parents])
    while (owners >= len(roots)).any():
        owners = owners[owners]
    return np.asarray(streams.widths[owners], np.int64)


def padded(array: NDArray[Any], size: int, fill: float = 0.0) -> NDArray[Any]:
    """The array, or a longer copy if it is shorter than this."""
    if len(array) >= size:
        return array
    return np.concatenate([array, np.full(size - len(array), fill, array.dtype)])
