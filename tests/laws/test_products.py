"""Matrix products in pieces are those of numpy, at sizes that are cut in one and two directions."""

from __future__ import annotations

import numpy as np
import pytest

from inout.kernels.math.cpu.products import add_product_of_columns, multiply, multiply_transposed
from tests.support import assert_close

SIZES = [(1, 1, 1), (5, 3, 7), (70, 90, 80), (3, 700, 600), (40, 3000, 60)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_pieces(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    random = np.random.default_rng(m)
    x, y = random.standard_normal((m, k)), random.standard_normal((k, n))
    out = np.empty((m, n))
    multiply(x, y, out)
    assert_close(out, x @ y)
    multiply_transposed(x, np.ascontiguousarray(y.T), out)
    assert_close(out, x @ y)
    z, total = random.standard_normal((m, n)), np.ones((k, n))
    add_product_of_columns(x, z, total)
    assert_close(total, 1 + x.T @ z)
