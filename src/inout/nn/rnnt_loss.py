"""`RNNTLoss`: the loss of torchaudio's `RNNTLoss`, also without the tensor of all logits."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from inout._core.checks import expect, expect_one_of
from inout.distributions.arguments import Lengths, refuse_non_tensors
from inout.distributions.transducer import RNNT, targets_with_blanks
from inout.nn.reductions import LOSS_REDUCTIONS, reduced


class RNNTLoss(nn.Module):
    """Negative log-likelihood of targets under a transducer, as torchaudio's `RNNTLoss`.

    `logits` [b t u+1 v] of a joint network, `targets` [b u]; the lengths say how many frames and
    labels are real. `blank` counts from the end if negative. `clamp` > 0 keeps the gradients of
    each element between -clamp and clamp; there are then no second derivatives. Without
    `fused_log_softmax` the logits are taken for log-probabilities.

    Besides the logits and their gradient nothing is as large, and gradients are the same each time.
    `additive` never makes them where they are sums of an encoder's and a predictor's outputs.

    >>> import torch
    >>> loss = RNNTLoss(blank=0)
    >>> loss(torch.zeros(1, 3, 3, 4), torch.tensor([[1, 2]]), [3], [2])  # log(4^5 / 6)
    tensor(5.1397)
    """

    def __init__(
        self,
        blank: int = -1,
        clamp: float = -1.0,
        reduction: str = "mean",
        fused_log_softmax: bool = True,
    ) -> None:
        super().__init__()
        expect_one_of("reduction", reduction, LOSS_REDUCTIONS)
        good = isinstance(clamp, int | float) and not math.isnan(clamp)
        expect(good, "clamp", "must be a number", clamp)
        self.blank, self.clamp, self.reduction = blank, clamp, reduction
        self.fused_log_softmax = fused_log_softmax

    def distribution(
        self,
        logits: Float[Tensor, "b t w v"],
        targets: Int[Tensor, "b u"],
        logit_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> RNNT:
        """The distribution over the frames at which the labels are emitted."""
        refuse_non_tensors(logits=logits, targets=targets)
        expect(logits.ndim == 4, "logits", "must be [b t u+1 v]", list(logits.shape))
        blank = self._blank(logits.shape[-1])
        if self.fused_log_softmax:
            return RNNT.from_logits(logits, targets, logit_lengths, target_lengths, blank)
        size = logits.shape[-1]
        padded = targets_with_blanks(targets, logits.shape[:1], size, blank, target_lengths)
        wanted = f"must be [b t {padded.shape[-1]} v] for these targets"
        expect(logits.shape[2] == padded.shape[-1], "logits", wanted, list(logits.shape))
        places = padded[:, None, :, None].expand(*logits.shape[:3], 1)
        labels = logits.gather(-1, places)[..., 0]
        return RNNT(logits[..., blank], labels, logit_lengths, target_lengths)

    def forward(
        self,
        logits: Float[Tensor, "b t w v"],
        targets: Int[Tensor, "b u"],
        logit_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, " ..."]:
        """The loss; without lengths there is no padding."""

        def losses(given: Tensor) -> Tensor:
            return -self.distribution(given, targets, logit_lengths, target_lengths).log_partition()

        if self.clamp <= 0 or not isinstance(logits, Tensor):
            return reduced(losses(logits), self.reduction)
        return reduced(_Clamped.apply(logits, losses, self.clamp), self.reduction)  # type: ignore[no-untyped-call]

    def additive(
        self,
        encoder: Float[Tensor, "b t v"],
        predictor: Float[Tensor, "b w v"],
        targets: Int[Tensor, "b u"],
        logit_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, " ..."]:
        """The loss for logits encoder[t] + predictor[j], of which t·u·v are never made.

        Always with the log-softmax, and without `clamp`.
        """
        refuse_non_tensors(encoder=encoder, predictor=predictor, targets=targets)
        blank = self._blank(encoder.shape[-1])
        found = RNNT.from_joiner(encoder, predictor, targets, logit_lengths, target_lengths, blank)
        return reduced(-found.log_partition(), self.reduction)

    def _blank(self, size: int) -> int:
        good = isinstance(self.blank, int) and -size <= self.blank < size
        expect(good, "blank", f"must be in -{size}..{size - 1}", self.blank)
        return self.blank % size

    def extra_repr(self) -> str:
        """The settings, for `print`."""
        return f"blank={self.blank}, clamp={self.clamp}, reduction={self.reduction!r}"


class _Clamped(torch.autograd.Function):
    """Losses [b] whose gradients are clamped element by element, before they are reduced."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, losses: Any, clamp: float) -> Tensor:
        if not logits.requires_grad:
            found: Tensor = losses(logits)
            return found
        with torch.enable_grad():
            own = logits.detach().requires_grad_()
            found = losses(own)
            (gradient,) = torch.autograd.grad(found.sum(), own)
        ctx.save_for_backward(gradient.clamp_(-clamp, clamp))
        return found.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * weights[:, None, None, None], None, None
