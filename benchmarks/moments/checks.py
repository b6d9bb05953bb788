"""Agreement with enumeration on small problems, and of one way with another on large ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks import problems
from benchmarks.moments import objectives
from benchmarks.moments.objectives import Criterion, gradient
from benchmarks.problems import Gradient, Problem, apart, furthest_apart
from benchmarks.report import Agreement
from inout import moments

CLOSE = 1e-10  # between two computations in float64
ORDER = 6
F_SINGLE = 1e-3  # float32: log Z of some 100 nats, rounded to 1e-5, is exponentiated at each node


@dataclass(frozen=True, eq=False)
class Enumerated:
    """All events of a small problem: how often each uses each part, and its probability."""

    leaves: dict[str, Tensor]
    counts: dict[str, Tensor]  # [m b ...]
    scores: Tensor  # [m b]

    @classmethod
    def of(cls, problem: Problem) -> Enumerated:
        """Under potentials that can be differentiated by."""
        d, leaves = problem.make(), problem.leaves()
        counts = d.parts(d.enumerate_support())
        scores = sum((counts[name] * leaves[name]).flatten(2).sum(-1) for name in leaves)
        assert isinstance(scores, Tensor)
        return cls(leaves, counts, scores)

    def expectation(self, values: Tensor) -> Tensor:
        """Means [b ...] of values [m b ...] of the events."""
        chances = self.scores.softmax(0)
        return (chances.reshape(chances.shape + (1,) * (values.ndim - 2)) * values).sum(0)

    def hessian_product(self, direction: Mapping[str, Tensor]) -> Gradient:
        """Covariance of the direction's sum with the count of each part, element by element."""
        sums = [(self.counts[name] * u).flatten(2).sum(-1) for name, u in direction.items()]
        along = torch.stack(sums).sum(0)
        off = along - self.expectation(along)
        return {
            name: self.expectation(counts * off.reshape(off.shape + (1,) * (counts.ndim - 2)))
            for name, counts in self.counts.items()
        }


def by_enumeration() -> Iterator[Agreement]:
    """Everything that is timed, on problems of a few hundred events, in float64."""
    for small in (problems.chain(2, 5, 3), problems.shared_chain(2, 5, 3)):
        yield from _hessian_by_enumeration(small)
        problem = small.to(torch.float64)
        criterion, enumerated = Criterion.of(problem), Enumerated.of(problem)
        loss = _criterion_by_enumeration(enumerated, criterion)
        value, slopes = criterion.gradient(problem)
        name = f"expectation criterion, {problem.name}: enumeration"
        yield Agreement(name, apart(value, loss), CLOSE)
        off = furthest_apart(slopes, gradient(loss, enumerated.leaves))
        yield Agreement(f"gradient of the {name}", off, CLOSE)
    yield from _hessian_by_enumeration(problems.semi_markov(2, 5, 3, 2))
    yield from _expected_f_by_enumeration(problems.semi_markov(2, 5, 3, 2).to(torch.float64))
    yield from _moments_by_enumeration(problems.shared_chain(2, 5, 3).to(torch.float64))


def _hessian_by_enumeration(small: Problem) -> Iterator[Agreement]:
    problem = small.to(torch.float64)
    direction = problem.direction()
    found = moments.hessian_vector_product(problem.make(), direction)
    truth = Enumerated.of(problem).hessian_product(direction)
    name = f"Hessian times a direction, {problem.name}: enumeration"
    yield Agreement(name, furthest_apart(found, truth), CLOSE)


def _criterion_by_enumeration(enumerated: Enumerated, criterion: Criterion) -> Tensor:
    marginals = enumerated.expectation(enumerated.counts["emissions"])
    means = torch.stack([marginals[on].mean(0) for on in criterion.tokens if bool(on.any())])
    targets = torch.stack(
        [t for t, on in zip(criterion.targets, criterion.tokens, strict=True) if bool(on.any())]
    )
    return (targets * (targets / means).log()).sum()


