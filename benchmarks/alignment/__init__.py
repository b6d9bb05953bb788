"""Workload `alignment`: CTC, time warping, transducers on two cores, beside peers, float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks import problems
from benchmarks.alignment.peers import TorchCTC, of_logits, rnnt_peer, search_peer, soft_dtw_peer
from benchmarks.problems import Problem, apart, furthest_apart
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate
from inout import RNNT

FRAMES = ((32, 150, 40, 50), (32, 500, 60, 64))  # batch, frames, labels, symbols
WARPED, QUICKLY = ((8, 512, 512), (32, 2048, 2048)), ((8, 512, 512),)
TRANSDUCER = 8, 200, 40, 64  # batch, frames, labels, symbols
SEARCHED = 32, 200, 40  # batch, frames, tokens
SMALL = 3, 40, 30


@dataclass(frozen=True, eq=False)
class State:
    """The problems of the workload, in float32."""

    quick: bool
    ctc: list[Problem]
    warping: list[Problem]
    transducer: Problem
    search: Problem


def _transducer(b: int, t: int, u: int, v: int) -> Problem:
    """A transducer by the joint outputs of a network, with u labels in t frames."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(b, t, u + 1, v, generator=generator)
    targets = {"targets": torch.randint(1, v, (b, u), generator=generator)}
    name = f"RNNT {b}x{t}x{u}, {v} symbols"
    return Problem(name, RNNT.from_logits, {"logits": logits}, ("logits",), targets)


def prepare(quick: bool) -> State:
    """The potentials; peers are asked for where they were installed (pip install --no-deps)."""
    torch.set_num_threads(2)
    peers = {
        "pysdtw": soft_dtw_peer(),
        "torchaudio": rnnt_peer(),
        "monotonic-alignment-search": search_peer(),
    }
    for name, found in peers.items():
        if found is None:
            print(f"{name} is not installed, or cannot be loaded: nothing is compared with it")
    return State(
        quick,
        [problems.ctc(*shape) for shape in FRAMES],
        [problems.warping(*shape) for shape in (QUICKLY if quick else WARPED)],
        _transducer(*TRANSDUCER),
        problems.monotone(*SEARCHED),
    )


def check(state: State) -> Iterator[Agreement]:
    """CTC as it is timed, time warping at a smaller size; and ours in float64."""
    for problem in state.ctc:
        # In float32 torch's gradient is off by 2e-4 and 2e-3: it adds up logarithms.
        wide = problem.to(torch.float64)
        (log_z, gradient), (truth, slopes) = problem.gradient(), TorchCTC(wide).gradient()
        yield Agreement(f"log Z, {problem.name}: torch in float64", apart(log_z, truth), 1e-5)
        off = furthest_apart(of_logits(problem, gradient), of_logits(wide, slopes))
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

    problem = state.transducer
    (log_z, gradient), (truth, slopes) = problem.gradient(), problem.to(torch.float64).gradient()
    yield Agreement(f"log Z, {problem.name}: ours in float64", apart(log_z, truth), 1e-6)
    off = furthest_apart(gradient, slopes)
    yield Agreement(f"gradient, {problem.name}: ours in float64", off, 1e-5)
    transducer, search = rnnt_peer(), search_peer()
    if transducer is not None:
        truth, slopes = transducer(problem)
        yield Agreement(f"log Z, {problem.name}: torchaudio", apart(log_z, truth), 1e-5)
        off = furthest_apart(gradient, slopes)
        yield Agreement(f"gradient, {problem.name}: torchaudio", off, 1e-3)
    if search is not None:
        made = state.search.make()
        ours = made.parts(made.mode)["match"]
        off = apart(ours.mT, search(*_searched(state.search)))
        yield Agreement(f"best path, {state.search.name}: monotonic-alignment-search", off, 0)


def _searched(problem: Problem) -> tuple[Tensor, Tensor]:
    """What the package takes: scores, columns first, and a mask."""
    scores = problem.potentials["match"].mT.contiguous()
    return scores, torch.ones_like(scores)


def measure(state: State) -> Iterator[Figure]:
    """log Z and gradient beside the peers, and monotonic alignment search."""
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
    audio, package = rnnt_peer(), search_peer()
    problem = state.transducer
    ways = {"ours": problem.gradient}
    if audio is not None:
        ways["theirs"] = lambda: audio(problem)
    yield from _beside("torchaudio", problem, alternate(ways, repeats), 3, repeats)
    # The same, given the log-probabilities of blanks and labels.
    inner = problems.transducer(*TRANSDUCER[:3])
    seconds = alternate({"gradient": inner.gradient}, repeats)
    yield Figure(
        f"log Z + gradient, {inner.name}", seconds["gradient"] * 1e3, "ms", repeats=repeats
    )
    search = state.search
    paths: dict[str, Callable[[], Tensor]] = {"ours": lambda: search.make().mode}
    if package is not None:
        given = _searched(search)
        paths["theirs"] = lambda: package(*given)
    seconds = alternate(paths, 3 * repeats)
    peer_name = "monotonic-alignment-search"
    yield from _beside(peer_name, search, seconds, 5, 3 * repeats, "best path")


def _beside(
    peer: str,
    problem: Problem,
    seconds: dict[str, float],
    at_least: float,
    repeats: int,
    what: str = "log Z + gradient",
) -> Iterator[Figure]:
    name = f"{what}, {problem.name}"
    yield Figure(name, seconds["ours"] * 1e3, "ms", repeats=repeats)
    if "theirs" in seconds:
        name = f"peer: {peer} / ours, {problem.name}"
        ratio = seconds["theirs"] / seconds["ours"]
        yield Figure(name, ratio, "times", at_least=at_least, repeats=repeats)
