"""The largest and the smallest of many numbers, as comparisons of integers.

A running maximum of floats stays a chain of single comparisons, because of NaN. The bits of a
float, with those behind the sign flipped in negative ones, are an integer of the same order: below
-inf and above +inf come the NaNs. Integers vectorise.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from inout._core.cpu.compiling import inner

BITS32, BITS64 = np.int32(2**31 - 1), np.int64(2**63 - 1)
SIGN32, SIGN64 = np.int32(31), np.int64(63)


def _code32(x: float) -> np.int32:
    bits = np.float32(x).view(np.int32)
    return np.int32(bits ^ ((bits >> SIGN32) & BITS32))


def _code64(x: float) -> np.int64:
    bits = np.float64(x).view(np.int64)
    return np.int64(bits ^ ((bits >> SIGN64) & BITS64))


LOWEST32, LOWEST64 = _code32(float(np.finfo(np.float32).min)), _code64(np.finfo(np.float64).min)
BOTTOM32, BOTTOM64 = _code32(-np.inf), _code64(-np.inf)
ONE32, ONE64 = _code32(1.0), _code64(1.0)
NAN32, NAN64 = np.float32(np.nan), np.float64(np.nan)


def largest(values):
    """The largest of [n], the lowest finite number if all are -inf, NaN if any is NaN.

    Compiled code only, as is `smallest`.
    """
    raise NotImplementedError


def smallest(values):
    """The smallest of [n] numbers that are not NaN, at most 1."""
    raise NotImplementedError


@inner
def _largest32(values):
    bits = values.view(np.int32)
    top, bottom = LOWEST32, BOTTOM32
    for k in range(bits.shape[0]):
        code = bits[k] ^ ((bits[k] >> SIGN32) & BITS32)
        top, bottom = max(top, code), min(bottom, code)
    if bottom < BOTTOM32:
        return NAN32
    return np.int32(top ^ ((top >> SIGN32) & BITS32)).view(np.float32)


@inner
def _largest64(values):
    bits = values.view(np.int64)
    top, bottom = LOWEST64, BOTTOM64
    for k in range(bits.shape[0]):
        code = bits[k] ^ ((bits[k] >> SIGN64) & BITS64)
        top, bottom = max(top, code), min(bottom, code)
    if bottom < BOTTOM64:
        return NAN64
    return np.int64(top ^ ((top >> SIGN64) & BITS64)).view(np.float64)


@inner
def _smallest32(values):
    bits = values.view(np.int32)
    least = ONE32
    for k in range(bits.shape[0]):
        least = min(least, bits[k] ^ ((bits[k] >> SIGN32) & BITS32))
    return np.int32(least ^ ((least >> SIGN32) & BITS32)).view(np.float32)


@inner
def _smallest64(values):
    bits = values.view(np.int64)
    least = ONE64
    for k in range(bits.shape[0]):
        least = min(least, bits[k] ^ ((bits[k] >> SIGN64) & BITS64))
    return np.int64(least ^ ((least >> SIGN64) & BITS64)).view(np.float64)


@overload(largest)
def _choose_largest(values):
    if values.dtype == types.float32:
        return lambda values: _largest32(values)
    return lambda values: _largest64(values)


@overload(smallest)
def _choose_smallest(values):
    if values.dtype == types.float32:
        return lambda values: _smallest32(values)
    return lambda values: _smallest64(values)
