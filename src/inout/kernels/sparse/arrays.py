"""What the passes of sparse grammars read: rules, weights, sentences.

`RuleArrays` and `SentenceArrays` are made once; the NamedTuples are what kernels get of them. The
type of the numbers says in which arithmetic a kernel works (`cpu/arithmetic.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_NONE, _NO_FLOATS = np.empty(0, np.int64), np.empty(0)


class Grammar(NamedTuple):
    """What every kernel reads of the rules, see `RuleArrays`."""

    pair_offsets: NDArray[np.int64]  # [symbols+1]
    pair_right: NDArray[np.int32]  # [q]
    rule_offsets: NDArray[np.int64]  # [q+1]
    rule_head: NDArray[np.int32]  # [r]
    unary_head: NDArray[np.int32]  # [u]
    unary_child: NDArray[np.int32]  # [u]
    unary_place: NDArray[np.int32]  # [symbols], numbers those of unary rules, -1 for the others
    root: int
    num_unary_symbols: int


class Ways(NamedTuple):
    """What walks from the top down read of the rules besides."""

    rule_left: NDArray[np.int32]  # [r]
    rule_right: NDArray[np.int32]  # [r]
    head_offsets: NDArray[np.int64]  # [symbols+1]
    head_rules: NDArray[np.int64]  # [r], by head, then in the caller's order
    order: NDArray[np.int64]  # [r]


class Words(NamedTuple):
    """The entries of sentences, and what is special about spans, as in `SentenceArrays`."""

    offsets: NDArray[np.int64]  # [positions+1]
    symbols: NDArray[np.int32]  # [words' entries]
    values: Array  # [entries], those of arcs last; of the problem's numbers
    exponents: NDArray[np.int64]  # [positions], binary ones of the values, if they are scaled
    first_cells: NDArray[np.int64]  # [positions], the first cell of the position's sentence
    arc_offsets: NDArray[np.int64]  # [cells+1] or [0]
    arc_symbols: NDArray[np.int32]  # [arcs]
    arc_exponents: NDArray[np.int64]  # [cells], binary ones of the values, if they are scaled
    allowed: NDArray[np.bool_]  # [cells s|1] or [0 1]


class Weights(NamedTuple):
    """Weights of rules in the numbers of some type; a row for one cell, or one for all cells."""

    binary: Array  # [rows r], in the passes' order
    unary: Array  # [rows u]
    binary_exponents: NDArray[np.int64] = _NONE  # [rows], binary ones of the weights, if scaled
    unary_exponents: NDArray[np.int64] = _NONE  # [rows]
    keeps: NDArray[np.float64] = _NO_FLOATS  # [rows], the weight of no unary rule: 2**-exponent


class Scaled(NamedTuple):
    """Real numbers, with a binary exponent for each row of weights and each span."""

    beam: float  # the share of its span's largest value below which a symbol is dropped
    raised: float  # what values that are too small become


class Logs(NamedTuple):
    """Logarithms."""

    beam: float  # logarithm of the share


class Best(NamedTuple):
    """Logarithms, of which sums are maxima."""

    beam: float  # logarithm of the share


class Residues(NamedTuple):
    """Remainders modulo a prime below 2**31."""

    prime: int


class Problem(NamedTuple):
    """Sentences under a grammar, in one arithmetic: the leading argument of kernels."""

    grammar: Grammar
    numbers: Scaled | Logs | Best | Residues
    weights: Weights
    words: Words


@dataclass(frozen=True, eq=False)
class RuleArrays:
    """Rules A -> B C and A -> B over symbols 0..num_symbols-1, sorted for the passes; no weights.

    A unary rule applies once to the symbols that a span has from words or binary rules: chains
    and cycles have to be closed before. The pairs (B, C) that have a rule are numbered by B, then
    C: those of B are `pair_offsets[B]:pair_offsets[B+1]`, C is `pair_right`, and the rules of pair
    q are `rule_offsets[q]:rule_offsets[q+1]` in the passes' own order, `order` being their number
    in the caller's.
    """

    num_symbols: int
    grammar: Grammar
    ways: Ways

    @classmethod
    def compile(cls, num_symbols: int, root: int, binary: Array, unary: Array) -> RuleArrays:
        """Sorted arrays of binary [r 3] (head, left, right) and unary [u 2] (head, child).

        The same rule may be there more than once. O(r log r).
        """
        binary, unary = binary.reshape(-1, 3).astype(np.int32), unary.reshape(-1, 2)
        head, left, right = binary.T
        order = np.lexsort((head, right, left))
        head, left, right = (np.ascontiguousarray(x[order]) for x in (head, left, right))
        new = np.ones(len(head), np.bool_)
        new[1:] = (left[1:] != left[:-1]) | (right[1:] != right[:-1])
        firsts = np.flatnonzero(new)
        unary_head, unary_child = (np.ascontiguousarray(x, np.int32) for x in unary.T)
        symbols = np.unique(unary)
        place = np.full(num_symbols, -1, np.int32)
        place[symbols] = np.arange(len(symbols))
        grammar = Grammar(
            pair_offsets=np.searchsorted(left[firsts], np.arange(num_symbols + 1)),
            pair_right=right[firsts],
            rule_offsets=np.append(firsts, len(head)),
            rule_head=head,
            unary_head=unary_head,
            unary_child=unary_child,
            unary_place=place,
            root=root,
            num_unary_symbols=len(symbols),
        )
        head_offsets = np.append(0, np.bincount(head, minlength=num_symbols).cumsum())
        ways = Ways(left, right, head_offsets, np.lexsort((order, head)), order)
        return cls(num_symbols, grammar, ways)


@dataclass(frozen=True, eq=False)
class SentenceArrays:
    """The symbols that the words of some sentences may have, before unary rules; no weights.

    Positions of all sentences are numbered through: those of sentence b are
    `starts[b]:starts[b+1]`, the entries of position p are `offsets[p]:offsets[p+1]`. A sentence
    may be empty, a position may have no entry, a symbol may be there twice.

    So are the cells: span i..j (both inclusive) of a sentence b of n words is cell
    `cell_starts[b] + i * n + j`. Arcs are further entries, of a cell of any width, as lattices
    have them: those of cell c are `arc_offsets[c]:arc_offsets[c+1]`, of size 0 if there are none
    at all. Entries are numbered with the arcs last. A symbol that is not `allowed` over a span
    is not there before its unary rules, nor after them; one column stands for all symbols, no
    row for no such restriction.

    >>> words = SentenceArrays(np.array([0, 2]), np.array([0, 1, 2]), np.array([1, 1], np.int32))
    >>> words.cell_starts, words.num_entries
    (array([0, 4]), 2)
    """

    starts: NDArray[np.int64]  # [b+1]
    offsets: NDArray[np.int64]  # [positions+1]
    symbols: NDArray[np.int32]  # [words' entries]
    arc_offsets: NDArray[np.int64] = field(default_factory=lambda: _NONE)  # [cells+1] or [0]
    arc_symbols: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))  # [arcs]
    # [cells s|1] or [0 1]
    allowed: NDArray[np.bool_] = field(default_factory=lambda: np.empty((0, 1), np.bool_))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of words of each sentence."""
        return np.diff(self.starts)

    @property
    def num_entries(self) -> int:
        """Number of the words' entries and arcs: each has a weight."""
        return len(self.symbols) + len(self.arc_symbols)

    @cached_property
    def cell_starts(self) -> NDArray[np.int64]:
        """The first cell of each sentence, and last the number of all cells [b+1]."""
        return np.append(0, (self.lengths**2).cumsum())

    @cached_property
    def _first_cells(self) -> NDArray[np.int64]:
        """By which a kernel that knows only where its sentence begins finds the cells."""
        return np.repeat(self.cell_starts[:-1], self.lengths)

    def words(self, values: Array, exponents: Array = _NONE, arcs: Array = _NONE) -> Words:
        """The entries with values [entries]; binary exponents of the words' and of the arcs'."""
        return Words(
            self.offsets, self.symbols, values, exponents, self._first_cells, self.arc_offsets,
            self.arc_symbols, arcs, self.allowed,
        )  # fmt: skip

    def select(self, which: Array) -> tuple[SentenceArrays, Array, Array]:
        """(only these sentences, the numbers of their entries, the numbers of their cells)."""
        places, cells = _ranges(self.starts, which), _ranges(self.cell_starts, which)
        entries = _ranges(self.offsets, places)
        arc_offsets, arcs = self.arc_offsets, np.empty(0, np.int64)
        if len(arc_offsets):
            arcs = _ranges(arc_offsets, cells)
            arc_offsets = np.append(0, np.diff(arc_offsets)[cells].cumsum())
        only = SentenceArrays(
            starts=np.append(0, self.lengths[which].cumsum()),
            offsets=np.append(0, np.diff(self.offsets)[places].cumsum()),
            symbols=self.symbols[entries],
            arc_offsets=arc_offsets,
            arc_symbols=self.arc_symbols[arcs],
            allowed=self.allowed[cells] if len(self.allowed) else self.allowed,
        )
        return only, np.append(entries, len(self.symbols) + arcs), cells


def _ranges(offsets: Array, which: Array) -> Array:
    """The numbers in offsets[w]:offsets[w+1] for each w of which, one after the other."""
    counts = offsets[which + 1] - offsets[which]
    ends = counts.cumsum()
    # A run of ones with a jump at each beginning.
    shifts: Array = np.repeat(offsets[which] - (ends - counts), counts)
    return shifts + np.arange(len(shifts))
