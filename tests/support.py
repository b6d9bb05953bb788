"""Helpers that every test shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

# Relative to the truth, by the dtype of the result (half of a complex number counts as its dtype).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None
) -> None:
    """Fail unless two whole tensors agree to |actual − expected| ≤ atol + rtol · |expected|.

    Both tolerances come from the dtype of `actual` (logarithms pass through zero, so the absolute
    one is the same number); integers and booleans must be equal. Shapes must be equal, infinities
    must stand in the same places with the same sign, and NaN never passes, not even beside NaN.
    """
    actual, expected = _tensor(actual), _tensor(expected)
    assert actual.shape == expected.shape, (
        f"the shape must be {tuple(expected.shape)}. Got {tuple(actual.shape)}"
    )
    if not (actual.is_floating_point() or actual.is_complex()):
        assert bool((actual == expected).all()), f"must be equal to {expected}. Got {actual}"
        return
    default = TOLERANCE[actual.real.dtype]
    rtol = default if rtol is None else rtol
    atol = default if atol is None else atol
    actual, expected = actual.to(torch.complex128), expected.to(torch.complex128)
    finite = actual.isfinite() & expected.isfinite()
    error = torch.where(finite, actual - expected, 0).abs()
    bound = atol + rtol * torch.where(finite, expected, 0).abs()
    # An infinity equals only itself, and NaN equals nothing.
    wrong = torch.where(finite, error > bound, actual != expected)
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.numel()} entries differ (atol {atol:g}, rtol {rtol:g}); "
            f"the first, at {place}, must be {expected[place]}. Got {actual[place]}"
        )


def _tensor(value: Any) -> Tensor:
    """`value` without its graph, on the CPU; Python floats count as float64."""
    return value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
