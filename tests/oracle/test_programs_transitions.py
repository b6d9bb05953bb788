"""Arc-standard and arc-hybrid parsing against parsers that try every transition."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from inout import Program, programs
from tests.oracle.derivations import Derivation, check, draw_ambiguous, random_weights
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(3)
Arcs = frozenset[tuple[int, int]]
Stack = tuple[int, ...]


def arc_standard(
    size: int, stack: Stack = (0,), following: int = 1
) -> Iterator[tuple[Derivation, Arcs]]:
    """All sequences of transitions as facts, and the arcs (head, dependent) that they make."""
    if stack == (0,) and following == size + 1:
        yield (), frozenset()
    steps = []
    if following <= size:
        shift = ("shift", (stack[-1], following))
        steps.append((shift, (*stack, following), following + 1, None))
    if len(stack) > 1:
        below, top = stack[-2:]
        steps.append((("right_arc", (below, top)), stack[:-1], following, (below, top)))
        if below:
            left = ("left_arc", (below, top))
            steps.append((left, (*stack[:-2], top), following, (top, below)))
    for fact, left, then, arc in steps:
        for rest, arcs in arc_standard(size, left, then):
            yield (fact, *rest), arcs | ({arc} if arc else set())


def arc_hybrid(
    size: int, stack: Stack = (0,), following: int = 1
) -> Iterator[tuple[Derivation, Arcs]]:
    """As arc_standard: left arcs come from the next word."""
    if stack == (0,) and following == size + 1:
        yield (), frozenset()
    steps = []
    if following <= size:
        shift = ("shift", (stack[-1], following))
        steps.append((shift, (*stack, following), following + 1, None))
    if len(stack) > 1:
        seen = (*stack[-2:], following)
        steps.append((("right_arc", seen), stack[:-1], following, seen[:2]))
        if following <= size:
            steps.append((("left_arc", seen), stack[:-1], following, (following, stack[-1])))
    for fact, left, then, arc in steps:
        for rest, arcs in arc_hybrid(size, left, then):
            yield (fact, *rest), arcs | ({arc} if arc else set())


SYSTEMS = {"arc_standard": (arc_standard, 2), "arc_hybrid": (arc_hybrid, 3)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), [(0, 1), (1, 1), (2, 1), (3, 4), (4, 10), (5, 20)])
@pytest.mark.parametrize("name", SYSTEMS)
def test_transition_systems_sum_over_all_sequences(name: str, size: int, least: int, seed: int):
    system, arity = SYSTEMS[name]
    words = range(size + 2)

    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        facts = {
            "shift": random_weights(rng, product(words, repeat=2), dead=0.1),
            "left_arc": random_weights(rng, product(words, repeat=arity), dead=0.1),
            "right_arc": random_weights(rng, product(words, repeat=arity), dead=0.1),
            "length": [(size,)],
        }
        return facts, (sequence for sequence, _ in system(size))

    facts, sequences = draw_ambiguous(np.random.default_rng(seed), draw, least)
    forest = check(programs.load(name), facts, sequences)
    best = max(math.fsum(facts[n][row] for n, row in sequence) for sequence in sequences)
    assert_close(forest.argmax().log_weight, best)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_best_sequence_builds_the_best_projective_tree(name: str, seed: int):
    """Where only arcs weigh something; the second algorithm is Eisner's."""
    size = 7
    rng = np.random.default_rng(seed)
    words = range(size + 1)
    arcs = {(h, d): float(rng.normal()) for h in words for d in words[1:] if h != d}
    facts = {"shift": list(product(words, repeat=2)), "length": [(size,)]}
    if name == "arc_standard":
        facts["left_arc"] = {(d, h): weight for (h, d), weight in arcs.items()}
        facts["right_arc"] = arcs
    else:
        every = range(size + 2)
        facts["left_arc"] = {(s, d, h): w for (h, d), w in arcs.items() for s in every}
        facts["right_arc"] = {(h, d, b): w for (h, d), w in arcs.items() for b in every}
    trees = {
        "arc": {(h + 1, d + 1): weight for (h, d), weight in arcs.items()},
        "root": [(1,)],
        "length": [(size + 1,)],
    }
    wanted = programs.load("projective_dependency").ground(trees).argmax().log_weight
    assert_close(programs.load(name).ground(facts).argmax().log_weight, wanted)


def test_every_projective_tree_has_a_sequence():
    """1, 3, 12, 55, … projective trees below a root of several words (binom(3n, n) / (2n+1))."""
    for name in SYSTEMS:
        system, _ = SYSTEMS[name]
        found = [len({arcs for _, arcs in system(n)}) for n in range(1, 6)]
        assert found == [1, 3, 12, 55, 273]


def edges(program: Program, n: int) -> int:
    pairs = list(product(range(n + 1), repeat=2))
    facts = {"shift": pairs, "left_arc": pairs, "right_arc": pairs, "length": [(n,)]}
    return program.ground(facts).num_edges


@pytest.mark.parametrize(("folded", "degree"), [(False, 5), (True, 4)])
def test_folding_takes_arc_standard_from_degree_5_to_4(folded: bool, degree: int):
    program = programs.load("arc_standard")
    program = program.folded() if folded else program
    sizes = np.array([edges(program, n) for n in range(3, 12)])
    assert len(set(np.diff(sizes, degree))) == 1
    assert np.diff(sizes, degree)[0] > 0
