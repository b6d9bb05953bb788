"""Steps of `em` against Baum-Welch as printed, and against sums over all trees."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from inout import HiddenMarkovModel, em
from inout.learning import Additive, Dirichlet
from tests.oracle.em_models import DenseGrammar, baum_welch_step, enumerated_counts
from tests.seeds import seeds
from tests.support import assert_close

CORPUS = [[0, 1, 2, 1], [2], [1, 1, 0, 2, 2, 0, 1], [], [0, 0], [2, 1, 0, 1, 2]]
FREQUENCIES = [1.0, 2.5, 3.0, 1.0, 0.25, 2.0]


def hidden_markov(seed: int, states: int = 3, symbols: int = 3) -> HiddenMarkovModel:
    generator = torch.Generator().manual_seed(seed)
    return HiddenMarkovModel.random(states, symbols, generator=generator)


def probabilities(model: HiddenMarkovModel) -> list[np.ndarray]:
    return [x.exp().numpy() for x in (model.initial, model.transition, model.emission)]


@pytest.mark.parametrize("seed", seeds(4))
def test_steps_of_baum_welch(seed: int):
    model = hidden_markov(seed)
    truth = probabilities(model)
    result = em(model, CORPUS, frequencies=FREQUENCIES, max_iterations=3, tolerance=0.0)
    for likelihood in result.log_likelihoods[:3]:
        expected, *truth = baum_welch_step(*truth, CORPUS, FREQUENCIES)
        assert likelihood == pytest.approx(expected, rel=1e-12)
    for actual, expected in zip(probabilities(result.model), truth, strict=True):
        assert_close(actual, expected)
    assert result.iterations == 3


def test_baum_welch_with_zeros_unused_states_and_impossible_sequences():
    initial = np.array([0.5, 0.5, 0.0])
    transition = np.array([[0.2, 0.8, 0.0], [0.6, 0.4, 0.0], [0.1, 0.2, 0.7]])  # 2 is not reached
    emission = np.array([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])
    corpus = [[0, 1, 1], [0, 2, 1], [1, 0], [2]]
    with np.errstate(divide="ignore"):
        model = HiddenMarkovModel(
            *(torch.from_numpy(np.log(x)) for x in (initial, transition, emission))
        )
    result = em(model, corpus, max_iterations=1)
    assert result.left_out == (1, 3)
    _, *truth = baum_welch_step(initial, transition, emission, corpus, [1.0] * 4)
    for actual, expected in zip(probabilities(result.model), truth, strict=True):
        assert_close(actual, expected)
    # What no sequence uses keeps its weights, to the bit.
    assert torch.equal(result.model.transition[2].exp(), model.transition[2].exp())


SENTENCES = [[0, 1, 1], [1, 0], [0, 0, 1, 0], [1]]
COUNTS = [2.0, 1.0, 0.5, 1.0]


@pytest.mark.parametrize("seed", seeds(3))
def test_steps_of_inside_outside(seed: int):
    model = DenseGrammar.random(2, 2, 2, torch.Generator().manual_seed(seed))
    result = em(model, SENTENCES, frequencies=COUNTS, max_iterations=2, tolerance=0.0)
    assert result.left_out == (3,)  # one word has no tree in this form
    current = model
    for likelihood in result.log_likelihoods[:2]:
        expected, totals = enumerated_counts(current, SENTENCES, COUNTS)
        assert likelihood == pytest.approx(expected, rel=1e-12)
        current = DenseGrammar(
            torch.from_numpy(np.log(totals["root"] / totals["root"].sum())),
            torch.from_numpy(np.log(totals["rules"] / totals["rules"].sum((1, 2), keepdims=True))),
            torch.from_numpy(np.log(totals["emission"] / totals["emission"].sum(1)[:, None])),
        )
    assert_close(result.model.log_weights.exp(), current.log_weights.exp())
    _, totals = enumerated_counts(current, SENTENCES, COUNTS)
    assert_close(
        result.expected_counts,
        np.concatenate([totals[name].reshape(-1) for name in ("root", "rules", "emission")]),
    )


@pytest.mark.parametrize("prior", [Additive(0.7), Dirichlet(1.7), Dirichlet([1.7] * 14)])
def test_a_prior_adds_its_counts(prior: Additive | Dirichlet):
    model = DenseGrammar.random(1, 1, 2, torch.Generator().manual_seed(5))
    wide = DenseGrammar.random(1, 2, 2, torch.Generator().manual_seed(5))
    assert (len(model.log_weights), len(wide.log_weights)) == (7, 14)
    result = em(wide, SENTENCES, prior=prior, max_iterations=1)
    _, totals = enumerated_counts(wide, SENTENCES, [1.0] * 4)
    smoothed = {name: counts + 0.7 for name, counts in totals.items()}
    assert_close(result.model.rules.exp(), smoothed["rules"] / smoothed["rules"].sum())
    assert_close(
        result.model.emission.exp(), smoothed["emission"] / smoothed["emission"].sum(1)[:, None]
    )
    penalty = 0.7 * float(wide.log_weights.sum())
    assert result.objectives[0] == pytest.approx(result.log_likelihoods[0] + penalty, rel=1e-12)
    assert result.objectives[1] > result.objectives[0]


def test_smoothing_gives_nothing_to_what_is_impossible():
    model = hidden_markov(0, 2, 2)
    zeros = model.log_weights.clone()
    zeros[2:4] = torch.tensor([-math.inf, 0.0])
    model = model.with_log_weights(zeros)
    result = em(model, [[0, 1, 1]], prior=Additive(1.0), max_iterations=5)
    assert_close(result.model.transition[0].exp(), [0.0, 1.0])
    assert result.model.transition[1].isfinite().all()


def test_an_alpha_below_one_drops_what_is_hardly_used():
    generator = torch.Generator().manual_seed(3)
    model = hidden_markov(1, 4, 3)
    corpus = HiddenMarkovModel.random(2, 3, generator=generator).sample(
        [8] * 20, generator=generator
    )
    dense = em(model, corpus, max_iterations=200)
    sparse = em(model, corpus, max_iterations=200, prior=Dirichlet(0.2))
    zeros = [int((x.model.log_weights == -math.inf).sum()) for x in (dense, sparse)]
    assert zeros[1] > zeros[0]
    sums = np.bincount(model.distributions, sparse.model.log_weights.exp().numpy())
    assert_close(sums, np.ones(9))
    # The limit of the maximisation: (count - 0.8) over its sum, at the fixed point too.
    again = em(sparse.model, corpus, max_iterations=1, prior=Dirichlet(0.2))
    assert_close(again.model.log_weights.exp(), sparse.model.log_weights.exp(), atol=1e-3)


def test_an_alpha_below_one_keeps_a_distribution_that_would_vanish():
    model = hidden_markov(2, 2, 2)
    result = em(model, [[0, 1]], prior=Dirichlet(0.01), max_iterations=3)
    sums = np.bincount(model.distributions, result.model.log_weights.exp().numpy())
    assert_close(sums, np.ones(5))


def test_samples_have_the_probabilities_of_the_model():
    generator = torch.Generator().manual_seed(7)
    model = hidden_markov(4, 2, 2)
    drawn = model.sample([3] * 40_000, generator=generator)
    codes = torch.stack(drawn) @ torch.tensor([4, 2, 1])
    shares = torch.bincount(codes, minlength=8) / len(drawn)
    events = [[i >> 2, (i >> 1) & 1, i & 1] for i in range(8)]
    truth = model.likelihood(events)(model.log_weights).exp()
    assert float(truth.sum()) == pytest.approx(1.0)
    deviation = (truth * (1 - truth) / len(drawn)).sqrt()
    assert bool(((shares - truth).abs() < 5 * deviation).all())
    assert [len(x) for x in model.sample([2, 0, 5], generator=generator)] == [2, 0, 5]


def test_states_are_those_of_the_dense_distribution():
    model = hidden_markov(5)
    hmm = model.states([[0, 1, 2], [1]])
    assert_close(hmm.log_partition(), model.likelihood([[0, 1, 2], [1]])(model.log_weights))
    assert hmm.mode.shape == (2, 3)


def test_batches_of_any_lengths_are_put_back_in_order():
    model = hidden_markov(6)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 60, (50,), generator=generator).tolist()
    corpus = model.sample(lengths, generator=generator)
    whole = model.likelihood(corpus)(model.log_weights)
    single = torch.cat([model.likelihood([x])(model.log_weights) for x in corpus])
    assert_close(whole, single)
