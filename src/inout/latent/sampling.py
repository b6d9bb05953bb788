"""Trees drawn from a latent-variable grammar, from the roots down, all of a level at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.checks import at_least
from inout._core.errors import ArgumentError
from inout._core.randomness import checked_generator, drawn
from inout.latent.layout import Layout, Numbers, Vector
from inout.latent.trees import SkeletalTrees

MAX_NODES = 20_000_000
"""How many nodes all trees together may have before the drawing of them is given up."""

# Distributions may miss a sum of 1 by this much.
_ROUNDING = 1e-6


def sample_trees(
    layout: Layout,
    parameters: Vector,
    n: int,
    *,
    generator: torch.Generator | None = None,
    max_nodes: int = MAX_NODES,
) -> SkeletalTrees:
    """n independent trees, drawn with their probabilities, without latent values.

    `generator` makes them reproducible; by default torch's own is used. The parameters must be
    probabilities. O(log p) for each node, in steps of whole levels.
    """
    at_least("n", n, 0)
    at_least("max_nodes", max_nodes, 1)
    source = checked_generator(generator)
    choices = _Choices(layout, parameters)
    roots = choices.drawn(np.zeros(n, np.int64), source)
    labels = np.searchsorted(layout.root_offsets, roots, side="right") - 1
    # The states are numbered as the root vectors are, with 0 for what stands above the roots.
    states, levels, count = 1 + roots, [], 0
    while len(states):
        count += len(states)
        if count > max_nodes:
            raise ArgumentError(
                "max_nodes",
                f"must be larger, or the grammar one whose trees end. Got {n} trees "
                f"with more than {max_nodes} nodes, {len(states)} of them without children yet",
            )
        level, labels, states = choices.level(labels, states, source)
        levels.append(level)
    return _in_preorder(layout, levels)


@dataclass(frozen=True, eq=False)
class _Level:
    """Nodes of one depth; the children of those with rules a → b c are the next level."""

    labels: Numbers  # [v]
    rules: Numbers  # [v]
    is_leaf: NDArray[np.bool_]  # [v]


class _Choices:
    """What follows each state, with sums of probabilities to search in."""

    def __init__(self, layout: Layout, parameters: Vector) -> None:
        if not (parameters >= 0).all():
            wanted = "must not be negative to draw from them"
            raise ArgumentError("parameters", f"{wanted}. Got a model where one is")
        self.layout = layout
        groups = layout.distributions
        self.order = np.argsort(groups, kind="stable")
        counts = np.bincount(groups, minlength=1 + int(layout.root_offsets[-1]))
        self.ends = np.cumsum(counts)
        self.sums = np.concatenate([np.zeros(1), np.cumsum(parameters[self.order])])
        totals = self.sums[self.ends] - self.sums[self.ends - counts]
        self.lows, self.highs = self.sums[self.ends - counts], self.sums[self.ends]
        # Values that never occur may have no distribution.
        bad = (np.abs(totals - 1.0) > _ROUNDING) & (totals > 0)
        if bad.any():
            wanted = ": each distribution must sum to 1 to be drawn from"
            given = f"{totals[bad][0]:.6g} for {self._name(int(np.flatnonzero(bad)[0]))}"
            raise ArgumentError("parameters", f"{wanted}. Got {given}")

    def drawn(self, states: Numbers, generator: torch.Generator) -> Numbers:
        """A parameter of each of the distributions."""
        lows, highs = self.lows[states], self.highs[states]
        empty = highs <= lows
        if empty.any():
            name = self._name(int(states[empty][0]))
            wanted = ": every value that is met must have rules"
            raise ArgumentError("parameters", f"{wanted}. Got none for {name}")
        # Strictly below the upper bound, so that what is found has a positive probability.
        chosen = lows + drawn(torch.rand, generator, len(states)) * (highs - lows)
        targets = np.minimum(chosen, np.nextafter(highs, 0))
        places = np.searchsorted(self.sums, targets, side="right") - 1
        return np.asarray(self.order[places], np.int64)

    def level(
        self, labels: Numbers, states: Numbers, generator: torch.Generator
    ) -> tuple[_Level, Numbers, Numbers]:
        """The nodes of these labels and states, and the labels and states of their children."""
        layout = self.layout
        found = self.drawn(states, generator)
        is_leaf = found < layout.lexical_offsets[-1]
        rules = np.where(
            is_leaf,
            np.searchsorted(layout.lexical_offsets, found, side="right"),
            np.searchsorted(layout.block_offsets, found, side="right"),
        ) - 1  # fmt: skip
        inner, below = found[~is_leaf], rules[~is_leaf]
        children = layout.skeleton.binary[below, 1:].astype(np.int64)  # [v 2]
        sizes = layout.sizes[children]
        rest = (inner - layout.block_offsets[below]) % (sizes[:, 0] * sizes[:, 1])
        values = np.stack([rest // sizes[:, 1], rest % sizes[:, 1]], axis=1)
        level = _Level(labels, rules, is_leaf)
        return level, children.reshape(-1), (1 + layout.root_offsets[children] + values).reshape(-1)

    def _name(self, state: int) -> str:
        if state == 0:
            return "roots"
        a = int(np.searchsorted(self.layout.root_offsets, state - 1, side="right")) - 1
        value = state - 1 - int(self.layout.root_offsets[a])
        return f"value {value} of {self.layout.skeleton.nonterminals[a]}"


def _in_preorder(layout: Layout, levels: list[_Level]) -> SkeletalTrees:
    """The trees of all levels, each node in its place."""
    sizes: list[Numbers] = []  # of the subtrees of each level, the lowest first
    below = np.zeros((0, 2), np.int64)
    for level in reversed(levels):
        own = np.ones(len(level.labels), np.int64)
        own[~level.is_leaf] += below.sum(axis=1)
        sizes.append(own)
        below = own.reshape(-1, 2) if len(sizes) < len(levels) else below
    roots = sizes[-1] if sizes else np.zeros(0, np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(roots)])
    labels, rules = np.zeros((2, int(offsets[-1])), np.int64)
    lefts, rights = np.full((2, int(offsets[-1])), -1, np.int64)
    places = offsets[:-1]
    for depth, level in enumerate(levels):
        labels[places], rules[places] = level.labels, level.rules
        heads = places[~level.is_leaf]
        if not len(heads):
            break
        of_lefts = sizes[len(levels) - 2 - depth].reshape(-1, 2)[:, 0]
        lefts[heads], rights[heads] = heads + 1, heads + 1 + of_lefts
        places = np.stack([lefts[heads], rights[heads]], axis=1).reshape(-1)
    return SkeletalTrees(layout.skeleton, offsets, labels, rules, lefts, rights)
