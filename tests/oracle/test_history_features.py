"""History features against a model in plain Python that calls the functions for every score."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inout import ArgumentError, FileError
from inout.contexts import ContextModel, HistoryFeature
from inout.contexts.model import Settings
from inout.kernels.lattice import histories as table
from inout.kernels.lattice.ties import Ties
from inout.learning.context_batches import BatchContexts
from inout.learning.context_training import Training
from inout.learning.contexts import fit_contexts
from inout.learning.hogwild import Hogwild
from tests.oracle import reified_contexts as oracle
from tests.oracle.reified_contexts import BOS
from tests.support import assert_close

LABELS = "abc"
Feature = tuple[str, ...]
History = tuple[str, ...]


def count_of_a(history: History) -> str:
    """Tells how many of the labels are a, and whether all are known."""
    return f"{history.count('a')}{'?' if '⋆' in history else ''}"


def ends(history: History) -> str | None:
    """The first and the last symbol, unless they are equal."""
    return None if history[0] == history[-1] else history[0] + history[-1]


COUNT, ENDS = HistoryFeature("count", 3, count_of_a), HistoryFeature("ends", 2, ends)
WHOLE = HistoryFeature("whole", 2, "".join)

MODELS: dict[str, dict[str, Any]] = {
    "contexts": {"order": 2, "size": 3, "history_features": [COUNT]},
    "several": {"order": 3, "size": 4, "history_features": [ENDS, COUNT, WHOLE]},
    "nothing else": {"order": 1, "size": 3, "history_features": [COUNT, ENDS]},
    "unbounded": {"order": 2, "size": 4, "memory": None, "history_features": [COUNT]},
    "shorter than n-grams": {"order": 4, "size": 3, "history_features": [ENDS]},
    "end": {"order": 2, "size": 3, "end": True, "history_features": [COUNT, ENDS]},
    "beam": {"order": 2, "size": 3, "beam": True, "history_features": [COUNT]},
    "escaping beam": {
        "order": 2, "size": 3, "beam": True, "learn_escape": True, "history_features": [COUNT],
    },
    "everything": {"order": 2, "size": 1000, "history_features": [COUNT, ENDS]},
}  # fmt: skip


def corpus(seed: int, count: int = 6, longest: int = 5) -> tuple[list[Any], list[list[str]]]:
    rng = np.random.default_rng(seed)
    sequences, tags = [], []
    for _ in range(count):
        n = int(rng.integers(1, longest + 1))
        sequences.append([{f"f{rng.integers(3)}": float(rng.normal())} for _ in range(n)])
        tags.append([LABELS[y] for y in rng.integers(3, size=n)])
    return [*sequences, [{"f0": 1.0}, {"f1": 0.5}, {"f2": -1.0}]], [*tags, list(LABELS)]


def made(name: str, seed: int = 0) -> tuple[ContextModel, list[Any], list[list[str]]]:
    """A model with random weights for all that occurred when it saw some sequences once."""
    sequences, tags = corpus(seed)
    model = fit_contexts(sequences, tags, epochs=1, **MODELS[name])
    rng = np.random.default_rng(seed + 1)
    model.histories.weights[:] = rng.normal(size=model.histories.num_weights)
    model = replace(model, emission=rng.normal(size=model.emission.shape))
    return model, sequences, tags


def weights_of(model: ContextModel) -> dict[Feature, float]:
    """The weights of all features by name."""
    found: dict[Feature, float] = {}
    names = dict(enumerate(model.labels)) | {-1: "^", -2: "⋆", len(model.labels): "$"}
    for _, symbols, _, place in model.histories.items():
        for y, weight in enumerate(model.histories.weights[place]):
            found["y", *(names[s] for s in symbols), names[y]] = float(weight)
    for stream, key, place in model.histories.shared_items():
        for y, weight in enumerate(model.histories.weights[place]):
            found[model.history_features[stream - 1].name, key, names[y]] = float(weight)
    for d, y in product(range(len(model.features)), range(len(model.labels))):
        found["x", model.features[d], model.labels[y]] = float(model.emission[d, y])
    found["escape",] = model.escape
    return found


class Plain:
    """The same model with dictionaries: scores and features of (position, context, label)."""

    def __init__(self, model: ContextModel, sequence: Any):
        self.model, self.sequence = model, sequence
        self.weights = weights_of(model)
        n, s = len(sequence), len(model.labels)
        self.columns = [oracle.Column([], range(0))]
        self.columns += [oracle.Column([i], range(s)) for i in range(n)]
        if model.settings.end:
            self.columns.append(oracle.Column([n], range(s, s + 1)))

    def features(self, position: int, context: tuple[Any, ...], label: int) -> Counter[Feature]:
        names = [*self.model.labels, "$"]
        found: Counter[Feature] = Counter()
        if position < len(self.sequence):
            for name, value in self.sequence[position].items():
                found["x", name, names[label]] = value
        known = ["^" if s == BOS else names[s[0]] for s in context]
        before = "^" if known[:1] == ["^"] else "⋆"

        def last(length: int) -> tuple[str, ...]:
            return tuple(([before] * length + known)[-length:] if length else ())

        for k in range(self.model.settings.order):
            found["y", *last(k), names[label]] = 1
        for own in self.model.history_features:
            key = own.function(last(own.length))
            if key is not None:
                found[own.name, key, names[label]] = 1
        if not context:
            found["escape",] = 1
        return found

    def score(self, column: int, context: tuple[Any, ...], label: int) -> float:
        found = self.features(column - 1, context, label)
        return sum(value * self.weights.get(name, 0.0) for name, value in found.items())

    def selected(self) -> oracle.Selection:
        own = self.model.settings
        sizes = [own.size] * len(self.columns)
        return oracle.selected(
            self.columns, self.score, sizes, memory=own.memory, beam=own.beam
        )  # fmt: skip

    def totals(self, contexts: Any, string: list[int] | None = None) -> oracle.Totals:
        target = None if string is None else oracle.Target(range(len(LABELS) + 1), string)
        return oracle.all_paths(
            self.columns, contexts, self.score, memory=self.model.settings.memory, target=target
        )

    def expected(self, posteriors: dict[oracle.Edge, float]) -> Counter[Feature]:
        found: Counter[Feature] = Counter()
        for (column, _, context, action), p in posteriors.items():
            for name, value in self.features(column - 1, context, action).items():
                found[name] += p * value
        return found


def assert_same_answers(model: ContextModel, sequences: list[Any]) -> None:
    """Contexts, scores, log Z, expected features and the best labels of each sequence."""
    for sequence in sequences:
        plain = Plain(model, sequence)
        selection = plain.selected()
        lattice = model.select(model.observe([sequence]))
        for c, contexts in enumerate(selection.contexts):
            nodes = range(*lattice.node_offsets[c : c + 2])
            found = [
                (BOS, *lattice.string(v)) if lattice.is_anchored[v] else lattice.string(v)
                for v in nodes
            ]
            assert found == [tuple(s if s == BOS else s[0] for s in one) for one in contexts]
            for v, context in zip(nodes, contexts, strict=True):
                assert_close(lattice.forward[v], selection.forward[c, context])
        totals = plain.totals(selection.contexts)
        assert_close(lattice.log_partition[0], totals.log_z)
        assert_close(float(model.chain([sequence]).log_partition()[0]), totals.log_z)
        expected = {name: x for name, x in plain.expected(totals.posteriors).items() if x}
        known = set(plain.weights)
        mine = model.expected_features([sequence])
        for name in known | set(mine):
            assert_close(mine.get(name, 0.0), expected.get(name, 0.0), atol=1e-9)
        (tagging,) = model.tag([sequence])
        best = [edge[3] for edge in totals.best_paths[0]][: len(sequence)]
        assert tagging.labels == [model.labels[y] for y in best]
        path = Counter[tuple[int, ...]]()
        for weight, edges in totals.paths:
            path[tuple(edge[3] for edge in edges)[: len(sequence)]] += np.exp(weight - totals.log_z)
        assert_close(tagging.confidence, path[tuple(best)])


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_all_labellings(name: str) -> None:
    model, sequences, _ = made(name)
    assert_same_answers(model, sequences)


@pytest.mark.parametrize("name", MODELS)
def test_histories_that_training_never_met(name: str, tmp_path: Path) -> None:
    """Their keys may be known, and then they have weights; keys that are not known count 0."""
    model, *_ = made(name)
    model.save(tmp_path / "model.ctx")
    functions = MODELS[name]["history_features"]
    model = ContextModel.load(tmp_path / "model.ctx", history_features=functions)
    unseen, _ = corpus(77, 5, 6)
    before = model.histories.num_weights
    assert_same_answers(model, unseen)
    assert model.histories.num_weights == before
    # Several at a time are no different.
    together = model.select(model.observe(unseen)).log_partition
    alone = [model.select(model.observe([one])).log_partition[0] for one in unseen]
    assert_close(together, np.array(alone))


def test_a_fault_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the second selection, or with rows that are not shared, the answers differ."""
    model, *_ = made("nothing else")
    model.save(tmp_path / "model.ctx")
    unseen, _ = corpus(77, 5, 6)
    settle = Ties.settle

    def once(*arguments: Any) -> bool:
        settle(*arguments)
        return False

    monkeypatch.setattr(Ties, "settle", once)
    loaded = ContextModel.load(tmp_path / "model.ctx", history_features=[ENDS, COUNT])
    with pytest.raises(AssertionError):
        assert_same_answers(loaded, unseen)
    monkeypatch.undo()
    other = HistoryFeature("count", 3, lambda history: str(history.count("b")))
    loaded = ContextModel.load(tmp_path / "model.ctx", history_features=[ENDS, other])
    with pytest.raises(AssertionError):
        assert_same_answers(replace(loaded, history_features=(COUNT, ENDS)), unseen)


