"""Laws of `em`, on random hidden Markov models and grammars."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from inout import HiddenMarkovModel, em
from inout.learning import Additive, Dirichlet, TrainingError
from tests.oracle.em_models import DenseGrammar
from tests.seeds import examples
from tests.support import assert_close

EXAMPLES = settings(max_examples=examples(10))
SEEDS = st.integers(0, 2**31)
MODELS = st.tuples(st.sampled_from(["hmm", "pcfg"]), SEEDS)
CORPORA = st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=6), min_size=1, max_size=6)


def build(kind: str, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    if kind == "hmm":
        return HiddenMarkovModel.random(3, 3, generator=generator)
    return DenseGrammar.random(2, 2, 3, generator)


def assert_never_falls(objectives: tuple[float, ...]) -> None:
    for k, (before, after) in enumerate(pairwise(objectives), 1):
        assert after >= before - 1e-11 * (1 + abs(before)), f"iteration {k}"


@EXAMPLES
@given(MODELS, CORPORA, st.data())
def test_the_likelihood_never_falls_at_any_step(
    which: tuple[str, int], corpus: list[list[int]], data: st.DataObject
):
    frequencies = data.draw(
        st.lists(st.floats(0.1, 10), min_size=len(corpus), max_size=len(corpus))
    )
    model = build(*which)
    result = em(model, corpus, frequencies=frequencies, max_iterations=20, tolerance=0.0)
    assert_never_falls(result.log_likelihoods)
    # Reported is what the model says.
    values = model.likelihood(corpus)(result.model.log_weights)
    assert_close(
        torch.dot(values, torch.tensor(frequencies, dtype=torch.float64)), result.log_likelihood
    )
    sums = np.bincount(model.distributions, result.model.log_weights.exp().numpy())
    assert_close(sums, np.ones(len(sums)))


@EXAMPLES
@given(MODELS, CORPORA, st.sampled_from([Additive(0.3), Dirichlet(2.5), Additive(0.0)]))
def test_the_posterior_never_falls_with_a_prior(
    which: tuple[str, int], corpus: list[list[int]], prior: Additive | Dirichlet
):
    result = em(build(*which), corpus, prior=prior, max_iterations=20, tolerance=0.0)
    assert_never_falls(result.objectives)


@EXAMPLES
@given(MODELS, CORPORA, st.floats(0.05, 0.95))
def test_a_sparse_prior_leaves_distributions_or_says_what_it_lost(
    which: tuple[str, int], corpus: list[list[int]], alpha: float
):
    model = build(*which)
    try:
        result = em(model, corpus, prior=Dirichlet(alpha), max_iterations=15)
    except TrainingError as error:
        assert "lost its last analysis" in str(error)  # noqa: PT017
        return
    sums = np.bincount(model.distributions, result.model.log_weights.exp().numpy())
    assert_close(sums, np.ones(len(sums)))
    # Between steps that keep all parameters the objective rises.
    assert math.isfinite(result.log_likelihood)


@EXAMPLES
@given(CORPORA, st.integers(1, 4))
def test_fixed_points_stay(corpus: list[list[int]], states: int):
    # States that do not differ: each emits the symbols as often as the corpus has them.
    shares = np.bincount(np.concatenate(corpus), minlength=3) / sum(map(len, corpus))
    with np.errstate(divide="ignore"):
        emission = torch.from_numpy(np.log(np.tile(shares, (states, 1))))
    uniform = torch.full((states, states), -math.log(states), dtype=torch.float64)
    model = HiddenMarkovModel(uniform[0], uniform, emission)
    result = em(model, corpus, max_iterations=20, tolerance=0.0)
    assert_close(result.model.log_weights.exp(), model.log_weights.exp(), atol=1e-13, rtol=1e-12)


@settings(max_examples=examples(4))
@given(MODELS, CORPORA)
def test_where_it_converged_it_stays(which: tuple[str, int], corpus: list[list[int]]):
    found = em(build(*which), corpus, max_iterations=100, tolerance=1e-9)
    again = em(found.model, corpus, max_iterations=1, tolerance=0.0)
    assert again.log_likelihoods[0] == pytest.approx(found.log_likelihood, rel=1e-12, abs=1e-12)
    if found.converged:
        assert (
            again.log_likelihood - found.log_likelihood <= 1e-8 * abs(found.log_likelihood) + 1e-12
        )


@EXAMPLES
@given(MODELS, CORPORA, st.sampled_from([0.001, 0.7, 4.0, 1e6]))
def test_a_factor_of_all_frequencies_changes_nothing(
    which: tuple[str, int], corpus: list[list[int]], factor: float
):
    model = build(*which)
    one = em(model, corpus, max_iterations=6, tolerance=0.0)
    other = em(model, corpus, frequencies=[factor] * len(corpus), max_iterations=6, tolerance=0.0)
    assert_close(other.model.log_weights.exp(), one.model.log_weights.exp(), atol=1e-9)
    # Where nothing changes any more, rounding decides which of them stops first.
    for a, b in zip(one.log_likelihoods, other.log_likelihoods, strict=False):
        assert b / factor == pytest.approx(a, rel=1e-10, abs=1e-10)
    assert other.log_likelihood / factor == pytest.approx(one.log_likelihood, rel=1e-10, abs=1e-10)


@EXAMPLES
@given(MODELS, CORPORA, st.randoms(use_true_random=False))
def test_the_order_of_the_corpus_does_not_matter(
    which: tuple[str, int], corpus: list[list[int]], random: Any
):
    model = build(*which)
    shuffled = list(corpus)
    random.shuffle(shuffled)
    one, other = (em(model, x, max_iterations=6, tolerance=0.0) for x in (corpus, shuffled))
    assert_close(other.model.log_weights.exp(), one.model.log_weights.exp(), atol=1e-9)


@EXAMPLES
@given(MODELS, CORPORA)
def test_a_sentence_twice_is_a_frequency_of_two(which: tuple[str, int], corpus: list[list[int]]):
    model = build(*which)
    twice = em(model, [*corpus, corpus[0]], max_iterations=5, tolerance=0.0)
    counted = em(
        model,
        corpus,
        frequencies=[2.0, *[1.0] * (len(corpus) - 1)],
        max_iterations=5,
        tolerance=0.0,
    )
    assert_close(twice.model.log_weights.exp(), counted.model.log_weights.exp(), atol=1e-9)


@EXAMPLES
@given(SEEDS, CORPORA)
def test_with_nothing_hidden_one_step_counts(seed: int, corpus: list[list[int]]):
    # Each state has a symbol of its own, so the states are seen.
    generator = torch.Generator().manual_seed(seed)
    drawn = HiddenMarkovModel.random(3, 3, generator=generator)
    model = HiddenMarkovModel(
        drawn.initial, drawn.transition, torch.eye(3, dtype=torch.float64).log()
    )
    result = em(model, corpus, max_iterations=10, tolerance=1e-12)
    assert result.iterations <= 2  # the second finds nothing to do
    first, pairs = np.zeros(3), np.zeros((3, 3))
    for sequence in corpus:
        first[sequence[0]] += 1
        for before, after in pairwise(sequence):
            pairs[before, after] += 1
    assert_close(result.model.initial.exp(), first / first.sum())
    for row, counts, old in zip(result.model.transition, pairs, drawn.transition, strict=True):
        assert_close(row.exp(), counts / counts.sum() if counts.sum() else old.exp())


@settings(max_examples=examples(5))
@given(MODELS, CORPORA, SEEDS)
def test_the_best_of_all_starting_points_is_kept(
    which: tuple[str, int], corpus: list[list[int]], seed: int
):
    model, other = build(*which), build(which[0], which[1] + 1)
    result = em(
        model,
        corpus,
        starts=[other, other.log_weights.tolist()],
        restarts=2,
        generator=torch.Generator().manual_seed(seed),
        max_iterations=4,
    )
    assert len(result.runs) == 5
    ends = [run.log_likelihoods[-1] for run in result.runs]
    assert result.log_likelihood == max(ends)
    assert result.best == ends.index(max(ends))
    assert result.runs[1] == result.runs[2]
    alone = em(other, corpus, max_iterations=4)
    assert alone.log_likelihoods == result.runs[1].log_likelihoods
    for run in result.runs:
        assert_never_falls(run.log_likelihoods)
    # The same seed draws the same points.
    again = em(
        model, corpus, restarts=2, generator=torch.Generator().manual_seed(seed), max_iterations=4
    )
    assert again.runs[1:] == result.runs[3:]


def test_random_starting_points_keep_the_zeros_of_the_model():
    model = build("hmm", 0)
    weights = model.log_weights.clone()
    weights[4] = -math.inf
    result = em(
        model.with_log_weights(weights),
        [[0, 1, 2, 2, 1]],
        restarts=4,
        generator=torch.Generator().manual_seed(1),
        max_iterations=3,
    )
    assert float(result.model.log_weights[4]) == -math.inf


def test_it_stops_by_relative_change():
    model, corpus = build("hmm", 3), [[0, 1, 2, 0, 1], [2, 2, 1], [0, 0, 1]]
    result = em(model, corpus, tolerance=1e-3)
    changes = [(b - a) / abs(b) for a, b in pairwise(result.log_likelihoods)]
    assert result.converged
    assert changes[-1] <= 1e-3
    assert min(changes[:-1]) > 1e-3
    cut = em(model, corpus, tolerance=1e-3, max_iterations=len(changes) - 1)
    assert not cut.converged
    assert cut.log_likelihoods == result.log_likelihoods[:-1]
    nothing = em(model, corpus, max_iterations=0)
    assert (nothing.iterations, nothing.log_likelihood) == (0, result.log_likelihoods[0])
    assert_close(nothing.model.log_weights, model.log_weights)


def test_a_model_with_a_wrong_gradient_is_found_out():
    class Wrong(HiddenMarkovModel):
        """Its expected counts are those of other weights."""

        def with_log_weights(self, log_weights: Any) -> Any:
            return Wrong(*self._split(torch.as_tensor(log_weights)))

        def likelihood(self, corpus: Any) -> Any:
            right = super().likelihood(corpus)

            def log_partitions(log_weights: torch.Tensor) -> torch.Tensor:
                wrong = right(log_weights.flip(0))
                return right(log_weights).detach() + wrong - wrong.detach()

            return log_partitions

    model = build("hmm", 2)
    wrong = Wrong(model.initial, model.transition, model.emission)
    corpus = [[0, 1, 2, 0, 1], [2, 2, 1], [0, 0, 1]]
    with pytest.raises(TrainingError, match=r"iteration \d+: the log-likelihood fell from -"):
        em(wrong, corpus, max_iterations=50, tolerance=0.0)


def test_perplexity_is_that_of_a_word():
    model, corpus = build("hmm", 3), [[0, 1, 2, 0, 1], [2, 2, 1], [0, 0, 1]]
    result = em(model, corpus, frequencies=[1.0, 2.0, 1.0], max_iterations=4)
    assert result.perplexity == pytest.approx(math.exp(-result.log_likelihood / 14))
