"""A forest as a PCFG: the same derivations with the same probabilities (Eisner 2016, section 7)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch

from inout import Forest, ForestBuilder, ForestError, Grammar, Parser
from inout.grammars.expectations import expectations
from inout.grammars.sampling import sample_trees
from tests.oracle.forest_cases import SEEDS, Case, case, with_gradient
from tests.support import assert_close


def trees(grammar: Grammar, symbol: str) -> Iterator[tuple[float, tuple]]:
    """(log-probability, nested tuple) of all trees of a symbol."""
    logs = grammar.log_weights.tolist()
    for log, rule in zip(logs, grammar.rules, strict=True):
        if rule.lhs == symbol:
            below = [
                list(trees(grammar, s)) if isinstance(s, str) else [(0.0, s.text)] for s in rule.rhs
            ]
            for parts in product(*below):
                yield log + sum(x for x, _ in parts), (symbol, *(t for _, t in parts))


def nested(this: Case, edges: Iterator[int], item: int) -> tuple | str:
    """An enumerated derivation, given its edges in preorder."""
    if item < this.random.num_axioms:
        return f"item {item}"
    edge = next(edges)
    return (f"item {item}", *(nested(this, edges, t) for t in this.oracle.tails[edge]))


def derivations(this: Case) -> dict[tuple | str, float]:
    """Probabilities of the derivations; those by edges with the same tails are one tree."""
    found: dict[tuple | str, float] = {}
    (only,) = this.goals
    for tree, p in zip(only.trees, only.probabilities.tolist(), strict=True):
        shape = nested(this, iter(tree.edges), int(this.random.goals[0]))
        found[shape] = found.get(shape, 0.0) + p
    return found


POSSIBLE = [s for s in SEEDS if case(s).goals[0].trees]


@pytest.mark.parametrize("seed", POSSIBLE)
def test_trees_are_the_derivations_with_their_probabilities(seed: int) -> None:
    this = case(seed)
    grammar = Grammar.from_forest(this.forest)
    found = {tree: math.exp(log) for log, tree in trees(grammar, grammar.start)}
    wanted = derivations(this)
    if isinstance(next(iter(wanted)), str):  # the goal is an axiom
        wanted = {(name, name): p for name, p in wanted.items()}
    assert found.keys() == wanted.keys()
    assert_close(list(found.values()), [wanted[x] for x in found], rtol=1e-10)
    sums = Counter()
    for rule, log in zip(grammar.rules, grammar.log_weights.tolist(), strict=True):
        sums[rule.lhs] += math.exp(log)
    assert_close(list(sums.values()), [1.0] * len(sums))


@pytest.mark.parametrize("seed", POSSIBLE[:4])
def test_it_is_differentiable(seed: int) -> None:
    forest, leaves = with_gradient(case(seed).forest)
    grammar = Grammar.from_forest(forest)
    scales = torch.from_numpy(case(seed).rng(9).normal(size=len(grammar)))
    found = torch.autograd.grad(
        (grammar.log_weights * scales).sum(), list(leaves.values()), materialize_grads=True
    )
    step = 1e-6
    for name, gradient in zip(leaves, found, strict=True):
        for row in range(len(gradient)):
            moved = []
            for sign in (1, -1):
                weights = leaves[name].detach().clone()
                weights[row] += sign * step
                logs = Grammar.from_forest(forest.with_weights(**{name: weights})).log_weights
                moved.append(float((logs.detach() * scales).sum()))
            assert gradient[row].item() == pytest.approx((moved[0] - moved[1]) / 2 / step, abs=1e-6)


def test_sampling_agrees() -> None:
    """Trees drawn top-down from the grammar have the derivations' probabilities."""
    parser = Parser(Grammar.from_text("S -> S S [0.4] | 'a' [0.6]"))
    forest = parser.forest(["a"] * 4)
    grammar = Grammar.from_forest(forest)
    n = 4000
    drawn = sample_trees(grammar, n, generator=torch.Generator().manual_seed(5))
    counts = Counter(str(tree) for tree in drawn)
    assert len(counts) == forest.count() == 5
    # All five are equally likely: chi-square with 4 degrees of freedom, above 18.5 in 1 of 1,000.
    assert sum((c - n / 5) ** 2 / (n / 5) for c in counts.values()) < 18.5
    expected = expectations(grammar.rules, grammar.numpy_log_weights).rule_counts
    counts_of = zip(forest.labels, forest.expected_counts(), strict=True)
    named = {str(label): count for label, count in counts_of}
    own = Counter()
    for rule, count in zip(grammar.rules, expected.tolist(), strict=True):
        own[rule.lhs] += count
    for name, count in own.items():
        assert_close(count, named[name])


def built(log_weight: float, twice: bool = False) -> Forest:
    builder = ForestBuilder()
    rare, common = builder.axiom("rare", log_weight=log_weight), builder.axiom("b", log_weight=0.0)
    builder.edge("S", [rare])
    builder.edge("S", [common])
    if twice:
        builder.edge("S", [common])
    return builder.build(goal="S")


def test_rare_edges_keep_their_logs_and_same_edges_are_one_rule() -> None:
    assert_close(Grammar.from_forest(built(-5000.0)).log_weights, [-5000.0, 0.0])
    assert_close(Grammar.from_forest(built(0.0, True)).log_weights.exp(), np.array([1, 2]) / 3)
    assert len(Grammar.from_forest(built(-math.inf))) == 1


def test_forests_that_are_no_grammar_are_refused() -> None:
    builder = ForestBuilder()
    builder.edge("S", [builder.axiom("a", log_weight=-math.inf)])
    with pytest.raises(ForestError, match="with a derivation"):
        Grammar.from_forest(builder.build(goal="S"))
    with pytest.raises(ForestError, match="one goal"):
        Grammar.from_forest(Forest.batch([built(0.0), built(0.0)]))
