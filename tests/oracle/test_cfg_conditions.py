"""`Parser.given`: brackets, lattices, scores of spans, pruning and beams, by definition."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from inout import ArgumentError, Grammar, Parser
from inout.grammars import Lattice, Pruning, Rule, Terminal
from tests.oracle.chart_cases import derivations, fixed_point, random_grammar, tree_spans
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_brackets(seed: int) -> None:
    """No node crosses a bracket: the sum is that over the spans that are left."""
    grammar = random_grammar(np.random.default_rng(seed))
    words, n = list("abab"), 4
    for brackets in ([(0, 2)], [(1, 3)], [(0, 3), (1, 3)]):
        allowed = {
            (i, j)
            for i in range(n)
            for j in range(i + 1, n + 1)
            if not any(i < p < j < q or p < i < q < j for p, q in brackets)
        }
        total, counts = fixed_point(grammar, words, allowed)
        given = Parser(grammar).given(words, brackets=brackets)
        assert_close(given.log_partition().exp(), total)
        if total:
            assert_close(given.expected_counts(), torch.from_numpy(counts / total))
            whole = fixed_point(grammar, words)[0]
            assert_close(given.lost_mass(), 1 - total / whole, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.few(1)
def test_lattices(seed: int) -> None:
    """The sum over a lattice is the sum over its sentences."""
    grammar = random_grammar(np.random.default_rng(seed))
    lattice = Lattice(
        [(0, 1, "a", -0.5), (1, 2, "b"), (0, 2, "b", -1.0), (2, 3, "a"), (1, 3, "a", 0.3)]
    )
    paths = {"aba": -0.5, "ba": -1.0, "aa": -0.2}
    parser = Parser(grammar)
    total, counts = 0.0, np.zeros(len(grammar))
    best = -math.inf
    for sentence, log in paths.items():
        value, uses = fixed_point(grammar, list(sentence))
        total += math.exp(log) * value
        counts += math.exp(log) * uses
        best = max(best, log + parser.parse(list(sentence)).log_weight)
    given = parser.given(lattice)
    assert_close(given.log_partition().exp(), total)
    assert_close(given.expected_counts(), torch.from_numpy(counts / total if total else counts))
    assert_close(given.best().log_weight, best)
    if total:
        parse = given.sample(1, torch.Generator().manual_seed(0))[0]
        assert "".join(parse.words) in paths
        assert parse.rules is not None
        expected = float(grammar.log_weights[list(parse.rules)].sum()) + paths["".join(parse.words)]
        assert_close(parse.log_weight, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_rule_scores(seed: int) -> None:
    """Scores of rules over spans: against trees one by one, and their gradient."""
    rng = np.random.default_rng(seed)
    grammar = random_grammar(rng, unary=seed % 2 == 0, most_weight=0.2, rules=8)
    parser, words, n = Parser(grammar), list("ab"), 2
    scores = torch.from_numpy(rng.uniform(-2.0, 0.0, (n, n, len(grammar)))).requires_grad_()
    given = parser.given(words, rule_scores=scores)
    weights: dict[tuple[int, ...], float] = {}
    for rules, weight in derivations(grammar, words, 1e-8).items():
        spans = tree_spans(grammar, rules, words)
        extra = sum(float(scores.detach()[i, j - 1, r]) for r, i, j in spans if j > i)
        weights[rules] = math.log(weight) + extra
    total = given.log_partition()
    if not weights:
        assert total == -math.inf
        return
    assert_close(total.exp(), sum(map(math.exp, weights.values())), rtol=1e-4)
    for parse in given.kbest(5):
        assert parse.rules is not None
        assert_close(parse.log_weight, weights[parse.rules])
    ranked = sorted(weights.values(), reverse=True)
    found = [p.log_weight for p in given.kbest(5)]
    assert_close(np.array(found), np.array(ranked[: len(found)]))
    (gradient,) = torch.autograd.grad(total, scores)
    expected = np.zeros((n, n, len(grammar)))
    for (rule, i, j), value in given.marginals().rules.items():
        expected[i, j - 1, rule] += value
    assert_close(gradient, torch.from_numpy(expected))
    assert torch.autograd.gradcheck(
        lambda x: parser.given(words, rule_scores=x).log_partition(), scores
    )


def test_pruning_with_a_coarser_grammar() -> None:
    fine = Grammar.from_text(
        "S -> A1 B1 [0.5] | A2 B2 [0.5]\nA1 -> A1 A1 [0.2] | 'a' [0.8]\n"
        "A2 -> A2 A1 [0.3] | 'a' [0.7]\n"
        "B1 -> 'b' [0.9] | A1 B1 [0.1]\nB2 -> 'b' [0.5] | A2 B2 [0.5]"
    )
    coarse = Grammar.from_text(
        "S -> A B [1.0]\nA -> A A [0.25] | 'a' [0.75]\nB -> 'b' [0.7] | A B [0.3]"
    )
    words = list("aaaab")
    fine_parser = Parser(fine)
    whole = fine_parser.given(words)

    def label(name: str) -> str:
        return name.rstrip("12")

    light = fine_parser.given(words, pruning=Pruning(Parser(coarse), 1e-9, label))
    assert_close(light.log_partition(), whole.log_partition())
    assert_close(light.lost_mass(), 0.0)
    hard = fine_parser.given(words, pruning=Pruning(Parser(coarse), 0.5, label))
    assert hard.log_partition() < whole.log_partition()
    expected = 1 - math.exp(float(hard.log_partition()) - float(whole.log_partition()))
    assert_close(hard.lost_mass(), expected)
    with pytest.raises(ArgumentError, match="coarse grammar"):
        fine_parser.given(words, pruning=Pruning(Parser(coarse), 0.5))


def test_beam_reports_what_it_lost() -> None:
    grammar = Grammar.from_text(
        "S -> S S [0.3] | A S [0.1] | 'a' [0.6]\nA -> 'a' [0.01] | S A [0.99]"
    )
    parser, words = Parser(grammar), list("aaaa")
    exact = parser.given(words)
    rough = parser.given(words, beam=0.3)
    assert rough.log_z < exact.log_z
    assert_close(rough.lost_mass(), 1 - math.exp(rough.log_z - exact.log_z))
    assert exact.lost_mass() == 0.0


def test_no_chain_passes_through_what_a_bracket_forbids() -> None:
    """Parts of long rules may cross a bracket, the constituents between them may not."""
    grammar = Grammar.from_text(
        "S -> D B C | D E\nD -> 'd'\nC -> \nB -> X Y Z\nX -> \nY -> 'y'\nZ -> 'z'\nE -> Y Z [0.5]"
    )
    words = list("dyz")
    free, tied = Parser(grammar).given(words), Parser(grammar).given(words, brackets=[(0, 2)])
    assert free.count() == 2
    assert len(free.kbest(5)) == 2
    assert tied.count() == 0
    assert tied.log_z == -math.inf
    assert tied.best().tree is None
    assert tied.kbest(3) == []
    flat = Grammar.from_text("S -> D B C\nD -> 'd'\nB -> 'y'\nC -> 'z'")
    assert Parser(flat).given(words, brackets=[(0, 2)]).count() == 1


@pytest.mark.parametrize("seed", seeds(25))
def test_brackets_in_long_rules_with_empty_symbols(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names, found = ["S", "A", "B"], dict[Rule, float]()
    for name in names:
        found[Rule(name, (Terminal("a"),))] = 0.2
    found[Rule("A", ())] = 0.2
    found[Rule("B", ("A", "A", "B"))] = 0.1
    found[Rule("S", ("A", "B", "S"))] = 0.2
    while len(found) < 9:
        right = tuple(names[int(x)] for x in rng.integers(3, size=int(rng.integers(2, 5))))
        found[Rule(names[int(rng.integers(3))], right)] = float(rng.uniform(0.05, 0.2))
    grammar = Grammar("S", list(found), [math.log(w) for w in found.values()])
    words, n = list("aaa"), 3
    for bracket in ((0, 2), (1, 3)):
        allowed = {
            (i, j)
            for i in range(n)
            for j in range(i + 1, n + 1)
            if not (i < bracket[0] < j < bracket[1] or bracket[0] < i < bracket[1] < j)
        }
        total, counts = fixed_point(grammar, words, allowed)
        given = Parser(grammar).given(words, brackets=[bracket])
        assert_close(given.log_partition().exp(), total)
        assert_close(given.expected_counts(), torch.from_numpy(counts / total))
        uses: Counter[int] = Counter()
        for (rule, _, _), value in given.marginals().rules.items():
            uses[rule] += value  # type: ignore[assignment]
        solid = [n for n, rule in enumerate(grammar.rules) if rule.arity > 0]
        assert all(uses[n] <= counts[n] / total + 1e-9 for n in solid)
        likelihood = grammar.likelihood([words], [[bracket]])
        assert_close(likelihood(grammar.log_weights).exp(), np.array([total]))
        for parse in given.kbest(6):
            assert parse.rules is not None
            for _, i, j in tree_spans(grammar, parse.rules, words):
                assert i == j or (i, j) in allowed