@pytest.mark.parametrize("name", ["several", "end", "unbounded"])
def test_a_step_of_adagrad(name: str) -> None:
    """From weights of 0, with the gradient added up over all histories of a key."""
    sequences, tags = corpus(3, 4, 4)
    start = fit_contexts(sequences, tags, epochs=0, **MODELS[name])
    settings, emission = start.settings, np.random.default_rng(0).normal(size=(3, 3))
    for sequence, own in zip(sequences, tags, strict=True):
        blank = ContextModel.untrained(LABELS, start.features, settings, start.history_features)
        model = replace(blank, emission=emission.copy())
        plain = Plain(model, sequence)
        targets = model.targets([own])
        totals = plain.totals(plain.selected().contexts, targets.strings.tolist())
        gradient = plain.expected(totals.constrained_posteriors)
        gradient.subtract(plain.expected(totals.posteriors))
        seen = model.observe([sequence])
        training = Training(model, seen, targets, False, 1, torch.Generator(), 1, None)
        weights = weights_of(training.adagrad(Hogwild(0.2, 0.5)))
        for feature in set(weights) | set(gradient):
            if feature[0] not in ("x", "escape"):
                slope = gradient[feature]
                assert_close(weights[feature], 0.2 * slope / (0.5 + abs(slope)), atol=1e-9)


