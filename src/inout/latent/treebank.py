"""Trees of a treebank as skeletal trees, and parses as trees of the treebank again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from nltk.tree import Tree

from inout.grammars.treebank import (
    binarise,
    clean,
    collapse_unary,
    expand_unary,
    leaves,
    restore,
    with_root,
    without_root,
)
from inout.grammars.words import Vocabulary

ROOT = "TOP"


def skeletal_tree(
    tree: Tree,
    *,
    horizontal: int | None = 0,
    vertical: int = 1,
    direction: Literal["right", "left"] = "right",
) -> Tree | None:
    """The tree with two children or one word under each node; None if nothing but traces is left.

    It is cleaned (`treebank.clean`), loses the root TOP above its sentence, gets one node for each
    chain of unary rules (S+VP, NP+NN), and is binarised. By default new nodes remember nothing but
    their parent: what else they should know is for their latent values to find out.

    >>> tree = Tree.fromstring("(TOP (S (VP (VB see) (NP (DT the) (JJ old) (NN cat)))))")
    >>> print(skeletal_tree(tree))
    (S+VP (VB see) (NP (DT the) (NP|<> (JJ old) (NN cat))))
    """
    cleaned = clean(tree, root=ROOT)
    if cleaned is None:
        return None
    collapsed = collapse_unary(without_root(cleaned), tags=True, root=True)
    return binarise(collapsed, horizontal=horizontal, vertical=vertical, direction=direction)


def treebank_tree(tree: Tree) -> Tree:
    """The tree of the treebank that a skeletal tree stands for, with the root TOP.

    >>> print(treebank_tree(Tree.fromstring("(S+VP (VB see) (NP (DT the) (NN cat)))")))
    (TOP (S (VP (VB see) (NP (DT the) (NN cat)))))
    """
    return with_root(expand_unary(restore(tree)), ROOT)


def skeletal_trees(
    trees: Iterable[Tree],
    *,
    horizontal: int | None = 0,
    vertical: int = 1,
    direction: Literal["right", "left"] = "right",
) -> Iterator[Tree]:
    """`skeletal_tree` of each tree that has words."""
    for tree in trees:
        made = skeletal_tree(tree, horizontal=horizontal, vertical=vertical, direction=direction)
        if made is not None:
            yield made


def with_classes(trees: Sequence[Tree], *, threshold: int = 1) -> tuple[list[Tree], Vocabulary]:
    """The trees with classes in place of words seen at most `threshold` times, and the vocabulary.

    >>> trees = [Tree.fromstring("(S (A x) (B walked))"), Tree.fromstring("(S (A x) (B talked))")]
    >>> replaced, vocabulary = with_classes(trees)
    >>> print(replaced[0], vocabulary.replace(["x", "stalked"]))
    (S (A x) (B UNK-LC-ed)) ['x', 'UNK-LC-ed']
    """
    vocabulary = Vocabulary.from_sentences((leaves(tree) for tree in trees), threshold=threshold)
    return [with_words(tree, vocabulary.replace(leaves(tree))) for tree in trees], vocabulary


def with_words(tree: Tree, words: Sequence[str]) -> Tree:
    """The tree with other words for its leaves."""
    copied = tree.copy(deep=True)
    rest = iter(words)
    stack = [copied]
    while stack:
        node = stack.pop()
        if isinstance(node[0], Tree):
            stack.extend(reversed(node))
        else:
            node[0] = next(rest)
    return copied
