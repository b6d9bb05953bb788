"""log Z of arborescences in Taylor mode: the elimination of words in the semiring of jets."""

from __future__ import annotations

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout.kernels.arborescences.reference import with_padding
from inout.kernels.math.reweighting import log_sum
from inout.kernels.shapes import Lengths
from inout.semirings import Jet


def log_series(
    orders: tuple[int, ...],
    potentials: Float[Tensor, "b h n s"],
    lengths: Lengths,
    single_root: bool,
    values: Inexact[Tensor, "k b h n s"],
) -> Inexact[Tensor, "l b"]:
    """log Σ weight · exp(z · F) as a power series [l b], without powers above `orders`. Slow.

    As the reference, where a quotient of weights is a difference of series.
    """
    jet = Jet(orders, dtype=values.dtype, device=values.device)
    b, _, n, s = potentials.shape
    real, padding = with_padding(n, lengths, single_root)
    labels = potentials.double().where(real[..., None], -torch.inf)
    labels = torch.where(padding[..., None], -torch.log(torch.tensor(float(s))), labels)
    rows = values.where(real[..., None], 0.0).movedim(0, -1).reshape(-1, len(orders))
    arcs = torch.arange(b * (n + 1) * n, device=lengths.device)
    lifted = jet.lift(labels.reshape(-1), rows)
    table = jet.sum(lifted, arcs.repeat_interleave(s), len(arcs)).reshape(b, n + 1, n, *jet.shape)
    if single_root and n:
        table = _with_a_root_last(table, log_sum(labels, -1))
    total = jet.one(b)
    for k in range(n - 1, -1, -1):
        first = int(single_root and k > 0)
        column = table[:, : k + 1, k]
        element = torch.arange(b, device=lengths.device)
        heads = column[:, first:].flatten(0, 1)
        pivot = jet.sum(heads, element.repeat_interleave(k + 1 - first), b)
        total = jet.times(total, pivot)
        if k:
            dead = _constants(pivot, orders).real.isneginf()
            less = torch.where(dead[(..., *[None] * len(orders))], 0.0, -pivot)[:, None, None]
            left, right = column[:, :, None], table[:, k + 1, None, :k]
            shape = (b, k + 1, k, *jet.shape)
            through = jet.times((left + less).expand(shape).flatten(0, 2), _flat(right, shape))
            table = jet.plus(_flat(table[:, : k + 1, :k], shape), through).reshape(shape)
            loops = torch.nn.functional.pad(torch.eye(k, dtype=torch.bool), (0, 0, 1, 0))
            table[:, loops.to(table.device)] = jet.zero(1)
    return total.flatten(1).movedim(1, 0)


def _flat(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x.expand(shape).flatten(0, 2)


def _constants(x: Tensor, orders: tuple[int, ...]) -> Tensor:
    """The coefficients of 1."""
    return x.flatten(1)[:, 0] if orders else x


def _with_a_root_last(table: Tensor, logs: Float[Tensor, "b h n"]) -> Tensor:
    """The first word, which is eliminated last, exchanged for one that all others can reach."""
    b, n = logs.shape[0], logs.shape[2]
    reach = (logs[:, 1:] > -torch.inf).mT | torch.eye(n, dtype=torch.bool, device=logs.device)
    for _ in range(n.bit_length()):
        reach = (reach.double() @ reach.double()) > 0
    last = reach.all(1).double().argmax(1)
    order = torch.arange(n, device=logs.device).repeat(b, 1)
    rows = torch.arange(b, device=logs.device)
    order[:, 0] = last
    order[rows, last] = 0
    heads = torch.nn.functional.pad(order + 1, (1, 0))
    return table[rows[:, None, None], heads[:, :, None], order[:, None, :]]
