"""What the passes do to vectors, once for each kind of vectors.

The passes in `passes.py` are written once; the type of the first argument decides:

- Vectors: the entries of a vector share an exponent, and its largest entry is from 1/2 to 1 in
  size. A vector of zeros has the exponent NOTHING. Tiny entries underflow.
- WideVectors: each entry has an exponent of its own, and a size from 1/2 to 1 (or both are 0).
  Nothing underflows; dozens of times slower.

A block [m_a m_b m_c] has the rule's offset among the parameters. Scratch is vectors with one
vector, at 0. Inner loops run over slices from 0: at an index that is a sum numba looks for negative
ones first, and the loop is not vectorised (four times as slow).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inout._core.cpu.compiling import inner
from inout.kernels.latent.arrays import Vectors, WideVectors
from inout.kernels.limits import LATENT_NOTHING as NOTHING
from inout.kernels.math.cpu.operations import operation

# Sums of products may be taken in any order.
FAST: dict[str, Any] = {"fastmath": {"reassoc", "contract"}}


# One exponent for each vector.


@operation(Vectors, makes_arrays=True)
def scratch(like, size):
    """One vector of this kind with room for so many entries."""
    return Vectors(np.zeros(1, np.int64), np.empty(size), np.full(1, NOTHING, np.int64))


@operation(Vectors)
def clear(vector, size):
    """Sets the scratch to 0."""
    vector.exponents[0] = NOTHING


@operation(Vectors)
def put(vectors, item, source, first):
    """Sets vector `item` to the numbers source[first:]."""
    start, end = vectors.starts[item], vectors.starts[item + 1]
    own, given = vectors.values[start:end], source[first : first + end - start]
    for x in range(end - start):
        own[x] = given[x]
    vectors.exponents[item] = normalise(vectors.values, start, end)


@operation(Vectors)
def put_multiple(vectors, item, others, x, factor, power):
    """Sets vector `item` to vector x of `others` times factor · 2^power; the factor is not 0."""
    start, first = vectors.starts[item], others.starts[x]
    for y in range(vectors.starts[item + 1] - start):
        vectors.values[start + y] = factor * others.values[first + y]
    vectors.exponents[item] = moved(others.exponents[x], power)


@operation(Vectors, **FAST)
def add(vectors, item, vector):
    """Adds the scratch vector to vector `item`."""
    start, end = vectors.starts[item], vectors.starts[item + 1]
    exponent, added = vectors.exponents[item], vector.exponents[0]
    if added != NOTHING:
        total = max(exponent, added)
        keep, gain = factor_below(exponent - total), factor_below(added - total)
        own, source = vectors.values[start:end], vector.values
        for x in range(end - start):
            own[x] = keep * own[x] + gain * source[x]
        vectors.exponents[item] = total


@operation(Vectors, **FAST)
def settle(vectors, item):
    """Brings vector `item`, after sums, into the usual range."""
    exponent = vectors.exponents[item]
    if exponent != NOTHING:
        shift = normalise(vectors.values, vectors.starts[item], vectors.starts[item + 1])
        vectors.exponents[item] = moved(shift, exponent)


@operation(Vectors)
def is_zero(vectors, item):
    """Whether vector `item` is 0."""
    return vectors.exponents[item] == NOTHING


@operation(Vectors, **FAST)
def multiply(product, vectors, x, others, y):
    """Sets the scratch to the inner product of two vectors."""
    product.values[0], product.exponents[0] = 0.0, NOTHING
    if vectors.exponents[x] != NOTHING and others.exponents[y] != NOTHING:
        first, second = vectors.starts[x], others.starts[y]
        total = dot(vectors.values, first, others.values, second, others.starts[y + 1] - second)
        if total != 0.0:  # what is 0 must not count as large beside others
            product.values[0] = total
            product.exponents[0] = vectors.exponents[x] + others.exponents[y]


@operation(Vectors, **FAST)
def add_outer(outer, vectors, left, right, rule):
    """Adds the outer product [m_b m_c] of two vectors to the scratch."""
    first, second, total = vectors.exponents[left], vectors.exponents[right], outer.exponents[0]
    if first == NOTHING or second == NOTHING:
        return
    ones, others = vectors.values[vectors.starts[left] :], vectors.values[vectors.starts[right] :]
    sums, left_size, right_size = outer.values, rule.left, rule.right
    outer.exponents[0] = max(first + second, total)
    if total == NOTHING:
        for p in range(left_size):
            row = sums[p * right_size : (p + 1) * right_size]
            for q in range(right_size):
                row[q] = ones[p] * others[q]
        return
    if first + second > total:
        shift = factor_below(total - first - second)
        for x in range(left_size * right_size):
            sums[x] *= shift
    factor = factor_below(first + second - outer.exponents[0])
    for p in range(left_size):
        scaled = factor * ones[p]
        row = sums[p * right_size : (p + 1) * right_size]
        for q in range(right_size):
            row[q] += scaled * others[q]


@operation(Vectors, **FAST)
def apply_block(product, outer, parameters, rule):
    """Sets the scratch [m_a] to block · outer."""
    product.exponents[0] = NOTHING
    if outer.exponents[0] == NOTHING:
        return
    inner = rule.left * rule.right
    scale = scale_for(rule.exponent)
    if scale != 0:
        factor = math.ldexp(1.0, scale)
        for x in range(inner):
            outer.values[x] *= factor
    for h in range(rule.head):
        product.values[h] = dot(parameters, rule.offset + h * inner, outer.values, 0, inner)
    # Normalised, as a sum that is small or zero must not count as large beside others.
    shift = normalise(product.values, 0, rule.head)
    product.exponents[0] = moved(shift, outer.exponents[0] - scale)


@operation(Vectors, **FAST)
def apply_transposed(weight, outs, head, parameters, rule):
    """Sets the scratch [m_b m_c] to outside vector · block."""
    inner = rule.left * rule.right
    sums = weight.values
    for x in range(inner):
        sums[x] = 0.0
    scale = scale_for(rule.exponent)
    factor = math.ldexp(1.0, scale)
    for h in range(rule.head):
        out, begin = factor * outs.values[outs.starts[head] + h], rule.offset + h * inner
        row = parameters[begin : begin + inner]
        for x in range(inner):
            sums[x] += out * row[x]
    weight.exponents[0] = moved(normalise(sums, 0, inner), outs.exponents[head] - scale)


@operation(Vectors, **FAST)
def apply_weight(product, weight, vectors, item, rule, is_left):
    """Sets the scratch to weight [m_b m_c] times the vector of one child: for the other one."""
    product.exponents[0] = NOTHING
    if weight.exponents[0] != NOTHING and vectors.exponents[item] != NOTHING:
        start, size = vectors.starts[item], rule.right
        if is_left:
            sums = product.values
            for q in range(size):
                sums[q] = 0.0
            for p in range(rule.left):
                value, line = vectors.values[start + p], weight.values[p * size : (p + 1) * size]
                for q in range(size):
                    sums[q] += value * line[q]
        else:
            for p in range(rule.left):
                product.values[p] = dot(weight.values, p * size, vectors.values, start, size)
        product.exponents[0] = weight.exponents[0] + vectors.exponents[item]


@operation(Vectors, **FAST)
def add_gradient(outs, head, outer, rule, found):
    """Adds outside vector ⊗ outer to the block's part of found."""
    if outer.exponents[0] == NOTHING:
        return
    exponent, inner = outer.exponents[0] + outs.exponents[head], rule.left * rule.right
    for h in range(rule.head):
        begin = rule.offset + h * inner
        row = found[begin : begin + inner]
        if exponent > 960:  # out of range as a factor, but perhaps not in the product
            for y in range(inner):
                row[y] += ldexp(outs.values[outs.starts[head] + h] * outer.values[y], exponent)
            continue
        out = ldexp(outs.values[outs.starts[head] + h], exponent)
        for y in range(inner):
            row[y] += out * outer.values[y]


