"""Copies of a context model in training, and weights that are no numbers any more."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch

import inout
from inout._core.errors import ArgumentError, TrainingError
from inout.contexts import HistoryFeature
from inout.contexts.history_features import checked_features
from tests.seeds import seeds

SEQUENCES = [[["round"], ["dark"], ["round"]], [["dark"], ["dark"]], [["round"], ["round"]]] * 2
TAGS = [["sun", "moon", "sun"], ["moon", "sun"], ["sun", "sun"]] * 2


def same_before(history):
    return None if "⋆" in history else str(history[0] == history[1])


SAME = HistoryFeature("same", 2, same_before)


@pytest.mark.parametrize(
    "options",
    [
        {"order": 3},
        {"order": 2, "history_features": [SAME]},
        {"size": 2, "beam": True, "learn_escape": True},
        {"method": "lbfgs", "l2": 0.1, "order": 2},
    ],
    ids=["n-grams", "functions", "beam", "lbfgs"],
)
def test_copies_stay_as_they_are(options):
    copies, taggings = [], []

    def after(passed, model):
        copies.append(model.copy())
        taggings.append(model.tag(SEQUENCES))

    last = inout.fit_contexts(SEQUENCES, TAGS, epochs=3, after=after, **options)
    assert (copies[0].emission != last.emission).any()
    for epochs, (copy, before) in enumerate(zip(copies, taggings, strict=True), start=1):
        alone = inout.fit_contexts(SEQUENCES, TAGS, epochs=epochs, **options)
        assert np.array_equal(copy.emission, alone.emission)
        assert np.array_equal(copy.histories.weights, alone.histories.weights)
        assert copy.escape == alone.escape
        for one, other in zip(copy.tag(SEQUENCES), before, strict=True):
            assert (one.labels, one.confidence) == (other.labels, other.confidence)
            assert np.array_equal(one.marginals, other.marginals)


WORDS = ["aaaa"] * 4 + ["hgfedcba", "hhhh", "hgggg"] * 3
OTHERS = ["hahahaha", "habahab"]


def seen(words):
    return [[[f"x={letter}"] for letter in word] for word in words]


def first_of_three(history):
    return None if "⋆" in history else history[0]


FIRST = HistoryFeature("first", 3, first_of_three)


@pytest.mark.parametrize("seed", seeds(3))
def test_questions_during_training_change_no_later_answer(seed):
    """Keys of histories that have no weights yet when they are asked for, and get some later."""
    copies, taggings = [], []

    def after(passed, model):
        copies.append(model.copy())
        taggings.append(model.tag(seen(OTHERS)))

    options = {"order": 1, "size": 2, "step": 1.0, "epochs": 2, "history_features": [FIRST]}

    def trained(**told):
        generator = torch.Generator().manual_seed(seed)
        tags = [list(word) for word in WORDS]
        return inout.fit_contexts(seen(WORDS), tags, generator=generator, **told, **options)

    asked, alone = trained(every=1, after=after), trained()
    weights = (np.sort(model.histories.weights) for model in (asked, alone))
    assert np.array_equal(*weights)  # rows were met in another order
    answers = [model.tag(seen(OTHERS)) for model in (asked, alone, asked.copy())]
    for one, other, third in zip(*answers, strict=True):
        assert one.confidence == other.confidence == third.confidence
        assert np.array_equal(one.marginals, other.marginals)
        assert np.array_equal(one.marginals, third.marginals)
    for copy, before in zip(copies, taggings, strict=True):
        for model in (copy, copy.copy()):
            for one, other in zip(model.tag(seen(OTHERS)), before, strict=True):
                assert one.confidence == other.confidence
                assert np.array_equal(one.marginals, other.marginals)


def test_models_with_functions_can_be_sent_to_other_processes():
    tags = [list(word) for word in WORDS]
    model = inout.fit_contexts(seen(WORDS), tags, order=2, history_features=[FIRST])
    found = ForkingPickler.loads(ForkingPickler.dumps(model)).tag(seen(OTHERS))
    wanted = model.tag(seen(OTHERS))
    assert [one.confidence for one in found] == [one.confidence for one in wanted]


@pytest.mark.parametrize("given", [None, FIRST, "first", [first_of_three], [FIRST, None]])
def test_what_is_no_history_feature(given):
    with pytest.raises(ArgumentError, match="history_features must be a list of HistoryFeature"):
        checked_features(given)


def test_features_that_can_be_gone_through_once():
    assert checked_features(iter([FIRST])) == (FIRST,)


def test_a_copy_changes_nothing_else():
    model = inout.fit_contexts(SEQUENCES, TAGS, order=2)
    copy = model.copy()
    copy.emission[:] = copy.histories.weights[:] = 0.0
    copy.training["note"] = "changed"
    assert model.emission.any()
    assert model.histories.weights.any()
    assert not model.training


def test_training_ends_with_the_epoch_in_which_weights_overflow():
    told = []
    with pytest.raises(TrainingError, match="training must keep weights finite"):
        inout.fit_contexts(
            SEQUENCES, TAGS, epochs=3, step=1e308, after=lambda *arguments: told.append(arguments)
        )
    assert not told
