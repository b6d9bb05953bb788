"""Conditional training against scipy's optimiser on sums over all analyses."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from inout import Grammar, LinearChain, fit_conditional
from inout.learning import Progress, TrainingError
from tests.support import assert_close

# Label sequences of two labels over words of three kinds: 2 · 2 transitions, 3 · 2 emissions.
WORDS = [[0, 1, 2], [2, 0], [1, 1, 0, 2]]
LABELS = [[0, 1, 1], [1, 0], [1, 1, 0, 1]]


def used(words: list[int], labels: tuple[int, ...] | list[int]) -> np.ndarray:
    counts = np.zeros(10)
    for before, after in pairwise(labels):
        counts[2 * before + after] += 1
    for word, label in zip(words, labels, strict=True):
        counts[4 + 2 * word + label] += 1
    return counts


OBSERVED = sum(used(words, labels) for words, labels in zip(WORDS, LABELS, strict=True))


def chains(weights: Tensor) -> Tensor:
    transitions, emission = weights[:4].reshape(2, 2), weights[4:].reshape(3, 2)
    lengths = torch.tensor([len(words) for words in WORDS])
    padded = torch.tensor([words + [0] * (4 - len(words)) for words in WORDS])
    return LinearChain(emission[padded], transitions, lengths=lengths).log_partition()


def enumerated(weights: np.ndarray, l2: float) -> tuple[float, np.ndarray]:
    """The objective and observed - expected counts - l2 · weights, over all labellings."""
    value, gradient = float(OBSERVED @ weights), OBSERVED.copy()
    for words in WORDS:
        features = np.array([used(words, labels) for labels in product((0, 1), repeat=len(words))])
        scores = features @ weights
        z = np.exp(scores).sum()
        value -= math.log(z)
        gradient -= features.T @ (np.exp(scores) / z)
    return value - 0.5 * l2 * float(weights @ weights), gradient - l2 * weights


@pytest.mark.parametrize("l2", [0.1, 1.0])
def test_the_maximum_is_that_of_scipy_on_enumerated_sums(l2: float):
    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = enumerated(weights, l2)
        return -value, -gradient

    truth = minimize(loss, np.zeros(10), jac=True, method="BFGS", options={"gtol": 1e-9})
    found = fit_conditional(chains, OBSERVED, l2=l2, tolerance=1e-14)
    assert found.converged
    assert_close(found.log_weights, truth.x, atol=1e-6)
    assert found.objectives[-1] == pytest.approx(-truth.fun, rel=1e-10)
    if l2 == 1.0:
        slow = fit_conditional(chains, OBSERVED, l2=l2, method="adam", tolerance=1e-10)
        assert_close(slow.log_weights, truth.x, atol=1e-3)
        assert max(slow.objectives) <= -truth.fun + 1e-9


def test_the_gradient_is_observed_minus_expected():
    start = torch.linspace(-1, 1, 10, dtype=torch.float64)
    found = fit_conditional(chains, OBSERVED, initial=start, l2=0.3, max_iterations=0)
    value, gradient = enumerated(start.numpy(), 0.3)
    assert found.objectives == (pytest.approx(value, rel=1e-12),)
    assert found.log_likelihood == pytest.approx(enumerated(start.numpy(), 0.0)[0], rel=1e-12)
    assert_close(found.gradient, gradient)
    assert_close(found.expected_counts, OBSERVED - 0.3 * start.numpy() - gradient)
    assert torch.equal(found.log_weights, start)


def test_the_objective_never_falls_at_any_step():
    heard: list[Progress] = []
    found = fit_conditional(chains, OBSERVED, l2=0.01, tolerance=0.0, progress=heard.append)
    for before, after in pairwise(found.objectives):
        assert after >= before - 1e-12 * abs(before)
    assert [x.iteration for x in heard] == list(range(found.iterations + 1))
    assert found.iterations < 100


def test_each_point_is_evaluated_once():
    calls = 0

    def counted(weights: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return chains(weights)

    found = fit_conditional(counted, OBSERVED, l2=0.1)
    assert calls <= 1.5 * found.iterations + 3


def test_weights_of_minus_infinity_stay():
    start = torch.zeros(10, dtype=torch.float64)
    start[0] = -math.inf  # 0 0 does not occur
    assert OBSERVED[0] == 0
    found = fit_conditional(chains, OBSERVED, initial=start, l2=0.1)
    assert float(found.log_weights[0]) == -math.inf
    assert found.log_weights[1:].isfinite().all()
    assert float(found.gradient[1:].abs().max()) < 1e-2


def test_where_there_is_nothing_to_learn_nothing_changes():
    def one_analysis(weights: Tensor) -> Tensor:
        return weights.sum().reshape(1)

    found = fit_conditional(one_analysis, [1.0, 1.0])
    assert (found.converged, found.objectives) == (True, (0.0, 0.0))
    assert_close(found.log_weights, [0.0, 0.0])


def test_frequencies_are_repetitions():
    twice = fit_conditional(
        chains, 2 * OBSERVED, frequencies=[2.0, 2.0, 2.0], l2=0.2, tolerance=1e-13
    )
    once = fit_conditional(chains, OBSERVED, l2=0.1, tolerance=1e-13)
    assert_close(twice.log_weights, once.log_weights, atol=1e-5)


@pytest.mark.parametrize("factor", [-1.0, -3.0])
def test_a_wrong_gradient_is_found_out(factor: float):
    def wrong(weights: Tensor) -> Tensor:
        value, other = chains(weights), chains(factor * weights + 5.0)
        return value.detach() + other - other.detach()

    with pytest.raises(TrainingError, match=r"iteration \d+: .* is not that of its value"):
        fit_conditional(wrong, OBSERVED, l2=0.1, max_iterations=50)


def test_an_impossible_sentence_is_an_error():
    def impossible(weights: Tensor) -> Tensor:
        return torch.stack([weights.sum(), weights.sum() - math.inf])

    with pytest.raises(TrainingError, match="sentence 1"):
        fit_conditional(impossible, OBSERVED)


def test_a_crf_grammar_prefers_the_trees_it_was_shown():
    # Attachment to the left or to the right: a treebank of trees that go to the left.
    grammar = Grammar.from_text("S -> L | R\nL -> L 'a' | 'a'\nR -> 'a' R | 'a'")
    corpus = [["a"] * n for n in (2, 3, 4)]
    rules = [str(rule) for rule in grammar.rules]
    observed = [0.0] * len(rules)
    observed[rules.index("S -> L")] = 3
    observed[rules.index("L -> L 'a'")] = 1 + 2 + 3
    observed[rules.index("L -> 'a'")] = 3
    likelihood = grammar.likelihood(corpus)
    found = fit_conditional(likelihood, observed, l2=0.05)
    assert found.converged
    # Two trees for each sentence; the score of one is its rules' weights.
    w = dict(zip(rules, found.log_weights.tolist(), strict=True))
    expected = 0.0
    for n in (2, 3, 4):
        left = w["S -> L"] + (n - 1) * w["L -> L 'a'"] + w["L -> 'a'"]
        right = w["S -> R"] + (n - 1) * w["R -> 'a' R"] + w["R -> 'a'"]
        expected += left - np.logaddexp(left, right)
        assert left > right
    assert found.log_likelihood == pytest.approx(expected, rel=1e-9)
