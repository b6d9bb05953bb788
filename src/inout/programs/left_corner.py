"""The infinite sums behind prefix probabilities: total weights and left-corner closure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.deduction import Facts
from inout.deduction.facts import Value

MAX_STEPS = 200


def left_corner_closure(
    rule: Facts | Mapping[tuple[Value, ...], float], total: Mapping[str, float] | None = None
) -> dict[str, Facts]:
    """The facts total(X) and corner(X,Y) of the program `prefix_probability`.

    `rule` are the program's rules in Chomsky normal form, rows (X,Y,Z) and (X,W). With t the
    weight of everything a symbol derives and L its left corners,

        t(X) = Σ rule(X,W) + Σ rule(X,Y,Z) t(Y) t(Z),     the least solution, by Newton's method,
        L(X,Y) = Σ_Z rule(X,Y,Z) t(Z),                    corner = Σ_k L^k = (1 - L)⁻¹.

    Both are differentiable (twice) with respect to the rules' log-weights. Known log-totals may
    be given as `total`, such as 0 for every symbol of a consistent PCFG; they are constants then.
    If the branching process is critical (a mean of exactly one child) Newton's method reaches
    only 1e-8 and t has no derivative, so give `total` then. `ArgumentError` if a sum diverges,
    even that of an unreachable symbol.

    O(s³) time for s symbols, a few dozen times; real numbers, so weights need to fit in a float.

    >>> import math
    >>> rule = {("S", "S", "S"): math.log(0.2), ("S", "a"): math.log(0.8)}
    >>> sums = left_corner_closure(rule)
    >>> sums["total"].log_weights.exp(), sums["corner"].log_weights.exp()  # (1 - 0.2)⁻¹
    (tensor([1.0000], dtype=torch.float64), tensor([1.2500], dtype=torch.float64))

    Jelinek & Lafferty (1991); Etessami & Yannakakis (2009) for Newton's method.
    """
    facts = Facts.of(rule)
    grammar = _Grammar.of(facts)
    if total is None:
        totals = _solve_totals(grammar)
    else:
        missing = [x for x in grammar.symbols if x not in total]
        if missing:
            raise ArgumentError("total", f"must have a log-weight for {missing[0]!r}")
        logs = [float(total[x]) for x in grammar.symbols]
        totals = torch.tensor(logs, dtype=torch.float64, device=grammar.lexical.device).exp()
    left = grammar.matrix(grammar.binary * totals[grammar.third], grammar.second)
    reached = _reachable(left.detach() > 0)
    closure = _resolvent(left, torch.eye(len(left), dtype=left.dtype, device=left.device))
    # A nonnegative matrix has a nonnegative (1 - L)⁻¹ exactly where Σ L^k converges.
    if closure is None or not bool((closure.detach()[reached] > 0).all()):
        raise ArgumentError("rule", ": the weights of left corners sum to infinity")
    x, y = reached.nonzero(as_tuple=True)
    pairs = [(grammar.symbols[i], grammar.symbols[j]) for i, j in zip(x, y, strict=True)]
    dtype = facts.log_weights.dtype
    return {
        "total": Facts([(symbol,) for symbol in grammar.symbols], totals.log().to(dtype)),
        "corner": Facts(pairs, closure[x, y].log().to(dtype)),
    }


@dataclass(frozen=True)
class _Grammar:
    """Weights of the rules whose symbols all derive something; symbols are numbered."""

    symbols: list[str]
    lexical: Float[Tensor, " s"]  # of every symbol: the sum of its lexical rules
    binary: Float[Tensor, " r"]
    first: Int[Tensor, " r"]
    second: Int[Tensor, " r"]
    third: Int[Tensor, " r"]

    @staticmethod
    def of(facts: Facts) -> _Grammar:
        weights = facts.log_weights.double().exp()
        finite = (weights.detach() > 0).tolist()
        rows = [(place, tuple(row)) for place, row in enumerate(facts.rows) if finite[place]]
        for place, row in rows:
            if len(row) not in (2, 3):
                raise ArgumentError(
                    "rules", f"must be rows (X, Y, Z) or (X, W). Got {row} at row {place}"
                )
        symbols = _productive([row for _, row in rows])
        number = {symbol: i for i, symbol in enumerate(symbols)}
        words = [(place, number[row[0]]) for place, row in rows if len(row) == 2]
        pairs = [
            (place, *(number[s] for s in row))
            for place, row in rows
            if len(row) == 3 and all(s in number for s in row)
        ]
        device = weights.device
        at, head = torch.tensor(words, dtype=torch.long, device=device).reshape(-1, 2).T
        lexical = weights.new_zeros(len(symbols)).index_add(0, head, weights[at])
        at, first, second, third = (
            torch.tensor(pairs, dtype=torch.long, device=device).reshape(-1, 4).T
        )
        return _Grammar([str(s) for s in symbols], lexical, weights[at], first, second, third)

    def matrix(self, values: Tensor, columns: Tensor) -> Float[Tensor, "s s"]:
        """The matrix with a rule's value added at its left side's row and the given column."""
        size = len(self.symbols)
        flat = values.new_zeros(size * size).index_add(0, self.first * size + columns, values)
        return flat.reshape(size, size)

    def step(self, totals: Float[Tensor, " s"]) -> Float[Tensor, " s"]:
        """Newton's correction to the totals: (1 - J)⁻¹ (f(t) - t)."""
        second, third = totals[self.second], totals[self.third]
        value = self.lexical.index_add(0, self.first, self.binary * second * third)
        jacobian = self.matrix(self.binary * third, self.second)
        jacobian = jacobian + self.matrix(self.binary * second, self.third)
        solution = _resolvent(jacobian, (value - totals)[:, None])
        if solution is None:
            raise ArgumentError(
                "rules",
                ": the grammar is critical, so its total weights cannot be computed this way; "
                "give `total`",
            )
        return solution[:, 0]


