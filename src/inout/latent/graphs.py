"""Block graphs of skeletal trees and of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ChartTooLargeError
from inout.kernels.latent.arrays import BlockGraph, BlockRules
from inout.kernels.latent.cpu import charts as charting
from inout.kernels.limits import LATENT_MOST_EDGES
from inout.latent.layout import Layout
from inout.latent.trees import SkeletalTrees

Mask = NDArray[np.bool_]


def block_rules(layout: Layout) -> BlockRules:
    """The binary rules of a layout, as the kernels read them."""
    return BlockRules(layout.skeleton.binary, layout.sizes, layout.block_offsets)


def graph_of_trees(layout: Layout, trees: SkeletalTrees) -> BlockGraph:
    """One item for each node; all trees side by side, from the leaves up."""
    leaves, inner = np.flatnonzero(trees.is_leaf), np.flatnonzero(~trees.is_leaf)
    # Nodes of one rule one after the other, as far as the heights allow: its block stays in cache.
    inner = inner[np.lexsort((trees.rules[inner], trees.heights[inner]))]
    return BlockGraph(
        symbols=trees.labels.astype(np.int32),
        leaves=leaves.astype(np.int32),
        leaf_offsets=layout.lexical_offsets[trees.rules[leaves]],
        heads=inner.astype(np.int32),
        rules=trees.rules[inner].astype(np.int32),
        ends=np.arange(len(inner) + 1),
        lefts=trees.lefts[inner].astype(np.int32),
        rights=trees.rights[inner].astype(np.int32),
        roots=trees.roots.astype(np.int32),
        root_offsets=layout.root_offsets[trees.labels[trees.roots]],
        owners=np.arange(len(trees), dtype=np.int32),
        num_owners=len(trees),
    )


@dataclass(frozen=True, eq=False)
class Chart:
    """The graph of a sentence, with the words that each item spans."""

    graph: BlockGraph
    spans: NDArray[np.int32]  # [v 2]
    leaf_rules: NDArray[np.int64]  # [x]: the lexical rule of each leaf item
    num_words: int


def chart_of_sentence(layout: Layout, words: Sequence[int], allowed: Mask | None = None) -> Chart:
    """All trees of a sentence of word numbers, or those with allowed [n n+1 a] symbols alone.

    Unknown words (-1) have no lexical rule, and the sentence then no tree. Time: the rules of the
    allowed symbols for each span, and the splits of those that apply. More than
    `LATENT_MOST_EDGES` raise ChartTooLargeError.
    """
    skeleton, n = layout.skeleton, len(words)
    entries = [skeleton.rules_of_word[x] if x >= 0 else np.empty(0, np.int64) for x in words]
    positions = np.repeat(np.arange(n), [len(entry) for entry in entries])
    rules = np.concatenate([np.empty(0, np.int64), *entries])
    symbols = skeleton.lexical[rules, 0]
    if allowed is None:
        allowed = np.empty((0, 0, 0), np.bool_)
    else:
        kept = allowed[positions, positions + 1, symbols]
        positions, rules, symbols = positions[kept], rules[kept], symbols[kept]
    made = block_rules(layout)
    found = charting.chart(
        n, made.rules, made.head_offsets, positions, symbols, allowed, LATENT_MOST_EDGES
    )
    if len(found.lefts) == LATENT_MOST_EDGES:
        raise ChartTooLargeError(
            "words",
            f": the chart of a sentence of {n} words has more than {LATENT_MOST_EDGES:,} edges; "
            "a larger threshold leaves fewer",
        )
    roots = np.flatnonzero((found.spans == [0, n]).all(1))
    graph = BlockGraph(
        symbols=found.symbols,
        leaves=np.arange(len(rules), dtype=np.int32),
        leaf_offsets=layout.lexical_offsets[rules],
        heads=found.heads,
        rules=found.rules,
        ends=found.ends,
        lefts=found.lefts,
        rights=found.rights,
        roots=roots.astype(np.int32),
        root_offsets=layout.root_offsets[found.symbols[roots]],
        owners=np.zeros(len(roots), np.int32),
        num_owners=1,
    )
    return Chart(graph, found.spans, rules, n)


def joined(graphs: Sequence[BlockGraph]) -> BlockGraph:
    """Several graphs side by side in one; their trees or sentences keep their order."""

    def shifted(name: str, counts: list[int]) -> NDArray[np.int32]:
        firsts = np.cumsum([0, *counts[:-1]])
        parts = [getattr(g, name) + first for g, first in zip(graphs, firsts, strict=True)]
        return np.concatenate(parts).astype(np.int32)

    items, owners = [len(g.symbols) for g in graphs], [g.num_owners for g in graphs]
    edges = np.concatenate([np.diff(g.ends) for g in graphs])
    shared: dict[str, Any] = {
        name: np.concatenate([getattr(g, name) for g in graphs])
        for name in ("symbols", "leaf_offsets", "rules", "root_offsets")
    }
    for name in ("leaves", "heads", "lefts", "rights", "roots"):
        shared[name] = shifted(name, items)
    return BlockGraph(
        **shared,
        ends=np.concatenate([np.zeros(1, np.int64), np.cumsum(edges)]),
        owners=shifted("owners", owners),
        num_owners=sum(owners),
    )
