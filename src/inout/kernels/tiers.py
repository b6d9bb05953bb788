"""The choice between a family's CPU kernels, its GPU kernels and its readable reference."""

from __future__ import annotations

from typing import Literal

import torch

from inout._core.errors import ArgumentError

Tier = Literal["cpu", "gpu", "reference"]


def choose_tier(device: torch.device, asked: str | None = None) -> Tier:
    """'cpu', 'gpu' or 'reference': the requested tier, or the kernels for tensors on `device`."""
    compiled: Tier = "cpu" if device.type == "cpu" else "gpu"
    if asked not in (None, compiled, "reference"):
        raise ArgumentError(
            "tier",
            f'must be "{compiled}" (for tensors on {device}), "reference" or None. Got {asked!r}',
        )
    return "reference" if asked == "reference" else compiled
