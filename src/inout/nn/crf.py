"""`CRF`: a layer for sequences of labels."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.checks import expect
from inout.constraints import SequenceConstraints
from inout.distributions import LinearChain
from inout.nn.layer import LabelLayer


class CRF(LabelLayer[LinearChain, SequenceConstraints]):
    """A linear-chain conditional random field over an encoder's scores of labels [*b n s].

    It owns `transitions` [s s] (from, to), `start` [s] and `end` [s]. Called with scores and gold
    labels [*b n], it returns the negative log-likelihood; `decode` gives lists of labels,
    `marginals` the probabilities of labels [*b n s], `distribution` a `LinearChain`. O(b n s²).

    >>> import torch
    >>> from inout.constraints import bio
    >>> labels = ["O", "B", "I"]
    >>> crf = CRF(3, constraints=bio(labels))
    >>> scores = torch.tensor([[[0.0, 1.0, 0.0], [0.0, 0.0, 3.0]], [[0.0, 1.0, 4.0], [0.0] * 3]])
    >>> crf.decode(scores, lengths=[2, 1])  # a chunk does not begin with I
    [[1, 2], [1]]
    >>> loss = crf(scores, torch.tensor([[1, 2], [1, -100]]), lengths=[2, 1])
    >>> loss.backward()

    Lafferty, McCallum & Pereira, "Conditional random fields" (2001).
    """

    kind = SequenceConstraints
    of_pairs = ("transitions",)
    transitions: Tensor
    start: Tensor
    end: Tensor

    def _size(self, scores: Tensor) -> tuple[torch.Size, int]:
        s = len(self.start)
        good = scores.ndim >= 2 and scores.shape[-1] == s
        expect(good, "scores", f"must be [*b n {s}]", list(scores.shape))
        return scores.shape[:-2], scores.shape[-2]

    def _distribution(self, scores: Tensor, lengths: Int[Tensor, "*b"], n: int) -> LinearChain:
        transitions, start, end = map(self._table, ("transitions", "start", "end"))
        return LinearChain(scores, transitions, start, end, lengths)

    def _marginals(self, distribution: LinearChain) -> Float[Tensor, "*b n s"]:
        return distribution.label_marginals()

    def extra_repr(self) -> str:
        """The number of labels."""
        return f"{len(self.start)}"
