"""Contexts in other orders than from left to right, against sums over all labellings.

Section 9 of Steinhardt & Liang: features are computed here from labels at their own positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inout import ArgumentError
from inout.contexts import ContextChain, ContextModel, ContextSet, HistoryFeature
from inout.learning.contexts import fit_contexts
from tests.oracle import reified_contexts as oracle
from tests.oracle.reified_contexts import BOS, log_sum
from tests.oracle.test_context_model import LABELS, Plain, corpus, randomised
from tests.support import assert_close


def strange(sequence: Sequence[Any]) -> list[int]:
    """By the features of the input: the largest first."""
    return sorted(range(len(sequence)), key=lambda i: -sequence[i]["size"])


def from_the_middle(sequence: Sequence[Any]) -> list[int]:
    left, found = (len(sequence) - 1) // 2, []
    right = left + 1
    if len(sequence) % 2:
        found, left = [left], left - 1
    while left >= 0:
        found += [left, right]
        left, right = left - 1, right + 1
    return found


ORDERS: dict[str, tuple[Any, Any]] = {
    "left-to-right": ("left-to-right", lambda sequence: list(range(len(sequence)))),
    "right-to-left": ("right-to-left", lambda sequence: list(range(len(sequence)))[::-1]),
    "middle-out": ("middle-out", from_the_middle),
    "function": (strange, strange),
}


def made(name: str, **options: Any) -> tuple[ContextModel, list[Any], list[list[str]]]:
    sequences, tags = corpus(0)
    ordering = ORDERS[name][0]
    model = fit_contexts(sequences, tags, order=3, epochs=1, ordering=ordering, **options)
    return randomised(model, 1), sequences, tags


def weights_of(model: ContextModel) -> dict[tuple[str, ...], float]:
    return Plain(model, [{}]).weights


def total(
    weights: dict[tuple[str, ...], float], order: list[int], sequence: Any, labels: Sequence[str]
) -> float:
    """The score of a labelling: of each position, its features and what was visited before it."""
    when = {i: step for step, i in enumerate(order)}
    found = 0.0
    for i, label in enumerate(labels):
        for name, value in sequence[i].items():
            found += value * weights["x", name, label]
        for k in range(3):
            steps = [when[i] - back for back in range(k, 0, -1)]
            history = [labels[order[step]] if step >= 0 else "^" for step in steps]
            found += weights.get(("y", *history, label), 0.0)
    return found


@pytest.mark.parametrize("name", ORDERS)
def test_answers_with_all_contexts(name: str) -> None:
    """Exact: contexts remember all that the features see."""
    model, sequences, tags = made(name, size=1000)
    weights = weights_of(model)
    taggings = model.tag(sequences)
    likelihoods = model.log_likelihoods(sequences, tags)
    chain = model.chain(sequences)
    for b, sequence in enumerate(sequences):
        order = ORDERS[name][1](sequence)
        scores = {
            labels: total(weights, order, sequence, labels)
            for labels in product(LABELS, repeat=len(sequence))
        }
        log_z = log_sum(scores.values())
        best = max(scores, key=lambda labels: scores[labels])
        assert taggings[b].labels == list(best)
        assert_close(taggings[b].confidence, math.exp(scores[best] - log_z))
        marginals = np.zeros((len(sequence), 3))
        for labels, score in scores.items():
            for i, label in enumerate(labels):
                marginals[i, LABELS.index(label)] += math.exp(score - log_z)
        assert_close(taggings[b].marginals, marginals)
        assert_close(likelihoods[b], scores[tuple(tags[b])] - log_z)
        n = len(sequence)
        assert_close(chain.log_partition()[b], log_z)
        assert_close(chain.label_marginals()[b, :n], marginals)
        assert [model.labels[y] for y in chain.mode[b, :n]] == list(best)
        assert (chain.mode[b, n:] == -1).all()


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("kind", ["contexts", "end", "beam"])
def test_answers_with_few_contexts(name: str, kind: str) -> None:
    """Positions in the order of visits, as a chain from left to right; then put back."""
    options = {"contexts": {}, "end": {"end": True}, "beam": {"beam": True}}[kind]
    model, sequences, _ = made(name, size=3, **options)
    taggings = model.tag(sequences)
    for sequence, tagging in zip(sequences, taggings, strict=True):
        order = ORDERS[name][1](sequence)
        totals = Plain(model, [sequence[i] for i in order]).totals()
        marginals = np.zeros((len(sequence), 3))
        for weight, edges in totals.paths:
            for i, edge in zip(order, edges, strict=False):
                marginals[i, edge[3]] += math.exp(weight - totals.log_z)
        assert_close(tagging.marginals, marginals)
        best = dict(zip(order, totals.best_paths[0], strict=False))
        assert tagging.labels == [LABELS[best[i][3]] for i in range(len(sequence))]
        found = model.contexts(sequence)
        for step, i in enumerate(order):
            assert_close(sum(found[i].values()), 1.0)
            longest = max(len(context.lstrip("⋆")) for context in found[i])
            assert longest <= min(step, 2 if kind != "beam" else step)


@pytest.mark.parametrize("method", ["adagrad", "lbfgs"])
def test_from_right_to_left_is_from_left_to_right_of_the_mirror_image(method: Any) -> None:
    sequences, tags = corpus(3)
    options: dict[str, Any] = {"order": 3, "size": 3, "epochs": 2, "method": method}
    mirrored = [one[::-1] for one in sequences], [one[::-1] for one in tags]
    found = fit_contexts(sequences, tags, ordering="right-to-left", **options)
    other = fit_contexts(*mirrored, **options)
    if method == "adagrad":  # names of features are numbered as they are met
        assert weights_of(found) == weights_of(other)
    there, here = found.tag(sequences), other.tag(mirrored[0])
    for one, two in zip(there, here, strict=True):
        assert one.labels == two.labels[::-1]
        assert_close(one.marginals, two.marginals[::-1].copy(), atol=1e-6)
    assert found.expected_features(sequences).keys() == other.expected_features(mirrored[0]).keys()


def test_scores_from_elsewhere_are_those_of_positions() -> None:
    model, sequences, _ = made("function", size=4)
    seen = model.observe(sequences)
    own = np.empty_like(model.emissions(seen))
    own[seen.rows] = model.emissions(seen)
    given = torch.from_numpy(own).requires_grad_()
    chain = model.chain(sequences, given)
    assert_close(chain.log_partition(), model.chain(sequences).log_partition())
    chain.log_partition().sum().backward()
    marginals = np.concatenate([one.marginals for one in model.tag(sequences)])
    assert given.grad is not None
    assert_close(given.grad, marginals)


def test_files_and_bad_orderings(tmp_path: Path) -> None:
    model, sequences, tags = made("function", size=3)
    path = tmp_path / "model.ctx"
    model.save(path)
    again = ContextModel.load(path, ordering=strange)
    assert [one.labels for one in again.tag(sequences)] == [o.labels for o in model.tag(sequences)]
    with pytest.raises(ArgumentError, match="function strange, which is not in its file"):
        ContextModel.load(path)
    with pytest.raises(ArgumentError, match="must be that of the model"):
        ContextModel.load(path, ordering="right-to-left")
    mirror, _, _ = made("right-to-left", size=3)
    mirror.save(path)
    again = ContextModel.load(path)
    assert again.settings.ordering == "right-to-left"
    assert [one.labels for one in again.tag(sequences)] == [o.labels for o in mirror.tag(sequences)]
    with pytest.raises(ArgumentError, match="must be left-to-right, right-to-left"):
        fit_contexts(sequences, tags, ordering="upwards")
    with pytest.raises(ArgumentError, match="each position from 0 to"):
        fit_contexts(sequences, tags, ordering=lambda sequence: [0] * len(sequence))
    with pytest.raises(ArgumentError, match="each position from 0 to"):
        fit_contexts(sequences, tags, ordering=lambda x: [place + 0.5 for place in range(len(x))])
    with pytest.raises(ArgumentError, match="each position from 0 to"):
        replace(model, settings=replace(model.settings, ordering="function <lambda>"),
                ordering=lambda sequence: "no").tag(sequences)  # fmt: skip


ROWS, COLUMNS = 3, 3
ROW_MAJOR = list(range(ROWS * COLUMNS))
GRID_ORDERS = {
    "rows": ROW_MAJOR,
    "columns": [r * COLUMNS + c for c in range(COLUMNS) for r in range(ROWS)],
    "snake": [r * COLUMNS + (c if r % 2 else COLUMNS - 1 - c)
              for r in range(ROWS) for c in range(COLUMNS)],
    "diagonals": sorted(ROW_MAJOR, key=lambda i: (i // COLUMNS + i % COLUMNS, i)),
}  # fmt: skip


def beside(i: int) -> list[int]:
    """The neighbours of a cell."""
    r, c = divmod(i, COLUMNS)
    near = [(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]
    return [a * COLUMNS + b for a, b in near if 0 <= a < ROWS and 0 <= b < COLUMNS]


@pytest.mark.parametrize("name", GRID_ORDERS)
def test_a_grid_is_exact_with_contexts_of_its_frontier(name: str) -> None:
    """A graphical model of low treewidth: contexts fix the cells that have a neighbour to come."""
    order, labels = GRID_ORDERS[name], 2
    rng = np.random.default_rng(0)
    own, pull = rng.normal(size=(9, labels)), rng.normal(size=(9, 9, labels, labels))

    def between(i: int, y: int, j: int, x: int) -> float:
        a, b = min(i, j), max(i, j)
        return float(pull[a, b, y, x] if a == i else pull[a, b, x, y])

    sets = []
    for step in range(1, 9):
        frontier = [k for k in range(step) if any(j in order[step:] for j in beside(order[k]))]
        contexts = []
        for values in product(range(labels), repeat=len(frontier)):
            context: list[int | None] = [None] * step
            for k, value in zip(frontier, values, strict=True):
                context[k] = value
            contexts.append(context)
        sets.append(ContextSet([*contexts, [None] * step]))
    assert max(map(len, sets)) <= 1 + labels ** (3 if name != "diagonals" else 4)

    def score(i: int, context: Any, y: int) -> float:
        known = dict(zip(order, context, strict=False))
        return own[i, y] + sum(between(i, y, j, known[j]) for j in beside(i) if j in known)

    chain = ContextChain.from_sets(sets, score, labels=labels, ordering=order)
    scores = {}
    for y in product(range(labels), repeat=9):
        pairs = [(i, j) for i in range(9) for j in beside(i) if i < j]
        scores[y] = sum(own[i, y[i]] for i in range(9))
        scores[y] += sum(between(i, y[i], j, y[j]) for i, j in pairs)
    log_z = log_sum(scores.values())
    assert_close(chain.log_partition(), log_z)
    assert tuple(chain.mode.tolist()) == max(scores, key=lambda y: scores[y])
    marginals = np.zeros((9, labels))
    entropy = 0.0
    for y, value in scores.items():
        share = math.exp(value - log_z)
        entropy -= share * (value - log_z)
        marginals[range(9), y] += share
    assert_close(chain.label_marginals(), marginals)
    assert_close(chain.entropy(), entropy)
    events = torch.tensor(list(scores))
    assert_close(chain.log_prob(events), np.array(list(scores.values())) - log_z)


# ---------------------------------------------------------------- features of neighbours


def sides(i: int, n: int) -> list[int]:
    return [i - 1, i + 1]


def above(i: int, n: int) -> list[int | None]:
    """Left and above in a grid of three columns."""
    return [i - 1 if i % 3 else None, i - 3]


def joined(labels: tuple[str, ...]) -> str | None:
    return None if labels == ("?", "?") else "".join(labels)


def second(history: tuple[str, ...]) -> str:
    return history[0]


SIDES = HistoryFeature("sides", 3, joined, neighbours=sides)
ABOVE = HistoryFeature("above", 3, joined, neighbours=above)
SECOND = HistoryFeature("second", 2, second)


def neighbour_keys(feature: HistoryFeature, order: list[int], step: int, known: Any) -> str | None:
    """The key of a position, where known(lag) is the label of so many steps ago, or ⋆."""
    assert feature.neighbours is not None
    when = {i: t for t, i in enumerate(order)}
    labels = []
    for j in feature.neighbours(order[step], len(order)):
        if j is None or j not in when:
            labels.append("^")
        elif when[j] >= step:
            labels.append("?")
        else:
            lag = step - when[j]
            labels.append(known(lag) if lag <= feature.length else "⋆")
    return joined(tuple(labels))


def neighbourly(
    name: str, feature: HistoryFeature, seed: int = 0, **options: Any
) -> tuple[ContextModel, list[Any], list[list[str]]]:
    sequences, tags = corpus(seed)
    model = fit_contexts(
        sequences, tags, order=2, epochs=1, ordering=ORDERS[name][0],
        history_features=[SECOND, feature], **options,
    )  # fmt: skip
    return randomised(model, 1), sequences, tags


def all_weights(model: ContextModel) -> dict[tuple[str, ...], float]:
    found = weights_of(model)
    for stream, key, place in model.histories.shared_items():
        for y, weight in enumerate(model.histories.weights[place]):
            if y < 3:
                found[model.history_features[stream - 1].name, key, LABELS[y]] = float(weight)
    return found


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("feature", [SIDES, ABOVE], ids=["sides", "above"])
@pytest.mark.parametrize("size", [2, 1000])
def test_features_of_neighbours(name: str, feature: HistoryFeature, size: int) -> None:
    model, sequences, tags = neighbourly(name, feature, size=size)
    weights = all_weights(model)
    taggings = model.tag(sequences)
    likelihoods = model.log_likelihoods(sequences, tags)
    counts = model.expected_features(sequences)
    expected: dict[tuple[str, ...], float] = {}
    for b, sequence in enumerate(sequences):
        order = ORDERS[name][1](sequence)

        def features(
            step: int, context: Any, label: int, order: Any = order, sequence: Any = sequence
        ) -> dict[tuple[str, ...], float]:
            known = ["^" if s == BOS else LABELS[s[0]] for s in context]
            before = "^" if known[:1] == ["^"] else "⋆"
            padded = [before] * 3 + [x for x in known if x != "^"]
            found = {
                ("y", LABELS[label]): 1.0,
                ("y", padded[-1], LABELS[label]): 1.0,
                ("second", padded[-2], LABELS[label]): 1.0,
            }
            for feature_name, value in sequence[order[step]].items():
                found["x", feature_name, LABELS[label]] = value
            key = neighbour_keys(feature, order, step, lambda lag: padded[-lag])
            if key is not None:
                found[feature.name, key, LABELS[label]] = 1.0
            return found

        def score(c: int, context: Any, label: int, features: Any = features) -> float:
            own = features(c - 1, context, label)
            return sum(value * weights.get(f, 0.0) for f, value in own.items())

        columns = [oracle.Column([], range(0))]
        columns += [oracle.Column([i], range(3)) for i in range(len(sequence))]
        sizes = [size] * len(columns)
        selection = oracle.selected(columns, score, sizes, memory=model.settings.memory)
        totals = oracle.all_paths(columns, selection.contexts, score, memory=model.settings.memory)
        marginals = np.zeros((len(sequence), 3))
        right = -math.inf
        for weight, edges in totals.paths:
            share = math.exp(weight - totals.log_z)
            labels = {i: edge[3] for i, edge in zip(order, edges, strict=True)}
            if [LABELS[labels[i]] for i in range(len(order))] == tags[b]:
                right = weight - totals.log_z
            for i, y in labels.items():
                marginals[i, y] += share
            for step, edge in enumerate(edges):
                for f, value in features(step, edge[2], edge[3]).items():
                    expected[f] = expected.get(f, 0.0) + value * share
        assert_close(taggings[b].marginals, marginals)
        assert_close(likelihoods[b], right)
    for f, value in expected.items():
        if f in weights:
            assert_close(counts.get(f, 0.0), value)
    assert any(f[0] == feature.name and counts.get(f, 0.0) > 0.1 for f in expected)


def test_neighbours_of_positions_alone() -> None:
    """With all contexts nothing but positions matters: any order that sees both gives the same."""
    rng = np.random.default_rng(0)
    sequences = [[{f"f{k}": 1.0} for k in rng.integers(3, size=n)] for n in (9, 6, 7)]
    tags = [[LABELS[k] for k in rng.integers(3, size=len(one))] for one in sequences]
    weights = {key: float(rng.normal()) for key in product(LABELS + "^", LABELS + "^", LABELS)}
    model = fit_contexts(sequences, tags, order=1, size=5000, history_features=[ABOVE], epochs=2)
    for _, key, place in model.histories.shared_items():
        model.histories.weights[place] = [weights.get((*key, y), 0.0) for y in LABELS]
    model.histories.weights[model.histories.row(0, ())] = 0.0
    chain = model.chain(sequences)
    for b, sequence in enumerate(sequences):
        scores = {}
        for y in product(LABELS, repeat=len(sequence)):
            total = sum(
                model.emission[model.features.index(next(iter(p))), LABELS.index(label)]
                for p, label in zip(sequence, y, strict=True)
            )
            for i, label in enumerate(y):
                left, up = y[i - 1] if i % 3 else "^", y[i - 3] if i >= 3 else "^"
                total += weights[left, up, label]
            scores[y] = total
        assert_close(chain.log_partition()[b], log_sum(scores.values()))


def test_files_with_neighbours(tmp_path: Path) -> None:
    model, sequences, _ = neighbourly("right-to-left", SIDES, size=3, end=True)
    model.save(tmp_path / "model.ctx")
    again = ContextModel.load(tmp_path / "model.ctx", history_features=[SIDES, SECOND])
    for one, two in zip(again.tag(sequences), model.tag(sequences), strict=True):
        assert np.array_equal(one.marginals, two.marginals)
    blind = HistoryFeature("sides", 3, joined)
    with pytest.raises(ArgumentError, match="must see neighbours as in training: sides"):
        ContextModel.load(tmp_path / "model.ctx", history_features=[SECOND, blind])
    threaded = fit_contexts(
        sequences, [["a"] * len(one) for one in sequences], history_features=[SIDES], threads=2
    )
    assert [one.labels for one in threaded.tag(sequences)] == [["a"] * len(o) for o in sequences]
