"""Masks as lengths."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from inout._core.checks import expect, expect_shape
from inout._core.errors import ArgumentError
from inout._core.tracing import any_seen, in_graph
from inout.distributions.arguments import checked_lengths, refuse_non_tensors


def lengths_of(
    mask: Tensor | None, lengths: Any, batch_shape: torch.Size, n: int, device: torch.device
) -> Int[Tensor, "*b"]:
    """Lengths [*b], from a mask [*b n], from lengths, or all n.

    >>> mask = torch.tensor([[True, True, False], [True, False, False]])
    >>> lengths_of(mask, None, torch.Size([2]), 3, mask.device)
    tensor([2, 1])
    """
    if mask is None:
        return checked_lengths(lengths, batch_shape, n, device)
    if lengths is not None:
        raise ArgumentError("mask", "must be None if lengths are given, or lengths None")
    refuse_non_tensors(mask=mask)
    expect(mask.dtype == torch.bool, "mask", "must be of bools, as mask.bool() is", mask.dtype)
    expect_shape("mask", mask, (*batch_shape, n))
    return (_lengths_of if in_graph() else _checked)(mask).to(device)


def _checked(mask: Tensor) -> Int[Tensor, "*b"]:
    """The lengths of the elements."""
    holes = mask[..., 1:] & ~mask[..., :-1]
    if any_seen(holes):
        place = [*holes.nonzero()[0].tolist()]
        raise ArgumentError(
            "mask",
            "must be True up to the length of each element and False beyond it; select the "
            f"positions that have labels first. Got False before True at {place}",
        )
    return mask.sum(-1)


_lengths_of = torch.library.custom_op(
    "inout::mask_lengths", _checked, mutates_args=(), schema="(Tensor mask) -> Tensor"
)
_lengths_of.register_fake(lambda mask: mask.new_empty(mask.shape[:-1], dtype=torch.long))
