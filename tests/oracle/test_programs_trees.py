"""Dependency trees and inversion transduction grammars against enumeration of all trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

import numpy as np
import pytest

from inout import programs
from tests.oracle.derivations import (
    Derivation,
    check,
    draw_ambiguous,
    random_weights,
    random_words,
    some,
)
from tests.seeds import seeds

SEEDS = seeds(3)
Draw = tuple[dict, Iterator[Derivation]]


# projective_dependency


def is_projective_tree(heads: Sequence[int]) -> bool:
    """Whether heads[m-1] is the head of word m in a projective tree; the root's head is 0."""

    def ancestors(word: int) -> list[int]:
        path = [word]
        while path[-1] != 0 and len(path) <= len(heads) + 1:
            path.append(heads[path[-1] - 1])
        return path

    if any(ancestors(m)[-1] != 0 for m in range(1, len(heads) + 1)):
        return False
    return all(
        head in ancestors(between)
        for word, head in enumerate(heads, start=1)
        for between in range(min(word, head) + 1, max(word, head))
    )


def projective_trees(size: int) -> Iterator[tuple[int, ...]]:
    for heads in product(range(size + 1), repeat=size):
        if is_projective_tree(heads):
            yield heads


def one_rooted(facts: dict, size: int) -> Iterator[Derivation]:
    """Trees with exactly one root, with all choices of labels."""
    for heads in projective_trees(size):
        if heads.count(0) != 1:
            continue
        choices = []
        for word, head in enumerate(heads, start=1):
            name, key = ("arc", (head, word)) if head else ("root", (word,))
            choices.append([(name, row) for row in facts[name] if row[: len(key)] == key])
        yield from product(*choices)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 1), (2, 1), (3, 2), (5, 10)])
def test_projective_dependency_sums_over_all_trees(
    size: int, least: int, labelled: bool, seed: int
):
    words = range(1, size + 1)
    arcs = [(h, m) for h in words for m in words if h != m]
    roots = [(r,) for r in words]
    if labelled:  # some arcs without a label beside those with one
        arcs += [(*arc, label) for arc in arcs for label in ("x", "y")]
        roots += [(*root, label) for root in roots for label in ("x", "y")]

    def draw(rng: np.random.Generator) -> Draw:
        facts = {
            "arc": random_weights(rng, some(rng, arcs, 0.3 if labelled else 0.9)),
            "root": random_weights(rng, some(rng, roots, 0.7)),
            "length": [(size,)],
        }
        return facts, one_rooted(facts, size)

    facts, trees = draw_ambiguous(np.random.default_rng(seed), draw, least)
    check(programs.load("projective_dependency"), facts, trees)


def test_the_number_of_projective_trees():
    # The known counts, for one root word, binom(3n-2, n-1) / n.
    for n, wanted in enumerate([1, 2, 7, 30, 143, 728], start=1):
        words = range(1, n + 1)
        facts = {
            "arc": [(h, m) for h in words for m in words],  # arcs to oneself are never used
            "root": [(r,) for r in words],
            "length": [(n,)],
        }
        assert programs.load("projective_dependency").ground(facts).count() == wanted


@pytest.mark.parametrize("size", [1, 2, 4])
def test_several_roots_are_arcs_from_an_extra_first_word(size: int):
    rng = np.random.default_rng(size)
    words = range(1, size + 2)
    arcs = random_weights(rng, [(h, m) for h in words for m in words[1:]])
    facts = {"arc": arcs, "root": [(1,)], "length": [(size + 1,)]}
    trees = [
        tuple(("arc", (head + 1, word + 1)) for word, head in enumerate(heads, start=1))
        for heads in projective_trees(size)
    ]
    assert size == 1 or any(heads.count(0) > 1 for heads in projective_trees(size))
    check(programs.load("projective_dependency"), facts, trees)


# inversion_transduction_grammar


def bilingual_trees(
    facts: dict, symbol: str, source: tuple[str, ...], target: tuple[str, ...]
) -> Iterator[Derivation]:
    size = (len(source), len(target))
    if sum(size) == 0:
        return
    leaf = {(1, 1): "pair", (1, 0): "source_only", (0, 1): "target_only"}.get(size)
    if leaf and (symbol, *source, *target) in facts[leaf]:
        yield ((leaf, (symbol, *source, *target)),)
    for name in ("straight", "inverted"):
        for row in facts[name]:
            if row[0] != symbol:
                continue
            for j, r in product(range(size[0] + 1), range(size[1] + 1)):
                first, second = target[:r], target[r:]
                if name == "inverted":
                    first, second = second, first
                if not source[:j] and not first:  # the other child would be the node itself
                    continue
                rights = list(bilingual_trees(facts, row[2], source[j:], second))
                if rights:
                    for left in bilingual_trees(facts, row[1], source[:j], first):
                        yield from (((name, row), *left, *right) for right in rights)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("n", "m", "least"),
    [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 1, 2), (2, 1, 5), (2, 2, 20), (3, 2, 30)],
)
def test_inversion_transduction_sums_over_all_trees(n: int, m: int, least: int, seed: int):
    def draw(rng: np.random.Generator) -> Draw:
        source, target = random_words(rng, n), random_words(rng, m)
        triples = list(product("XY", repeat=3))
        facts = {
            "start": random_weights(rng, [("X",), ("Y",)], dead=0.2),
            "straight": random_weights(rng, some(rng, triples, 0.3)),
            "inverted": random_weights(rng, some(rng, triples, 0.3)),
            "pair": random_weights(rng, some(rng, product("XY", "abc", "abc"), 0.6)),
            "source_only": random_weights(rng, some(rng, product("XY", "abc"), 0.6)),
            "target_only": random_weights(rng, some(rng, product("XY", "abc"), 0.6)),
        }
        trees = (
            (("start", root), *tree)
            for root in facts["start"]
            for tree in bilingual_trees(facts, root[0], tuple(source), tuple(target))
        )
        return {**facts, **programs.sentence_pair(source, target)}, trees

    facts, trees = draw_ambiguous(np.random.default_rng(seed), draw, least)
    check(programs.load("inversion_transduction_grammar"), facts, trees)


def test_inversion_transduction_cannot_make_the_two_inside_out_permutations():
    """Of the 24 permutations of four words 22 have a tree (Wu 1997); equal words have C(3)·2³."""
    words = list("abcd")
    facts = {
        "start": [("X",)],
        "straight": [("X", "X", "X")],
        "inverted": [("X", "X", "X")],
        "pair": [("X", w, w) for w in words],
        "source_only": [],
        "target_only": [],
    }
    program = programs.load("inversion_transduction_grammar")
    counts = {
        order: program.ground({**facts, **programs.sentence_pair(words, list(order))}).count()
        for order in permutations(words)
    }
    assert {order for order, count in counts.items() if not count} == {
        ("b", "d", "a", "c"),
        ("c", "a", "d", "b"),
    }
    same = {**facts, **programs.sentence_pair(["a"] * 4, ["a"] * 4)}
    assert program.ground(same).count() == 5 * 2**3
