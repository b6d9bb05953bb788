"""`TreeCRF`: a layer for binary trees with labelled spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.checks import expect
from inout.constraints import SpanConstraints
from inout.distributions import SpanTree
from inout.nn.layer import LabelLayer, Span


class TreeCRF(LabelLayer[SpanTree, SpanConstraints]):
    """A conditional random field over binary trees, from scores of labelled spans [*b n n s].

    Entry [i, j, a] of the scores is for the span from i to j inclusive with label a; i > j is not
    read. The layer owns scores of labels: `words` [s] of spans of one position, `phrases` [s] of
    longer ones, and `root` [s] that the span of the whole sentence has besides. A tree over n
    positions has 2n - 1 spans, and none if n = 0. O(b n² s + b n³).

    Gold is [*b n n] as for `SpanTree`, or lists of (start, stop, label), stop excluded, of all
    spans. `decode` gives such lists, sorted; `marginals` the probabilities of spans [*b n n s],
    `distribution` a `SpanTree`.

    >>> import torch
    >>> layer = TreeCRF(1)
    >>> scores = torch.zeros(3, 3, 1)
    >>> scores[1, 2] = 1.0  # the second and the third word belong together
    >>> [(start, stop) for start, stop, _ in layer.decode(scores)]
    [(0, 1), (0, 3), (1, 2), (1, 3), (2, 3)]
    >>> layer(scores, layer.decode(scores)).exp()  # of two trees: 1 + 1/e
    tensor(1.3679, grad_fn=<ExpBackward0>)
    """

    kind = SpanConstraints
    words: Tensor
    phrases: Tensor
    root: Tensor

    def _size(self, scores: Tensor) -> tuple[torch.Size, int]:
        s, shape = len(self.root), scores.shape
        good = len(shape) >= 3 and shape[-1] == s and shape[-2] == shape[-3]
        expect(good, "scores", f"must be [*b n n {s}]", list(shape))
        return shape[:-3], shape[-2]

    def _distribution(self, scores: Tensor, lengths: Int[Tensor, "*b"], n: int) -> SpanTree:
        single = torch.eye(n, dtype=torch.bool, device=scores.device)[..., None]
        biases = torch.where(single, self._table("words"), self._table("phrases"))
        positions = torch.arange(n, device=scores.device)
        last = positions == lengths[..., None, None] - 1
        whole = ((positions == 0)[:, None] & last)[..., None]
        return SpanTree(scores + biases + torch.where(whole, self._table("root"), 0.0), lengths)

    def _marginals(self, distribution: SpanTree) -> Float[Tensor, "*b n n s"]:
        return distribution.marginals()["log_potentials"]

    def _row(self, event: Tensor) -> list[Any]:
        return [
            Span(start, last + 1, int(event[start, last]))
            for start, last in (event >= 0).nonzero().tolist()
        ]

    def _event(self, row: Sequence[Any], length: int) -> Tensor:
        event = torch.full((length, length), -1)
        for start, stop, label in row:
            good = 0 <= start < stop <= length
            expect(good, "gold", f"must have spans within 0..{length}", row)
            event[start, stop - 1] = label
        return event

    def extra_repr(self) -> str:
        """The number of labels."""
        return f"{len(self.root)}"
