"""Precision and recall of confident predictions, and their curve.

Section 5 of Steinhardt and Liang, "Reified Context Models" (2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from inout._core.checks import expect
from inout._core.errors import ArgumentError

Confidences: TypeAlias = Sequence[float] | NDArray[np.floating]
Marks: TypeAlias = Sequence[bool] | NDArray[np.bool_]


def precision_recall(
    confidences: Confidences, correct: Marks
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Precision and recall at every confidence, the most confident example first.

    Entry k is about answering the k+1 most confident examples and those exactly as confident as
    the last of them: a threshold takes all of a tie or none. Precision is the share of answers
    that are right; recall, as in the paper, the share of examples that are answered, right or
    not. The last precision is the accuracy, at recall 1. O(n log n).

    >>> precision, recall = precision_recall([0.9, 0.5, 0.7, 0.5], [True, False, True, True])
    >>> precision.tolist(), recall.tolist()
    ([1.0, 1.0, 0.75, 0.75], [0.25, 0.5, 1.0, 1.0])
    """
    given, right = _checked(confidences, correct)
    order = np.argsort(-given, kind="stable")
    falling = given[order]
    ends = np.searchsorted(-falling, -falling, side="right") - 1  # of ties: the last of each
    # Whole numbers until one division at the end: 99 of 100 is the number that 0.99 is.
    precision = np.cumsum(right[order])[ends] / (ends + 1)
    return precision, (ends + 1) / len(given)


def recall_at(
    precision: float, confidences: Confidences, correct: Marks, *, first: bool = False
) -> float:
    """The largest share of examples that can be answered with at least that precision.

    That is the largest recall R of any confidence threshold with at least this `precision`; 0 if
    there is none. Precision need not be monotone: one wrong answer at the very top spoils the
    first thresholds, and many right ones below make up for it. With `first`, R is where precision
    first falls below `precision`, so a wrong answer at the top gives 0. Both are "what fraction of
    examples we can answer before our accuracy drops below a threshold"; users who can choose the
    threshold want the former. O(n log n).

    >>> confidences, correct = [0.9, 0.8, 0.7, 0.6, 0.1], [False, True, True, True, False]
    >>> recall_at(0.75, confidences, correct), recall_at(0.75, confidences, correct, first=True)
    (0.8, 0.0)
    """
    expect(0 <= precision <= 1, "precision", "must be from 0 to 1", precision)
    reached, recall = precision_recall(confidences, correct)
    enough = reached >= precision
    if first:
        enough = np.logical_and.accumulate(enough)
    return float(recall[enough].max(initial=0.0))


def threshold_at(precision: float, confidences: Confidences, correct: Marks) -> float:
    """The lowest confidence threshold with that precision; inf if there is none.

    Answering everything at least that confident answers `recall_at(precision, …)` of these
    examples. O(n log n).

    >>> threshold_at(0.75, [0.9, 0.8, 0.7, 0.6, 0.1], [False, True, True, True, False])
    0.6
    """
    expect(0 <= precision <= 1, "precision", "must be from 0 to 1", precision)
    reached, _ = precision_recall(confidences, correct)
    falling = np.sort(np.asarray(confidences, dtype=np.float64))[::-1]
    return float(falling[reached >= precision].min(initial=math.inf))


def _checked(
    confidences: Confidences, correct: Marks
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    given, right = np.asarray(confidences, dtype=np.float64), np.asarray(correct)
    if given.ndim != 1 or right.shape != given.shape:
        shapes = f"{given.shape} and {right.shape}"
        raise ArgumentError(
            None, f"confidences and correct must be lists of the same length. Got shapes {shapes}"
        )
    if not given.size:
        raise ArgumentError("confidences", "must be those of at least one example. Got none")
    if (bad := np.isnan(given)).any():
        raise ArgumentError("confidences", f"must be numbers. Got nan at {bad.argmax()}")
    if right.dtype != np.bool_:
        raise ArgumentError("correct", f"must be booleans. Got {right.dtype}")
    return given, right
