"""Inside, outside and their directional derivative as torch calls, level by level.

The same passes as `cpu.py`, in log space, on whatever device the weights are. Nothing here is
recorded by autograd: `op.py` strings the passes together.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.levels import EdgeGroup, Level, levels_of


def inside(
    arrays: ForestArrays, weights: Float[Tensor, " v"]
) -> Float[Tensor, " v"]:
    """Log values of all items."""
    values = weights.clone()
    for level in levels_of(arrays, weights.device):
        rows = [values[group.tails].sum(1) for group in level.groups]
        size = level.last - level.first
        highest = weights.new_full((size,), -torch.inf)
        for group, row in zip(level.groups, rows, strict=True):
            highest.scatter_reduce_(0, group.heads, row, "amax")
        shift = torch.where(highest == -torch.inf, 0.0, highest)
        total = weights.new_zeros(size)
        for group, row in zip(level.groups, rows, strict=True):
            total.index_add_(0, group.heads, (row - shift[group.heads]).exp())
        values[level.first : level.last] += total.log() + shift
    return values


def _shares(
    level: Level, group: EdgeGroup, weights: Tensor, values: Tensor
) -> Float[Tensor, " n"]:
    """Probabilities of a group's edges given their heads; 0 below a head without value."""
    heads = group.heads + level.first
    log_shares = values[group.tails].sum(1) + weights[heads] - values[heads]
    return torch.where(values[heads] == -torch.inf, 0.0, log_shares.exp())


def outside(
    arrays: ForestArrays,
    weights: Float[Tensor, " v"],
    values: Float[Tensor, " v"],
    seeds: Float[Tensor, " v"],
) -> Float[Tensor, " v"]:
    """Expected counts: the gradient of sum(seeds * log value) in all items' log-weights."""
    counts = torch.where(values == -torch.inf, 0.0, seeds)
    for level in reversed(levels_of(arrays, weights.device)):
        for group in level.groups:
            hits = _shares(level, group, weights, values) * counts[group.heads + level.first]
            _add_to_tails(counts, group, hits)
    return counts


def _add_to_tails(counts: Tensor, group: EdgeGroup, hits: Tensor) -> None:
    """Add each edge's `hits` to each of its tails, in place."""
    counts.index_add_(0, group.tails.reshape(-1), hits.repeat_interleave(group.tails.shape[1]))


def edge_probabilities(
    arrays: ForestArrays, weights: Float[Tensor, " v"], values: Float[Tensor, " v"]
) -> Float[Tensor, " e"]:
    """Probability of every edge given its head (Eisner 2016, equations 17 and 18)."""
    result = weights.new_zeros(arrays.num_edges)
    for level in levels_of(arrays, weights.device):
        for group in level.groups:
            result[group.edges] = _shares(level, group, weights, values)
    return result


def tangent(
    arrays: ForestArrays,
    weights: Float[Tensor, " v"],
    values: Float[Tensor, " v"],
    seeds: Float[Tensor, " v"],
    direction: Float[Tensor, " v"],
) -> tuple[Float[Tensor, " v"], Float[Tensor, " v"]]:
    """Derivatives (log values, counts) when the log-weights move along `direction`."""
    levels = levels_of(arrays, weights.device)
    log_dots = torch.where(values == -torch.inf, 0.0, direction)
    for level in levels:
        for group in level.groups:
            dots = _shares(level, group, weights, values) * log_dots[group.tails].sum(1)
            log_dots.index_add_(0, group.heads + level.first, dots)
    counts = torch.where(values == -torch.inf, 0.0, seeds)
    count_dots = torch.zeros_like(counts)
    for level in reversed(levels):
        for group in level.groups:
            heads = group.heads + level.first
            shares = _shares(level, group, weights, values)
            slope = log_dots[group.tails].sum(1) + direction[heads] - log_dots[heads]
            hit_dots = shares * (count_dots[heads] + counts[heads] * slope)
            _add_to_tails(counts, group, shares * counts[heads])
            _add_to_tails(count_dots, group, hit_dots)
    return log_dots, count_dots
