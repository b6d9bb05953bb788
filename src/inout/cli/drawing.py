"""Trees as text."""

from __future__ import annotations

from inout.viz import TreeNode, text
from inout.viz.branches import branches


def draw(tree: TreeNode, width: int) -> str:
    """The tree with its root on top if it fits, otherwise one node per line."""
    return branches(tree, max_width=width, max_depth=40) or text.tree(tree)
