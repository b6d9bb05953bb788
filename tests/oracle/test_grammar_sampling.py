"""Trees drawn from grammars, against the probabilities of all trees, enumerated as fractions."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
import torch

from inout import ArgumentError, Grammar
from inout.grammars.sampling import iterate_trees, sample_sentences, sample_trees
from inout.grammars.tree import as_nltk
from inout.grammars.treebank import format_tree

# Left side -> right sides with probabilities; words in small letters.
GRAMMARS = {
    "n-ary, unary and mixed": {
        "S": [("A b A", Fraction(1, 4)), ("A", Fraction(1, 2)), ("c", Fraction(1, 4))],
        "A": [("a", Fraction(2, 3)), ("B", Fraction(1, 3))],
        "B": [("b", Fraction(1))],
    },
    "empty rules, and one of weight zero": {
        "S": [("A A", Fraction(1)), ("a", Fraction(0))],
        "A": [("", Fraction(1, 5)), ("a", Fraction(4, 5)), ("S", Fraction(0))],
    },
}


def enumerate_trees(rules, symbol="S"):
    """Every tree as bracketed text, with its probability."""
    if symbol not in rules:
        yield symbol, Fraction(1)
        return
    for right, probability in rules[symbol]:
        if not probability:
            continue
        parts = [list(enumerate_trees(rules, child)) for child in right.split()]
        for children in product(*parts):
            weight = probability
            for _, share in children:
                weight *= share
            yield "(" + " ".join([symbol, *(text for text, _ in children)]) + ")", weight


def as_grammar(rules) -> Grammar:
    lines = []
    for left, rights in rules.items():
        for right, probability in rights:
            symbols = " ".join(s if s in rules else f"'{s}'" for s in right.split())
            lines.append(f"{left} -> {symbols} [{float(probability)!r}]")
    return Grammar.from_text("\n".join(lines))


@pytest.mark.parametrize("name", GRAMMARS)
def test_frequencies_are_those_of_the_enumeration(name):
    rules = GRAMMARS[name]
    exact = dict(enumerate_trees(rules))
    assert sum(exact.values()) == 1
    size = 20_000
    generator = torch.Generator().manual_seed(3)
    drawn = Counter(map(format_tree, sample_trees(as_grammar(rules), size, generator=generator)))
    assert set(drawn) == set(exact)
    # Pearson's statistic has mean d and variance 2 d.
    freedom = len(exact) - 1
    statistic = sum((drawn[t] - size * p) ** 2 / (size * p) for t, p in exact.items())
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def test_the_sum_of_recursive_trees():
    """Words of S -> S S (p) | a: the mean of the Galton–Watson process is (1-p)/(1-2p)."""
    grammar = Grammar.from_text("S -> S S [0.3] | 'a' [0.7]")
    sentences = sample_sentences(grammar, 20_000, generator=torch.Generator().manual_seed(5))
    mean = sum(map(len, sentences)) / len(sentences)
    # Its variance is p (1-p) / (1-2p)³, and five of its deviations are allowed.
    deviation = (0.3 * 0.7 / 0.4**3 / 20_000) ** 0.5
    assert abs(mean - 0.7 / 0.4) < 5 * deviation


def test_more_samples_begin_like_fewer():
    grammar = Grammar.from_text("S -> S S [0.3] | 'a' [0.7]")
    few, many = (
        sample_trees(grammar, n, generator=torch.Generator().manual_seed(1)) for n in (10, 3000)
    )
    assert many[:10] == few
    drawn = iterate_trees(grammar, generator=torch.Generator().manual_seed(1))
    assert [as_nltk(next(drawn)) for _ in range(10)] == few


def test_deep_trees_need_no_stack():
    grammar = Grammar.from_text("S -> 'a' S [0.99999] | 'b' [0.00001]")
    lengths = map(len, sample_sentences(grammar, 3, generator=torch.Generator().manual_seed(2)))
    assert max(lengths) > 20_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S -> S S [0.6] | 'a' [0.4]", "spectral radius of 1.2, above 1"),
        ("S -> 'a' [2]", "must sum to 1"),
        ("S -> 'a' [0.5] | X [0.5]", "Got none for X"),
        ("S -> S S [0.5] | 'a' [0.5]", "must be finite"),
    ],
)
def test_grammars_that_cannot_be_drawn_from_are_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        sample_trees(Grammar.from_text(text), 1)


def test_a_tree_beyond_the_limit_is_an_error():
    grammar = Grammar.from_text("S -> 'a' S [0.999] | 'b' [0.001]")
    with pytest.raises(ArgumentError, match="more than 10 rules, 1000 are expected"):
        sample_trees(grammar, 5, generator=torch.Generator().manual_seed(0), max_rules=10)
