"""Diagnoses of a grammar as plain data: useless symbols, sums, consistency, expectations, cycles.

Questions about the rules alone (undefined, unreachable, unproductive, cycles) treat a rule of
weight zero as a rule; questions about numbers treat it as absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from inout._core.lazy import LazyModule
from inout.grammars import structure
from inout.grammars.expectations import Expectations, expectations, offspring
from inout.grammars.grammar import Grammar
from inout.grammars.partition import log_partitions, spectral_radius
from inout.grammars.structure import UnaryCycle

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

# Weights printed with four digits may have sums this far from 1.
TOLERANCE = 1e-4
# Closer to 1 than this, rounding decides on which side a Perron root falls.
_CRITICAL = 1e-9


@dataclass(frozen=True, slots=True)
class Consistency:
    """Whether a PCFG's trees have total probability 1 (Booth & Thompson 1973).

    `proper`: the weights of every reachable left side sum to 1. `spectral_radius`: of the expected
    numbers of children, over reachable nonterminals. `leaking`: reachable nonterminals without a
    finite tree. `consistent` is None where the grammar is not proper, or the radius is 1 within
    rounding.
    """

    proper: bool
    spectral_radius: float
    leaking: tuple[str, ...]
    consistent: bool | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `diagnose` finds; `expectations` is None where Z of the start is 0 or infinite."""

    undefined: tuple[str, ...]
    unreachable: tuple[str, ...]
    unproductive: tuple[str, ...]
    improper: dict[str, float]
    consistency: Consistency
    log_partition: float
    expectations: Expectations | None
    cycles: tuple[UnaryCycle, ...]


def diagnose(grammar: Grammar, tolerance: float = TOLERANCE) -> Diagnosis:
    """Diagnose a grammar.

    >>> d = diagnose(Grammar.from_text("S -> S 'a' [0.5] | 'b' [0.5] | X [0]"))
    >>> d.undefined, d.consistency.consistent, d.expectations.length
    (('X',), True, 2.0)
    """
    log_z = float(log_partitions(grammar.rules, grammar.numpy_log_weights)[0])
    return Diagnosis(
        undefined=_named(grammar, ~structure.defined(grammar.rules)),
        unreachable=_named(grammar, ~structure.reachable(grammar.rules)),
        unproductive=_named(grammar, ~structure.productive(grammar.rules)),
        improper=improper(grammar, tolerance),
        consistency=consistency(grammar, tolerance),
        log_partition=log_z,
        expectations=expected(grammar) if np.isfinite(log_z) else None,
        cycles=unary_cycles(grammar),
    )


def unary_cycles(grammar: Grammar) -> tuple[UnaryCycle, ...]:
    """The groups of nonterminals that derive themselves, which gives infinitely many trees.

    Empty rules count: A → A B with B → ε is a cycle. Useless rules do not.

    >>> unary_cycles(Grammar.from_text("S -> A | 'x'\\nA -> S B\\nB ->"))
    (UnaryCycle(nonterminals=('S', 'A'), rules=(0, 2)),)
    """
    return structure.unary_cycles(grammar.rules)


def left_side_sums(grammar: Grammar) -> dict[str, float]:
    """The sum of the weights of each left side's rules; +inf on overflow."""
    with np.errstate(over="ignore"):
        weights = np.exp(grammar.numpy_log_weights)
    table = grammar.rules
    sums = np.bincount(table.lhs, weights=weights, minlength=len(grammar.nonterminals))
    named = zip(grammar.nonterminals, sums.tolist(), structure.defined(table), strict=True)
    return {name: total for name, total, has_rules in named if has_rules}


def improper(grammar: Grammar, tolerance: float = TOLERANCE) -> dict[str, float]:
    """The left sides whose weights do not sum to 1 within a tolerance, with their sums.

    >>> improper(Grammar.from_text("S -> A [0.5] | 'a' [0.25]\\nA -> 'a'"))
    {'S': 0.75}
    """
    sums = left_side_sums(grammar)
    return {name: total for name, total in sums.items() if not abs(total - 1) <= tolerance}


def offspring_radius(grammar: Grammar) -> float:
    """The spectral radius of the expected numbers of children, over reachable nonterminals.

    M[A, B] = Σ over rules A→α of w(A→α) · (number of B in α). A proper PCFG is consistent if the
    radius is below 1 and inconsistent if it is above (Booth & Thompson 1973).

    >>> offspring_radius(Grammar.from_text("S -> S S [0.4] | 'a' [0.6]"))
    0.8
    """
    with np.errstate(over="ignore"):
        weights = np.minimum(np.exp(grammar.numpy_log_weights), np.finfo(np.float64).max)
    matrix = offspring(grammar.rules, weights)
    live = np.flatnonzero(_live(grammar))
    return spectral_radius(matrix[live][:, live])


def consistency(grammar: Grammar, tolerance: float = TOLERANCE) -> Consistency:
    """Whether the grammar is a PCFG whose trees have total probability 1.

    >>> consistency(Grammar.from_text("S -> S S [0.6] | 'a' [0.4]"))
    Consistency(proper=True, spectral_radius=1.2, leaking=(), consistent=False)
    """
    table, live = grammar.rules, _live(grammar)
    with_tree = structure.productive(table, grammar.numpy_log_weights > -np.inf)
    leaking = _named(grammar, live & ~with_tree)
    wrong = improper(grammar, tolerance)
    proper = not any(name in wrong for name in _named(grammar, live & structure.defined(table)))
    radius = offspring_radius(grammar)
    consistent: bool | None = not leaking and radius < 1
    if not proper or (not leaking and abs(radius - 1) <= _CRITICAL):
        consistent = None
    return Consistency(proper, radius, leaking, consistent)


def log_partition_functions(grammar: Grammar) -> Float[torch.Tensor, " nt"]:
    """log of the sum of the weights of all trees of each nonterminal, in their order.

    −inf without a tree, +inf if the sum diverges. For a consistent PCFG all are 0.
    Newton's method on strongly connected components; see `partition.log_partitions`. Not
    differentiable.

    >>> log_partition_functions(Grammar.from_text("S -> S S [0.6] | 'a' [0.4]")).exp()
    tensor([0.6667], dtype=torch.float64)
    """
    return torch.from_numpy(log_partitions(grammar.rules, grammar.numpy_log_weights))


def expected(grammar: Grammar) -> Expectations:
    """Expected length, number of rules, counts and entropy of the grammar's distribution on trees.

    The probability of a tree is its weight divided by Z. Raises ArgumentError if Z is zero or
    infinite. Costs two sparse linear systems and `normalised`.

    >>> e = expected(Grammar.from_text("S -> 'a' S [0.75] | 'a' [0.25]"))
    >>> e.length, e.rules, e.entropy
    (4.0, 4.0, 2.2493)
    """
    return expectations(grammar.rules, grammar.normalised().numpy_log_weights)


def _live(grammar: Grammar) -> NDArray[np.bool_]:
    """Which nonterminals are reached with positive weight."""
    return structure.reachable(grammar.rules, grammar.numpy_log_weights > -np.inf)


def _named(grammar: Grammar, mask: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(grammar.nonterminals[n] for n in np.flatnonzero(mask))