@pytest.mark.parametrize("name", ["several", "end", "escaping beam"])
def test_gradient_of_log_partition(name: str) -> None:
    """What L-BFGS gets: the expected features of all sequences, and the observed ones."""
    model, sequences, tags = made(name)
    contexts = BatchContexts.selected(model, model.observe(sequences), False)
    weights = torch.from_numpy(contexts.joined(model)).requires_grad_()
    log_z = contexts.log_partition(weights)
    (slopes,) = torch.autograd.grad(log_z.sum(), weights)
    observed = contexts.observed(model.targets(tags))
    expected: Counter[Feature] = Counter()
    counted: Counter[Feature] = Counter()
    for b, (sequence, own) in enumerate(zip(sequences, tags, strict=True)):
        plain = Plain(model, sequence)
        targets = model.targets([own])
        totals = plain.totals(plain.selected().contexts, targets.strings.tolist())
        assert_close(log_z[b], totals.log_z)
        expected.update(plain.expected(totals.posteriors))
        counted.update(plain.expected(totals.constrained_posteriors))
    names = [*model.labels, "$"]
    shared = list(model.histories.shared_items())
    assert len(shared) > 3
    for stream, key, place in shared:
        for y, number in enumerate(range(place.start, place.stop)):
            feature = model.history_features[stream - 1].name, key, names[y]
            assert_close(float(slopes[number]), expected.get(feature, 0.0), atol=1e-9)
            assert_close(observed[number], counted.get(feature, 0.0), atol=1e-9)


# ------------------------------------------------------------------------- what it is good for


def parities() -> tuple[list[Any], list[list[str]]]:
    """Four labels that are seen, and one that tells whether the number of a among them is odd."""
    sequences, tags = [], []
    for labels in product("ab", repeat=4):
        sequences.append([[f"is {label}"] for label in labels] + [["last"]])
        tags.append([*labels, "odd" if labels.count("a") % 2 else "even"])
    return sequences, tags


