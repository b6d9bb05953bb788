"""A forest level by level in torch calls: its edges as index matrices, and the passes over them.

Inside, outside and their directional derivative are the same passes as in `cpu/scaled.py`, in log
space, on the weights' device. Nothing here is recorded by autograd: `op.py` strings the passes
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.forest.arrays import ForestArrays


@dataclass(frozen=True, eq=False)
class EdgeGroup:
    """Edges of one level with the same number of tails."""

    edges: Int[Tensor, " n"]
    heads: Int[Tensor, " n"]  # counted from the first item of the level
    tails: Int[Tensor, "n arity"]


@dataclass(frozen=True, eq=False)
class Level:
    """Derived items first..last-1 and all their edges."""

    first: int
    last: int
    groups: tuple[EdgeGroup, ...]


_CACHE: WeakKeyDictionary[ForestArrays, dict[torch.device, tuple[Level, ...]]] = WeakKeyDictionary()


def levels_of(arrays: ForestArrays, device: torch.device) -> tuple[Level, ...]:
    """The derived levels of a forest, lowest first, on `device` (kept as long as the forest)."""
    per_device = _CACHE.setdefault(arrays, {})
    if device not in per_device:
        per_device[device] = tuple(_build(arrays, device))
    return per_device[device]


def _build(arrays: ForestArrays, device: torch.device) -> list[Level]:
    arities = np.diff(arrays.tail_offsets)
    levels = []
    for first, last in zip(arrays.level_offsets[1:-1], arrays.level_offsets[2:], strict=True):
        edges = np.arange(arrays.edge_offsets[first], arrays.edge_offsets[last])
        groups = []
        for arity in np.unique(arities[edges]):
            chosen = edges[arities[edges] == arity]
            places = arrays.tail_offsets[chosen][:, None] + np.arange(arity)
            groups.append(
                EdgeGroup(
                    torch.from_numpy(chosen).to(device),
                    torch.from_numpy(arrays.heads[chosen].astype(np.int64) - first).to(device),
                    torch.from_numpy(arrays.tails[places].astype(np.int64)).to(device),
                )
            )
        levels.append(Level(int(first), int(last), tuple(groups)))
    return levels


class Values(NamedTuple):
    """Log values of all items, and how those of derived items came about.

    log = log-weight + log(total) + shift, where `shift` is the largest edge and `total` the sum
    of the edges in units of it. Shares taken from these sum to one; differences of two logs
    would miss it by the rounding of the logs, which may be large numbers.
    """

    logs: Float[Tensor, " v"]
    shifts: Float[Tensor, " v"]
    totals: Float[Tensor, " v"]


def inside(arrays: ForestArrays, weights: Float[Tensor, " v"]) -> Values:
    """Log values of all items."""
    logs, shifts, totals = weights.clone(), torch.zeros_like(weights), torch.ones_like(weights)
    for level in levels_of(arrays, weights.device):
        rows = [logs[group.tails].sum(1) for group in level.groups]
        size = level.last - level.first
        highest = weights.new_full((size,), -torch.inf)
        for group, row in zip(level.groups, rows, strict=True):
            highest.scatter_reduce_(0, group.heads, row, "amax")
        shift = torch.where(highest == -torch.inf, 0.0, highest)
        total = weights.new_zeros(size)
        for group, row in zip(level.groups, rows, strict=True):
            total.index_add_(0, group.heads, (row - shift[group.heads]).exp())
        logs[level.first : level.last] += total.log() + shift
        shifts[level.first : level.last] = shift
        totals[level.first : level.last] = total
    return Values(logs, shifts, totals)


def _shares(level: Level, group: EdgeGroup, values: Values) -> Float[Tensor, " n"]:
    """Probabilities of a group's edges given their heads; 0 below a head without value."""
    heads = group.heads + level.first
    shares = (values.logs[group.tails].sum(1) - values.shifts[heads]).exp() / values.totals[heads]
    return torch.where(values.logs[heads] == -torch.inf, 0.0, shares)


def outside(
    arrays: ForestArrays, values: Values, seeds: Float[Tensor, " v"]
) -> Float[Tensor, " v"]:
    """Expected counts: the gradient of sum(seeds * log value) in all items' log-weights."""
    counts = torch.where(values.logs == -torch.inf, 0.0, seeds)
    for level in reversed(levels_of(arrays, seeds.device)):
        for group in level.groups:
            hits = _shares(level, group, values) * counts[group.heads + level.first]
            _add_to_tails(counts, group, hits)
    return counts


def _add_to_tails(counts: Tensor, group: EdgeGroup, hits: Tensor) -> None:
    """Add each edge's `hits` to each of its tails, in place."""
    counts.index_add_(0, group.tails.reshape(-1), hits.repeat_interleave(group.tails.shape[1]))


def edge_probabilities(arrays: ForestArrays, values: Values) -> Float[Tensor, " e"]:
    """Probability of every edge given its head (Eisner 2016, equations 17 and 18)."""
    result = values.logs.new_zeros(arrays.num_edges)
    for level in levels_of(arrays, result.device):
        for group in level.groups:
            result[group.edges] = _shares(level, group, values)
    return result


def tangent(
    arrays: ForestArrays, values: Values, seeds: Float[Tensor, " v"], direction: Float[Tensor, " v"]
) -> tuple[Float[Tensor, " v"], Float[Tensor, " v"]]:
    """Derivatives (log values, counts) when the log-weights move along `direction`.

    An edge's derivative is kept relative to the mean of its head's edges, in two parts, for the
    reason given in `cpu/scaled.py`.
    """
    levels = levels_of(arrays, seeds.device)
    log_dots = torch.where(values.logs == -torch.inf, 0.0, direction)
    pivots, means = torch.zeros_like(log_dots), torch.zeros_like(log_dots)
    for level in levels:
        edges = [
            (group.heads + level.first, _shares(level, group, values), log_dots[group.tails].sum(1))
            for group in level.groups
        ]
        for heads, shares, dots in edges:
            pivots.index_add_(0, heads, shares * dots)
        for heads, shares, dots in edges:
            means.index_add_(0, heads, shares * (dots - pivots[heads]))
        here = slice(level.first, level.last)
        log_dots[here] += pivots[here] + means[here]
    counts = torch.where(values.logs == -torch.inf, 0.0, seeds)
    count_dots = torch.zeros_like(counts)
    for level in reversed(levels):
        for group in level.groups:
            heads = group.heads + level.first
            shares = _shares(level, group, values)
            slope = (log_dots[group.tails].sum(1) - pivots[heads]) - means[heads]
            hit_dots = shares * (count_dots[heads] + counts[heads] * slope)
            _add_to_tails(counts, group, shares * counts[heads])
            _add_to_tails(count_dots, group, hit_dots)
    return log_dots, count_dots
