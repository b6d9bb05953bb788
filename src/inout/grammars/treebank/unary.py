"""Unary chains as single nodes with joined labels, and back."""

from __future__ import annotations

from functools import partial
from typing import Any

from inout._core.errors import ArgumentError
from inout.grammars.tree import Tree, like
from inout.grammars.treebank.walking import is_preterminal, rebuild


def collapse_unary(
    tree: Tree, *, separator: str = "+", tags: bool = False, root: bool = False
) -> Tree:
    """The tree with one node for every chain of nodes that have a single child.

    S → VP → VBD NP becomes S+VP → VBD NP. A chain ends above the tag of a word, unless `tags`,
    and begins below the root, unless `root`. `expand_unary` undoes it exactly, so a label that
    contains the separator already raises `ArgumentError`.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(TOP (S (VP (VB go) (NP (NN home)))))")
    >>> print(collapse_unary(tree))
    (TOP (S+VP (VB go) (NP (NN home))))
    >>> print(collapse_unary(tree, tags=True, root=True))
    (TOP+S+VP (VB go) (NP+NN home))
    """
    if not separator:
        raise ArgumentError("separator", "must have at least one character. Got '' instead")
    top = None if root else tree
    return rebuild(tree, partial(_joined, separator=separator, tags=tags, top=top))[0]


def _joined(
    node: Tree, children: list[Any], *, separator: str, tags: bool, top: Tree | None
) -> list[Any]:
    label = node.label()
    if separator in label:
        raise ArgumentError(
            "separator",
            f"must be a text that no label contains, or the chains could not be told "
            f"apart again. Got {separator!r}, which is in the label {label!r}",
        )
    # The child made here may have one word and yet be a chain; the old one tells.
    chain = len(node) == 1 and isinstance(node[0], Tree) and (tags or not is_preterminal(node[0]))
    if not chain or node is top:
        return [like(node, label, children)]
    (only,) = children
    return [like(node, f"{label}{separator}{only.label()}", list(only))]


def expand_unary(tree: Tree, *, separator: str = "+") -> Tree:
    """The tree with every joined label as a chain of nodes again: undoes `collapse_unary`.

    >>> from nltk.tree import Tree
    >>> print(expand_unary(Tree.fromstring("(TOP+S+VP (VB go) (NP+NN home))")))
    (TOP (S (VP (VB go) (NP (NN home)))))
    """
    return rebuild(tree, partial(_chained, separator=separator))[0]


def _chained(node: Tree, children: list[Any], *, separator: str) -> list[Any]:
    parts = node.label().split(separator)
    if "" in parts:  # the tag of a plus sign, say, which was never joined
        parts = [node.label()]
    for label in reversed(parts):
        children = [like(node, label, children)]
    return children
