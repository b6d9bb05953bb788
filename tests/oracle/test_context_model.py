"""`ContextModel` and its training against a model in plain Python, and sums over all labellings."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inout import ArgumentError, FileError, LinearChain
from inout.contexts import ContextModel
from inout.contexts.model import Settings
from inout.learning.context_batches import BatchContexts
from inout.learning.contexts import Passed, fit_contexts
from tests.oracle import reified_contexts as oracle
from tests.oracle.reified_contexts import BOS
from tests.support import assert_close

LABELS = "abc"
Feature = tuple[str, ...]


def corpus(seed: int, count: int = 12) -> tuple[list[Any], list[list[str]]]:
    """Random sequences in which labels depend on the two before, and features hint at them."""
    rng = np.random.default_rng(seed)
    sequences, tags = [], []
    for _ in range(count):
        labels = [int(rng.integers(3))]
        for _ in range(int(rng.integers(0, 5))):
            labels.append(int((labels[-1] + labels[-2:][0] + rng.integers(2)) % 3))
        hints = (np.array(labels) + rng.integers(0, 2, len(labels))) % 3
        sequences.append([{f"f{h}": 1.0, "size": float(rng.normal())} for h in hints])
        tags.append([LABELS[y] for y in labels])
    return sequences, tags


def randomised(model: ContextModel, seed: int) -> ContextModel:
    """The same model with random weights."""
    rng = np.random.default_rng(seed)
    model.histories.weights[:] = rng.normal(size=model.histories.num_weights)
    return replace(model, emission=rng.normal(size=model.emission.shape))


MODELS: dict[str, dict[str, Any]] = {
    "contexts": {"order": 3, "size": 3},
    "unbounded": {"order": 3, "size": 4, "memory": None},
    "longest only": {"order": 3, "size": 3, "shorter": False},
    "end": {"order": 3, "size": 3, "end": True},
    "beam": {"order": 3, "size": 3, "beam": True},
    "escaping beam": {"order": 3, "size": 3, "beam": True, "learn_escape": True},
    "everything": {"order": 2, "size": 100},
}


def made(name: str, seed: int = 0) -> tuple[ContextModel, list[Any], list[list[str]]]:
    sequences, tags = corpus(seed)
    model = fit_contexts(sequences, tags, epochs=1, **MODELS[name])
    return randomised(model, seed + 1), sequences, tags


class Plain:
    """The same model with dictionaries: scores and features of (position, context, label)."""

    def __init__(self, model: ContextModel, sequence: Any):
        self.model, self.sequence = model, sequence
        self.weights: dict[Feature, float] = {}
        names = dict(enumerate(model.labels)) | {-1: "^", -2: "⋆", len(model.labels): "$"}
        for _, symbols, _, place in model.histories.items():
            for y, weight in enumerate(model.histories.weights[place]):
                self.weights["y", *(names[s] for s in symbols), names[y]] = float(weight)
        for d, y in product(range(len(model.features)), range(len(model.labels))):
            feature = ("x", model.features[d], model.labels[y])
            self.weights[feature] = float(model.emission[d, y])

    def features(self, position: int, context: tuple[Any, ...], label: int) -> dict[Feature, float]:
        names = [*self.model.labels, "$"]
        found: dict[Feature, float] = {}
        if position < len(self.sequence):
            for name, value in self.sequence[position].items():
                found["x", name, names[label]] = value
        known = ["^" if s == BOS else names[s[0]] for s in context]
        settings = self.model.settings
        for k in range(settings.order) if settings.shorter else [settings.order - 1]:
            before = known[0] if known[:1] == ["^"] else "⋆"
            padded = [before] * k + known
            found["y", *padded[len(padded) - k :], names[label]] = 1.0
        if not context:
            found["escape",] = 1.0
        return found

    def score(self, position: int, context: tuple[Any, ...], label: int) -> float:
        total = 0.0
        for feature, value in self.features(position, context, label).items():
            if feature == ("escape",):
                total += self.model.escape
            else:
                total += value * self.weights.get(feature, 0.0)
        return total

    @property
    def columns(self) -> list[oracle.Column]:
        n, s = len(self.sequence), len(self.model.labels)
        columns = [oracle.Column([], range(0))]
        columns += [oracle.Column([i], range(s)) for i in range(n)]
        if self.model.settings.end:
            columns.append(oracle.Column([n], range(s, s + 1)))
        return columns

    def selected(self) -> oracle.Selection:
        settings = self.model.settings
        return oracle.selected(
            self.columns,
            lambda c, context, action: self.score(c - 1, context, action),
            [settings.size] * len(self.columns),
            memory=settings.memory,
            beam=settings.beam,
        )

    def totals(self) -> oracle.Totals:
        return oracle.all_paths(
            self.columns,
            self.selected().contexts,
            lambda c, context, action: self.score(c - 1, context, action),
            memory=self.model.settings.memory,
        )


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_all_labellings(name: str):
    model, sequences, _ = made(name)
    taggings = model.tag(sequences)
    lattice = model.select(model.observe(sequences))
    for b, (sequence, tagging) in enumerate(zip(sequences, taggings, strict=True)):
        plain = Plain(model, sequence)
        totals = plain.totals()
        assert_close(lattice.log_partition[b], totals.log_z)
        labellings: dict[tuple[int, ...], float] = {}
        for weight, edges in totals.paths:
            actions = tuple(edge[3] for edge in edges)[: len(sequence)]
            if weight > -math.inf:
                labellings[actions] = math.exp(weight - totals.log_z)
        assert_close(sum(labellings.values()), 1.0)
        best = max(labellings, key=lambda y: labellings[y])
        assert tagging.labels == [model.labels[y] for y in best]
        assert_close(tagging.confidence, labellings[best])
        marginals = np.zeros((len(sequence), len(model.labels)))
        for labels, share in labellings.items():
            marginals[np.arange(len(labels)), labels] += share
        assert_close(tagging.marginals, marginals)
        inner = [(c, m) for (column, c), m in totals.mass.items() if column > 0]
        lengths = sum(m * sum(symbol != BOS for symbol in c) for c, m in inner)
        assert_close(tagging.context_length, lengths / max(sum(m for _, m in inner), 1.0))
        everything = 3 ** len(sequence)
        if not model.settings.beam or model.escape > -math.inf:
            assert len(labellings) == everything, "nothing has probability 0"


@pytest.mark.parametrize("name", ["contexts", "end", "longest only", "escaping beam"])
def test_expected_features(name: str):
    model, sequences, _ = made(name)
    model = replace(model, escape=0.3)
    expected: dict[Feature, float] = {}
    for sequence in sequences:
        plain = Plain(model, sequence)
        totals = plain.totals()
        for weight, edges in totals.paths:
            for column, _, context, action in edges:
                for feature, value in plain.features(column - 1, context, action).items():
                    share = value * math.exp(weight - totals.log_z)
                    expected[feature] = expected.get(feature, 0.0) + share
    found = model.expected_features(sequences)
    # Features that have no weight are not expected: nobody asked for them in training.
    known = {*Plain(model, sequences[0]).weights, ("escape",)}
    wanted = {f: v for f, v in expected.items() if f in known and abs(v) > 1e-14}
    assert wanted.keys() <= found.keys()
    assert_close([found[f] for f in wanted], [wanted[f] for f in wanted])
    assert all(abs(found[f]) < 1e-13 for f in found.keys() - wanted.keys())


@pytest.mark.parametrize("learn_escape", [False, True])
def test_gradient_with_fixed_contexts(learn_escape: bool):
    model, sequences, tags = made("end")
    model = replace(model, escape=-0.4)
    contexts = BatchContexts.selected(model, model.observe(sequences), learn_escape)
    model.histories.weights[:] = np.random.default_rng(5).normal(size=model.histories.num_weights)
    weights = torch.from_numpy(contexts.joined(model)).requires_grad_()
    scales = torch.linspace(0.5, 1.5, len(sequences), dtype=torch.float64)
    (contexts.log_partition(weights) * scales).sum().backward()
    assert weights.grad is not None
    step = 1e-5
    for place in range(0, len(weights), 7):
        moved = torch.zeros_like(weights)
        moved[place] = step
        with torch.no_grad():
            rise = contexts.log_partition(weights + moved) - contexts.log_partition(weights - moved)
        assert_close(weights.grad[place], (rise * scales).sum() / (2 * step), atol=1e-7)
    if learn_escape:
        assert weights.grad[-1] != 0


def observed_features(model: ContextModel, sequence: Any, tags: list[str]) -> dict[Feature, float]:
    """Of the labels themselves, in the contexts that are selected."""
    plain = Plain(model, sequence)
    selection = plain.selected()
    labels = [model.labels.index(tag) for tag in tags]
    context: tuple[Any, ...] = (BOS,)
    found: dict[Feature, float] = {}
    for i, label in enumerate(labels):
        for feature, value in plain.features(i, context, label).items():
            found[feature] = found.get(feature, 0.0) + value
        _, context = selection.edges[i + 1, i, context, label]
    return found


def test_one_step_of_adagrad():
    sequences = [[{f"f{k}": 1.0, "size": 0.5 * k} for k in (0, 1, 2, 1, 0)]]
    tags = [list("abcab")]
    start = fit_contexts(sequences, tags, order=2, size=2, epochs=0)
    trained = fit_contexts(sequences, tags, order=2, size=2, epochs=1, step=0.3, delta=0.1)
    slopes = observed_features(start, sequences[0], tags[0])
    plain = Plain(start, sequences[0])
    totals = plain.totals()
    for weight, edges in totals.paths:
        for column, _, context, action in edges:
            for feature, value in plain.features(column - 1, context, action).items():
                share = value * math.exp(weight - totals.log_z)
                slopes[feature] = slopes.get(feature, 0.0) - share
    weights = Plain(trained, sequences[0]).weights
    slopes.pop(("escape",), None)
    for feature, slope in slopes.items():
        expected = 0.3 * slope / (0.1 + abs(slope)) if abs(slope) > 1e-12 else 0.0
        assert_close(weights[feature], expected)
    assert sum(abs(slope) > 1e-3 for slope in slopes.values()) > 10


def test_tags_that_fall_out_of_a_beam_still_pull():
    sequences = [[{"x": 1.0}, {"x": 1.0}]]
    passed: list[Passed] = []
    model = fit_contexts(
        [*sequences, [{"y": 1.0}]], [["c", "c"], ["a"]], order=2, size=1, beam=True, epochs=12,
        after=lambda report, _: passed.append(report),
    )  # fmt: skip
    assert passed[0].missing == 1, "a is first of all that are equal"
    assert passed[-1].missing == 0
    assert model.tag(sequences)[0].labels == ["c", "c"]


@pytest.mark.exhaustive
def test_lbfgs_with_all_contexts_is_a_conditional_random_field():
    sequences, tags = corpus(1)
    model = fit_contexts(
        sequences, tags, order=2, size=100, method="lbfgs", l2=0.5, epochs=8, shorter=False
    )
    weights = torch.zeros(3 + 9 + 4 * 3, dtype=torch.float64, requires_grad=True)
    names = {name: d for d, name in enumerate(model.features)}
    optimiser = torch.optim.LBFGS(
        [weights], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe"
    )

    def objective() -> torch.Tensor:
        start, moves, emission = weights[:3], weights[3:12].reshape(3, 3), weights[12:]
        total = -0.25 * weights.square().sum()
        for sequence, own in zip(sequences, tags, strict=True):
            seen = torch.zeros(len(sequence), 4, dtype=torch.float64)
            for i, position in enumerate(sequence):
                for name, value in position.items():
                    seen[i, names[name]] = value
            chain = LinearChain(seen @ emission.reshape(4, 3), moves, start=start)
            total = total + chain.log_prob(torch.tensor([LABELS.index(y) for y in own]))
        return total

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = -objective()
        loss.backward()
        return loss

    optimiser.step(closure)
    ours = model.log_likelihoods(sequences, tags).sum() - 0.25 * (
        np.square(model.emission).sum() + np.square(model.histories.weights).sum()
    )
    assert_close(ours, objective(), rtol=1e-6)


def test_training_depends_on_the_generator_alone():
    sequences, tags = corpus(2)

    def weights(seed: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(seed)
        return fit_contexts(sequences, tags, epochs=2, generator=generator).emission

    assert np.array_equal(weights(1), weights(1))
    assert not np.array_equal(weights(1), weights(2))


def test_reports():
    sequences, tags = corpus(2)
    reports: list[Passed] = []
    fit_contexts(sequences, tags, epochs=2, every=5, after=lambda r, _: reports.append(r))
    assert [r.examples for r in reports] == [5, 10, 12, 15, 20, 24]
    assert {r.epoch for r in reports} == {0, 1}
    assert reports[-1].log_likelihood > reports[0].log_likelihood
    assert all(0 <= r.context_length <= 3 for r in reports)


def test_lbfgs_reports_what_it_reached():
    sequences, tags = corpus(2)
    reports: list[Passed] = []
    model = fit_contexts(  # every context is kept, so selection changes nothing
        sequences, tags, order=2, size=100, method="lbfgs", l2=0.5, epochs=1,
        after=lambda r, _: reports.append(r),
    )  # fmt: skip
    reached = model.log_likelihoods(sequences, tags).mean()
    assert [r.log_likelihood for r in reports] == [pytest.approx(reached)]


@pytest.mark.parametrize("name", MODELS)
def test_the_distribution_of_the_model(name: str):
    model, sequences, tags = made(name)
    chain = model.chain(sequences)
    lattice = model.select(model.observe(sequences))
    assert_close(chain.log_partition(), lattice.log_partition)
    longest = max(map(len, tags))
    events = torch.tensor(
        [[LABELS.index(y) for y in own] + [0] * (longest - len(own)) for own in tags]
    )
    assert_close(chain.log_prob(events), model.log_likelihoods(sequences, tags))
    emissions = torch.from_numpy(model.emissions(model.observe(sequences))).requires_grad_()
    log_z = model.chain(sequences, emissions).log_partition()
    assert_close(log_z, lattice.log_partition)
    log_z.sum().backward()
    counts = lattice.emission_counts(lattice.posteriors)[:, :3]
    assert_close(emissions.grad, counts)


def test_contexts_and_their_mass():
    model, sequences, _ = made("unbounded")
    sequence = max(sequences, key=len)
    found = model.contexts(sequence)
    assert found[0] == {"": 1.0}
    for i, own in enumerate(found[1:], start=1):
        assert_close(sum(own.values()), 1.0)
        assert "⋆" in own
        assert all(len(string.lstrip("⋆")) <= i for string in own)


def test_refinement_ends_in_the_exact_model():
    model, sequences, _ = made("contexts")
    found = model.refined(sequences, size=1, most=1000, tolerance=0.0, passes=30)
    exact = model.select(model.observe(sequences), 1000)
    assert_close(found.lattice.log_partition, exact.log_partition)
    assert_close(found.exactness.probability, np.ones(len(sequences)))
    assert found.sizes.max() < 100
    rough = model.refined(sequences, size=2, most=2, tolerance=0.0)
    assert rough.passes == 1
    assert rough.exactness.probability.min() < 1
    partly = model.refined(sequences, size=1, most=1000, tolerance=0.2, passes=30)
    assert partly.exactness.coarse_mass.max() <= 0.2
    assert partly.sizes.sum() < found.sizes.sum()


def test_a_saved_model_is_the_same(tmp_path: Path):
    for name in MODELS:
        model, sequences, tags = made(name)
        model = replace(model, training={"words": 3})
        model.save(tmp_path / "model")
        again = ContextModel.load(tmp_path / "model")
        assert again.labels == model.labels
        assert again.settings == model.settings
        assert again.training == model.training
        assert_close(again.log_likelihoods(sequences, tags), model.log_likelihoods(sequences, tags))


def test_damaged_files(tmp_path: Path):
    model, _, _ = made("contexts")
    path = tmp_path / "model"
    model.save(path)
    whole = path.read_bytes()
    for text in (
        b"",
        b"labels",
        whole[: len(whole) // 2],
        whole.replace(b'version\\": 1', b'version\\": 9'),
        re.sub(rb'settings\\": {.*?}', rb'settings\\": []', whole),
        re.sub(rb'size\\": [0-9]', rb'size\\": x', whole),
    ):
        path.write_bytes(text)
        with pytest.raises(FileError, match="model"):
            ContextModel.load(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 0}, "order"),
        ({"size": -1}, "size"),
        ({"order": 2.5}, "order must be an integer"),
        ({"size": 2.5}, "size must be an integer"),
        ({"memory": 3.5}, "memory must be an integer"),
        ({"memory": 1}, "memory must be at least 3"),
        ({"memory": 5, "beam": True}, "memory"),
        ({"memory": "much"}, "memory"),
        ({"epochs": -1}, "epochs"),
        ({"step": 0.0}, "step"),
        ({"delta": math.nan}, "delta"),
        ({"l2": 0.1}, "lbfgs"),
        ({"method": "lbfgs", "beam": True}, "learn_escape"),
    ],
)
def test_wrong_options(unchecked: None, options: dict[str, Any], words: str):
    with pytest.raises(ArgumentError, match=words):
        fit_contexts([[["x"]]], [["a"]], **options)


def test_wrong_data(unchecked: None):
    with pytest.raises(ArgumentError, match="must not be empty"):
        fit_contexts([], [])
    with pytest.raises(ArgumentError, match="must be one list"):
        fit_contexts([[["x"]]], [])
    with pytest.raises(ArgumentError, match="1 positions and 2 labels"):
        fit_contexts([[["x"]]], [["a", "b"]])
    with pytest.raises(ArgumentError, match="every sequence"):
        fit_contexts([[]], [[]])
    with pytest.raises(ArgumentError, match="finite"):
        fit_contexts([[{"x": math.inf}]], [["a"]])
    with pytest.raises(ArgumentError, match="tags must be strings"):
        fit_contexts([[["x"]]], [[1]])
    with pytest.raises(ArgumentError, match="must be numbers"):
        fit_contexts([[{"x": "much"}]], [["a"]])
    with pytest.raises(ArgumentError, match="Got the int 3 in sequence 0"):
        fit_contexts([[3]], [["a"]])  # type: ignore[list-item]
    model = fit_contexts([[["x"]]], [["a"]])
    with pytest.raises(ArgumentError, match="'b'"):
        model.log_likelihoods([[["x"]]], [["b"]])
    with pytest.raises(ArgumentError, match="one for each position"):
        model.log_likelihoods([[["x"], ["x"]]], [["a"]])
    assert model.tag([[["never seen"]]])[0].labels == ["a"]


@pytest.mark.parametrize("name", [1, ("x", 1.0), ["x"], torch.tensor(1.0)], ids=repr)
def test_names_of_features_are_strings(unchecked: None, name: Any):
    # Others would be lost in a file, and a model that was read would not know them again.
    with pytest.raises(ArgumentError, match="names of features must be strings"):
        fit_contexts([[[name]]], [["a"]])
    with pytest.raises(ArgumentError, match="names of features must be strings"):
        fit_contexts([[["x"]]], [["a"]]).tag([[[name]]])


def test_settings_of_arrays():
    rng = np.random.default_rng(0)
    sequences = [rng.normal(size=(4, 3)) for _ in range(20)]
    tags = [["ab"[int(row[0] > 0)] for row in one] for one in sequences]
    model = fit_contexts(sequences, tags, order=1, epochs=10)
    assert Settings().order == 4
    assert np.mean([f.labels == t for f, t in zip(model.tag(sequences), tags, strict=True)]) > 0.8
