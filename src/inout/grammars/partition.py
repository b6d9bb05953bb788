"""The partition function of every nonterminal: the sum of the weights of its trees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import InoutError
from inout._core.graphs import strong_components
from inout._core.lazy import LazyModule
from inout.grammars.structure import productive, rules_within
from inout.grammars.table import RuleTable

Vector = NDArray[np.float64]
Matrix = Any  # a scipy sparse array
# Few need scipy, and importing it takes long.
sparse: Any = LazyModule("scipy.sparse")
sparse_linalg: Any = LazyModule("scipy.sparse.linalg")

_EPSILON = float(np.finfo(np.float64).eps)
# A Perron root this close to 1 is 1 but for rounding; worth a look where a step is this large.
_ROOT_ROUNDING = 1e-13
_SUSPICIOUS = 1e6
# Steps that are zero in exact arithmetic may come out negative, by less than this share.
_ROUNDING = 1e-9
# No sum of weights that floats can hold comes near: the log of it grows without end.
_ENDLESS = 1e10
_MOST_STEPS = 2000
_LAST_STEP = 1e-9
_DENSE = 200  # up to here dense systems and eigenvalues take milliseconds


def log_partitions(table: RuleTable, log_weights: Vector) -> Vector:
    """log Z of every nonterminal: [nt]; −inf without a tree, +inf if the sum diverges.

    Z is the least solution of Z(A) = Σ over rules A→α of w(A→α) · Π over B in α of Z(B). Strongly
    connected components are solved from the leaves up, each by Newton's method from below, which
    converges quadratically (Etessami & Yannakakis 2009; Nederhof & Satta 2008). A component at
    its critical point (Perron root of the Jacobian 1) converges linearly, to about 1e-8. One step
    solves a sparse linear system of the component's size.
    """
    possible = log_weights > -np.inf
    alive = productive(table, possible)
    kept = possible & rules_within(table, alive)
    order = np.flatnonzero(kept)
    order = order[np.argsort(table.lhs[order], kind="stable")]
    bounds = np.searchsorted(table.lhs[order], np.arange(len(alive) + 1))
    edges = kept[table.owners] & (table.rhs >= 0)
    parts = strong_components(len(alive), table.lhs[table.owners[edges]], table.rhs[edges])
    result = np.full(len(alive), -np.inf)
    local = np.full(len(alive), -1)
    for part in parts:
        if alive[part[0]]:
            local[part] = np.arange(len(part))
            rules = np.concatenate([order[bounds[a] : bounds[a + 1]] for a in part])
            equations = _equations(table, log_weights, rules, local, len(part), result)
            result[part] = _least_solution(equations)
            local[part] = -1
    return result


@dataclass(frozen=True, slots=True)
class _Equations:
    """u(A) = log Σ exp(base + Σ u(children)) over the rules of A, one for each of `size` symbols.

    What does not depend on the component's own symbols is in `base`.
    """

    size: int
    rows: NDArray[np.int64]  # [k]: the equation that each rule belongs to
    base: Vector  # [k]
    owners: NDArray[np.int64]  # [c]: the rule of each child
    children: NDArray[np.int64]  # [c]

    def around(self, centre: float) -> _Equations:
        """The equations for u − centre."""
        inner = np.bincount(self.owners, minlength=len(self.base))
        return replace(self, base=self.base + (inner - 1) * centre)

    def terms(self, u: Vector) -> Vector:
        """The log of each rule's term: [k]."""
        below = np.bincount(self.owners, weights=u[self.children], minlength=len(self.base))
        return self.base + below

    def sums(self, terms: Vector) -> Vector:
        """The log of the right side of each equation: [size]."""
        highest = np.full(self.size, -np.inf)
        np.maximum.at(highest, self.rows, terms)
        shift = np.where(highest > -np.inf, highest, 0.0)
        total = np.bincount(self.rows, np.exp(terms - shift[self.rows]), minlength=self.size)
        with np.errstate(divide="ignore"):
            return shift + np.log(total)

    def jacobian(self, terms: Vector, sums: Vector) -> Matrix:
        """The derivatives of `sums` with respect to u: [size size]."""
        share = np.exp(terms - sums[self.rows])
        places = (self.rows[self.owners], self.children)
        return csr_matrix(share[self.owners], places, self.size)


def _equations(
    table: RuleTable,
    log_weights: Vector,
    rules: NDArray[np.int64],
    local: NDArray[np.int64],
    size: int,
    below: Vector,
) -> _Equations:
    arities = table.arities[rules]
    owners = np.repeat(np.arange(len(rules)), arities)
    first = np.cumsum(arities) - arities
    symbols = table.rhs[np.arange(len(owners)) + np.repeat(table.offsets[rules] - first, arities)]
    owners, symbols = owners[symbols >= 0], symbols[symbols >= 0]
    inside = local[symbols] >= 0
    known = np.bincount(owners[~inside], below[symbols[~inside]], minlength=len(rules))
    return _Equations(
        size,
        local[table.lhs[rules]],
        log_weights[rules] + known,
        owners[inside],
        local[symbols[inside]],
    )


