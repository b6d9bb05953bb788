"""`BlockRules` and `BlockGraph`: the arrays that the block kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int32]
Numbers = NDArray[np.int64]
Vector = NDArray[np.float64]


class Graph(NamedTuple):
    """A graph as the kernels take it: see `BlockGraph`."""

    leaves: Integers  # [x]
    leaf_offsets: Numbers  # [x]
    heads: Integers  # [g]
    rules: Integers  # [g]
    ends: Numbers  # [g+1]
    lefts: Integers  # [e]
    rights: Integers  # [e]
    roots: Integers  # [z]
    root_offsets: Numbers  # [z]
    owners: Integers  # [z]


class ChartArrays(NamedTuple):
    """All trees of a sentence: items and groups as in `BlockGraph`, leaves first."""

    symbols: Integers  # [v]
    spans: Integers  # [v 2]: an item is over words i to j-1
    heads: Integers  # [g]
    rules: Integers  # [g]
    ends: Numbers  # [g+1]
    lefts: Integers  # [e]
    rights: Integers  # [e]


class Blocks(NamedTuple):
    """Rules with their blocks, as the kernels take them: see `BlockRules`."""

    rules: Integers  # [r 3]
    sizes: Numbers  # [s]
    offsets: Numbers  # [r+1]
    exponents: Integers  # [r]: of the largest entries of the blocks


class Rule(NamedTuple):
    """One rule a → b c: where its block begins, its exponent, and m of its symbols."""

    offset: int
    exponent: int
    head: int
    left: int
    right: int


class Vectors(NamedTuple):
    """Vectors one after the other: vector v is values[starts[v]:starts[v+1]] · 2^exponents[v]."""

    starts: Numbers  # [v+1]
    values: Vector  # [x]
    exponents: Numbers  # [v]


class WideVectors(NamedTuple):
    """Vectors one after the other: entry x is values[x] · 2^exponents[x]."""

    starts: Numbers  # [v+1]
    values: Vector  # [x]
    exponents: Numbers  # [x]


AnyVectors = Vectors | WideVectors


class Inside(NamedTuple):
    """What the inside pass finds."""

    values: AnyVectors  # of items
    seeds: AnyVectors  # of roots: their vectors among the parameters
    totals: AnyVectors  # Z of each tree or sentence, a vector of one entry


class Outside(NamedTuple):
    """What the outside pass finds, over Z."""

    outs: AnyVectors  # of items
    items: Vector  # [v]: expected numbers, or [0]
    edges: Vector  # [e]: expected numbers, or [0]


class LogBlocks(NamedTuple):
    """Rules with the logarithms of their blocks."""

    rules: Integers  # [r 3]
    sizes: Numbers  # [s]
    offsets: Numbers  # [r+1]
    parameters: Vector  # [p]


@dataclass(frozen=True, eq=False)
class BlockRules:
    """Binary rules a → b c with a block [m_a m_b m_c] each, somewhere in a vector of parameters."""

    rules: Integers  # [r 3], sorted by a
    sizes: Numbers  # [s]: m of each symbol
    offsets: Numbers  # [r+1]: where the blocks begin among the parameters

    @cached_property
    def head_offsets(self) -> Numbers:
        """The rules of symbol a are head_offsets[a] to head_offsets[a+1]: [s+1]."""
        return np.searchsorted(self.rules[:, 0], np.arange(len(self.sizes) + 1)).astype(np.int64)

    def starts(self, symbols: Integers) -> Numbers:
        """Where the vectors of items with these symbols begin, one after the other: [v+1]."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes[symbols])])


@dataclass(frozen=True, eq=False)
class BlockGraph:
    """Items that hold a vector each, and the ways to make them: leaves and groups of edges.

    A group is one item made by one rule: from each pair of a left and a right item, its edges.
    Groups of one item are side by side, behind the groups of the items that they are made from.
    Several trees or sentences may lie in one graph; each item belongs to one of them.
    """

    symbols: Integers  # [v]
    leaves: Integers  # [x]: items that are given
    leaf_offsets: Numbers  # [x]: where their vectors are among the parameters
    heads: Integers  # [g]
    rules: Integers  # [g]
    ends: Numbers  # [g+1]: the edges of group g are ends[g] to ends[g+1]
    lefts: Integers  # [e]
    rights: Integers  # [e]
    roots: Integers  # [z]: items
    root_offsets: Numbers  # [z]: where their vectors are among the parameters
    owners: Integers  # [z]: the tree or sentence of each root
    num_owners: int

    @property
    def arrays(self) -> Graph:
        """The arrays that the kernels take."""
        return Graph(*(getattr(self, name) for name in Graph._fields))

    @cached_property
    def by_rule(self) -> Numbers:
        """The groups in the order of their rules: [g]."""
        return np.argsort(self.rules, kind="stable")

    @cached_property
    def sorted_rules(self) -> Integers:
        """The rules of the groups in this order: [g]."""
        return self.rules[self.by_rule]
