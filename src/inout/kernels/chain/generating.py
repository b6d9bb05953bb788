"""Generating functions of additive functions of linear chains, over any lanes, in torch."""

from __future__ import annotations

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.kernels.chain.op import passes_for
from inout.kernels.limits import CHANCES_AT_A_TIME, LANES_AT_A_TIME
from inout.kernels.math.reweighting import reweighted
from inout.kernels.shapes import Emissions, Generated, Lengths, Transitions
from inout.series.lanes import Lanes, mix

Potentials = tuple[Emissions, Transitions]
# Of labels, and of pairs of labels if these have values.
Values = tuple[Inexact[Tensor, "k b n s"], Inexact[Tensor, "k b ntv s s"] | None]


def generating_function(
    lanes: Lanes, potentials: Potentials, lengths: Lengths, values: Values, shift: float = 0.0
) -> Generated:
    """Sum of weight * exp(z . (F - centres)) over labellings in units of Z, and the centres.

    From the last position to the first: a label's lanes are the expectation of exp(z . what
    follows) given the label, so that no weight leaves the range of floats. The expectation over
    the next label is one matrix product for all lanes unless pairs have values of their own.
    Each position's values are taken less their means; `shift` moves these centres. O(b n s² l);
    O(b n s² l²) for power series with values of pairs. Padding may be anything.
    """
    (emissions, transitions), (node_values, pair_values) = potentials, values
    b, n, s = emissions.shape
    if b > 1 and b * n * s * s > CHANCES_AT_A_TIME:
        found = []
        for half in (slice(b // 2), slice(b // 2, None)):
            given = emissions[half], transitions if len(transitions) == 1 else transitions[half]
            own = node_values[:, half], None if pair_values is None else pair_values[:, half]
            found.append(generating_function(lanes, given, lengths[half], own, shift))
        xs, all_centres = zip(*found, strict=True)
        return torch.cat(xs, 1), torch.cat(all_centres, 1)
    real = torch.arange(n, device=lengths.device) < lengths[:, None]
    emissions = emissions.double().where(real[..., None], 0.0)
    transitions = transitions.double()
    with torch.no_grad():
        marginals, chances = _posterior(emissions, transitions, lengths)
        irregular = torch.arange(n, dtype=torch.float64, device=lengths.device).mul(7.0).cos()
        means = (marginals * node_values).sum(-1) + shift * irregular
        means = means.where(real, 0.0)
    # What is never used must not be far from the rest, where exponentials overflow.
    nodes = torch.where(marginals > 0, node_values - means[..., None], 0.0)
    # Unbound at once: the gradient of a slice would be as large as the whole.
    weights = reweighted(chances, transitions).unbind(1)
    centres = means.sum(-1)
    done = x = lanes.one(nodes, b, s)
    block = max(1, LANES_AT_A_TIME // max(lanes.size * b * s, 1))
    for t in reversed(range(n)):
        if t + 1 < n:
            if pair_values is None:
                x = mix(weights[t], x)
            else:
                pairs = pair_values[:, :, t if pair_values.shape[2] > 1 else 0]
                off, mean = _about_mean(pairs, marginals[:, t, :, None] * chances[:, t])
                x = lanes.matmul(weights[t] * lanes.exponential(off), x[..., None])[..., 0]
                centres = centres + mean
            x = torch.where(real[:, t + 1, None], x, done)
        place = t % block
        if t == n - 1 or place == block - 1:
            here = slice(t - place, t + 1)
            made = lanes.exponential(nodes[:, :, here])
            factors = reweighted(made, emissions[:, here]).unbind(2)
        x = lanes.times(x, factors[place])
    if n == 0:
        return lanes.one(nodes, b), centres
    starts = torch.where(real[:, :1], marginals[:, 0], 1.0 / s)  # the empty chain has weight 1
    return (x * starts).sum(-1), centres


def _posterior(
    emissions: Emissions, transitions: Transitions, lengths: Lengths
) -> tuple[Emissions, Float[Tensor, "b n-1 s s"]]:
    """Probabilities of labels, and of labels given the one before them; 0 in the padding."""
    b, n, s = emissions.shape
    each = transitions.expand(b, max(n - 1, 0), s, s).contiguous()
    nodes, pairs = passes_for(emissions, each, lengths).gradients(emissions.new_ones(b))
    return _normalised(nodes), _normalised(pairs)


def _normalised(x: Float[Tensor, "... s"]) -> Float[Tensor, "... s"]:
    """Rows that sum to 1, or are 0."""
    total = x.sum(-1, keepdim=True)
    return x / torch.where(total == 0, 1.0, total)


def _about_mean(
    values: Inexact[Tensor, "k b s s"], joint: Float[Tensor, "b s s"]
) -> tuple[Inexact[Tensor, "k b s s"], Inexact[Tensor, "k b"]]:
    """Values of pairs less their mean, 0 where a pair has no probability; and the mean."""
    mean = (values.detach() * joint).sum((-1, -2))
    return torch.where(joint > 0, values - mean[..., None, None], 0.0), mean
