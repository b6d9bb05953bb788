"""The laws of every semiring, on batches of random elements.

All numbers but those of `Log` are drawn from a grid of binary fractions on which the arithmetic
of the test makes no rounding errors, so that the laws must hold to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inout._core.errors import ArgumentError
from inout.semirings import (
    Algebra,
    Boolean,
    Counting,
    Expectation,
    Jet,
    Log,
    Max,
    Polynomial,
    Real,
    Scaled,
    ScaledElements,
    SecondOrderExpectation,
    Semiring,
)
from tests.seeds import examples
from tests.support import assert_close

INF = float("inf")
GRID = st.integers(-32, 32).map(lambda i: i / 4)


def assert_identical(actual: Any, expected: Any) -> None:
    """Equal to the last bit, except that 0 · 2^e is 0 for any exponent e."""
    if isinstance(actual, ScaledElements):
        assert_identical(actual.mantissa, expected.mantissa)
        zero = ~(actual.mantissa != 0).reshape(*actual.mantissa.shape, 1).flatten(1).any(1)
        assert_identical(actual.exponent[~zero], expected.exponent[~zero])
    elif isinstance(actual, np.ndarray):
        assert actual.dtype == object
        assert all(type(number) is int for number in actual)
        assert actual.tolist() == expected.tolist()
    else:
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected), (actual, expected)


@dataclass(frozen=True)
class Case:
    """A semiring, how to draw `count` batches of n elements, and when two batches are equal."""

    semiring: Semiring[Any]
    batches: Callable[[st.DrawFn, int, int], list[Any]]
    check: Callable[[Any, Any], None] = assert_identical

    def __str__(self) -> str:
        return str(self.semiring).replace("device=device(type='cpu'), ", "")


def tensor_case(semiring: Any, numbers: st.SearchStrategy[Any], **options: Any) -> Case:
    shape: tuple[int, ...] = semiring.shape if isinstance(semiring, Algebra) else ()
    like = semiring.zero(0)
    size = int(np.prod(shape))

    def batches(draw: st.DrawFn, count: int, n: int) -> list[Any]:
        total = count * n * size
        flat = draw(st.lists(numbers, min_size=total, max_size=total))
        return list(torch.tensor(flat, dtype=like.dtype).reshape(count, n, *shape))

    return Case(semiring, batches, **options)


def scaled_case(base: Algebra, numbers: st.SearchStrategy[Any] = GRID) -> Case:
    semiring, plain = Scaled(base), tensor_case(base, numbers)

    def batches(draw: st.DrawFn, count: int, n: int) -> list[Any]:
        # One exponent for all: elements that far apart do not add without rounding.
        far = draw(st.sampled_from([0, 30_000, -30_000]))
        scaled = map(semiring.scale, plain.batches(draw, count, n))
        return [ScaledElements(x.mantissa, x.exponent + far) for x in scaled]

    return Case(semiring, batches)


def exact_counts(draw: st.DrawFn, count: int, n: int) -> list[Any]:
    numbers = st.lists(st.integers(0, 10**30), min_size=n, max_size=n)
    return [np.array(draw(numbers), dtype=object) for _ in range(count)]


def jet_case(semiring: Jet) -> Case:
    """Series of logarithms: impossible elements have no other coefficients."""

    def batches(draw: st.DrawFn, count: int, n: int) -> list[Any]:
        size = int(np.prod(semiring.shape))
        numbers = st.lists(st.floats(-2, 2), min_size=count * n * size, max_size=count * n * size)
        x = torch.tensor(draw(numbers), dtype=torch.float64).reshape(count, n, size)
        constants = st.lists(LOGS, min_size=count * n, max_size=count * n)
        x[..., 0] = torch.tensor(draw(constants), dtype=torch.float64).reshape(count, n)
        dead = x[..., :1].isneginf() & (torch.arange(size) > 0)
        return list(torch.where(dead, 0.0, x).reshape(count, n, *semiring.shape))

    def check(actual: Any, expected: Any) -> None:
        assert_close(actual, expected, rtol=1e-9, atol=1e-9)

    return Case(semiring, batches, check)


GAUSSIAN = st.builds(complex, GRID, GRID)
LOGS = st.floats(-50, 50) | st.floats(-1e4, 1e4) | st.just(-INF)
CASES = [
    tensor_case(Log(), LOGS, check=assert_close),
    tensor_case(Log(dtype=torch.float32), LOGS, check=assert_close),
    tensor_case(Max(), GRID | st.just(-INF)),
    tensor_case(Max(dtype=torch.float32), GRID | st.just(-INF)),
    tensor_case(Boolean(), st.booleans()),
    Case(Counting(), exact_counts),
    tensor_case(Counting(exact=False), st.integers(0, 2**20)),
    tensor_case(Real(), GRID),
    tensor_case(Real(dtype=torch.float32), GRID),
    tensor_case(Real(dtype=torch.complex128), GAUSSIAN),
    tensor_case(Expectation(0), GRID),
    tensor_case(Expectation(2), GRID),
    tensor_case(SecondOrderExpectation(2, 1), GRID),
    tensor_case(SecondOrderExpectation(1, 3), GRID),
    tensor_case(Polynomial(()), GRID),
    tensor_case(Polynomial((3,)), GRID),
    tensor_case(Polynomial((2, 1)), GRID),
    tensor_case(Polynomial((1, 0, 2), dtype=torch.complex128), GAUSSIAN),
    jet_case(Jet((3,))),
    jet_case(Jet((1, 2))),
    scaled_case(Real()),
    scaled_case(Real(dtype=torch.float32)),
    scaled_case(Real(dtype=torch.complex128), GAUSSIAN),
    scaled_case(Expectation(2)),
    scaled_case(SecondOrderExpectation(2, 1)),
    scaled_case(Polynomial((2, 1))),
]

every_semiring = pytest.mark.parametrize("case", CASES, ids=str)
drawn = settings(max_examples=examples(25))
data = given(st.data())


def size_of(batch: Any) -> int:
    return len(batch[0] if isinstance(batch, tuple) else batch)


def draw_batches(case: Case, data: st.DataObject, count: int) -> list[Any]:
    n = data.draw(st.integers(0, 4), label="n")
    return case.batches(data.draw, count, n)


@every_semiring
@drawn
@data
def test_plus(case: Case, data: st.DataObject):
    x, y, z = draw_batches(case, data, 3)
    plus, zero = case.semiring.plus, case.semiring.zero(size_of(x))
    case.check(plus(plus(x, y), z), plus(x, plus(y, z)))
    case.check(plus(x, y), plus(y, x))
    case.check(plus(x, zero), x)
    case.check(plus(zero, x), x)


@every_semiring
@drawn
@data
def test_times(case: Case, data: st.DataObject):
    x, y, z = draw_batches(case, data, 3)
    times, n = case.semiring.times, size_of(x)
    one, zero = case.semiring.one(n), case.semiring.zero(n)
    case.check(times(times(x, y), z), times(x, times(y, z)))
    case.check(times(x, y), times(y, x))
    case.check(times(x, one), x)
    case.check(times(one, x), x)
    case.check(times(x, zero), zero)
    case.check(times(zero, x), zero)


@every_semiring
@drawn
@data
def test_times_distributes_over_plus(case: Case, data: st.DataObject):
    x, y, z = draw_batches(case, data, 3)
    plus, times = case.semiring.plus, case.semiring.times
    case.check(times(x, plus(y, z)), plus(times(x, y), times(x, z)))
    case.check(times(plus(y, z), x), plus(times(y, x), times(z, x)))


@every_semiring
@drawn
@data
def test_sum_is_a_fold_of_plus_in_any_order(case: Case, data: st.DataObject):
    n = data.draw(st.integers(0, 6), label="n")
    size = data.draw(st.integers(1 if n else 0, 4), label="size")
    (x,) = case.batches(data.draw, 1, n)
    places = st.integers(0, max(size - 1, 0))
    index = data.draw(st.lists(places, min_size=n, max_size=n), label="index")
    order = data.draw(st.permutations(range(n)), label="order")

    semiring = case.semiring
    folded = [semiring.zero(1) for _ in range(size)]  # empty sums stay zero
    for row in order:
        element = semiring.take(x, torch.tensor([row]))
        folded[index[row]] = semiring.plus(folded[index[row]], element)

    total = semiring.sum(x, torch.tensor(index, dtype=torch.long), size)
    assert size_of(total) == size
    case.check(total, semiring.cat([semiring.zero(0), *folded]))


@every_semiring
@drawn
@data
def test_take_and_cat_move_rows(case: Case, data: st.DataObject):
    x, y = draw_batches(case, data, 2)
    n, take, cat = size_of(x), case.semiring.take, case.semiring.cat
    both = cat([x, y])
    assert size_of(both) == 2 * n
    case.check(take(both, torch.arange(n)), x)
    case.check(take(both, torch.arange(n, 2 * n)), y)
    singles = [take(x, torch.tensor([row])) for row in range(n)]
    case.check(cat([*singles, case.semiring.zero(0)]), x)
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=5) if n else st.just([]))
    picked = cat([*(singles[row] for row in rows), case.semiring.zero(0)])
    case.check(take(x, torch.tensor(rows, dtype=torch.long)), picked)
    case.check(take(x, torch.zeros(0, dtype=torch.long)), case.semiring.zero(0))


@every_semiring
@drawn
@data
def test_operations_leave_their_arguments_alone(case: Case, data: st.DataObject):
    x, y = draw_batches(case, data, 2)
    n, semiring = size_of(x), case.semiring
    copies = semiring.cat([x]), semiring.cat([y])
    index = torch.arange(n)
    semiring.plus(x, y), semiring.times(x, y), semiring.sum(x, index, n)
    semiring.take(x, index), semiring.cat([x, y])
    assert_identical(x, copies[0])
    assert_identical(y, copies[1])
    assert torch.equal(index, torch.arange(n))


@every_semiring
def test_lift_of_no_and_unit_weight(case: Case):
    semiring = case.semiring
    lifted = semiring.lift(torch.tensor([0.0, -INF, 0.0]))
    assert_identical(lifted, semiring.cat([semiring.one(1), semiring.zero(1), semiring.one(1)]))
    assert size_of(semiring.lift(torch.zeros(0))) == 0


ALGEBRAS = [case.semiring for case in CASES if isinstance(case.semiring, Algebra)]


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
@drawn
@data
def test_lift_turns_sums_into_products(algebra: Algebra, data: st.DataObject):
    def draw(*shape: int) -> torch.Tensor:
        count = int(np.prod(shape))
        numbers = data.draw(st.lists(st.floats(-3, 3), min_size=count, max_size=count))
        return torch.tensor(numbers, dtype=torch.float64).reshape(shape)

    (v, w), (f, g) = draw(2, 2), draw(2, 2, algebra.num_values)
    for semiring, value in (algebra, lambda x: x), (Scaled(algebra), Scaled(algebra).value):
        product = semiring.times(semiring.lift(v, f), semiring.lift(w, g))
        assert_close(value(product), value(semiring.lift(v + w, f + g)))


@every_semiring
def test_what_an_element_does_not_carry_is_refused(case: Case):
    base = case.semiring.base if isinstance(case.semiring, Scaled) else case.semiring
    carried = base.num_values if isinstance(base, Algebra | Jet) else 0
    with pytest.raises(ArgumentError, match="values must"):
        case.semiring.lift(torch.zeros(2), torch.zeros(2, carried + 1))


def test_parameters_are_checked_and_compared_by_value():
    assert Polynomial((2, 1)) == Polynomial((2, 1)) != Polynomial((1, 2))
    assert len({Scaled(Expectation(2)), Scaled(Expectation(2)), Scaled(Expectation(3))}) == 2
    for build in (
        lambda: Expectation(-1),
        lambda: SecondOrderExpectation(1, -1),
        lambda: Polynomial((2, -1)),
    ):
        with pytest.raises(ArgumentError, match="at least 0"):
            build()
    with pytest.raises(ArgumentError, match="must be real"):
        Real().lift(torch.zeros(1, dtype=torch.complex128))
