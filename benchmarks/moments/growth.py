"""How moments grow with their order: truncated polynomials beside points on a circle.

In processor time, which exponents need and which a busy machine hardly changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks.problems import Problem, apart
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate

ORDERS = (1, 2, 4, 8, 16, 32, 64, 128)
METHODS = ("polynomial", "circle")
SLOPE_FROM = 16  # lower orders measure what does not depend on the order
COMPARED = 32  # the order up to which both ways must agree


def check(problem: Problem) -> Iterator[Agreement]:
    """One method against the other, order by order, up to the highest that is timed."""
    found = {method: _moments(problem, COMPARED, method) for method in METHODS}
    # Each relative to its own size: the highest would hide the others.
    sizes = found["polynomial"].abs().amax(0)
    ours, theirs = (found[method] / torch.where(sizes > 0, sizes, 1.0) for method in METHODS)
    name = f"central moments up to order {COMPARED}, {problem.name}: polynomial, circle"
    yield Agreement(name, apart(ours, theirs), 1e-6)


def measure(labels: Problem, pairs: Problem, quick: bool) -> Iterator[Figure]:
    """Times by order, the powers of the order they follow, and where the circle takes over.

    Of a function of labels, whose products are few, and of one of pairs of labels. Digits are not
    measured: that would be a second evaluation of the polynomials. Weighted marginals always
    measure them.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # processor time counts threads that only wait
    for ask, what in ((_moments, "moments up to"), (_weighted, "weighted marginals of")):
        yield from _growth(ask, what, labels, "emissions", quick)
        yield from _growth(ask, what, pairs, "transitions", quick)
    torch.set_num_threads(threads)


def _growth(
    ask: Callable[..., object], what: str, problem: Problem, part: str, quick: bool
) -> Iterator[Figure]:
    repeats = 2 if quick else 7
    orders = _orders(quick)
    times: dict[str, list[float]] = {method: [] for method in METHODS}
    for order in orders:
        seconds = alternate(
            {m: partial(ask, problem, order, m, part, None) for m in METHODS},
            repeats,
            clock=time.process_time,
        )
        for method in METHODS:
            times[method].append(seconds[method])
            name = f"{what} order {order} of {part}, {method}, {problem.name}"
            yield Figure(name, seconds[method] * 1e3, "ms", repeats=repeats)
    for method in METHODS:
        yield Figure(
            f"growth of {what} order {SLOPE_FROM}+, {part}, {method}: power of (order + 1)",
            _power(orders, times[method]),
            "",
            repeats=repeats,
        )
    faster = [
        order
        for order, polynomial, circle in zip(orders, *times.values(), strict=True)
        if circle < polynomial
    ]
    yield Figure(
        f"least order at which the circle is faster (inf: none), {what} {part}",
        min(faster, default=np.inf),
        "",
    )


def _orders(quick: bool) -> tuple[int, ...]:
    return ORDERS[:-2] if quick else ORDERS


def _function(problem: Problem, part: str) -> dict[str, Tensor]:
    """An additive function of labels, or of pairs of them."""
    s = problem.potentials["emissions"].shape[-1]
    values = torch.linspace(0, 1, s, dtype=torch.float64)
    return {part: values if part == "emissions" else (values - values[:, None]).square()}


def _moments(
    problem: Problem,
    order: int,
    method: str,
    part: str = "emissions",
    precision: float | None = 1e-8,
) -> Tensor:
    """Central moments [b order+1]."""
    d = problem.to(torch.float64).make()
    f = _function(problem, part)
    return d.moments(f, order, kind="central", method=method, precision=precision).values


def _weighted(
    problem: Problem, order: int, method: str, part: str, precision: float | None
) -> dict[str, Tensor]:
    """E[Fⁿ N_v] of all parts: theorem 2, or theorem 4."""
    d = problem.to(torch.float64).make()
    precision = precision or 0.1  # of polynomials of high order
    return d.weighted_marginals(_function(problem, part), order, method=method, precision=precision)


def _power(orders: tuple[int, ...], seconds: list[float]) -> float:
    """The exponent of (order + 1) that the times follow, fitted to their logarithms."""
    kept = [(order + 1, taken) for order, taken in zip(orders, seconds, strict=True)]
    x, y = np.log([pair for pair in kept if pair[0] > SLOPE_FROM]).T
    return float(np.polyfit(x, y, 1)[0])
