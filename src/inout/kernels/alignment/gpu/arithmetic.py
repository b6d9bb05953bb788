"""Numbers that cannot leave their range: m 2^e, with an exponent e for each number.

As in `cpu/arithmetic.py`, nothing is lost however far apart the nodes are. Here exponents are
multiples of 32, so that they rarely change, and mantissas are about 2^-16 to 2^16. Zero is
(0, -inf).
"""

from __future__ import annotations

import triton
import triton.language as tl

MINUS_INF = tl.constexpr(float("-inf"))
UNIT, ROOT = tl.constexpr(32.0), tl.constexpr(2.0**16)
UP, DOWN = tl.constexpr(2.0**32), tl.constexpr(2.0**-32)
PER_LN2, LN2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)
# ln 2 in two parts, the first exact when multiplied by exponents of moderate size.
HIGH_64, LOW_64 = tl.constexpr(6.93147180369123816490e-01), tl.constexpr(1.90821492927058770002e-10)
HIGH_32, LOW_32 = tl.constexpr(0.693359375), tl.constexpr(-2.12194440054690583e-4)


@triton.jit
def finite(x):
    """x, or 0 where it is -inf, so that it can be subtracted."""
    return tl.where(x == MINUS_INF, 0.0, x)


@triton.jit
def power(x):
    """2^x for multiples of 32 up to 0, in single precision; 0 below its range."""
    return tl.exp2(x.to(tl.float32))


@triton.jit
def exponential(x):
    """exp(x) as mantissa and exponent; any x below +inf."""
    finite_x = finite(x)
    k = tl.floor(finite_x * PER_LN2 + 0.5)
    if x.dtype == tl.float64:
        r = (finite_x - k * HIGH_64) - k * LOW_64
    else:
        r = (finite_x - k * HIGH_32) - k * LOW_32
    r = tl.minimum(tl.maximum(r, -0.35), 0.35)  # of very large numbers the fraction is unknown
    e = tl.floor(k / UNIT + 0.5) * UNIT
    m = tl.exp(r) * power(k - e)
    m = tl.where(x == x, m, x)  # NaN stays NaN
    dead = x == MINUS_INF
    return tl.where(dead, 0.0, m), tl.where(dead, MINUS_INF, e)


@triton.jit
def brought_together(m_1, e_1, m_2, e_2):
    """Two numbers with the larger of their exponents: both mantissas, and the exponent."""
    top = tl.maximum(e_1, e_2)
    base = finite(top)
    return m_1 * power(e_1 - base), m_2 * power(e_2 - base), top


@triton.jit
def settled(m, e):
    """The same number with its mantissa within the limits again, if it is near them."""
    large, small = m >= ROOT, m < 1 / ROOT
    m *= tl.where(large, DOWN, tl.where(small, UP, 1.0))
    return m, e + tl.where(large, UNIT, tl.where(small, -UNIT, 0.0))


@triton.jit
def total_of(b_m, b_e):
    """The sum of a vector of numbers."""
    top = tl.max(b_e, axis=0)
    return tl.sum(b_m * power(b_e - finite(top)), axis=0), top


@triton.jit
def logarithm(m, e):
    """The natural logarithm of a number in double precision."""
    alive = m != 0
    log = tl.log(tl.where(alive, m, 1.0).to(tl.float64)) + finite(e).to(tl.float64) * LN2
    return tl.where(alive, log, MINUS_INF)


@triton.jit
def share_of_two(m_1, m_2, total):
    """The shares of two numbers in their total, as one number, see `both_shares`.

    It is the smaller share, whose digits the other one would not have, with a minus, also before
    0, if that is the second.
    """
    q = tl.where(total > 0, tl.minimum(m_1, m_2) / tl.where(total > 0, total, 1.0), 0.0)
    return q * tl.where(m_1 < m_2, 1.0, -1.0)


@triton.jit
def both_shares(q):
    """Two shares from what `share_of_two` has made of them."""
    if q.dtype == tl.float64:
        second = q.to(tl.int64, bitcast=True) < 0
    else:
        second = q.to(tl.int32, bitcast=True) < 0
    small = tl.abs(q)
    return tl.where(second, 1 - small, small), tl.where(second, small, 1 - small)
