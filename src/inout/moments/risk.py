"""Risk: the expectation of an additive loss, and its variance."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.distributions.arguments import checked_range, refuse_misfits
from inout.distributions.base import StructuredDistribution
from inout.moments.positions import label_marginals
from inout.moments.tilting import real_positions


def risk(d: StructuredDistribution, loss: Mapping[str, Tensor]) -> Float[Tensor, "*b"]:
    """Expected loss E[L], where L(event) is the sum of `loss` over the event's parts.

    `loss` maps names of potentials to values of their shapes, or shapes that expand to them;
    missing potentials cost nothing. 0 if no event is possible. Differentiable: minimum-risk
    training. Value and gradient cost a small multiple of log Z.

    >>> import torch
    >>> from inout import LinearChain
    >>> chain = LinearChain(torch.zeros(3, 2), torch.zeros(2, 2))  # three fair coins
    >>> heads = {"emissions": torch.tensor([1.0, 0.0])}
    >>> risk(chain, heads), risk_variance(chain, heads)
    (tensor(1.5000), tensor(0.7500))

    Smith & Eisner, "Minimum risk annealing for training log-linear models" (2006).
    """
    return d.expectation(loss)


def risk_variance(d: StructuredDistribution, loss: Mapping[str, Tensor]) -> Float[Tensor, "*b"]:
    """Variance of the loss L(event), the sum of `loss` over the event's parts; see `risk`.

    One product with the Hessian of log Z, so it costs a small multiple of log Z. Differentiable.
    """
    return d.covariance(loss, loss)


def hamming_risk(d: StructuredDistribution, labels: Int[Tensor, "*#b n"]) -> Float[Tensor, "*b"]:
    """Expected number of positions whose label is not the given one.

    `labels` [*b n]; those beyond an element's length do not count. `label_marginals` defines the
    label of a position. 0 if no event is possible. Differentiable; costs as much as the
    marginals.

    >>> import torch
    >>> from inout import LinearChain
    >>> hamming_risk(LinearChain(torch.zeros(3, 4), torch.zeros(4, 4)), torch.tensor([0, 1, 3]))
    tensor(2.2500)
    """
    marginals = label_marginals(d)
    n, s = marginals.shape[-2:]
    refuse_misfits("labels", labels, [*d.batch_shape, n])
    real = real_positions(d)
    given = checked_range("labels", torch.where(real, labels, 0), 0, s)
    # Sums the other labels, because 1 - P(right) would lose the digits of a small risk.
    wrong = given[..., None] != torch.arange(s, device=given.device)
    return (marginals * (wrong & real[..., None])).flatten(-2).sum(-1)
