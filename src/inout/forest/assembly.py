"""Forests made from edges, from parts of a forest, and from several forests."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import expect
from inout._core.errors import CycleError, ForestError
from inout.forest.expectations import item_and_edge_posteriors
from inout.forest.labels import BatchLabels, SelectedLabels
from inout.kernels.forest.arrays import ForestArrays, segments
from inout.kernels.forest.ordering import order_forest

if TYPE_CHECKING:
    from inout.forest.forest import Forest

ROUNDING = 1e-9


def assemble(
    heads: NDArray[np.int32],
    tail_offsets: NDArray[np.int64],
    tails: NDArray[np.int32],
    relations: Mapping[str, Tensor],
    axiom_rows: NDArray[np.int64],
    goals: NDArray[np.int64],
    labels: Sequence[Hashable],
) -> dict[str, Any]:
    """The leading fields of the `Forest` with these edges. O(items + edges).

    Items 0..a-1 are the axioms: axiom i is row `axiom_rows[i]` of the concatenated relations;
    the others are derived. Items that no goal uses are dropped; a cycle is an error.
    """
    is_axiom = np.arange(len(labels)) < len(axiom_rows)
    ordered = order_forest(heads, tail_offsets, tails, is_axiom, goals)
    if not isinstance(ordered, tuple):
        raise CycleError([str(labels[int(item)]) for item in ordered])
    arrays, old = ordered
    return {
        "arrays": arrays,
        "relations": dict(relations),
        "axiom_rows": torch.from_numpy(axiom_rows[old[: arrays.num_axioms]]),
        "labels": SelectedLabels(labels, old),
    }


def _chain_offsets(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """CSR offsets of the concatenation of several CSR arrays."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(p) for p in parts]))])


def batch(forests: Sequence[Forest]) -> Forest:
    """The disjoint union of forests; see `Forest.batch`."""
    if not forests:
        raise ForestError("a batch needs at least one forest")
    if any(f.goal_of_item is None and not f.single_goal for f in forests):
        raise ForestError("only forests with one goal each can be batched")
    arrays = [f.arrays for f in forests]
    sizes = np.array([a.num_items for a in arrays])
    bases = np.concatenate([[0], np.cumsum(sizes)])
    level = np.concatenate(
        [np.repeat(np.arange(len(a.level_offsets) - 1), np.diff(a.level_offsets)) for a in arrays]
    )
    old = np.argsort(level, kind="stable")
    new = np.empty_like(old)
    new[old] = np.arange(len(old))

    edge_offsets = _chain_offsets([a.edge_offsets for a in arrays])
    tail_offsets = _chain_offsets([a.tail_offsets for a in arrays])
    tails = np.concatenate([a.tails + b for a, b in zip(arrays, bases[:-1], strict=True)])
    edges = segments(edge_offsets, old)
    union = ForestArrays(
        num_axioms=sum(a.num_axioms for a in arrays),
        edge_offsets=np.concatenate([[0], np.cumsum(np.diff(edge_offsets)[old])]),
        tail_offsets=np.concatenate([[0], np.cumsum(np.diff(tail_offsets)[edges])]),
        tails=new[tails[segments(tail_offsets, edges)]].astype(np.int32),
        level_offsets=np.concatenate([[0], np.cumsum(np.bincount(level))]),
        goals=np.concatenate([new[a.goals + b] for a, b in zip(arrays, bases[:-1], strict=True)]),
    )

    elements = np.repeat(np.arange(len(forests)), sizes)[old]
    places = old - bases[elements]
    goal_bases = np.concatenate([[0], np.cumsum([len(a.goals) for a in arrays])])
    owners = [
        torch.zeros(f.num_items, dtype=torch.long) if f.goal_of_item is None else f.goal_of_item
        for f in forests
    ]
    goal_of_item = torch.cat([o + int(b) for o, b in zip(owners, goal_bases[:-1], strict=True)])
    relations, axiom_rows = _merge_relations(forests)
    # Axioms of forest k follow those of forest k-1 in `axiom_rows`: count them, not all items.
    num_axioms = np.array([a.num_axioms for a in arrays])
    axiom_bases = np.concatenate([[0], np.cumsum(num_axioms)])
    of = elements[: union.num_axioms]
    rows = axiom_rows[torch.from_numpy(axiom_bases[of] + places[: union.num_axioms])]
    return replace(
        forests[0],
        arrays=union,
        relations=relations,
        axiom_rows=rows,
        labels=BatchLabels([f.labels for f in forests], elements, places),
        single_goal=False,
        goal_of_item=goal_of_item[torch.from_numpy(old)],
    )


def _merge_relations(forests: Sequence[Forest]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Relations concatenated by name, and the row of each axiom in them."""
    names = list(dict.fromkeys(name for f in forests for name in f.relations))
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    starts: list[dict[str, int]] = []
    totals = dict.fromkeys(names, 0)
    for forest in forests:
        starts.append({name: totals[name] for name in forest.relations})
        for name, rows in forest.relations.items():
            parts[name].append(rows)
            totals[name] += len(rows)
    merged = {name: torch.cat(parts[name]) for name in names}
    first = dict(zip(names, np.cumsum([0, *(len(m) for m in merged.values())]), strict=False))
    shifted = []
    for forest, start in zip(forests, starts, strict=True):
        where = torch.cat(
            [
                torch.arange(len(rows)) + int(first[name]) + start[name]
                for name, rows in forest.relations.items()
            ]
        )
        shifted.append(where[forest.axiom_rows])
    return merged, torch.cat(shifted)


def restrict(forest: Forest, keep: NDArray[np.bool_]) -> Forest:
    """The forest of the edges marked in `keep` [e], trimmed to what the goals still use."""
    arrays = forest.arrays
    lengths = np.diff(arrays.tail_offsets)
    tail_offsets = np.concatenate([[0], np.cumsum(lengths[keep])])
    tails = arrays.tails[np.repeat(keep, lengths)]
    is_axiom = np.arange(arrays.num_items) < arrays.num_axioms
    ordered = order_forest(arrays.heads[keep], tail_offsets, tails, is_axiom, arrays.goals)
    assert isinstance(ordered, tuple), "edges of an acyclic forest cannot form a cycle"
    smaller, old = ordered
    kept = torch.from_numpy(old.astype(np.int64))
    owners = forest.goal_of_item
    return replace(
        forest,
        arrays=smaller,
        axiom_rows=forest.axiom_rows[kept[: smaller.num_axioms]],
        labels=SelectedLabels(forest.labels, old),
        goal_of_item=None if owners is None else owners[kept],
    )


def prune(forest: Forest, threshold: float) -> Forest:
    """The forest of the edges with posterior of at least `threshold`; see `Forest.prune`."""
    expect(0 <= threshold <= 1, "threshold", "must be a probability in [0, 1]", threshold)
    _, posteriors = item_and_edge_posteriors(forest)
    # An edge of every derivation has a posterior of one only up to rounding.
    return restrict(forest, (posteriors >= threshold * (1 - ROUNDING)) & (posteriors > 0))
