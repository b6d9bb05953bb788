"""Generating functions of additive functions of labelled arborescences, over any lanes, in torch.

The elimination of words, with functions of z as weights. They are relative to their values at 0,
whose logs are eliminated beside them, so that the range of the weights does not matter; and each is
about a mean of its own, so that values which cancel in every tree cost no digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor

from inout.kernels.arborescences.op import log_partition
from inout.kernels.arborescences.reference import with_padding
from inout.kernels.math.lanes import label_lanes
from inout.kernels.math.reweighting import shares
from inout.kernels.shapes import Arcs, Generated, Lengths, PerElement
from inout.series.lanes import Lanes, Points, Truncated

# Where a pivot shrinks to less than SMALL, digits are lost. At such points the determinant is
# computed again, with pivots from anywhere in the matrix. That subtracts: where the determinant is
# by more than exp(-FAR) below the product of the weights, only if hardly a digit is left.
SMALL, LEAST, FAR = 1e-2, 1e-12, 14.0


class Table(NamedTuple):
    """Weights of arcs: exp(logs) · exp(z · means) · lanes, where the lanes are 1 at z = 0."""

    lanes: Inexact[Tensor, "l b h n"]
    means: Inexact[Tensor, "k b h n"]
    logs: Arcs

    def at(self, b: Tensor, h: Tensor, n: Tensor) -> Table:
        """The table with its last three dimensions indexed."""
        return Table(self.lanes[:, b, h, n], self.means[:, b, h, n], self.logs[b, h, n])


def generating_function(
    lanes: Lanes,
    potentials: Float[Tensor, "b h n s"],
    lengths: Lengths,
    single_root: bool,
    values: Inexact[Tensor, "k b h n #s"],
    shift: float = 0.0,
) -> Generated:
    """E[exp(z · (F − centres))] of each element, and the centres: E[F], if not moved by `shift`.

    Elements without a tree have lanes 0. Padding may be anything. O(b n² s l + b n³ l), or l²
    instead of l for power series.
    """
    n = potentials.shape[2]
    real, padding = with_padding(n, lengths, single_root)
    potentials = potentials.double().where(real[..., None], -torch.inf)
    values = values.where(real[..., None], 0.0)
    x, means, logs = label_lanes(lanes, potentials, values, lambda means: means)
    log_z, arcs = _marginals(logs, lengths, single_root)
    if n == 0:
        return lanes.one(log_z, len(lengths)).to(x.dtype), values.sum((2, 3, 4))
    one = lanes.one(logs, *logs.shape).to(x.dtype)
    table = Table(torch.where(padding, one, x), means, torch.where(padding, 0.0, logs))
    arcs = torch.where(padding, 1.0, arcs)
    if single_root:
        place = _likely_root_first(arcs)
        table, arcs = table.at(*place), arcs[place]
    far = table.logs.amax(1).sum(1) - log_z > FAR
    limits = torch.where(far, LEAST, SMALL)
    found, centres, small = _pivots(lanes, table, single_root, limits, shift)
    if isinstance(lanes, Points) and bool((small := small & (log_z > -torch.inf)).any()):
        about = (arcs * table.means).sum(2)  # [k b n]
        off = torch.where(table.logs == -torch.inf, 0.0, table.means - about[:, :, None])
        x = lanes.times(table.lanes, lanes.exponential(off))
        repaired = _determinants(lanes, small, x, table.logs, single_root, log_z)
        moved = lanes.exponential(about.sum(-1) - centres)
        found = torch.where(small, lanes.times(repaired.to(moved.dtype), moved), found)
    return torch.where(log_z == -torch.inf, 0.0, found), centres


@torch.no_grad()
def _marginals(logs: Arcs, lengths: Lengths, single_root: bool) -> tuple[PerElement, Arcs]:
    """log Z, and the probabilities of the arcs."""
    with torch.inference_mode(False), torch.enable_grad():
        scores = logs.detach().clone().requires_grad_()
        log_z = log_partition(scores, lengths.clone(), single_root)
        some = torch.where(log_z == -torch.inf, 0.0, log_z).sum()
        (arcs,) = torch.autograd.grad(some, scores, materialize_grads=True)
    return log_z.detach(), arcs


def _likely_root_first(arcs: Arcs) -> tuple[Tensor, Tensor, Tensor]:
    """How to index a table so that the most probable root word is first, eliminated last.

    All words can reach it, so no pivot is 0.
    """
    b, n = arcs.shape[0], arcs.shape[2]
    order = torch.arange(n, device=arcs.device).repeat(b, 1)
    rows, likely = torch.arange(b, device=arcs.device), arcs[:, 0].argmax(1)
    order[:, 0] = likely
    order[rows, likely] = 0
    heads = torch.nn.functional.pad(order + 1, (1, 0))
    return rows[:, None, None], heads[:, :, None], order[:, None, :]


def _pivots(
    lanes: Lanes, table: Table, single_root: bool, limits: PerElement, shift: float
) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"], Bool[Tensor, "l b"]]:
    """The product of the pivots by those at 0, its mean, and where one is below the limits."""
    size, first = _series(lanes), int(single_root)
    x, means, logs = table
    result = lanes.one(logs, logs.shape[0]).to(x.dtype)
    centres = torch.zeros_like(means[:, :, 0, 0])
    small = torch.zeros(result.shape, dtype=torch.bool, device=x.device)
    for k in range(logs.shape[2] - 1, 0, -1):
        column, row = logs[:, : k + 1, k], logs[:, k + 1, :k]
        chances, total = shares(column[:, first:])
        own = means[:, :, first : k + 1, k]
        mean = (chances * own).sum(-1) + shift * math.cos(1 + 7 * k)
        off = torch.where(chances > 0, own - mean[..., None], 0.0)
        pivot = chances * lanes.times(lanes.exponential(off), x[:, :, first : k + 1, k])
        pivot = pivot.sum(-1)
        tiny = (pivot.detach()[::size].abs() < limits).repeat_interleave(size, 0)
        small = small | tiny
        result, centres = lanes.times(result, pivot), centres + mean
        inverse = lanes.inverse(torch.where(tiny, lanes.one(logs, 1).to(pivot.dtype), pivot))
        ways = lanes.times(x[:, :, : k + 1, k], inverse[..., None])
        ways = lanes.times(ways[..., :, None], x[:, :, None, k + 1, :k])
        total = torch.where(total == -torch.inf, 0.0, total)
        through = (column - total[:, None])[:, :, None] + row[:, None]
        over = (means[:, :, : k + 1, k] - mean[..., None])[..., None] + means[:, :, None, k + 1, :k]
        parts, logs = shares(torch.stack([logs[:, : k + 1, :k], through], -1))
        both = torch.stack([means[:, :, : k + 1, :k], over], -1)
        means = (parts * both).sum(-1)
        off = torch.where(parts > 0, both - means[..., None], 0.0)
        terms = torch.stack([x[:, :, : k + 1, :k].to(ways.dtype), ways], -1)
        x = (parts * lanes.times(lanes.exponential(off), terms)).sum(-1)
        loops = torch.eye(k, dtype=torch.bool, device=x.device)
        logs = logs.masked_fill(torch.nn.functional.pad(loops, (0, 0, 1, 0)), -torch.inf)
    return lanes.times(result, x[:, :, 0, 0]), centres + means[:, :, 0, 0], small


def _series(lanes: Lanes) -> int:
    """How many numbers stand for one point: the lanes of a power series."""
    return lanes.size // (1 + lanes.points.shape[1]) if isinstance(lanes, Points) else lanes.size


def _determinants(
    lanes: Points,
    small: Bool[Tensor, "l b"],
    x: Inexact[Tensor, "l b h n"],
    logs: Arcs,
    single_root: bool,
    log_z: PerElement,
) -> Inexact[Tensor, "l b"]:
    """Σ over trees of the products of exp(logs) · x, by Z, where pivots are small; 0 elsewhere."""
    size = _series(lanes)
    scale = logs.amax(1)
    weights = x * (logs - torch.where(scale == -torch.inf, 0.0, scale)[:, None]).exp()
    apart = weights.reshape(-1, size, *weights.shape[1:])  # [p s b h n]
    where = small[::size].nonzero(as_tuple=True)
    chosen = apart.transpose(1, 2)[where].transpose(0, 1)  # [s m h n]
    inner = chosen[:, :, 1:]
    matrix = torch.diag_embed(inner.sum(2) if single_root else chosen.sum(2)) - inner
    if single_root:
        matrix = torch.cat([chosen[:, :, :1], matrix[:, :, 1:]], 2)
    found = _determinant(Truncated(lanes.orders or (0,)), matrix)
    found = found * (scale.sum(1) - log_z).exp()[where[1]]
    result = found.new_zeros(len(small) // size, small.shape[1], size)
    result = result.index_put(where, found.T)
    return result.transpose(1, 2).reshape(small.shape)


def _determinant(series: Truncated, matrix: Inexact[Tensor, "s m n n"]) -> Inexact[Tensor, "s m"]:
    """Determinants of matrices of power series, with complete pivoting.

    So no pivot but the last can be 0 where the gradient is not.
    """
    result = series.one(matrix, matrix.shape[1])
    for n in range(matrix.shape[2], 0, -1):
        place = matrix[0].detach().abs().flatten(1).argmax(1)
        order = torch.arange(n, device=matrix.device).repeat(2, len(place), 1)
        chosen, m = torch.stack([place // n, place % n]), torch.arange(len(place))
        order[:, :, 0] = chosen
        for side in (0, 1):
            order[side, m, chosen[side]] = 0
        matrix = matrix[:, m[:, None, None], order[0][:, :, None], order[1][:, None]]
        sign = 1.0 - 2.0 * ((chosen[0] > 0) ^ (chosen[1] > 0))
        pivot = matrix[:, :, 0, 0]
        result = series.times(result, pivot * sign)
        if n > 1:
            gone = pivot[0].detach() == 0
            inverse = series.inverse(torch.where(gone, series.one(matrix, 1), pivot))
            left = series.times(matrix[:, :, 1:, :1], inverse[..., None, None])
            matrix = matrix[:, :, 1:, 1:] - series.times(left, matrix[:, :, :1, 1:])
    return result