def _least_solution(equations: _Equations) -> Vector:
    """The least solution, all +inf where none is finite: in a component all are or none is."""
    endless = np.full(equations.size, np.inf)
    if np.isposinf(equations.base).any():
        return endless
    if not len(equations.children):
        return equations.sums(equations.base)
    u = np.full(equations.size, -np.inf)
    while np.isneginf(u).any():
        # A round of plain iteration gives a value to at least one more symbol.
        u = equations.sums(equations.terms(u))
    # Around their largest, the values are small numbers, and unary cycles keep every digit.
    centre = float(u.max())
    equations, u = equations.around(centre), u - centre
    linear = bool(np.bincount(equations.owners).max() == 1)
    for _ in range(_MOST_STEPS):
        terms = equations.terms(u)
        sums = equations.sums(terms)
        rise = np.maximum(sums - u, 0.0)
        scale = 1.0 + max(np.abs(u).max(), np.abs(equations.base).max())
        step = _newton_step(equations.jacobian(terms, sums), rise, linear)
        if rise.max() <= 4 * _EPSILON * scale:
            # At a critical point the last step is rounding and nothing else.
            if step is not None and step.max() < _LAST_STEP:
                return centre + u + step
            return centre + sums
        if step is None or (u := u + step).max() > _ENDLESS:
            return endless
        if step.max() <= _EPSILON * scale:
            return centre + u
    raise InoutError(f"the partition function did not converge in {_MOST_STEPS} Newton steps")


def _newton_step(jacobian: Matrix, rise: Vector, linear: bool) -> Vector | None:
    """What to add to u = log Z to come nearer from below, or None where no solution lies above.

    Below the least solution the Jacobian's Perron root is less than 1 and the step is not
    negative, for Z as the unknown and for log Z. Steps in Z are exact for linear equations, whose
    Jacobian says at once whether there is a solution; steps in log Z bring far-off values near
    without leaving the floats.
    """
    near = rise.max() <= (3.0 if linear else 1.0)
    if near:
        jacobian = sparse.diags_array(np.exp(rise)) @ jacobian
    solution = solve_identity_minus(jacobian, np.expm1(rise) if near else rise)
    if solution is None:
        return None
    doubtful = near and (linear or solution.max() > _SUSPICIOUS)
    if doubtful and perron_root(jacobian) >= 1 - _ROOT_ROUNDING:
        return None
    if solution.min() < -_ROUNDING * solution.max():
        return None
    solution = np.maximum(solution, 0.0)
    return np.log1p(solution) if near else solution


def solve_identity_minus(matrix: Matrix, right: Vector) -> Vector | None:
    """The solution x of (I − matrix) x = right, or None where that is singular."""
    size = matrix.shape[0]
    try:
        if size <= _DENSE:
            solution = np.linalg.solve(np.eye(size) - matrix.toarray(), right)
        else:
            system = sparse.csc_array(sparse.eye_array(size) - matrix)
            solution = sparse_linalg.splu(system).solve(right)
    except (np.linalg.LinAlgError, RuntimeError):  # exactly singular
        return None
    return solution if np.isfinite(solution).all() else None


def csr_matrix(values: Vector, places: tuple[NDArray[Any], NDArray[Any]], size: int) -> Matrix:
    """A square sparse matrix of values at (rows, columns), duplicates added up."""
    return sparse.csr_array((values, places), shape=(size, size))


def spectral_radius(matrix: Matrix) -> float:
    """The largest absolute eigenvalue of a matrix [n n] without negative entries.

    It is the largest Perron root of the strongly connected components, each found on its own:
    iterations on the whole matrix can be arbitrarily slow where it is reducible. Dense
    eigenvalues up to 200 rows, Arnoldi iteration above.

    >>> from scipy import sparse
    >>> spectral_radius(sparse.csr_array([[0.5, 100.0], [0.0, 0.25]]))
    0.5
    """
    entries = sparse.coo_array(matrix)
    rows, columns = entries.coords
    positive = entries.data > 0
    parts = strong_components(matrix.shape[0], rows[positive], columns[positive])
    matrix = sparse.csr_array(matrix)
    return max((perron_root(matrix[part][:, part]) for part in parts), default=0.0)


def perron_root(block: Matrix) -> float:
    """The Perron root of an irreducible matrix: its eigenvalue of the largest real part."""
    size = block.shape[0]
    if size == 1:
        return float(block.toarray()[0, 0])
    if size > _DENSE:
        try:
            values = sparse_linalg.eigs(
                block, k=1, which="LR", v0=np.ones(size), return_eigenvectors=False
            )
            return float(values[0].real)
        except sparse_linalg.ArpackNoConvergence:
            pass  # dense is slow, and certain
    return float(np.linalg.eigvals(block.toarray()).real.max())
