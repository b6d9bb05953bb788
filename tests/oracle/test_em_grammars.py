"""`em` on grammars of any shape, against a walk over all their trees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch

from inout import Grammar, em
from inout.grammars.bracketed import BracketedGrammar
from inout.learning import Additive
from tests.support import assert_close

ENGLISH = """
S -> NP VP [1.0]
NP -> 'she' [0.3] | 'the' N [0.4] | NP PP [0.3]
VP -> V NP [0.5] | VP PP [0.2] | V NP PP [0.2] | V [0.1]
PP -> 'with' NP [1.0]
N -> 'man' [0.5] | 'dog' [0.25] | 'telescope' [0.25]
V -> 'saw' [0.6] | 'fed' [0.4]
"""
TEXT = """
she saw the man with the telescope
the man saw
she saw the dog with the man with the telescope
the the dog
"""
CORPUS = [line.split() for line in TEXT.strip().splitlines()]
FREQUENCIES = [2.0, 1.0, 0.5, 3.0]


def trees(
    grammar: Grammar, words: list[str], symbol: str, i: int, j: int
) -> Iterator[Counter[int]]:
    """How often each tree of a symbol over words i..j-1 uses each rule; no empty rules, cycles."""
    for number in grammar.rules_by_left_side[symbol]:
        for used in sequences(grammar, words, grammar.rules[int(number)].rhs, i, j):
            yield used + Counter([int(number)])


def sequences(
    grammar: Grammar, words: list[str], right: tuple[object, ...], i: int, j: int
) -> Iterator[Counter[int]]:
    if not right:
        if i == j:
            yield Counter()
        return
    first, *rest = right
    for k in range(i + 1, j - len(rest) + 1):
        if isinstance(first, str):
            heads = trees(grammar, words, first, i, k)
        else:
            heads = iter([Counter()] if k == i + 1 and words[i] == first.text else [])
        for head in heads:
            for tail in sequences(grammar, words, tuple(rest), k, j):
                yield head + tail


def enumerated_step(grammar: Grammar, corpus: list[list[str]]) -> tuple[float, np.ndarray]:
    """The log-likelihood and the expected counts of the rules."""
    counts, likelihood = np.zeros(len(grammar)), 0.0
    weights = grammar.numpy_log_weights
    for words, frequency in zip(corpus, FREQUENCIES, strict=True):
        found = list(trees(grammar, words, grammar.start, 0, len(words)))
        if not found:
            continue
        scores = [math.exp(sum(n * weights[rule] for rule, n in used.items())) for used in found]
        likelihood += frequency * math.log(sum(scores))
        for used, score in zip(found, scores, strict=True):
            for rule, n in used.items():
                counts[rule] += frequency * n * score / sum(scores)
    return likelihood, counts


def test_steps_over_original_rules():
    grammar = Grammar.from_text(ENGLISH)
    result = em(grammar, CORPUS, frequencies=FREQUENCIES, max_iterations=2, tolerance=0.0)
    assert result.left_out == (3,)
    for likelihood in result.log_likelihoods[:2]:
        expected, counts = enumerated_step(grammar, CORPUS)
        assert likelihood == pytest.approx(expected, rel=1e-12)
        sums = {a: counts[rules].sum() for a, rules in grammar.rules_by_left_side.items()}
        weights = [n / sums[rule.lhs] for n, rule in zip(counts, grammar.rules, strict=True)]
        with np.errstate(divide="ignore"):
            grammar = grammar.with_log_weights(np.log(weights))
    assert_close(result.model.log_weights.exp(), grammar.log_weights.exp())
    words = 2 * 7 + 3 + 0.5 * 10
    assert result.perplexity == pytest.approx(math.exp(-result.log_likelihood / words))


def test_with_unambiguous_sentences_one_step_counts():
    grammar = Grammar.from_text("S -> 'a' S [0.3] | 'b' [0.4] | 'c' [0.3]")
    result = em(grammar, [["a", "a", "b"], ["c"], ["b"]])
    assert_close(result.model.log_weights.exp(), [2 / 5, 2 / 5, 1 / 5])
    assert result.iterations == 2


def test_cycles_and_empty_rules_never_lower_the_likelihood():
    grammar = Grammar.from_text(
        "S -> A S [0.3] | S [0.1] | [0.2] | A [0.4]\nA -> 'a' [0.5] | 'b' [0.2] | S [0.1] | [0.2]"
    )
    result = em(grammar, [["a", "b"], ["a"], ["b", "b", "a"]], max_iterations=50, tolerance=0.0)
    for before, after in pairwise(result.log_likelihoods):
        assert after >= before - 1e-11 * abs(before)
    sums = np.bincount(grammar.distributions, result.model.log_weights.exp().numpy())
    assert_close(sums, np.ones(2))
    smooth = em(grammar, [["a", "b"], ["a"]], prior=Additive(0.5), max_iterations=20)
    assert smooth.model.log_weights.isfinite().all()
    for before, after in pairwise(smooth.objectives):
        assert after >= before - 1e-11 * abs(before)


def test_brackets_show_the_way():
    """Pereira & Schabes (1992), section 4: palindromes, which plain text hardly teaches."""
    generator = torch.Generator().manual_seed(0)
    symbols = ["S", "A", "B", "C", "D"]
    rules = [f"{a} -> {b} {c}" for a in symbols for b in symbols for c in symbols]
    rules += [f"{a} -> '{word}'" for a in symbols for word in "ab"]
    grammar = Grammar.from_text("\n".join(rules), start="S")
    drawn = torch.empty(len(grammar), dtype=torch.float64).exponential_(generator=generator)
    grammar = grammar.with_log_weights(drawn.log())
    corpus = [list(x) for x in ("aa", "bb", "abba", "baab", "aaaa", "bbbb", "abaaba")]
    brackets = [[(i, len(x) - i) for i in range(len(x) // 2)] for x in corpus]
    bracketed = list(zip(corpus, brackets, strict=True))
    given = em(BracketedGrammar(grammar), bracketed, max_iterations=30, tolerance=0.0)
    for before, after in pairwise(given.log_likelihoods):
        assert after >= before - 1e-11 * abs(before)
    assert given.log_likelihood > given.log_likelihoods[0] + 10
    # The brackets were a restriction: without them there is more to sum.
    free = em(given.model.grammar, corpus, max_iterations=0)
    assert free.log_likelihood >= given.log_likelihood - 1e-9
