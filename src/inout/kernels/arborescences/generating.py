"""Generating functions of additive functions of labelled arborescences, over any lanes, in torch.

The elimination of words, with functions of z as weights. They are relative to their values at 0,
whose logs are eliminated beside them: so the range of the weights does not matter.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor

from inout.kernels.arborescences.op import log_partition
from inout.kernels.arborescences.reference import with_padding
from inout.kernels.math.lanes import label_lanes
from inout.kernels.math.reweighting import shares
from inout.kernels.shapes import Arcs, Generated, Lengths, PerElement
from inout.series.lanes import Lanes, Points, Truncated

# Where a pivot shrinks to less than this, digits are lost. At such points the determinant is
# computed again, with pivots from anywhere in the matrix.
SMALL = 1e-2


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
    real, _ = with_padding(n, lengths, single_root)
    potentials = potentials.double().where(real[..., None], -torch.inf)
    values = values.where(real[..., None], 0.0)
    x, means, logs = label_lanes(lanes, potentials, values, lambda means: means)
    log_z, arcs = _marginals(logs, lengths, single_root)
    place = torch.arange(n, dtype=torch.float64, device=lengths.device)
    centres = (arcs * means).sum(2) + shift * torch.cos(1 + 7 * place)  # [k b n]
    centres = torch.where(place < lengths[:, None], centres, 0.0)
    off = torch.where(logs == -torch.inf, 0.0, means - centres[:, :, None])
    x = lanes.times(x, lanes.exponential(off))
    found = _ratio(lanes, x, logs, lengths, single_root, arcs, log_z)
    return torch.where(log_z == -torch.inf, 0.0, found), centres.sum(-1)


@torch.no_grad()
def _marginals(logs: Arcs, lengths: Lengths, single_root: bool) -> tuple[PerElement, Arcs]:
    """log Z, and the probabilities of the arcs."""
    with torch.inference_mode(False), torch.enable_grad():
        scores = logs.detach().clone().requires_grad_()
        log_z = log_partition(scores, lengths, single_root)
        some = torch.where(log_z == -torch.inf, 0.0, log_z).sum()
        (arcs,) = torch.autograd.grad(some, scores, materialize_grads=True)
    return log_z.detach(), arcs


def _ratio(
    lanes: Lanes,
    x: Inexact[Tensor, "l b h n"],
    logs: Arcs,
    lengths: Lengths,
    single_root: bool,
    arcs: Arcs,
    log_z: PerElement,
) -> Inexact[Tensor, "l b"]:
    """Σ over trees of the product of weights exp(logs) · x, divided by Z."""
    n = logs.shape[2]
    _, padding = with_padding(n, lengths, single_root)
    logs = torch.where(padding, 0.0, logs)
    one = lanes.one(logs, *logs.shape)
    x = torch.where(padding, one.to(x.dtype), x)
    if n == 0:
        return lanes.one(logs, len(lengths)).to(x.dtype)
    if single_root:
        x, logs = _with_likely_root_last(x, logs, arcs)
    pivots, small = _pivots(lanes, x, logs, single_root)
    if isinstance(lanes, Points) and bool((small := small & (log_z > -torch.inf)).any()):
        return _repaired(lanes, pivots, small, x, logs, single_root, log_z)
    return pivots


def _with_likely_root_last(
    x: Inexact[Tensor, "l b h n"], logs: Arcs, arcs: Arcs
) -> tuple[Inexact[Tensor, "l b h n"], Arcs]:
    """The first word, which is eliminated last, exchanged for the most probable root word.

    All words can reach it, so no pivot is 0.
    """
    b, n = logs.shape[0], logs.shape[2]
    order = torch.arange(n, device=logs.device).repeat(b, 1)
    rows, likely = torch.arange(b, device=logs.device), arcs[:, 0].argmax(1)
    order[:, 0] = likely
    order[rows, likely] = 0
    heads = torch.nn.functional.pad(order + 1, (1, 0))
    place = rows[:, None, None], heads[:, :, None], order[:, None, :]
    return x[:, place[0], place[1], place[2]], logs[place]


def _pivots(
    lanes: Lanes, x: Inexact[Tensor, "l b h n"], logs: Arcs, single_root: bool
) -> tuple[Inexact[Tensor, "l b"], Bool[Tensor, "l b"]]:
    """The product of the pivots, divided by those at 0; and where one of them became small."""
    size = _series(lanes)
    result = lanes.one(logs, logs.shape[0]).to(x.dtype)
    small = torch.zeros(result.shape, dtype=torch.bool, device=x.device)
    for k in range(logs.shape[2] - 1, 0, -1):
        column, row, first = logs[:, : k + 1, k], logs[:, k + 1, :k], int(single_root)
        chances, total = shares(column[:, first:])
        pivot = (chances * x[:, :, first : k + 1, k]).sum(-1)
        tiny = pivot.detach()[::size].abs() < SMALL
        tiny = tiny.repeat_interleave(size, 0)
        small = small | tiny
        result = lanes.times(result, pivot)
        inverse = lanes.inverse(torch.where(tiny, lanes.one(logs, 1).to(x.dtype), pivot))
        ways = lanes.times(x[:, :, : k + 1, k], inverse[..., None])
        ways = lanes.times(ways[..., :, None], x[:, :, None, k + 1, :k])
        total = torch.where(total == -torch.inf, 0.0, total)
        through = (column - total[:, None])[:, :, None] + row[:, None]
        parts, logs = shares(torch.stack([logs[:, : k + 1, :k], through], -1))
        x = parts[..., 0] * x[:, :, : k + 1, :k] + parts[..., 1] * ways
        loops = torch.eye(k, dtype=torch.bool, device=x.device)
        logs = logs.masked_fill(torch.nn.functional.pad(loops, (0, 0, 1, 0)), -torch.inf)
    return lanes.times(result, x[:, :, 0, 0]), small


def _series(lanes: Lanes) -> int:
    """How many numbers stand for one point: the lanes of a power series."""
    return lanes.size // (1 + lanes.points.shape[1]) if isinstance(lanes, Points) else lanes.size


def _repaired(
    lanes: Points,
    pivots: Inexact[Tensor, "l b"],
    small: Bool[Tensor, "l b"],
    x: Inexact[Tensor, "l b h n"],
    logs: Arcs,
    single_root: bool,
    log_z: PerElement,
) -> Inexact[Tensor, "l b"]:
    """The product of the pivots, at points where one is small as the Laplacian's determinant."""
    size = _series(lanes)
    scale = logs.amax(1)
    weights = x * (logs - torch.where(scale == -torch.inf, 0.0, scale)[:, None]).exp()
    apart = weights.reshape(-1, size, *weights.shape[1:])  # [p s b heads n]
    where = small[::size].nonzero(as_tuple=True)
    chosen = apart.transpose(1, 2)[where].transpose(0, 1)  # [s m heads n]
    inner = chosen[:, :, 1:]
    diagonal = inner.sum(2) if single_root else chosen.sum(2)
    matrix = torch.diag_embed(diagonal) - inner
    if single_root:
        matrix = torch.cat([chosen[:, :, :1], matrix[:, :, 1:]], 2)
    series = Truncated(lanes.orders or (0,))
    unit = (scale.sum(1) - log_z).exp()[where[1]]
    found = _determinant(series, matrix) * unit
    result = pivots.reshape(-1, size, pivots.shape[1]).transpose(1, 2)
    result = result.index_put(where, found.T.to(result.dtype))
    return result.transpose(1, 2).reshape(pivots.shape)


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
