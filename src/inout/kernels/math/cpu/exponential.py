"""exp(x) for x <= 0 in plain arithmetic, so that loops over it become vector instructions.

x = k ln 2 + r with |r| <= ln(2)/2; exp(r) by a polynomial, 2**k by writing its bits. Below the
smallest normal number the result is 0. Relative error: 1e-7 in float32, 3e-16 in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from inout._core.cpu.compiling import inner, inner_overload

# Everything that lets the compiler reorder and fuse; -inf and NaN keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}

# For each type: itself, integers of its size, the bits of the fraction, the exponent of 1, where
# results are no normal numbers any more, and ln 2 in two parts, the first exact when multiplied by
# any exponent.
_OF: dict[Any, tuple[Any, ...]] = {
    types.float32: (np.float32, np.int32, 23, 127, -87.0, 0.693359375, -2.12194440e-4),
    types.float64: (
        np.float64, np.int64, 52, 1023, -708.0, 6.93145751953125e-1, 1.42860682030941723212e-6
    ),
}  # fmt: skip


def exp_below(x):
    """exp(x) for x <= 0; compiled code only."""
    raise NotImplementedError


# Fused only: the two parts of ln 2 must be subtracted in their order.
@inner_overload(exp_below, fastmath={"contract"})
def _exp_below(x):
    floats, ints, *rest = _OF[x]
    fraction, bias = ints(rest[0]), ints(rest[1])
    lowest, high, low, per_ln2 = (floats(y) for y in (*rest[2:], 1 / math.log(2)))
    c = tuple(floats(1 / math.factorial(k)) for k in range(14))
    half, zero = floats(0.5), floats(0.0)
    wide = floats is np.float64  # terms up to 7 are enough in float32

    def exp_below(x):
        y = max(x, lowest)
        k = np.floor(y * per_ln2 + half)
        r = (y - k * high) - k * low
        p = c[7]
        if wide:
            p = ((((c[13] * r + c[12]) * r + c[11]) * r + c[10]) * r + c[9]) * r + c[8]
            p = p * r + c[7]
        p = ((((p * r + c[6]) * r + c[5]) * r + c[4]) * r + c[3]) * r + c[2]
        p = p * (r * r) + r + c[0]
        power = ints((ints(k) + bias) << fraction).view(floats)
        return p * power if x >= lowest else zero

    return exp_below


@inner
def log_sum(x, y):
    """log(exp(x) + exp(y))."""
    top, other = max(x, y), min(x, y)
    if other == -np.inf:
        return top
    return top + math.log1p(math.exp(other - top))
