"""`Parser` against the definitions, for grammars with empty, unary, cyclic and long rules."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats  # type: ignore[import-untyped]

from inout import ArgumentError, CycleError, Grammar, Parser
from inout.grammars import Lattice, Rule, Terminal
from inout.grammars.derivations import tree_of
from inout.grammars.parser.sentences import check_words
from inout.grammars.tree import as_nltk
from tests.oracle.chart_cases import (
    derivations,
    fixed_point,
    random_grammar,
    tree_count,
    tree_spans,
)
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(8)
SENTENCES = ["", "a", "b", "ab", "aab", "abba"]


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_and_expected_counts(seed: int) -> None:
    grammar = random_grammar(np.random.default_rng(seed))
    parser = Parser(grammar)
    for sentence in SENTENCES:
        words = list(sentence)
        total, counts = fixed_point(grammar, words)
        log_z = parser.log_partition(words)
        assert_close(log_z.exp(), total)
        expected = counts / total if total else counts
        assert_close(parser.expected_counts(words), torch.from_numpy(expected), rtol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_both_orders(seed: int) -> None:
    grammar = random_grammar(np.random.default_rng(seed))
    words = list("aab" if seed % 2 else "ab")

    def log_z(weights: torch.Tensor) -> torch.Tensor:
        return Parser(grammar.with_log_weights(weights)).log_partition(words)

    weights = grammar.log_weights.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(log_z(weights), weights)
    assert_close(gradient, Parser(grammar).expected_counts(words))
    assert torch.autograd.gradcheck(log_z, weights)
    if seed < 4:
        assert torch.autograd.gradgradcheck(log_z, weights)


@pytest.mark.parametrize("seed", SEEDS)
def test_best_trees(seed: int) -> None:
    grammar = random_grammar(np.random.default_rng(seed), rules=9)
    parser = Parser(grammar)
    for sentence in SENTENCES[:5]:
        words = list(sentence)
        least = 1e-7 if len(words) < 3 else 1e-6
        found = derivations(grammar, words, least)
        weights = sorted(found.values(), reverse=True)
        parses = parser.kbest(words, 12) if weights else parser.kbest(words, 3)
        known = [p for p in parses if p.log_weight > math.log(least) + 1e-9]
        # Ties may come in any order; the weights may not.
        assert_close(
            np.array([p.log_weight for p in known]), np.log(weights[: len(known)]), rtol=1e-12
        )
        assert len(known) == min(12, len(weights)) or len(parses) == 12
        assert len({p.rules for p in parses}) == len(parses)
        for parse in known:
            assert parse.rules is not None
            assert_close(math.exp(parse.log_weight), found[parse.rules])
            assert parse.tree == as_nltk(tree_of(grammar.rules, parse.rules, words))
            assert parse.tree is not None
            assert parse.tree.leaves() == words
        best = parser.parse(words)
        if weights:
            assert_close(best.log_weight, math.log(weights[0]), rtol=1e-12)
            total = fixed_point(grammar, words)[0]
            assert_close(best.log_prob, math.log(weights[0] / total))
        elif parser.log_partition(words) == -math.inf:
            assert best.tree is None
            assert best.log_weight == -math.inf
            assert parses == []


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [0, 3, 5])
def test_samples(seed: int) -> None:
    grammar = random_grammar(np.random.default_rng(seed))
    parser, words = Parser(grammar), list("ab")
    total = fixed_point(grammar, words)[0]
    draws = 2000
    generator = torch.Generator().manual_seed(seed)
    drawn = Counter(p.rules for p in parser.sample(words, draws, generator))
    known = {d: w / total for d, w in derivations(grammar, words, 1e-6).items()}
    likely = [d for d, p in known.items() if p * draws >= 8]
    observed = [drawn[d] for d in likely]
    expected = [known[d] * draws for d in likely]
    observed.append(draws - sum(observed))
    expected.append(draws - sum(expected))
    if expected[-1] < 5:
        observed[-2:] = [sum(observed[-2:])]
        expected[-2:] = [sum(expected[-2:])]
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    again = torch.Generator().manual_seed(seed)
    assert Counter(p.rules for p in parser.sample(words, draws, again)) == drawn


@pytest.mark.parametrize("seed", SEEDS)
def test_marginals(seed: int) -> None:
    """Counts of anchored rules add up to those of rules and of constituents."""
    grammar = random_grammar(np.random.default_rng(seed))
    parser, words = Parser(grammar), list("aba")
    marginals = parser.marginals(words)
    counts = parser.expected_counts(words)
    uses = torch.zeros_like(counts)
    nodes: Counter[tuple[str, int, int]] = Counter()
    for (rule, i, j), value in marginals.rules.items():
        uses[rule] += value
        nodes[grammar.rules[rule].lhs, i, j] += value  # type: ignore[assignment]
    # Every node of at least one word has one rule.
    assert nodes.keys() == marginals.constituents.keys()
    for item, value in marginals.constituents.items():
        assert_close(nodes[item], value)
    # The rest of the uses are in empty trees.
    assert bool((uses <= counts + 1e-9).all())
    without_empty = random_grammar(np.random.default_rng(seed), empty=False)
    parser = Parser(without_empty)
    uses = torch.zeros(len(without_empty), dtype=torch.float64)
    for (rule, _, _), value in parser.marginals(words).rules.items():
        uses[rule] += value
    assert_close(uses, parser.expected_counts(words))


@pytest.mark.parametrize("seed", SEEDS)
def test_counts(seed: int) -> None:
    grammar = random_grammar(np.random.default_rng(seed), empty=seed % 2 == 0, unary=seed % 3 != 0)
    parser = Parser(grammar)
    for sentence in SENTENCES:
        words = list(sentence)
        assert parser.count(words) == tree_count(grammar, words)


def test_counts_of_cycles_and_empty_rules() -> None:
    def count(text: str, words: str) -> int | float:
        return Parser(Grammar.from_text(text)).count(list(words))

    assert count("S -> A | 'a'\nA -> S | 'b'", "a") == math.inf
    assert count("S -> A B\nA -> 'a' | \nB -> 'a' | ", "a") == 2
    assert count("S -> A B\nA -> 'a' | \nB -> 'a' | ", "") == 1
    assert count("S -> S S | 'a' |", "a") == math.inf
    assert count("S -> S S | 'a' |", "") == math.inf
    # The cycle is there, but no tree of this sentence can have it.
    assert count("S -> 'a' | A 'b'\nA -> A | 'a'", "a") == 1
    assert count("S -> 'a' | A 'b'\nA -> A | 'a'", "ab") == math.inf


def test_min_risk_maximises_expected_recall() -> None:
    """Among all trees of the grammar none has more expected labelled constituents."""
    grammar = Grammar.from_text(
        "S -> A B [0.6] | B A [0.4]\nA -> A A [0.3] | 'a' [0.7]\n"
        "B -> A B [0.4] | B B [0.1] | 'a' [0.5]"
    )
    parser, words = Parser(grammar), list("aaaaa")
    posterior = parser.marginals(words).constituents
    gain = {
        rules: sum(
            posterior[grammar.rules[r].lhs, i, j] for r, i, j in tree_spans(grammar, rules, words)
        )
        for rules in derivations(grammar, words, 1e-9)
    }
    parse = parser.min_risk(words)
    assert parse.tree is not None
    labels = [(t.label(), t.leaves()) for t in parse.tree.subtrees()]
    assert len(labels) == 9
    # Expected recall of the tree found, by walking it.
    score = expected_recall(parse.tree, posterior)
    assert score >= max(gain.values()) - 1e-9
    assert_close(math.fsum(posterior.values()), 9.0)


def expected_recall(tree: object, posterior: dict[tuple[str, int, int], float]) -> float:
    total, place = 0.0, 0

    def walk(node: object) -> None:
        nonlocal total, place
        if isinstance(node, str):
            place += 1
            return
        start = place
        for child in node:  # type: ignore[attr-defined]
            walk(child)
        total += posterior.get((node.label(), start, place), 0.0)  # type: ignore[attr-defined]

    walk(tree)
    return total


def test_forests() -> None:
    """The forest has the same trees, sums and counts, and is differentiable by the weights."""
    grammar = Grammar.from_text(
        "S -> A S B [0.3] | 'a' [0.4] | A [0.3]\nA -> 'a' [0.5] | B 'b' [0.2] | [0.3]\nB -> 'b'"
    )
    weights = grammar.log_weights.clone().requires_grad_()
    parser = Parser(grammar.with_log_weights(weights))
    for sentence in ("", "a", "ab", "abb"):
        words = list(sentence)
        forest = parser.forest(words)
        assert forest.count() == parser.count(words)
        assert_close(forest.log_partition(), parser.log_partition(words).reshape(1)[0])
        (gradient,) = torch.autograd.grad(forest.log_partition(), weights)
        assert_close(gradient, parser.expected_counts(words))
    with pytest.raises(CycleError):
        Parser(Grammar.from_text("S -> S | 'a'")).forest(["a"])
    with pytest.raises(ArgumentError, match="a forest has no"):
        parser.given(["a", "b"], brackets=[(0, 2)]).forest()


def test_sentences_without_a_tree_are_answers() -> None:
    parser = Parser(Grammar.from_text("S -> 'a' S | 'b'"))
    for words, reason in (
        (["a", "zebra", "b", "yak"], "the grammar does not know zebra, yak"),
        (["b", "a"], "no tree of the grammar"),
        ([], "no empty tree"),
    ):
        parse = parser.parse(words)
        assert parse.tree is None
        assert parse.log_weight == -math.inf == parse.log_prob
        assert reason in str(parse.reason)
        assert parser.log_partition(words) == -math.inf
        assert parser.kbest(words, 3) == [] == parser.sample(words, 2)
        assert parser.count(words) == 0
        assert parser.min_risk(words).tree is None
        assert parser.parse(words, "max_rule").tree is None
        assert_close(parser.expected_counts(words), torch.zeros(2, dtype=torch.float64))
        assert parser.marginals(words).rules == {}
    assert parser.parse(["zebra"]).unknown == ("zebra",)


def test_unknown_words_by_class() -> None:
    parser = Parser(Grammar.from_text("S -> N V\nN -> 'dogs' | 'UNK-LC-s'\nV -> 'bark' | 'UNK'"))
    parse = parser.parse(["zebras", "bark"])
    assert str(parse.tree) == "(S (N zebras) (V bark))"
    assert parse.unknown == ("zebras",)


def test_bad_arguments() -> None:
    parser = Parser(Grammar.from_text("S -> 'a' S | 'b'"))
    with pytest.raises(ArgumentError, match="sequence of strings"):
        parser.parse("a b")
    with pytest.raises(ArgumentError, match="at place 1"):
        check_words(["a", 3])
    with pytest.raises(ArgumentError, match="method must be one of"):
        parser.parse(["b"], "best")
    with pytest.raises(ArgumentError, match="k must be"):
        parser.kbest(["b"], 0)
    with pytest.raises(ArgumentError, match="bracket must be"):
        parser.given(["a", "b"], brackets=[(1, 5)])
    with pytest.raises(ArgumentError, match="rule_scores must be a tensor"):
        parser.given(["b"], rule_scores=torch.zeros(2, 2, 2))
    with pytest.raises(ArgumentError, match="NaN"):
        parser.given(["b"], rule_scores=torch.full((1, 1, 2), math.nan))
    with pytest.raises(ArgumentError, match="beam"):
        parser.given(["b"], beam=1.5)
    with pytest.raises(ArgumentError, match="an arc must be"):
        Lattice([(1, 1, "a")])


def test_divergent_cycles_are_refused() -> None:
    grammar = Grammar.from_text("S -> A [1.0] | 'a' [0.5]\nA -> S [1.0]")
    with pytest.raises(ArgumentError, match=r"must have a finite sum.*S, A"):
        Parser(grammar).log_partition(["a"])
    # A best tree it has: going round costs nothing and gains nothing.
    assert_close(Parser(grammar).parse(["a"]).log_weight, math.log(0.5))
    better = Grammar.from_text("S -> A [2.0] | 'a' [0.5]\nA -> S [1.0]")
    with pytest.raises(ArgumentError, match="there is no best tree"):
        Parser(better).parse(["a"])


def test_regressions() -> None:
    """What a review found, in its words."""
    # Trees by class of unknown words are trees of the grammar for min_risk, too.
    by_class = Parser(Grammar.from_text("S -> 'UNK' A\nA -> 'UNK'"))
    assert by_class.min_risk(["foo", "bar"]).log_weight == 0.0
    # The outer of two labels over the same words is the one that the rules put above.
    chain = Grammar.from_text("S -> P Q [1]\nQ -> R [1]\nR -> T T [1]\nP -> 'p'\nT -> 't'")
    assert str(Parser(chain).min_risk(list("ptt"))) == "(S (P p) (Q (R (T t) (T t))))"
    upward = Grammar.from_text("S -> R P [1]\nQ -> T T [1]\nR -> Q [1]\nP -> 'p'\nT -> 't'")
    assert str(Parser(upward).min_risk(list("ttp"))) == "(S (R (Q (T t) (T t))) (P p))"
    # A cycle whose weight is 1 but for rounding up.
    grammar = Grammar.from_text("S -> A [10] | 'a'\nA -> S [0.1] | 'b'")
    assert str(Parser(grammar).parse(["a"])) == "(S a)"
    # Deep trees.
    deep = Parser(Grammar.from_text("S -> 'a' S [0.5] | 'a' [0.5]"))
    assert_close(deep.parse(["a"] * 1500).log_weight, 1500 * math.log(0.5))
    # An endless chain far below all other trees.
    text = "S -> X | Y\nX -> X X | 'a'\nY -> 'a' Y | Z\nZ -> Z | 'a'"
    assert Parser(Grammar.from_text(text)).count(["a"] * 300) == math.inf
    # The beam drops symbols from sums; the best tree has the probability that it has.
    text = (
        "S -> A A [0.01] | B B [0.01] | C C [0.01] | A D [1.0]\n"
        "A -> 'a' [0.05]\nB -> 'a'\nC -> 'a'\nD -> 'a'"
    )
    assert Parser(Grammar.from_text(text)).given(["a", "a"], beam=0.1).best().log_prob < 0
    # Many empty trees.
    empty = Parser(Grammar.from_text("S -> S S [0.3] | A [0.3] | [0.2]\nA -> S A [0.2] | [0.4]"))
    weights = [p.log_weight for p in empty.kbest([], 200)]
    assert_close(np.array(weights), np.array(sorted(weights, reverse=True)))
    assert len(weights) == 200
    likelihood = deep.grammar.likelihood([["a"]])
    with pytest.raises(ArgumentError, match="log_weights must"):
        likelihood(torch.tensor([math.nan, 0.0], dtype=torch.float64))


def test_trees_that_a_large_unary_rule_dwarfs() -> None:
    rules = [
        Rule("R", ("S",)), Rule("S", ("P", "B")), Rule("S", ("A", "B")),
        Rule("P", (Terminal("a"),)), Rule("A", ("X",)), Rule("X", (Terminal("a"),)),
        Rule("B", (Terminal("b"),)),
    ]  # fmt: skip
    grammar = Grammar("R", rules, [377.0, 0.0, 381.0, 112.0, -269.0, 0.0, 0.0])
    parser = Parser(grammar)
    assert_close(parser.log_partition(["a", "b"]), 489.0 + math.log(2))
    expected = torch.tensor([1, 0.5, 0.5, 0.5, 0.5, 0.5, 1], dtype=torch.float64)
    assert_close(parser.expected_counts(["a", "b"]), expected)
    rules = [Rule("S", ("A",)), Rule("A", ("W",)), Rule("W", (Terminal("a"),))]
    chain = Parser(Grammar("S", rules, [-400.0, 400.0, 0.0]))
    for value in chain.marginals(["a"]).constituents.values():
        assert_close(value, 1.0)
