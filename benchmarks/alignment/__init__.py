"""Workload `alignment`: CTC, time warping, transducers on two cores, beside peers, float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks import problems
from benchmarks.alignment.peers import TorchCTC, soft_dtw_peer
from benchmarks.problems import Problem, apart, furthest_apart
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate

FRAMES = ((32, 150, 40, 50), (32, 500, 60, 64))  # batch, frames, labels, symbols
WARPED, QUICKLY = ((8, 512, 512), (32, 2048, 2048)), ((8, 512, 512),)
TRANSDUCER = 8, 200, 40  # batch, frames, labels
SEARCHED = 32, 200, 40  # batch, frames, tokens
SMALL = 3, 40, 30


@dataclass(frozen=True, eq=False)
class State:
    """The problems of the workload, in float32."""

    quick: bool
    ctc: list[Problem]
    warping: list[Problem]


def prepare(quick: bool) -> State:
    """The potentials; pysdtw is asked for where it was installed."""
    torch.set_num_threads(2)
    if soft_dtw_peer() is None:
        print("pysdtw is not installed (pip install --no-deps pysdtw): no peer of time warping")
    return State(
        quick,
        [problems.ctc(*shape) for shape in FRAMES],
        [problems.warping(*shape) for shape in (QUICKLY if quick else WARPED)],
    )


def check(state: State) -> Iterator[Agreement]:
    """CTC as it is timed, time warping at a smaller size; and ours in float64."""
    for problem in state.ctc:
        # In float32 torch's gradient is off by 2e-4 and 2e-3: it adds up logarithms.
        wide = problem.to(torch.float64)
        (log_z, gradient), (truth, slopes) = problem.gradient(), TorchCTC(wide).gradient()
        yield Agreement(f"log Z, {problem.name}: torch in float64", apart(log_z, truth), 1e-5)
        off = furthest_apart(_of_logits(problem, gradient), _of_logits(wide, slopes))
        yield Agreement(f"gradient by logits, {problem.name}: torch in float64", off, 1e-5)
    small = problems.warping(*SMALL)
    (log_z, gradient), (truth, slopes) = small.gradient(), small.to(torch.float64).gradient()
    yield Agreement(f"log Z, {small.name}: ours in float64", apart(log_z, truth), 1e-6)
    off = furthest_apart(gradient, slopes)
    yield Agreement(f"gradient, {small.name}: ours in float64", off, 1e-5)
    peer = soft_dtw_peer()
    if peer is not None:
        truth, slopes = peer(small)
        yield Agreement(f"log Z, {small.name}: pysdtw", apart(log_z, truth), 1e-4)
        off = furthest_apart(gradient, slopes)
        yield Agreement(f"gradient, {small.name}: pysdtw", off, 1e-3)


def _of_logits(problem: Problem, gradient: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The gradient by the inputs of a log-softmax: torch's is only right for these."""
    found, scores = gradient["log_probs"], problem.potentials["log_probs"]
    return {"log_probs": found - scores.exp() * found.sum(-1, keepdim=True)}


def measure(state: State) -> Iterator[Figure]:
    """log Z and gradient beside the peers, then a transducer and monotonic alignment search."""
    repeats = 5 if state.quick else 21
    for problem in state.ctc:
        ways = {"ours": problem.gradient, "theirs": TorchCTC(problem).gradient}
        yield from _beside("torch", problem, alternate(ways, repeats), 3, repeats)
    peer = soft_dtw_peer()
    for problem in state.warping:
        few = repeats if problem.num_bytes < 2**28 else 3
        ways = {"ours": problem.gradient}
        if peer is not None:
            ways["theirs"] = lambda p=problem: peer(p)  # type: ignore[misc]
        yield from _beside("pysdtw", problem, alternate(ways, few), 5, few)
    transducer, search = problems.transducer(*TRANSDUCER), problems.monotone(*SEARCHED)
    made = search.make()
    seconds = alternate({"gradient": transducer.gradient, "mode": lambda: made.mode}, repeats)
    name = f"log Z + gradient, {transducer.name}"
    yield Figure(name, seconds["gradient"] * 1e3, "ms", repeats=repeats)
    yield Figure(f"best path, {search.name}", seconds["mode"] * 1e3, "ms", repeats=repeats)


def _beside(
    peer: str, problem: Problem, seconds: dict[str, float], at_least: float, repeats: int
) -> Iterator[Figure]:
    name = f"log Z + gradient, {problem.name}"
    yield Figure(name, seconds["ours"] * 1e3, "ms", repeats=repeats)
    if "theirs" in seconds:
        name = f"peer: {peer} / ours, {problem.name}"
        ratio = seconds["theirs"] / seconds["ours"]
        yield Figure(name, ratio, "times", at_least=at_least, repeats=repeats)
