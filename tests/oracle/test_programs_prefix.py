"""Prefix probabilities: all sentences of finite languages, long sums over infinite ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import pytest
import torch

from inout import Facts, programs
from tests.oracle.derivations import (
    WORDS,
    Derivation,
    Row,
    Weights,
    expected,
    log_sum,
    random_weights,
    some,
    weigh,
)
from tests.seeds import seeds
from tests.support import assert_close

LAYERS = ("S", "A", "B", "C")  # rules lead only to later symbols: a finite language


def prefix_log_z(
    rule: Facts, start: Weights, words: list[str], total: Mapping[str, float] | None = None
) -> torch.Tensor:
    facts = {
        "start": start,
        "rule": rule,
        **programs.left_corner_closure(rule, total),
        **programs.sentence(words),
    }
    return programs.load("prefix_probability").ground(facts).log_partition()


def as_facts(rules: Weights) -> Facts:
    weights = torch.tensor(list(rules.values()), dtype=torch.float64, requires_grad=True)
    return Facts(list(rules), weights)


# finite languages


def sentences(rules: Weights, symbol: str) -> Iterator[tuple[tuple[str, ...], Derivation]]:
    """All sentences of a symbol with the rules they use."""
    for row in rules:
        if row[0] == symbol and len(row) == 2:
            yield (row[1],), (("rule", row),)
        if row[0] == symbol and len(row) == 3:
            rights = list(sentences(rules, row[2]))
            for words, used in sentences(rules, row[1]):
                for more, others in rights:
                    yield words + more, (("rule", row), *used, *others)


def random_finite_grammar(rng: np.random.Generator) -> Weights:
    order = {x: i for i, x in enumerate(LAYERS)}
    binary = [r for r in product(LAYERS, repeat=3) if order[r[0]] < min(order[r[1]], order[r[2]])]
    lexical = [*product(LAYERS, WORDS[:2]), ("U", "a")]
    rows = [*some(rng, binary, 0.6), ("S", "B", "D"), ("U", "A", "A"), *some(rng, lexical, 0.7)]
    return random_weights(rng, rows, dead=0.1)


@pytest.mark.parametrize("seed", seeds(5))
def test_prefix_probability_sums_over_all_sentences_that_begin_so(seed: int):
    rng = np.random.default_rng(seed)
    language: list[tuple[tuple[str, ...], Derivation]] = []
    while not 50 <= len(language) <= 2000:
        rules = random_finite_grammar(rng)
        start = {("S",): -0.5, ("A",): 0.25}
        facts = {"start": start, "rule": rules}
        language = [
            (words, (("start", root), *used))
            for root in start
            for words, used in sentences(rules, root[0])
            if weigh(used, facts) > -math.inf
        ]
    prefixes = [list(w) for n in range(4) for w in product(WORDS[:2], repeat=n)]
    for prefix in [*prefixes, ["zzz"], ["a", "zzz"], ["a"] * 9]:
        matching = [d for words, d in language if list(words[: len(prefix)]) == prefix]
        rule = as_facts(rules)
        log_z = prefix_log_z(rule, start, prefix)
        assert_close(log_z, log_sum(weigh(d, facts) for d in matching))
        # Through the sums over what is not seen, the gradient reaches every rule.
        log_z.backward()
        gradient = rule.log_weights.grad
        gradient = torch.zeros(len(rules)) if gradient is None else gradient
        assert_close(gradient.double(), expected("rule", facts, matching))


def test_the_gradient_of_a_prefix_probability_can_be_differentiated():
    rules = random_finite_grammar(np.random.default_rng(3))
    rows = [row for row, weight in rules.items() if weight > -math.inf]
    rows = [*rows, ("S", "S", "C"), ("A", "A", "A")]  # left recursion, too
    logs = torch.linspace(-2.5, -2.0, len(rows), dtype=torch.float64, requires_grad=True)

    def log_z(logs: torch.Tensor) -> torch.Tensor:
        return prefix_log_z(Facts(rows, logs), {("S",): 0.0}, ["a", "b"])

    assert log_z(logs) > -math.inf
    assert torch.autograd.gradcheck(log_z, logs)
    assert torch.autograd.gradgradcheck(log_z, logs)


# infinite languages


def truncated_prefix_weight(
    rules: Weights, start: str, prefix: list[str], longest: int
) -> np.ndarray:
    """Total weight of all sentences of length ≤ m that begin so, for every m up to `longest`.

    Inside weights of sentences of which only the first words are known, by length.
    """
    symbols = sorted({row[0] for row in rules})
    place = {x: i for i, x in enumerate(symbols)}
    tensor = np.zeros([len(symbols)] * 3)
    for row, weight in rules.items():
        if len(row) == 3:
            tensor[tuple(place[x] for x in row)] += math.exp(weight)
    inside = np.zeros((longest + 1, longest + 1, len(symbols)))
    for i in range(longest):
        for row, weight in rules.items():
            if len(row) == 2 and (i >= len(prefix) or prefix[i] == row[1]):
                inside[i, i + 1, place[row[0]]] += math.exp(weight)
    for width in range(2, longest + 1):
        for i in range(longest - width + 1):
            k = i + width
            left, right = inside[i, i + 1 : k], inside[i + 1 : k, k]
            inside[i, k] = np.einsum("xyz,jy,jz->x", tensor, left, right, optimize=True)
    weights = inside[0, :, place[start]].copy()
    weights[: len(prefix)] = 0
    return np.cumsum(weights)


CONSISTENT: dict[Row, float] = {
    ("S", "S", "S"): 0.1,
    ("S", "A", "S"): 0.1,
    ("S", "a"): 0.5,
    ("S", "b"): 0.3,
    ("A", "S", "A"): 0.05,
    ("A", "a"): 0.95,
}
# No probabilities: the totals are unknown, and Newton's method has to find them.
UNNORMALISED: dict[Row, float] = {
    ("S", "S", "A"): 0.2,
    ("S", "A", "A"): 0.5,
    ("A", "A", "S"): 0.2,
    ("A", "a"): 0.5,
    ("A", "b"): 0.1,
    ("S", "b"): 0.2,
}


@pytest.mark.parametrize("weights", [CONSISTENT, UNNORMALISED])
@pytest.mark.parametrize(
    "prefix", [[], ["a"], ["b"], ["a", "b"], ["b", "b", "a"], ["a"] * 5, ["zzz"]]
)
def test_prefix_probability_of_an_infinite_language(weights: dict, prefix: list[str]):
    rules = {row: math.log(weight) for row, weight in weights.items()}
    sums = truncated_prefix_weight(rules, "S", prefix, longest=70)
    assert sums[-1] - sums[-6] < 1e-12, "the sum must have converged"
    log_z = prefix_log_z(as_facts(rules), {("S",): 0.0}, prefix)
    assert_close(log_z.exp(), sums[-1], rtol=1e-9, atol=1e-12)


def test_prefix_probabilities_of_a_consistent_grammar_are_probabilities():
    rules = {row: math.log(weight) for row, weight in CONSISTENT.items()}
    sums = programs.left_corner_closure(rules)
    assert_close(sums["total"].log_weights, [0.0, 0.0])
    start = {("S",): 0.0}
    given = {"S": 0.0, "A": 0.0}
    for prefix in ([], ["a"], ["b", "a"]):
        whole = prefix_log_z(Facts.of(rules), start, prefix, given).exp()
        assert_close(whole, prefix_log_z(Facts.of(rules), start, prefix).exp())
        # A sentence that begins so ends here or goes on with one of the words.
        longer = [prefix_log_z(Facts.of(rules), start, [*prefix, w]).exp() for w in "ab"]
        facts = {"start": start, "rule": rules, **programs.sentence(prefix)}
        ends = programs.load("cnf_inside").ground(facts).log_partition().exp()
        assert_close(whole, ends + sum(longer))


def test_a_critical_grammar_takes_known_totals():
    # S -> S S | a with one half each: every S has one S below it on average.
    rules = {("S", "S", "S"): math.log(0.5), ("S", "a"): math.log(0.5)}
    exact = prefix_log_z(Facts.of(rules), {("S",): 0.0}, ["a", "a"], {"S": 0.0})
    assert_close(exact.exp(), 0.5)  # 1 - p("a")
    found = prefix_log_z(Facts.of(rules), {("S",): 0.0}, ["a", "a"])
    assert_close(found.exp(), 0.5, rtol=1e-7)
