"""Generating functions of additive functions of segmentations, over any lanes, in torch."""

from __future__ import annotations

import torch
from jaxtyping import Inexact
from torch import Tensor

from inout.kernels.limits import LANES_AT_A_TIME
from inout.kernels.math.reweighting import reweighted
from inout.kernels.segments.op import passes_for
from inout.kernels.shapes import Generated, Lengths, Segments
from inout.series.lanes import Lanes, mix

Values = Inexact[Tensor, "k b #n #w #s #s"]


def generating_function(
    lanes: Lanes, potentials: Segments, lengths: Lengths, values: Values, shift: float = 0.0
) -> Generated:
    """Sum of weight * exp(z . (F - centres)) over segmentations in units of Z, and the centres.

    From the end: the lanes of a boundary and the label before it are the expectation of exp(z .
    what follows). A segment's value is taken less the expected value of its positions; `shift`
    moves these centres. Where values do not depend on the label before (size 1), the expectation
    over the next segment is a matrix product for all lanes. O(b n w s² l), or O(b n w s² l²) for
    power series with values that do. Padding may be anything.
    """
    b, n, w, s, _ = potentials.shape
    done = x = lanes.one(values, b, s)
    if n == 0:
        return done[:, :, 0], values.new_zeros(len(values), b)
    with torch.no_grad():
        wide = potentials.detach().double()
        (used,) = passes_for(wide, lengths).gradients(wide.new_ones(b))
        centres = _centres(used, values.detach(), shift)
        chances = _by_start(used, w)
        total = chances.sum((2, 4), keepdim=True)
        chances = chances / torch.where(total == 0, 1.0, total)
    weights = reweighted(chances, _by_start(potentials, w))
    # Unbound at once: the gradient of a slice would be as large as the whole. [b y d y'] each.
    shares = weights.movedim(3, 2).unbind(1)
    free = values.shape[-2] == 1
    off = _by_start(values, w) - _steps(centres, w)[..., None, None]  # [k b t d y y']
    # What is never used must not be far from the rest, where exponentials overflow.
    off = off.where((chances > 0).any(3, keepdim=True) if free else chances > 0, 0.0)
    block = max(1, LANES_AT_A_TIME // max(lanes.size * b * w * s * (1 if free else s), 1))
    boundaries = [done] * (n + w)
    for t in reversed(range(n)):
        place = t % block
        if t == n - 1 or place == block - 1:
            factors = lanes.exponential(off[:, :, t - place : t + 1]).unbind(2)
        ahead = torch.stack(boundaries[t + 1 : t + 1 + w], 2)
        if free:
            more = lanes.times(factors[place][..., 0, :], ahead)
            x = mix(shares[t].flatten(2), more.flatten(2))
        else:
            follow = (factors[place].movedim(3, 2) * shares[t]).flatten(3)
            x = lanes.matmul(follow, ahead.flatten(2)[..., None])[..., 0]
        x = boundaries[t] = torch.where((lengths > t)[:, None], x, done)
    end = lengths.expand(len(centres), -1)[..., None]
    return x[:, :, 0], centres.gather(2, end)[..., 0]


def _by_start(x: Inexact[Tensor, "... n w y z"], widths: int) -> Inexact[Tensor, "... n w y z"]:
    """[end, width, y, y'] -> [start, width, y, y']; 0 for what would end beyond the last."""
    n = x.shape[-4]
    if n == 1:  # one end, or values that are the same for all
        return x
    x = x.expand(*x.shape[:-3], widths, *x.shape[-2:])
    return torch.stack(
        [
            torch.nn.functional.pad(x[..., d:, d, :, :], (0, 0, 0, 0, 0, min(d, n)))
            for d in range(widths)
        ],
        -3,
    )


def _steps(centres: Inexact[Tensor, "k b boundaries"], w: int) -> Inexact[Tensor, "k b n {w}"]:
    """Differences of the centres at the ends of the segments that start at t and are d wide."""
    n = centres.shape[2] - 1
    start = torch.arange(n, device=centres.device)[:, None]
    ends = start + torch.arange(1, 1 + w, device=centres.device)
    return centres[:, :, ends.clamp(max=n)] - centres[:, :, :n, None]


def _centres(
    used: Segments, values: Inexact[Tensor, "k b #n #w #s #s"], shift: float
) -> Inexact[Tensor, "k b boundaries"]:
    """E[F] of what lies before each boundary; a segment's share is spread over its positions."""
    b, n, w = used.shape[:3]
    expected = (used * values).sum((-1, -2))  # [k b n w]
    change = values.new_zeros(len(values), b, 1 + n)
    for d in range(1, min(w, n) + 1):
        share = expected[..., d - 1 :, d - 1] / d  # of segments that end at d - 1, d, ...
        change[..., : 1 + n - d] += share
        change[..., d:] -= share
    density = change.cumsum(-1)[..., :n]
    irregular = torch.arange(1, n + 1, dtype=torch.float64, device=used.device).mul(7.0).cos()
    return torch.nn.functional.pad(density.cumsum(-1) + shift * irregular, (1, 0))
