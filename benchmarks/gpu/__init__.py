"""Workload `gpu`: log Z and gradient of every dense family on one NVIDIA GPU, float32.

The bounds hold on an H200. A family that raises or disagrees is reported with its message, and the
others go on; so it is if time runs out, as on a machine that is lent.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks import problems
from benchmarks.alignment.peers import of_logits
from benchmarks.data import DataMissingError
from benchmarks.gpu.peers import Peer, slogdet, torch_ctc, torchaudio_rnnt
from benchmarks.gpu.products import matrix_products
from benchmarks.gpu.timing import in_turn, peak_bytes, synchronised
from benchmarks.problems import Gradient, Problem, apart, furthest_apart
from benchmarks.report import Agreement, Figure, say

GIB = 2**30
# Seconds after the start at which checks, and times, of more problems do not begin.
CHECKED, TIMED = 110, 170
# The CPU kernels of what is compared, as `inout warmup` names them.
COMPARED = (
    "chain", "segments", "spans", "pcfg", "lowrank", "dependencies", "arborescences", "alignment",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """A problem to time, its bounds, and a smaller one to check in full."""

    small: Callable[[], Problem]
    large: Callable[[], Problem]
    at_most_ms: float | None = None
    at_most_products: float | None = None  # times the plain matrix products of an HMM
    at_most_potentials: float | None = None  # peak memory, in sizes of the potentials
    at_most_gib: float | None = None
    compared: int | None = None  # elements whose log Z the CPU computes in float64; None: all
    peer: Callable[[], Peer | None] | None = None  # another library's function, None if it lacks
    # What is compared of both gradients: torch's of CTC is right by the inputs of a log-softmax.
    compare: Callable[[Problem, Gradient], Gradient] = lambda _, gradient: gradient


def _dependency_cases() -> Iterator[Case]:
    """Dependency trees: (batch, words), whether projective, and the bound in milliseconds."""
    for shape, projective, bound in (
        ((16, 60), True, 0.8),
        ((64, 64), True, 1.0),
        ((128, 128), True, 3.0),
        ((64, 64), False, 0.3),
        ((128, 128), False, 0.6),
    ):
        yield Case(
            partial(problems.dependency_tree, 3, 9, projective),
            partial(problems.dependency_tree, *shape, projective),
            at_most_ms=bound,
            peer=None if projective else slogdet,
        )


def _ctc_cases() -> Iterator[Case]:
    """CTC: (batch, frames, labels of the target, symbols), and the bound in milliseconds."""
    for shape, bound in (
        ((32, 1000, 200, 1024), 0.8),
        ((128, 512, 100, 32), 0.6),
        ((256, 200, 40, 64), 0.4),
    ):
        yield Case(
            partial(problems.ctc, 3, 33, 9, 7),
            partial(problems.ctc, *shape),
            at_most_ms=bound,
            peer=torch_ctc,
            compare=of_logits,
        )


def _alignment_cases() -> Iterator[Case]:
    """Lattices of moves in two directions: a transducer's two planes, and time warping."""
    for small, large in (
        (partial(problems.transducer, 3, 17, 5), partial(problems.transducer, 32, 500, 100)),
        (partial(problems.warping, 3, 17, 12), partial(problems.warping, 32, 512, 512)),
    ):
        yield Case(small, large, compared=2)


def _transducer_cases() -> Iterator[Case]:
    """Transducers: (batch, frames, labels, symbols), and the bound in milliseconds."""
    for shape, bound in (((16, 200, 50, 1024), 2.0), ((8, 400, 100, 1024), 4.0)):
        yield Case(
            partial(problems.joint_transducer, 3, 9, 4, 33),
            partial(problems.joint_transducer, *shape),
            at_most_ms=bound,
            at_most_potentials=2.1,  # logits, gradient, and 5 %
            compared=1,
            peer=torchaudio_rnnt,
        )
    yield Case(
        partial(problems.added_transducer, 3, 9, 4, 33),
        partial(problems.added_transducer, 8, 2000, 100, 1000),
        at_most_ms=6,
        at_most_gib=1,
        compared=1,
    )


