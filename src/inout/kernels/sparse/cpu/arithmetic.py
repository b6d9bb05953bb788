"""The arithmetic of sparse CKY, for each type of numbers.

The passes in `inside.py` and `outside.py` are written once. The type of `numbers`, the first
argument, decides what the operations here do:

- Scaled: real numbers. A span's symbols share one scale: their values stand for 2**exps[i, j] as
  much, the largest is between 1/2 and 1. Everything possible is above 0: a product that underflows
  adds a speck, and tiny results are reported, so that nothing is lost silently.
- Logs: logarithms, -inf for 0.
- Best: logarithms, and maxima for sums.
- Residues: remainders modulo a prime. One that is 0 adds nothing, whether or not the number is.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import inner
from inout.kernels.limits import SPARSE_SPECK, SPARSE_SURE, SPARSE_TINY
from inout.kernels.math.cpu.exponential import FAST, log_sum
from inout.kernels.math.cpu.operations import operation
from inout.kernels.sparse.arrays import Best, Logs, Residues, Scaled
from inout.kernels.sparse.cpu.chart import NOTHING


@operation(Logs, Best)
def zero(numbers):
    """The number 0."""
    return -np.inf


@zero.on(Scaled)
def _(numbers):
    return 0.0


@zero.on(Residues)
def _(numbers):
    return np.int64(0)


# Sums and products. `factors` are those of the splits of a span, in its scale.


@operation(Scaled)
def product(numbers, lefts, a, rights, b, factors, first, count):
    """The sum over t < count of lefts[a + t] rights[b + t] factors[first + t]."""
    if count > 12:
        return long_product(lefts, a, rights, b, factors, first, count)
    total = 0.0
    for t in range(count):
        total += lefts[a + t] * rights[b + t] * factors[first + t]
    return total


@product.on(Logs)
def _(numbers, lefts, a, rights, b, factors, first, count):
    return log_product(lefts, a, rights, b, count)


@product.on(Best)
def _(numbers, lefts, a, rights, b, factors, first, count):
    return largest_sum(lefts, a, rights, b, count)


@product.on(Residues)
def _(numbers, lefts, a, rights, b, factors, first, count):
    # Above any product of remainders; twice as much still fits.
    bound = numbers.prime << 31
    total = np.int64(0)
    for t in range(count):
        total += lefts[a + t] * rights[b + t]
        if total >= bound:
            total -= bound
    return total % numbers.prime


@operation(Logs, Best)
def meet(numbers, value, lefts, a, rights, b, count):
    """Whether two rows have a place where neither is 0, given their product."""
    return value > -np.inf


@meet.on(Scaled)
def _(numbers, value, lefts, a, rights, b, count):
    found = value >= SPARSE_SURE
    if not found:
        for t in range(count):
            found = found or (lefts[a + t] > 0 and rights[b + t] > 0)
    return found


@meet.on(Residues)
def _(numbers, value, lefts, a, rights, b, count):
    return value > 0


@operation(Scaled)
def include(numbers, totals, a, weight, value):
    """totals[a] += weight * value, which is not 0."""
    if weight > 0:
        totals[a] += weight * value + SPARSE_SPECK


@include.on(Logs)
def _(numbers, totals, a, weight, value):
    totals[a] = log_sum(totals[a], weight + value)


@include.on(Best)
def _(numbers, totals, a, weight, value):
    totals[a] = max(totals[a], weight + value)


@include.on(Residues)
def _(numbers, totals, a, weight, value):
    totals[a] = (totals[a] + weight * value) % numbers.prime


@operation(Scaled)
def enter(numbers, totals, a, value, factor):
    """totals[a] += value * factor, the factor being 1 where numbers have no scale."""
    if value > 0:
        totals[a] += max(value * factor, SPARSE_SPECK)


@enter.on(Logs)
def _(numbers, totals, a, value, factor):
    totals[a] = log_sum(totals[a], value)


@enter.on(Best)
def _(numbers, totals, a, value, factor):
    totals[a] = max(totals[a], value)


@enter.on(Residues)
def _(numbers, totals, a, value, factor):
    totals[a] = (totals[a] + value) % numbers.prime


@operation(Logs, Best, Residues)
def keep_of(numbers, keeps, row):
    """The weight of no unary rule, in this row of weights."""
    return 0.0


@keep_of.on(Scaled)
def _(numbers, keeps, row):
    return keeps[row]


@operation(Logs, Best, Residues)
def kept(numbers, keep, value):
    """A value times the weight of no unary rule."""
    return value


@kept.on(Scaled)
def _(numbers, keep, value):
    return max(keep * value, SPARSE_SPECK) if value > 0 else 0.0


@inner(fastmath=FAST)
def long_product(lefts, a, rights, b, factors, first, count):
    """As `product` of scaled numbers, by vector instructions."""
    total = 0.0
    for t in range(count):
        total += lefts[a + t] * rights[b + t] * factors[first + t]
    return total


@inner
def largest_sum(lefts, a, rights, b, count):
    """The largest of lefts[a + t] + rights[b + t]; four at a time, so as not to wait for each."""
    w, x, y, z = -np.inf, -np.inf, -np.inf, -np.inf
    whole = count - count % 4
    for t in range(0, whole, 4):
        w = max(w, lefts[a + t] + rights[b + t])
        x = max(x, lefts[a + t + 1] + rights[b + t + 1])
        y = max(y, lefts[a + t + 2] + rights[b + t + 2])
        z = max(z, lefts[a + t + 3] + rights[b + t + 3])
    for t in range(whole, count):
        w = max(w, lefts[a + t] + rights[b + t])
    return max(max(w, x), max(y, z))


@inner
def log_product(lefts, a, rights, b, count):
    """log of the sum of exp(lefts[a + t] + rights[b + t])."""
    top = largest_sum(lefts, a, rights, b, count)
    if top == -np.inf:
        return top
    total = 0.0
    for t in range(count):
        total += math.exp(lefts[a + t] + rights[b + t] - top)
    return top + math.log(total)


# Scales. A shift is the binary exponent of numbers that are being added up, below NOTHING / 2 where
# there are none; without scales it is always 0.


@operation(Logs, Best, Residues)
def split_scale(numbers, exps, rule_exponents, row, i, j, factors):
    """The shift of what the splits of i..j and this row of rules give; sets their factors."""
    return 0


@split_scale.on(Scaled)
def _(numbers, exps, rule_exponents, row, i, j, factors):
    shift = 2 * NOTHING
    for k in range(i, j):
        shift = max(shift, exps[i, k] + exps[k + 1, j])
    if shift < NOTHING // 2:
        return shift
    set_factors(exps, i, j, shift, factors)
    return shift + rule_exponents[row]


@operation(Logs, Best, Residues)
def word_scale(numbers, exponents, position):
    """The shift of a word's entries."""
    return 0