@operation(Vectors)
def add_to(vectors, item, factor, power, found, first):
    """Adds vector `item` times factor · 2^power to the numbers found[first:]."""
    start, exponent = vectors.starts[item], vectors.exponents[item]
    if exponent != NOTHING:
        for x in range(vectors.starts[item + 1] - start):
            found[first + x] += ldexp(factor * vectors.values[start + x], exponent + power)


@inner
def ldexp(value, exponent):
    """value · 2^exponent for any exponent."""
    return math.ldexp(value, min(max(exponent, -3000), 3000))


@inner
def ordinary(product):
    """An inner product as a number; the same for both kinds, a vector of one entry."""
    return ldexp(product.values[0], product.exponents[0])


@inner(**FAST)
def normalise(values, start, end):
    """Brings the largest of values[start:end] to the range from 1/2 to 1: the exponent taken."""
    largest = 0.0
    vector = values[start:end]
    for x in range(end - start):
        largest = max(largest, abs(vector[x]))
    if largest == 0.0:
        return NOTHING
    exponent = math.frexp(largest)[1]
    if exponent < -1023:  # denormal, and a factor to change that would be out of range
        for x in range(end - start):
            vector[x] = math.ldexp(vector[x], -exponent)
        return exponent
    factor = math.ldexp(1.0, -exponent)
    for x in range(end - start):
        vector[x] *= factor
    return exponent


@inner
def moved(shift, exponent):
    """The exponent of a vector with this one, times 2^shift; `normalise` gave the shift."""
    return NOTHING if shift == NOTHING else exponent + shift


@inner
def factor_below(exponent):
    """2^exponent, for exponents of at most 0."""
    return 1.0 if exponent == 0 else math.ldexp(1.0, max(exponent, -1080))


@inner
def scale_for(block_exponent):
    """The power of two to multiply with ahead of a block, for products that are in range.

    Below 2^-1022 a product loses digits, so what goes with a block of tiny numbers is made larger.
    """
    if block_exponent > 900:
        return -64
    if block_exponent < -100 and block_exponent != NOTHING:
        return min(-block_exponent, 960)
    return 0


