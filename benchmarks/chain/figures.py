"""Times of log Z and its derivatives beside the peers, and memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch

from benchmarks.chain.memory import long_chain as long_chain_run
from benchmarks.chain.memory import peak_over_potentials
from benchmarks.chain.ours import em_step, loss_gradient, random_labels
from benchmarks.chain.peers import HmmlearnStep, PytorchCrf, StructChain, StructSegments
from benchmarks.problems import Problem
from benchmarks.report import Figure
from benchmarks.timing import alternate, closely


def beside_exp(problem: Problem, bound: float, repeats: int) -> Iterator[Figure]:
    """log Z and gradient against the exponentials of the transitions alone."""
    transitions = problem.potentials["transitions"]
    out = torch.empty_like(transitions)
    seconds = closely(
        {"ours": problem.gradient, "exp": lambda: torch.exp(transitions, out=out)}, repeats
    )
    name = f"log Z + gradient, {problem.name}"
    yield Figure(name, seconds["ours"] * 1e3, "ms", repeats=repeats)
    yield Figure(
        f"{name} / torch.exp alone",
        seconds["ours"] / seconds["exp"],
        "times",
        at_most=bound,
        repeats=repeats,
    )


def beside_torch_struct(problem: Problem, repeats: int) -> Iterator[Figure]:
    """log Z and gradient against torch-struct."""
    theirs = StructChain.of(problem)
    seconds = alternate({"ours": problem.gradient, "theirs": theirs.gradient}, repeats)
    yield Figure(
        f"peer: torch-struct / ours, {problem.name}",
        seconds["theirs"] / seconds["ours"],
        "times",
        at_least=60,
        repeats=repeats,
    )


def beside_pytorch_crf(problem: Problem, repeats: int) -> Iterator[Figure]:
    """Loss and gradient against pytorch-crf."""
    labels = random_labels(problem)
    theirs = PytorchCrf.of(problem, labels)
    seconds = alternate(
        {
            "ours": lambda: loss_gradient(problem, labels),
            "theirs": theirs.loss_gradient,
            "log Z": problem.gradient,
        },
        repeats,
    )
    yield Figure(f"log Z + gradient, {problem.name}", seconds["log Z"] * 1e3, "ms", repeats=repeats)
    yield Figure(f"loss + gradient, {problem.name}", seconds["ours"] * 1e3, "ms", repeats=repeats)
    yield Figure(
        f"peer: pytorch-crf / ours, loss + gradient, {problem.name}",
        seconds["theirs"] / seconds["ours"],
        "times",
        at_least=5,
        repeats=repeats,
    )


def beside_hmmlearn(problem: Problem, repeats: int) -> Iterator[Figure]:
    """One EM step against hmmlearn, which computes in float64."""
    theirs = HmmlearnStep.of(problem)
    seconds = alternate({"ours": lambda: em_step(problem), "theirs": theirs.step}, repeats)
    yield Figure(f"one EM step, {problem.name}", seconds["ours"] * 1e3, "ms", repeats=repeats)
    yield Figure(
        "peer: hmmlearn's scaling (float64) / ours (float32), one EM step",
        seconds["theirs"] / seconds["ours"],
        "times",
        at_least=5,
        repeats=repeats,
    )


def beside_torch_struct_segments(problem: Problem, repeats: int) -> Iterator[Figure]:
    """log Z and gradient against torch-struct, which takes 1 GiB of memory for each element."""
    theirs = StructSegments.of(problem.first(1))
    b = len(problem.potentials["log_potentials"])
    seconds = alternate({"ours": problem.gradient, "theirs": theirs.gradient}, repeats)
    yield Figure(f"log Z + gradient, {problem.name}", seconds["ours"] * 1e3, "ms", repeats=repeats)
    yield Figure(
        f"peer: torch-struct at batch 1 / ours at batch {b}, per element, {problem.name}",
        seconds["theirs"] / (seconds["ours"] / b),
        "times",
        at_least=10,
        repeats=repeats,
    )


def hessian(problem: Problem, repeats: int) -> Iterator[Figure]:
    """A Hessian-vector product, all passes included, against log Z and gradient."""
    direction = problem.direction()
    seconds = closely(
        {"gradient": problem.gradient, "hessian": lambda: problem.hessian_product(direction)},
        repeats,
    )
    yield Figure(
        f"Hessian-vector product / (log Z + gradient), {problem.name}",
        seconds["hessian"] / seconds["gradient"],
        "times",
        at_most=4,
        repeats=repeats,
    )


def memory(shape: tuple[int, int, int]) -> Iterator[Figure]:
    """Peak memory of log Z and gradient in a process of its own."""
    yield Figure(
        f"peak memory: potentials, gradients and all else / potentials, chain {list(shape)}",
        peak_over_potentials(*shape),
        "times",
        at_most=3,
    )


def long_chain(n: int, s: int, repeats: int) -> Iterator[Figure]:
    """A long chain in little memory, beside the usual passes; runs alternate."""
    runs = [(long_chain_run(n, s, None), long_chain_run(n, s, "sqrt")) for _ in range(repeats)]
    name = f"chain {[1, n, s]}, shared transitions"
    plain = statistics.median(usual[0] for usual, _ in runs)
    seconds = statistics.median(little[0] for _, little in runs)
    peaks = [max(run[k][1] for run in runs) / 2**30 for k in (0, 1)]
    yield Figure(f"log Z + gradient, {name}", plain, "s", repeats=repeats)
    yield Figure(f"{name}: peak memory besides potentials", peaks[0], "GiB", repeats=repeats)
    little = f'{name}, memory="sqrt"'
    yield Figure(f"{little}: peak memory besides potentials", peaks[1], "GiB", at_most=1)
    yield Figure(f"{little}: time / usual", seconds / plain, "times", at_most=1.6, repeats=repeats)