def _expected_f_by_enumeration(problem: Problem) -> Iterator[Agreement]:
    enumerated, gold = Enumerated.of(problem), objectives.gold_event(problem)
    # [m b n w s]: segments, whatever the label before.
    used = enumerated.counts["log_potentials"].sum(-2)
    wanted = problem.make().parts(gold)["log_potentials"].sum(-2)
    right = (used * wanted).flatten(2).sum(-1)
    size, gold_size = used.flatten(2).sum(-1), wanted.flatten(1).sum(-1)
    truth = enumerated.expectation(2 * right / (size + gold_size))
    slopes = gradient(truth.sum(), enumerated.leaves)
    for how, tolerance in (({}, CLOSE), ({"method": "series", "order": 40}, 1e-8)):
        value, found = objectives.expected_f(problem, gold, **how)
        name = f"expected F, {how.get('method', 'quadrature')}, {problem.name}: enumeration"
        yield Agreement(name, apart(value, truth), tolerance)
        off = furthest_apart(found, slopes)
        yield Agreement(f"gradient of {name}", off, 100 * tolerance)


def _moments_by_enumeration(problem: Problem) -> Iterator[Agreement]:
    enumerated = Enumerated.of(problem)
    values = problem.direction()["emissions"]
    sums = (enumerated.counts["emissions"] * values).flatten(2).sum(-1)
    truth = enumerated.expectation(torch.stack([sums**n for n in range(ORDER + 1)], -1))
    for method in ("polynomial", "circle", "taylor"):
        found = problem.make().moments({"emissions": values}, ORDER, method=method).values
        name = f"moments up to order {ORDER}, {method}, {problem.name}: enumeration"
        yield Agreement(name, apart(found, truth), 1e-8)


def hessian(problem: Problem) -> Iterator[Agreement]:
    """By `hessian_vector_product` and by a second backward pass; float32 against float64."""
    double = problem.to(torch.float64)
    direction = double.direction()
    found = moments.hessian_vector_product(double.make(), direction)
    summed = {name: h.sum_to_size(direction[name].shape) for name, h in found.items()}
    truth = double.hessian_product(direction)
    name = f"Hessian times a direction, {problem.name}"
    yield Agreement(f"{name}: second backward pass", furthest_apart(summed, truth), CLOSE)
    single = moments.hessian_vector_product(problem.make(), problem.direction())
    yield Agreement(f"{name}, float32: float64", furthest_apart(single, found), 1e-3)


def expectation_criterion(problem: Problem) -> Iterator[Agreement]:
    """float64 against a difference quotient along a direction; float32 against float64."""
    double = problem.to(torch.float64)
    criterion, direction = Criterion.of(double), double.direction()
    value, slopes = criterion.gradient(double)
    step = 1e-4
    right, left = (criterion.gradient(double.moved(x, direction))[0] for x in (step, -step))
    along = torch.stack([(slopes[name] * u).sum() for name, u in direction.items()]).sum()
    name = f"expectation criterion, {problem.name}"
    off = apart(along, (right - left) / (2 * step))
    yield Agreement(f"gradient of the {name}: difference quotient", off, 1e-5)
    single, single_slopes = Criterion.of(problem).gradient(problem)
    yield Agreement(f"{name}, float32: float64", apart(single, value), 1e-3)
    off = furthest_apart(single_slopes, slopes)
    yield Agreement(f"gradient of the {name}, float32: float64", off, 1e-3)


def expected_f(problem: Problem) -> Iterator[Agreement]:
    """16 nodes and the series of order 15 against as many nodes as 13 digits need."""
    double, gold = problem.to(torch.float64), objectives.gold_event(problem)
    truth, slopes = objectives.expected_f(double, gold)
    name = f"expected F, {problem.name}"
    for way, given, how, tolerance in (
        ("16 nodes", double, {"nodes": 16}, 1e-8),
        ("16 nodes, float32", problem, {"nodes": 16}, F_SINGLE),
        ("series of order 15", double, {"method": "series", "order": 15}, 1e-4),
    ):
        value, found = objectives.expected_f(given, gold, **how)
        yield Agreement(f"{name}, {way}: quadrature", apart(value, truth), tolerance)
        off = furthest_apart(found, slopes)
        yield Agreement(f"gradient of {name}, {way}: quadrature", off, 10 * tolerance)
