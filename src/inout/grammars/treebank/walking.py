"""Walks over trees without recursion: a binarised sentence may be deeper than Python's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from inout.grammars.tree import Tree


def is_preterminal(node: Any) -> bool:
    """Whether the node is a tag over one word.

    >>> from nltk.tree import Tree
    >>> is_preterminal(Tree("NN", ["dog"])), is_preterminal(Tree("NP", [Tree("NN", ["dog"])]))
    (True, False)
    """
    return isinstance(node, Tree) and len(node) == 1 and not isinstance(node[0], Tree)


def preorder(tree: Tree) -> Iterator[Tree]:
    """All nodes of the tree, a parent before its children and these from left to right.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(S (NP (PRP she)) (VP (VBD saw) (NP (PRP it))))")
    >>> " ".join(node.label() for node in preorder(tree))
    'S NP PRP VP VBD NP PRP'
    """
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(child for child in reversed(node) if isinstance(child, Tree))


def labels_above_words(tree: Tree) -> list[str]:
    """The label of the node above each word, from left to right.

    >>> from nltk.tree import Tree
    >>> labels_above_words(Tree.fromstring("(S (NP she) (VP can (VB fish)))"))
    ['NP', 'VP', 'VB']
    """
    labels, stack = [], [("", tree)]
    while stack:
        above, node = stack.pop()
        if isinstance(node, Tree):
            stack.extend((node.label(), child) for child in reversed(node))
        else:
            labels.append(above)
    return labels


def rebuild(tree: Tree, rule: Callable[[Tree, list[Any]], list[Any]]) -> list[Any]:
    """The result of a rule applied from the leaves up to the root.

    `rule(node, children)` gets an old node with the new children and returns what replaces
    that node: nothing, one tree, or several nodes and words side by side.
    O(number of nodes) calls.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(S (NP (PRP she)) (VP (VBD slept)))")
    >>> def lowered(node, children):
    ...     return [Tree(node.label().lower(), children)]
    >>> print(rebuild(tree, lowered)[0])
    (s (np (prp she)) (vp (vbd slept)))
    """
    done: list[list[Any]] = []
    # Backwards through preorder a node comes just after its children, the first of them on top.
    for node in reversed(list(preorder(tree))):
        children: list[Any] = []
        for child in node:
            if isinstance(child, Tree):
                children.extend(done.pop())
            else:
                children.append(child)
        done.append(rule(node, children))
    return done.pop()