CASES = (
    Case(
        lambda: problems.chain(5, 19, 12),
        lambda: problems.chain(128, 256, 64),
        at_most_ms=1.2,
        at_most_potentials=3,
    ),
    Case(
        lambda: problems.chain(3, 33, 32),
        lambda: problems.chain(256, 512, 32),
        at_most_ms=1.8,
        at_most_potentials=3,
    ),
    Case(lambda: problems.shared_chain(5, 19, 12), lambda: problems.shared_chain(128, 256, 64)),
    Case(
        lambda: problems.hmm(4, 9, 300, 50),
        lambda: problems.hmm(64, 128, 4096, 2000),
        at_most_products=3,
        compared=2,
    ),
    Case(lambda: problems.pcfg(3, 9, 5, 7), lambda: problems.pcfg(16, 40, 30, 60), at_most_ms=4),
    Case(
        lambda: problems.pcfg(2, 8, 20, 24),
        lambda: problems.pcfg(8, 40, 128, 128),
        at_most_ms=15,
        at_most_gib=4,
    ),
    Case(
        lambda: problems.factored_pcfg(2, 9, 300, 200, 40),
        lambda: problems.factored_pcfg(8, 40, 8192, 8192, 1024),
        at_most_ms=60,
        at_most_gib=20,
        compared=1,
    ),
    Case(
        lambda: problems.factored_hmm(3, 9, 700, 50, 30),
        lambda: problems.factored_hmm(16, 256, 32768, 512, 2000),
        at_most_ms=40,
        compared=1,
    ),
    Case(lambda: problems.semi_markov(3, 17, 4, 5), lambda: problems.semi_markov(16, 64, 8, 16)),
    Case(lambda: problems.span_tree(3, 11, 4), lambda: problems.span_tree(32, 40, 64)),
    *_dependency_cases(),
    *_transducer_cases(),
    *_ctc_cases(),
    *_alignment_cases(),
)


@dataclass(frozen=True, eq=False)
class State:
    """How much to do, the large problems so far, and which of them have raised."""

    quick: bool
    problems: dict[int, Problem] = field(default_factory=dict)  # by the number of the case
    failures: dict[str, str] = field(default_factory=dict)  # name of the large problem -> message
    start: float = field(default_factory=time.monotonic)

    def large(self, number: int) -> Problem:
        """A case's large problem, which takes seconds to draw."""
        if number not in self.problems:
            self.problems[number] = CASES[number].large()
        return self.problems[number]

    def later_than(self, seconds: float) -> bool:
        """Whether so much time has passed."""
        return time.monotonic() - self.start > seconds


def prepare(quick: bool) -> State:
    """CPU kernels, full float32 precision in matrix products; a complaint where there is no GPU."""
    if not torch.cuda.is_available():
        raise DataMissingError(
            "this workload needs an NVIDIA GPU, and torch finds none (torch.cuda.is_available())"
        )
    torch.backends.cuda.matmul.allow_tf32 = False
    state = State(quick)
    # On all cores; what fails here is compiled when it is needed.
    command = [sys.executable, "-m", "inout", "warmup", *COMPARED]
    try:
        subprocess.run(command, check=True, timeout=CHECKED / 2, capture_output=True)
    except subprocess.SubprocessError as error:
        say(f"  CPU kernels are not all compiled ahead of time: {describe(error)}")
    return state


def check(state: State) -> Iterator[Agreement]:
    """The GPU in float32 against the CPU in float64."""
    for number, case in enumerate(CASES):
        large = state.large(number)
        if state.later_than(CHECKED):
            state.failures[large.name] = "not checked: out of time"
            continue
        try:
            found = [*_check_small(case), _check_large(large, case.compared)]
        except Exception as error:  # noqa: BLE001  # reported in place of the figures
            state.failures[large.name] = describe(error)
            continue
        if wrong := [x for x in found if not x.holds]:
            state.failures[large.name] = f"disagrees: {wrong[0].name} ({wrong[0].difference:.2g})"
        else:
            yield from found


