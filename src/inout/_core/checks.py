"""Checks at the public edge: bad values are refused there, with the argument's name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from inout._core.errors import ArgumentError
from inout._core.lazy import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
else:
    np, torch = LazyModule("numpy"), LazyModule("torch")


def expect(holds: object, name: str, wanted: str, got: object) -> None:
    """Raise unless what is wanted of an argument holds.

    >>> expect(0 <= 2 <= 1, "share", "must be from 0 to 1", 2)
    Traceback (most recent call last):
    inout._core.errors.ArgumentError: share must be from 0 to 1. Got 2
    """
    if not holds:
        raise ArgumentError(name, f"{wanted}. Got {got!r:.80}")


def expect_one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Raise unless an argument is one of the known names."""
    names = tuple(known)
    expect(value in names, name, f"must be one of {', '.join(names)}", value)


def expect_shape(name: str, array: Any, shape: Sequence[int]) -> None:
    """Raise unless an array or tensor has this shape."""
    if tuple(array.shape) != tuple(shape):
        raise ArgumentError(name, f"must have shape {list(shape)}. Got {list(array.shape)}")


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor, without importing torch."""
    return "torch" in sys.modules and isinstance(value, torch.Tensor)


def checked_log_weights(name: str, values: object, size: int) -> NDArray[np.float64]:
    """`values` as an array [size] without NaN or +inf; None means log-weight 0 each."""
    if values is None:
        return np.zeros(size)
    try:
        array: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(name, f"must be numbers. Got {values!r:.80}") from error
    _refuse(name, np.isnan(array) | (array == np.inf), array, size)
    return array


def as_log_weights(
    name: str, values: torch.Tensor | NDArray[np.float64] | Sequence[float] | None, size: int
) -> torch.Tensor:
    """`values` as a float tensor [size] without NaN or +inf; None means log-weight 0 each.

    Tensors keep their dtype, device and graph; half precision is computed in float32.
    """
    if not is_tensor(values):
        return torch.as_tensor(checked_log_weights(name, values, size))
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    if not values.is_floating_point():
        raise ArgumentError(name, f"must be a float tensor. Got {values.dtype}")
    _refuse(name, torch.isnan(values) | (values == torch.inf), values, size)
    return values


def _refuse(name: str, bad: Any, values: Any, size: int) -> None:
    """Raise if the shape is not [size] or a value is bad."""
    expect_shape(name, values, (size,))
    if bool(bad.any()):
        row = int(bad.argmax()) if isinstance(bad, np.ndarray) else int(bad.nonzero()[0, 0])
        raise ArgumentError(name, f"must be finite or -inf. Got {float(values[row])} at row {row}")


def at_least(name: str, value: int, least: int) -> int:
    """`value` as an int, refused below `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError(name, f"must be an integer of at least {least}. Got {value!r}")
    return int(value)


def checked_memory(memory: Any) -> Any:
    """A number of bytes, "sqrt" or None; anything else raises."""
    if memory in (None, "sqrt") or (type(memory) is int and memory > 0):
        return memory
    raise ArgumentError("memory", f'must be "sqrt" or a number of bytes. Got {memory!r}')
