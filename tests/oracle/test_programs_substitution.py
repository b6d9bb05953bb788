"""Tree-substitution grammars against all derivations, and against rules of their frontiers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from inout import ArgumentError, CycleError, programs
from tests.oracle.derivations import Derivation, check, draw_ambiguous, random_weights, random_words
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(3)
Tree = tuple[Any, ...]


def frontier(tree: Any) -> list[Any]:
    """Words and slots of a tree from left to right."""
    if isinstance(tree, str) or len(tree) == 1:
        return [tree]
    return [leaf for child in tree[1:] for leaf in frontier(child)]


def derivations(trees: Sequence[Tree], label: str, words: Sequence[str]) -> Iterator[tuple]:
    """The numbers of the trees used, of every derivation."""
    for number, tree in enumerate(trees):
        if tree[0] == label:
            yield from ((number, *rest) for rest in covers(trees, frontier(tree), words))


def covers(trees: Sequence[Tree], leaves: Sequence[Any], words: Sequence[str]) -> Iterator[tuple]:
    if len(leaves) > len(words):
        return
    if not leaves:
        if not words:
            yield ()
        return
    first, rest = leaves[0], leaves[1:]
    if isinstance(first, str):
        if words[0] == first:
            yield from covers(trees, rest, words[1:])
        return
    for cut in range(1, len(words) - len(rest) + 1):
        for left in derivations(trees, first[0], words[:cut]):
            yield from ((*left, *right) for right in covers(trees, rest, words[cut:]))


def random_tree(rng: np.random.Generator, label: str, depth: int) -> Tree:
    """A tree without chains that add no words: its frontier is a word or at least two leaves."""
    children: list[Any] = []
    for _ in range(int(rng.integers(1, 4))):
        kind = rng.random()
        child = str(rng.choice(["S", "A"]))
        if kind < 0.4 or (kind > 0.7 and depth == 0):
            children.append((child,))
        elif kind < 0.7:
            children.append(str(rng.choice(["a", "b", "c"])))
        else:
            children.append(random_tree(rng, child, depth - 1))
    tree = (label, *children)
    leaves = frontier(tree)
    return tree if len(leaves) > 1 or isinstance(leaves[0], str) else random_tree(rng, label, depth)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 1), (2, 2), (4, 10), (6, 20)])
def test_tree_substitution_sums_over_all_derivations(size: int, least: int, seed: int):
    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        trees = [random_tree(rng, str(rng.choice(["S", "A"])), 2) for _ in range(12)]
        trees += [(x, w) for x in "SA" for w in "abc"]
        given = {n: f.rows for n, f in programs.elementary_trees(trees).items()}
        keys = given["tree"]
        facts = {
            **given,
            "tree": random_weights(rng, keys),
            "start": random_weights(rng, [("S",), ("A",)], dead=0.2),
        }
        words = random_words(rng, size)
        found = (
            (("start", (x,)), *(("tree", keys[i]) for i in used))
            for x in "SA"
            for used in derivations(trees, x, words)
        )
        return {**facts, **programs.sentence(words)}, found

    facts, found = draw_ambiguous(np.random.default_rng(seed), draw, least)
    forest = check(programs.load("tree_substitution_grammar"), facts, found)
    if forest.count():
        best = max(math.fsum(facts[n][r] for n, r in d) for d in found)
        assert_close(forest.argmax().log_weight, best)


def test_frontiers_as_rules_of_a_context_free_grammar():
    rng = np.random.default_rng(1)
    trees = [random_tree(rng, str(rng.choice(["S", "A"])), 3) for _ in range(10)]
    trees += [(x, w) for x in "SA" for w in "abc"]
    weights = rng.normal(size=len(trees))
    words = programs.sentence(list("abcab"))
    rules = [(t[0], [x if isinstance(x, str) else x[0] for x in frontier(t)]) for t in trees]
    grammar = {**programs.earley_rules(rules, weights), "start": [("S",)], **words}
    facts = {**programs.elementary_trees(trees, weights), "start": [("S",)], **words}
    one = programs.load("tree_substitution_grammar").ground(facts)
    other = programs.load("earley").ground(grammar)
    assert one.count() == other.count() > 100
    assert_close(one.log_partition(), other.log_partition())
    assert_close(one.expected_counts("tree"), other.expected_counts("rule"))


def test_all_fragments_of_one_tree_rebuild_it_in_every_way():
    """Each of the inner nodes below the root is cut or not (data-oriented parsing): 2^k ways."""
    whole = ("S", ("A", ("B", "a"), ("C", "b")), ("D", "c"))

    def fragments(tree: Tree) -> Iterator[Tree]:
        choices: list[list[Any]] = [[tree[0]]]
        for child in tree[1:]:
            choices.append([child] if isinstance(child, str) else [child[:1], *fragments(child)])
        combined: list[Tree] = [()]
        for some in choices:
            combined = [(*c, s) for c in combined for s in some]
        yield from combined

    def nodes(tree: Tree) -> Iterator[Tree]:
        yield tree
        for child in tree[1:]:
            if not isinstance(child, str):
                yield from nodes(child)

    trees = [f for node in nodes(whole) for f in fragments(node)]
    facts = {**programs.elementary_trees(trees), "start": [("S",)]}
    forest = programs.load("tree_substitution_grammar").ground(
        {**facts, **programs.sentence(list("abc"))}
    )
    assert forest.count() == 2**4


def test_trees_that_add_no_words_are_a_cycle():
    facts = {**programs.elementary_trees([("S", ("S",)), ("S", "a")]), "start": [("S",)]}
    with pytest.raises(CycleError):
        programs.load("tree_substitution_grammar").ground({**facts, **programs.sentence(["a"])})


@pytest.mark.parametrize("tree", ["S", ("S",)])
def test_an_elementary_tree_has_children(tree: Any):
    with pytest.raises(ArgumentError, match=r"trees must be tuples.*at place 1"):
        programs.elementary_trees([("S", "a"), tree])
