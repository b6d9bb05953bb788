"""Alignment models against the sum over all outputs and all graphs, with every context kept."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inout._core.errors import ArgumentError, FileError
from inout.contexts.alignments.actions import action_targets, alignment_actions
from inout.contexts.alignments.model import AlignmentModel, AlignmentSettings
from inout.kernels.lattice.arrays import Targets
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice, grow_rows
from inout.learning.alignment import AlignmentStats, Strategy, difference
from tests.oracle import alignment_graphs as oracle
from tests.support import assert_close

SYMBOLS, LETTERS = ("p", "q"), ("a", "b")
EXACT = 100_000  # more contexts than there are
INPUTS = [[0], [1, 0], [0, 1, 1]]
KINDS = {"next": 0, "same": 2, "share": 4}


def model_of(weights: oracle.Weights, **settings: Any) -> AlignmentModel:
    """A model with the weights of all n-grams of all inputs, the others being 0."""
    settings = {"size": EXACT, "most_letters": 2} | settings
    model = AlignmentModel.start(
        SYMBOLS, LETTERS, order=weights.order, settings=AlignmentSettings(**settings)
    )
    for ngram in ngrams(weights.order, model.settings.many_to_many):
        place = place_of(model, ngram)
        model.histories.weights[place] = weights(*ngram)
    return model


@cache
def ngrams(order: int, many_to_many: bool) -> list[tuple[Any, ...]]:
    """All n-grams of all inputs."""
    weights = oracle.Weights(0, order)
    found: dict[tuple[Any, ...], None] = {}
    for x in INPUTS:
        for y, graph in oracle.everything(x, 2, stars=not many_to_many, most_letters=2):
            found |= dict.fromkeys(weights.ngrams(x, y, graph))
    return list(found)


def gradient_of(
    model: AlignmentModel,
    x: list[int],
    targets: Targets,
    strategy: Strategy,
    stats: AlignmentStats | None = None,
    least: float = 0.0,
) -> np.ndarray:
    """The gradient of one example, by the weights of the model, which may get more of them."""
    found = difference(model, model.columns([x]), targets, strategy, stats or AlignmentStats())
    assert found
    for lattice, slopes in found:
        grow_rows(model.histories, lattice, slopes, least)
    return sum(model.histories.counts(*each) for each in found)


def place_of(model: AlignmentModel, ngram: tuple[Any, ...]) -> int:
    """Where the weight of an n-gram is, which gets one if it has none."""
    name, before, now = ngram
    if name == "letters":
        symbols = [Histories.BEGIN if z == oracle.BEGIN else z for z in before]
        return model.histories.row(0, symbols).start + (2 if now == oracle.END else now)
    symbols = [
        Histories.BEGIN if edge == oracle.BEGIN else action_of(edge) + 6 * (edge[0] + 1)
        for edge in before
    ]
    return model.histories.row(1, symbols, now[0]).start + action_of(now)


def action_of(edge: tuple[int, str, int]) -> int:
    return KINDS[edge[1]] + max(edge[2], 0)


def every(weights: oracle.Weights, x: list[int], *, many_to_many: bool, most_letters: int = 2):
    """(output, graph, score) of all."""
    return [
        (y, graph, weights.score(x, y, graph))
        for y, graph in oracle.everything(x, 2, stars=not many_to_many, most_letters=most_letters)
    ]


@pytest.mark.parametrize("many_to_many", [False, True])
@pytest.mark.parametrize("order", [1, 3])
def test_exact_model(order: int, many_to_many: bool):
    weights = oracle.Weights(order, order)
    model = model_of(weights, many_to_many=many_to_many)
    names = [[SYMBOLS[k] for k in x] for x in INPUTS]
    lattice = model.lattice(model.columns(INPUTS))
    predicted = model.predict(names, candidates=1)  # the output of the best path
    for b, x in enumerate(INPUTS):
        scored = every(weights, x, many_to_many=many_to_many)
        log_z = oracle.log_sum([score for _, _, score in scored])
        assert_close(lattice.log_partition[b], log_z)
        by_output = defaultdict(list)
        for y, graph, score in scored:
            by_output[y].append((score, graph))
        best = max(scored, key=lambda found: found[2])
        shown = [LETTERS.index(letter) for letter in predicted[b].output]
        alignment = predicted[b].alignment
        assert alignment is not None
        # There may be several as good.
        assert_close(weights.score(x, shown, alignment.edges), best[2])
        of_output = oracle.log_sum([score for score, _ in by_output[tuple(shown)]])
        assert_close(predicted[b].log_probability, of_output - log_z)
        outputs = list(by_output)
        written = ["".join(LETTERS[k] for k in y) for y in outputs]
        aligned = model.align([names[b]] * len(outputs), written)
        expected = [oracle.log_sum([score for score, _ in by_output[y]]) for y in outputs]
        assert_close(
            np.array([found.log_probability for found in aligned]), np.array(expected) - log_z
        )
        assert_close(
            model.log_likelihood([names[b]] * len(outputs), written), np.array(expected) - log_z
        )
        for y, found in zip(outputs, aligned, strict=True):
            assert found.alignment is not None
            assert_close(weights.score(x, y, found.alignment.edges), max(by_output[y])[0])


def test_posteriors_of_letters_and_edges():
    weights = oracle.Weights(7, 3)
    model = model_of(weights)
    x = INPUTS[2]
    lattice = model.lattice(model.columns([x]))
    scored = every(weights, x, many_to_many=False)
    log_z = oracle.log_sum([score for _, _, score in scored])
    expected = np.zeros((3, 6))
    for y, graph, score in scored:
        for (i, _), edge in zip(graph, oracle.labelled(x, y, graph), strict=True):
            expected[i, action_of(edge)] += math.exp(score - log_z)
    assert_close(lattice.emission_counts(lattice.posteriors)[:, :5], expected[:, :5])
    # Given an output.
    target = (0, 1, 1)
    own = [(graph, score) for y, graph, score in scored if y == target]
    given = lattice.constrained(model.targets(["abb"]))
    assert_close(given.log_partition[0], oracle.log_sum([score for _, score in own]))
    expected = np.zeros((3, 6))
    for graph, score in own:
        share = math.exp(score - given.log_partition[0])
        for (i, _), edge in zip(graph, oracle.labelled(x, target, graph), strict=True):
            expected[i, action_of(edge)] += share
    assert_close(lattice.emission_counts(given.posteriors)[:, :5], expected[:, :5])


def test_an_output_that_no_alignment_gives():
    model = model_of(oracle.Weights(0, 2))
    found = model.align([["p"], ["p"]], ["abb", "a"])
    assert found[0].alignment is None
    assert found[0].log_probability == -math.inf
    assert found[0].probability == 0.0
    assert found[1].alignment is not None
    assert model.log_likelihood([["p"]], ["abb"]).tolist() == [-math.inf]


@pytest.mark.few(3)
@pytest.mark.parametrize("many_to_many", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_any_number_of_contexts_covers_everything(size: int, many_to_many: bool):
    settings = AlignmentSettings(size=size, most_letters=3, many_to_many=many_to_many)
    model = AlignmentModel.start(SYMBOLS, LETTERS, order=3, settings=settings)
    lattice = model.lattice(model.columns(INPUTS))
    for b, x in enumerate(INPUTS):
        count = len(list(oracle.everything(x, 2, stars=not many_to_many, most_letters=3)))
        assert_close(lattice.log_partition[b], math.log(count))
    # Of one output: its number of graphs.
    given = lattice.constrained(model.targets(["ab", "abb", "abba"]))
    counts = [
        len(list(oracle.graphs(n, m, stars=not many_to_many, most_letters=3)))
        for n, m in ((1, 2), (2, 3), (3, 4))
    ]
    assert_close(given.log_partition, np.log(counts))


def test_delannoy_numbers():
    settings = AlignmentSettings(size=3, most_letters=7, many_to_many=True)
    model = AlignmentModel.start(("p",), ("a",), order=2, settings=settings)
    for n in (1, 4, 7):
        lattice = model.lattice(model.columns([[0] * n]))
        for m in (1, 3, 7):
            found = lattice.constrained(model.targets(["a" * m])).log_partition
            assert_close(found, np.log([oracle.delannoy(n - 1, m - 1)]))


def paths(lattice: Lattice) -> list[tuple[list[int], float, list[int]]]:
    """(actions, score, edges) of every path of a lattice of one input."""
    into: dict[int, list[int]] = defaultdict(list)
    for edge, (target, score) in enumerate(zip(lattice.edge_targets, lattice.scores, strict=True)):
        if score > -np.inf:
            into[int(target)].append(edge)
    actions = lattice.actions(np.arange(len(lattice.scores)))
    found: list[tuple[list[int], float, list[int]]] = []

    def back(node: int, edges: list[int]) -> None:
        if node == 0:
            edges = edges[::-1]
            found.append(
                ([int(actions[e]) for e in edges], float(lattice.scores[edges].sum()), edges)
            )
        for edge in into[node]:
            back(int(lattice.edge_sources[edge]), [*edges, edge])

    back(int(lattice.ends[0]), [])
    return found


def written(path: list[int]) -> tuple[int, ...]:
    return tuple(action % 2 for action in path if action < 4)


@pytest.mark.parametrize(
    "settings", [{"size": 2}, {"size": 3, "memory": 2}, {"size": 4, "beam": True}]
)
def test_few_contexts(settings: dict[str, Any]):
    model = model_of(oracle.Weights(3, 3), **settings)
    lattice = model.lattice(model.columns([INPUTS[2]]))
    every_path = paths(lattice)
    log_z = oracle.log_sum([score for _, score, _ in every_path])
    assert_close(lattice.log_partition[0], log_z)
    if not model.settings.beam:
        assert len(every_path) == len(
            list(oracle.everything(INPUTS[2], 2, stars=True, most_letters=2))
        )
    for path, score, _ in every_path[:: max(len(every_path) // 10, 1)]:
        own = [p for p in every_path if written(p[0]) == written(path)]
        letters = "".join(LETTERS[k] for k in written(path))
        given = lattice.constrained(model.targets([letters]))
        assert_close(given.log_partition[0], oracle.log_sum([s for _, s, _ in own]))
        expected = np.zeros(len(lattice.scores))
        for _, s, edges in own:
            expected[edges] += math.exp(s - given.log_partition[0])
        assert_close(given.posteriors, expected)
        edges, _, best = lattice.best_given(model.targets([letters]))
        assert edges.tolist() == max(own, key=lambda p: p[1])[2]
        assert_close(best[0], max(s for _, s, _ in own))
        # The whole path as the target.
        forced = lattice.constrained(action_targets([path], 2))
        assert_close(forced.log_partition[0], score)


@pytest.mark.parametrize("strategy", ["contexts", "model", "hybrid"])
def test_gradient_with_contexts_fixed(strategy: Strategy):
    weights = oracle.Weights(5, 3)
    model = model_of(weights, size=3, beam=strategy != "contexts")
    columns, targets = model.columns([INPUTS[2]]), model.targets(["abb"])
    if strategy == "model":
        best = model.predict([["p", "q", "q"]])[0]
        targets = model.targets([best.output])
    gradient = gradient_of(model, INPUTS[2], targets, strategy)
    by: Any = {"hybrid": {"by": "hybrid", "targets": targets}}.get(strategy, {})
    lattice = model.lattice(columns, **by)

    def log_likelihood() -> float:
        # The same contexts, with the scores that the weights give now.
        rows, places = lattice.slot_rows, model.histories.streams.places
        scores = lattice.scores.copy()
        sizes = columns.end_actions - columns.first_actions
        depth = rows.shape[1] // 2
        for c in range(columns.size):
            first = columns.first_actions[c]
            for slot in range(lattice.slot_offsets[c], lattice.slot_offsets[c + 1]):
                start = lattice.edge_offsets[c] + (slot - lattice.slot_offsets[c]) * sizes[c]
                for f in range(rows.shape[1]):
                    if rows[slot, f] >= 0:
                        place = rows[slot, f] + places[f // depth, first]
                        changed = moved[place : place + sizes[c]]
                        scores[start : start + sizes[c]] += changed
        again = lattice.rescored(scores)
        return float(again.constrained(targets).log_partition[0] - again.log_partition[0])

    used = np.flatnonzero(gradient)
    assert len(used) > 30
    for place in used[:: len(used) // 20]:
        values = []
        for shift in (1e-5, -1e-5):
            moved = np.zeros(len(gradient))
            moved[place] = shift
            values.append(log_likelihood())
        assert_close(gradient[place], (values[0] - values[1]) / 2e-5, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("strategy", ["contexts", "target"])
def test_gradient_of_the_exact_model(strategy: Strategy):
    weights = oracle.Weights(6, 3)
    model = model_of(weights, beam=strategy == "target")
    x = INPUTS[2]
    output = (0, 1, 1)
    stats = AlignmentStats()
    gradient = gradient_of(model, x, model.targets(["abb"]), strategy, stats)

    def log_likelihood() -> float:
        scored = every(weights, x, many_to_many=False)
        own = [score for y, _, score in scored if y == output]
        return oracle.log_sum(own) - oracle.log_sum([score for _, _, score in scored])

    assert_close(stats.log_likelihood, log_likelihood())
    graph = next(iter(oracle.graphs(3, 3, stars=True, most_letters=2)))
    for ngram in list(weights.ngrams(x, output, graph))[::3]:
        values = []
        for shift in (1e-5, -1e-5):
            weights.shifts = {ngram: shift}
            values.append(log_likelihood())
        weights.shifts = {}
        slope = (values[0] - values[1]) / 2e-5
        assert_close(gradient[place_of(model, ngram)], slope, atol=1e-8, rtol=1e-6)


def test_forced_decoding_is_supervised():
    weights = oracle.Weights(8, 2)
    model = model_of(weights, beam=True)
    x = INPUTS[1]
    graph = ((0, 0), (1, 1), (1, 2))
    alignment = model.align([["q", "p"]], ["aba"])[0].alignment
    assert alignment is not None
    targets = action_targets([[0, 1, 2, 5]], 2)
    assert alignment_actions(type(alignment)(("q", "p"), tuple("aba"), graph), [0, 1, 0], 2) == [
        0, 1, 2, 5,
    ]  # fmt: skip
    stats = AlignmentStats()
    gradient = gradient_of(model, x, targets, "target", stats)
    scored = every(weights, x, many_to_many=False)
    log_z = oracle.log_sum([score for _, _, score in scored])
    assert_close(stats.log_likelihood, weights.score(x, (0, 1, 0), graph) - log_z)
    expected: dict[Any, float] = defaultdict(float)
    for y, other, score in scored:
        for ngram in weights.ngrams(x, y, other):
            expected[ngram] -= math.exp(score - log_z)
    for ngram in weights.ngrams(x, (0, 1, 0), graph):
        expected[ngram] += 1
    places = [place_of(model, ngram) for ngram in expected]
    assert_close(gradient[places], np.array(list(expected.values())))


def test_small_gradients_get_no_rows():
    settings = AlignmentSettings(size=5, most_letters=2)
    whole = AlignmentModel.start(SYMBOLS, LETTERS, order=3, settings=settings)
    columns, targets = whole.columns([[0, 1]]), whole.targets(["ab"])
    lattice = whole.lattice(columns, grow=True)
    slopes = lattice.constrained(targets).posteriors - lattice.posteriors
    every = whole.histories.counts(lattice, slopes)
    counts = []
    for least in (0.0, 0.05, 1.0):
        model = AlignmentModel.start(SYMBOLS, LETTERS, order=3, settings=settings)
        gradient = gradient_of(model, [0, 1], targets, "contexts", least=least)
        counts.append(len(gradient))
        if least == 0.0:
            assert_close(np.sort(gradient[gradient != 0]), np.sort(every[every != 0]))
            # The new rows are those that selection finds.
            again = model.lattice(columns)
            assert_close(np.sort(model.histories.counts(again, slopes)), np.sort(gradient))
    assert counts[0] > counts[1] > counts[2] == 0


def test_files(tmp_path: Path):
    model = model_of(oracle.Weights(2, 3), size=4, memory=5, escape=-1.5, many_to_many=True)
    path = tmp_path / "model.safetensors"
    model.save(path)
    found = AlignmentModel.load(path)
    assert found.settings == model.settings
    assert (found.symbols, found.letters) == (model.symbols, model.letters)
    names = [[SYMBOLS[k] for k in x] for x in INPUTS]
    assert found.predict(names) == model.predict(names)
    assert found.log_likelihood(names, ["a", "ab", "bab"]).tolist() == (
        model.log_likelihood(names, ["a", "ab", "bab"]).tolist()
    )
    found.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    beam = AlignmentModel.start(SYMBOLS, LETTERS, settings=AlignmentSettings(escape=-math.inf))
    beam.save(path)
    assert AlignmentModel.load(path).settings.escape == -math.inf


def test_other_files(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"no model")
    with pytest.raises(FileError, match="no alignment model"):
        AlignmentModel.load(path)
    AlignmentModel.start(SYMBOLS, LETTERS).save(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'\\"version\\": 1', b'\\"version\\": 9'))
    with pytest.raises(FileError, match=r"version 1\. Got 9"):
        AlignmentModel.load(path)
    path.write_bytes(data.replace(b'\\"size\\": 20', b'\\"size\\": -2'))
    with pytest.raises(FileError, match="damaged"):
        AlignmentModel.load(path)
    path.write_bytes(data[:-5])
    with pytest.raises(FileError):
        AlignmentModel.load(path)


def test_bad_arguments():
    model = AlignmentModel.start(SYMBOLS, LETTERS)
    with pytest.raises(ArgumentError, match="inputs must be of p, q"):
        model.predict([["p", "z"]])
    with pytest.raises(ArgumentError, match="outputs must be of a, b"):
        model.align([["p"]], ["ac"])
    with pytest.raises(ArgumentError, match="the same length"):
        model.log_likelihood([["p"]], ["a", "b"])
    with pytest.raises(ArgumentError, match="different strings"):
        AlignmentModel.start(["p", "p"], LETTERS)
    for name in ("size", "memory", "most_letters"):
        with pytest.raises(ArgumentError, match=name):
            AlignmentSettings(**{name: 0})
    with pytest.raises(ArgumentError, match="escape"):
        AlignmentSettings(escape=math.nan)
