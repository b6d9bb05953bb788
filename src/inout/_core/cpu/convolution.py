"""Products of truncated power series, compiled: rows are coefficients, columns are series."""

from __future__ import annotations

from inout._core.cpu.compiling import compiled

_COLUMNS = 256  # of a few rows, which then stay in the first cache


@compiled
def add_products(x, y, x_rows, y_rows, firsts, out):
    """out[n] += x[x_rows[i]] * y[y_rows[i]] for all i in firsts[n]..firsts[n + 1].

    Four products at a time: each is cheaper than reading and writing the sum.
    """
    for low in range(0, x.shape[1], _COLUMNS):
        high = min(low + _COLUMNS, x.shape[1])
        for n in range(firsts.size - 1):
            total = out[n, low:high]
            i, last = firsts[n], firsts[n + 1]
            while i + 4 <= last:
                x0, y0 = x[x_rows[i], low:high], y[y_rows[i], low:high]
                x1, y1 = x[x_rows[i + 1], low:high], y[y_rows[i + 1], low:high]
                x2, y2 = x[x_rows[i + 2], low:high], y[y_rows[i + 2], low:high]
                x3, y3 = x[x_rows[i + 3], low:high], y[y_rows[i + 3], low:high]
                for j in range(high - low):
                    total[j] += x0[j] * y0[j] + x1[j] * y1[j] + x2[j] * y2[j] + x3[j] * y3[j]
                i += 4
            while i < last:
                x0, y0 = x[x_rows[i], low:high], y[y_rows[i], low:high]
                for j in range(high - low):
                    total[j] += x0[j] * y0[j]
                i += 1
