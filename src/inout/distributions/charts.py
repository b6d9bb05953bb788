"""The explicit forest of a batch: items in blocks, edges grouped by number of tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout.forest import Forest
from inout.forest.assembly import assemble
from inout.forest.labels import BlockLabels, SelectedLabels

Items = NDArray[np.int64]
Group = tuple[Items, list[Items]]  # heads, and for each tail an array of their size


def group(heads: Items, *tails: Items) -> Group:
    """Edges whose heads and tails are broadcast to one shape."""
    first, *rest = (x.reshape(-1) for x in np.broadcast_arrays(heads, *tails))
    return first, rest


def chart_forest(
    relations: Mapping[str, Tensor], blocks: BlockLabels, groups: Sequence[Group], *, batched: bool
) -> Forest:
    """The forest whose first blocks are the relations and whose last block is the goals."""
    flat = {name: values.reshape(-1) for name, values in relations.items()}
    rows = np.arange(sum(len(values) for values in flat.values()))
    goals = blocks.numbers(list(blocks.shapes)[-1])
    fields = assemble(*_packed(groups), flat, rows, goals, blocks)
    return Forest(**fields, single_goal=not batched)


def chart_values(forest: Forest, values: Tensor, batch_shape: torch.Size) -> dict[str, Tensor]:
    """Log-values of the items of such a forest as {block: [*b ...]}; -inf where it has no item."""
    labels = forest.labels
    assert isinstance(labels, SelectedLabels)
    blocks = labels.labels
    assert isinstance(blocks, BlockLabels)
    places = torch.from_numpy(labels.chosen).long().to(values.device)
    whole = values.new_full((len(blocks),), -torch.inf).index_put((places,), values)
    parts = torch.split(whole, [prod(shape) for shape in blocks.shapes.values()])
    return {
        name: part.reshape(batch_shape + shape[1:])
        for (name, shape), part in zip(blocks.shapes.items(), parts, strict=True)
    }


def _packed(
    groups: Sequence[Group],
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """(heads, tail_offsets, tails) of all edges."""
    none = np.empty(0, np.int64)  # for a batch without elements
    heads = np.concatenate([none, *(heads for heads, _ in groups)])
    arity = np.concatenate([none, *(np.full(len(heads), len(tails)) for heads, tails in groups)])
    tails = np.concatenate([none, *(np.stack(t, axis=1).reshape(-1) for _, t in groups if t)])
    offsets = np.concatenate([[0], np.cumsum(arity)]).astype(np.int64)
    return heads.astype(np.int32), offsets, tails.astype(np.int32)
