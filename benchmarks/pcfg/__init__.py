"""Workload `pcfg`: trees of a grammar on two cores, beside torch-struct, float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import torch

from benchmarks import problems, recomputing
from benchmarks.chain import checks, figures
from benchmarks.pcfg.peers import StructGrammar
from benchmarks.peers import torch_struct
from benchmarks.problems import Problem, apart, furthest_apart
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate

K = 5
SAMPLES = 10


@dataclass(frozen=True, eq=False)
class State:
    """The problem of the workload, in float32."""

    quick: bool
    problem: Problem

    @property
    def repeats(self) -> int:
        """How often the long things run."""
        return 1 if self.quick else 15


def prepare(quick: bool) -> State:
    """The grammar and the sentences, and the peer imported."""
    torch.set_num_threads(2)
    torch_struct()
    return State(quick, problems.pcfg(4, 30, 30, 60))


def check(state: State) -> Iterator[Agreement]:
    """A small grammar in float64, then the one that is timed; decoding."""
    yield from _check_peer(problems.pcfg(3, 7, 4, 6).to(torch.float64), checks.CLOSE)
    yield from checks.precision(state.problem)
    yield from _check_peer(state.problem, checks.PEERS_SINGLE)
    yield from checks.hessian(state.problem)
    yield from _check_decoding(state.problem)


def _check_peer(problem: Problem, tolerance: float) -> Iterator[Agreement]:
    log_z, gradient = StructGrammar.of(problem).gradient()
    truth, slopes = problem.to(torch.float64).gradient()
    yield Agreement(f"log Z, {problem.name}: torch-struct", apart(log_z, truth), tolerance)
    off = furthest_apart(gradient, slopes)
    yield Agreement(f"gradient, {problem.name}: torch-struct", off, tolerance)


def _check_decoding(problem: Problem) -> Iterator[Agreement]:
    double, grammar = problem.to(torch.float64).make(), problem.make()
    log_z, name = double.log_partition(), problem.name
    best = double.log_prob(grammar.mode) + log_z
    theirs = StructGrammar.of(problem).best_score()
    yield Agreement(f"Viterbi, {name}: torch-struct", apart(best, theirs), 1e-5)
    scores = double.log_prob(grammar.topk(K)[0]) + log_z
    yield Agreement(f"the first of {K} best, {name}: Viterbi", apart(scores[0], best), 1e-5)
    rise = max(0.0, float((scores[1:] - scores[:-1]).max()))
    yield Agreement(f"{K} best, {name}: how much one is above the one before", rise, 1e-4)
    sampled = double.log_prob(grammar.sample((200,), generator=torch.Generator().manual_seed(0)))
    errors = sampled.std(0) / sqrt(len(sampled))
    off = float(((sampled.mean(0) + double.entropy()).abs() / errors).max())
    yield Agreement(f"mean log-probability of samples, {name}, in standard errors", off, 5.0)


def measure(state: State) -> Iterator[Figure]:
    """log Z and gradient beside the peer, the second derivative, decoding."""
    problem, repeats = state.problem, state.repeats
    theirs = StructGrammar.of(problem)
    seconds = alternate({"ours": problem.gradient, "theirs": theirs.gradient}, repeats)
    yield Figure(f"log Z + gradient, {problem.name}", seconds["ours"] * 1e3, "ms", repeats=repeats)
    yield Figure(
        f"peer: torch-struct / ours, {problem.name}",
        seconds["theirs"] / seconds["ours"],
        "times",
        at_least=10,
        repeats=repeats,
    )
    yield from figures.hessian(problem, 3 if state.quick else 31)
    yield from _decoding(problem, theirs, repeats)
    yield from recomputing.batch("pcfg", (128, 40, 30, 60), 1 if state.quick else 5)
    yield from recomputing.batch("span_tree", (256, 100, 4), 1 if state.quick else 5)


def _decoding(problem: Problem, theirs: StructGrammar, repeats: int) -> Iterator[Figure]:
    generator = torch.Generator().manual_seed(0)
    seconds = alternate(
        {
            "mode": lambda: problem.make().mode,
            "their mode": theirs.argmax,
            "topk": lambda: problem.make().topk(K),
            "samples": lambda: problem.make().sample((SAMPLES,), generator=generator),
        },
        repeats,
    )
    for way, name in (
        ("mode", "Viterbi"),
        ("topk", f"{K} best"),
        ("samples", f"{SAMPLES} samples an element"),
    ):
        yield Figure(f"{name}, {problem.name}", seconds[way] * 1e3, "ms", repeats=repeats)
    yield Figure(
        f"peer: torch-struct / ours, Viterbi, {problem.name}",
        seconds["their mode"] / seconds["mode"],
        "times",
        repeats=repeats,
    )
