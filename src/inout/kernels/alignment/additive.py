"""The same log-probabilities for logits that are sums, encoder [b t v] + predictor [b w v].

The sum over symbols is a product of matrices of exponentials, each relative to its row's largest,
and so are the gradients: the logits [b t w v] are never made. Where a sum is so small that digits
may have been lost, because no symbol is likely for both, it is added up in logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from inout._core.tracing import is_in_torch_func, is_readable, is_transformed
from inout.kernels.alignment import products
from inout.kernels.alignment.blocks import Planes, finite
from inout.kernels.limits import JOINER_BLOCK, JOINER_STEEP
from inout.kernels.math.precision import exact_products


def from_sum(
    encoder: Float[Tensor, "b t v"],
    predictor: Float[Tensor, "b w v"],
    labels: Int[Tensor, "b w"],
    blank: int,
) -> Planes:
    """log softmax of the blank and of the labels; O(t v + w v + t w) memory.

    What is not read must not be NaN.
    """
    with exact_products(encoder):
        if is_transformed(encoder, predictor):
            return reference_planes(encoder, predictor, labels, blank)
        found: Planes = _FromSum.apply(encoder, predictor, labels, blank)  # type: ignore[no-untyped-call]
    return found


def reference_planes(encoder: Tensor, predictor: Tensor, labels: Tensor, blank: int) -> Planes:
    """The same, recorded by autograd: for second derivatives."""
    tops = [finite(x.detach().amax(-1, keepdim=True)) for x in (encoder, predictor)]
    factors = [(x - top).exp() for x, top in zip((encoder, predictor), tops, strict=True)]
    sums = factors[0] @ factors[1].mT
    lost = sums.detach() < JOINER_STEEP.of(sums.dtype)
    log_z = torch.where(lost, 1.0, sums).log() + tops[0] + tops[1].mT
    if not is_readable(lost):  # which pairs need it is unknown, so all are added up
        log_z = torch.where(lost, _log_z(encoder[:, :, None] + predictor[:, None]), log_z)
    elif lost.any():
        log_z = _with_rows(log_z, encoder, predictor, lost)
    own = predictor.gather(-1, labels[..., None])[..., 0]
    # Indexing, unlike `gather`, adds up gradients in a fixed order on a GPU.
    each = torch.arange(len(labels), device=labels.device)[:, None]
    at_labels = encoder.mT[each, labels].mT
    blanks = encoder[..., blank, None] + predictor[:, None, :, blank]
    return blanks - log_z, at_labels + own[:, None] - log_z


def _with_rows(log_z: Tensor, encoder: Tensor, predictor: Tensor, lost: Tensor) -> Tensor:
    """log Z with exact values where digits were lost."""
    places = lost.nonzero()
    if is_in_torch_func(encoder, predictor):  # which has no place for checkpoints
        exact = [_log_z_of_rows(encoder, predictor, places)]
    else:
        exact = [
            checkpoint(_log_z_of_rows, encoder, predictor, own, use_reentrant=False)
            for own in _blocks(places, encoder.shape[-1])
        ]
    return log_z.index_put(tuple(places.unbind(-1)), torch.cat(exact))


def _log_z_of_rows(encoder: Tensor, predictor: Tensor, places: Tensor) -> Tensor:
    """log Z of some pairs (element, frame, symbol)."""
    b, t, w = places.unbind(-1)
    return _log_z(encoder[b, t] + predictor[b, w])


def _log_z(logits: Tensor) -> Tensor:
    """logsumexp; 0 where all are -inf."""
    dead = (logits.detach() == -torch.inf).all(-1, keepdim=True)
    return torch.where(dead, 0.0, logits).logsumexp(-1).where(~dead[..., 0], 0.0)


def _blocks(places: Int[Tensor, "k 3"], v: int) -> Iterator[Tensor]:
    """Some of the pairs at a time, of JOINER_BLOCK logits."""
    yield from torch.split(places, max(1, JOINER_BLOCK // max(v, 1)))


class _FromSum(torch.autograd.Function):
    """(encoder, predictor, labels, blank) -> the two planes."""

    @staticmethod
    def forward(ctx: Any, encoder: Tensor, predictor: Tensor, labels: Tensor, blank: int) -> Planes:
        kernels = _kernels(encoder)
        planes, sums, scales = kernels.planes(encoder, predictor, labels, blank)
        places = (sums == torch.inf).nonzero()
        for part in _blocks(places, encoder.shape[-1]):
            b, t, w = part.unbind(-1)
            logits, top, log = _rows(encoder, predictor, part)
            both = logits[:, blank, None], logits.gather(-1, labels[b, w][:, None])
            for plane, x in zip(planes, both, strict=True):
                plane[b, t, w] = (x - top - log)[:, 0]
        ctx.blank, ctx.kernels = blank, kernels
        ctx.save_for_backward(encoder, predictor, labels, places, sums, *scales)
        return planes  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        encoder, predictor, labels, places, sums, *scales = ctx.saved_tensors
        if not torch.is_grad_enabled():
            with exact_products(encoder):
                given = (encoder, predictor, labels, sums, tuple(scales), gradients, ctx.blank)
                results = ctx.kernels.gradients(*given)
            _add_rows(results, encoder, predictor, places, gradients)
            return *results, None, None
        with torch.enable_grad(), exact_products(encoder):  # there may be second derivatives
            # Aliases: if one input depends on the other, the caller's graph handles it.
            own = [x.view_as(x).requires_grad_() for x in (encoder, predictor)]
            planes = reference_planes(own[0], own[1], labels, ctx.blank)
            found = torch.autograd.grad(planes, own, gradients, create_graph=True)
        return *found, None, None


# Which `apply` would otherwise make each time.
_FromSum.forward.__signature__ = signature(_FromSum.forward)  # type: ignore[attr-defined]


def _kernels(encoder: Tensor) -> Any:
    """What computes planes and gradients, but for what was lost."""
    if not encoder.is_cuda:
        return products
    from inout.kernels.alignment.gpu import additive  # here, because triton is only where GPUs are

    return additive


def _add_rows(
    totals: Sequence[Tensor],
    encoder: Tensor,
    predictor: Tensor,
    places: Int[Tensor, "k 3"],
    gradients: Sequence[Tensor],
) -> None:
    """Add the shares of symbols in some pairs to the gradients of encoder and predictor."""
    for part in _blocks(places, encoder.shape[-1]):
        b, t, w = part.unbind(-1)
        logits, top, log = _rows(encoder, predictor, part)
        weight = (gradients[0] + gradients[1])[b, t, w][:, None]
        shares = (logits - top - log).exp_().mul_(-weight).masked_fill_(weight == 0, 0.0)
        totals[0].index_put_((b, t), shares, accumulate=True)
        totals[1].index_put_((b, w), shares, accumulate=True)


def _rows(encoder: Tensor, predictor: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [k v] of some pairs, the largest of each [k 1], and the logs of sums beside it."""
    b, t, w = places.unbind(-1)
    logits = encoder[b, t] + predictor[b, w]
    top = finite(logits.amax(-1, keepdim=True))
    return logits, top, finite((logits - top).exp_().sum(-1, keepdim=True).log())
