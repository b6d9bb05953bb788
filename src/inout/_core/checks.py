"""Checks at the public edge: bad values are refused there, with the argument's name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from inout._core.errors import ArgumentError


def as_log_weights(
    name: str, values: Tensor | np.ndarray | Sequence[float] | None, size: int
) -> Tensor:
    """`values` as a float tensor [size] without NaN or +inf; None means log-weight 0 each.

    Tensors keep their dtype, device and graph; half precision is computed in float32.
    """
    if values is None:
        return torch.zeros(size, dtype=torch.float64)
    if not isinstance(values, Tensor):
        try:
            values = torch.as_tensor(np.asarray(values, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{name} must be numbers. Got {values!r:.80}") from error
    if values.shape != (size,):
        raise ArgumentError(f"{name} must have shape [{size}]. Got {list(values.shape)}")
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    if not values.is_floating_point():
        raise ArgumentError(f"{name} must be a float tensor. Got {values.dtype}")
    bad = torch.isnan(values) | (values == torch.inf)
    if bool(bad.any()):
        place = int(bad.nonzero()[0, 0])
        raise ArgumentError(
            f"{name} must be finite or -inf. Got {values[place].item()} at row {place}"
        )
    return values


def at_least(name: str, value: int, least: int) -> int:
    """`value` as an int, refused below `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError(f"{name} must be an integer of at least {least}. Got {value!r}")
    return int(value)
