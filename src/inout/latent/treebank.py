"""Trees of a treebank as skeletal trees, and parses as trees of the treebank again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from inout._core.errors import ArgumentError
from inout.grammars.markovisation import Markovisation
from inout.grammars.tree import Tree, like
from inout.grammars.treebank import (
    clean,
    collapse_unary,
    expand_unary,
    is_preterminal,
    leaves,
    markovise,
    rebuild,
    restore,
    with_root,
    without_root,
)
from inout.grammars.words import Vocabulary

ROOT = "TOP"
# Labels know nothing but their parent: what else helps is for the latent values to find out.
FORGETFUL = Markovisation(horizontal=0, vertical=1)
JOINT, _OWN_PLUS = "+", "\uff0b"


def skeletal_tree(tree: Tree, markovisation: Markovisation = FORGETFUL) -> Tree | None:
    """The tree with two children or one word under each node; None if nothing but traces is left.

    It is cleaned (`treebank.clean`), loses the root TOP above its sentence, gets one node for each
    chain of unary rules (S+VP, NP+NN), and is binarised. By default new nodes remember only their
    parent: the rest is left to their latent values.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(TOP (S (VP (VB see) (NP (DT the) (JJ old) (NN cat)))))")
    >>> print(skeletal_tree(tree))
    (S+VP (VB see) (NP (DT the) (NP|<> (JJ old) (NN cat))))

    A plus sign in a label of the treebank is replaced by a full-width one (`P＋D`).
    """
    if not markovisation.binary:
        raise ArgumentError("markovisation", "must be binary: latent models know no longer rules")
    cleaned = clean(tree, root=ROOT)
    if cleaned is None:
        return None
    escaped = _relabelled(without_root(cleaned), JOINT, _OWN_PLUS)
    collapsed = collapse_unary(escaped, tags=True, root=True)
    return markovise(collapsed, markovisation)


def treebank_tree(tree: Tree) -> Tree:
    """The tree of the treebank that a skeletal tree stands for, with the root TOP.

    >>> from nltk.tree import Tree
    >>> print(treebank_tree(Tree.fromstring("(S+VP (VB see) (NP (DT the) (NN cat)))")))
    (TOP (S (VP (VB see) (NP (DT the) (NN cat)))))
    """
    return with_root(_relabelled(expand_unary(restore(tree)), _OWN_PLUS, JOINT), ROOT)


def skeletal_trees(
    trees: Iterable[Tree], markovisation: Markovisation = FORGETFUL
) -> Iterator[Tree]:
    """`skeletal_tree` of each tree that has words."""
    if hasattr(trees, "label"):
        raise ArgumentError("trees", "must be several trees. Got one; put it in a list")
    for tree in trees:
        made = skeletal_tree(tree, markovisation)
        if made is not None:
            yield made


def with_classes(trees: Sequence[Tree], *, threshold: int = 1) -> tuple[list[Tree], Vocabulary]:
    """The trees with classes in place of words seen at most `threshold` times, and the vocabulary.

    >>> from nltk.tree import Tree
    >>> trees = [Tree.fromstring("(S (A x) (B walked))"), Tree.fromstring("(S (A x) (B talked))")]
    >>> replaced, vocabulary = with_classes(trees)
    >>> print(replaced[0], vocabulary.replace(["x", "stalked"]))
    (S (A x) (B UNK-LC-ed)) ['x', 'UNK-LC-ed']
    """
    vocabulary = Vocabulary.from_sentences((leaves(tree) for tree in trees), threshold=threshold)
    return [with_words(tree, vocabulary.replace(leaves(tree))) for tree in trees], vocabulary


def with_words(tree: Tree, words: Sequence[str]) -> Tree:
    """The skeletal tree with other words for its leaves."""
    rest = list(words)

    def replaced(node: Tree, children: list[Any]) -> list[Any]:
        # Words come from right to left.
        return [like(node, node.label(), [rest.pop()] if is_preterminal(node) else children)]

    made: Tree = rebuild(tree, replaced)[0]
    return made


def treebank_label(label: str) -> str:
    """The original label of the treebank.

    >>> treebank_label("P＋D")
    'P+D'
    """
    return label.replace(_OWN_PLUS, JOINT)


def _relabelled(tree: Tree, old: str, new: str) -> Tree:
    """The tree with another text for one in all labels."""

    def renamed(node: Tree, children: list[Any]) -> list[Any]:
        return [like(node, node.label().replace(old, new), children)]

    made: Tree = rebuild(tree, renamed)[0]
    return made
