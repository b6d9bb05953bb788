"""Training by several threads, and gradients truncated at random: appendix B of Steinhardt & Liang.

The gradients are those of sums over all labellings, without code of the library.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch

from inout import ArgumentError, fit_alignment
from inout.contexts import ContextModel, HistoryFeature
from inout.kernels.lattice.gradient import truncated
from inout.learning.context_training import Squares, Training, Worker
from inout.learning.contexts import Passed, fit_contexts
from inout.learning.hogwild import Hogwild, shared_out
from tests.oracle.test_context_model import Feature, Plain, corpus, observed_features
from tests.support import assert_close

WORDS = "the quick brown fox jumps over that lazy dog while three thin quiet foxes dig".split()  # noqa: SIM905


def spelling(count: int, seed: int) -> tuple[list[Any], list[list[str]]]:
    """Words of which noisy shapes of letters are seen."""
    rng = np.random.default_rng(seed)
    words = [WORDS[int(k)] for k in rng.integers(len(WORDS), size=count)]
    seen = [[[f"f{ord(x) % 5}", f"g{rng.integers(4)}"] for x in word] for word in words]
    return seen, [list(word) for word in words]


class Drawn(np.random.Generator):
    """Not random at all: gives these numbers."""

    def __init__(self, numbers: Any):
        super().__init__(np.random.PCG64(0))
        self.numbers = np.asarray(numbers, np.float64)

    def random(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        assert size == len(self.numbers)
        return self.numbers


def test_rounding_is_unbiased_to_the_last_digit():
    """Uniform numbers on a grid, values on the same grid: the mean is the value, exactly."""
    parts = 64
    values = np.concatenate([np.arange(-parts, parts + 1) / parts * 0.25, [0.5, -7.0, 1e4, 0.0]])
    total = np.zeros_like(values)
    for j in range(parts):
        found = truncated(values, 0.25, Drawn(np.full(len(values), (j + 0.5) / parts)))
        assert set(np.abs(found[np.abs(values) < 0.25])) <= {0.0, 0.25}
        total += found
    assert np.array_equal(total / parts, values)


def test_rounding_is_unbiased_on_average():
    rng = np.random.default_rng(0)
    values = rng.normal(size=50) * 0.02
    draws = np.array([truncated(values, 0.05, rng) for _ in range(20_000)])
    variance = np.where(np.abs(values) < 0.05, np.abs(values) * (0.05 - np.abs(values)), 0.0)
    spread = np.sqrt(variance / len(draws))
    assert (np.abs(draws.mean(0) - values) <= 5 * spread + 1e-12).all()
    assert_close(draws.var(0), variance, rtol=0.15, atol=1e-12)


def gradient_of(step: float, delta: float, weight: float) -> float:
    """The gradient that one step of AdaGrad made this weight of 0 by."""
    return weight * delta / (step - abs(weight))


def test_the_expected_gradient_is_that_of_all_labellings():
    """All outcomes of all random choices, each by its probability."""
    sequences, tags = [[{"f": 1.0, "g": 0.5}, {"g": -2.0}]], [["b", "a"]]
    how = Hogwild(0.3, 0.1, truncate=2.0)  # above all gradients: every edge is rounded

    def untrained() -> ContextModel:
        return fit_contexts(sequences, tags, order=2, size=1, epochs=0)

    start = untrained()
    plain = Plain(start, sequences[0])
    totals = plain.totals()
    expected = observed_features(start, sequences[0], tags[0])
    slopes: dict[Any, float] = {}
    for weight, edges in totals.paths:
        is_wanted = [start.labels[edge[3]] for edge in edges] == tags[0]
        for edge in edges:
            share = math.exp(weight - totals.log_z)
            slopes[edge] = slopes.get(edge, 0.0) + is_wanted - share
            for feature, value in plain.features(edge[0] - 1, edge[2], edge[3]).items():
                expected[feature] = expected.get(feature, 0.0) - value * share
    expected.pop(("escape",), None)
    # Edges in the order of the lattice: by column, context (⋆…⋆ last) and label.
    order = sorted(slopes, key=lambda edge: (edge[0], edge[2] == (), edge[2], edge[3]))
    mean: dict[Feature, float] = {}
    for kept in product([True, False], repeat=len(order)):
        sizes = [abs(slopes[edge]) / 2 for edge in order]
        chances = [p if k else 1 - p for p, k in zip(sizes, kept, strict=True)]
        model = untrained()
        training = Training(
            model, model.observe(sequences), model.targets(tags), False, 1, torch.Generator(), 1,
            None,
        )  # fmt: skip
        steps = how.steps(model.histories, torch.Generator())[0]
        steps._rng = Drawn([0.0 if k else 1.0 for k in kept])
        Worker(training, Squares(np.zeros_like(model.emission)), steps)(0)
        for feature, weight in Plain(model, sequences[0]).weights.items():
            slope = gradient_of(0.3, 0.1, weight)
            mean[feature] = mean.get(feature, 0.0) + math.prod(chances) * slope
    assert len(order) == 6
    assert {f for f, slope in expected.items() if abs(slope) > 1e-12} <= mean.keys()
    for feature, slope in mean.items():
        assert_close(slope, expected.get(feature, 0.0))


def test_truncation_needs_fewer_weights_and_learns_as_well():
    sequences, tags = spelling(150, 0)
    plain = fit_contexts(sequences, tags, epochs=4)
    sparse = fit_contexts(sequences, tags, epochs=4, truncate=0.1)
    used = [np.count_nonzero(model.histories.weights) for model in (plain, sparse)]
    assert used[1] < 0.3 * used[0]
    assert sparse.histories.num_weights < 0.7 * plain.histories.num_weights
    others = spelling(60, 1)
    losses = [-model.log_likelihoods(*others).mean() for model in (plain, sparse)]
    assert losses[1] < losses[0] + 0.15


def test_truncation_depends_on_the_generator_alone():
    sequences, tags = corpus(2)

    def weights(seed: int, **options: Any) -> np.ndarray:
        generator = torch.Generator().manual_seed(seed)
        return fit_contexts(sequences, tags, epochs=2, generator=generator, **options).emission

    assert np.array_equal(weights(1, truncate=0.2), weights(1, truncate=0.2))
    assert not np.array_equal(weights(1, truncate=0.2), weights(1))


THREADED: dict[str, dict[str, Any]] = {
    "contexts": {},
    "beam": {"beam": True, "size": 5},
    "escaping beam": {"beam": True, "size": 5, "learn_escape": True},
    "sparse": {"truncate": 0.05},
    "functions": {
        "order": 3,
        "history_features": [HistoryFeature("vowels", 2, lambda h: str(len({*h} & {*"aeiou"})))],
    },
}


@pytest.mark.parametrize("name", THREADED)
@pytest.mark.few(2)
def test_threads_learn_as_well_as_one(name: str):
    """Within 0.15 nats a sequence on other data, of the 2 to 3 that the model has to lose."""
    sequences, tags = spelling(150, 0)
    others = spelling(60, 1)
    models = [fit_contexts(sequences, tags, threads=k, **THREADED[name]) for k in (1, 2, 4)]
    losses = []
    for model in models:
        likelihoods = model.log_likelihoods(*others)
        losses.append(-likelihoods[likelihoods > -np.inf].mean())
    assert max(losses[1:]) < losses[0] + 0.15, losses
    for model in models:
        assert model.copy().histories.num_weights == model.histories.num_weights
        rows = [row for *_, row in model.histories.items()]
        rows += [row for *_, row in model.histories.shared_items()]
        starts = sorted((row.start, row.stop) for row in rows)
        assert all(a[1] <= b[0] for a, b in pairwise(starts)), "rows overlap"


def test_threads_add_up_the_same_gradients():
    """Steps so small that they commute: only those that a race loses may be missing."""
    sequences, tags = spelling(300, 2)
    start = fit_contexts(sequences, tags, epochs=0)
    emission = np.random.default_rng(0).normal(size=start.emission.shape)  # no two masses are equal

    def trained(threads: int) -> dict[Feature, float]:
        model = ContextModel.untrained(start.labels, start.features, start.settings)
        model = replace(model, emission=emission.copy())
        training = Training(
            model, model.observe(sequences), model.targets(tags), False, 2, torch.Generator(), 300,
            None,
        )  # fmt: skip
        found = Plain(training.adagrad(Hogwild(1e-6, 1e3, threads)), sequences[0]).weights
        return {
            feature: weight for feature, weight in found.items() if feature[0] == "y" and weight
        }

    one, many = trained(1), trained(8)
    assert many.keys() <= one.keys()
    gone = sum(abs(one[f] - many.get(f, 0.0)) for f in one)
    assert gone < 0.2 * sum(map(abs, one.values()))
    # A history that got the gradient of another would have something beyond its own.
    same = [abs(many[f] - one[f]) < 1e-6 * abs(one[f]) for f in many]
    assert np.mean(same) > 0.5
    assert len(many) > 0.9 * len(one)


def test_reports_of_threads_count_all_examples():
    sequences, tags = spelling(30, 0)
    seen: list[Passed] = []
    fit_contexts(
        sequences, tags, epochs=2, every=8, threads=3, after=lambda passed, _: seen.append(passed)
    )
    assert [passed.examples for passed in seen] == [8, 16, 24, 30, 32, 40, 48, 56, 60]


def test_a_failing_thread_ends_the_others():
    done: list[int] = []

    def fail(example: int) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        list(shared_out([fail, done.append], range(10_000_000)))
    assert len(done) < 10_000_000


def test_alignments_by_threads():
    inputs = [[x.upper() for x in word] for word in WORDS] * 6
    outputs = [list(word) for word in WORDS] * 6
    options: dict[str, Any] = {"order": 3, "size": 5, "epochs": 3}
    one = fit_alignment(inputs, outputs, **options)
    calls: list[int] = []
    two = fit_alignment(
        inputs, outputs, threads=2, after=lambda seen, *_: calls.append(seen), **options
    )
    assert calls[-1] == 3 * len(inputs)
    losses = [-model.log_likelihood(inputs, outputs).mean() for model in (one, two)]
    assert losses[1] < losses[0] + 0.05, losses
    sparse = fit_alignment(inputs, outputs, truncate=0.05, **options)
    assert np.count_nonzero(sparse.histories.weights) < 0.7 * np.count_nonzero(
        one.histories.weights
    )
    assert -sparse.log_likelihood(inputs, outputs).mean() < losses[0] + 0.1


@pytest.mark.parametrize(
    "options",
    [{"threads": 0}, {"truncate": -1.0}, {"truncate": math.nan}, {"method": "lbfgs", "threads": 2}],
)
def test_bad_arguments(options: dict[str, Any]):
    sequences, tags = corpus(0)
    with pytest.raises(ArgumentError, match=r"threads|truncate"):
        fit_contexts(sequences, tags, **options)
