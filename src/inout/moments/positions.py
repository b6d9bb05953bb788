"""Label probabilities of positions, in every family that labels positions."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.distributions.base import StructuredDistribution
from inout.distributions.labels import LabelSequence
from inout.distributions.pcfg import PCFG
from inout.distributions.semi_markov import SemiMarkov
from inout.distributions.span_tree import SpanTree


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
