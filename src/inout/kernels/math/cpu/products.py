"""Matrix products inside compiled loops: BLAS calls too small for BLAS to start threads.

A kernel already runs on every core, each thread with elements of its own. OpenBLAS (which numba
calls) keeps products of at most 2^18 multiplications in the calling thread, so larger ones are cut
into pieces. That also makes the sums the same on any number of threads.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.limits import PRODUCT_MULTIPLICATIONS, PRODUCT_ROWS


@inner
def pieces(rows, inner, columns):
    """(rows, of what is cut besides) of a piece; the second is 0 if cutting the rows is enough.

    `inner` times `columns` is what a row costs, and what is cut besides stands in `inner`.
    """
    step = PRODUCT_MULTIPLICATIONS // (inner * columns)
    if step >= min(rows, 4):
        return step, 0
    step = min(rows, PRODUCT_ROWS)
    return step, max(PRODUCT_MULTIPLICATIONS // (step * columns), 1)


@inner
def copy_columns(x, first, out):
    """out = x[:, first:first + columns of out]."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = x[i, first + j]


@compiled
def multiply(x, y, out):
    """out [m l] = x [m k] @ y [k l]."""
    rows, inner = x.shape
    step, cut = pieces(rows, inner, y.shape[1])
    for first in range(0, rows, step):
        last = min(first + step, rows)
        if cut == 0:
            np.dot(x[first:last], y, out[first:last])
            continue
        part = np.empty((last - first, y.shape[1]), out.dtype)
        for low in range(0, inner, cut):
            high = min(low + cut, inner)
            left = np.empty((last - first, high - low), x.dtype)
            copy_columns(x[first:last], low, left)
            if low == 0:
                np.dot(left, y[low:high], out[first:last])
            else:
                np.dot(left, y[low:high], part)
                add(part.reshape(part.size), out[first:last].reshape(part.size))


@compiled
def multiply_transposed(x, y, out):
    """out [m l] = x [m k] @ y.T, y [l k]."""
    rows, columns = x.shape[0], y.shape[0]
    step, cut = pieces(rows, columns, y.shape[1])
    for first in range(0, rows, step):
        last = min(first + step, rows)
        if cut == 0:
            np.dot(x[first:last], y.T, out[first:last])
            continue
        for low in range(0, columns, cut):
            high = min(low + cut, columns)
            part = np.empty((last - first, high - low), out.dtype)
            np.dot(x[first:last], y[low:high].T, part)
            for i in range(part.shape[0]):
                for j in range(part.shape[1]):
                    out[first + i, low + j] = part[i, j]


@compiled
def add_product_of_columns(x, y, out):
    """out [k l] += x.T @ y of x [m k] and y [m l]."""
    rows, columns = x.shape
    step, cut = pieces(rows, columns, y.shape[1])
    if cut == 0:
        cut = columns
    for first in range(0, rows, step):
        last = min(first + step, rows)
        for low in range(0, columns, cut):
            high = min(low + cut, columns)
            part = np.empty((high - low, y.shape[1]), out.dtype)
            if high - low == columns:
                np.dot(x[first:last].T, y[first:last], part)
            else:
                left = np.empty((last - first, high - low), x.dtype)
                copy_columns(x[first:last], low, left)
                np.dot(left.T, y[first:last], part)
            add(part.reshape(part.size), out[low:high].reshape(part.size))


@inner
def add(x, out):
    """out += x, both flat."""
    for k in range(out.shape[0]):
        out[k] += x[k]
