"""Products of truncated power series, lane by lane, differentiable to any order.

Autograd would keep a copy for each pair of lanes; here a product keeps its two factors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Inexact
from torch import Tensor

from inout.series import cpu

# numba's dispatchers have no types for starred arguments.
_add_products: Callable[..., None] = cpu.add_products

Shape = tuple[int, ...]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def convolve(
    x: Inexact[Tensor, "l ..."], y: Inexact[Tensor, "l ..."], shape: Shape
) -> Inexact[Tensor, "l ..."]:
    """out[n] = Σ x[a] · y[n − a] over multi-indices of `shape`, flattened to l."""
    return _apply(_Convolution, x, y, shape, False)


def convolve_matrices(
    x: Inexact[Tensor, "l ... i j"], y: Inexact[Tensor, "l ... j k"], shape: Shape
) -> Inexact[Tensor, "l ... i k"]:
    """out[n] = Σ x[a] @ y[n − a]."""
    return _apply(_Convolution, x, y, shape, True)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


class _Convolution(torch.autograd.Function):
    """(x, y) -> Σ x[a] ∘ y[n − a], where ∘ multiplies numbers or matrices."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, shape: Shape, matrices: bool) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.settings = shape, matrices
        a, c, n = _index_sums(shape)
        return (_add_matrices if matrices else _add_numbers)(x, y, (a, c, n))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, y), (shape, matrices) = ctx.saved_tensors, ctx.settings
        (g,) = gradients
        turned = _transposition(matrices)
        of_x = of_y = None
        if ctx.needs_input_grad[0]:
            of_x = _reduced(_apply(_Correlation, g, turned(y).conj(), shape, matrices), x)
        if ctx.needs_input_grad[1]:
            of_y = turned(_apply(_Correlation, turned(g), x.conj(), shape, matrices))
            of_y = _reduced(of_y, y)
        return of_x, of_y, None, None


class _Correlation(torch.autograd.Function):
    """(g, w) -> Σ g[a + c] ∘ w[c] for each a: the adjoint of the convolution."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, w: Tensor, shape: Shape, matrices: bool) -> Tensor:
        ctx.save_for_backward(g, w)
        ctx.settings = shape, matrices
        a, c, n = _index_sums(shape)
        return (_add_matrices if matrices else _add_numbers)(g, w, (n, c, a))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g, w), (shape, matrices) = ctx.saved_tensors, ctx.settings
        (h,) = gradients
        turned = _transposition(matrices)
        of_g = of_w = None
        if ctx.needs_input_grad[0]:
            of_g = _reduced(_apply(_Convolution, h, turned(w).conj(), shape, matrices), g)
        if ctx.needs_input_grad[1]:
            of_w = _reduced(_apply(_Correlation, turned(g).conj(), h, shape, matrices), w)
        return of_g, of_w, None, None


@lru_cache(maxsize=64)
def _index_sums(shape: Shape) -> Rows:
    """All lanes a, c and n with a + c = n as multi-indices of `shape`."""
    indices = np.array(list(product(*(range(size) for size in shape))))
    a, c = (x.reshape(-1) for x in np.indices((len(indices), len(indices))))
    fits = (indices[a] + indices[c] < np.array(shape)).all(1)
    n = np.ravel_multi_index(tuple((indices[a] + indices[c])[fits].T), shape)
    return a[fits], c[fits], n


def _add_numbers(x: Tensor, y: Tensor, rows: Rows) -> Tensor:
    """out[rows[2]] += x[rows[0]] · y[rows[1]], for all of them."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    whole = (len(x), *np.broadcast_shapes(x.shape[1:], y.shape[1:]))
    x, y = (t.to(dtype).expand(whole).resolve_conj() for t in (x, y))
    if x.device.type == "cpu":
        out = torch.zeros(whole, dtype=dtype)
        left, right = (t.detach().reshape(len(t), -1).contiguous().numpy() for t in (x, y))
        _add_products(left, right, *rows, out.reshape(len(out), -1).numpy())
        return out
    first, second, target = (torch.from_numpy(row).to(x.device) for row in rows)
    return torch.zeros_like(x).index_add(0, target, x[first] * y[second])


def _add_matrices(x: Tensor, y: Tensor, rows: Rows) -> Tensor:
    """out[rows[2]] += x[rows[0]] @ y[rows[1]], for all of them."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    x, y = x.to(dtype), y.to(dtype)
    batch = np.broadcast_shapes(x.shape[1:-2], y.shape[1:-2])
    out = torch.zeros(len(x), *batch, x.shape[-2], y.shape[-1], dtype=dtype, device=x.device)
    first, second, target = rows
    for row in range(len(x)):  # all products with one matrix at a time
        here = np.flatnonzero(first == row)
        ours, theirs = (torch.from_numpy(i[here]).to(x.device) for i in (second, target))
        out.index_add_(0, theirs, x[row] @ y[ours])
    return out


def _transposition(matrices: bool) -> Callable[[Tensor], Tensor]:
    return (lambda x: x.mT) if matrices else (lambda x: x)


def _reduced(gradient: Tensor, like: Tensor) -> Tensor:
    """A gradient summed over what was broadcast; real where the factor is."""
    if gradient.is_complex() and not like.is_complex():
        gradient = gradient.real
    return gradient.sum_to_size(like.shape)
