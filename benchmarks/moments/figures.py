"""Times of second derivatives and of objectives, beside those of first derivatives."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.chain.ours import loss_gradient, random_labels
from benchmarks.moments import objectives
from benchmarks.moments.objectives import Criterion
from benchmarks.problems import Problem
from benchmarks.report import Figure
from benchmarks.timing import alternate, closely
from inout import moments


def hessian(problem: Problem, repeats: int) -> Iterator[Figure]:
    """A Hessian-vector product, all passes included, against log Z and gradient."""
    direction = problem.direction()
    seconds = closely(
        {
            "gradient": problem.gradient,
            "hessian": lambda: moments.hessian_vector_product(problem.make(), direction),
        },
        repeats,
    )
    name = f"Hessian-vector product, {described(problem)}"
    yield from _beside(
        name, seconds["hessian"], "log Z + gradient", seconds["gradient"], 4, repeats
    )


def expectation_criterion(problem: Problem, repeats: int) -> Iterator[Figure]:
    """The gradient of generalised expectation criteria against that of the likelihood."""
    criterion, labels = Criterion.of(problem), random_labels(problem)
    seconds = closely(
        {
            "likelihood": lambda: loss_gradient(problem, labels),
            "criterion": lambda: criterion.gradient(problem),
        },
        repeats,
    )
    name = f"gradient of expectation criteria, {described(problem)}"
    yield from _beside(
        name, seconds["criterion"], "of the likelihood", seconds["likelihood"], 3, repeats
    )


def expected_f(problem: Problem, repeats: int) -> Iterator[Figure]:
    """The gradient of expected F against log Z and gradient, in both ways."""
    gold = objectives.gold_event(problem)
    seconds = alternate(
        {
            "gradient": problem.gradient,
            "16 nodes": lambda: objectives.expected_f(problem, gold, nodes=16),
            "series of order 15": lambda: objectives.expected_f(
                problem, gold, method="series", order=15
            ),
        },
        repeats,
    )
    for way in ("16 nodes", "series of order 15"):
        name = f"gradient of expected F, {way}, {described(problem)}"
        # Moments are computed in float64 whatever the potentials: the bound is on like and like.
        like = way == "16 nodes" or described(problem).endswith("float64")
        bound = 60 if like else None
        yield from _beside(
            name, seconds[way], "log Z + gradient", seconds["gradient"], bound, repeats
        )


def described(problem: Problem) -> str:
    """Its name and precision."""
    dtype = next(iter(problem.potentials.values())).dtype
    return f"{problem.name}, {str(dtype)[6:]}"


def _beside(
    name: str, ours: float, beside: str, theirs: float, bound: float | None, repeats: int
) -> Iterator[Figure]:
    yield Figure(name, ours * 1e3, "ms", repeats=repeats)
    yield Figure(f"{name} / {beside}", ours / theirs, "times", at_most=bound, repeats=repeats)
