"""Power series and points: the same functions of z, whichever way they are held."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from inout import ArgumentError
from inout.series import Points, Truncated, mix, powers
from tests.seeds import examples
from tests.support import assert_close

F64, C128 = torch.float64, torch.complex128
ORDERS = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def product_by_definition(x: Tensor, y: Tensor, orders: tuple[int, ...]) -> Tensor:
    """Σ x[a] y[c] over a + c = n, index by index."""
    indices = powers.multi_indices(Truncated(orders))
    result = torch.zeros_like(x * y)
    for i, a in enumerate(indices):
        for j, c in enumerate(indices):
            total = tuple(p + q for p, q in zip(a, c, strict=True))
            if total in indices:
                result[indices.index(total)] += x[i] * y[j]
    return result


@settings(max_examples=examples(30), deadline=None)
@given(orders=ORDERS, dtypes=st.sampled_from([(F64, F64), (F64, C128), (C128, C128)]))
def test_products_of_series(
    orders: tuple[int, ...], dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    series = Truncated(orders)
    x, y = (randn(series.size, 2, 3, seed=i, dtype=dtype) for i, dtype in enumerate(dtypes))
    assert_close(series.times(x, y), product_by_definition(x, y, orders))
    left, right = randn(series.size, 2, 2, 3, seed=2), randn(series.size, 1, 3, 2, seed=3)
    whole = series.matmul(left, right)
    for i in range(2):
        for k in range(2):
            terms = [
                product_by_definition(left[:, :, i, j], right[:, :, j, k], orders) for j in range(3)
            ]
            assert_close(whole[:, :, i, k], torch.stack(terms).sum(0))


@settings(max_examples=examples(30), deadline=None)
@given(orders=ORDERS)
def test_exponentials_multiply_like_exponentials(orders: tuple[int, ...]) -> None:
    series = Truncated(orders)
    f, g = randn(len(orders), 4, seed=4), randn(len(orders), 4, seed=5)
    product = series.times(series.exponential(f), series.exponential(g))
    assert_close(product, series.exponential(f + g))
    assert_close(powers.shifted(series, series.exponential(f), g), series.exponential(f + g))
    assert_close(series.times(series.exponential(f), series.exponential(-f)), series.one(f, 4))
    logarithm = powers.logarithm(series, product)
    has = torch.tensor(orders) > 0
    assert_close(powers.linear(series, logarithm)[has], (f + g)[has], rtol=1e-8, atol=1e-8)
    # The terms of a logarithm are larger than their sum.
    assert_close(powers.exponential(series, logarithm), product, rtol=1e-8, atol=1e-8)


def test_points_are_values_of_the_same_functions() -> None:
    """A power series of high order, summed up at a point, is the value there."""
    series, z = Truncated((30,)), torch.tensor([[0.3 - 0.4j, -0.7 + 0.1j]], dtype=C128)
    points = Points(z)
    f, g = randn(1, 3, seed=6), randn(1, 3, seed=7)
    x = series.times(series.exponential(f), series.exponential(g))
    degrees = torch.arange(31)[:, None]
    at_points = torch.stack([x[0] + 0j, *((x * w**degrees).sum(0) for w in z[0])])
    assert_close(points.times(points.exponential(f), points.exponential(g)), at_points)


@pytest.mark.parametrize("dtype", [F64, C128])
def test_mixing_is_a_sum_of_functions(dtype: torch.dtype) -> None:
    weights, x = randn(2, 4, 3, seed=8), randn(5, 2, 3, seed=9, dtype=dtype)
    truth = torch.stack([(weights * lane[:, None]).sum(-1) for lane in x])
    assert_close(mix(weights, x), truth)


@pytest.mark.parametrize("matrices", [False, True])
def test_products_have_derivatives(matrices: bool) -> None:
    series = Truncated((2, 1))
    shapes = ((2, 3), (3, 2)) if matrices else ((2, 1), (2, 3))
    x = randn(series.size, *shapes[0], seed=10).requires_grad_()
    y = randn(series.size, *shapes[1], seed=11, dtype=C128).requires_grad_()
    product = series.matmul if matrices else series.times
    assert gradcheck(product, (x, y))
    assert gradgradcheck(product, (x, y))


def test_orders_must_be_numbers_from_0() -> None:
    for orders in ((), (-1,), (2, -3)):
        with pytest.raises(ArgumentError, match="orders"):
            Truncated(orders)
