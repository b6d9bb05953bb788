"""Probabilities of prefixes: scaled arithmetic, and log space where it fails."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout.kernels.limits import SPARSE_LOG_GROWTH, SPARSE_RAISED, SPARSE_SLACK, SPARSE_SPECK
from inout.kernels.sparse.cpu import prefix
from inout.kernels.sparse.cpu.passes import ParsingPasses

Array = NDArray[Any]


class Steps(NamedTuple):
    """x = (I − L)⁻¹ b as sums one after the other: x[target] += exp(factor) x[source].

    x is b in the beginning. Where L has few pairs there are few steps, and all they do is to add
    and multiply what is not negative.
    """

    targets: NDArray[np.int32]  # [k]
    sources: NDArray[np.int32]  # [k]
    factors: NDArray[np.float64]  # [k], logarithms

    def log_applied(self, values: Array) -> NDArray[np.float64]:
        """log x [s], given log b."""
        result = np.array(values, np.float64)
        prefix.log_climb(self, result)
        return result


class Prefixes(NamedTuple):
    """Log-probabilities [n] of beginning with the first 1 to n words, and of being just these."""

    begins: NDArray[np.float64]
    sentences: NDArray[np.float64]


def elimination(log_matrix: Array, log_ends: Array) -> Steps:
    """The steps that solve x = b + exp(log_matrix) x, given a chain [m m] that ends.

    Rows and exp(log_ends) [m] sum to 1: this is not checked, and a last part of the sum that is
    lost in rounding matters only as log_ends, from which it is taken. From every state some end
    can be reached. O(m²) and what filling in takes, at most O(m³).

    >>> steps = elimination(np.log([[0.75]]), np.log([0.25]))
    >>> np.exp(steps.log_applied(np.log([1.0]))).round(12)
    array([4.])
    """
    matrix = np.array(log_matrix, np.float64)
    order = np.empty(len(matrix), np.int64)
    prefix.eliminate(matrix, np.array(log_ends, np.float64), order)
    matrix = matrix[order][:, order]
    rows, columns = np.nonzero(matrix > -np.inf)
    factors = matrix[rows, columns]
    # What a state gives to those that are still there, in the order of elimination; then, the last
    # first, what it gets: from itself and from those, whose values are known.
    down = rows > columns
    first = np.lexsort((rows[down], columns[down]))
    second = np.lexsort((columns[~down], -rows[~down]))
    places = np.append(np.flatnonzero(down)[first], np.flatnonzero(~down)[second])
    targets, sources = (order[x[places]].astype(np.int32) for x in (rows, columns))
    return Steps(targets, sources, factors[places])


def prefix_log_probs(passes: ParsingPasses, steps: Steps) -> Prefixes:
    """Of the only sentence, given rules whose probabilities sum to 1 for each symbol.

    steps: (I − L)⁻¹ with L[A, B] the probability that a tree of A has B as its first child; unary
    rules are in it too, as single steps and not as the chains that the passes have. Lattices,
    spans that are not allowed, and beams have no part in it.

    >>> from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    >>> rules = RuleArrays.compile(1, 0, np.array([[0, 0, 0]]), np.empty((0, 2), int))
    >>> words = SentenceArrays(np.array([0, 2]), np.arange(3), np.zeros(2, np.int32))
    >>> weights = np.log([0.25]), np.empty(0), np.log([0.75, 0.75])
    >>> passes = ParsingPasses(rules, words, *weights)
    >>> found = prefix_log_probs(passes, elimination(np.log([[0.25]]), np.log([0.75])))
    >>> np.exp(found.begins).round(12), np.exp(found.sentences).round(12)
    (array([1.  , 0.25]), array([0.75    , 0.140625]))
    """
    n = int(passes.sentences.lengths[0])
    begins, sentences = np.full(n, -np.inf), np.full(n, -np.inf)
    if n == 0:
        return Prefixes(begins, sentences)
    growth = steps.log_applied(np.zeros(passes.rules.num_symbols)).max()
    lost = bool(growth > SPARSE_LOG_GROWTH)
    if not lost:
        climb = steps._replace(factors=np.maximum(np.exp(steps.factors), SPARSE_SPECK))
        if prefix.prefixes(passes.scaled_problem(), 0, n, climb, begins, sentences):
            bounds = np.full(n, -np.inf), np.full(n, -np.inf)
            prefix.prefixes(passes.scaled_problem(SPARSE_RAISED), 0, n, climb, *bounds)
            lost = bool(
                (bounds[0] > begins + SPARSE_SLACK).any()
                or (bounds[1] > sentences + SPARSE_SLACK).any()
            )
    if lost:
        prefix.log_prefixes(passes.log_problem, 0, n, steps, begins, sentences)
    return Prefixes(begins, sentences)
