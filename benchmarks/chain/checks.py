"""Agreement with the peers and, in float32, with ourselves in float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks import problems
from benchmarks.chain.ours import em_step, loss_gradient, random_labels
from benchmarks.chain.peers import HmmlearnStep, PytorchCrf, StructChain, StructSegments
from benchmarks.problems import Problem, apart, furthest_apart
from benchmarks.report import Agreement

CLOSE = 1e-10  # between two computations in float64
# What the peers' float32 allows: their marginals are differences of log-weights of about 1,000,
# each rounded to 6e-5.
PEERS_SINGLE = 1e-3


def small() -> Iterator[Agreement]:
    """Small problems in float64 against every peer."""
    yield from torch_struct_chain(problems.chain(3, 9, 5).to(torch.float64), CLOSE)
    yield from pytorch_crf(problems.shared_chain(3, 9, 5).to(torch.float64), CLOSE)
    yield from hmmlearn_step(problems.hmm(20, 10, 5, 12).to(torch.float64), CLOSE)
    yield from torch_struct_segments(problems.semi_markov(2, 9, 3, 4).to(torch.float64), CLOSE)


def precision(problem: Problem) -> Iterator[Agreement]:
    """float32 against float64, both ours."""
    (log_z, gradient), (truth, slopes) = problem.gradient(), problem.to(torch.float64).gradient()
    yield Agreement(f"log Z, {problem.name}: ours in float64", apart(log_z, truth), 1e-5)
    off = furthest_apart(gradient, slopes)
    yield Agreement(f"gradient, {problem.name}: ours in float64", off, 1e-4)


def torch_struct_chain(problem: Problem, tolerance: float) -> Iterator[Agreement]:
    """log Z and gradient of torch-struct against ours in float64."""
    log_z, gradient = StructChain.of(problem).gradient()
    truth, slopes = problem.to(torch.float64).gradient()
    yield Agreement(f"log Z, {problem.name}: torch-struct", apart(log_z, truth), tolerance)
    off = apart(gradient["transitions"], slopes["transitions"])
    yield Agreement(f"gradient, {problem.name}: torch-struct", off, tolerance)


def torch_struct_segments(problem: Problem, tolerance: float) -> Iterator[Agreement]:
    """log Z and gradient of torch-struct against ours in float64."""
    log_z, gradient = StructSegments.of(problem).gradient()
    truth, slopes = problem.to(torch.float64).gradient()
    yield Agreement(f"log Z, {problem.name}: torch-struct", apart(log_z, truth), tolerance)
    theirs = StructSegments.in_our_places(gradient["log_potentials"])
    off = apart(theirs, slopes["log_potentials"])
    yield Agreement(f"gradient, {problem.name}: torch-struct", off, tolerance)


def pytorch_crf(problem: Problem, tolerance: float) -> Iterator[Agreement]:
    """Loss and gradient of pytorch-crf, and of ours in this precision, against ours in float64."""
    labels = random_labels(problem)
    truth, slopes = loss_gradient(problem.to(torch.float64), labels)
    for who, (loss, gradient), allowed in (
        ("pytorch-crf", PytorchCrf.of(problem, labels).loss_gradient(), tolerance),
        ("ours in float64", loss_gradient(problem, labels), min(tolerance, 1e-4)),
    ):
        yield Agreement(f"loss, {problem.name}: {who}", apart(loss, truth), allowed)
        off = furthest_apart(gradient, slopes)
        yield Agreement(f"gradient of the loss, {problem.name}: {who}", off, allowed)


def hmmlearn_step(problem: Problem, tolerance: float) -> Iterator[Agreement]:
    """The parameters after one EM step: ours, in float64 too, against hmmlearn's."""
    theirs = HmmlearnStep.of(problem).step()
    for kind in dict.fromkeys((torch.float64, problem.potentials["initial"].dtype)):
        ours = {name: p.exp() for name, p in em_step(problem.to(kind)).items()}
        name = f"after one EM step, {problem.name}, {str(kind)[6:]}: hmmlearn"
        yield Agreement(name, furthest_apart(ours, theirs), tolerance)


def hessian(problem: Problem) -> Iterator[Agreement]:
    """Hessian-vector product: float64 against a difference, then float32 against float64."""
    double = problem.to(torch.float64)
    direction = double.direction()
    truth = double.hessian_product(direction)
    step = 1e-4
    (_, right), (_, left) = (
        double.moved(step, direction).gradient(),
        double.moved(-step, direction).gradient(),
    )
    difference = {name: (right[name] - left[name]) / (2 * step) for name in truth}
    name = f"Hessian times a direction, {problem.name}"
    yield Agreement(f"{name}: finite difference", furthest_apart(truth, difference), 1e-5)
    single = problem.hessian_product(problem.direction())
    yield Agreement(f"{name}: ours in float64", furthest_apart(single, truth), 1e-3)
