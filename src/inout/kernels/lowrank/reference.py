"""The inside algorithms of factored chains and grammars in torch code, by products of matrices.

Sums over a factor are products relative to the largest number of each row and column. Where such a
product nearly underflows its logarithm is computed again from the logarithms of its terms, so that
nothing is lost. Differentiable to any order, on every device; the tables that the factors define
are never made.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.tracing import is_readable
from inout.kernels.limits import LOWRANK_BLOCK, LOWRANK_TINY
from inout.kernels.math.reweighting import log_sum
from inout.kernels.shapes import Emissions, Lengths, PerElement, Root, Words

Heads = Float[Tensor, "bh heads values"]  # [bh nt r], or of size 0
Left = Float[Tensor, "bl r s"]
Right = Float[Tensor, "br r s"]
# Shared by all elements or not, by all positions or not.
Source = Float[Tensor, "bs ts s r"]
Target = Float[Tensor, "bt tt r s"]


def log_product(x: Float[Tensor, "*b m k"], y: Float[Tensor, "*#b k l"]) -> Float[Tensor, "*b m l"]:
    """log(exp(x) @ exp(y)), -inf with gradient 0 where all terms are; O(m k l)."""
    if not is_readable(x, y):  # under torch.vmap: without asking what underflows
        return log_sum(x[..., :, None, :] + y.mT[..., None, :, :], -1)
    rows, columns = _largest(x, -1), _largest(y, -2)
    dead = (rows == -torch.inf) | (columns == -torch.inf)
    rows, columns = (torch.where(top == -torch.inf, 0.0, top) for top in (rows, columns))
    product = (x - rows).exp() @ (y - columns).exp()
    low = product < LOWRANK_TINY
    result = torch.where(low | dead, 1.0, product).log() + rows + columns
    result = torch.where(dead, -torch.inf, result)
    places = (low & ~dead).nonzero(as_tuple=True)
    if not len(places[0]):
        return result
    left = x.expand(*low.shape[:-2], *x.shape[-2:])
    right = y.mT.expand(*low.shape[:-2], *y.mT.shape[-2:])
    at_a_time = max(LOWRANK_BLOCK // x.shape[-1], 1)
    exact = [
        log_sum(left[(*batch, i)] + right[(*batch, j)], -1)
        for *batch, i, j in zip(*(torch.split(x, at_a_time) for x in places), strict=True)
    ]
    return result.index_put(places, torch.cat(exact))


def _largest(x: Tensor, dim: int) -> Tensor:
    """The largest along a dimension, -inf of nothing; a constant."""
    if x.shape[dim] == 0:
        return x.detach().sum(dim, keepdim=True) - torch.inf
    return x.detach().amax(dim, keepdim=True)


class Chart(NamedTuple):
    """Logs of what spans add up to, by width - 1: [b count ...]."""

    betas: list[Tensor]  # of nonterminals; of preterminals at width 1
    lefts: list[Tensor]  # of latent values, with the span as the left child
    rights: list[Tensor]


def factored_chart(
    head: Heads,
    left: Left,
    right: Right,
    preterminals: Words,
    spans: Float[Tensor, "b n n nt"] | None = None,
) -> Chart:
    """The chart of a grammar with rule(A, B, C) = sum over r of head(A, r) left(r, B) right(r, C).

    L(i, j, r) is the sum over B of left(r, B) beta(i, j, B), and R alike; with X(i, j, r) the sum
    over k of L(i, k, r) R(k + 1, j, r), beta(i, j, A) is the sum over r of head(A, r) X(i, j, r).
    A head of size 0 means that the latent value is the head. `spans` are further scores.
    Always in float64: large float32 logarithms would lose the differences between trees.
    """
    n, pt = preterminals.shape[1:]
    left, right, heads = left.double().mT, right.double().mT, head.double().mT
    nt = left.shape[1] - pt
    words = preterminals.double()
    chart = Chart([words], [log_product(words, left[:, nt:])], [log_product(words, right[:, nt:])])
    for width in range(2, n + 1):
        count = n - width + 1
        splits = [
            chart.lefts[k - 1][:, :count] + chart.rights[width - k - 1][:, k : k + count]
            for k in range(1, width)
        ]
        betas = log_sum(torch.stack(splits), 0)
        if heads.shape[1]:
            betas = log_product(betas, heads)
        if spans is not None:
            betas = betas + spans.diagonal(width - 1, 1, 2).mT
        chart.betas.append(betas)
        chart.lefts.append(log_product(betas, left[:, :nt]))
        chart.rights.append(log_product(betas, right[:, :nt]))
    return chart


def reference_factored_grammar(
    root: Root,
    head: Heads,
    left: Left,
    right: Right,
    preterminals: Words,
    lengths: Lengths,
    spans: Float[Tensor, "b n n nt"] | None = None,
) -> PerElement:
    """log Z of a factored grammar's trees; O(b (n³ r + n² s r)) time, see `factored_chart`."""
    n = preterminals.shape[1]
    real = torch.arange(n, device=lengths.device) < lengths[:, None]
    words = preterminals.where(real[..., None], -torch.inf)
    chart = factored_chart(head, left, right, words, spans)
    total = root.double().new_full((len(lengths),), -torch.inf)
    for width, betas in enumerate(chart.betas[1:], 2):
        total = torch.where(lengths == width, log_sum(root.double() + betas[:, 0], 1), total)
    return total.to(preterminals.dtype)


def factored_alphas(
    emissions: Emissions, source: Source, target: Target, lengths: Lengths
) -> tuple[list[Tensor], list[Tensor]]:
    """Logs of sums of labels up to each position, by label [b s]; those by latent value [b r].

    Of a chain with transition(i, j) = sum over r of source(i, r) target(r, j). The second are from
    position 1 on. Always in float64.
    """
    n = emissions.shape[1]
    real = (torch.arange(n, device=lengths.device) < lengths[:, None])[..., None]
    nodes = emissions.where(real, 0.0).double()
    into, out_of = (_without_padding(x, real).double() for x in (source, target))
    alphas, latent = [nodes[:, t] for t in range(min(n, 1))], []
    for t in range(1, n):
        latent.append(log_product(alphas[-1][:, None], into[:, min(t, into.shape[1]) - 1])[:, 0])
        step = log_product(latent[-1][:, None], out_of[:, min(t, out_of.shape[1]) - 1])
        alphas.append(step[:, 0] + nodes[:, t])
    return alphas, latent


def reference_factored_chain(
    emissions: Emissions, source: Source, target: Target, lengths: Lengths
) -> PerElement:
    """log Z of a factored chain; O(b n s r) time in n steps, see `factored_alphas`."""
    alphas, _ = factored_alphas(emissions, source, target, lengths)
    # Sums of nothing: elements too short to use a potential still depend on it, with gradient 0.
    total = emissions[:, :0].sum((1, 2)).double()
    total = total + source[:, :0].sum((1, 2, 3)) + target[:, :0].sum((1, 2, 3))
    for length, row in enumerate(alphas, 1):
        total = torch.where(lengths == length, log_sum(row, 1), total)
    return total.to(emissions.dtype)


def _without_padding(factor: Tensor, real: Tensor) -> Tensor:
    """A factor with 0 instead of what may be NaN, where it has a block for each position."""
    if factor.shape[1] != real.shape[1] - 1 or len(factor) != len(real):
        return factor
    return factor.where(real[:, 1:, None], 0.0)
