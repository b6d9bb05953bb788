"""The trees of a sentence as a `Forest`, for queries that only a forest answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout.deduction import Facts, Program
from inout.forest import Forest
from inout.grammars.parser.problem import Problem
from inout.grammars.parser.sentences import Arc

_EQUATIONS = """
goal     += start(A) * c(A, 0, N) * length(N).
c(A,I,K) += lexical(R,A,W) * word(W,I,K) * score(R,I,K,K).
c(A,I,K) += unary(R,A,B) * c(B,I,K) * score(R,I,K,K).
c(A,I,K) += binary(R,A,B,C) * c(B,I,J) * c(C,J,K) * score(R,I,J,K).
c(A,I,I) += empty(R,A) * place(I).
"""


@cache
def _program(scored: bool) -> Program:
    return Program(_EQUATIONS if scored else re.sub(r" \* score\([^)]*\)", "", _EQUATIONS))


def forest(
    problem: Problem,
    arcs: Sequence[Arc],
    known: Sequence[str],
    split_scores: Float[Tensor, "m m m r"] | None = None,
) -> Forest:
    """The forest of the arcs, whose words are `known`, differentiable by the log-weights.

    Rules are the binarised ones. Items are c(symbol, start, end); the facts `binary`, `unary`,
    `lexical` and `empty` begin with the number of the original rule, −1 for the rest of a long
    rule, whose weight is at its first part. With scores there are facts score(rule, start, split,
    end), O(n³ · rules). CycleError if there are infinitely many trees.
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
    scored = split_scores is not None or problem.rule_scores is not None
    if scored:
        used = sorted({int(row[0]) for found in rows.values() for row in found})
        facts["score"] = _scores(problem, used, split_scores)
    return _program(scored).ground(
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


def _scores(problem: Problem, rules: list[int], split_scores: Tensor | None) -> Facts:
    """score(rule, start, split, end); 0 over no words, and for the rest of long rules."""
    places = np.arange(problem.n + 1)
    rule, start, split, end = (x.ravel() for x in np.meshgrid(rules, *[places] * 3, indexing="ij"))
    spans = (start <= split) & (split <= end)
    rule, start, split, end = (x[spans] for x in (rule, start, split, end))
    empty = torch.from_numpy((rule < 0) | (start == end))
    logs = torch.zeros(len(rule), dtype=torch.float64)
    if problem.rule_scores is not None and problem.n:
        logs = logs + problem.rule_scores[start.clip(max=problem.n - 1), end - 1, rule]
    if split_scores is not None:
        logs = logs + split_scores[start, split, end, rule]
    rows = list(zip(*(x.tolist() for x in (rule, start, split, end)), strict=True))
    return Facts(rows, torch.where(empty, 0.0, logs))
