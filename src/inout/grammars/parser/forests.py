"""The trees of a sentence as a `Forest`, for queries that only a forest answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from inout.deduction import Facts, Program
from inout.forest import Forest
from inout.grammars.parser.problem import Problem
from inout.grammars.parser.sentences import Arc

_EQUATIONS = """
goal     += start(A) * c(A, 0, N) * length(N).
c(A,I,K) += lexical(R,A,W) * word(W,I,K).
c(A,I,K) += unary(R,A,B) * c(B,I,K).
c(A,I,K) += binary(R,A,B,C) * c(B,I,J) * c(C,J,K).
c(A,I,I) += empty(R,A) * place(I).
"""


@cache
def _program() -> Program:
    return Program(_EQUATIONS)


def forest(problem: Problem, arcs: Sequence[Arc], known: Sequence[str]) -> Forest:
    """The forest of the arcs, whose words are `known`, differentiable by the log-weights.

    Rules are the binarised ones. Items are c(symbol, start, end); the facts `binary`, `unary`,
    `lexical` and `empty` begin with the number of the original rule, −1 for the rest of a long
    rule, whose weight is at its first part. CycleError if there are infinitely many trees.
    """
    form = problem.form
    table, base = form.binarisation.table, problem.base
    weights = form.binarisation.log_weights(form.selection.log_weights(base))
    kept = np.append(form.selection.kept, -1)
    original = kept[form.binarisation.original].tolist()
    rows: dict[str, list[tuple[str | int, ...]]] = {}
    numbers: dict[str, list[int]] = {}
    spoken = set(known)
    for number, (lhs, rhs) in enumerate(table.named()):
        symbols = [s if isinstance(s, str) else s.text for s in rhs]
        if len(rhs) == 1 and not isinstance(rhs[0], str):
            kind = "lexical"
            if symbols[0] not in spoken:
                continue
        else:
            kind = ("empty", "unary", "binary")[len(rhs)]
        rows.setdefault(kind, []).append((original[number], lhs, *symbols))
        numbers.setdefault(kind, []).append(number)
    facts = {
        kind: Facts(rows.get(kind, []), weights[numbers.get(kind, [])])
        for kind in ("lexical", "unary", "binary", "empty")
    }
    return _program().ground(
        {
            **facts,
            "start": [(table.start,)],
            "length": [(problem.n,)],
            "place": [(i,) for i in range(problem.n + 1)],
            "word": Facts(
                [(word, arc.source, arc.target) for arc, word in zip(arcs, known, strict=True)],
                [arc.log_weight for arc in arcs],
            ),
        }
    )
