"""Derivatives through every differentiable semiring: right, twice, and never NaN."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from inout.semirings import (
    Algebra,
    Expectation,
    Log,
    Max,
    Polynomial,
    Real,
    Scaled,
    SecondOrderExpectation,
)
from tests.support import assert_close

INF = float("inf")


def double(numbers: Any, *, track: bool = False) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=track)


def live_part(f: Any, x: Tensor) -> tuple[Any, Tensor]:
    """f as a function of the finite entries of x alone; the −inf are held fixed."""
    live = x.isfinite()

    def g(finite: Tensor) -> Tensor:
        result = f(x.masked_scatter(live, finite))
        return result[result.isfinite()]

    return g, x[live].requires_grad_()


WEIGHTS = double([0.3, -INF, 1.2, 1.2, -INF, -INF, -0.7, 2.0])
INDEX = torch.tensor([0, 0, 0, 2, 3, 3, 4, 4])  # 1 receives nothing, 3 only dead ends
PARTNER = double([0.3, 0.4, -INF, 1.1, -INF, 2.0, -0.2, 2.0])  # equal to WEIGHTS twice

LOG_FUNCTIONS = {
    "sum": lambda x: Log().sum(x, INDEX, 5),
    "plus": lambda x: Log().plus(x, PARTNER),
    "plus from the right": lambda x: Log().plus(PARTNER, x),
    "plus itself": lambda x: Log().plus(x, x * 1.0),
    "times": lambda x: Log().times(x, PARTNER),
    "lift": lambda x: Log().lift(x),
    "all": lambda x: Log().sum(
        Log().times(Log().lift(x), Log().plus(Log().lift(x), PARTNER)), INDEX, 5
    ),
}
log_functions = pytest.mark.parametrize("f", LOG_FUNCTIONS.values(), ids=LOG_FUNCTIONS)


@log_functions
def test_log_derivatives_are_right(f: Any):
    g, finite = live_part(f, WEIGHTS)
    assert gradcheck(g, (finite,))
    assert gradgradcheck(g, (finite,))


@log_functions
def test_log_derivatives_at_dead_ends_are_zero(f: Any):
    x = WEIGHTS.clone().requires_grad_()
    result = f(x)
    # Also where the result itself is −inf: a cotangent of 1 for every entry, dead or not.
    (first,) = grad(result, x, torch.ones_like(result), create_graph=True)
    assert_close(first[x.isneginf()], torch.zeros(int(x.isneginf().sum())))
    assert first.isfinite().all()
    if first.requires_grad:  # the gradient of `lift` is constant
        (second,) = grad(first.square().sum(), x)
        assert_close(second[x.isneginf()], torch.zeros(int(x.isneginf().sum())))
        assert second.isfinite().all()


@pytest.mark.parametrize("f", [LOG_FUNCTIONS["sum"], LOG_FUNCTIONS["all"]])
def test_log_of_nothing_has_gradient_zero(f: Any):
    x = torch.full_like(WEIGHTS, -INF).requires_grad_()
    result = f(x)
    assert result.isneginf().all()
    (first,) = grad(result.sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    assert_close(first, torch.zeros(8))
    assert_close(second, torch.zeros(8))


def test_dead_partners_pass_no_gradient():
    """x ⊗ 0 is 0 for every x, so that nothing about x can be learnt from it."""
    x = double([0.5, -INF], track=True)
    for semiring in (Log(), Max()):
        (first,) = grad(semiring.times(x, double([-INF, -INF])).sum(), x)
        assert_close(first, [0.0, 0.0])


def test_log_gradient_is_the_share_of_the_sum():
    x = double([1e4, 1e4 - 1, -1e4, -INF], track=True)
    (first,) = grad(Log().sum(x, torch.zeros(4, dtype=torch.long), 1).sum(), x)
    assert_close(first, torch.softmax(x, 0))


def test_max_gradient_is_the_first_of_the_best():
    x = double([1.0, 3.0, 3.0, -INF, 2.0, 2.0], track=True)
    index = torch.tensor([0, 0, 0, 1, 3, 3])
    total, rows = Max().sum_with_pointers(x, index, 4)
    assert_close(total, [3.0, -INF, -INF, 2.0])
    assert_close(rows, [1, -1, -1, 4])
    (first,) = grad(total, x, torch.ones(4, dtype=torch.float64))
    assert_close(first, [0.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    (first,) = grad(Max().plus(x, double([1.0] * 6)).sum(), x)
    assert_close(first, [1.0, 1.0, 1.0, 0.0, 1.0, 1.0])


ALGEBRAS = [
    Real(),
    Expectation(2),
    SecondOrderExpectation(1, 2),
    Polynomial((3,)),
    Polynomial((2, 1)),
]
algebras = pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)


def two_steps(semiring: Any, weights: Tensor, values: Tensor) -> Any:
    """(x₀x₁ + x₂x₃, x₁x₂) for four leaves: lift, take, times and sum once each."""
    leaves = semiring.lift(weights, values)
    left, right = (semiring.take(leaves, torch.tensor(rows)) for rows in ([0, 2, 1], [1, 3, 2]))
    return semiring.sum(semiring.times(left, right), torch.tensor([0, 0, 1]), 2)


def leaves_of(algebra: Algebra, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(4, generator=generator, dtype=torch.float64) + shift
    values = torch.randn(4, algebra.num_values, generator=generator, dtype=torch.float64)
    return weights.requires_grad_(), values.requires_grad_()


@algebras
def test_algebra_derivatives_are_right(algebra: Algebra):
    arguments = leaves_of(algebra)
    assert gradcheck(lambda w, f: two_steps(algebra, w, f), arguments)
    assert gradgradcheck(lambda w, f: two_steps(algebra, w, f), arguments)


@algebras
def test_scaled_derivatives_are_right(algebra: Algebra):
    scaled = Scaled(algebra)

    def answers(w: Tensor, f: Tensor) -> tuple[Tensor, ...]:
        total = two_steps(scaled, w, f)
        return scaled.log_abs(total), scaled.ratio(total), scaled.value(total)

    arguments = leaves_of(algebra)
    assert gradcheck(answers, arguments)
    assert gradgradcheck(answers, arguments)


@algebras
@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_scaled_derivatives_do_not_depend_on_the_scale(algebra: Algebra, shift: float):
    scaled = Scaled(algebra)

    def derivatives(shift: float) -> list[Tensor]:
        total = two_steps(scaled, *(arguments := leaves_of(algebra, shift)))
        result = scaled.log_abs(total).sum() + scaled.ratio(total).square().sum()
        first = grad(result, arguments, create_graph=True, materialize_grads=True)
        scalar = sum(g.square().sum() for g in first)
        return [*first, *grad(scalar, arguments, materialize_grads=True)]

    for far, near in zip(derivatives(shift), derivatives(0.0), strict=True):
        assert_close(far, near)


@algebras
def test_dead_leaves_have_gradient_zero(algebra: Algebra):
    weights, values = leaves_of(algebra)
    dead = double([False, False, True, False]).bool()
    scaled = Scaled(algebra)
    for semiring, value in (algebra, lambda x: x), (scaled, scaled.value):
        w = torch.where(dead, -INF, weights)
        total = value(two_steps(semiring, w, values)).sum()
        first = grad(total, (weights, values), create_graph=True, materialize_grads=True)
        second = grad(
            sum(g.square().sum() for g in first), (weights, values), materialize_grads=True
        )
        for derivative in (*first, *second):
            assert_close(derivative[dead], torch.zeros_like(derivative[dead]))
            assert derivative.isfinite().all()


@pytest.mark.parametrize("shift", [0.0, 300.0, 1e4])
def test_scaled_gradient_of_a_zero_by_cancellation(shift: float):
    """(a − b)·c + d at a = b: the difference is 0, its derivative is not."""
    scaled = Scaled(Real())
    w = double([shift, shift, -shift, 0.5], track=True)
    signs = scaled.scale(double([1.0, -1.0, 1.0, 1.0]))
    x = scaled.times(scaled.lift(w), signs)
    row = [torch.tensor([i]) for i in range(4)]
    difference = scaled.plus(scaled.take(x, row[0]), scaled.take(x, row[1]))
    through = scaled.sum(difference, torch.tensor([0]), 1)  # a zero all by itself in its sum
    total = scaled.plus(scaled.times(through, scaled.take(x, row[2])), scaled.take(x, row[3]))
    (first,) = grad(scaled.log_abs(total).sum(), w)
    share = double(-0.5).exp()
    assert_close(first, torch.stack([share, -share, 0 * share, 0 * share + 1]))


def test_log_abs_of_zero_has_gradient_zero():
    scaled = Scaled(Real())
    w = double([-INF, 1.0], track=True)
    (first,) = grad(scaled.log_abs(scaled.lift(w)).sum(), w)
    assert_close(first, [0.0, 1.0])


def test_complex_derivatives_are_right():
    weights = torch.tensor([0.3 + 1j, -0.2 - 2j, 0.1j, 1.0], dtype=torch.complex128)
    values = torch.tensor([[1j], [2.0], [0.0], [1 - 1j]], dtype=torch.complex128)
    for semiring in (Polynomial((2,), dtype=torch.complex128), Real(dtype=torch.complex128)):
        carried = values[:, : semiring.num_values].clone().requires_grad_()
        arguments = (weights.clone().requires_grad_(), carried)
        scaled = Scaled(semiring)
        assert gradcheck(lambda w, f, s=semiring: two_steps(s, w, f), arguments)
        assert gradcheck(lambda w, f, s=scaled: s.value(two_steps(s, w, f)), arguments)
