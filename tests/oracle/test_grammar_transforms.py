"""Grammars in other forms: the same weights, and counts and trees in terms of the original."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats  # type: ignore[import-untyped]

from inout import ArgumentError, Grammar, Parser
from inout.grammars import Rule, Terminal, Transformed
from inout.grammars.derivations import rules_of
from tests.oracle.chart_cases import derivations, fixed_point, random_grammar
from tests.seeds import seeds
from tests.support import assert_close

FORMS = ["trimmed", "binarised", "without_empty_rules", "without_unary_rules", "cnf"]


def form_of(grammar: Grammar, name: str) -> Transformed:
    made: Transformed = getattr(grammar, name)()
    return made


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("seed", seeds(6))
def test_weights_and_counts_are_those_of_the_original(name: str, seed: int) -> None:
    grammar = random_grammar(np.random.default_rng(seed))
    form = form_of(grammar, name)
    for sentence in ("a", "ab", "bab"):
        words = list(sentence)
        total, counts = fixed_point(grammar, words)
        new_total, new_counts = fixed_point(form.grammar, words)
        assert_close(new_total, total)
        back = form.to_original(torch.from_numpy(new_counts / new_total))
        assert_close(back, torch.from_numpy(counts / total), rtol=1e-9)
    # The empty sentence: in the rules, or beside them.
    empty = fixed_point(grammar, [])[0]
    kept = fixed_point(form.grammar, [])[0]
    assert_close(kept + math.exp(form.log_empty), empty)
    assert (kept == 0) or form.log_empty == -math.inf


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("seed", seeds(4))
def test_shapes(name: str, seed: int) -> None:
    grammar = random_grammar(np.random.default_rng(seed))
    rules = list(form_of(grammar, name).grammar.rules)
    if name in ("binarised", "without_empty_rules", "cnf"):
        assert all(rule.arity <= 2 for rule in rules)
        for rule in rules:
            if rule.arity == 2:
                assert all(isinstance(symbol, str) for symbol in rule.rhs)
    if name in ("without_empty_rules", "cnf"):
        assert all(rule.arity > 0 for rule in rules)
    if name in ("without_unary_rules", "cnf"):
        assert not any(rule.arity == 1 and isinstance(rule.rhs[0], str) for rule in rules)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FORMS)
def test_trees_come_back(name: str) -> None:
    """Samples of the new grammar, brought back at random, are samples of the original."""
    grammar = random_grammar(np.random.default_rng(4))
    form, words, draws = form_of(grammar, name), list("ab"), 600
    generator = torch.Generator().manual_seed(1)
    drawn: Counter[tuple[int, ...]] = Counter()
    for parse in Parser(form.grammar).sample(words, draws, generator):
        assert parse.tree is not None
        rules = rules_of(grammar.rules, form.restore_sample(parse.tree, generator))
        assert rules is not None
        drawn[tuple(rules)] += 1
    best = form.restore(parse.tree)
    assert best.leaves() == words
    assert rules_of(grammar.rules, best) is not None
    total = fixed_point(grammar, words)[0]
    known = {d: w / total for d, w in derivations(grammar, words, 1e-6).items()}
    likely = [d for d, p in known.items() if p * draws >= 8]
    observed = [drawn[d] for d in likely]
    expected = [known[d] * draws for d in likely]
    observed.append(draws - sum(observed))
    expected.append(draws - sum(expected))
    assert expected[-1] >= 5
    assert len(likely) > 3
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_the_best_tree_comes_back_as_the_best() -> None:
    """Where each new rule stands for one piece only, Viterbi trees are the same."""
    grammar = Grammar.from_text(
        "S -> A 'b' A 'c' [0.5] | A A A [0.25] | 'b' [0.25]\nA -> 'a' [0.5] | 'b' [0.25] | S [0.25]"
    )
    form = grammar.binarised()
    words = list("abacb")
    ours, other = Parser(grammar).kbest(words, 5), Parser(form.grammar).kbest(words, 5)
    assert_close(np.array([p.log_weight for p in ours]), np.array([p.log_weight for p in other]))
    for parse, twin in zip(ours, other, strict=True):
        assert twin.tree is not None
        assert form.restore(twin.tree) == parse.tree


def test_gradients_go_through_the_transforms() -> None:
    grammar = random_grammar(np.random.default_rng(2))
    weights = grammar.log_weights.clone().requires_grad_()

    def log_z(x: torch.Tensor) -> torch.Tensor:
        return Parser(grammar.with_log_weights(x).cnf().grammar).log_partition(list("ab"))

    assert torch.autograd.gradcheck(log_z, weights)
    (gradient,) = torch.autograd.grad(log_z(weights), weights)
    total, counts = fixed_point(grammar, list("ab"))
    assert_close(gradient, torch.from_numpy(counts / total))


@pytest.mark.parametrize("log", [300.0, 9000.0])
def test_ranges(log: float) -> None:
    """Weights that no float could hold, in cycles, empty trees and long rules alike.

    Rules of A times t and each A on a right side through t, the weights of trees stay.
    """
    grammar = random_grammar(np.random.default_rng(3))
    gauge = {"S": 0.0, "A": log, "B": -0.7 * log}
    changes = [
        gauge[rule.lhs] - sum(gauge[s] for s in rule.rhs if isinstance(s, str))
        for rule in grammar.rules
    ]
    other = grammar.with_log_weights(grammar.log_weights + torch.tensor(changes))
    for sentence in ("", "ab", "bab"):
        ours, theirs = Parser(grammar), Parser(other)
        words = list(sentence)
        assert_close(theirs.log_partition(words), ours.log_partition(words), atol=1e-9)
        assert_close(theirs.expected_counts(words), ours.expected_counts(words), atol=1e-9)
        best = [p.log_weight for p in ours.kbest(words, 6)]
        assert_close(
            np.array([p.log_weight for p in theirs.kbest(words, 6)]), np.array(best), atol=1e-9
        )


@pytest.mark.exhaustive
def test_long_rules_do_not_recurse() -> None:
    right = (*("A",) * 300, Terminal("b"))
    grammar = Grammar("S", [Rule("S", right), Rule("A", ()), Rule("A", (Terminal("a"),))])
    assert len(grammar.binarised().grammar) == 3 + 300
    assert Parser(grammar).count(["b"]) == 1
    assert Parser(grammar).count(["a", "b"]) == 300


def test_new_names_never_clash() -> None:
    rules = [Rule("S", ("⟨A B⟩", "A", "B")), Rule("⟨A B⟩", (Terminal("x"),))]
    rules += [Rule("A", (Terminal("a"),)), Rule("B", (Terminal("b"),))]
    grammar = Grammar("S", rules)
    assert Parser(grammar).count(list("xab")) == 1
    assert "⟨A B⟩'" in grammar.binarised().grammar.nonterminals


def test_bad_trees_are_refused() -> None:
    form = Grammar.from_text("S -> 'a' S | 'b'").cnf()
    tree = Parser(form.original).parse(["a", "b"]).tree
    assert tree is not None
    with pytest.raises(ArgumentError, match="rules of the transformed grammar"):
        form.restore(tree)
    with pytest.raises(ArgumentError, match="have numbers in the original"):
        _ = form.original_rules
