"""Feature matrices of nodes, and truncated SVDs of their cross moments (figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from inout._core.checks import expect_one_of
from inout._core.lazy import LazyModule
from inout._core.randomness import drawn
from inout.latent.layout import Numbers, Vector

Matrix = Any  # a sparse array of scipy
# Few need scipy, and importing it takes long.
sparse: Any = LazyModule("scipy.sparse")
linalg: Any = LazyModule("scipy.sparse.linalg")
Solver = Literal["auto", "exact", "sparse", "randomised"]
_EXACT = 250_000  # entries of a matrix that is decomposed whole
_SPARSE = 300_000  # entries of the features up to which Lanczos' iteration is quick
_OVERSAMPLING = 12
_POWER_STEPS = 3


def feature_matrix(
    keys: Sequence[Numbers],
    weights: Vector,
    sizes: Sequence[float] | None = None,
    *,
    fewest: float = 0.0,
    scaling: float | None = None,
) -> Matrix:
    """The feature vectors [n d] of n nodes: a constant, and an indicator for each key of each row.

    `keys` has an array [n] for each feature function, -1 where it saw nothing. Features whose
    nodes weigh less than `fewest` together are left out. With `scaling` κ, a feature of weight c
    is not 1 but √(n / (c + κ)), n being the weight of all nodes: what is seen rarely says more
    (Cohen et al. 2013, section 4.1; without κ, it would have variance 1). All features of a
    function are multiplied by its `sizes`. O(nodes · functions).

    >>> keys = [np.array([4, 4, 7]), np.array([-1, 0, 1])]
    >>> feature_matrix(keys, np.ones(3)).toarray().tolist()
    [[1.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0, 1.0]]
    >>> feature_matrix(keys, np.ones(3), fewest=2).shape
    (3, 2)
    """
    count = len(weights)
    rows, columns = [np.arange(count)], [np.zeros(count, np.int64)]
    counts = [np.array([weights.sum()])]
    factors = [np.ones(1)]
    width = 1
    for column, size in zip(keys, sizes or [1.0] * len(keys), strict=True):
        fires = np.flatnonzero(column >= 0)
        _, inverse = np.unique(column[fires], return_inverse=True)
        seen = np.bincount(inverse, weights[fires])
        kept = (seen >= fewest) & (seen > 0)
        numbers = np.where(kept, np.cumsum(kept) - 1, -1)[inverse]
        rows.append(fires[numbers >= 0])
        columns.append(width + numbers[numbers >= 0])
        counts.append(seen[kept])
        factors.append(np.full(len(counts[-1]), size))
        width += int(kept.sum())
    every = np.concatenate(columns)
    values = np.concatenate(factors)
    if scaling is not None:
        values *= np.sqrt(weights.sum() / (np.concatenate(counts) + scaling))
    return sparse.csr_array((values[every], (np.concatenate(rows), every)), (count, width))


@dataclass(frozen=True, eq=False)
class CrossMoments:
    """Ω = E[φ ψᵀ] [d e], or the covariance E[φ ψᵀ] - E[φ] E[ψ]ᵀ, as products with matrices.

    It is formed only if it is small: φ and ψ are sparse, but it need not be.
    """

    phi: Matrix  # [n d]
    psi: Matrix  # [n e]
    shares: Vector  # [n]: weights of the nodes that add up to 1
    centred: bool

    @property
    def shape(self) -> tuple[int, int]:
        return self.phi.shape[1], self.psi.shape[1]

    def times(self, right: Vector) -> Vector:
        """Ω X [d k]."""
        return self._product(self.phi, self.psi, right)

    def transposed_times(self, left: Vector) -> Vector:
        """Ωᵀ X [e k]."""
        return self._product(self.psi, self.phi, left)

    def dense(self) -> Vector:
        """Ω itself."""
        whole = (self.phi.T @ (self.psi * self.shares[:, None])).toarray()
        if self.centred:
            whole -= np.outer(self.phi.T @ self.shares, self.psi.T @ self.shares)
        return np.asarray(whole)

    def _product(self, first: Matrix, second: Matrix, factor: Vector) -> Vector:
        seen = second @ factor  # [n k]
        if self.centred:
            seen = seen - self.shares @ seen
        scaled = seen * (self.shares if seen.ndim == 1 else self.shares[:, None])
        return np.asarray(first.T @ scaled)


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The largest singular values [k], largest first, with their vectors [d k] and [e k]."""

    left: Vector
    values: Vector
    right: Vector


def decompose(
    moments: CrossMoments,
    rank: int,
    *,
    solver: Solver = "auto",
    generator: torch.Generator | None = None,
) -> Decomposition:
    """The `rank` largest singular values and vectors of Ω, fewer where it has fewer.

    Small matrices are decomposed whole (LAPACK), larger ones by Lanczos' iteration (ARPACK), those
    of many nodes by random projection with three power steps (Halko, Martinsson & Tropp 2011),
    drawn with `generator` (by default torch's own). Vectors have signs that make their entry of
    the largest size positive on the left, so that the answer depends on the generator alone, up to
    rounding.
    """
    expect_one_of("solver", solver, get_args(Solver))
    d, e = moments.shape
    rank = min(rank, d, e)
    if solver == "auto":
        entries = moments.phi.nnz + moments.psi.nnz
        small = d * e <= _EXACT or rank + _OVERSAMPLING >= min(d, e)
        solver = "exact" if small else "sparse" if entries <= _SPARSE else "randomised"
    if solver == "exact" or rank >= min(d, e):
        left, values, right = np.linalg.svd(moments.dense(), full_matrices=False)
        left, values, right = left[:, :rank], values[:rank], right[:rank].T
    elif solver == "sparse":
        left, values, right = _lanczos(moments, rank, generator)
    else:
        left, values, right = _randomised(moments, rank, generator)
    largest = np.abs(left).argmax(axis=0)
    signs = np.where(left[largest, np.arange(len(values))] < 0, -1.0, 1.0)
    return Decomposition(left * signs, values, right * signs)


def _lanczos(
    moments: CrossMoments, rank: int, generator: torch.Generator | None
) -> tuple[Vector, Vector, Vector]:
    d, e = moments.shape
    start = drawn(torch.randn, generator, min(d, e))
    seen = moments.times(start) if e <= d else moments.transposed_times(start)
    if not seen.any():  # Ω is 0, from which the iteration cannot start
        return np.zeros((d, 0)), np.zeros(0), np.zeros((e, 0))
    operator = linalg.LinearOperator(
        (d, e), matvec=moments.times, rmatvec=moments.transposed_times, dtype=np.float64
    )
    left, values, right = linalg.svds(operator, rank, v0=start)
    order = np.argsort(-values)
    return left[:, order], values[order], right[order].T


def _randomised(
    moments: CrossMoments, rank: int, generator: torch.Generator | None
) -> tuple[Vector, Vector, Vector]:
    d, e = moments.shape
    width = min(rank + _OVERSAMPLING, d, e)
    basis, _ = np.linalg.qr(moments.times(drawn(torch.randn, generator, e, width)))
    for _ in range(_POWER_STEPS):
        other, _ = np.linalg.qr(moments.transposed_times(basis))
        basis, _ = np.linalg.qr(moments.times(other))
    inner, values, right = np.linalg.svd(moments.transposed_times(basis).T, full_matrices=False)
    return (basis @ inner)[:, :rank], values[:rank], right[:rank].T
