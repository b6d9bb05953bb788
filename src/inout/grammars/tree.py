"""`Tree`, of treebanks and parsers: nltk's, or plain ones, which do not need nltk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
        """The label of the root."""
        return self._label

    def set_label(self, label: str) -> None:
        """Give the root another label."""
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
