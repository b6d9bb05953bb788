"""What posteriors say about the inside of chains of unary rules, against all chains."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from tests.oracle.parsing_cases import (
    Array,
    Case,
    log_sum,
    possible_trees,
    random_case,
    random_logs,
    with_arcs,
    with_mask,
)
from tests.seeds import seeds
from tests.support import assert_close

# Single steps are between symbols of rising number: there are finitely many chains.
STEPS = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
SYMBOLS = 4


def chains(top: int, bottom: int) -> Iterator[tuple[int, ...]]:
    """All ways from one symbol to another by single steps, as numbers of steps."""
    if top == bottom:
        yield ()
    for x, (head, child) in enumerate(STEPS):
        if head == top:
            for rest in chains(child, bottom):
                yield (x, *rest)


def closed(seed: int, spread: float) -> tuple[Case, list[float]]:
    """A random case whose unary rules are the chains of some steps, and these' log-weights."""
    rng = np.random.default_rng((seed, 4))
    logs = random_logs(rng, len(STEPS), spread, 0.1)
    unary = [(a, b) for a in range(SYMBOLS) for b in range(a + 1, SYMBOLS)]
    weights = [
        float(np.logaddexp.reduce([sum(logs[x] for x in way) for way in chains(a, b)]))
        for a, b in unary
    ]
    words = random_case(seed, spread).sentences
    binary = [tuple(x) for x in rng.integers(SYMBOLS, size=(8, 3)).tolist()]
    return Case(SYMBOLS, binary, unary, random_logs(rng, 8, spread, 0.1), weights, words), logs


def expected(case: Case, logs: list[float], b: int) -> tuple[Array, Array]:
    """Expected numbers of nodes [n n symbols] and of steps [n n steps]."""
    n = len(case.sentences[b])
    found = list(possible_trees(case))[b]
    log_z = log_sum(found)
    nodes, steps = np.zeros((n, n, SYMBOLS)), np.zeros((n, n, len(STEPS)))
    for tree in found:
        for i, j, head, child in tree.nodes:
            ways = [(way, sum(logs[x] for x in way)) for way in chains(head, child)]
            ways = [x for x in ways if x[1] > -math.inf]
            total = float(np.logaddexp.reduce([x for _, x in ways]))
            for way, log in ways:
                share = math.exp(tree.log_weight - log_z + log - total)
                nodes[i, j, head] += share
                for x in way:
                    steps[i, j, x] += share
                    nodes[i, j, STEPS[x][1]] += share
    return nodes, steps


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("spread", [2.0, 100.0, 1e4])
@pytest.mark.parametrize("kind", ["plain", "arcs and mask"])
def test_nodes_and_steps(seed: int, spread: float, kind: str) -> None:
    case, logs = closed(seed, spread)
    if kind != "plain":
        case = with_mask(with_arcs(case, seed, spread), seed)
    passes = case.passes()
    heads, children = (list(x) for x in zip(*STEPS, strict=True))
    for b in range(len(case.sentences)):
        nodes, steps = expected(case, logs, b)
        got = passes.posteriors(b)
        assert_close(np.exp(got.log_back + got.log_after), nodes)
        ways = got.log_back[..., heads] + np.array(logs) + got.log_after[..., children]
        assert_close(np.exp(ways), steps)
