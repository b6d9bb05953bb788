"""Skeletal trees in arrays against plain recursion, and back to trees of the treebank."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree

from inout._core.errors import ArgumentError
from inout.grammars import Markovisation
from inout.grammars.treebank import clean, leaves
from inout.latent.layout import Layout
from inout.latent.skeleton import Skeleton
from inout.latent.treebank import (
    skeletal_tree,
    skeletal_trees,
    treebank_tree,
    with_classes,
    with_words,
)
from inout.latent.trees import SkeletalTrees
from tests.oracle import random_trees

ORDERS = [
    Markovisation(0, 1),
    Markovisation(1, 1),
    Markovisation(None, 1, "left"),
    Markovisation(0, 2, "left"),
    Markovisation(0, 2, tags=True),
]


def random_skeletal(rng: random.Random, words: int) -> Tree:
    label = rng.choice("ABC")
    if words == 1:
        return Tree(label, [rng.choice("xyz")])
    split = rng.randint(1, words - 1)
    return Tree(label, [random_skeletal(rng, split), random_skeletal(rng, words - split)])


def rows_of(tree: Tree) -> list[dict[str, Any]]:
    """The nodes in preorder with what there is to know about them, by recursion."""
    rows: list[dict[str, Any]] = []

    def walk(node: Tree, start: int, parent: int) -> tuple[int, int]:
        """(end, height)."""
        v = len(rows)
        row: dict[str, Any] = {"label": node.label(), "start": start, "parent": parent}
        rows.append(row)
        if isinstance(node[0], str):
            row |= {"end": start + 1, "height": 0, "left": -1, "right": -1, "size": 1}
            row |= {"rule": (node.label(), node[0]), "word": node[0]}
            return start + 1, 0
        row["left"] = len(rows)
        middle, left_height = walk(node[0], start, v)
        row["right"] = len(rows)
        row["end"], right_height = walk(node[1], middle, v)
        row["height"] = 1 + max(left_height, right_height)
        row["size"] = len(rows) - v
        row["rule"] = (node.label(), node[0].label(), node[1].label())
        return row["end"], row["height"]

    walk(tree, 0, -1)
    return rows


def check(made: SkeletalTrees, given_trees: list[Tree]) -> None:
    """All arrays are those of the recursion."""
    skeleton = made.skeleton
    names, words = skeleton.nonterminals, skeleton.words
    assert len(made) == len(given_trees)
    offset, found_words = 0, []
    for number, tree in enumerate(given_trees):
        rows = rows_of(tree)
        assert made.offsets[number] == made.roots[number] == offset
        for v, row in enumerate(rows, offset):
            assert names[made.labels[v]] == row["label"]
            assert (made.starts[v], made.ends[v]) == (row["start"], row["end"])
            assert made.heights[v] == row["height"]
            assert made.subtree_sizes[v] == row["size"]
            assert made.trees[v] == number
            assert made.is_leaf[v] == ("word" in row)
            for own, other in (("parents", "parent"), ("lefts", "left"), ("rights", "right")):
                expected = row[other] if row[other] < 0 else row[other] + offset
                assert getattr(made, own)[v] == expected
            if "word" in row:
                a, x = skeleton.lexical[made.rules[v]]
                assert (names[a], words[x]) == row["rule"]
                found_words.append(row["word"])
            else:
                a, b, c = skeleton.binary[made.rules[v]]
                assert (names[a], names[b], names[c]) == row["rule"]
        assert made.tree(number) == tree
        offset += len(rows)
    assert made.offsets[-1] == offset == len(made.labels)
    assert [words[x] for x in made.words] == found_words


@given(st.integers(0, 10**6), st.lists(st.integers(1, 12), max_size=6))
def test_arrays_are_those_of_the_recursion(seed: int, sizes: list[int]) -> None:
    rng = random.Random(seed)
    found = [random_skeletal(rng, size) for size in sizes]
    made = SkeletalTrees.of(found)
    check(made, found)
    chosen = [rng.randrange(len(found)) for _ in range(4)] if found else []  # some twice
    part = made.select(chosen)
    assert part.skeleton is made.skeleton
    check(part, [found[x] for x in chosen])
    check(SkeletalTrees.of(found, made.skeleton), found)


def test_no_trees() -> None:
    made = SkeletalTrees.of([])
    check(made, [])
    check(made.select([]), [])


def test_a_skeleton_has_each_rule_once_and_sorted() -> None:
    rng = random.Random(0)
    skeleton = SkeletalTrees.of([random_skeletal(rng, 30) for _ in range(20)]).skeleton
    for rows in (skeleton.binary.tolist(), skeleton.lexical.tolist()):
        assert rows == sorted(rows)
        assert len(set(map(tuple, rows))) == len(rows)
    for x in range(len(skeleton.words)):
        own = [e for e, (_, y) in enumerate(skeleton.lexical.tolist()) if y == x]
        assert sorted(skeleton.rules_of_word[x].tolist()) == own


@pytest.mark.parametrize("orders", ORDERS, ids=str)
@given(tree=random_trees.trees())
def test_there_and_back_is_the_cleaned_tree(tree: Tree, orders: Markovisation) -> None:
    cleaned = clean(tree, root="TOP")
    made = skeletal_tree(tree, orders)
    if cleaned is None:
        assert made is None
        assert list(skeletal_trees([tree], orders)) == []
        return
    assert made is not None
    assert leaves(made) == leaves(cleaned)
    arrays = SkeletalTrees.of([made])  # two children or one word under each node
    assert treebank_tree(arrays.tree(0)) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "(TOP (S (NP (NP (NN a)))))",
        "(S (NP (DT a) (JJ b) (JJ c) (JJ d) (NN e)) (VP (VB f)))",
        "(TOP (NP (NP (NP (NN a)) (PP (IN of) (NP (NN b)))) (, ,) (NP (NN c)) (. .)))",
        "(NN a)",
        "(TOP (S (A a)) (S (B b)) (S (C c)))",
    ],
)
def test_chains_and_wide_nodes(text: str) -> None:
    tree = Tree.fromstring(text)
    made = skeletal_tree(tree)
    assert made is not None
    assert treebank_tree(made) == clean(tree, root="TOP")


def test_deep_trees_are_no_problem() -> None:
    made = skeletal_tree(random_trees.deep_tree(5000))
    assert made is not None
    arrays = SkeletalTrees.of([made])
    assert len(arrays.words) == 5001
    assert arrays.heights[0] == 5000
    assert arrays.ends[0] == 5001
    assert arrays.tree(0).label() == "S"


def test_other_words_stand_where_the_old_ones_did() -> None:
    rng = random.Random(3)
    tree = random_skeletal(rng, 9)
    before = tree.copy(deep=True)
    made = with_words(tree, [str(x) for x in range(9)])
    assert made.leaves() == [str(x) for x in range(9)]
    assert tree == before
    assert with_words(made, tree.leaves()) == tree


def test_rare_words_become_classes_in_place() -> None:
    trees = [Tree.fromstring("(S (A dog) (B runs))"), Tree.fromstring("(S (A dog) (B walking))")]
    made, vocabulary = with_classes(trees)
    for old, new in zip(trees, made, strict=True):
        assert new.leaves() == vocabulary.replace(old.leaves())
        assert [x.label() for x in new.subtrees()] == [x.label() for x in old.subtrees()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (A x))", "1 children of 'S'"),
        ("(S (A x) (B y) (C z))", "3 children of 'S'"),
        ("(S x (A y))", "2 children of 'S'"),
        ("(S (A x y) (B z))", "2 children of 'A'"),
        ("(S)", "0 children of 'S'"),
    ],
)
def test_trees_that_are_not_skeletal(text: str, message: str) -> None:
    fine = Tree.fromstring("(S (A x) (B y))")
    with pytest.raises(ArgumentError, match=f"tree 1 must be skeletal.*{message}"):
        SkeletalTrees.of([fine, Tree.fromstring(text)])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("(S (B y) (A x))", "S -> B A"),
        ("(S (A x) (B x))", "B -> x"),
        ("(S (A x) (C y))", "(S -> A C|C -> y)"),
        ("(S (A x) (B q))", "B -> q"),
    ],
)
def test_rules_that_the_skeleton_lacks(text: str, rule: str) -> None:
    skeleton = Skeleton.of([("S", "A", "B")], [("A", "x"), ("B", "y")])
    with pytest.raises(ArgumentError, match=f"rules of the skeleton. Got {rule}"):
        SkeletalTrees.of([Tree.fromstring(text)], skeleton)


def test_layouts_refuse_what_makes_no_sense() -> None:
    skeleton = Skeleton.of([("S", "A", "B")], [("A", "x"), ("B", "y")])
    for sizes in (0, [1, 2], [1, 0, 2], [1, 2, 3, 4]):
        with pytest.raises(ArgumentError, match="sizes must be"):
            Layout(skeleton, sizes)
    layout = Layout(skeleton, [1, 2, 3])
    assert layout.size == (1 + 2 + 3) + (2 + 3) + 1 * 2 * 3
    assert layout.distributions.tolist() == [0] * 6 + [2, 3, 4, 5, 6] + [1] * 6