@inner(**FAST)
def dot(left, first, right, second, size):
    """Σ left[first + x] · right[second + x]."""
    ones, others = left[first : first + size], right[second : second + size]
    total = 0.0
    for x in range(size):
        total += ones[x] * others[x]
    return total


# One exponent for each entry.


@inner
def add_entry(vectors, place, value, exponent):
    """Adds value · 2^exponent to one entry."""
    if value == 0.0:
        return
    total, own = vectors.values[place], vectors.exponents[place]
    if total == 0.0:
        total, own = value, exponent
    elif exponent > own:
        total, own = value + math.ldexp(total, max(own - exponent, -1080)), exponent
    else:
        total += math.ldexp(value, max(exponent - own, -1080))
    total, more = math.frexp(total)
    vectors.values[place], vectors.exponents[place] = total, own + more if total != 0.0 else 0


@inner
def add_product(target, place, vectors, x, others, y):
    """Adds the product of two entries to a third."""
    exponent = vectors.exponents[x] + others.exponents[y]
    add_entry(target, place, vectors.values[x] * others.values[y], exponent)


@scratch.on(WideVectors)
def _(like, size):
    return WideVectors(np.zeros(1, np.int64), np.zeros(size), np.zeros(size, np.int64))


@clear.on(WideVectors)
def _(vector, size):
    for x in range(size):
        vector.values[x], vector.exponents[x] = 0.0, 0


@put.on(WideVectors)
def _(vectors, item, source, first):
    start = vectors.starts[item]
    for x in range(vectors.starts[item + 1] - start):
        value, exponent = math.frexp(source[first + x])
        vectors.values[start + x], vectors.exponents[start + x] = value, exponent


@put_multiple.on(WideVectors)
def _(vectors, item, others, x, factor, power):
    start, first = vectors.starts[item], others.starts[x]
    for y in range(vectors.starts[item + 1] - start):
        value, exponent = math.frexp(factor * others.values[first + y])
        exponent += power + others.exponents[first + y]
        vectors.values[start + y], vectors.exponents[start + y] = value, exponent


@add.on(WideVectors)
def _(vectors, item, vector):
    start = vectors.starts[item]
    for x in range(vectors.starts[item + 1] - start):
        add_entry(vectors, start + x, vector.values[x], vector.exponents[x])


@settle.on(WideVectors)
def _(vectors, item):
    pass


@is_zero.on(WideVectors)
def _(vectors, item):
    for x in range(vectors.starts[item], vectors.starts[item + 1]):
        if vectors.values[x] != 0.0:
            return False
    return True


@multiply.on(WideVectors)
def _(product, vectors, x, others, y):
    clear(product, 1)
    first, second = vectors.starts[x], others.starts[y]
    for z in range(others.starts[y + 1] - second):
        add_product(product, 0, vectors, first + z, others, second + z)


@add_outer.on(WideVectors)
def _(outer, vectors, left, right, rule):
    first, second = vectors.starts[left], vectors.starts[right]
    for p in range(rule.left):
        for q in range(rule.right):
            add_product(outer, p * rule.right + q, vectors, first + p, vectors, second + q)


@apply_block.on(WideVectors)
def _(product, outer, parameters, rule):
    clear(product, rule.head)
    x = rule.offset
    for h in range(rule.head):
        for y in range(rule.left * rule.right):
            value, exponent = math.frexp(parameters[x])
            add_entry(product, h, value * outer.values[y], exponent + outer.exponents[y])
            x += 1


@apply_transposed.on(WideVectors)
def _(weight, outs, head, parameters, rule):
    clear(weight, rule.left * rule.right)
    x = rule.offset
    for h in range(outs.starts[head], outs.starts[head + 1]):
        for y in range(rule.left * rule.right):
            value, exponent = math.frexp(parameters[x])
            add_entry(weight, y, outs.values[h] * value, outs.exponents[h] + exponent)
            x += 1


@apply_weight.on(WideVectors)
def _(product, weight, vectors, item, rule, is_left):
    clear(product, rule.right if is_left else rule.left)
    for p in range(rule.left):
        for q in range(rule.right):
            place, own = (q, p) if is_left else (p, q)
            own += vectors.starts[item]
            add_product(product, place, weight, p * rule.right + q, vectors, own)


@add_gradient.on(WideVectors)
def _(outs, head, outer, rule, found):
    x = rule.offset
    for h in range(outs.starts[head], outs.starts[head + 1]):
        for y in range(rule.left * rule.right):
            exponent = outs.exponents[h] + outer.exponents[y]
            found[x] += ldexp(outs.values[h] * outer.values[y], exponent)
            x += 1


@add_to.on(WideVectors)
def _(vectors, item, factor, power, found, first):
    start = vectors.starts[item]
    for x in range(vectors.starts[item + 1] - start):
        exponent = vectors.exponents[start + x] + power
        found[first + x] += ldexp(factor * vectors.values[start + x], exponent)
