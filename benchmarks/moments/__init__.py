"""Workload `moments`: second derivatives, the objectives made of them, moments by their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks import problems
from benchmarks.moments import checks, figures, growth
from benchmarks.problems import Problem
from benchmarks.report import Agreement, Figure

DTYPES = (torch.float32, torch.float64)
FEW, MANY = 4, 64  # labels, for what must not grow with them


@dataclass(frozen=True, eq=False)
class State:
    """The problems of the workload, in float32."""

    quick: bool
    curved: list[Problem]
    tagged: list[Problem]
    segments: Problem
    counted: Problem
    paired: Problem


def prepare(quick: bool) -> State:
    """The potentials."""
    torch.set_num_threads(2)
    segments = problems.semi_markov(16, 64, 8, 16)
    return State(
        quick,
        [problems.chain(32, 64, 32), problems.shared_chain(64, 128, 32), segments],
        [
            problems.shared_chain(64, 128, FEW),
            problems.shared_chain(64, 128, MANY),
            problems.chain(32, 50, FEW),
            problems.chain(32, 50, MANY),
        ],
        segments,
        problems.shared_chain(32, 50, 16),
        problems.shared_chain(8, 50, 8),
    )


def check(state: State) -> Iterator[Agreement]:
    """Small problems against enumeration, then what is timed, one way against another."""
    yield from checks.by_enumeration()
    for problem in state.curved:
        yield from checks.hessian(problem)
    for problem in state.tagged:
        yield from checks.expectation_criterion(problem)
    yield from checks.expected_f(state.segments.first(2))
    yield from growth.check(state.counted)


def measure(state: State) -> Iterator[Figure]:
    """Second derivatives and objectives beside first derivatives, in both precisions; growth."""
    for dtype in DTYPES:
        for problem in state.curved:
            yield from figures.hessian(problem.to(dtype), 7 if state.quick else 31)
        for problem in state.tagged:
            yield from figures.expectation_criterion(problem.to(dtype), 7 if state.quick else 31)
        yield from figures.expected_f(state.segments.to(dtype), 5 if state.quick else 15)
    yield from growth.measure(state.counted, state.paired, state.quick)
