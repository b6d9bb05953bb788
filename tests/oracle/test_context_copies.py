"""Copies of a context model in training, and weights that are no numbers any more."""

from __future__ import annotations

import numpy as np
import pytest

import inout
from inout._core.errors import ArgumentError
from inout.contexts import HistoryFeature

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
    ids=str,
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
    with pytest.raises(ArgumentError, match="training must end with finite weights"):
        inout.fit_contexts(
            SEQUENCES, TAGS, epochs=3, step=1e308, after=lambda *arguments: told.append(arguments)
        )
    assert not told
