"""`Columns`, `Streams`, `Targets` and other bundles of arrays, as the context kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError

Integers = NDArray[np.int32]
Numbers = NDArray[np.int64]
Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Columns(NamedTuple):
    """The places where contexts are selected, and the actions that lead from one to another.

    Columns of one example are side by side, sources before what is reached from them. Its first
    column has no sources and holds one context, the beginning; its last one is the end. Into
    column c lead, from every context of every one of its sources, the actions first_actions[c]
    to end_actions[c].

    A chain of n positions has n+1 columns. Where features look at the input, inputs[c] is what is
    read on the way into column c (-1: nothing); emission_rows[c] is the row of the matrix of
    emission scores that is added to the scores of these actions (-1: none).

    Contexts are compared by their actions alone. So where a stream shows pairs of input and
    action, all paths into a column with the same last actions must have read the same inputs.
    """

    firsts: Numbers  # [b+1]: the columns of example b are firsts[b] to firsts[b+1]
    source_offsets: Numbers  # [c+1]
    sources: Integers  # source columns of c: source_offsets[c] to source_offsets[c+1]
    first_actions: Integers  # [c]
    end_actions: Integers  # [c]
    inputs: Integers  # [c]
    emission_rows: Integers  # [c]

    @property
    def num_examples(self) -> int:
        """The number of examples, b."""
        return len(self.firsts) - 1

    @property
    def size(self) -> int:
        """The number of columns, c."""
        return len(self.first_actions)

    @staticmethod
    def chains(lengths: Sequence[int] | Numbers, labels: int, *, end: bool = False) -> Columns:
        """Chains over labels 0..labels-1, one emission row for each position in all.

        With `end` one more action, number `labels`, leads to the end of every chain.
        """
        lengths = np.asarray(lengths, np.int64)
        sizes = lengths + 1 + end
        firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        size = int(firsts[-1])
        is_first = np.zeros(size, np.bool_)
        is_first[firsts[:-1]] = True
        is_end = np.zeros(size, np.bool_)
        if end:
            is_end[firsts[1:] - 1] = True
        is_position = ~is_first & ~is_end
        rows = np.where(is_position, np.cumsum(is_position) - 1, -1).astype(np.int32)
        return Columns(
            firsts=firsts,
            source_offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(~is_first)]),
            sources=(np.flatnonzero(~is_first) - 1).astype(np.int32),
            first_actions=np.where(is_end, labels, 0).astype(np.int32),
            end_actions=np.where(is_first, 0, np.where(is_end, labels + 1, labels)).astype(
                np.int32
            ),
            inputs=np.full(size, -1, np.int32),
            emission_rows=rows,
        )


class Streams(NamedTuple):
    """What features can see of the actions that a context remembers.

    Stream s shows an action a as symbols[s, a], or not at all (-1); with `pairs` as the pair of it
    and the input that was read. A feature is the last k symbols of a stream, for k in `lengths`,
    with the next action; with `next_input` with the next input as well. The weights of one
    history are a row of widths[s] numbers, of which action a has number places[s, a]; -1: no
    feature of this stream. Within the actions of one column symbols must be all -1 or all not,
    and the places of consecutive actions consecutive (or all -1).
    """

    num_actions: int
    symbols: Integers  # [s a]
    places: Integers  # [s a]
    widths: Integers  # [s]
    pairs: Mask  # [s]
    next_input: Mask  # [s]
    lengths: Mask  # [s 1+d]: whether histories of length k = 0 .. d have weights
    num_inputs: int = 0
    deepest: bool = False  # only the longest history that has a row counts, instead of all

    @property
    def depth(self) -> int:
        """The length of the longest history."""
        return int(self.lengths.shape[1]) - 1

    @staticmethod
    def labels(
        labels: int,
        lengths: Sequence[int],
        *,
        end: bool = False,
        deepest: bool = False,
        further: Sequence[int] = (),
        sees_input: Sequence[bool] = (),
        num_inputs: int = 0,
    ) -> Streams:
        """One stream of labels, for chains, with histories of the given lengths (0: none).

        `further` streams show the same, each with histories of one length, and some of them with
        one of the `num_inputs` inputs.
        """
        count = 1 + len(further)
        actions = np.tile(np.arange(labels + end, dtype=np.int32), (count, 1))
        used = np.zeros((count, max(*lengths, *further, 0, 0) + 1), np.bool_)
        used[0, list(lengths)] = True
        used[range(1, count), list(further)] = True
        no = np.zeros(count, np.bool_)
        return Streams(
            num_actions=labels + end,
            symbols=actions,
            places=actions,
            widths=np.full(count, labels + end, np.int32),
            pairs=no,
            next_input=np.array([False, *(sees_input or no[1:])]),
            lengths=used,
            num_inputs=num_inputs,
            deepest=deepest,
        )


class Targets(NamedTuple):
    """What the actions of each example must spell, where the rest is hidden.

    Action a writes symbols[a], or nothing (-1). Within the actions of one column symbols must be
    consecutive, or a single -1. All actions of a path together must write `strings` of the
    example, from strings[offsets[b]] to strings[offsets[b+1]].
    """

    symbols: Integers  # [a]
    strings: Integers
    offsets: Numbers  # [b+1]

    def part(self, first: int, last: int) -> Targets:
        """Those of examples first to last."""
        lo, hi = self.offsets[first], self.offsets[last]
        return Targets(self.symbols, self.strings[lo:hi], self.offsets[first : last + 1] - lo)


class Nodes(NamedTuple):
    """Contexts, those of one column after those of another: see `Lattice` and `cpu/strings.py`."""

    offsets: Numbers  # [c+1]
    parents: Integers  # [v]
    symbols: Integers  # [v]
    lens: Integers  # [v]
    is_anchored: Mask  # [v]
    columns: Integers  # [v]
    lcs: Integers  # [v]: the longest common suffix with the next context of the column
    forward: Vector  # [v]
    history: Integers  # [v f]: nodes of the table


class Strings(NamedTuple):
    """Of `Nodes`, what says which strings they are."""

    parents: Integers
    symbols: Integers
    lens: Integers
    is_anchored: Mask
    columns: Numbers


class Slots(NamedTuple):
    """Contexts of sources, once for each column that they lead to."""

    offsets: Numbers  # [c+1]
    nodes: Integers  # [l]
    rows: Numbers  # [l f]: where the weights of features begin, -1: none


class Edges(NamedTuple):
    """Slots followed by actions."""

    offsets: Numbers  # [c+1]
    targets: Integers  # [e]
    scores: Vector  # [e]


class Paths(NamedTuple):
    """A lattice, as the passes over it take it."""

    firsts: Numbers  # [b+1]
    node_offsets: Numbers  # [c+1]
    slot_offsets: Numbers  # [c+1]
    slot_nodes: Integers  # [l]
    edge_offsets: Numbers  # [c+1]
    edge_targets: Integers  # [e]
    sizes: Numbers  # [c]: actions into each column


class Writing(NamedTuple):
    """A lattice whose paths are to write targets: see `cpu/targets.py`."""

    lattice: Paths
    columns: Columns
    targets: Targets
    lows: Numbers  # [c]
    highs: Numbers  # [c]
    width: int


class Policy(NamedTuple):
    """How contexts are selected: see `select`."""

    sizes: Numbers  # [c]
    memory: int
    escape: float
    anchored: bool
    by: int


class Aims(NamedTuple):
    """The targets in a selection."""

    targets: Targets
    written: Numbers  # [2 c]: the least and the largest number of symbols written at a column
    mass: NDArray[np.float64]  # [v t]: of contexts by symbols written, less written[0]


class Table(NamedTuple):
    """The hash table of histories."""

    keys: Numbers
    values: Integers
    row_starts: Numbers
    counts: Numbers  # nodes, weights, whether something found no room
    stride: int


class Features(NamedTuple):
    """Histories and their weights."""

    streams: Streams
    table: Table
    stars: Integers  # [s 1+d]: the nodes of strings of ⋆
    begins: Integers  # [s 1+d]: those of strings of the beginning
    weights: Vector


def checked_emissions(
    columns: Columns, emissions: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """The matrix of emission scores, with a row and a number for all that columns want."""
    if emissions is None:
        return np.zeros((0, 0))
    rows = int(columns.emission_rows.max(initial=-1)) + 1
    actions = int(columns.end_actions[columns.emission_rows >= 0].max(initial=0))
    if emissions.ndim != 2 or emissions.shape[0] < rows or emissions.shape[1] < actions:
        raise ArgumentError(
            "emissions", f"must be [{rows}, {actions}] at least. Got {list(emissions.shape)}"
        )
    return emissions
