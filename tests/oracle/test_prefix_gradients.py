"""Derivatives of prefix probabilities: finite differences, the library's program, enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from inout import Facts, Grammar, Parser, programs
from tests.oracle.chart_cases import random_grammar
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(4)


def numbers(grammar: Grammar, words: list[str]):
    """A function of the log-weights: prefixes, surprisals and the end, where finite."""

    def values(logs: torch.Tensor) -> torch.Tensor:
        parser = Parser(grammar.with_log_weights(logs))
        found = torch.cat([parser.prefix_log_probs(words), parser.surprisals(words, end=True)])
        return found[found.isfinite()]

    return values


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.few(1)
def test_derivatives_of_both_orders(seed: int) -> None:
    """Empty, unary, cyclic, long and left-recursive rules, weights that do not sum to one."""
    grammar = random_grammar(np.random.default_rng(seed), most_weight=0.25)
    weights = grammar.log_weights.clone().requires_grad_()
    values = numbers(grammar, list("aba"))
    with torch.no_grad():
        plain = values(weights)
    assert_close(values(weights), plain, rtol=0.0, atol=0.0)
    assert torch.autograd.gradcheck(values, weights)
    if seed == SEEDS[0]:
        assert torch.autograd.gradgradcheck(values, weights)


RULES = {
    ("S", "S", "A"): 0.2, ("S", "A", "B"): 0.3, ("S", "a"): 0.4, ("A", "B", "S"): 0.1,
    ("A", "a"): 0.5, ("B", "b"): 0.6, ("B", "B", "B"): 0.2,
}  # fmt: skip


def test_the_program_agrees() -> None:
    rows = list(RULES)
    text = "\n".join(
        f"{x[0]} -> {' '.join(x[1:])} [{w}]" if len(x) == 3 else f"{x[0]} -> '{x[1]}' [{w}]"
        for x, w in RULES.items()
    )
    grammar = Grammar.from_text(text)
    order = [(r.lhs, *(s if isinstance(s, str) else s.text for s in r.rhs)) for r in grammar.rules]
    logs = torch.tensor([math.log(RULES[x]) for x in rows], dtype=torch.float64)
    for words in (["a"], ["a", "b"], ["a", "b", "b", "a"]):
        program = logs.clone().requires_grad_()
        rule = Facts(rows, program)
        closure = programs.left_corner_closure(rule)
        facts = {"start": [("S",)], "rule": rule, **programs.sentence(words), **closure}
        found = programs.load("prefix_probability").ground(facts).log_partition()
        total = closure["total"].log_weights[[r[0] for r in closure["total"].rows].index("S")]
        (wanted,) = torch.autograd.grad(found - total, program)
        own = grammar.log_weights.clone().requires_grad_()
        prefix = Parser(grammar.with_log_weights(own)).prefix_log_probs(words)[-1]
        assert_close(prefix, found - total)
        (gradient,) = torch.autograd.grad(prefix, own)
        assert_close(gradient, wanted[[rows.index(x) for x in order]], rtol=1e-10, atol=1e-10)


def test_impossible_words_and_no_words_have_gradient_zero() -> None:
    grammar = Grammar.from_text("S -> 'a' S [0.3] | 'a' [0.6] | 'b' [0.1]")
    weights = grammar.log_weights.clone().requires_grad_()
    parser = Parser(grammar.with_log_weights(weights))
    found = parser.prefix_log_probs(["b", "a", "zzz"])
    assert found.tolist()[2:] == [-math.inf, -math.inf]
    (gradient,) = torch.autograd.grad(found[[0, 2, 3]].sum(), weights)
    assert gradient.tolist() == [0, 0, 0]
    # P(b …) = 0.1 / 0.7 · (1 - r) with r = 0.3, by hand: the derivative by log w(b).
    (first,) = torch.autograd.grad(parser.prefix_log_probs(["b"])[1], weights)
    assert_close(first[2], 1 - 0.1 / 0.7)
    assert parser.prefix_log_probs([]).tolist() == [0.0]


def test_a_rule_of_weight_zero_has_gradient_zero() -> None:
    grammar = Grammar.from_text("S -> S S [0] | 'a' 'b' [0.5] | 'a' [0.5]")
    weights = grammar.log_weights.clone().requires_grad_()
    surprisals = Parser(grammar.with_log_weights(weights)).surprisals(["a", "b"])
    (gradient,) = torch.autograd.grad(surprisals[1], weights)
    assert_close(gradient, [0.0, -0.5, 0.5])
