"""The largest and the smallest of many numbers, as comparisons of integers.

A running maximum of floats stays a chain of single comparisons, because of NaN. The bits of a
float, with those behind the sign flipped in negative ones, are an integer of the same order: below
-inf and above +inf come the NaNs. Integers vectorise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from inout._core.cpu.compiling import inner, inner_overload


def _codes(floats: Any, ints: Any) -> tuple[Any, ...]:
    """Types of numbers and of their codes, how to flip bits, and the codes of some numbers."""
    sign, rest = ints(8 * np.dtype(ints).itemsize - 1), ints(np.iinfo(ints).max)

    def code(x: Any) -> Any:
        own = floats(x).view(ints)
        return ints(own ^ ((own >> sign) & rest))

    lowest, bottom, one = code(np.finfo(floats).min), code(-np.inf), code(1.0)
    return floats, ints, sign, rest, lowest, bottom, one, floats(np.nan)


_OF = {types.float32: _codes(np.float32, np.int32), types.float64: _codes(np.float64, np.int64)}


def largest(values):
    """The largest of [n], the lowest finite number if all are -inf, NaN if any is NaN.

    Compiled code only, as is `smallest`.
    """
    raise NotImplementedError


def smallest(values):
    """The smallest of [n] numbers that are not NaN, at most 1."""
    raise NotImplementedError


@inner
def _extremes(bits, sign, rest, top, least):
    """(largest, smallest) code of the bits and of two codes."""
    for k in range(bits.shape[0]):
        code = bits[k] ^ ((bits[k] >> sign) & rest)
        top, least = max(top, code), min(least, code)
    return top, least


@inner_overload(largest)
def _largest(values):
    floats, ints, sign, rest, lowest, bottom, _, nan = _OF[values.dtype]

    def largest(values):
        top, least = _extremes(values.view(ints), sign, rest, lowest, bottom)
        return ints(top ^ ((top >> sign) & rest)).view(floats) if least >= bottom else nan

    return largest


@inner_overload(smallest)
def _smallest(values):
    floats, ints, sign, rest, _, _, one, _ = _OF[values.dtype]

    def smallest(values):
        _, least = _extremes(values.view(ints), sign, rest, one, one)
        return ints(least ^ ((least >> sign) & rest)).view(floats)

    return smallest
