"""`SkeletalTrees`: many trees of binary and lexical rules in a few arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.grammars.tree import Tree, nltk_tree
from inout.latent.layout import Numbers
from inout.latent.skeleton import Skeleton


@dataclass(frozen=True, eq=False, repr=False)
class SkeletalTrees:
    """The nodes of all trees, tree after tree, each in preorder: a parent before its children.

    A node with the rule a → b c has two children, a node with a → x none. `rules` numbers the
    binary rules of the skeleton for the one kind and the lexical rules for the other.

    >>> from nltk.tree import Tree
    >>> trees = SkeletalTrees.of([Tree.fromstring("(S (A x) (S (A y) (A x)))")])
    >>> trees
    SkeletalTrees(1 trees, 5 nodes)
    >>> trees.parents.tolist(), trees.lefts.tolist(), trees.rights.tolist()
    ([-1, 0, 0, 2, 2], [1, -1, 3, -1, -1], [2, -1, 4, -1, -1])
    >>> trees.starts.tolist(), trees.ends.tolist()
    ([0, 0, 1, 1, 2], [3, 1, 3, 2, 3])
    """

    skeleton: Skeleton
    offsets: Numbers  # [t+1]: the nodes of tree i are offsets[i] to offsets[i+1]
    labels: Numbers  # [v]: nonterminals
    rules: Numbers  # [v]
    lefts: Numbers  # [v]: number of the left child, -1 above a word
    rights: Numbers  # [v]

    @staticmethod
    def of(trees: Iterable[Tree], skeleton: Skeleton | None = None) -> SkeletalTrees:
        """The trees in arrays; without a skeleton, over that of their own rules.

        A tree that is not skeletal, or uses a rule that the skeleton lacks, raises ArgumentError.
        """
        if hasattr(trees, "label"):
            raise ArgumentError("trees", "must be several trees. Got one; put it in a list")
        rows: list[tuple[str, ...]] = []
        offsets = [0]
        for number, tree in enumerate(trees):
            rows.extend(_rules_of(tree, number))
            offsets.append(len(rows))
        if skeleton is None:
            skeleton = Skeleton.of(
                (row for row in rows if len(row) == 3), (row for row in rows if len(row) == 2)
            )
        labels, rules = _numbers(rows, skeleton)
        leaf = np.fromiter((len(row) == 2 for row in rows), np.bool_, len(rows))
        lefts, rights = _children(leaf)
        return SkeletalTrees(skeleton, np.array(offsets, np.int64), labels, rules, lefts, rights)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Whether a node stands above a word: [v]."""
        return self.lefts < 0

    @cached_property
    def parents(self) -> Numbers:
        """The number of each node's parent, -1 for roots: [v]."""
        parents = np.full(len(self.labels), -1, np.int64)
        inner = np.flatnonzero(~self.is_leaf)
        parents[self.lefts[inner]] = inner
        parents[self.rights[inner]] = inner
        return parents

    @cached_property
    def trees(self) -> Numbers:
        """The number of the tree that each node belongs to: [v]."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @property
    def roots(self) -> Numbers:
        """The numbers of the roots: [t]."""
        return self.offsets[:-1]

    @cached_property
    def heights(self) -> NDArray[np.int32]:
        """The number of nodes on the longest way down to a word, without the node itself: [v]."""
        heights = np.zeros(len(self.labels), np.int32)
        # Preorder backwards has children first; a loop over plain lists is quickest here.
        found, lefts, rights = heights.tolist(), self.lefts.tolist(), self.rights.tolist()
        for v in range(len(found) - 1, -1, -1):
            if lefts[v] >= 0:
                found[v] = 1 + max(found[lefts[v]], found[rights[v]])
        return np.array(found, np.int32)

    @cached_property
    def starts(self) -> Numbers:
        """The position of the first word under each node: [v]."""
        # Words that come before a node in preorder, in all trees up to there.
        before: Numbers = np.cumsum(self.is_leaf) - self.is_leaf
        starts: Numbers = before - before[self.roots][self.trees]
        return starts

    @cached_property
    def ends(self) -> Numbers:
        """The position after the last word under each node: [v]."""
        # A binary tree of w words has 2w - 1 nodes, and its nodes are side by side.
        ends: Numbers = self.starts + (self.subtree_sizes + 1) // 2
        return ends

    @cached_property
    def subtree_sizes(self) -> Numbers:
        """The number of nodes of the subtree of each node: [v]."""
        sizes = [1] * len(self.labels)
        lefts, rights = self.lefts.tolist(), self.rights.tolist()
        for v in range(len(sizes) - 1, -1, -1):
            if lefts[v] >= 0:
                sizes[v] = 1 + sizes[lefts[v]] + sizes[rights[v]]
        return np.array(sizes, np.int64)

    @cached_property
    def words(self) -> Numbers:
        """The numbers of the words of all trees, in order."""
        words: Numbers = self.skeleton.lexical[self.rules[self.is_leaf], 1].astype(np.int64)
        return words

    @cached_property
    def tags(self) -> Numbers:
        """The labels above the words of all trees, in order."""
        return self.labels[self.is_leaf]

    def select(self, numbers: Sequence[int] | Numbers) -> SkeletalTrees:
        """These trees alone, in this order, over the same skeleton."""
        chosen = np.asarray(numbers, np.int64)
        if ((chosen < 0) | (chosen >= len(self))).any():
            raise ArgumentError("numbers", f"must be from 0 to {len(self) - 1}. Got others")
        sizes = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        shift = np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        nodes = np.arange(offsets[-1]) + shift
        lefts, rights = self.lefts[nodes], self.rights[nodes]
        return SkeletalTrees(
            self.skeleton,
            offsets,
            self.labels[nodes],
            self.rules[nodes],
            np.where(lefts >= 0, lefts - shift, -1),
            np.where(rights >= 0, rights - shift, -1),
        )

    def tree(self, number: int) -> Tree:
        """One of the trees, for people."""
        if not 0 <= number < len(self):
            raise ArgumentError("number", f"must be from 0 to {len(self) - 1}. Got {number}")
        names, words = self.skeleton.nonterminals, self.skeleton.words
        make, built = nltk_tree(), dict[int, Tree]()
        for v in range(self.offsets[number + 1] - 1, self.offsets[number] - 1, -1):
            if self.lefts[v] < 0:
                children: list[str | Tree] = [words[self.skeleton.lexical[self.rules[v], 1]]]
            else:
                children = [built.pop(self.lefts[v]), built.pop(self.rights[v])]
            built[v] = make(names[self.labels[v]], children)
        return built[int(self.offsets[number])]

    def __repr__(self) -> str:
        return f"SkeletalTrees({len(self)} trees, {len(self.labels)} nodes)"


def _rules_of(tree: Tree, number: int) -> Iterator[tuple[str, ...]]:
    """The rules of a tree by name, in preorder."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if not isinstance(node, Tree):
            wanted = f": tree {number} must have a tag above every word"
            raise ArgumentError("trees", f"{wanted}. Got {node!r:.80}")
        children = list(node)
        if len(children) == 1 and isinstance(children[0], str):
            yield node.label(), children[0]
        elif len(children) == 2 and all(isinstance(child, Tree) for child in children):
            yield node.label(), children[0].label(), children[1].label()
            stack.extend(reversed(children))
        else:
            raise ArgumentError(
                "trees",
                f": tree {number} must be skeletal: two subtrees or one word under each node. "
                f"Got {len(children)} children of {node.label()!r} (`inout.latent.skeletal_tree` "
                "collapses and binarises; a tag has one word)",
            )