def describe(error: Exception) -> str:
    """The error's kind and the first line that it says, for a table."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def _on_gpu(problem: Problem) -> tuple[Tensor, Gradient]:
    """log Z and gradient as they are timed: grammars are recorded the second time, and replayed."""
    there = problem.to("cuda")
    for _ in range(2):
        there.gradient()
    return there.gradient()


def _check_small(case: Case) -> Iterator[Agreement]:
    problem = case.small()
    log_z, gradient = _on_gpu(problem)
    truth, slopes = problem.to(torch.float64).gradient()
    yield Agreement(f"log Z, {problem.name}: CPU, float64", apart(log_z, truth), 1e-5)
    off = furthest_apart(gradient, slopes)
    yield Agreement(f"gradient, {problem.name}: CPU, float64", off, 1e-4)
    if case.peer and (peer := case.peer()):
        theirs, slopes = peer(problem.to("cuda"))
        yield Agreement(f"log Z, {problem.name}: peer", apart(log_z, theirs), 1e-4)
        off = furthest_apart(case.compare(problem, gradient), case.compare(problem, slopes))
        yield Agreement(f"gradient, {problem.name}: peer", off, 1e-3)


def _check_large(problem: Problem, compared: int | None) -> Agreement:
    log_z, _ = _on_gpu(problem)
    part = problem.first(compared)
    truth = part.to(torch.float64).make().log_partition()
    name = f"log Z, {part.name}: CPU, float64"
    return Agreement(name, apart(log_z[:compared], truth), 1e-5)


def measure(state: State) -> Iterator[Figure]:
    """Time and memory of each case that passed its check."""
    for number, case in enumerate(CASES):
        problem = state.large(number)
        name = f"log Z + gradient, {problem.name}"
        if problem.name in state.failures:
            yield Figure.failed(name, state.failures[problem.name])
            continue
        if state.later_than(TIMED):
            yield Figure.failed(name, "not timed: out of time")
            continue
        try:
            yield from _figures(case, problem, 5 if state.quick else 30)
        except Exception as error:  # noqa: BLE001  # reported in place of the other figures
            yield Figure.failed(f"{name}: what is missing here", describe(error))


def _figures(case: Case, problem: Problem, repeats: int) -> Iterator[Figure]:
    on_gpu = problem.to("cuda")
    name = f"log Z + gradient, {problem.name}"
    peer = case.peer() if case.peer else None
    ways: dict[str, Callable[[], Any]] = {"ours": on_gpu.gradient}
    if peer is not None:
        ways["theirs"] = partial(peer, on_gpu)
    times = in_turn(ways, repeats)
    wall, device = times["ours"]
    yield Figure(name, wall * 1e3, "ms", at_most=case.at_most_ms, repeats=repeats)
    yield Figure(f"{name}: between events on the GPU", device * 1e3, "ms", repeats=repeats)
    if "theirs" in times:
        ratio, name = times["theirs"][0] / wall, f"peer / ours, {problem.name}"
        yield Figure(name, ratio, "times", repeats=repeats)
    if case.at_most_products is not None:
        yield from _beside_products(case, problem, wall, repeats)
    yield from _memory(case, on_gpu)


def _beside_products(case: Case, problem: Problem, wall: float, repeats: int) -> Iterator[Figure]:
    b, n = problem.others["observations"].shape
    products, _ = synchronised(matrix_products(b, n, len(problem.potentials["initial"])), repeats)
    yield Figure(
        f"peer: {2 * (n - 1)} + 1 matrix products by cuBLAS, {problem.name}",
        products * 1e3,
        "ms",
        repeats=repeats,
    )
    yield Figure(
        f"ours / matrix products, {problem.name}",
        wall / products,
        "times",
        at_most=case.at_most_products,
        repeats=repeats,
    )


def _memory(case: Case, problem: Problem) -> Iterator[Figure]:
    peak = peak_bytes(problem)
    yield Figure(
        f"peak memory, potentials and gradients included, {problem.name}",
        peak / GIB,
        "GiB",
        at_most=case.at_most_gib,
    )
    if case.at_most_potentials is not None:
        yield Figure(
            f"peak memory / potentials, {problem.name}",
            peak / problem.num_bytes,
            "times",
            at_most=case.at_most_potentials,
        )
