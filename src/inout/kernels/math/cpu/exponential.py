"""exp(x) for x <= 0 in plain arithmetic, so that loops over it become vector instructions.

x = k ln 2 + r with |r| <= ln(2)/2; exp(r) by a polynomial, 2**k by writing its bits. Below the
smallest normal number the result is 0. Relative error: 1e-7 in float32, 3e-16 in float64.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from inout._core.cpu.compiling import inner

# Everything that lets the compiler reorder and fuse; -inf and NaN keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}

LOW32, LOW64 = np.float32(-87.0), -708.0
PER_LN2_32, PER_LN2_64 = np.float32(1 / math.log(2)), 1 / math.log(2)
# ln 2 in two parts, the first exact when multiplied by any exponent.
LN2_HIGH32, LN2_LOW32 = np.float32(0.693359375), np.float32(-2.12194440e-4)
LN2_HIGH64, LN2_LOW64 = 6.93145751953125e-1, 1.42860682030941723212e-6
# 1/k! for k = 2 .. 7 is enough in float32, to 13 in float64.
TERMS32 = tuple(np.float32(1 / math.factorial(k)) for k in range(7, 1, -1))
TERMS64 = tuple(1 / math.factorial(k) for k in range(13, 1, -1))
HALF32, ONE32, ZERO32 = np.float32(0.5), np.float32(1.0), np.float32(0.0)


def exp_below(x):
    """exp(x) for x <= 0; compiled code only."""
    raise NotImplementedError


@inner(fastmath={"contract"})
def _exp32(x):
    y = max(x, LOW32)
    k = np.floor(y * PER_LN2_32 + HALF32)
    r = (y - k * LN2_HIGH32) - k * LN2_LOW32
    p = TERMS32[0]
    p = p * r + TERMS32[1]
    p = p * r + TERMS32[2]
    p = p * r + TERMS32[3]
    p = p * r + TERMS32[4]
    p = p * r + TERMS32[5]
    p = p * (r * r) + r + ONE32
    power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
    return p * power if x >= LOW32 else ZERO32


@inner(fastmath={"contract"})
def _exp64(x):
    y = max(x, LOW64)
    k = np.floor(y * PER_LN2_64 + 0.5)
    r = (y - k * LN2_HIGH64) - k * LN2_LOW64
    p = TERMS64[0]
    p = p * r + TERMS64[1]
    p = p * r + TERMS64[2]
    p = p * r + TERMS64[3]
    p = p * r + TERMS64[4]
    p = p * r + TERMS64[5]
    p = p * r + TERMS64[6]
    p = p * r + TERMS64[7]
    p = p * r + TERMS64[8]
    p = p * r + TERMS64[9]
    p = p * r + TERMS64[10]
    p = p * r + TERMS64[11]
    p = p * (r * r) + r + 1.0
    power = np.int64((np.int64(k) + np.int64(1023)) << np.int64(52)).view(np.float64)
    return p * power if x >= LOW64 else 0.0


@overload(exp_below, jit_options={"fastmath": FAST})
def _choose(x):
    if x == types.float32:
        return lambda x: _exp32(x)
    return lambda x: _exp64(x)
