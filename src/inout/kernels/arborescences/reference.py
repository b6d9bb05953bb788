"""The elimination of words in log space, in plain torch code; any derivative, any range."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from inout.kernels.math.reweighting import log_sum
from inout.kernels.shapes import Arcs, Lengths, PerElement


def reference_log_partition(scores: Arcs, lengths: Lengths, single_root: bool) -> PerElement:
    """log Z of arborescences by autograd-recorded torch code: the slow twin of `op.py`.

    The words are eliminated one after the other: pivot(k) = sum over the heads i that are left of
    w(i, k), w(i, j) += w(i, k) w(k, j) / pivot(k), and Z is the product of the pivots. Where the
    root has one dependent only, it counts in no pivot but the last. O(b n³) in n steps.
    """
    n = scores.shape[2]
    real, padding = with_padding(n, lengths, single_root)
    table = scores.where(real, -torch.inf)
    # Relative to the best head of each word.
    shifts = table.detach()[:, int(single_root and n > 0) :].amax(1)
    shifts = torch.where(shifts == -torch.inf, 0.0, shifts)
    table = torch.where(padding, 0.0, table - shifts[:, None])
    log_z = shifts.sum(1)
    for k in range(n - 1, 0, -1):
        if single_root:
            table = _with_a_pivot(table, k)
        column, row = table[:, : k + 1, k], table[:, k + 1, :k]
        pivot = log_sum(column[:, 1:] if single_root else column, 1)
        dead = pivot == -torch.inf
        shares = torch.where(dead[:, None], -torch.inf, column - pivot.where(~dead, 0.0)[:, None])
        through = shares[:, :, None] + row[:, None, :]
        table = log_sum(torch.stack([table[:, : k + 1, :k], through]), 0)
        loops = torch.eye(k, dtype=torch.bool, device=table.device)
        table = table.masked_fill(torch.nn.functional.pad(loops, (0, 0, 1, 0)), -torch.inf)
        log_z = torch.where(dead, -torch.inf, log_z + pivot.where(~dead, 0.0))
    if n:
        last = table[:, 0, 0]
        dead = last == -torch.inf
        log_z = torch.where(dead, -torch.inf, log_z + last.where(~dead, 0.0))
    return torch.where(lengths == 0, -torch.inf if single_root else 0.0, log_z)


def with_padding(
    n: int, lengths: Lengths, single_root: bool
) -> tuple[Bool[Tensor, "b h n"], Bool[Tensor, "b h n"]]:
    """Which arcs there are, and which ones padding is to have, with weight 1.

    Words of the padding have no dependents and one head: the root, or the first word.
    """
    place = torch.arange(n + 1, device=lengths.device)
    heads, words = place[:, None], place[None, :-1]
    outside = words >= lengths[:, None, None]
    real = ~outside & (heads <= lengths[:, None, None]) & (heads != words + 1)
    return real, outside & (heads == int(single_root))


def _with_a_pivot(table: Float[Tensor, "b h d"], k: int) -> Float[Tensor, "b h d"]:
    """The table with the words k and 0 exchanged where k has no head left but the root.

    There k must be the root's dependent, so that it has to be eliminated last.
    """
    stuck = (table[:, 1 : k + 1, k] == -torch.inf).all(1)
    if not bool(stuck.any()):
        return table
    order = torch.arange(k + 1, device=table.device).repeat(len(table), 1)
    order[stuck, 0], order[stuck, k] = k, 0
    rows = torch.nn.functional.pad(order + 1, (1, 0))[:, :, None].expand(-1, -1, k + 1)
    columns = order[:, None, :].expand(-1, k + 2, -1)
    return table.gather(1, rows).gather(2, columns)
