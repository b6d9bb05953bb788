"""Every semiring against arithmetic that shares nothing with it: Fraction, Decimal, Python int."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from inout.semirings import (
    Algebra,
    Boolean,
    Counting,
    CountOverflowError,
    Expectation,
    Log,
    Max,
    Polynomial,
    Real,
    Scaled,
    SecondOrderExpectation,
)
from tests.seeds import examples
from tests.support import assert_close

INF = float("inf")
GRID = st.integers(-32, 32).map(lambda i: i / 4)
drawn = settings(max_examples=examples(60))


def double(numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


Index = tuple[int, ...]


def indices(shape: Index) -> Iterator[Index]:
    return product(*(range(size) for size in shape))


# What the product of two basis elements is: the index of a third one, or None for zero.


def times_of_monomials(shape: Index) -> Callable[[Index, Index], Index | None]:
    def times(a: Index, b: Index) -> Index | None:
        degrees = tuple(i + j for i, j in zip(a, b, strict=True))
        return degrees if all(d < size for d, size in zip(degrees, shape, strict=True)) else None

    return times


def times_of_infinitesimals(a: Index, b: Index) -> Index | None:
    """ε₁, ε₂, … on each axis, with 1 as number 0 and the product of any two of them zero."""
    if any(i and j for i, j in zip(a, b, strict=True)):
        return None
    return tuple(i + j for i, j in zip(a, b, strict=True))


ALGEBRAS = [
    (Real(), times_of_infinitesimals),
    (Expectation(3), times_of_infinitesimals),
    (SecondOrderExpectation(2, 3), times_of_infinitesimals),
    (SecondOrderExpectation(0, 2), times_of_infinitesimals),
    (Polynomial((4,)), times_of_monomials((5,))),
    (Polynomial((2, 3)), times_of_monomials((3, 4))),
    (Polynomial((1, 2, 1)), times_of_monomials((2, 3, 2))),
]


@pytest.mark.parametrize(("algebra", "times"), ALGEBRAS)
@drawn
@given(data=st.data())
def test_product_is_exact(algebra: Algebra, times: Any, data: st.DataObject):
    numbers = st.lists(GRID, min_size=math.prod(algebra.shape), max_size=math.prod(algebra.shape))
    x, y = (double(data.draw(numbers)).reshape(1, *algebra.shape) for _ in range(2))
    expected: dict[Index, Fraction] = defaultdict(Fraction)
    for a, b in product(indices(algebra.shape), repeat=2):
        place = times(a, b)
        if place is not None:
            expected[place] += Fraction(float(x[0][a])) * Fraction(float(y[0][b]))

    scaled = Scaled(algebra)
    for result in (
        algebra.times(x, y),
        scaled.value(scaled.times(scaled.scale(x), scaled.scale(y))),
    ):
        for place in indices(algebra.shape):
            assert Fraction(float(result[0][place])) == expected[place]


# A leaf is a log-weight and values; a derivation is its leaves.
def leaves(num_values: int) -> st.SearchStrategy[Any]:
    weights = st.floats(-3, 3) | st.just(-INF)
    values = st.lists(st.floats(-3, 3), min_size=num_values, max_size=num_values)
    return st.tuples(weights, values)


def total_of(semiring: Any, derivations: list[list[Any]]) -> Any:
    """⊕ over derivations of the ⊗ of their leaves, as a batch of one."""
    products = []
    for derivation in derivations:
        element = semiring.one(1)
        for weight, values in derivation:
            leaf = semiring.lift(double([weight]), double([values]))
            element = semiring.times(element, leaf)
        products.append(element)
    index = torch.zeros(len(products), dtype=torch.long)
    return semiring.sum(semiring.cat([semiring.zero(0), *products]), index, 1)


def exact_total(
    shape: Index, derivations: list[list[Any]], term: Callable[[Index, list[Fraction]], Fraction]
) -> Tensor:
    """Σ over derivations of p(D) · term(place, f(D)) at every place, in Fractions."""
    total = torch.zeros(shape, dtype=torch.float64)
    for place in indices(shape):
        exact = Fraction(0)
        for derivation in derivations:
            weight, values = Fraction(1), None
            for log_weight, leaf_values in derivation:
                weight *= Fraction(math.exp(log_weight))
                leaf = [Fraction(value) for value in leaf_values]
                values = (
                    leaf if values is None else [a + b for a, b in zip(values, leaf, strict=True)]
                )
            exact += weight * (term(place, values) if values is not None else (not any(place)))
        total[place] = float(exact)
    return total


def power_term(place: Index, values: list[Fraction]) -> Fraction:
    result = Fraction(1)
    for degree, value in zip(place, values, strict=True):
        result *= value**degree / math.factorial(degree)
    return result


def product_term(algebra: Any) -> Callable[[Index, list[Fraction]], Fraction]:
    """f_i(D) · g_j(D) for the place (i, j), counted from one; the factor is 1 at zero."""

    def term(place: Index, values: list[Fraction]) -> Fraction:
        starts = (0, algebra.d1) if isinstance(algebra, SecondOrderExpectation) else (0,)
        result = Fraction(1)
        for i, start in zip(place, starts, strict=True):
            result *= values[start + i - 1] if i else 1
        return result

    return term


@pytest.mark.parametrize(
    ("algebra", "term"),
    [
        (Real(), lambda place, values: Fraction(1)),
        (Expectation(3), product_term(Expectation(3))),
        (SecondOrderExpectation(2, 2), product_term(SecondOrderExpectation(2, 2))),
        (SecondOrderExpectation(1, 3), product_term(SecondOrderExpectation(1, 3))),
        (Polynomial((5,)), power_term),
        (Polynomial((2, 3)), power_term),
        (Polynomial((1, 2, 1)), power_term),
    ],
)
@drawn
@given(data=st.data())
def test_total_over_derivations(algebra: Algebra, term: Any, data: st.DataObject):
    """The meaning of `lift`: log-weights and values of a derivation are sums over its leaves."""
    derivations = data.draw(st.lists(st.lists(leaves(algebra.num_values), max_size=3), max_size=4))
    expected = exact_total(algebra.shape, derivations, term)
    # Signs cancel; rounding errors are relative to what was there before they did.
    positive = [[(w, [abs(v) for v in values]) for w, values in d] for d in derivations]
    magnitude = exact_total(algebra.shape, positive, term).clamp(min=1e-300)

    scaled = Scaled(algebra)
    for total in (total_of(algebra, derivations), scaled.value(total_of(scaled, derivations))):
        assert_close(total[0] / magnitude, expected / magnitude, rtol=0, atol=1e-12)


def test_covariance_and_moments():
    weights, values = double([1.0, 3.0]).log(), double([[2.0, 5.0], [6.0, 1.0]])
    index = torch.tensor([0, 0])
    second = SecondOrderExpectation(1, 1)
    covariance = second.covariance(second.sum(second.lift(weights, values), index, 1))
    assert_close(covariance, [[[(2 * 5 + 3 * 6 * 1) / 4 - 5 * 2.0]]])
    polynomial = Polynomial((2, 1))
    moments = polynomial.moments(polynomial.sum(polynomial.lift(weights, values), index, 1))
    expected = [[[2**a * 5.0**b + 3 * 6**a * 1.0**b for b in range(2)] for a in range(3)]]
    assert_close(moments, expected)


def decimal_log_sum(terms: list[Decimal]) -> float:
    total = sum(terms, Decimal(0))
    return float(abs(total).ln()) if total else -INF


def decimal_exp(log_weight: float) -> Decimal:
    return Decimal(log_weight).exp() if log_weight > -INF else Decimal(0)


FAR = st.floats(-1e4, 1e4) | st.sampled_from([1e4, -1e4, 0.0, -INF])


@drawn
@given(st.lists(FAR, max_size=6), st.lists(FAR, min_size=2, max_size=2))
@example([-INF, -INF], [-INF, -INF])
@example([1e4, 1e4, -1e4], [-1e4, -1e4])
def test_log_and_scaled_far_from_one(weights: list[float], pair: list[float]):
    log, scaled = Log(), Scaled(Real())
    w, index = double(weights), torch.zeros(len(weights)).long()
    x, y = double(pair)[:, None]
    with localcontext() as context:
        context.prec = 60
        total = [decimal_log_sum([decimal_exp(v) for v in weights])]
        both = [decimal_log_sum([decimal_exp(v) for v in pair])]
    tight = {"rtol": 1e-15, "atol": 1e-15}
    assert_close(log.sum(log.lift(w), index, 1), total, **tight)
    assert_close(scaled.log_abs(scaled.sum(scaled.lift(w), index, 1)), total, **tight)
    assert_close(log.plus(log.lift(x), log.lift(y)), both, **tight)
    assert_close(scaled.log_abs(scaled.plus(scaled.lift(x), scaled.lift(y))), both, **tight)


SIGNED = st.lists(st.tuples(st.sampled_from([-1, 1]), FAR), max_size=4)


@drawn
@given(st.lists(SIGNED, max_size=4))
def test_scaled_signed_products(terms: list[list[tuple[int, float]]]):
    """Σ Π of signed weights, as far as their sum does not cancel."""
    scaled = Scaled(Real())
    products, exact = [], []
    with localcontext() as context:
        context.prec = 60
        for term in terms:
            element, value = scaled.one(1), Decimal(1)
            for sign, weight in term:
                leaf = scaled.lift(double([weight]))
                signed = scaled.scale(double([float(sign)]))
                element = scaled.times(element, scaled.times(leaf, signed))
                value *= sign * decimal_exp(weight)
            products.append(element)
            exact.append(value)
        size = sum((abs(value) for value in exact), Decimal(0))
        assume(abs(sum(exact)) >= size * Decimal("1e-3"))
        expected = [decimal_log_sum(exact)]
        signs = [float((sum(exact) > 0) - (sum(exact) < 0))]
    index = torch.zeros(len(products), dtype=torch.long)
    total = scaled.sum(scaled.cat([scaled.zero(0), *products]), index, 1)
    assert_close(scaled.log_abs(total), expected)
    assert_close(total.mantissa.sign(), signs)


@pytest.mark.parametrize("shift", [-1e4, 0.0, 1e4])
@pytest.mark.parametrize(
    "base", [Real(), Expectation(2), SecondOrderExpectation(1, 1), Polynomial((1, 1))]
)
def test_scaled_cancels_to_zero(base: Algebra, shift: float):
    scaled = Scaled(base)
    x = scaled.lift(torch.tensor([shift, shift + 1]), torch.ones(2, base.num_values))
    minus = scaled.times(x, scaled.scale(-base.one(2)))
    nothing = scaled.plus(x, minus)
    zero = base.zero(2)
    assert_close(nothing.mantissa, zero, rtol=0, atol=0)
    assert_close(scaled.value(nothing), zero, rtol=0, atol=0)
    assert_close(scaled.log_abs(nothing), [-INF, -INF])
    assert_close(scaled.value(scaled.times(nothing, nothing)), zero, rtol=0, atol=0)
    # What is added to a zero that large numbers left behind survives, however small.
    small = scaled.lift(double([-3e4, 2e4]))
    assert_close(scaled.log_abs(scaled.plus(nothing, small)), [-3e4, 2e4])
    assert_close(scaled.log_abs(scaled.plus(small, nothing)), [-3e4, 2e4])


def test_scaled_expectations_far_from_one():
    weights = double([1e4, 1e4 + 1, -1e4])
    values = double([[1.0], [2.0], [50.0]])
    mean = (1 + 2 * math.e) / (1 + math.e)
    index = torch.zeros(3, dtype=torch.long)
    for base in (Expectation(1), Polynomial((2,)), SecondOrderExpectation(1, 0)):
        scaled = Scaled(base)
        total = scaled.sum(scaled.lift(weights, values), index, 1)
        assert_close(scaled.ratio(total).flatten()[1], mean)
        assert_close(scaled.log_abs(total), [1e4 + math.log1p(math.e)])


def test_scaled_reaches_both_ends_of_the_range():
    edges = double([5e-324, 2.2e-308, 1.0, -1.7976931348623157e308, 0.0])
    scaled = Scaled(Real())
    x = scaled.scale(edges)
    assert_close(scaled.value(x), edges, rtol=0, atol=0)
    square = scaled.times(x, x)
    assert_close(scaled.value(square), [0.0, 0.0, 1.0, INF, 0.0], rtol=0, atol=0)
    assert_close(scaled.log_abs(square)[[0, 3]], 2 * edges[[0, 3]].abs().log())


def test_scaled_overflow_leaves_zero_coefficients_alone():
    scaled = Scaled(Expectation(1))
    assert_close(scaled.value(scaled.lift(torch.tensor([1e4]))), [[INF, 0.0]])


def test_scaled_lifts_float32_without_losing_digits():
    weights = torch.tensor([1e4, -1e4, 0.1])  # the numbers that float32 rounds these to
    scaled = Scaled(Real(dtype=torch.float32))
    x = scaled.lift(weights)
    assert x.mantissa.dtype == torch.float32
    with localcontext() as context:
        context.prec = 60
        for i in range(3):
            exact = Decimal(float(weights[i])).exp() / Decimal(2) ** int(x.exponent[i])
            assert_close(x.mantissa[i], float(exact), rtol=2e-7, atol=0)


def test_complex_weights():
    """exp(w + iθ) at the points of a circle, as the Fourier form needs them."""
    angles = torch.arange(8, dtype=torch.float64) * (2 * math.pi / 8)
    weights = torch.complex(torch.full_like(angles, 2.0), angles)
    index = torch.zeros(8, dtype=torch.long)
    real = Real(dtype=torch.complex128)
    circle = [math.exp(2) * complex(math.cos(a), math.sin(a)) for a in angles.tolist()]
    assert_close(real.lift(weights), circle)
    assert_close(real.sum(real.lift(weights), index, 1), [0j])
    scaled = Scaled(real)
    far = scaled.times(scaled.lift(weights), scaled.lift(torch.full((8,), 1e4)))
    assert_close(scaled.log_abs(far), [10002.0] * 8)
    assert_close(scaled.ratio(far), [1 + 0j] * 8)


@drawn
@given(st.data())
def test_max_and_its_pointers(data: st.DataObject):
    numbers = data.draw(st.lists(st.sampled_from([-INF, -1.0, 0.0, 2.5]), max_size=8))
    size = data.draw(st.integers(1, 3))
    rows = st.integers(0, size - 1)
    index = data.draw(st.lists(rows, min_size=len(numbers), max_size=len(numbers)))
    values, pointers = [], []
    for place in range(size):
        # Python's max returns the first of equal numbers.
        here = [i for i in range(len(numbers)) if index[i] == place and numbers[i] > -INF]
        best = max(here, key=lambda i: numbers[i], default=-1)
        values.append(-INF if best < 0 else numbers[best])
        pointers.append(best)
    x = double(numbers)
    actual, rows_taken = Max().sum_with_pointers(x, torch.tensor(index).long(), size)
    assert_close(actual, values)
    assert_close(rows_taken, pointers)


def test_nan_is_not_hidden():
    """Not even by a maximum: NaN that came in at a leaf must be seen in the result."""
    x, y = double([math.nan, 1.0]), double([1.0, math.nan])
    index = torch.tensor([0, 0])
    for semiring in (Log(), Max(), Real()):
        assert semiring.plus(x, y).isnan().all()
        assert semiring.times(x, y).isnan().all()
        assert semiring.sum(x, index, 1).isnan().all()
        assert semiring.sum(y, index, 1).isnan().all()


def test_boolean_lift_and_sum():
    x = Boolean().lift(torch.tensor([-INF, 0.0, -1e30, -INF]))
    assert_close(x, [False, True, True, False])
    assert_close(Boolean().sum(x, torch.tensor([0, 0, 2, 1]), 4), [True, False, True, False])


LIMIT = 2**63
NATURAL = st.integers(0, LIMIT - 1) | st.integers(0, 2**33) | st.integers(LIMIT - 3, LIMIT - 1)


def assert_fast_count(compute: Callable[[], Tensor], exact: int) -> None:
    if exact < LIMIT:
        assert compute().tolist() == [exact]
    else:
        with pytest.raises(CountOverflowError, match=r"2\*\*63"):
            compute()


@settings(max_examples=examples(300))
@given(NATURAL, NATURAL)
@example(LIMIT - 1, 0)
@example(LIMIT - 1, 1)
@example(LIMIT - 1, LIMIT - 1)
@example(LIMIT // 2, LIMIT // 2)
@example(LIMIT // 2, LIMIT // 2 - 1)
def test_counts_overflow_in_plus(a: int, b: int):
    fast, x, y = Counting(exact=False), torch.tensor([a]), torch.tensor([b])
    assert_fast_count(lambda: fast.plus(x, y), a + b)


@settings(max_examples=examples(300))
@given(st.integers(1, 2**62), st.integers(-1, 1))
@example(2**31, 1)
@example(2**32, 0)
@example(3037000499, 0)
@example(7, 0)  # 7 divides 2⁶³ − 1: a product that is the largest int64
def test_counts_overflow_in_times(a: int, off: int):
    fast, b = Counting(exact=False), min((LIMIT - 1) // a + off, LIMIT - 1)
    x, y = torch.tensor([a]), torch.tensor([b])
    assert_fast_count(lambda: fast.times(x, y), a * b)
    assert_fast_count(lambda: fast.times(y, x), a * b)


@settings(max_examples=examples(300))
@given(st.lists(NATURAL, max_size=6))
@example([LIMIT - 1, LIMIT - 1, 2])  # wraps round to 0
@example([LIMIT - 1, LIMIT - 1, 3, 5])  # to a small positive number
@example([LIMIT - 1] * 4)
@example([2**32 - 1] * 6)
@example([LIMIT - 2**32, 2**32 - 1])
def test_counts_overflow_in_sum(counts: list[int]):
    fast, index = Counting(exact=False), torch.zeros(len(counts), dtype=torch.long)
    x = torch.tensor(counts, dtype=torch.int64)
    assert_fast_count(lambda: fast.sum(x, index, 1), sum(counts))


def test_counts_say_where_they_overflow():
    fast, x = Counting(exact=False), torch.tensor([1, 2**62])
    with pytest.raises(OverflowError, match=r"row 1 .*exact=True"):
        fast.plus(x, x)


def test_exact_counts_have_no_bound():
    counting, index = Counting(), torch.tensor([1, 1])
    x = counting.lift(torch.tensor([-5.0, -1e30]))
    for _ in range(200):
        x = counting.take(counting.sum(x, index, 3), index)
    assert x.tolist() == [2**200, 2**200]
    assert counting.times(x, x).tolist() == [2**400, 2**400]
    assert counting.plus(x, x).tolist() == [2**201, 2**201]
