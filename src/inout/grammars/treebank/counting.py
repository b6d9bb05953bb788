"""Counts of a treebank: productions, words under their tags, roots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from inout._core.errors import ArgumentError
from inout.grammars.derivations import leaves
from inout.grammars.tree import Tree
from inout.grammars.treebank.walking import is_preterminal, preorder
from inout.grammars.words import Vocabulary


@dataclass(frozen=True)
class TreebankCounts:
    """How often each production, each word under its tag and each root label occurs."""

    rules: Counter[tuple[str, tuple[str, ...]]]
    """(left side, right side) of nodes with nodes below them."""

    lexicon: Counter[tuple[str, str]]
    """(tag, word or class of words)."""

    roots: Counter[str]
    """Labels of roots; their sum is the number of trees."""


def count_productions(
    trees: Iterable[Tree], vocabulary: Vocabulary | None = None
) -> TreebankCounts:
    """The counts from which a grammar is read off; rare words counted as their classes.

    Every word needs a tag of its own. O(number of nodes).

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(S (NP (PRP she)) (VP (VBD saw) (NP (PRP it))))")
    >>> counts = count_productions([tree])
    >>> counts.rules["NP", ("PRP",)], counts.lexicon["PRP", "it"], counts.roots["S"]
    (2, 1, 1)
    """
    rules: Counter[tuple[str, tuple[str, ...]]] = Counter()
    lexicon: Counter[tuple[str, str]] = Counter()
    roots: Counter[str] = Counter()
    for tree in trees:
        roots[tree.label()] += 1
        words = leaves(tree)
        if vocabulary is not None:
            words = vocabulary.replace(words)
        remaining = iter(words)
        for node in preorder(tree):
            if is_preterminal(node):
                lexicon[node.label(), next(remaining)] += 1
            else:
                rules[node.label(), _right_side(node)] += 1
    return TreebankCounts(rules, lexicon, roots)


def _right_side(node: Tree) -> tuple[str, ...]:
    for child in node:
        if not isinstance(child, Tree):
            raise ArgumentError(
                "trees",
                f": every word must have a tag of its own. Got the word {child!r} beside others "
                f"below {node.label()!r}",
            )
    return tuple(child.label() for child in node)
