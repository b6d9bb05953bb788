"""`exactness` and `ContextChain.from_lattice` against sums over all paths of the selection."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from inout import ArgumentError
from inout.contexts import ContextChain, exactness
from inout.kernels.lattice.arrays import Columns, Streams
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice
from inout.kernels.lattice.selection import select
from tests.oracle.reified_contexts import BOS, Column, all_paths
from tests.seeds import seeds
from tests.support import assert_close

F64 = torch.float64


def random_lattice(seed: int, lengths: list[int], labels: int, **options: Any) -> Lattice:
    """Contexts selected by random emissions and bigram weights."""
    rng = np.random.default_rng(seed)
    end = options.pop("end", False)
    histories = Histories(Streams.labels(labels, [0, 1], end=end))
    for symbol in (*range(labels), Histories.BEGIN, Histories.STAR):
        row = histories.row(0, [symbol])
        histories.weights[row] = rng.normal(size=labels + end)
    emissions = rng.normal(size=(sum(lengths), labels + end))
    sizes = options.pop("sizes")
    return select(Columns.chains(lengths, labels, end=end), histories, emissions, sizes, **options)


def score_of(lattice: Lattice, first: int) -> Any:
    """The scores of the edges of the example whose columns begin at `first`, by name."""
    table = {}
    for edge in range(len(lattice.scores)):
        column = int(np.searchsorted(lattice.edge_offsets, edge, side="right")) - 1
        source = int(lattice.edge_sources[edge])
        action = int(lattice.actions(np.array([edge]))[0])
        table[column - first, name_of(lattice, source), action] = float(lattice.scores[edge])
    return lambda column, context, action: table[column, context, action]


def name_of(lattice: Lattice, node: int) -> tuple[Any, ...]:
    own = tuple((a, -1) for a in lattice.string(node))
    return (BOS, *own) if lattice.is_anchored[node] else own


@pytest.mark.parametrize("memory", [None, 1, 2, 3])
@pytest.mark.parametrize("seed", seeds(4))
def test_exactness_against_all_paths(seed: int, memory: int | None) -> None:
    rng = random.Random(seed)
    lengths, labels = [rng.randint(1, 5), rng.randint(1, 5)], rng.randint(1, 3)
    sizes = rng.choice([0, 1, 2, 4, 1000])
    lattice = random_lattice(seed, lengths, labels, sizes=sizes, memory=memory)
    found = exactness(lattice, memory)
    for example, n in enumerate(lengths):
        first = int(lattice.columns.firsts[example])
        columns = [Column([], range(0)), *(Column([i], range(labels)) for i in range(n))]
        contexts = [
            [name_of(lattice, v) for v in range(*lattice.node_offsets[c : c + 2])]
            for c in range(first, first + n + 1)
        ]
        score = score_of(lattice, first)

        def is_coarse(position: int, context: tuple[Any, ...]) -> bool:
            """Whether it remembers fewer labels than there are, or than fit."""
            known = len([x for x in context if x != BOS])
            return known < min(position, math.inf if memory is None else memory)

        def fine_only(
            column: int, context: tuple[Any, ...], action: int, score: Any = score
        ) -> float:
            if is_coarse(column - 1, context):
                return -math.inf
            return float(score(column, context, action))

        every = all_paths(columns, contexts, score, memory=memory)
        fine = all_paths(columns, contexts, fine_only, memory=memory)
        assert_close(found.log_partition[example], fine.log_z)
        assert_close(found.probability[example], math.exp(fine.log_z - every.log_z))
        mass = np.zeros(n + 1)
        for (column, context), p in every.mass.items():
            mass[column] += p * is_coarse(column, context)
        assert_close(found.coarse_mass[first : first + n + 1], mass)
        assert_close(found.expected_coarse[example], mass.sum())


def test_with_room_for_everything_nothing_is_coarse() -> None:
    for memory in (1, 2, None):
        lattice = random_lattice(1, [4, 0, 2], 3, sizes=1000, memory=memory)
        found = exactness(lattice, memory)
        assert_close(found.probability, np.ones(3))
        assert_close(found.log_partition, lattice.log_partition)
        assert not found.coarse_mass.any()


def test_the_exact_part_is_a_lower_bound() -> None:
    for seed in range(5):
        whole = float(random_lattice(seed, [6], 3, sizes=1000, memory=2).log_partition[0])
        for size in (0, 1, 3, 9):
            lattice = random_lattice(seed, [6], 3, sizes=size, memory=2)
            bound = float(exactness(lattice, 2).log_partition[0])
            assert bound <= whole + 1e-12
            assert bound == -math.inf or size > 0
            assert abs(bound - whole) < 1e-12 or size < 9


def test_what_is_impossible_is_not_exact() -> None:
    histories = Histories(Streams.labels(2, [0]))
    dead = np.full((2, 2), -np.inf)
    found = exactness(select(Columns.chains([2], 2), histories, dead, 3), None)
    assert found.probability.tolist() == [0.0]
    assert not found.coarse_mass.any()


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("memory", [None, 2])
def test_chains_of_a_lattice(memory: int | None, end: bool) -> None:
    """The same numbers by the forest as by the kernel."""
    lengths, labels = [4, 1, 5, 3], 3
    lattice = random_lattice(2, lengths, labels, sizes=3, memory=memory, end=end)
    chain = ContextChain.from_lattice(lattice)
    assert chain.batch_shape == (4,)
    assert chain.lengths.tolist() == lengths
    assert_close(chain.log_partition(), lattice.log_partition)
    marginals, mass = chain.marginals()["log_potentials"], chain.context_mass()
    firsts = lattice.columns.firsts
    counts = lattice.emission_counts(lattice.posteriors)[:, :labels]
    row = 0
    for b, n in enumerate(lengths):
        assert_close(chain.label_marginals()[b, :n], torch.from_numpy(counts[row : row + n]))
        row += n
        for i in range(n):
            nodes = slice(*lattice.node_offsets[firsts[b] + i : firsts[b] + i + 2])
            width = nodes.stop - nodes.start
            assert_close(mass[b, i, :width], torch.from_numpy(lattice.mass[nodes]))
            edges = slice(*lattice.edge_offsets[firsts[b] + i + 1 : firsts[b] + i + 3])
            posteriors = lattice.posteriors[edges].reshape(width, labels)
            assert_close(marginals[b, i, :width], torch.from_numpy(posteriors))
    edges, offsets, scores = lattice.best()
    for b, n in enumerate(lengths):
        best = lattice.actions(edges[offsets[b] : offsets[b] + n])
        assert chain.mode[b, :n].tolist() == best.tolist()
    assert_close(chain.log_prob(chain.mode), scores - lattice.log_partition)


def test_scores_of_a_lattice_can_be_learned() -> None:
    lattice = random_lattice(3, [3, 2], 2, sizes=2, memory=1, end=True)
    scores = torch.from_numpy(lattice.scores).requires_grad_()

    def log_z(scores: torch.Tensor) -> torch.Tensor:
        return ContextChain.from_lattice(lattice, scores).log_partition()

    assert gradcheck(log_z, (scores,))
    (gradient,) = torch.autograd.grad(log_z(scores).sum(), scores)
    assert_close(gradient, torch.from_numpy(lattice.posteriors))


def test_other_lattices_are_refused() -> None:
    lattice = random_lattice(4, [3, 2], 2, sizes=2)
    with pytest.raises(ArgumentError, match=r"scores must be \["):
        ContextChain.from_lattice(lattice, torch.zeros(3))
    columns = Columns.chains([3], 2)
    two = Columns(
        firsts=columns.firsts,
        source_offsets=np.array([0, 0, 1, 2, 4]),
        sources=np.array([0, 1, 1, 2], np.int32),
        first_actions=columns.first_actions,
        end_actions=columns.end_actions,
        inputs=columns.inputs,
        emission_rows=columns.emission_rows,
    )
    several = select(two, Histories(Streams.labels(2, [0])), None, 2)
    with pytest.raises(ArgumentError, match="must be one of chains"):
        ContextChain.from_lattice(several)
