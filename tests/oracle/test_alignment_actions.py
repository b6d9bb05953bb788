"""Alignments, their actions and their columns against graphs by their definition."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from inout._core.errors import ArgumentError
from inout.contexts.alignments.actions import (
    action_targets,
    alignment_actions,
    alignment_columns,
    alignment_of_actions,
    alignment_streams,
    letter_targets,
)
from inout.contexts.alignments.alignment import Alignment
from inout.kernels.lattice.arrays import Columns
from tests.oracle import alignment_graphs as oracle

LETTERS = ["a", "b"]
SHAPES = [(1, 1), (1, 3), (3, 1), (2, 2), (2, 3), (3, 2), (3, 3), (3, 4), (4, 3)]


def paths(columns: Columns) -> list[list[int]]:
    """The actions of all paths of the first example."""
    end = int(columns.firsts[1]) - 1
    found: list[list[int]] = []

    def back(column: int, actions: list[int]) -> None:
        if column == 0:
            found.append(actions[::-1])
        for source in columns.sources[slice(*columns.source_offsets[column : column + 2])]:
            for action in range(columns.first_actions[column], columns.end_actions[column]):
                back(int(source), [*actions, action])

    back(end, [])
    return found


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("many_to_many", [False, True])
def test_paths_are_all_graphs(n: int, m: int, many_to_many: bool):
    columns = alignment_columns([[0] * n], 1, most_letters=m, many_to_many=many_to_many)
    symbols = [str(k) for k in range(n)]
    made = [alignment_of_actions(path, symbols, ["a"]) for path in paths(columns)]
    found = [alignment.edges for alignment in made if len(alignment.output) == m]
    expected = list(oracle.graphs(n, m, stars=not many_to_many))
    assert sorted(found) == sorted(expected)
    if many_to_many:
        assert len(found) == oracle.delannoy(n - 1, m - 1)
    for alignment in made:
        assert many_to_many or alignment.is_stars
    if m == 3:
        assert any(not alignment.is_stars for alignment in made) == (many_to_many and n > 1)


@pytest.mark.parametrize("many_to_many", [False, True])
@pytest.mark.parametrize("most_letters", [1, 2, 3])
def test_paths_with_letters(most_letters: int, many_to_many: bool):
    columns = alignment_columns(
        [[0, 1, 0]], 2, most_letters=most_letters, many_to_many=many_to_many
    )
    found = paths(columns)
    expected = list(
        oracle.everything([0, 1, 0], 2, stars=not many_to_many, most_letters=most_letters)
    )
    assert len({tuple(path) for path in found}) == len(found) == len(expected)
    made = set()
    for path in found:
        alignment = alignment_of_actions(path, ["x", "y", "x"], LETTERS)
        output = [LETTERS.index(letter) for letter in alignment.output]
        assert alignment_actions(alignment, output, 2) == path
        made.add((tuple(output), alignment.edges))
    assert made == set(expected)


def test_many_inputs_are_each_their_own():
    inputs = [[0, 1], [2], [1, 1, 0, 2], [0]]
    whole = alignment_columns(inputs, 3, most_letters=2)
    assert whole.num_examples == len(inputs)
    row = 0
    for b, symbols in enumerate(inputs):
        own = alignment_columns([symbols], 3, most_letters=2)
        first, end = whole.firsts[b : b + 2]
        assert end - first == own.size
        for name in ("first_actions", "end_actions", "inputs"):
            assert getattr(whole, name)[first:end].tolist() == getattr(own, name).tolist()
        rows = own.emission_rows
        assert np.array_equal(whole.emission_rows[first:end], np.where(rows < 0, -1, rows + row))
        row += len(symbols)
        starts = whole.source_offsets[first : end + 1]
        assert np.array_equal(starts - starts[0], own.source_offsets)
        assert np.array_equal(whole.sources[starts[0] : starts[-1]] - first, own.sources)
        assert set(own.inputs[1:-1].tolist()) == set(symbols)
    assert whole.firsts.dtype == whole.source_offsets.dtype == np.int64
    for name in ("sources", "first_actions", "end_actions", "inputs", "emission_rows"):
        assert getattr(whole, name).dtype == np.int32


def test_streams_and_targets_show_what_actions_write():
    streams = alignment_streams(5, 3, [0, 2], [1])
    assert streams.symbols.tolist() == [[0, 1, 2, 0, 1, 2, -1, -1], [0, 1, 2, 3, 4, 5, 6, -1]]
    assert streams.places.tolist() == [[0, 1, 2, 0, 1, 2, -1, 3], [0, 1, 2, 3, 4, 5, 6, -1]]
    assert streams.widths.tolist() == [4, 7]
    assert streams.lengths.tolist() == [[True, False, True], [False, True, False]]
    letters = letter_targets([[0, 2], [1]], 3)
    assert letters.symbols.tolist() == [0, 1, 2, 0, 1, 2, -1, -1]
    assert (letters.strings.tolist(), letters.offsets.tolist()) == ([0, 2, 1], [0, 2, 3])
    actions = action_targets([[0, 7], [4, 6, 7]], 3)
    assert actions.symbols.tolist() == list(range(8))
    assert (actions.strings.tolist(), actions.offsets.tolist()) == ([0, 7, 4, 6, 7], [0, 2, 5])


def test_pictures():
    assert str(Alignment(("A",), ("x", "y"), ((0, 0), (0, 1)))) == "| A  |\n| xy |"
    long = Alignment(("A", "BB"), ("xx", "y"), ((0, 0), (1, 0), (1, 1)))
    assert str(long) == "| A BB |\n| xx y |"
    assert not long.is_stars
    for n, m in product((1, 2, 3), repeat=2):
        for graph in oracle.graphs(n, m, stars=False):
            made = Alignment(("p",) * n, ("q",) * m, graph)
            above, below = zip(*made.groups(), strict=True)
            assert sum(above, ()) == made.input
            assert sum(below, ()) == made.output
            stars = all(len(i) == 1 or len(k) == 1 for i, k in made.groups())
            assert made.is_stars == stars == (graph in set(oracle.graphs(n, m, stars=True)))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((), "must not be empty"),
        (((0, 0),), "to \\(1, 1\\)"),
        (((0, 1), (1, 1)), "a step \\(1, 2\\)"),
        (((0, 0), (0, 0), (1, 1)), "a step \\(0, 0\\)"),
        (((0, 0), (1, 1), (0, 1)), "a step \\(-1, 0\\)"),
    ],
)
def test_no_alignments(edges: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        Alignment(("A", "B"), ("x", "y"), edges)


def test_bad_columns():
    with pytest.raises(ArgumentError, match="empty one at 1"):
        alignment_columns([[0], []], 2)
    with pytest.raises(ArgumentError, match="most_letters"):
        alignment_columns([[0]], 2, most_letters=0)
    with pytest.raises(ArgumentError, match="0 or more"):
        alignment_streams(2, 2, [-1], [0])
