"""`fit_alignment` learns a toy spelling without alignments; strategies do what they say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
import torch

from inout._core.errors import ArgumentError, TrainingError
from inout.contexts.alignments.model import AlignmentModel
from inout.learning.alignment import AlignmentStats, Strategy, fit_alignment

# How symbols are spelled: one letter, two, three, or two symbols together one letter.
SPELLING = {("A",): "a", ("E",): "e", ("K",): "k", ("S",): "s", ("K", "S"): "x", ("CH",): "ch"}
SPELLING |= {("SH",): "sch", ("T",): "t"}


def words(count: int, seed: int) -> tuple[list[list[str]], list[str]]:
    """Words that are spelled so; K S is always x."""
    generator = np.random.default_rng(seed)
    parts = list(SPELLING)
    inputs, outputs = [], []
    while len(inputs) < count:
        chosen = [parts[k] for k in generator.integers(0, len(parts), generator.integers(1, 5))]
        if (("K",), ("S",)) in pairwise(chosen):
            continue
        inputs.append([symbol for part in chosen for symbol in part])
        outputs.append("".join(SPELLING[part] for part in chosen))
    return inputs, outputs


def right(model: AlignmentModel, inputs: list[list[str]], outputs: list[str]) -> float:
    found = model.predict(inputs)
    return float(np.mean(["".join(f.output) == o for f, o in zip(found, outputs, strict=True)]))


@pytest.mark.parametrize("strategy", ["contexts", "forced"])
def test_a_toy_spelling_is_learned(strategy: Strategy):
    inputs, outputs = words(150, 0)
    model = fit_alignment(inputs, outputs, strategy=strategy, order=3, size=8, epochs=4)
    others, spelled = words(60, 1)
    assert right(model, others, spelled) > (0.9 if strategy == "contexts" else 0.8)
    aligned = model.align([["T", "A", "K", "S", "E", "CH"]], ["taxech"])[0].alignment
    assert str(aligned) == "| T | A | K S | E | CH |\n| t | a | x   | e | ch |"
    assert model.log_likelihood(inputs, outputs).mean() > -0.5


def test_a_beam_of_the_model_finds_nothing_to_learn_from():
    inputs, outputs = words(60, 0)
    told: list[AlignmentStats] = []
    fit_alignment(
        inputs,
        outputs,
        strategy="model",
        order=3,
        size=4,
        epochs=1,
        after=lambda seen, model, stats: told.append(stats),
    )
    assert told[-1].seen == 60
    assert told[-1].lost > 40


@pytest.mark.parametrize("strategy", get_args(Strategy))
def test_every_strategy_goes_up(strategy: Strategy):
    inputs, outputs = words(40, 2)
    settings: dict[str, Any] = {"strategy": strategy, "order": 2, "size": 40, "most_letters": 3}
    model = fit_alignment(inputs, outputs, epochs=3, **settings)
    start = fit_alignment(inputs, outputs, epochs=0, **settings)
    before, after = start.log_likelihood(inputs, outputs), model.log_likelihood(inputs, outputs)
    assert np.isfinite(after).sum() >= np.isfinite(before).sum()
    if strategy != "model":
        assert np.isfinite(after).mean() > 0.8
        both = np.isfinite(after) & np.isfinite(before)
        assert not both.any() or after[both].mean() > before[both].mean() + 1
    assert model.settings.beam == (strategy != "contexts")


def test_the_same_generator_gives_the_same_model():
    inputs, outputs = words(30, 3)

    def weights(seed: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(seed)
        model = fit_alignment(inputs, outputs, order=3, epochs=2, size=5, generator=generator)
        return model.histories.weights

    assert np.array_equal(weights(1), weights(1))
    assert not np.array_equal(weights(1), weights(2))


def test_what_callers_are_told():
    inputs, outputs = words(60, 4)
    inputs.append(["A"])
    outputs.append("aaaa")  # more letters than a symbol can have
    told, seen = [], []
    fit_alignment(
        inputs,
        outputs,
        order=2,
        epochs=2,
        size=5,
        progress=told.append,
        after=lambda number, model, stats: seen.append((number, stats.lost, stats.context_length)),
    )
    assert [number for number, _, _ in seen] == list(range(1, 123))
    assert seen[-1][1] == 2
    assert 0 < seen[-1][2] / 122 < 10
    assert [progress.iteration for progress in told] == [50, 100]
    assert told[1].log_likelihood > told[0].log_likelihood
    assert told[1].iterations_left == 22


def test_more_symbols_than_there_are_examples_of():
    model = fit_alignment([["A"]], ["a"], order=2, epochs=1, symbols=["A", "B"], letters="ab")
    assert (model.symbols, model.letters) == (("A", "B"), ("a", "b"))
    assert model.predict([["B"]])[0].alignment is not None
    with pytest.raises(ArgumentError, match="inputs must be of"):
        fit_alignment([["C"]], ["a"], symbols=["A", "B"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": [], "outputs": []}, "an output for each"),
        ({"outputs": ["a", "b"]}, "an output for each"),
        ({"inputs": [["A"], []], "outputs": ["a", "a"]}, "must not be empty"),
        ({"step": 0.0}, "step"),
        ({"delta": 0.0}, "delta must be a finite number above 0"),
        ({"epochs": -1}, "epochs"),
        ({"least": -0.5}, "least"),
        ({"order": 0}, "order"),
        ({"size": 0}, "size"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str):
    with pytest.raises(ArgumentError, match=message):
        fit_alignment(**({"inputs": [["A"]], "outputs": ["a"]} | arguments))


def test_steps_that_are_too_large_are_noticed():
    with pytest.raises(TrainingError, match="weights finite"):
        fit_alignment([["A"], ["B"]], ["a", "b"], step=1e308)
