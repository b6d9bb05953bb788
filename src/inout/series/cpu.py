"""Products of truncated power series, compiled: rows are coefficients, columns are series."""

from __future__ import annotations

from numba import njit

_COLUMNS = 256  # of a few rows that stay in the first cache


@njit(cache=True, nogil=True)
def add_products(x, y, x_rows, y_rows, out_rows, out):
    """out[out_rows[i]] += x[x_rows[i]] * y[y_rows[i]] for each i, column by column."""
    for first in range(0, x.shape[1], _COLUMNS):
        last = min(first + _COLUMNS, x.shape[1])
        for i in range(x_rows.size):
            a, c, n = x_rows[i], y_rows[i], out_rows[i]
            for j in range(first, last):
                out[n, j] += x[a, j] * y[c, j]
