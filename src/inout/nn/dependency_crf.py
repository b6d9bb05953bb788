"""`DependencyCRF`: a layer for dependency trees."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from inout._core.checks import at_least, expect
from inout.constraints import ArcConstraints
from inout.distributions import DependencyTree
from inout.nn.layer import StructuredLayer


class DependencyCRF(StructuredLayer[DependencyTree]):
    """A conditional random field over dependency trees, from scores of heads [*b n+1 n].

    Entry [h, d - 1] is for the head h of word d, in the numbering of CoNLL files: the root is 0.
    So the scores of a parser with a ROOT token before the words, heads first, are these without
    the first column. With `num_labels` they are [*b n+1 n s], and the layer owns scores of labels:
    `arcs` [s] between words and `root` [s] from the root. Without labels it owns nothing: a tree
    has as many arcs as words, so one more number for each would change nothing.

    Gold are heads [*b n], with labels [*b n 2], or lists of heads or of (head, label). `decode`
    gives such lists, `marginals` the probabilities of arcs in the shape of the scores,
    `distribution` a `DependencyTree`. `projective` and `single_root` as there. O(b n² s + b n³).

    >>> import torch
    >>> layer = DependencyCRF()
    >>> scores = torch.zeros(4, 3)
    >>> scores[0, 1] = scores[2, 0] = scores[2, 2] = 1.0  # the second word heads the others
    >>> layer.decode(scores)
    [2, 0, 2]
    >>> layer.marginals(scores)[0].round(decimals=2)  # of being the root's word
    tensor([0.1600, 0.6800, 0.1600])
    """

    kind = ArcConstraints

    def __init__(
        self,
        num_labels: int | None = None,
        constraints: ArcConstraints | None = None,
        *,
        projective: bool = True,
        single_root: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        labels = () if num_labels is None else (at_least("num_labels", num_labels, 1),)
        tables = dict.fromkeys(("arcs", "root"), labels) if labels else {}
        super().__init__(tables, constraints, device, dtype)
        self.num_labels = num_labels
        self.projective, self.single_root = bool(projective), bool(single_root)

    @property
    def _own(self) -> tuple[int, ...]:
        return () if self.num_labels is None else (self.num_labels,)

    def _size(self, scores: Tensor) -> tuple[torch.Size, int]:
        shape, own = scores.shape, len(self._own)
        heads = shape[: len(shape) - own]
        good = len(heads) >= 2 and heads[-2] == heads[-1] + 1 and shape[len(heads) :] == self._own
        expect(good, "scores", f"must be [*b n+1 n{' %d' * own % self._own}]", list(shape))
        return heads[:-2], heads[-1]

    def _distribution(self, scores: Tensor, lengths: Int[Tensor, "*b"], n: int) -> DependencyTree:
        rows = -2 - len(self._own)
        root, arcs = scores.select(rows, 0), scores.narrow(rows, 1, n)
        if self._own:
            root, arcs = root + self._table("root"), arcs + self._table("arcs")
        labelled = bool(self._own)
        return DependencyTree(
            arcs, root, lengths, self.projective, self.single_root, labelled=labelled
        )

    def _marginals(self, distribution: DependencyTree) -> Tensor:
        found = distribution.marginals()
        rows = -2 - len(self._own)
        return torch.cat([found["root"].unsqueeze(rows), found["arcs"]], rows)

    def _row(self, event: Tensor) -> list[Any]:
        row = super()._row(event)
        return [tuple(pair) for pair in row] if self._own else row

    def extra_repr(self) -> str:
        """The number of labels and the kind of trees."""
        kinds = f"projective={self.projective}, single_root={self.single_root}"
        return f"{self.num_labels}, {kinds}"
