"""`SemiCRF`: a layer for labelled segmentations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.checks import at_least, expect
from inout.constraints import SequenceConstraints
from inout.distributions import SemiMarkov
from inout.nn.layer import Span, StructuredLayer


class SemiCRF(StructuredLayer[SemiMarkov]):
    """A semi-Markov conditional random field: labelled segments at most `max_width` wide.

    Scores are those of labels at positions [*b n s], which add up over a segment, or with
    `segments=True` those of segments [*b n w s]: entry [e, d - 1] for the segment of width d whose
    last position is e. The layer owns `transitions` [s s] between labels of neighbouring segments,
    `start` and `end` [s], and `widths` [w s]. O(b n w s²).

    Gold is [*b n] as for `SemiMarkov` (the label at the last position of each segment, -1
    elsewhere), or lists of (start, stop, label). `decode` gives such lists, `marginals` the
    probabilities of segments [*b n w s], `distribution` a `SemiMarkov`.

    >>> import torch
    >>> layer = SemiCRF(2, max_width=3)
    >>> scores = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> with torch.no_grad():
    ...     _ = layer.widths.copy_(torch.tensor([[-1.0], [-1.0], [-1.0]]))  # each segment costs 1
    >>> layer.decode(scores)
    [Span(start=0, stop=2, label=0), Span(start=2, stop=3, label=1)]
    >>> layer(scores, [(0, 2, 0), (2, 3, 1)]).backward()

    Sarawagi & Cohen, "Semi-Markov conditional random fields" (2004).
    """

    kind = SequenceConstraints
    transitions: Tensor
    start: Tensor
    end: Tensor
    widths: Tensor

    def __init__(
        self,
        num_labels: int,
        max_width: int,
        constraints: SequenceConstraints | None = None,
        *,
        segments: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        s, w = at_least("num_labels", num_labels, 1), at_least("max_width", max_width, 1)
        tables = {"transitions": (s, s), "start": (s,), "end": (s,), "widths": (w, s)}
        super().__init__(tables, constraints, device, dtype)
        self.segments = bool(segments)

    def _size(self, scores: Tensor) -> tuple[torch.Size, int]:
        w, s = self.widths.shape
        own = (w, s) if self.segments else (s,)
        good = scores.ndim > len(own) and scores.shape[-len(own) :] == own
        expect(good, "scores", f"must be [*b n {' '.join(map(str, own))}]", list(scores.shape))
        return scores.shape[: -len(own) - 1], scores.shape[-len(own) - 1]

    def _distribution(self, scores: Tensor, lengths: Int[Tensor, "*b"], n: int) -> SemiMarkov:
        own = scores if self.segments else segment_sums(scores, len(self.widths))
        positions = torch.arange(n, device=scores.device)
        last = (positions == lengths[..., None] - 1)[..., None, None]
        own = own + self._table("widths") + torch.where(last, self._table("end"), 0.0)
        # The segment of width d that ends at e is the first of all if d = e + 1.
        widths = torch.arange(1, len(self.widths) + 1, device=scores.device)
        first = (positions[:, None] + 1 == widths)[..., None, None]
        before = torch.where(first, self._table("start"), self._table("transitions"))
        return SemiMarkov(own[..., None, :] + before, lengths)

    def _marginals(self, distribution: SemiMarkov) -> Float[Tensor, "*b n w s"]:
        return distribution.marginals()["log_potentials"].sum(-2)

    def _row(self, event: Tensor) -> list[Any]:
        ends = [(place + 1, label) for place, label in enumerate(event.tolist()) if label >= 0]
        starts = [0, *(stop for stop, _ in ends)]
        return [Span(start, *end) for start, end in zip(starts, ends, strict=False)]

    def _event(self, row: Sequence[Any], length: int) -> Tensor:
        event, place = torch.full((length,), -1), 0
        for start, stop, label in row:
            good = start == place < stop <= length
            expect(good, "gold", f"must have segments that cover 0..{length} from the left", row)
            event[stop - 1], place = label, stop
        return event

    def extra_repr(self) -> str:
        """The number of labels, the largest width and the kind of scores."""
        w, s = self.widths.shape
        return f"{s}, max_width={w}, segments={self.segments}"


def segment_sums(scores: Float[Tensor, "*b n s"], width: int) -> Float[Tensor, "*b n w s"]:
    """Sums over the 1, …, width positions that end at each position.

    Each is added up by itself: differences of sums from the start would be rounded more, and NaN
    for scores of -inf. O(n w s).

    >>> segment_sums(torch.tensor([[1.0], [2.0], [4.0]]), 2)[..., 0]
    tensor([[1., 1.],
            [2., 3.],
            [4., 6.]])
    """
    sums = [scores]
    for _ in range(width - 1):
        shorter = torch.nn.functional.pad(sums[-1][..., :-1, :], (0, 0, 1, 0))
        sums.append(scores + shorter)
    return torch.stack(sums, -2)
