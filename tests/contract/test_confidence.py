"""Precision and recall by confidence against a version that tries every threshold."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inout._core.errors import ArgumentError
from inout.contexts.confidence import precision_recall, recall_at, threshold_at

EXAMPLES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.7, 0.99, 1.0]), st.booleans()),
    min_size=1,
    max_size=30,
)
PRECISIONS = st.sampled_from(["0", "0.3", "0.5", "0.7", "0.75", "0.9", "0.99", "1"])


def naive_points(examples):
    """(threshold, precision, recall) for each confidence that occurs, the highest first."""
    points = []
    for threshold in sorted({confidence for confidence, _ in examples}, reverse=True):
        answered = [right for confidence, right in examples if confidence >= threshold]
        points.append(
            (
                threshold,
                Fraction(sum(answered), len(answered)),
                Fraction(len(answered), len(examples)),
            )
        )
    return points


@given(EXAMPLES)
def test_the_curve_is_that_of_all_thresholds(examples):
    confidences, correct = map(list, zip(*examples, strict=True))
    precision, recall = precision_recall(confidences, correct)
    points = {threshold: (float(p), float(r)) for threshold, p, r in naive_points(examples)}
    expected = [points[confidence] for confidence in sorted(confidences, reverse=True)]
    assert list(zip(precision, recall, strict=True)) == expected
    assert recall[-1] == 1
    assert precision[-1] == np.mean(correct)
    # The order in which the examples come is no matter.
    again = precision_recall(confidences[::-1], correct[::-1])
    assert np.array_equal(again, (precision, recall))


@given(EXAMPLES, PRECISIONS)
def test_recall_at_a_precision_is_the_best_of_all_thresholds(examples, wanted):
    confidences, correct = map(list, zip(*examples, strict=True))
    points = naive_points(examples)
    reached = [(r, t) for t, p, r in points if p >= Fraction(wanted)]
    best, threshold = max(reached, default=(Fraction(0), math.inf))
    assert recall_at(float(wanted), confidences, correct) == float(best)
    assert threshold_at(float(wanted), confidences, correct) == threshold

    before = Fraction(0)
    for _, p, r in points:
        if p < Fraction(wanted):
            break
        before = r
    assert recall_at(float(wanted), confidences, correct, first=True) == float(before)


def test_ties_are_answered_together():
    # A threshold cannot take the right one of the two and leave the wrong one.
    assert recall_at(1.0, [0.5, 0.5], [True, False]) == 0
    assert recall_at(0.5, [0.5, 0.5], [True, False]) == 1


def test_decimal_thresholds_are_met_exactly():
    for hits in range(1, 100):
        correct = [True] * hits + [False] * (100 - hits)
        assert recall_at(hits / 100, [0.5] * 100, correct) == 1
        assert recall_at(float(f"0.{hits:02}"), [0.5] * 100, correct) == 1


def test_infinite_confidences_have_their_place():
    precision, recall = precision_recall([-math.inf, 0.0, -math.inf], [False, True, True])
    assert precision.tolist() == [1, 2 / 3, 2 / 3]
    assert recall.tolist() == [1 / 3, 1, 1]


@pytest.mark.parametrize(
    ("confidences", "correct", "message"),
    [
        ([], [], "at least one example"),
        ([0.5, math.nan], [True, True], "must be numbers. Got nan at 1"),
        ([0.5], [True, False], "same length"),
    ],
)
def test_bad_examples_are_refused(confidences, correct, message):
    with pytest.raises(ArgumentError, match=message):
        precision_recall(confidences, correct)


@pytest.mark.parametrize("precision", [-0.1, 1.1, 99.0, math.nan])
def test_bad_precisions_are_refused(precision):
    for function in (recall_at, threshold_at):
        with pytest.raises(ArgumentError, match="precision must be from 0 to 1"):
            function(precision, [0.5], [True])
