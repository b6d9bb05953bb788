"""Matrix products inside compiled loops: BLAS calls too small for BLAS to start threads.

A kernel already runs on every core, each thread with elements of its own. OpenBLAS (which numba
calls) keeps products of at most 2^18 multiplications in the calling thread, so larger ones are cut
into pieces. That also makes the sums the same on any number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LIMIT = 2**18


@njit(cache=True, nogil=True)
def piece(rows, size):
    """How many of the rows to take at a time, each being worth `size` multiplications."""
    # Of pieces of a few rows nothing would be gained: BLAS may then use its threads.
    return LIMIT // size if LIMIT // size >= 4 else rows


@njit(cache=True, nogil=True)
def multiply(x, y, out):
    """out [m l] = x [m k] @ y [k l]."""
    rows = x.shape[0]
    step = piece(rows, y.shape[0] * y.shape[1])
    for first in range(0, rows, step):
        last = min(first + step, rows)
        np.dot(x[first:last], y, out[first:last])


@njit(cache=True, nogil=True)
def multiply_transposed(x, y, out):
    """out [m l] = x [m k] @ y.T, y [l k]."""
    rows = x.shape[0]
    step = piece(rows, y.shape[0] * y.shape[1])
    for first in range(0, rows, step):
        last = min(first + step, rows)
        np.dot(x[first:last], y.T, out[first:last])


@njit(cache=True, nogil=True)
def add_product_of_columns(x, y, out):
    """out [k l] += x.T @ y of x [m k] and y [m l]."""
    rows = x.shape[0]
    step = piece(rows, x.shape[1] * y.shape[1])
    part = np.empty(out.shape, out.dtype)
    for first in range(0, rows, step):
        last = min(first + step, rows)
        np.dot(x[first:last].T, y[first:last], part)
        add(part.reshape(part.size), out.reshape(out.size))


@njit(cache=True, nogil=True)
def add(x, out):
    """out += x, both flat."""
    for k in range(out.shape[0]):
        out[k] += x[k]
