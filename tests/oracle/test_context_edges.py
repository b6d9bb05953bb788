"""Context models at their edges: what is huge, impossible, or does not fit together."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inout import ArgumentError
from inout.contexts.alignments.actions import alignment_streams
from inout.contexts.alignments.model import AlignmentModel
from inout.contexts.model import ContextModel, Settings
from inout.kernels.lattice.arrays import Columns, Streams, Targets
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice
from inout.kernels.lattice.selection import select
from inout.learning.contexts import Passed, fit_contexts

TWO, ONE = [["x"], ["x"]], [["x"]]


def labelled(strings: list[list[int]], labels: int) -> Targets:
    """Chains that spell these labels."""
    lengths = [len(string) for string in strings]
    return Targets(
        np.arange(labels, dtype=np.int32),
        np.array([y for string in strings for y in string], np.int32),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    )


def marginals(lattice: Lattice) -> Any:
    """The probability of each label at each position."""
    return lattice.emission_counts(lattice.posteriors)


# --------------------------------------------------------------------------------- rows and files


@pytest.mark.parametrize("last", [0, 1])
def test_rows_of_different_widths_in_any_order(last: int) -> None:
    histories = Histories(alignment_streams(2, 3, [0, 1], [0, 1]))
    for stream in (1 - last, last):
        place = histories.row(stream, [Histories.BEGIN], 0 if stream else None)
        histories.weights[place] = np.arange(place.stop - place.start) + 1.0
    copy = histories.copy()
    assert {item[:3]: copy.weights[item[3]].tolist() for item in copy.items()} == {
        item[:3]: histories.weights[item[3]].tolist() for item in histories.items()
    }
    arrays = histories.to_arrays()
    short = arrays | {"weights": arrays["weights"][:-1]}
    with pytest.raises(ArgumentError, match="do not fit together"):
        Histories.from_arrays(histories.streams, short)


def test_an_alignment_model_whose_last_row_is_short_can_be_read(tmp_path: Path) -> None:
    model = AlignmentModel.start(["A"], ["x", "y"], order=2)
    for stream, given in ((1, 0), (0, None)):
        place = model.histories.row(stream, [], given)
        model.histories.weights[place] = 1.0 + stream
    model.save(tmp_path / "model")
    found = AlignmentModel.load(tmp_path / "model")
    assert found.log_likelihood([["A"]], ["xy"]) == model.log_likelihood([["A"]], ["xy"])


# ------------------------------------------------------------------------------------ impossible


def test_what_a_beam_of_nothing_has_lost() -> None:
    model = ContextModel.untrained(["a", "b"], ["x"], Settings(2, 0, None, beam=True))
    model.emission[0] = [0.0, 1.0]
    lost, found = model.tag([TWO, ONE])  # what follows ⋆ is impossible; one label is not
    assert (lost.labels, lost.confidence) == ([], 0.0)
    assert not lost.marginals.any()
    assert found.labels == ["b"]
    assert found.confidence == pytest.approx(math.e / (1 + math.e))
    likelihoods = model.log_likelihoods([TWO, ONE], [["a", "b"], ["b"]])
    assert likelihoods[0] == -np.inf
    assert likelihoods[1] == pytest.approx(math.log(found.confidence))


def test_training_a_beam_of_nothing() -> None:
    told: list[Passed] = []
    fit_contexts(
        [TWO, ONE], [["a", "b"], ["b"]], size=0, beam=True, epochs=2,
        after=lambda passed, _: told.append(passed),
    )  # fmt: skip
    assert [passed.missing for passed in told] == [1, 1]
    assert all(-10 < passed.log_likelihood < 0 for passed in told)


def test_targets_that_cannot_be() -> None:
    lattice = select(Columns.chains([2, 2, 2, 0], 2), Histories(Streams.labels(2, [0])), None, 3)
    given = lattice.constrained(labelled([[1], [0, 1, 1], [0, 1], []], 2))
    assert given.log_partition.tolist() == [-np.inf, -np.inf, 0.0, 0.0]
    assert given.posteriors.sum() == 2.0


# ------------------------------------------------------------------------------------------- huge


@pytest.mark.parametrize("scale", [1e12, 1e16, 1e100, 1e300])
@pytest.mark.parametrize("size", [0, 1, 3, 100])
def test_probabilities_sum_to_one_whatever_the_scores(scale: float, size: int) -> None:
    rng = np.random.default_rng(size)
    histories = Histories(Streams.labels(3, [0, 1]))
    columns = Columns.chains([4, 1, 3], 3)
    cases: list[Any] = [
        np.full((8, 3), scale),
        np.full((8, 3), -scale),
        rng.normal(size=(8, 3)) * scale,
        scale + rng.integers(0, 2, size=(8, 3)),
    ]
    for emissions in cases:
        for memory, escape in itertools.product([1, None], [0.0, scale, -scale]):
            lattice = select(columns, histories, emissions, size, memory=memory, escape=escape)
            assert np.allclose(marginals(lattice).sum(1), 1.0, rtol=0, atol=1e-12)
            mass = np.add.reduceat(lattice.mass, lattice.node_offsets[:-1])
            assert np.allclose(mass, 1.0, rtol=0, atol=1e-12)


def test_long_chains_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    emissions = 3.0 * rng.normal(size=(10_000, 5))
    columns = Columns.chains([10_000], 5)
    lattice = select(columns, Histories(Streams.labels(5, [0, 1])), emissions, 4)
    alone = np.exp(emissions - np.logaddexp.reduce(emissions, 1)[:, None])  # no label sees another
    assert np.allclose(marginals(lattice).sum(1), 1.0, rtol=0, atol=1e-12)
    assert np.allclose(marginals(lattice), alone, rtol=0, atol=1e-10)
    labels = rng.integers(0, 5, 10_000)
    log_z = lattice.constrained(labelled([labels.tolist()], 5)).log_partition
    assert log_z[0] == pytest.approx(emissions[np.arange(10_000), labels].sum(), rel=1e-12)


# --------------------------------------------------------------------------- does not fit together


def test_arrays_that_the_kernels_would_read_beyond() -> None:
    columns, histories = Columns.chains([2, 2], 3), Histories(Streams.labels(3, [0]))
    with pytest.raises(ArgumentError, match=r"emissions must be \[4, 3\] at least. Got \[3, 3\]"):
        select(columns, histories, np.zeros((3, 3)), 2)
    with pytest.raises(ArgumentError, match=r"emissions must be \[4, 3\] at least. Got \[4, 2\]"):
        select(columns, histories, np.zeros((4, 2)), 2)
    with pytest.raises(ArgumentError, match="targets must have 2 strings"):
        select(columns, histories, None, 2, by="target", targets=labelled([[0, 1]], 3))
    few = labelled([[0, 1], [1, 0]], 2)
    with pytest.raises(ArgumentError, match="symbols of 3 actions"):
        select(columns, histories, None, 2, by="hybrid", targets=few)
    lattice = select(columns, histories, np.zeros((4, 3)), 2, grow=True)
    with pytest.raises(ArgumentError, match="symbols of 3 actions"):
        lattice.constrained(few)
    with pytest.raises(ArgumentError, match=r"weights must be \[3\]. Got \[2\]"):
        lattice.reweighted(histories, np.zeros(2), None)
    with pytest.raises(ArgumentError, match=r"emissions must be \[4, 3\] at least"):
        lattice.reweighted(histories, histories.weights, np.zeros((0, 3)))