@word_scale.on(Scaled)
def _(numbers, exponents, position):
    return exponents[position]


@operation(Logs, Best, Residues)
def arc_scale(numbers, exponents, cell, shift, totals):
    """(the common shift of totals and a cell's arcs, the factor of these); rescales totals."""
    return shift, 1.0


@arc_scale.on(Scaled)
def _(numbers, exponents, cell, shift, totals):
    own = exponents[cell]
    if own < NOTHING // 2:
        return shift, 0.0
    if own > shift:
        factor = power(shift - own)
        for a in range(totals.shape[0]):
            if totals[a] > 0:
                totals[a] = max(totals[a] * factor, SPARSE_SPECK)
        shift = own
    return shift, power(own - shift)


@operation(Logs, Best)
def new_scale(numbers, after):
    """(the least value that is kept, scale, exponent) of a span's values [symbols]."""
    top = -np.inf
    for a in range(after.shape[0]):
        top = max(top, after[a])
    return top + numbers.beam, 1.0, 0


@new_scale.on(Scaled)
def _(numbers, after):
    top = 0.0
    for a in range(after.shape[0]):
        top = max(top, after[a])
    if top < SPARSE_TINY:
        return 0.0, 1.0, 0
    exponent = math.frexp(top)[1]
    return numbers.beam * top, math.ldexp(1.0, -exponent), exponent


@new_scale.on(Residues)
def _(numbers, after):
    return np.int64(0), np.int64(1), 0


@operation(Logs, Best, Residues)
def fitted(numbers, value, scale):
    """(the value in this scale, whether it was too small, which makes it numbers.raised).

    That is in the scale that it was too small for: that of its span, or the one before, where a
    large unary rule has put it far above all values.
    """
    return value, False


@fitted.on(Scaled)
def _(numbers, value, scale):
    scaled = value * scale
    if scaled < SPARSE_TINY or value < SPARSE_TINY:
        return numbers.raised * max(scale, 1.0), True
    return scaled, False


@operation(Logs, Best, Residues)
def set_scale(numbers, exps, unary_exponents, row, i, j, exponent):
    """Notes the exponent of a span, after these unary rules."""


@set_scale.on(Scaled)
def _(numbers, exps, unary_exponents, row, i, j, exponent):
    exps[i, j] = exponent + unary_exponents[row]


@inner
def power(exponent):
    """2**exponent; 0 below the smallest normal number."""
    if exponent < -1022:
        return 0.0
    return math.ldexp(1.0, exponent)


@inner
def set_factors(exps, i, j, shift, factors):
    """factors[k - i] = 2**(exponent of the split after k, less shift)."""
    for k in range(i, j):
        factors[k - i] = power(exps[i, k] + exps[k + 1, j] - shift)
