"""Trees to bracketed text, one per line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from inout._core.errors import ArgumentError
from inout.grammars.tree import Tree
from inout.io.files import write_text

_SEPARATOR = re.compile(r"[\s()]", re.ASCII)


def format_tree(tree: Tree) -> str:
    """The tree in brackets on one line, as `parse_trees` reads it.

    Brackets within words are written -LRB- and -RRB-, as in the Penn Treebank. A label or word
    that is empty or has white space in it, or a label with brackets, raises `ArgumentError`.

    >>> from nltk.tree import Tree
    >>> format_tree(Tree("S", [Tree("NN", ["f(x)"]), Tree("VBZ", ["grows"])]))
    '(S (NN f-LRB-x-RRB-) (VBZ grows))'
    """
    pieces: list[str] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if node is None:
            pieces.append(")")
        elif isinstance(node, Tree):
            pieces.append(f" ({_checked(node.label(), 'label')}")
            stack.append(None)
            stack.extend(reversed(node))
        else:
            word = str(node).replace("(", "-LRB-").replace(")", "-RRB-")
            pieces.append(f" {_checked(word, 'word')}")
    return "".join(pieces)[1:]


def write_trees(path: str | Path, trees: Iterable[Tree]) -> None:
    """Write the trees to a file, one per line, atomically."""
    write_text(path, "".join(f"{format_tree(tree)}\n" for tree in trees))


def _checked(name: str, kind: str) -> str:
    if not name or _SEPARATOR.search(name):
        raise ArgumentError(
            "tree",
            f": a {kind} in bracketed text must have at least one character, and no white space or "
            f"brackets. Got {name!r} instead",
        )
    return name
