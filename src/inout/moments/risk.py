"""Risk: the expectation of an additive loss, and its variance; label probabilities of positions."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.distributions.arguments import checked_range, refuse_misfits
from inout.distributions.base import StructuredDistribution
from inout.distributions.labels import LabelSequence
from inout.distributions.pcfg import PCFG
from inout.distributions.semi_markov import SemiMarkov
from inout.distributions.span_tree import SpanTree


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
    real = d._real
    given = checked_range("labels", torch.where(real, labels, 0), 0, s)
    # Sums the other labels, because 1 - P(right) would lose the digits of a small risk.
    wrong = given[..., None] != torch.arange(s, device=given.device)
    return (marginals * (wrong & real[..., None])).flatten(-2).sum(-1)


def label_marginals(d: StructuredDistribution) -> Float[Tensor, "*b n s"]:
    """P(label of position t is y), 0 beyond the lengths; differentiable, at the cost of marginals.

    The label of a position is, in a chain (`LinearChain`, `HMM`, `ContextChain`), its label; in a
    `SemiMarkov`, that of the segment that covers it; in a `SpanTree`, that of its span of width 1;
    in a `PCFG`, its preterminal, counted from 0.

    >>> import torch
    >>> from inout import SemiMarkov
    >>> potentials = torch.zeros(2, 2, 2, 2)
    >>> potentials[1, 1] = -torch.inf  # no segment of width 2
    >>> potentials[1, 0, 0, 1] = -torch.inf  # and label 1 does not follow label 0
    >>> label_marginals(SemiMarkov(potentials))
    tensor([[0.3333, 0.6667],
            [0.6667, 0.3333]])
    """
    if isinstance(d, LabelSequence):
        return d.label_marginals()
    if isinstance(d, PCFG):
        return d.marginals("preterminals")["preterminals"]
    if isinstance(d, SpanTree):
        return d.marginals()["log_potentials"].diagonal(0, -3, -2).transpose(-1, -2)
    if isinstance(d, SemiMarkov):
        return _covering(d.marginals()["log_potentials"].sum(-2))
    raise ArgumentError("d", f": a distribution with a label at each position is needed. Got {d}")


def _covering(segments: Float[Tensor, "*b n w s"]) -> Float[Tensor, "*b n s"]:
    """Sum over the segments [end, width - 1, label] that cover each position; O(n w s)."""
    n, w = segments.shape[-3:-1]
    # [..., e, k, :]: segments that end at e and cover e - k, which are wider than k.
    reaching = segments.flip(-2).cumsum(-2).flip(-2)
    return torch.stack(
        [
            torch.nn.functional.pad(reaching[..., k:, k, :], (0, 0, 0, min(k, n)))
            for k in range(min(w, max(n, 1)))
        ]
    ).sum(0)
