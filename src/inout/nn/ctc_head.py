"""`CTCHead`: the loss of `torch.nn.CTCLoss`, alignments and decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from inout._core.checks import expect, expect_one_of
from inout._core.errors import ArgumentError
from inout.distributions.arguments import checked_lengths, is_integer, refuse_non_tensors
from inout.distributions.ctc import CTC
from inout.nn.reductions import LOSS_REDUCTIONS, reduced

# Tensors, lists, or tuples as torch takes them; [1] or [] without a batch.
Sizes = Int[Tensor, " ..."] | Sequence[int] | int | None


class CTCHead(nn.Module):
    """Negative log-likelihood of targets under the labels of frames, as `torch.nn.CTCLoss`.

    Its arguments, shapes and results are those of torch: `log_probs` [t b v], or [t v] without a
    batch; `targets` [b u], or one after the other in [sum of target_lengths]; `reduction` "mean"
    divides by the lengths of the targets first. `batch_first=True` takes [b t v]. A target that
    does not fit its frames has loss +inf, or 0 with `zero_infinity`, and gradient 0 in either case.

    With `features` and `labels` the head has a linear layer, and takes the outputs of an encoder
    [t b features] instead. O(b t u) time and memory besides `log_probs` and their gradient, which
    are the same each time.

    >>> import torch
    >>> head, scores = CTCHead(batch_first=True), torch.zeros(1, 4, 3)
    >>> head(scores.log_softmax(-1), torch.tensor([[1, 2]]), [4], [2])  # log(81 / 15) / 2
    tensor(0.8432)
    >>> head.decode(torch.eye(3)[None, [0, 1, 1, 0, 1, 2]])
    [[1, 1, 2]]
    """

    def __init__(
        self,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
        *,
        features: int | None = None,
        labels: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        expect_one_of("reduction", reduction, LOSS_REDUCTIONS)
        if (features is None) != (labels is None):
            raise ArgumentError("labels", "must be given with features, and only then")
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity
        self.batch_first = batch_first
        self.projection: nn.Linear | None = None
        if features is not None and labels is not None:
            self.projection = nn.Linear(features, labels, device=device, dtype=dtype)

    def log_probs(self, frames: Tensor) -> Float[Tensor, "*b t v"]:
        """Log-probabilities of labels, the batch first: of an encoder's outputs, or as given."""
        return self._projected(self._batch_first(frames))

    def _batch_first(self, frames: Tensor) -> Tensor:
        refuse_non_tensors(log_probs=frames)
        good = frames.ndim in (2, 3)
        shape = "[b t v]" if self.batch_first else "[t b v]"
        expect(good, "log_probs", f"must be {shape}, or [t v]", list(frames.shape))
        return frames.transpose(0, 1) if frames.ndim == 3 and not self.batch_first else frames

    def _projected(self, frames: Tensor) -> Tensor:
        return frames if self.projection is None else self.projection(frames).log_softmax(-1)

    def distribution(
        self,
        log_probs: Tensor,
        targets: Int[Tensor, " ..."],
        input_lengths: Sizes = None,
        target_lengths: Sizes = None,
    ) -> CTC:
        """The distribution over labellings of the frames that spell the targets."""
        refuse_non_tensors(targets=targets)
        frames = self._batch_first(log_probs)
        t = frames.shape[-2]
        lengths = checked_lengths(
            _of(input_lengths, frames), frames.shape[:-2], t, frames.device, "input_lengths"
        )
        if self.projection is not None and input_lengths is not None:
            # Else NaN in the padding would reach the gradients of the linear layer.
            real = torch.arange(t, device=frames.device) < lengths[..., None]
            frames = frames.where(real[..., None], 0.0)
        scores = self._projected(frames)
        if scores.ndim == 3 and targets.ndim == 1:
            targets = _separate(targets, target_lengths, len(scores))
        return CTC(scores, targets, lengths, _of(target_lengths, scores), self.blank)

    def forward(
        self,
        log_probs: Tensor,
        targets: Int[Tensor, " ..."],
        input_lengths: Sizes = None,
        target_lengths: Sizes = None,
    ) -> Float[Tensor, " ..."]:
        """The loss; without lengths there is no padding."""
        found = self.distribution(log_probs, targets, input_lengths, target_lengths)
        loss = -found.log_partition()
        if self.zero_infinity:
            loss = torch.where(loss == torch.inf, 0.0, loss)
        lengths = found.target_lengths.clamp(min=1) if self.reduction == "mean" else 1
        return reduced(loss / lengths, self.reduction)

    def decode(self, log_probs: Tensor, input_lengths: Sizes = None) -> list[Any]:
        """What the best label of every frame spells, a list for each element."""
        with torch.no_grad():
            scores = self.log_probs(log_probs)
            lengths = checked_lengths(
                _of(input_lengths, scores), scores.shape[:-2], scores.shape[-2], scores.device
            )
            best = scores.argmax(-1)
        if best.ndim == 1:
            return self._spelt(best[: int(lengths)].tolist())
        return [
            self._spelt(row[:n]) for row, n in zip(best.tolist(), lengths.tolist(), strict=True)
        ]

    def _spelt(self, labels: list[int]) -> list[int]:
        before = [self.blank, *labels]
        return [y for x, y in zip(before, labels, strict=False) if y not in (x, self.blank)]

    def extra_repr(self) -> str:
        """The settings, for `print`."""
        return f"blank={self.blank}, reduction={self.reduction!r}"


def _of(lengths: Any, scores: Tensor) -> Any:
    """Lengths as torch's losses take them: a tuple, or one in a list without a batch, as well."""
    if isinstance(lengths, tuple):
        lengths = list(lengths)
    if scores.ndim == 2 and isinstance(lengths, list) and len(lengths) == 1:
        return lengths[0]
    if isinstance(lengths, Tensor) and scores.ndim == 2:
        return lengths.reshape(()) if lengths.numel() == 1 else lengths
    return lengths


def _separate(targets: Tensor, lengths: Any, count: int) -> Int[Tensor, "b u"]:
    """Targets that stand one after the other, padded."""
    expect(is_integer(targets), "targets", "must be integers", targets.dtype)
    sizes = torch.as_tensor(lengths).tolist() if lengths is not None else None
    wanted = f"must be {count} lengths of targets that stand one after the other"
    good = isinstance(sizes, list) and len(sizes) == count and all(n >= 0 for n in sizes)
    expect(good, "target_lengths", wanted, sizes)
    assert sizes is not None
    good = sum(sizes) == len(targets)
    expect(good, "targets", f"must be [b u], or [{sum(sizes)}] by their lengths", [len(targets)])
    rows = list(torch.split(targets, sizes))
    return nn.utils.rnn.pad_sequence(rows, batch_first=True) if rows else targets.reshape(0, 0)
