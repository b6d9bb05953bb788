"""Numbers that cannot leave their range: m 2^e, a mantissa from 1 to 2 and an exponent of its own.

Exponents are whole numbers kept as floats, so that loops become vector instructions; zero is
(0, -inf). The nodes of one row of an alignment may be thousands of nats apart, and any of them may
be on the only path that matters: a shared exponent would lose it.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import inner
from inout.kernels.math.cpu.exponential import FAST

PER_LN2, LN2 = 1 / math.log(2), math.log(2)
# ln 2 in two parts, the first exact when multiplied by any exponent below 2^31.
HIGH, LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
COEFFICIENTS = tuple(1 / math.factorial(k) for k in range(14))
# Added to a whole number, this leaves it in the last bits of the sum.
MAGIC, MAGIC_BITS = 2.0**52, np.int64(0x4330000000000000)
FRACTION, ONE_BITS, WIDTH = np.int64(0x000FFFFFFFFFFFFF), np.int64(0x3FF0000000000000), np.int64(52)
LEAST = -1022.0  # what is so many powers of two below the rest does not count


@inner(fastmath={"contract"}, forceinline=True)
def exponential(x):
    """exp(x) as (mantissa, exponent), the mantissa from 0.7 to 1.5; any x below +inf."""
    c = COEFFICIENTS
    k = np.floor(x * PER_LN2 + 0.5)
    r = (x - k * HIGH) - k * LOW
    r = min(max(r, -0.35), 0.35)  # of numbers beyond 2^52 the fraction is unknown
    p = ((((c[13] * r + c[12]) * r + c[11]) * r + c[10]) * r + c[9]) * r + c[8]
    p = ((((p * r + c[7]) * r + c[6]) * r + c[5]) * r + c[4]) * r + c[3]
    p = ((p * r + c[2]) * r + c[1]) * r + c[0]
    return (p, k) if x > -np.inf else (0.0, -np.inf)


@inner(forceinline=True)
def power(e):
    """2^e for whole numbers e <= 0; 2^LEAST below that, and for NaN."""
    e = e if e > LEAST else LEAST
    bits = np.float64(e + (1023.0 + MAGIC)).view(np.int64)
    return np.int64(bits << WIDTH).view(np.float64)


@inner(forceinline=True)
def normalised(total, top):
    """total 2^top as (mantissa, exponent)."""
    bits = np.float64(total).view(np.int64)
    places = np.int64((bits >> WIDTH) | MAGIC_BITS).view(np.float64) - (MAGIC + 1023.0)
    mantissa = np.int64((bits & FRACTION) | ONE_BITS).view(np.float64)
    return (mantissa, top + places) if total > 0 else (0.0, -np.inf)


@inner(fastmath=FAST, forceinline=True)
def logarithm(mantissa, exponent):
    """The natural logarithm of a number."""
    return exponent * LN2 + math.log(mantissa) if mantissa > 0 else -np.inf
