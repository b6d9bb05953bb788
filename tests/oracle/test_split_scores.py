"""Rules scored by start, split and end, against all trees written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from inout import ArgumentError, Grammar, Parser
from inout.grammars import Rule, Terminal
from tests.oracle.chart_cases import derivations
from tests.seeds import seeds
from tests.support import assert_close

RULES = {
    Rule("S", ("A", "S")): 0.3, Rule("S", ("S", "A")): 0.25, Rule("S", ("A", "B", "S")): 0.2,
    Rule("S", (Terminal("a"),)): 0.4, Rule("A", ("B",)): 0.5, Rule("A", (Terminal("a"),)): 0.3,
    Rule("A", (Terminal("b"), "A")): 0.2, Rule("B", (Terminal("a"),)): 0.1,
    Rule("B", (Terminal("b"),)): 0.6, Rule("C", ()): 0.7, Rule("A", ("B", "C")): 0.15,
}  # fmt: skip
GRAMMAR = Grammar("S", list(RULES), [math.log(w) for w in RULES.values()])


def anchored(rules: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """(start, split, end, rule) of every node that has words, by recursion."""
    numbers, place, found = iter(rules), 0, []

    def grow(symbol: object) -> None:
        nonlocal place
        if not isinstance(symbol, str):
            place += 1
            return
        rule, start, split = next(numbers), place, None
        for k, child in enumerate(GRAMMAR.rules[rule].rhs):
            split = place if k == 1 else split
            grow(child)
        if place > start:
            found.append((start, place if split is None else split, place, rule))

    grow("S")
    return found


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.few(1)
def test_all_answers_are_those_of_the_scored_trees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    words, r = list("abaa"), len(GRAMMAR)
    scores = rng.normal(size=(5, 5, 5, r)) * 2
    scores[rng.random(scores.shape) < 0.05] = -np.inf
    over_spans = rng.normal(size=(4, 4, r))
    trees = derivations(GRAMMAR, words, 1e-12)
    logs = {
        rules: math.log(w)
        + sum(scores[x] + over_spans[x[0], x[2] - 1, x[3]] for x in anchored(rules))
        for rules, w in trees.items()
    }
    log_z = np.logaddexp.reduce(list(logs.values()))
    uses = np.zeros_like(scores)
    for rules, log in logs.items():
        for x in anchored(rules):
            uses[x] += math.exp(log - log_z)
    given = torch.from_numpy(scores).requires_grad_()
    weights = GRAMMAR.log_weights.clone().requires_grad_()
    parser = Parser(GRAMMAR.with_log_weights(weights))
    analyses = parser.given(words, rule_scores=torch.from_numpy(over_spans))
    forest = analyses.forest(given)
    found = forest.log_partition()
    assert_close(found, torch.tensor(log_z))
    assert forest.count() == sum(log > -np.inf for log in logs.values())
    best = forest.kbest(3)
    assert_close([x.log_weight for x in best], sorted(logs.values())[::-1][:3])
    gradient, counts = torch.autograd.grad(found, (given, weights))
    assert_close(gradient, torch.from_numpy(uses), atol=1e-10)
    own = np.zeros(r)
    for rules, log in logs.items():
        np.add.at(own, list(rules), math.exp(log - log_z))
    assert_close(counts, torch.from_numpy(own), atol=1e-10)


def test_scores_without_a_split_are_those_of_the_parser() -> None:
    words = list("abaa")
    scores = torch.randn(4, 4, len(GRAMMAR), dtype=torch.float64)
    given = Parser(GRAMMAR).given(words, rule_scores=scores)
    assert_close(given.forest().log_partition(), given.log_partition())
    whole = torch.zeros(5, 5, 5, len(GRAMMAR), dtype=torch.float64)
    whole[:-1, :, 1:] = scores[:, None]
    forest = Parser(GRAMMAR).forest(words, split_scores=whole)
    assert_close(forest.log_partition(), given.log_partition())


def test_misfits_are_refused() -> None:
    for bad in (torch.zeros(4, 4, 4, 3), torch.full((5, 5, 5, len(GRAMMAR)), math.nan)):
        with pytest.raises(ArgumentError, match="split_scores"):
            Parser(GRAMMAR).forest(list("abaa"), split_scores=bad)
    ignored = torch.full((2, 2, 2, len(GRAMMAR)), math.nan)
    ignored[0, :, 1] = ignored[0, 0, 0] = ignored[1, 1, 1] = 0.0
    forest = Parser(GRAMMAR).forest(["a"], split_scores=ignored)
    assert_close(forest.log_partition().exp(), 0.4)
