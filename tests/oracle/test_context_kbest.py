"""The k best paths of a lattice, and outputs by the sum over their alignments: by enumeration."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from inout import ArgumentError
from inout.contexts.alignments import AlignmentModel, AlignmentSettings
from inout.kernels.lattice.arrays import Columns, Streams
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice
from inout.kernels.lattice.selection import select
from inout.learning.alignment import fit_alignment
from tests.seeds import seeds
from tests.support import assert_close


def all_paths(lattice: Lattice, b: int) -> list[tuple[float, tuple[int, ...]]]:
    """Every path of an example that is possible: its score, its edges."""
    columns = lattice.columns
    lo, hi = lattice.edge_offsets[columns.firsts[b]], lattice.edge_offsets[columns.firsts[b + 1]]
    following: dict[int, list[int]] = {}
    for e in range(lo, hi):
        if lattice.scores[e] > -math.inf:
            following.setdefault(int(lattice.edge_sources[e]), []).append(e)
    start = int(lattice.node_offsets[columns.firsts[b]])
    found = []

    def walk(v: int, score: float, edges: tuple[int, ...]) -> None:
        if v == lattice.ends[b]:
            found.append((score, edges))
        for e in following.get(v, []):
            walk(int(lattice.edge_targets[e]), score + float(lattice.scores[e]), (*edges, e))

    walk(start, 0.0, ())
    return found


def check(lattice: Lattice, k: int) -> None:
    edges, offsets, scores = lattice.kbest(k)
    assert scores.shape == (lattice.columns.num_examples, k)
    for b in range(lattice.columns.num_examples):
        paths = all_paths(lattice, b)
        wanted = sorted((score for score, _ in paths), reverse=True)[:k]
        wanted += [-math.inf] * (k - len(wanted))
        assert_close(scores[b], np.array(wanted))
        known = {own: score for score, own in paths}
        bounds = offsets[b * k : (b + 1) * k + 1]
        own = [tuple(edges[lo:hi].tolist()) for lo, hi in itertools.pairwise(bounds)]
        real = [path for path in own if path]
        assert len(set(real)) == len(real) == min(k, len(paths))
        assert_close([known[path] for path in real], scores[b, : len(real)])


@pytest.mark.parametrize("seed", seeds(8))
def test_k_best_paths_of_chains(seed: int):
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(1, 4))
    columns = Columns.chains(rng.integers(1, 5, 4), labels)
    histories = Histories(Streams.labels(labels, [0, 1]))
    emissions = rng.normal(size=(int(columns.emission_rows.max()) + 1, labels))
    emissions[rng.random(emissions.shape) < 0.2] = -math.inf
    select(columns, histories, emissions, 3, memory=2, grow=True)
    histories.weights[:] = rng.normal(size=histories.num_weights)
    lattice = select(columns, histories, emissions, int(rng.integers(0, 4)), memory=2)
    for k in (1, 2, 5, 200):
        check(lattice, k)


def trained(**settings: Any) -> AlignmentModel:
    inputs = [["A", "B"], ["B"], ["B", "A"], ["A", "A"]]
    outputs = ["xyy", "yy", "yx", "xx"]
    return fit_alignment(inputs, outputs, order=2, size=3, epochs=2, most_letters=2, **settings)


def test_the_most_probable_output_is_by_the_sum_over_alignments():
    model = trained(many_to_many=True)
    differs = 0
    for symbols in itertools.product("AB", repeat=3):
        lattice = model.lattice(model.columns(model.numbered_inputs([list(symbols)])))
        check(lattice, 4)
        sums: dict[tuple[str, ...], float] = {}
        paths = all_paths(lattice, 0)
        total = math.fsum(math.exp(score) for score, _ in paths)
        single: dict[tuple[str, ...], float] = {}
        for score, edges in paths:
            actions = lattice.actions(np.array(edges))
            written = tuple(model.letters[a % 2] for a in actions if a < 4)
            sums[written] = sums.get(written, 0.0) + math.exp(score) / total
            single[written] = max(single.get(written, -math.inf), score)
        best = max(sums, key=lambda y: sums[y])
        found = model.predict([list(symbols)], candidates=len(paths))[0]
        assert found.output == best
        assert_close(found.probability, sums[best])
        assert found.alignment is not None
        assert found.alignment.output == best
        first = max(single, key=lambda y: single[y])
        assert model.predict([list(symbols)], candidates=1)[0].output == first
        differs += first != best
    assert differs, "the model must be one where it makes a difference"


def test_a_beam_that_loses_everything_predicts_nothing():
    model = trained(strategy="model")
    assert model.settings.beam
    assert all(math.isfinite(f.log_probability) for f in model.predict([["A", "B", "A"]]))


def test_wrong_numbers_of_paths():
    with pytest.raises(ArgumentError, match="k must be"):
        trained().predict([["A"]], candidates=0)
    assert AlignmentSettings().size == 20


def test_of_equal_paths_that_met_first_is_before_the_others():
    columns, histories = Columns.chains([3], 3), Histories(Streams.labels(3, [0]))
    lattice = select(columns, histories, np.zeros((3, 3)), 100, memory=1)

    def paths(k: int) -> list[list[int]]:
        edges, offsets, scores = lattice.kbest(k)
        assert not scores.any()
        return [lattice.actions(edges[a:b]).tolist() for a, b in itertools.pairwise(offsets)]

    assert lattice.actions(lattice.best()[0]).tolist() == [0, 0, 0]
    assert paths(3) == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
    for k in range(1, 27):
        assert paths(k) == paths(27)[:k]
