"""The library against Eisner's seven algorithms and against the enumeration of all parses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from inout import Facts, Forest, Item, Program
from inout.semirings import Real
from tests.oracle.eisner_algorithms import (
    ROOT,
    Grammar,
    Result,
    TaggingGrammar,
    backward,
    forward_backward,
    inside,
    inside_outside_2,
    inside_outside_3,
    inside_outside_4,
    inside_outside_5,
)
from tests.seeds import seeds
from tests.support import assert_close

CNF = """
goal        += beta("ROOT", 0, N) * length(N).
beta(X,I,K) += rule(X,Y,Z) * beta(Y,I,J) * beta(Z,J,K).
beta(X,I,K) += rule(X,W) * word(W,I,K).
"""

HMM = """
goal      += start(A) * tag(A, 1).
tag(A, J) += rule(A, W, B) * word(W, J) * tag(B, J+1).
tag(A, N) += stop(A, W) * word(W, N) * length(N).
"""

VARIANTS = [inside_outside_2, inside_outside_3, inside_outside_4, inside_outside_5]
SEEDS = seeds(30, few=5)  # some of the first have no parse
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def log(weight: float) -> float:
    return math.log(weight) if weight else -math.inf


# --------------------------------------------------------------------------- grammars


def random_grammar(seed: int) -> Grammar:
    """Some rules of weight zero, one symbol that nothing uses, one that derives no words."""
    rng = np.random.default_rng(seed)
    symbols, words = [ROOT, "A", "B", "C"], ["a", "b"]
    weights: dict[tuple[str, ...], float] = {}
    density = rng.uniform(0.15, 0.4)
    for rule in [*product(symbols, symbols, symbols), *product(symbols, words)]:
        if rng.random() < (density if len(rule) == 3 else 0.7):
            weights[rule] = 0.0 if rng.random() < 0.15 else float(rng.gamma(1.0))
    weights["UNUSED", "A", "B"] = weights["UNUSED", "a"] = 1.5
    weights["A", "BARREN", "B"] = weights["BARREN", "BARREN", "A"] = 2.5
    weights[ROOT, "A", "BARREN"] = 0.5
    weights["BARREN", "never"] = 0.7
    rules = list(weights)
    rng.shuffle(rules)
    chosen = {tuple(rule): weights[tuple(rule)] for rule in rules}
    return Grammar(chosen, [*symbols, "UNUSED", "BARREN"])


def random_sentence(seed: int) -> list[str]:
    rng = np.random.default_rng([seed, 1])
    return rng.choice(["a", "b"], size=int(rng.integers(1, 6))).tolist()


def parses(
    grammar: Grammar, w: list[str], A: str, i: int, k: int
) -> Iterator[tuple[float, list[tuple[Any, ...]]]]:
    """(weight, anchored rules) of every tree of some weight over words i+1..k with root A."""
    if k - i == 1 and grammar.G(A, w[i]) > 0:
        yield grammar.G(A, w[i]), [(A, w[i], i, k)]
    for j in range(i + 1, k):
        for B, C in product(grammar.N, grammar.N):
            if grammar.G(A, B, C) > 0:
                for left, left_rules in parses(grammar, w, B, i, j):
                    for right, right_rules in parses(grammar, w, C, j, k):
                        own = (A, B, C, i, j, k)
                        yield (grammar.G(A, B, C) * left * right, [own, *left_rules, *right_rules])


@dataclass
class Posterior:
    """Sums over all parses: the definitions, equations 1 and 2."""

    Z: float
    c: defaultdict[Any, float]
    anchored: defaultdict[Any, float]
    constituents: defaultdict[Any, float]


def enumerate_parses(grammar: Grammar, w: list[str]) -> Posterior:
    trees = list(parses(grammar, w, ROOT, 0, len(w)))
    Z = math.fsum(weight for weight, _ in trees)
    result = Posterior(Z, defaultdict(float), defaultdict(float), defaultdict(float))
    for weight, rules in trees:
        for rule in rules:
            symbols = tuple(x for x in rule if isinstance(x, str))
            places = [x for x in rule if isinstance(x, int)]
            result.c[symbols] += weight / Z
            result.anchored[rule] += weight / Z
            result.constituents[rule[0], places[0], places[-1]] += weight / Z
    return result


def ground(grammar: Grammar, w: list[str], requires_grad: bool = False) -> tuple[Forest, Facts]:
    weights = torch.tensor(
        [log(weight) for weight in grammar.weights.values()],
        dtype=torch.float64,
        requires_grad=requires_grad,
    )
    rules = Facts(grammar.rules, weights)
    words = [(word, i, i + 1) for i, word in enumerate(w)]
    facts = {"rule": rules, "word": words, "length": [(len(w),)]}
    return Program(CNF).ground(facts), rules


def anchored_counts(forest: Forest) -> dict[Any, float]:
    """Expected counts of anchored rules: those of the edges that the rules made."""
    found: dict[Any, float] = {}
    arrays, counts = forest.arrays, forest.edge_counts().tolist()
    for edge, head in enumerate(arrays.heads.tolist()):
        tails = arrays.tails[arrays.tail_offsets[edge] : arrays.tail_offsets[edge + 1]]
        label, labels = forest.labels[head], [forest.labels[int(t)] for t in tails]
        if label.relation != "beta":
            continue
        _, i, k = label.arguments
        rule, *parts = labels
        middle = (parts[0].arguments[2],) if len(parts) == 2 else ()
        key = (*rule.arguments, i, *middle, k)
        assert key not in found
        found[key] = counts[edge]
    return found


def dense(table: Any, keys: list[Any]) -> np.ndarray:
    return np.array([table.get(key, 0.0) for key in keys])


# -------------------------------------------------------------------------- algorithms 1-5


@pytest.mark.parametrize("seed", SEEDS)
def test_inside_outside(seed: int) -> None:
    grammar, w = random_grammar(seed), random_sentence(seed)
    n = len(w)
    truth = enumerate_parses(grammar, w)
    forest, _ = ground(grammar, w)
    Z, beta = inside(grammar, w)
    assert_close(Z, truth.Z, **EXACT)
    assert_close(forest.log_partition(), log(truth.Z), **EXACT)
    counts = forest.expected_counts("rule")
    assert len(counts) == len(grammar.rules)
    if not Z:
        assert_close(counts, np.zeros(len(counts)))
        return
    spans = [(A, i, k) for A in grammar.N for i in range(n) for k in range(i + 1, n + 1)]
    anchors = list(truth.anchored)
    results: list[Result] = [variant(grammar, w) for variant in VARIANTS]
    for result in results:
        assert_close(result.Z, Z, **EXACT)
        assert_close(dense(result.c, grammar.rules), dense(truth.c, grammar.rules), **EXACT)
    for result in results[1], results[3]:
        expected = dense(truth.constituents, spans)
        assert_close(dense(result.constituents, spans), expected, **EXACT)
    for result in results[2:]:
        assert_close(dense(result.anchored, anchors), dense(truth.anchored, anchors), **EXACT)
        assert math.fsum(result.anchored.values()) == pytest.approx(2 * n - 1, rel=1e-12)

    # The library, against the definition (and so against all of them).
    assert_close(counts, dense(truth.c, grammar.rules), **EXACT)
    marginals = forest.marginals()
    ours = [marginals.get(Item("beta", span), 0.0) for span in spans]
    assert_close(np.array(ours), dense(truth.constituents, spans), **EXACT)
    edges = anchored_counts(forest)
    assert_close(dense(edges, anchors), dense(truth.anchored, anchors), **EXACT)
    assert sum(edges.values()) == pytest.approx(2 * n - 1, rel=1e-12)
    # Inner and outer weights: β itself, and α[A] = ∂Z/∂β[A] = Z · c(A) / β[A].
    values = forest.evaluate(Real(), every_item=True)
    for item, label in enumerate(forest.labels):
        if label.relation == "beta":
            span = label.arguments
            assert_close(values[item], beta[span], **EXACT)
            outer = Z * marginals[label] / beta[span] if beta[span] else 0.0
            assert_close(outer, results[0].alpha[span] if beta[span] else 0.0, rtol=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_the_library_are_the_counts(seed: int) -> None:
    grammar, w = random_grammar(seed), random_sentence(seed)
    truth = enumerate_parses(grammar, w)
    forest, rules = ground(grammar, w, requires_grad=True)
    forest.log_partition().backward()
    assert_close(rules.log_weights.grad, dense(truth.c, grammar.rules), **EXACT)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_forest_pcfg(seed: int) -> None:
    # Equations 17-22: shares sum to one below every item, and walking down them from the goal
    # hits every item as often as it is expected.
    grammar, w = random_grammar(seed), random_sentence(seed)
    _, beta = inside(grammar, w)
    forest, _ = ground(grammar, w)
    arrays, shares = forest.arrays, forest.local_probabilities().numpy()
    hits = np.zeros(forest.num_items)
    parsed = beta[ROOT, 0, len(w)] > 0
    if parsed:
        hits[arrays.goals] = 1.0
    for item in reversed(range(forest.num_items)):
        edges = range(arrays.edge_offsets[item], arrays.edge_offsets[item + 1])
        if edges and parsed:
            assert_close(shares[list(edges)].sum(), 1.0, **EXACT)
        for edge in edges:
            tails = arrays.tails[arrays.tail_offsets[edge] : arrays.tail_offsets[edge + 1]]
            np.add.at(hits, tails, hits[item] * shares[edge])
            label = forest.labels[item]
            if label.relation == "beta" and parsed:
                A, i, k = label.arguments
                labels = [forest.labels[int(t)] for t in tails]
                weight = grammar.G(*labels[0].arguments)
                for part in labels[1:]:
                    weight *= beta[part.arguments] if part.relation == "beta" else 1.0
                assert_close(shares[edge], weight / beta[A, i, k], **EXACT)
    assert_close(forest.expected_counts(), hits, **EXACT)


@pytest.mark.exhaustive
def test_sentences_of_both_kinds_are_tested() -> None:
    sums = [enumerate_parses(random_grammar(s), random_sentence(s)).Z for s in SEEDS]
    assert 5 < sum(Z == 0 for Z in sums) < 25
    counts = [
        sum(
            1
            for _ in parses(random_grammar(s), random_sentence(s), ROOT, 0, len(random_sentence(s)))
        )
        for s in SEEDS
    ]
    assert max(counts) > 100


# -------------------------------------------------------------------------- algorithms 6-7


def random_tagger(seed: int) -> TaggingGrammar:
    rng = np.random.default_rng([seed, 2])
    tags, words = ["D", "N", "V", "DEAD"], ["a", "b"]

    def some(keys: Any, density: float) -> dict[Any, float]:
        return {
            key: 0.0 if rng.random() < 0.1 else float(rng.gamma(1.0))
            for key in keys
            if rng.random() < density
        }

    # DEAD is entered and never left; a tag may be used by nothing.
    live = tags[:-1]
    transitions = some(product(live, words, tags), 0.6)
    return TaggingGrammar(some(tags, 0.8), transitions, some(product(live, words), 0.6), tags)


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_backward(seed: int) -> None:
    grammar, w = random_tagger(seed), random_sentence(seed)
    n = len(w)
    Z, _ = backward(grammar, w)
    counts: defaultdict[Any, float] = defaultdict(float)
    tags: defaultdict[Any, float] = defaultdict(float)
    total = 0.0
    for tagging in product(grammar.N, repeat=n):
        rules = [("start", tagging[0])]
        rules += [("rule", tagging[j], w[j], tagging[j + 1]) for j in range(n - 1)]
        rules.append(("stop", tagging[-1], w[-1]))
        weight = grammar.starts.get(tagging[0], 0.0)
        for kind, *rule in rules[1:]:
            table: Any = grammar.transitions if kind == "rule" else grammar.stops
            weight *= table.get(tuple(rule), 0.0)
        total += weight
        for rule in rules:
            counts[rule] += weight
        for j, tag in enumerate(tagging, 1):
            tags[tag, j] += weight
    assert_close(Z, total, **EXACT)

    facts = {
        "start": {(A,): log(x) for A, x in grammar.starts.items()},
        "rule": {r: log(x) for r, x in grammar.transitions.items()},
        "stop": {r: log(x) for r, x in grammar.stops.items()},
        "word": [(word, j) for j, word in enumerate(w, 1)],
        "length": [(n,)],
    }
    forest = Program(HMM).ground(facts)
    assert_close(forest.log_partition(), log(total), **EXACT)
    if not Z:
        assert_close(forest.expected_counts(), np.zeros(forest.num_items))
        return
    result = forward_backward(grammar, w)
    keys = {
        "start": [("start", A) for A in grammar.starts],
        "rule": [("rule", *r) for r in grammar.transitions],
        "stop": [("stop", *r) for r in grammar.stops],
    }
    for name, rules in keys.items():
        expected = dense(counts, rules) / total
        assert_close(dense(result.c, rules), expected, **EXACT)
        assert_close(forest.expected_counts(name), expected, **EXACT)
    marginals = forest.marginals()
    for A, j in product(grammar.N, range(1, n + 1)):
        expected = tags[A, j] / total
        assert_close(result.constituents[A, j], expected, **EXACT)
        assert_close(marginals.get(Item("tag", (A, j)), 0.0), expected, **EXACT)


def test_the_printed_algorithm_7_is_wrong() -> None:
    # The correction matters: with line 13 as printed no stopping rule would ever be counted.
    grammar = TaggingGrammar({"N": 2.0}, {("N", "a", "N"): 0.5}, {("N", "a"): 0.25}, ["N"])
    result = forward_backward(grammar, ["a", "a", "a"])
    assert result.c["stop", "N", "a"] == pytest.approx(1.0)
    assert result.c["rule", "N", "a", "N"] == pytest.approx(2.0)
