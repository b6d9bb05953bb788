"""Workload `chain`: chains, HMMs and segmentations on two cores, beside their peers, float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks import problems, recomputing
from benchmarks.chain import checks, decoding, figures, peers
from benchmarks.problems import Problem
from benchmarks.report import Agreement, Figure

SHAPES = ((32, 50, 20), (64, 128, 32), (16, 256, 64))  # batch, positions, labels
EXP_BOUNDS = (5.0, 3.0, 3.0)
HESSIAN_SHAPE = SHAPES[1]


@dataclass(frozen=True, eq=False)
class State:
    """The problems of the workload, in float32."""

    quick: bool
    chains: list[Problem]
    shared: list[Problem]
    hmm: Problem
    segments: Problem

    @property
    def for_torch_struct(self) -> list[Problem]:
        """The chains that a run has the patience for: torch-struct needs 12 s for the third."""
        return self.chains[: 2 if self.quick else 3]


def prepare(quick: bool) -> State:
    """The potentials, and the peers imported: without them nothing runs."""
    torch.set_num_threads(2)
    peers.import_all()
    return State(
        quick,
        [problems.chain(*shape) for shape in SHAPES],
        [problems.shared_chain(*shape) for shape in SHAPES],
        problems.hmm(500, 40, 64, 2000),
        problems.semi_markov(16, 64, 8, 16),
    )


def check(state: State) -> Iterator[Agreement]:
    """Small problems in float64, then those that are timed: float32 against ours in float64."""
    yield from checks.small()
    for problem in state.chains:
        yield from checks.precision(problem)
    for problem in state.for_torch_struct:
        yield from checks.torch_struct_chain(problem, checks.PEERS_SINGLE)
    for problem in state.shared:
        yield from checks.pytorch_crf(problem, checks.PEERS_SINGLE)
    yield from checks.hmmlearn_step(state.hmm, 1e-4)
    yield from checks.precision(state.segments)
    yield from checks.torch_struct_segments(state.segments.first(1), checks.PEERS_SINGLE)
    for problem in (state.chains[1], state.shared[1], state.segments):
        yield from checks.hessian(problem)
    yield from decoding.check(state.chains[0], state.shared[0])


def measure(state: State) -> Iterator[Figure]:
    """log Z and gradient beside each peer, then second derivatives, memory and decoding."""
    quick = state.quick
    for problem, bound in zip(state.chains, EXP_BOUNDS, strict=True):
        yield from figures.beside_exp(problem, bound, 31 if quick else 101)
    for problem, repeats in zip(state.for_torch_struct, (9, 5, 3), strict=False):
        yield from figures.beside_torch_struct(problem, 1 if quick else repeats)
    for problem in state.shared:
        yield from figures.beside_pytorch_crf(problem, 2 if quick else 15)
    yield from figures.beside_hmmlearn(state.hmm, 1 if quick else 5)
    yield from figures.beside_torch_struct_segments(state.segments, 1 if quick else 3)
    for problem in (state.chains[1], state.shared[1], state.segments):
        yield from figures.hessian(problem, 5 if quick else 31)
    yield from figures.memory(HESSIAN_SHAPE)
    yield from figures.long_chain(10**5 if quick else 10**6, 64, 1 if quick else 5)
    yield from recomputing.batch("semi_markov", (1, 10**6, 8, 1), 1 if quick else 5)
    yield from decoding.measure(state.chains, state.shared, quick)
