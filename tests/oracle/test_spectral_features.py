"""Features and heads against plain recursion over trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from nltk.tree import Tree

from inout.grammars import Markovisation
from inout.latent.spectral import features as library
from inout.latent.spectral.features import DEFAULT
from inout.latent.spectral.heads import PENN, HeadTable, head_leaves
from inout.latent.spectral.projection import feature_matrix
from inout.latent.treebank import skeletal_trees
from inout.latent.trees import SkeletalTrees
from tests.support import assert_close

PHRASES = ["S", "NP", "VP", "PP", "ADJP", "WHNP", "XP"]
TAGS = ["NN", "NNS", "DT", "JJ", "VBD", "IN", "CD", ","]
WORDS = ["cells", "bind", "of", "the", "IL-2", "a"]


def random_trees(seed: int, count: int = 60) -> list[Tree]:
    """Skeletal trees of random treebank trees, with chains of unary rules and wide nodes."""
    random = np.random.default_rng(seed)

    def phrase(depth: int) -> Tree:
        children = []
        for _ in range(random.choice([1, 2, 3, 4], p=[0.2, 0.4, 0.2, 0.2])):
            if depth == 0 or random.random() < 0.5:
                children.append(Tree(random.choice(TAGS), [str(random.choice(WORDS))]))
            else:
                children.append(phrase(depth - 1))
        return Tree(str(random.choice(PHRASES)), children)

    directions = ["right", "left"]
    return [
        made
        for i in range(count)
        for made in skeletal_trees([phrase(4)], Markovisation(0, 1, directions[i % 2]))
    ]


class Node:
    """A node of a tree with all that its features could want."""

    def __init__(self, tree: Tree, parent: Node | None, side: str, start: int) -> None:
        self.label, self.parent, self.side, self.start = tree.label(), parent, side, start
        self.end = start + len(tree.leaves())
        self.children: list[Node] = []
        self.word = tree[0] if isinstance(tree[0], str) else None
        if self.word is None:
            self.children.append(Node(tree[0], self, "left", start))
            self.children.append(Node(tree[1], self, "right", self.children[0].end))

    def __iter__(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child

    @property
    def rule(self) -> tuple[Any, ...]:
        return self.label, self.word, *(child.label for child in self.children)

    @property
    def root(self) -> Node:
        return self if self.parent is None else self.parent.root

    @property
    def leaves(self) -> list[Node]:
        return [node for node in self if node.word is not None]

    @property
    def sibling(self) -> Node | None:
        if self.parent is None:
            return None
        return self.parent.children[self.side == "left"]

    @property
    def head(self) -> Node:
        """The leaf that speaks for the node: look for each wished label from its side."""
        if self.word is not None:
            return self
        candidates = self.candidates()
        category = self.label.split("|<")[0].split("+")[-1]
        for side, labels in PENN.get(category, ()):
            if category in ("NP", "NX", "WHNP"):
                groups = [labels.split()]
            else:
                groups = [[label] for label in labels.split()]
            for group in groups:
                for node in candidates if side == "left" else reversed(candidates):
                    if node.label.split("+")[0] in group and not node.is_part_of(self):
                        return node.head
        return candidates[-1].head

    def candidates(self) -> list[Node]:
        """The children that the constituent of the node had before it was binarised."""
        return [
            candidate
            for child in self.children
            for candidate in (child.candidates() if child.is_part_of(self) else [child])
        ]

    def is_part_of(self, other: Node) -> bool:
        return "|<" in self.label and self.label.split("|<")[0] == other.label.split("|<")[0]

    @property
    def governor(self) -> Node | None:
        if "|<" in self.label and self.parent is not None:
            return self.parent.governor
        above = self.parent
        while above is not None and above.head is self.head:
            above = above.parent
        return None if above is None else above.head

    def around(self, place: int) -> Node | str:
        leaves = self.root.leaves
        return leaves[place] if 0 <= place < len(leaves) else "end"


def width(count: int) -> int:
    return sum(count >= bound for bound in (1, 2, 3, 4, 5, 7, 10, 15, 25, 40))


def side_rule(node: Node | None) -> Any:
    if node is None or node.parent is None:
        return "root"
    return node.side, node.parent.rule


def lineage(node: Node) -> Any:
    found = []
    for _ in range(3):
        found.append((node.side, node.parent.label) if node.parent else None)
        if node.parent is None:
            break
        node = node.parent
    else:
        found.append(node.side)
    return tuple(found)


INSIDE = {
    "rule": lambda n: n.rule,
    "left_label": lambda n: n.children[0].label,
    "right_label": lambda n: n.children[1].label,
    "left_rule": lambda n: (n.rule, n.children[0].rule),
    "right_rule": lambda n: (n.rule, n.children[1].rule),
    "head_word": lambda n: n.head.word,
    "head_tag": lambda n: n.head.label,
    "span_length": lambda n: width(n.end - n.start),
    "first_word": lambda n: n.leaves[0].word,
    "last_word": lambda n: n.leaves[-1].word,
    "first_tag": lambda n: n.leaves[0].label,
    "last_tag": lambda n: n.leaves[-1].label,
    "suffix": lambda n: n.word[-3:],
}
OUTSIDE = {
    "parent_rule": side_rule,
    "grandparent_rule": lambda n: (side_rule(n), n.parent and side_rule(n.parent)),
    "ancestors": lineage,
    "sibling_label": lambda n: n.sibling and (n.side, n.sibling.label),
    "sibling_rule": lambda n: n.sibling and (n.side, n.sibling.rule),
    "word_before": lambda n: getattr(n.around(n.start - 1), "word", "end"),
    "word_after": lambda n: getattr(n.around(n.end), "word", "end"),
    "tag_before": lambda n: getattr(n.around(n.start - 1), "label", "end"),
    "tag_after": lambda n: getattr(n.around(n.end), "label", "end"),
    "width_before": lambda n: width(n.start),
    "width_after": lambda n: width(len(n.root.leaves) - n.end),
    "governor_word": lambda n: n.governor and n.governor.word,
    "governor_tag": lambda n: n.governor.label if n.governor else "none",
    "sibling_head": lambda n: n.sibling and (n.side, n.sibling.head.label),
}
TREES = random_trees(0)
ARRAYS = SkeletalTrees.of(TREES)
NODES = [node for tree in TREES for node in Node(tree, None, "", 0)]


def test_trees_have_it_all():
    names = ARRAYS.skeleton.nonterminals
    assert len(NODES) == len(ARRAYS.labels) > 500
    assert any("+" in name and "|<" in name for name in names)
    assert any(node.parent and node.is_part_of(node.parent) for node in NODES)


def test_heads():
    places = {id(node): i for i, node in enumerate(NODES)}
    assert head_leaves(ARRAYS).tolist() == [places[id(node.head)] for node in NODES]


def test_ties():
    """Of two equally wanted children, the one on the side of the wish, wherever it was nested."""
    for text, word in (
        ("(S (S|<> (DT a) (VP b)) (VP c))", "b"),
        ("(S (VP a) (S|<> (DT b) (VP c)))", "a"),
        ("(NP (NP|<> (NN a) (NN b)) (DT c))", "b"),
        ("(NP (NN a) (NP|<> (NN b) (PP c)))", "b"),
        ("(XP (XP|<> (NN a) (NN b)) (DT c))", "c"),
    ):
        tree = SkeletalTrees.of([Tree.fromstring(text)])
        leaf = head_leaves(tree)[0]
        assert tree.skeleton.words[tree.skeleton.lexical[tree.rules[leaf], 1]] == word


def test_a_table_of_ones_own():
    leftmost = HeadTable({"XP": (("left", "DT"),)})
    tree = SkeletalTrees.of([Tree.fromstring("(XP (NN a) (XP|<> (DT b) (XP|<> (DT c) (NN d))))")])
    leaves = head_leaves(tree, leftmost)
    assert tree.skeleton.words[tree.skeleton.lexical[tree.rules[leaves[0]], 1]] == "b"
    assert tree.skeleton.words[tree.skeleton.lexical[tree.rules[head_leaves(tree)[0]], 1]] == "d"


def test_every_feature_is_checked():
    assert set(DEFAULT.inside) == set(INSIDE)
    assert set(DEFAULT.outside) == set(OUTSIDE)


@pytest.mark.parametrize("name", [*INSIDE, *OUTSIDE])
def test_features(name):
    """At nodes of a label, numbers are equal where the values are, and -1 where there is none."""
    keys = {**DEFAULT.inside, **DEFAULT.outside}[name](ARRAYS).tolist()
    values: dict[Any, Any] = {}
    numbers: dict[Any, Any] = {}
    for node, key in zip(NODES, keys, strict=True):
        if name in INSIDE and (node.word is None) == (name == "suffix") and name != "rule":
            value = None
        else:
            value = {**INSIDE, **OUTSIDE}[name](node)
        assert (value is None) == (key == -1)
        if value is not None:
            assert key >= 0
            assert values.setdefault((node.label, key), value) == value
            assert numbers.setdefault((node.label, value), key) == key
    assert len({key for _, key in values}) > 2


def test_both():
    keys = library.both(library.head_tag, library.governor_tag)(ARRAYS)
    first, second = library.head_tag(ARRAYS), library.governor_tag(ARRAYS)
    assert ((keys < 0) == ((first < 0) | (second < 0))).all()
    fires = keys >= 0
    pairs = set(zip(first[fires].tolist(), second[fires].tolist(), strict=True))
    assert len(pairs) == len(set(keys[fires].tolist()))


@pytest.mark.parametrize("scaling", [None, 0.0, 5.0])
@pytest.mark.parametrize("fewest", [0.0, 3.0])
def test_matrices(scaling, fewest):
    random = np.random.default_rng(0)
    keys = [random.integers(-1, 6, 30), random.integers(-1, 9, 30)]
    weights = random.random(30) * 2
    columns = [np.ones(30)]
    for column in keys:
        for key in range(9):
            fires = (column == key).astype(float)
            if fires.any() and weights @ fires >= fewest:
                columns.append(fires)
    expected = np.array(columns).T
    if scaling is not None:
        expected = expected * np.sqrt(weights.sum() / (weights @ expected + scaling))
    found = feature_matrix(keys, weights, fewest=fewest, scaling=scaling)
    assert_close(found.toarray(), expected)
