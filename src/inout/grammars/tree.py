"""`Tree`, of treebanks and parsers: nltk's, or plain ones without nltk; walks over trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nltk.tree import Tree as Tree
else:
    # Trees of both kinds are lists of their children. Importing nltk takes more than a second.
    Tree = list


class PlainTree(list[Any]):
    """A label and children, which are trees and words: a minimal `nltk.Tree`.

    Functions on trees return the kind of tree they are given.

    >>> tree = PlainTree("NP", [PlainTree("DT", ["the"]), PlainTree("NN", ["dog"])])
    >>> tree.label(), len(tree)
    ('NP', 2)
    """

    __slots__ = ("_label",)

    def __init__(self, label: str, children: Iterable[Any] = ()) -> None:
        super().__init__(children)
        self._label = label

    def label(self) -> str:
        return self._label

    def set_label(self, label: str) -> None:
        self._label = label

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PlainTree) and self._label == other._label and super().__eq__(other)
        )

    def __repr__(self) -> str:
        return f"PlainTree({self._label!r}, {super().__repr__()})"


@cache
def nltk_tree() -> Callable[[str, list[Any]], Tree]:
    """The class `nltk.Tree`."""
    from nltk.tree import Tree

    return Tree  # type: ignore[no-any-return]


def like(tree: Tree, label: str, children: list[Any]) -> Tree:
    """A tree of this label and these children, of the same kind as `tree`."""
    make = PlainTree if isinstance(tree, PlainTree) else nltk_tree()
    return make(label, children)


def as_nltk(tree: Tree) -> Tree:
    """The same tree as an `nltk.Tree`; it may be one already.

    >>> print(as_nltk(PlainTree("NP", [PlainTree("DT", ["the"]), PlainTree("NN", ["dog"])])))
    (NP (DT the) (NN dog))
    """
    make = nltk_tree()
    made = make(tree.label(), [])
    agenda = [(tree, made)]
    while agenda:
        old, new = agenda.pop()
        for child in old:
            if isinstance(child, Tree):
                new.append(make(child.label(), []))
                agenda.append((child, new[-1]))
            else:
                new.append(child)
    return made


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
