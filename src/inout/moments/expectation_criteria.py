"""Generalised expectation criteria: target label distributions of features."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.checks import expect, expect_one_of, expect_shape
from inout.distributions.base import StructuredDistribution
from inout.moments.risk import label_marginals

DIVERGENCES = ("kl", "squared")


def expectation_criterion(
    d: StructuredDistribution,
    tokens: Tensor,
    targets: Float[Tensor, "m s"],
    weights: Float[Tensor, " m"] | None = None,
    divergence: str = "kl",
) -> Float[Tensor, ""]:
    """Sum over features of weight * KL(target || the model's mean label distribution); a loss.

    `tokens` [m *b n]: where each of m features is on, as booleans or as a sparse tensor whose
    entries other than 0 count; positions beyond the lengths never do. `targets` [m s]: for each
    feature the label distribution that its tokens should have on average. The model's is

        P~_m(y) = mean over the tokens of feature m, in the whole batch, of P(y_t = y)

    with labels of positions as in `label_marginals`. A feature without tokens adds nothing, so
    batches need not contain them all. `divergence="squared"` is the sum of squared differences
    instead. +inf if a target needs a label that the model excludes, with gradient 0 from it.

    Differentiable. Costs the marginals and one pass over the tokens, O(s) each; the gradient is
    one Hessian-vector product, regardless of the number of labels and features.

    >>> import torch
    >>> from inout import LinearChain
    >>> chain = LinearChain(torch.zeros(3, 2), torch.zeros(2, 2))
    >>> tokens = torch.tensor([[True, False, True]])  # one feature
    >>> expectation_criterion(chain, tokens, torch.tensor([[0.9, 0.1]]))
    tensor(0.3681)

    Mann & McCallum, "Generalized expectation criteria for semi-supervised learning of conditional
    random fields" (2008); Azuma & Matsumoto, "A generalization of forward-backward algorithm",
    equations 42-48.
    """
    expect_one_of("divergence", divergence, DIVERGENCES)
    means, counts = _means(d, tokens)
    targets = _checked_targets(targets, means)
    if divergence == "squared":
        losses = (targets - means).square().sum(-1)
    else:
        wanted, never = targets > 0, means == 0
        # The log of 0 must not be differentiated: 0 * inf is NaN.
        ratio = torch.where(wanted, targets, 1.0) / torch.where(wanted & ~never, means, 1.0)
        terms = torch.where(wanted, targets, 0.0) * ratio.log()
        losses = torch.where(wanted & never, torch.inf, terms).sum(-1)
    losses = torch.where(counts > 0, losses, 0.0)
    if weights is not None:
        expect_shape("weights", weights, losses.shape)
        losses = torch.where(weights == 0, 0.0, losses) * weights.to(losses)
    return losses.sum()


def label_expectations(d: StructuredDistribution, tokens: Tensor) -> Float[Tensor, "m s"]:
    """The model's mean label distribution over the tokens of each feature (equation 44).

    `tokens` [m *b n] as in `expectation_criterion`; a feature that is on nowhere has zeros.
    Differentiable; costs as much as the marginals, and O(s) for each token of each feature.

    >>> import torch
    >>> from inout import LinearChain
    >>> chain = LinearChain(torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]), torch.zeros(2, 2))
    >>> label_expectations(chain, torch.tensor([[True, True], [True, False]]))
    tensor([[0.7500, 0.2500],
            [1.0000, 0.0000]])
    """
    return _means(d, tokens)[0]


def _means(
    d: StructuredDistribution, tokens: Tensor
) -> tuple[Float[Tensor, "m s"], Float[Tensor, " m"]]:
    """Mean label distributions, and the number of tokens of each."""
    marginals = label_marginals(d)
    s = marginals.shape[-1]
    features, places = _places(d, tokens)
    flat = marginals.reshape(-1, s)
    # Padding, and elements without any event, have probability 0 and do not count.
    counted = flat.detach().sum(-1) > 0.5
    ones = counted[places].to(flat.dtype)
    counts = flat.new_zeros(tokens.shape[0]).index_add(0, features, ones)
    sums = flat.new_zeros(tokens.shape[0], s).index_add(0, features, flat[places])
    return sums / counts.clamp(min=1)[:, None], counts


def _places(
    d: StructuredDistribution, tokens: Tensor
) -> tuple[Int[Tensor, " k"], Int[Tensor, " k"]]:
    """For every token, padding included: its feature, and its index in the flat [*b n]."""
    wanted = [*d.batch_shape, d.event_shape[-1]]
    fits = tokens.ndim == 1 + len(wanted) and list(tokens.shape[1:]) == wanted
    expect(fits, "tokens", f"must be [m, {', '.join(map(str, wanted))}]", list(tokens.shape))
    if tokens.layout == torch.strided:
        expect(tokens.dtype == torch.bool, "tokens", "must be booleans, or sparse", tokens.dtype)
        indices = tokens.nonzero().T
    else:
        entries = tokens.to_sparse().coalesce()
        indices = entries.indices()[:, entries.values() != 0]
    features, *place = indices.to(d.lengths.device)
    flat = torch.zeros_like(features)
    for index, size in zip(place, wanted, strict=True):
        flat = flat * size + index
    return features, flat


def _checked_targets(targets: Tensor, means: Tensor) -> Tensor:
    expect_shape("targets", targets, means.shape)
    off = (targets.detach().double().sum(-1) - 1).abs()
    fits = bool((targets >= 0).all()) and bool((off <= 1e-4).all())
    wanted = "must be distributions over the labels, not negative and with sum 1"
    expect(fits, "targets", wanted, targets.detach().tolist())
    return targets.to(means)
