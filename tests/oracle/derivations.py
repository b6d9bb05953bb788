"""What every test of a library program compares: a forest with a list of enumerated derivations.

A derivation is the tuple of the weighted facts it uses, with repetitions; enumerators that make
such tuples stand beside the tests. Nothing here knows how the library works.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from inout import Facts, Forest, Program
from tests.support import assert_close

Row = tuple[Any, ...]
Fact = tuple[str, Row]  # relation, row
Derivation = tuple[Fact, ...]
Weights = dict[Row, float]  # row: log-weight, -inf allowed

WORDS = ("a", "b", "c")


def random_weights(rng: np.random.Generator, rows: Iterable[Row], dead: float = 0.15) -> Weights:
    """A log-weight for every row, -inf for some of them."""
    return {tuple(row): -math.inf if rng.random() < dead else float(rng.normal()) for row in rows}


def some(rng: np.random.Generator, rows: Iterable[Row], share: float) -> list[Row]:
    """About this share of the rows."""
    return [row for row in rows if rng.random() < share]


def draw_ambiguous(
    rng: np.random.Generator,
    draw: Callable[[np.random.Generator], tuple[dict[str, Any], Iterator[Derivation]]],
    least: int,
    most: int = 1500,
) -> tuple[dict[str, Any], list[Derivation]]:
    """Random facts and their derivations, drawn again until there are enough and not too many."""
    for _ in range(1000):
        facts, found = draw(rng)
        derivations = list(islice(found, 4 * most))
        if len(derivations) < 4 * most and least <= len(alive(derivations, facts)) <= most:
            return facts, derivations
    raise AssertionError(f"no draw had {least} to {most} derivations")


def log_sum(values: Iterable[float]) -> float:
    values = list(values)
    top = max(values, default=-math.inf)
    if top == -math.inf:
        return -math.inf
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def weigh(derivation: Derivation, facts: Mapping[str, Any]) -> float:
    """The log-weight of a derivation; relations given as plain rows weigh nothing."""
    weighted = (facts[name][row] for name, row in derivation if isinstance(facts[name], dict))
    return math.fsum(weighted)


def alive(derivations: Iterable[Derivation], facts: Mapping[str, Any]) -> list[Derivation]:
    """The derivations that use no fact of weight zero."""
    return [d for d in derivations if weigh(d, facts) > -math.inf]


def check(
    program: Program,
    facts: Mapping[str, Any],
    derivations: Iterable[Derivation],
    *,
    extra: Mapping[str, Facts] | None = None,
    beam: dict[str, int] | None = None,
) -> Forest:
    """Ground, and compare count, log Z, expected counts and gradients with the enumeration.

    The same of the folded program, where there is no beam, which would prune something else.
    Relations that are dicts {row: log-weight} are compared, those given as rows are not.
    """
    derivations = alive(derivations, facts)
    given: dict[str, Any] = {**facts, **(extra or {})}
    for name, rows in facts.items():
        if isinstance(rows, dict):
            weights = torch.tensor(list(rows.values()), dtype=torch.float64, requires_grad=True)
            given[name] = Facts(list(rows), weights)
    forest = program.ground(given, beam=beam)
    compare(forest, facts, derivations)
    if beam is None:
        compare(program.folded().ground(given), facts, derivations)
    leaves = {name: given[name].log_weights for name, r in facts.items() if isinstance(r, dict)}
    forest.log_partition().backward()
    for name, leaf in leaves.items():
        gradient = torch.zeros(len(leaf)) if leaf.grad is None else leaf.grad
        assert_close(gradient.double(), expected(name, facts, derivations))
    return forest


def compare(forest: Forest, facts: Mapping[str, Any], derivations: Sequence[Derivation]) -> None:
    assert forest.count() == len(derivations)
    assert_close(forest.log_partition(), log_sum(weigh(d, facts) for d in derivations))
    for name, rows in facts.items():
        if isinstance(rows, dict):
            assert_close(forest.expected_counts(name), expected(name, facts, derivations))


def expected(name: str, facts: Mapping[str, Any], derivations: Sequence[Derivation]) -> np.ndarray:
    """Expected number of uses of every row of a relation."""
    place = {row: i for i, row in enumerate(facts[name])}
    counts = np.zeros(len(place))
    logs = [weigh(d, facts) for d in derivations]
    log_z = log_sum(logs)
    for derivation, log in zip(derivations, logs, strict=True):
        for relation, row in derivation:
            if relation == name:
                counts[place[row]] += math.exp(log - log_z)
    return counts


def cnf_trees(
    rules: Mapping[Row, float], words: Sequence[str], symbol: str
) -> Iterator[tuple[Derivation, frozenset[tuple[int, int]]]]:
    """All parse trees of a sentence: rules used, and spans of all constituents."""
    yield from _cnf_trees(rules, tuple(words), symbol, 0)


def _cnf_trees(
    rules: Mapping[Row, float], words: Sequence[str], symbol: str, first: int
) -> Iterator[tuple[Derivation, frozenset[tuple[int, int]]]]:
    span = (first, first + len(words))
    for row in rules:
        if row[0] != symbol:
            continue
        if len(row) == 2 and words == (row[1],):
            yield (("rule", row),), frozenset([span])
        if len(row) == 3:
            for cut in range(1, len(words)):
                for left, left_spans in _cnf_trees(rules, words[:cut], row[1], first):
                    rest = _cnf_trees(rules, words[cut:], row[2], first + cut)
                    for right, right_spans in rest:
                        spans = left_spans | right_spans | {span}
                        yield (("rule", row), *left, *right), spans


def random_cnf(rng: np.random.Generator, share: float = 0.35) -> dict[str, Weights]:
    """Start symbols and rules over S, A, B, an unreachable U, and D, which derives nothing."""
    symbols = ("S", "A", "B", "D", "U")
    binary = [(x, y, z) for x in symbols for y in symbols[:4] for z in symbols[:4]]
    lexical = [(x, w) for x in "SABU" for w in WORDS]
    rules = [("S", "A", "B"), *some(rng, binary, share), *some(rng, lexical, 0.6)]
    return {
        "start": random_weights(rng, [("S",), ("A",)], dead=0.2),
        "rule": random_weights(rng, dict.fromkeys(rules)),
    }


def random_words(rng: np.random.Generator, size: int) -> list[str]:
    return [str(w) for w in rng.choice(WORDS, size)]
