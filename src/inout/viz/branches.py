"""Trees drawn with characters from the root down, as linguists draw them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from .labels import cells, clean, pad
from .model import TreeNode

_GAP = 2
# What a line of a branching looks like where it meets the parent above, a child below, or both.
_MIDDLE = {(False, False): "─", (True, False): "┴", (False, True): "┬", (True, True): "┼"}
_LEFT = {False: "┌", True: "├"}
_RIGHT = {False: "┐", True: "┤"}

_Block = tuple[list[str], int, int]  # lines, their width in cells, the column of the root


def branches(node: TreeNode, max_width: int = 100, max_depth: int = 100) -> str | None:
    """The tree with its root above its children, or None if it is wider or deeper than allowed.

    Notes are left out. O(v · depth) characters.

    >>> she, sleeps = TreeNode("she", kind="axiom"), TreeNode("sleeps", kind="axiom")
    >>> print(branches(TreeNode("S", (TreeNode("NP", (she,)), TreeNode("VP", (sleeps,))))))
        S
     ┌──┴──┐
     NP    VP
     │     │
    she  sleeps
    """
    order: list[tuple[TreeNode, int]] = []
    stack = [(node, 1)]
    # Every node fills a cell, and every leaf a column: a tree too large is seen before it is drawn.
    leaves = 0
    while stack:
        here, depth = stack.pop()
        leaves += not here.children
        if depth > max_depth or leaves > max_width:
            return None
        order.append((here, depth))
        stack.extend((child, depth + 1) for child in reversed(here.children))
    # Children come after their parent in this order, so backwards they are ready when needed.
    done: list[tuple[int, _Block]] = []
    for here, depth in reversed(order):
        below = []
        while done and done[-1][0] == depth + 1:
            below.append(done.pop()[1])
        block = _block(clean(here.label), below)
        if block[1] > max_width:
            return None
        done.append((depth, block))
    return "\n".join(line.rstrip() for line in done[0][1][0])


def side_by_side(drawings: Sequence[str], max_width: int, gap: int = 6) -> str | None:
    """Drawings next to each other, or None if they do not fit.

    >>> print(side_by_side(["a\\nb", "c"], 20))
    a      c
    b
    """
    columns = [drawing.split("\n") for drawing in drawings]
    widths = [max(map(cells, lines)) for lines in columns]
    if sum(widths) + gap * (len(widths) - 1) > max_width:
        return None
    return "\n".join(
        (" " * gap).join(pad(line, w) for line, w in zip(row, widths, strict=True)).rstrip()
        for row in zip_longest(*columns, fillvalue="")
    )


def _block(label: str, below: list[_Block]) -> _Block:
    """A node over the drawings of its children."""
    width = cells(label)
    if not below:
        return [label], width, (width - 1) // 2
    lines, inner, roots = _joined(below)
    middle = (roots[0] + roots[-1]) // 2
    left = middle - (width - 1) // 2
    # A label wider than what is below it pushes that to the right.
    shift = max(-left, 0)
    left += shift
    whole = max(inner + shift, left + width)
    rows = [" " * left + label, " " * shift + _branching(roots, middle)]
    rows += [" " * shift + line for line in lines]
    return [pad(row, whole) for row in rows], whole, middle + shift


def _joined(blocks: list[_Block]) -> tuple[list[str], int, list[int]]:
    """Drawings next to each other: their lines, width, and the columns of their roots."""
    height = max(len(lines) for lines, _, _ in blocks)
    rows = [""] * height
    width = 0
    roots = []
    for position, (lines, inner, root) in enumerate(blocks):
        space = _GAP if position else 0
        roots.append(width + space + root)
        filled = [*lines, *[" " * inner] * (height - len(lines))]
        rows = [row + " " * space + line for row, line in zip(rows, filled, strict=True)]
        width += space + inner
    return rows, width, roots


def _branching(roots: list[int], middle: int) -> str:
    """The line that joins a parent in column `middle` with children in the columns `roots`."""
    if len(roots) == 1:
        return " " * middle + "│"
    marks = []
    for column in range(roots[0], roots[-1] + 1):
        if column == roots[0]:
            marks.append(_LEFT[column == middle])
        elif column == roots[-1]:
            marks.append(_RIGHT[column == middle])
        else:
            marks.append(_MIDDLE[column == middle, column in roots])
    return " " * roots[0] + "".join(marks)
