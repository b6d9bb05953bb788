"""Products of truncated power series, lane by lane, differentiable to any order.

Autograd would keep a copy for each pair of lanes; here a product keeps its two factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Inexact
from numpy.typing import NDArray
from torch import Tensor

from inout._core.cpu.convolution import add_products

Shape = tuple[int, ...]


def convolve(
    x: Inexact[Tensor, "l ..."], y: Inexact[Tensor, "l ..."], shape: Shape
) -> Inexact[Tensor, "l ..."]:
    """out[n] = Σ x[a] · y[n − a] over multi-indices of `shape`, flattened to l."""
    return _product(x, y, shape, matrices=False)


def convolve_matrices(
    x: Inexact[Tensor, "l ... i j"], y: Inexact[Tensor, "l ... j k"], shape: Shape
) -> Inexact[Tensor, "l ... i k"]:
    """out[n] = Σ x[a] @ y[n − a]."""
    return _product(x, y, shape, matrices=True)


def _product(x: Tensor, y: Tensor, shape: Shape, matrices: bool, adjoint: bool = False) -> Tensor:
    result: Tensor = _Convolution.apply(x, y, shape, matrices, adjoint)  # type: ignore[no-untyped-call]
    return result


class _Convolution(torch.autograd.Function):
    """(x, y) -> Σ x[a] ∘ y[n − a], where ∘ multiplies numbers or matrices.

    The adjoint, a correlation: (x, y) -> Σ x[a + c] ∘ y[c] for each a.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, shape: Shape, matrices: bool, adjoint: bool
    ) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.settings = shape, matrices, adjoint
        return (_add_matrices if matrices else _add_numbers)(x, y, _rows(shape, adjoint))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, y), (shape, matrices, adjoint) = ctx.saved_tensors, ctx.settings
        (g,) = gradients
        turned: Callable[[Tensor], Tensor] = (lambda x: x.mT) if matrices else (lambda x: x)
        of_x = of_y = None
        if ctx.needs_input_grad[0]:
            of_x = _reduced(_product(g, turned(y).conj(), shape, matrices, not adjoint), x)
        if ctx.needs_input_grad[1]:
            if adjoint:
                of_y = _product(turned(x).conj(), g, shape, matrices, True)
            else:
                of_y = turned(_product(turned(g), x.conj(), shape, matrices, True))
            of_y = _reduced(of_y, y)
        return of_x, of_y, None, None, None


@dataclass(frozen=True, eq=False)
class _Rows:
    """Products of lanes to add up: those of x[left[i]] and y[right[i]] belong to out[target[i]]."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    target: NDArray[np.int64]  # in increasing order
    firsts: NDArray[np.int64]  # of the products of each target


@lru_cache(maxsize=64)
def _rows(shape: Shape, adjoint: bool = False) -> _Rows:
    """All a, c, n with a + c = n: x[a] y[c] to n or, in the adjoint, x[n] y[c] to a."""
    indices = np.array(list(product(*(range(size) for size in shape))))
    a, c = (x.reshape(-1) for x in np.indices((len(indices), len(indices))))
    fits = (indices[a] + indices[c] < np.array(shape)).all(1)
    a, c = a[fits], c[fits]
    n = np.ravel_multi_index(tuple((indices[a] + indices[c]).T), shape)
    left, target = (n, a) if adjoint else (a, n)
    order = np.argsort(target, kind="stable")
    left, right, target = left[order], c[order], target[order]
    return _Rows(left, right, target, np.searchsorted(target, np.arange(len(indices) + 1)))


def _add_numbers(x: Tensor, y: Tensor, rows: _Rows) -> Tensor:
    """Sums of products of numbers, element by element."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    whole = (len(x), *np.broadcast_shapes(x.shape[1:], y.shape[1:]))
    x, y = (t.to(dtype).expand(whole).resolve_conj() for t in (x, y))
    if x.device.type == "cpu":
        out = torch.zeros(whole, dtype=dtype)
        left, right = (t.detach().reshape(len(t), -1).contiguous().numpy() for t in (x, y))
        sums = out.reshape(len(out), -1).numpy()
        add_products(left, right, rows.left, rows.right, rows.firsts, sums)
        return out
    first, second, target = (
        torch.from_numpy(row).to(x.device) for row in (rows.left, rows.right, rows.target)
    )
    return torch.zeros_like(x).index_add(0, target, x[first] * y[second])


def _add_matrices(x: Tensor, y: Tensor, rows: _Rows) -> Tensor:
    dtype = torch.promote_types(x.dtype, y.dtype)
    x, y = x.to(dtype), y.to(dtype)
    batch = np.broadcast_shapes(x.shape[1:-2], y.shape[1:-2])
    out = torch.zeros(len(x), *batch, x.shape[-2], y.shape[-1], dtype=dtype, device=x.device)
    for lane in range(len(x)):  # all products with one matrix at a time
        here = np.flatnonzero(rows.left == lane)
        right, target = (torch.from_numpy(i[here]).to(x.device) for i in (rows.right, rows.target))
        out.index_add_(0, target, x[lane] @ y[right])
    return out


def _reduced(gradient: Tensor, like: Tensor) -> Tensor:
    """A gradient summed over what was broadcast; real where the factor is."""
    if gradient.is_complex() and not like.is_complex():
        gradient = gradient.real
    return gradient.sum_to_size(like.shape)