def _numbers(rows: list[tuple[str, ...]], skeleton: Skeleton) -> tuple[Numbers, Numbers]:
    """The label and the rule of every node, in numbers."""
    symbols, words = skeleton.nonterminal_numbers, skeleton.word_numbers
    known: dict[tuple[str, ...], tuple[int, int]] = {}
    for row in set(rows):
        a = symbols.get(row[0], -1)
        if len(row) == 3:
            places = a, symbols.get(row[1], -1), symbols.get(row[2], -1)
            rule = skeleton.binary_numbers.get(places)
        else:
            rule = skeleton.lexical_numbers.get((a, words.get(row[1], -1)))
        if rule is None:
            shown = f"{row[0]} -> {' '.join(row[1:])}"
            raise ArgumentError("trees", f"must have rules of the skeleton. Got {shown}")
        known[row] = a, rule
    found = np.array([known[row] for row in rows], np.int64).reshape(len(rows), 2)
    return found[:, 0].copy(), found[:, 1].copy()


def _children(leaf: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """The children of each node, from which nodes in preorder have none."""
    lefts = [-1] * len(leaf)
    rights = [-1] * len(leaf)
    waiting: list[int] = []  # subtrees to the right of here, the nearest on top
    for v in range(len(leaf) - 1, -1, -1):
        if not leaf[v]:
            lefts[v], rights[v] = waiting.pop(), waiting.pop()
        waiting.append(v)
    return np.array(lefts, np.int64), np.array(rights, np.int64)
