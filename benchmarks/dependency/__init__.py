"""Workload `dependency`: dependency trees on two cores, beside their peers, float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks import problems
from benchmarks.dependency.peers import Slogdet, StructTrees, stanza_decoder, stanza_heads
from benchmarks.peers import torch_struct
from benchmarks.problems import Problem, apart, furthest_apart
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate, closely

SHAPES = ((8, 30), (16, 60))  # batch, words
CROSSING = ((64, 40), (64, 100))  # the same of non-projective trees
CLOSE = 1e-10  # between two computations in float64
SINGLE = 1e-3  # what torch-struct's float32 allows


@dataclass(frozen=True, eq=False)
class State:
    """The problems of the workload, in float32."""

    quick: bool
    projective: list[Problem]
    crossing: list[Problem]


def prepare(quick: bool) -> State:
    """The potentials, and the peers imported: without them nothing runs."""
    torch.set_num_threads(2)
    torch_struct()
    return State(
        quick,
        [problems.dependency_tree(*shape) for shape in SHAPES],
        [problems.dependency_tree(*shape, projective=False) for shape in CROSSING],
    )


def check(state: State) -> Iterator[Agreement]:
    """A small problem in float64, then those that are timed."""
    yield from _beside_torch_struct(problems.dependency_tree(3, 9).to(torch.float64), CLOSE)
    for problem in state.projective:
        (log_z, gradient), (truth, slopes) = (
            problem.gradient(), problem.to(torch.float64).gradient(),
        )  # fmt: skip
        yield Agreement(f"log Z, {problem.name}: ours in float64", apart(log_z, truth), 1e-5)
        off = furthest_apart(gradient, slopes)
        yield Agreement(f"gradient, {problem.name}: ours in float64", off, 1e-4)
        yield from _beside_torch_struct(problem, SINGLE)

    for problem in state.crossing:
        (log_z, gradient), (truth, slopes) = problem.gradient(), Slogdet(problem).gradient()
        yield Agreement(f"log Z, {problem.name}: slogdet", apart(log_z, truth), 1e-5)
        off = furthest_apart(gradient, slopes)
        yield Agreement(f"gradient, {problem.name}: slogdet", off, 1e-4)
    if decoder := stanza_decoder():
        d = state.crossing[0].make()
        ours, theirs = d.log_prob(d.mode), d.log_prob(stanza_heads(decoder, state.crossing[0]))
        yield Agreement(f"best trees, {state.crossing[0].name}: stanza", apart(ours, theirs), 1e-5)


def _beside_torch_struct(problem: Problem, tolerance: float) -> Iterator[Agreement]:
    log_z, gradient = StructTrees.of(problem).gradient()
    truth, slopes = problem.to(torch.float64).gradient()
    yield Agreement(f"log Z, {problem.name}: torch-struct", apart(log_z, truth), tolerance)
    off = furthest_apart(gradient, slopes)
    yield Agreement(f"gradient, {problem.name}: torch-struct", off, tolerance)


def measure(state: State) -> Iterator[Figure]:
    """log Z and gradient beside the peers, then second derivatives and decoding."""
    repeats = 5 if state.quick else 21
    for problem in state.projective:
        theirs = StructTrees.of(problem)
        seconds = alternate({"ours": problem.gradient, "theirs": theirs.gradient}, repeats)
        name = f"log Z + gradient, {problem.name}"
        yield Figure(name, seconds["ours"] * 1e3, "ms", repeats=repeats)
        yield Figure(
            f"peer: torch-struct / ours, {problem.name}",
            seconds["theirs"] / seconds["ours"],
            "times",
            at_least=15,
            repeats=repeats,
        )
    for problem in state.projective:
        direction, made = problem.direction(), problem.make()
        seconds = closely(
            {
                "gradient": problem.gradient,
                "hessian": lambda p=problem, u=direction: p.hessian_product(u),  # type: ignore[misc]
                "mode": lambda d=made: d.mode,  # type: ignore[misc]
            },
            repeats,
        )
        yield Figure(
            f"Hessian-vector product / (log Z + gradient), {problem.name}",
            seconds["hessian"] / seconds["gradient"],
            "times",
            at_most=6,
            repeats=repeats,
        )
        yield Figure(f"best trees, {problem.name}", seconds["mode"] * 1e3, "ms", repeats=repeats)
    yield from _crossing(state, repeats)


def _crossing(state: State, repeats: int) -> Iterator[Figure]:
    """Non-projective trees beside `slogdet`, and beside stanza's maximum arborescences."""
    for problem in state.crossing:
        peer = Slogdet(problem)
        seconds = alternate({"ours": problem.gradient, "theirs": peer.gradient}, repeats)
        name = f"log Z + gradient, {problem.name}"
        yield Figure(name, seconds["ours"] * 1e3, "ms", repeats=repeats)
        ratio = seconds["theirs"] / seconds["ours"]
        name = f"peer: slogdet in float64 / ours, {problem.name}"
        yield Figure(name, ratio, "times", at_least=3, repeats=repeats)
    problem, decoder = state.crossing[0], stanza_decoder()
    if decoder is None:
        print("stanza is not installed (pip install --no-deps stanza): no peer of best trees")
        return
    ways = {"ours": lambda: problem.make().mode, "theirs": lambda: stanza_heads(decoder, problem)}
    seconds = alternate(ways, repeats)
    yield Figure(f"best trees, {problem.name}", seconds["ours"] * 1e3, "ms", repeats=repeats)
    ratio = seconds["theirs"] / seconds["ours"]
    name = f"peer: stanza / ours, best trees, {problem.name}"
    yield Figure(name, ratio, "times", at_least=5, repeats=repeats)