def parity(history: History) -> str | None:
    return None if set(history) - {"a", "b"} else str(history.count("a") % 2)


@pytest.mark.parametrize("method", ["adagrad", "lbfgs"])
def test_what_n_grams_cannot_learn(method: Any) -> None:
    """Parities of histories of which half were never seen."""
    sequences, tags = parities()
    train = [i for i in range(16) if i in (0, 1, 2, 4, 7, 8, 13, 14)]
    rest = [i for i in range(16) if i not in train]
    kinds: dict[str, dict[str, Any]] = {
        "n-grams": {"order": 5},
        "parity": {"order": 1, "history_features": [HistoryFeature("parity", 4, parity)]},
    }
    right = {}
    for name, own in kinds.items():
        own |= {"epochs": 30} if method == "adagrad" else {"l2": 1e-3, "epochs": 1}
        model = fit_contexts(
            [sequences[i] for i in train], [tags[i] for i in train], size=1000, method=method, **own
        )
        found = model.tag([sequences[i] for i in rest])
        right[name] = sum(one.labels == tags[i] for one, i in zip(found, rest, strict=True))
    assert right["parity"] == 8
    assert right["n-grams"] < 6


# --------------------------------------------------------------------------- rows and functions


def test_histories_of_a_key_share_a_row_and_functions_are_asked_once() -> None:
    asked: list[History] = []

    def vowel(history: History) -> str | None:
        asked.append(history)
        return None if "⋆" in history else str("a" in history)

    sequences, tags = corpus(5, 10)
    feature = HistoryFeature("vowel", 3, vowel)
    model = fit_contexts(
        sequences, tags, order=1, size=20, epochs=3, history_features=[feature]
    )  # fmt: skip
    assert len(asked) == len(set(asked)) > 10
    assert all(len(history) == 3 for history in asked)
    assert ("^", "^", "^") in asked
    assert ("⋆", "⋆", "⋆") in asked
    assert any(history[0] == "^" and history[2] in LABELS for history in asked)
    keys = {key for _, key, _ in model.histories.shared_items()}
    assert keys == {"True", "False"}
    assert model.histories.num_weights == 3 * (1 + 2)
    again = len(asked)
    model.tag(sequences)
    model.refined(sequences, size=2)
    assert len(asked) == len(set(asked))
    assert len(asked) >= again


def test_whole_histories_as_keys_are_n_grams() -> None:
    """The same model by another way: all weights of a training by AdaGrad."""
    sequences, tags = corpus(8, 8)
    one = fit_contexts(sequences, tags, order=3, size=5)
    functions = [HistoryFeature("last", 1, " ".join), HistoryFeature("last two", 2, " ".join)]
    two = fit_contexts(sequences, tags, order=1, size=5, history_features=functions)
    wanted, found = weights_of(one), {}
    for feature, weight in weights_of(two).items():
        name, *rest = feature
        if name in ("last", "last two"):
            found["y", *rest[0].split(), rest[1]] = weight
        else:
            found[feature] = weight
    assert len(wanted) > 50
    for feature in set(wanted) | set(found):
        assert_close(found.get(feature, 0.0), wanted.get(feature, 0.0), atol=1e-9)


def test_keys_that_only_a_question_met_can_be_learned_later() -> None:
    model = ContextModel.untrained(LABELS, ["f0"], Settings(order=1), [ENDS])
    seen = model.observe([[{"f0": 1.0}] * 4])
    model.select(seen)
    assert model.histories.num_weights == 0
    model.select(seen, grow=True)
    rows = {key for _, key, _ in model.histories.shared_items()}
    assert {"^a", "ab", "ca"} <= rows
    assert "aa" not in rows


