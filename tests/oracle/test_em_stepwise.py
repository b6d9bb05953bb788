"""Stepwise EM against a transcription of Liang & Klein (2009), and against EM where they meet."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inout import (
    ArgumentError,
    Grammar,
    GroundingError,
    HiddenMarkovModel,
    ProgramModel,
    em,
    programs,
)
from inout.learning import Additive, Stepwise
from tests.oracle.program_models import enumerated_counts, normalised
from tests.oracle.test_em_programs import drawn, hmm_group, weights_of
from tests.oracle.test_programs_sequences import hmm_paths
from tests.support import assert_close

WORDS = ["ab", "c", "abca", "bb", "cab", "ba", "acc"]
FREQUENCIES = [1.0, 0.5, 2.0, 1.0, 0.0, 3.0, 1.0]


def tagger() -> tuple[ProgramModel, list[dict], list]:
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in "ABC" for b in "ABC"]
    facts = {
        "start": drawn(rng, [(t,) for t in "ABC"]),
        "transition": drawn(rng, pairs),
        "emission": drawn(rng, [(t, w) for t in "ABC" for w in "abc"]),
        "stop": drawn(rng, [(t,) for t in "ABC"]),
    }
    model = ProgramModel(programs.hmm, facts)
    derivations = [list(hmm_paths(facts, list(words))) for words in WORDS]
    return model, [programs.sentence(list(words)) for words in WORDS], derivations


@pytest.mark.parametrize("alpha", [0.6, 1.0])
@pytest.mark.parametrize("pseudo_count", [0.0, 0.5])
def test_two_passes_as_in_the_paper(alpha: float, pseudo_count: float):
    model, corpus, derivations = tagger()
    result = em(
        model,
        corpus,
        frequencies=FREQUENCIES,
        stepwise=Stepwise(batch_size=3, alpha=alpha),
        prior=Additive(pseudo_count) if pseudo_count else None,
        max_iterations=2,
        tolerance=0.0,
    )
    weights = weights_of(em(model, corpus, max_iterations=0).model)
    likelihoods = []
    k, many = 0, 3  # seven sentences, three at most in each minibatch
    _, mu = enumerated_counts(derivations, weights, FREQUENCIES)
    for _ in range(2):
        likelihoods.append(enumerated_counts(derivations, weights, FREQUENCIES)[0])
        for first in range(many):
            part = range(first, len(WORDS), many)
            chosen = [derivations[i] for i in part], weights, [FREQUENCIES[i] for i in part]
            _, counts = enumerated_counts(*chosen)
            eta = (k + 2) ** -alpha
            mu = {fact: (1 - eta) * mu[fact] + eta * many * counts[fact] for fact in mu}
            smoothed = {fact: count + pseudo_count for fact, count in mu.items()}
            weights = normalised(smoothed, weights, hmm_group)
            k += 1
    likelihoods.append(enumerated_counts(derivations, weights, FREQUENCIES)[0])
    assert_close(result.log_likelihoods, likelihoods)
    assert_close(list(weights_of(result.model).values()), list(weights.values()))


def test_one_minibatch_that_forgets_everything_is_em():
    model, corpus, _ = tagger()
    options = {"max_iterations": 5, "tolerance": 0.0}
    found = em(model, corpus, stepwise=Stepwise(len(corpus), alpha=0.0), **options)
    twin = em(model, corpus, **options)
    assert_close(found.log_likelihoods, twin.log_likelihoods)
    assert_close(found.model.log_weights, twin.model.log_weights)


def test_it_converges_to_the_likelihood_of_em():
    parts = ([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2, 0.0], [0.1, 0.2, 0.7]])
    truth = HiddenMarkovModel(*(torch.tensor(part).log() for part in parts))
    generator = torch.Generator().manual_seed(0)
    corpus = truth.sample([10] * 60, generator=generator)
    parts = ([0.6, 0.4], [[0.6, 0.4], [0.4, 0.6]], [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    start = HiddenMarkovModel(*(torch.tensor(part).log() for part in parts))
    batch = em(start, corpus, tolerance=1e-9)
    online = em(start, corpus, stepwise=Stepwise(6), tolerance=1e-6, max_iterations=100)
    assert online.converged
    assert online.log_likelihood == pytest.approx(batch.log_likelihood, rel=1e-4)
    assert_close(online.model.log_weights.exp(), batch.model.log_weights.exp(), atol=0.02)
    # It learns more from one pass than EM does.
    assert online.log_likelihoods[1] > batch.log_likelihoods[1]


def test_grammars():
    grammar = Grammar.from_text("S -> X S [0.6] | X [0.4]\nX -> 'a' [0.3] | 'b' [0.7]\n")
    corpus = [["a", "a", "b"], ["a"], ["z"], ["b", "a"]]
    online = em(grammar, corpus, stepwise=Stepwise(1), max_iterations=200)
    assert online.left_out == (2,)
    assert_close(online.model.log_weights.exp(), [3 / 6, 3 / 6, 4 / 6, 2 / 6], atol=0.02)


def test_dense_models_and_interrupted_runs(tmp_path):
    generator = torch.Generator().manual_seed(0)
    model = HiddenMarkovModel.random(2, 3, generator=generator)
    corpus = [[0, 1, 2, 1], [2], [1, 1, 0, 2, 2, 0, 1], [0, 0], [2, 1, 0, 1, 2]]
    options = {"stepwise": Stepwise(2), "tolerance": 0.0, "restarts": 1, "max_iterations": 4}
    seed = torch.Generator().manual_seed(1)
    whole = em(model, corpus, generator=seed, **options)

    def stop(progress):
        if progress.run == 1 and progress.iteration == 2:
            raise KeyboardInterrupt

    path = tmp_path / "run"
    seed.manual_seed(1)
    with pytest.raises(KeyboardInterrupt):
        em(model, corpus, generator=seed, checkpoint=path, progress=stop, **options)
    seed.manual_seed(1)
    again = em(model, corpus, generator=seed, checkpoint=path, resume=True, **options)
    assert again.log_likelihoods == whole.log_likelihoods
    assert torch.equal(again.model.log_weights, whole.model.log_weights)
    seed.manual_seed(1)
    options["stepwise"] = Stepwise(3)
    with pytest.raises(ArgumentError, match="stepwise was Stepwise"):
        em(model, corpus, generator=seed, checkpoint=path, resume=True, **options)


def test_errors_have_the_number_in_the_corpus():
    model, corpus, _ = tagger()
    corpus[5] = {"word": [("a",)], "length": [(1,)]}
    for size in (1, 3, 7):
        with pytest.raises(ArgumentError, match=r"^corpus\[5\]: "):
            em(model, corpus, stepwise=Stepwise(size))
    corpus[5] = {"word": [("a", 0, 1)]}
    with pytest.raises(GroundingError, match=r"^corpus\[5\]: length"):
        em(model, corpus, stepwise=Stepwise(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stepwise(0), "batch_size must be an integer of at least 1"),
        (lambda: Stepwise(1, -0.1), "alpha must be a finite number"),
        (lambda: Stepwise(1, 1.5), "alpha must be at most 1"),
    ],
)
def test_misuse(make, message: str):
    with pytest.raises(ArgumentError, match=message):
        make()
