"""Expected counts of a grammar's own distribution over trees, by linear systems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inout.grammars.partition import (
    Matrix,
    Vector,
    csr_matrix,
    solve_identity_minus,
    spectral_radius,
)
from inout.grammars.structure import reachable
from inout.grammars.table import RuleTable

# Closer to 1 than this, a Perron root that was computed may be 1, and the expectations infinite.
_CRITICAL = 1e-7


@dataclass(frozen=True, slots=True)
class Expectations:
    """Expectations over the trees of a grammar; all but the counts are infinite at criticality.

    `nonterminal_counts` and `rule_counts` are the expected numbers of each in a tree: [nt], [r].
    `entropy` is that of the distribution over trees (derivational entropy), in nats.
    """

    length: float
    rules: float
    entropy: float
    nonterminal_counts: NDArray[np.float64]
    rule_counts: NDArray[np.float64]


def offspring(table: RuleTable, weights: Vector) -> Matrix:
    """M with M[A, B] = Σ over rules A→α of their weight times the number of B in α: [nt nt]."""
    size = len(table.nonterminals)
    keep = (table.rhs >= 0) & (weights[table.owners] > 0)
    owners = table.owners[keep]
    places = (table.lhs[owners], table.rhs[keep])
    return csr_matrix(weights[owners], places, size)


def proper_log_weights(table: RuleTable, log_weights: Vector, log_z: Vector) -> NDArray[np.float64]:
    """The log-probability of each rule given its left side, in a tree of finite total weight.

    log p(A→α) = log w(A→α) + Σ over B in α of log Z(B) − log Z(A): [r]. −inf where a symbol has
    no tree; unchanged where Z(A) is infinite (Chi 1999; Nederhof & Satta 2003).
    """
    inner = table.rhs >= 0
    owners, children = table.owners[inner], table.rhs[inner]
    above = log_z[table.lhs]
    with np.errstate(invalid="ignore"):
        below = np.bincount(owners, weights=log_z[children], minlength=len(table))
        result = log_weights + below - above
    result[(log_weights == -np.inf) | (above == -np.inf)] = -np.inf
    dead = log_z[children] == -np.inf
    result[owners[dead]] = -np.inf
    return np.where(np.isposinf(above), log_weights, result)


def expectations(table: RuleTable, log_probabilities: Vector) -> Expectations:
    """The expectations of a proper PCFG whose start symbol has total probability 1.

    Expected numbers of nonterminals solve n = e_start + Mᵀ n, with M as in `offspring`; length,
    rules and entropy are sums over them. One sparse linear system.
    """
    probabilities = np.exp(log_probabilities)
    live = reachable(table, probabilities > 0)
    probabilities = np.where(live[table.lhs], probabilities, 0.0)
    matrix = offspring(table, probabilities)
    start = np.zeros(len(live))
    start[0] = 1.0
    counts = None
    if spectral_radius(matrix) < 1 - _CRITICAL:
        counts = solve_identity_minus(matrix.T.tocsr(), start)
    if counts is None:
        counts = np.where(live, np.inf, 0.0)
    used = probabilities > 0
    uses = np.zeros(len(table))
    uses[used] = counts[table.lhs[used]] * probabilities[used]
    words = np.bincount(table.owners[table.rhs < 0], minlength=len(table)).astype(np.float64)
    surprise = np.where(used & (probabilities < 1), -log_probabilities, 0.0)
    return Expectations(
        length=_dot(uses, words),
        rules=float(uses.sum()),
        entropy=_dot(uses, surprise),
        nonterminal_counts=counts,
        rule_counts=uses,
    )


def _dot(a: Vector, b: Vector) -> float:
    """Σ a · b, where zero times infinity is zero."""
    both = (a != 0) & (b != 0)
    return float((a[both] * b[both]).sum())