def test_what_was_asked_is_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the table nor the file grows for ever with the histories of questions."""
    model, *_ = made("several")
    model.save(tmp_path / "before.ctx")
    expected = [corpus(seed, 20, 8)[0] for seed in range(5)]
    answers = [model.select(model.observe(x)).log_partition for x in expected]
    model.save(tmp_path / "after.ctx")
    assert (tmp_path / "before.ctx").read_bytes() == (tmp_path / "after.ctx").read_bytes()
    large = model.histories.num_nodes
    monkeypatch.setattr(table, "LATTICE_TIED", 10)
    functions = MODELS["several"]["history_features"]
    small = ContextModel.load(tmp_path / "after.ctx", history_features=functions)
    for x, answer in zip(expected, answers, strict=True):
        assert_close(small.select(small.observe(x)).log_partition, answer)
        assert small.histories.num_nodes < large
    sequences, tags = corpus(9)
    trained = fit_contexts(sequences, tags, **MODELS["several"])
    monkeypatch.undo()
    same = fit_contexts(sequences, tags, **MODELS["several"])
    # Asking again may lead to contexts, and rows of 0 for them, that are not selected in the end.
    learned, wanted = weights_of(trained), weights_of(same)
    assert {x: w for x, w in learned.items() if w} == {x: w for x, w in wanted.items() if w}


def test_threads_may_share_a_model(tmp_path: Path) -> None:
    model, *_ = made("several")
    model.save(tmp_path / "model.ctx")
    questions = [corpus(seed, 5, 8)[0] for seed in range(16)]
    expected = [model.select(model.observe(x)).log_partition for x in questions]
    functions = MODELS["several"]["history_features"]
    fresh = ContextModel.load(tmp_path / "model.ctx", history_features=functions)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: fresh.select(fresh.observe(x)).log_partition, questions))
    for mine, own in zip(found, expected, strict=True):
        assert_close(mine, own)


# --------------------------------------------------------------------------- files and misuse


def test_files_keep_everything_but_the_functions(tmp_path: Path) -> None:
    model, sequences, _ = made("several")
    path = tmp_path / "model.ctx"
    model.save(path)
    # In any order.
    found = ContextModel.load(path, history_features=[WHOLE, COUNT, ENDS])
    assert found.settings == model.settings
    assert weights_of(found) == weights_of(model)
    assert found.expected_features(sequences) == model.expected_features(sequences)
    table_copy = replace(model, histories=model.histories.copy())
    assert table_copy.expected_features(sequences) == model.expected_features(sequences)
    for given, got in (
        ([], "Got none"),
        ([ENDS, COUNT], r"Got ends \(length 2\), count \(length 3\)"),
        ([ENDS, WHOLE, replace(COUNT, length=2)], r"count \(length 2\)"),
    ):
        with pytest.raises(ArgumentError, match=r"ends \(length 2\), count \(length 3\), .*" + got):
            ContextModel.load(path, history_features=given)
    plain = fit_contexts(*corpus(0), epochs=1)
    plain.save(path)
    assert ContextModel.load(path).tag(sequences)
    with pytest.raises(ArgumentError, match=r"only be given in Python: none\. Got ends"):
        ContextModel.load(path, history_features=[ENDS])


def test_damaged_rows_are_refused(tmp_path: Path) -> None:
    model, *_ = made("contexts")
    for wrong in (-1, 10**6):
        rows = model.histories.ties.rows[1]
        kept = dict(rows)
        rows[next(iter(rows))] = wrong
        model.save(tmp_path / "model.ctx")
        rows.update(kept)
        with pytest.raises(FileError, match="damaged"):
            ContextModel.load(tmp_path / "model.ctx", history_features=[COUNT])


def test_misuse() -> None:
    sequences, tags = corpus(0)
    for name in ("", "x", "y", "escape"):
        with pytest.raises(ArgumentError, match=r"^name must not be empty, nor"):
            HistoryFeature(name, 2, ends)
    with pytest.raises(ArgumentError, match=r"at least 1\. Got 0"):
        HistoryFeature("none", 0, ends)
    with pytest.raises(ArgumentError, match="'ends' more than once"):
        fit_contexts(sequences, tags, history_features=[ENDS, ENDS])
    with pytest.raises(ArgumentError, match="memory must be at least 3, for the history feature"):
        fit_contexts(sequences, tags, order=2, memory=2, history_features=[COUNT])
    numbers: Any = HistoryFeature("numbers", 2, lambda history: history.count("a"))  # type: ignore[arg-type, return-value]
    with pytest.raises(ArgumentError, match=r"numbers must give a string or None. Got 0 for '\^ "):
        fit_contexts(sequences, tags, order=2, history_features=[numbers])
    with pytest.raises(ArgumentError, match="labels must not be"):
        fit_contexts([[["f"]]], [["^"]], history_features=[ENDS])
    model = fit_contexts(sequences, tags, epochs=0, history_features=[ENDS])
    with pytest.raises(ArgumentError, match="those that settings name"):
        replace(model, history_features=(COUNT,))
    assert model.settings.memory == 3
    longer = fit_contexts(sequences, tags, epochs=0, order=2, history_features=[COUNT])
    assert longer.settings.memory == 3