def _productive(rows: list[tuple[Value, ...]]) -> list[Value]:
    """The symbols that derive a sentence, in order of appearance."""
    found = {row[0] for row in rows if len(row) == 2}
    while True:
        more = {row[0] for row in rows if len(row) == 3 and row[1] in found and row[2] in found}
        if more <= found:
            return [x for x in dict.fromkeys(row[0] for row in rows) if x in found]
        found |= more


def _solve_totals(grammar: _Grammar) -> Float[Tensor, " s"]:
    with torch.no_grad():
        totals = torch.zeros_like(grammar.lexical)
        for _ in range(MAX_STEPS):
            step = grammar.step(totals)
            # From zero the method only climbs; a fall means there is no solution to climb to.
            if not bool((step >= -1e-6 * totals.clamp(min=1e-300)).all()):
                raise ArgumentError(
                    None, "the weights of the sentences sum to infinity in this grammar"
                )
            totals = totals + step.clamp(min=0)
            if bool((step <= 1e-16 * totals).all()):
                break
    if not grammar.lexical.requires_grad and not grammar.binary.requires_grad:
        return totals
    # At the solution a step changes nothing but carries the derivatives: one for each order.
    for _ in range(2):
        totals = totals + grammar.step(totals)
    return totals


def _resolvent(matrix: Float[Tensor, "s s"], right: Float[Tensor, "s c"]) -> Tensor | None:
    """(1 - matrix)⁻¹ right, None where there is no inverse."""
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    solution: Tensor
    solution, failed = torch.linalg.solve_ex(eye - matrix, right)
    return None if bool(failed) else solution


def _reachable(edges: Tensor) -> Tensor:
    """Which symbols are reached from which in zero or more steps."""
    reached = edges | torch.eye(len(edges), dtype=torch.bool, device=edges.device)
    while True:
        further = reached.double() @ reached.double() > 0
        if bool((further == reached).all()):
            return reached
        reached = further
