"""Cleaning of trees: function tags, traces, repeated nodes, roots, punctuation. New trees."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from inout._core.errors import ArgumentError
from inout.grammars.tree import Tree, is_preterminal, like, rebuild

ROOTS = frozenset({"", "TOP", "ROOT", "S1", "VROOT"})
"""Labels that treebanks and parsers give to the node above the sentence."""

PUNCTUATION = frozenset({",", ":", "``", "''", "."})
"""Tags of punctuation in the Penn Treebank, as evalb's COLLINS.prm deletes them."""

EMPTY = frozenset({"-NONE-"})
"""Tags of traces and other empty elements in the Penn Treebank."""


def base_label(label: str, keep: Collection[str] = ()) -> str:
    """The label without function tags and indices, except the tags to `keep`.

    Labels that begin with a hyphen (-LRB-, -NONE-) have none.

    >>> [base_label(label) for label in ("NP-SBJ-1", "NP=2", "-LRB-", "PRP$")]
    ['NP', 'NP', '-LRB-', 'PRP$']
    >>> base_label("NP-TMP-CLR=3", keep=["TMP"])
    'NP-TMP'
    """
    return _base_label(label, frozenset(keep))


@lru_cache(maxsize=1 << 14)
def _base_label(label: str, keep: frozenset[str]) -> str:
    if label.startswith(("-", "=")):
        return label
    base, *functions = re.split("[-=]", label)
    return "-".join([base, *(function for function in functions if function in keep)])


def strip_functions(tree: Tree, keep: Collection[str] = ()) -> Tree:
    """The tree with `base_label` in place of every label.

    >>> from nltk.tree import Tree
    >>> print(strip_functions(Tree.fromstring("(S (NP-SBJ-1 (PRP she)) (VP (VBD slept)))")))
    (S (NP (PRP she)) (VP (VBD slept)))
    """
    kept = frozenset(keep)
    return rebuild(tree, lambda node, down: [like(node, _base_label(node.label(), kept), down)])[0]


def drop_empty(tree: Tree, empty: Collection[str] = EMPTY) -> Tree | None:
    """The tree without the words of these tags and the nodes that they leave empty.

    None where nothing is left.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(S (NP (-NONE- *)) (VP (TO to) (VP (VB go))))")
    >>> print(drop_empty(tree))
    (S (VP (TO to) (VP (VB go))))
    """
    left = rebuild(tree, lambda node, down: _kept(node, down, empty))
    return left[0] if left else None


def _kept(node: Tree, children: list[Any], dropped: Collection[str]) -> list[Any]:
    if not children or (is_preterminal(node) and node.label() in dropped):
        return []
    return [like(node, node.label(), children)]


def drop_punctuation(tree: Tree, tags: Collection[str] = PUNCTUATION) -> Tree | None:
    """The tree without punctuation and the nodes that held nothing else.

    None where nothing is left.

    >>> from nltk.tree import Tree
    >>> print(drop_punctuation(Tree.fromstring("(S (VP (VB go)) (PRN (: --)) (. !))")))
    (S (VP (VB go)))
    """
    return drop_empty(tree, tags)


def merge_repeats(tree: Tree) -> Tree:
    """The tree with one node for every chain X → X; traces that are dropped leave such chains.

    >>> from nltk.tree import Tree
    >>> print(merge_repeats(Tree.fromstring("(S (NP (NP (PRP she))) (VP (VBD slept)))")))
    (S (NP (PRP she)) (VP (VBD slept)))
    """
    return rebuild(tree, _merged)[0]


def _merged(node: Tree, children: list[Any]) -> list[Any]:
    # A word with the label of its tag, (, ,), is no chain: only nodes merge.
    only = children[0] if len(children) == 1 else None
    same = isinstance(only, Tree) and only.label() == node.label()
    return [only if same else like(node, node.label(), children)]


def with_root(tree: Tree, root: str = "TOP") -> Tree:
    """The tree with a root of this label, replacing its own root (`ROOTS`) if it has one.

    >>> from nltk.tree import Tree
    >>> for text in ("(S (VB go))", "(ROOT (S (VB go)))", "(S1 (S (VB go)))"):
    ...     print(with_root(Tree.fromstring(text)))
    (TOP (S (VB go)))
    (TOP (S (VB go)))
    (TOP (S (VB go)))
    """
    if not root:
        raise ArgumentError("root", "must be a label of at least one character. Got '' instead")
    copy = _copy(tree)
    if copy.label() in ROOTS or copy.label() == root:
        copy.set_label(root)
        return copy
    return like(copy, root, [copy])


def without_root(tree: Tree) -> Tree:
    """The tree below the root (`ROOTS`), where there is one with a single tree below it.

    >>> from nltk.tree import Tree
    >>> print(without_root(Tree.fromstring("(TOP (S (VB go)))")))
    (S (VB go))
    """
    copy = _copy(tree)
    if copy.label() in ROOTS and len(copy) == 1 and isinstance(copy[0], Tree):
        return copy[0]
    return copy


def clean(
    tree: Tree,
    *,
    functions: bool = False,
    keep: Collection[str] = (),
    empty: Collection[str] = EMPTY,
    repeats: bool = False,
    punctuation: bool = True,
    root: str | None = "TOP",
) -> Tree | None:
    """The tree as parsers are trained on it, or None if it had only traces.

    Keywords that are true keep function tags (or those in `keep`), chains X → X (`repeats`) and
    punctuation. Words tagged as `empty` are removed, with the nodes above them. The root becomes
    `root`; None keeps it.

    >>> from nltk.tree import Tree
    >>> text = "( (S (NP-SBJ (-NONE- *-1)) (VP (VB go) (NP-TMP (NN today))) (. .)) )"
    >>> print(clean(Tree.fromstring(text)))
    (TOP (S (VP (VB go) (NP (NN today))) (. .)))
    """
    cleaned = drop_empty(tree, empty)
    if cleaned is not None and not punctuation:
        cleaned = drop_punctuation(cleaned)
    if cleaned is None:
        return None
    if not functions:
        cleaned = strip_functions(cleaned, keep)
    if not repeats:
        cleaned = merge_repeats(cleaned)
    return cleaned if root is None else with_root(cleaned, root)


def _copy(tree: Tree) -> Tree:
    return rebuild(tree, lambda node, down: [like(node, node.label(), down)])[0]
