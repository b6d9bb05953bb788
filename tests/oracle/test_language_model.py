"""`NGramLanguageModel` against absolute discounting in dictionaries of fractions."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from inout._core.errors import ArgumentError
from inout.contexts.language_model import NGramLanguageModel, checked_sequences
from tests.support import assert_close

BOS, END = "BOS", "END"
CORPORA = (
    [[0, 1, 2, 1], [2], [], [0, 1, 2, 1, 0, 2, 2], [1, 1, 1]],
    [[0]],
    [[], []],
    [[2, 2, 2, 2], [2, 2]],
)


def naive(
    corpus: list[list[int]], order: int, discount: Fraction, smoothing: Fraction, *, end: bool
):
    """p(label | history) as a function, by the formula and nothing else."""
    choices = [0, 1, 2, *([END] if end else [])]
    counts: Counter[tuple] = Counter()
    for labels in corpus:
        symbols = [BOS, *labels, *([END] if end else [])]
        for place in range(1, len(symbols)):
            for length in range(order + 1):
                if place - length >= 0:
                    counts[tuple(symbols[place - length : place + 1])] += 1

    def probability(label, history: tuple) -> Fraction:
        history = history[max(len(history) - order, 0) :]
        if not history:
            total = sum(counts[(y,)] for y in choices)
            return (counts[(label,)] + smoothing) / (total + smoothing * len(choices))
        after = [counts[(*history, y)] for y in choices]
        if not sum(after):
            return probability(label, history[1:])
        own = max(counts[(*history, label)] - discount, Fraction(0))
        spared = discount * sum(count > 0 for count in after)
        return (own + spared * probability(label, history[1:])) / sum(after)

    return choices, probability


@pytest.mark.few(16)
@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("discount", [Fraction(1, 4), Fraction(0), Fraction(1)])
def test_probabilities(corpus: list[list[int]], order: int, end: bool, discount: Fraction):
    choices, probability = naive(corpus, order, discount, Fraction(1, 100), end=end)
    model = NGramLanguageModel.estimated(
        corpus, 3, order, discount=float(discount), smoothing=0.01, end=end
    )
    for length in range(order + 2):
        for labels in product(range(3), repeat=length):
            for history, given in (
                (labels, list(labels)),
                ((BOS, *labels), [model.beginning, *labels]),
            ):
                wanted = np.array([float(probability(y, history)) for y in choices])
                found = np.exp(model.log_probabilities(given))
                assert_close(found, wanted)
                assert found.sum() == pytest.approx(1.0, abs=1e-12)
            for hidden in (
                [model.anything],
                [1, model.anything],
                [model.beginning, model.anything],
            ):
                shorter = model.log_probabilities(list(labels))
                found = model.log_probabilities([*hidden, *labels])
                if length <= order:
                    assert np.array_equal(found, shorter)


def test_every_seen_history_has_a_row_and_an_unseen_one_falls_back():
    model = NGramLanguageModel.estimated(CORPORA[0], 3, 2)
    seen = [model.history(number) for number in range(model.num_histories)]
    symbols = [[model.beginning, *labels] for labels in CORPORA[0]]
    wanted = {
        tuple(text[place - length : place])
        for text in symbols
        for place in range(1, len(text))
        for length in range(min(place, 2) + 1)
    }
    assert set(seen) == wanted
    assert len(seen) == len(wanted)
    for number, history in enumerate(seen):
        assert model.find(history) == number
    for history in product(range(4), range(3)):
        longest = history if history in wanted else history[1:]
        assert model.history(model.find(history)) == longest


def test_sequences_sum_to_one_where_there_is_an_end():
    model = NGramLanguageModel.estimated([[0, 1], [1], [0, 1, 1], [0]], 2, 2, end=True)
    by_length = [
        sum(np.exp(model.log_probability(labels)) for labels in product(range(2), repeat=length))
        for length in range(10)
    ]
    assert 0.99 < sum(by_length) < 1.0
    rows = [model.beginning, 0, 1]
    by_hand = sum(
        model.log_probabilities(rows[:place])[label]
        for place, label in enumerate([0, 1, model.labels], 1)
    )
    assert model.log_probability([0, 1]) == pytest.approx(by_hand, abs=1e-12)


def test_without_smoothing_what_never_occurred_is_impossible():
    model = NGramLanguageModel.estimated([[0, 1, 0]], 3, 1, smoothing=0.0)
    assert model.log_probabilities([0])[2] == -np.inf
    assert model.log_probability([0, 2]) == -np.inf


def test_arguments():
    estimated = NGramLanguageModel.estimated
    for sequences, message in (
        ([[0, 3]], r"labels in 0\.\.2. Got 3 in sequence 0"),
        ([[0], [-1]], "Got -1 in sequence 1"),
        ([[0.5]], "must hold sequences of label numbers"),
        ([[[0]]], "must hold sequences of label numbers"),
    ):
        with pytest.raises(ArgumentError, match=message):
            estimated([np.array(sequence) for sequence in sequences], 3, 1)
    with pytest.raises(ArgumentError, match=r"from 0 to 1\. Got 1\.5"):
        estimated([[0]], 3, 1, discount=1.5)
    with pytest.raises(ArgumentError, match="smoothing must be a number of at least 0"):
        estimated([[0]], 3, 1, smoothing=-1.0)
    with pytest.raises(ArgumentError, match="order must be an integer of at least 0"):
        estimated([[0]], 3, -1)
    with pytest.raises(ArgumentError, match="where smoothing is 0"):
        estimated([], 3, 1, smoothing=0.0)
    model = estimated([[0]], 3, 1)
    for history in ([5], [-1], [0, 3]):
        with pytest.raises(ArgumentError, match=r"history must be symbols in 0\.\.4"):
            model.log_probabilities(history)
    with pytest.raises(ArgumentError, match="only a model of order 1"):
        estimated([[0]], 3, 2).chain()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[0, [1, 2]]], r"of label numbers\. Got \[0, \[1, 2\]\] as sequence 0"),
        ([[0], ["a"]], "must hold sequences of label numbers"),
        (b"ab", "must be a list of sequences"),
    ],
)
def test_what_is_no_sequence_of_numbers(given: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        checked_sequences("sequences", given, "label", 3)
