"""Folded programs against the naive grounder's derivations of the programs as written."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from inout import CycleError, Facts, Program, programs
from tests.oracle.naive_grounder import ground, has_cycle, text
from tests.oracle.test_grounding import random_program
from tests.seeds import seeds
from tests.support import assert_close

Edges = Counter[tuple[Any, tuple[Any, ...]]]


def totals(edges: Edges, weights: dict[str, list[float]]) -> tuple[Any, Any]:
    """Functions of an item: the number of its derivations, and their total weight."""
    by_head: dict[Any, list[tuple[tuple[Any, ...], int]]] = {}
    for (head, tails), number in edges.items():
        by_head.setdefault(head, []).append((tails, number))

    @cache
    def count(item: Any) -> int:
        if item[0] == "fact":
            return 1
        return sum(n * math.prod(map(count, tails)) for tails, n in by_head.get(item, []))

    @cache
    def weight(item: Any) -> float:
        if item[0] == "fact":
            return weights[item[1]][item[2]]
        return math.fsum(n * math.prod(map(weight, tails)) for tails, n in by_head.get(item, []))

    return count, weight


def compare_folded(seed: int) -> str:
    """What kind of program it was: folded, unchanged or cyclic."""
    rules, facts = random_program(seed, most=5)
    naive = ground(rules, facts)
    if naive is None:
        return "large"
    rng = np.random.default_rng(seed)
    logs = {
        name: [float(rng.normal()) if live else -math.inf for _, live in rows]
        for name, rows in facts.items()
    }
    program = Program(text(rules))
    folded = program.folded()
    assert folded.inputs.keys() == program.inputs.keys()
    leaves = {n: torch.tensor(w, dtype=torch.float64, requires_grad=True) for n, w in logs.items()}
    given = {n: Facts([row for row, _ in rows], leaves[n]) for n, rows in facts.items()}
    edges = naive.reachable("goal")
    if has_cycle(edges):
        with pytest.raises(CycleError):
            folded.ground(given)
        return "cyclic"
    forest = folded.ground(given)
    count, weight = totals(edges, {n: [math.exp(w) for w in ws] for n, ws in logs.items()})
    goals = sorted((i for i in naive.items if i[0] == "goal"), key=lambda i: i[1])
    if forest.single_goal:
        goals = [("goal", ())]
        assert forest.count() == count(goals[0])
    else:
        assert [g.arguments for g in forest.goals] == [row for _, row in goals]
        assert list(forest.count()) == [count(goal) for goal in goals]
    z = np.array([weight(goal) for goal in goals])
    assert_close(forest.log_partition().exp().reshape(-1), z)
    if forest.single_goal and z[0] > 0:
        plain = program.ground(given)
        for name in facts:
            assert_close(forest.expected_counts(name), plain.expected_counts(name))
        assert_close(forest.argmax().log_weight, plain.argmax().log_weight)
    return "folded" if len(folded.parsed.rules) > len(rules) else "unchanged"


@pytest.mark.parametrize("block", seeds(8))
@pytest.mark.few(1)
def test_random_programs_fold_to_the_same_derivations(block: int):
    kinds: Counter[str] = Counter()
    for seed in range(20 * block, 20 * block + 20):
        try:
            kinds[compare_folded(seed)] += 1
        except Exception as error:
            rules, facts = random_program(seed, most=5)
            folded = Program(text(rules)).folded().text
            raise AssertionError(f"seed {seed}:\n{text(rules)}\n{facts}\n{folded}") from error
    assert kinds["folded"] >= 4, kinds
    assert kinds["large"] <= 4, kinds


# Programs by hand: text, the folded text without its comment, facts.
BY_HAND = {
    "matrices": (
        "goal(A,D) += x(A,B) * y(B,C) * z(C,D).",
        "goal(A, D) += x(A, B) * goal_1(D, B).\ngoal_1(D, B) += y(B, C) * z(C, D).\n",
    ),
    "own variables": (
        "goal(X) += x(X,Y) * y(X,Z).",
        "goal(X) += goal_1(X) * goal_2(X).\ngoal_1(X) += x(X, Y).\ngoal_2(X) += y(X, Z).\n",
    ),
    "arithmetic": (
        "goal(K) += x(I,A) * y(A,D) * z(K,_), K = I+D, D > 0.",
        "goal(K) += goal_1(K) * goal_2(K).\n"
        "goal_1(K) += x(I, A) * y(A, D), K = I+D, D > 0.\n"
        "goal_2(K) += z(K, _).\n",
    ),
    "filters share what only they know": (
        "goal(X) += x(X,A) * ?y(X,B) * ?z(B,C) * ?y(C,D), D > 0.",
        None,
    ),
    "a filter on what is summed": ("goal(X) += x(X,A) * y(A,B) * ?z(B,C) * x(C,D), D != X.", None),
    "lists": ("goal(L) += x(A,B) * y(B,C) * z(C,D), L = [A|T], T = [D].", None),
    "products do not bind": ("goal(X) += x(X,A) * y(2*B,A) * z(B,C) * ?x(C,D).", None),
    "taken names": ("goal(A,D) += x(A,B) * goal_1(B,C) * z(C,D).  goal_1(B,C) += y(B,C).", None),
    "recursion": (
        "goal(I,M) += x(I,J), M = 1.  goal(I,M+1) += x(I,J) * y(J,K) * goal(K,M) * ?z(K,N), M < 3.",
        None,
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_programs_by_hand(name: str):
    written, wanted = BY_HAND[name]
    program = Program(written)
    folded = program.folded()
    assert len(folded.parsed.rules) > len(program.parsed.rules)
    comment, _, rest = folded.text.partition("\n")
    assert comment.startswith("% Folded: at most ")
    assert wanted in (None, rest)
    rng = np.random.default_rng(len(name))
    rows = [(i, j) for i in range(4) for j in range(4)]
    facts = {
        relation: {row: float(rng.normal()) for row in rows if rng.random() < 0.6}
        for relation in program.inputs
    }
    plain, steps = program.ground(facts), folded.ground(facts)
    assert len(plain.goals) > 1
    assert [g.arguments for g in steps.goals] == [g.arguments for g in plain.goals]
    assert list(steps.count()) == list(plain.count())
    assert_close(steps.log_partition(), plain.log_partition())
    assert folded.folded().text.splitlines()[1:] == folded.text.splitlines()[1:]


def test_what_only_filters_know_is_not_summed():
    program = Program("goal += ?y(I,K) * ?y(I,J) * x(_,A).")
    folded = program.folded()
    assert len(folded.parsed.rules) > 1
    facts = {"x": {(0, 1): 0.5}, "y": {(0, 1): 0.0, (1, 0): 0.0}}
    assert folded.ground(facts).count() == program.ground(facts).count() == 1


def test_a_program_without_long_rules_stays_as_it_is():
    program = programs.load("hmm")
    folded = program.folded()
    assert [str(r) for r in folded.parsed.rules] == [str(r) for r in program.parsed.rules]
    assert folded.goal == program.goal
    assert folded.parsed.totals == program.parsed.totals
    assert Program("top += a(X,Y) * b(Y,Z) * c(Z).", goal="top").folded().goal == "top"


def test_rules_of_too_many_relations_are_left_alone():
    body = " * ".join(f"x(A{i},A{i + 1})" for i in range(12))
    program = Program(f"goal += {body}.")
    assert program.folded().text.endswith(f"goal += {body.replace(',', ', ')}.\n")
