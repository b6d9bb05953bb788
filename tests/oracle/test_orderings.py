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
from inout.contexts import ContextChain, ContextModel, ContextSet
from inout.learning.contexts import fit_contexts
from tests.oracle.reified_contexts import log_sum
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
