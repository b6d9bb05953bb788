"""Trees of grammars (`nltk.Tree`) as trees to draw."""

from __future__ import annotations

from typing import Any

from inout.grammars.treebank import rebuild
from inout.viz import TreeNode


def tree_node(tree: Any) -> TreeNode:
    """The same tree to draw, with words as leaves.

    >>> from inout.grammars.treebank import parse_trees
    >>> tree_node(next(parse_trees("(S (VB go))"))).children[0].children[0]
    TreeNode(label='go', note='', kind='axiom')
    """

    def made(node: Any, children: list[Any]) -> list[Any]:
        below = (
            TreeNode(child, kind="axiom") if isinstance(child, str) else child for child in children
        )
        return [TreeNode(node.label(), tuple(below))]

    root: TreeNode = rebuild(tree, made)[0]
    return root
