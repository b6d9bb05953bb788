"""The inside algorithm of projective dependency trees in plain torch code; any derivative."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import pad

from inout.kernels.dependencies.recursion import Item, eisner, of_lengths, placed, placed_siblings
from inout.kernels.math.reweighting import log_sum
from inout.kernels.shapes import Arcs, Lengths, PerElement, Siblings


def reference_log_partition(
    scores: Arcs, lengths: Lengths, single_root: bool, siblings: Siblings | None = None
) -> PerElement:
    """log Z by autograd-recorded torch code: the slow twin of `op.py`. O(b n³) in n steps."""
    n = scores.shape[-1]
    logs = _Logs(*square(scores, lengths, siblings))
    found = eisner(logs, n, single_root, siblings is not None)
    total = of_lengths([item[0] for item in found], lengths)
    total = total if siblings is None else total + siblings[..., :0].sum()  # words may be too few
    return torch.where(total == -torch.inf, -torch.inf, total)  # without a gradient


def square(
    scores: Arcs, lengths: Lengths, siblings: Siblings | None
) -> tuple[Tensor, Tensor | None]:
    """Scores of arcs [b N N] and of siblings [b N N N] between all positions, the root included.

    -inf for what no tree has; 0 for the siblings below the root.
    """
    n = scores.shape[-1]
    scores = pad(scores.where(real_arcs(n, lengths), -torch.inf), (1, 0), value=-torch.inf)
    if siblings is None:
        return scores, None
    return scores, pad(siblings.where(real_siblings(n, lengths), 0.0), (1, 0) * 3)


def real_arcs(n: int, lengths: Lengths) -> Bool[Tensor, "b h n"]:
    """Which arcs a tree of an element may have, the first row being the root's."""
    place = torch.arange(n + 1, device=lengths.device)
    real = place <= lengths[:, None]
    return real[:, :, None] & real[:, None, 1:] & (place[:, None] != place[1:])


def real_siblings(n: int, lengths: Lengths) -> Bool[Tensor, "b n n n"]:
    """Which siblings: head, dependent, and a word between them."""
    place = torch.arange(n, device=lengths.device)
    head, word = place[:, None, None], place[:, None]
    low, high = torch.minimum(head, word), torch.maximum(head, word)
    return (low < place) & (place < high) & (high < lengths[:, None, None, None])


def dead_first(logs: Tensor) -> Tensor:
    """The logarithms, -inf at the first place."""
    return logs.where(torch.arange(logs.shape[-1], device=logs.device) > 0, -torch.inf)


class _Logs:
    """Items are logarithms [b count]."""

    def __init__(self, scores: Tensor, siblings: Tensor | None) -> None:
        self.scores, self.siblings = scores, siblings

    def one(self, count: int) -> Item:
        return (self.scores.new_zeros(len(self.scores), count),)

    def sum(self, terms: Sequence[Sequence[Item]]) -> Item:
        logs = [torch.stack([x for (x,) in factors]).sum(0) for factors in terms]
        return (log_sum(torch.stack(logs), 0) if len(logs) > 1 else logs[0],)

    def link(self, offset: int) -> Item:
        return (placed(self.scores, offset),)

    def sibling(self, offset: int, inner: int) -> Item:
        assert self.siblings is not None
        return (placed_siblings(self.siblings, offset, inner),)

    def without_first(self, item: Item) -> Item:
        return (dead_first(item[0]),)
