"""Tidy positions for the nodes of a tree: parents centred over children, nothing overlapping.

Subtrees are packed by their contours (Reingold and Tilford, "Tidier drawings of trees", 1981),
once pushed to the left and once to the right; the mean of the two keeps every minimal distance,
since those are linear, and is symmetric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .geometry import MARGIN, Box, box_size
from .model import TreeNode

SIBLING_GAP = 14.0
LEVEL_GAP = 30.0


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """The position of each node of a tree; nodes in preorder, `parents[0]` is -1."""

    width: float
    height: float
    nodes: tuple[TreeNode, ...]
    boxes: tuple[Box, ...]
    parents: tuple[int, ...]


def layout(root: TreeNode, baseline: bool = False) -> TreeLayout:
    """Boxes for all nodes of the tree, with the leaves on one line if `baseline` is set.

    O(v) time and memory, and no recursion.

    >>> drawing = layout(TreeNode("S", (TreeNode("NP"), TreeNode("VP"))))
    >>> top, left, right = drawing.boxes
    >>> round(top.centre - (left.centre + right.centre) / 2, 9)
    0.0
    """
    nodes, parents, depths = _preorder(root)
    children: list[list[int]] = [[] for _ in nodes]
    for index, parent in enumerate(parents[1:], 1):
        children[parent].append(index)
    sizes = [box_size(node.label, node.kind, node.note) for node in nodes]
    widths = [width for width, _ in sizes]
    centres = _blocks(children, widths) if baseline else _tidy(children, widths)
    if baseline:
        bottom = max(depths)
        depths = [d if below else bottom for d, below in zip(depths, children, strict=True)]

    rows = [0.0] * (max(depths) + 1)
    for depth, (_, height) in zip(depths, sizes, strict=True):
        rows[depth] = max(rows[depth], height)
    tops = [MARGIN]
    for height in rows:
        tops.append(tops[-1] + height + LEVEL_GAP)
    shift = MARGIN - min(c - w / 2 for c, w in zip(centres, widths, strict=True))
    boxes = tuple(
        Box(centre + shift - width / 2, tops[depth], width, height)
        for centre, depth, (width, height) in zip(centres, depths, sizes, strict=True)
    )
    right = max(box.right for box in boxes) + MARGIN
    low = max(box.bottom for box in boxes) + MARGIN
    return TreeLayout(right, low, tuple(nodes), boxes, tuple(parents))


def _preorder(root: TreeNode) -> tuple[list[TreeNode], list[int], list[int]]:
    nodes: list[TreeNode] = []
    parents: list[int] = []
    depths: list[int] = []
    stack = [(root, -1, 0)]
    while stack:
        node, parent, depth = stack.pop()
        index = len(nodes)
        nodes.append(node)
        parents.append(parent)
        depths.append(depth)
        stack.extend((child, index, depth + 1) for child in reversed(node.children))
    return nodes, parents, depths


def _blocks(children: Sequence[Sequence[int]], widths: Sequence[float]) -> list[float]:
    """Centres such that every subtree has a strip of the page to itself."""
    left, right = [0.0] * len(widths), [0.0] * len(widths)
    offsets = [0.0] * len(widths)
    for index in reversed(range(len(widths))):
        left[index] = right[index] = widths[index] / 2
        below = children[index]
        if not below:
            continue
        for before, child in pairwise(below):
            offsets[child] = offsets[before] + right[before] + SIBLING_GAP + left[child]
        middle = offsets[below[-1]] / 2
        for child in below:
            offsets[child] -= middle
        left[index] = max(left[index], left[below[0]] - offsets[below[0]])
        right[index] = max(right[index], right[below[-1]] + offsets[below[-1]])
    return _absolute(children, offsets)


def _tidy(children: Sequence[Sequence[int]], widths: Sequence[float]) -> list[float]:
    pushed_left = _packed(children, widths)
    mirrored = _packed([list(reversed(below)) for below in children], widths)
    return [(a - b) / 2 for a, b in zip(pushed_left, mirrored, strict=True)]


@dataclass(slots=True)
class _Contour:
    """Left and right outline of a subtree, one entry per level, the root's level last.

    Stored values need `shift` added, which moves a whole subtree in O(1).
    """

    left: list[float]
    right: list[float]
    shift: float = 0.0


def _packed(children: Sequence[Sequence[int]], widths: Sequence[float]) -> list[float]:
    """Centres relative to the root's, each subtree as far left as its neighbours allow."""
    offsets = [0.0] * len(widths)
    contours: list[_Contour | None] = [None] * len(widths)
    # Children come after their parents in preorder, so backwards they are ready when needed.
    for index in reversed(range(len(widths))):
        merged: _Contour | None = None
        for child in children[index]:
            contour = contours[child]
            assert contour is not None
            contours[child] = None
            if merged is None:
                merged = contour
            else:
                offsets[child] = _clearance(merged, contour)
                contour.shift += offsets[child]
                merged = _join(merged, contour)
        below = children[index]
        middle = offsets[below[-1]] / 2 if below else 0.0
        for child in below:
            offsets[child] -= middle
        merged = merged or _Contour([], [])
        merged.shift -= middle
        merged.left.append(-widths[index] / 2 - merged.shift)
        merged.right.append(widths[index] / 2 - merged.shift)
        contours[index] = merged
    return _absolute(children, offsets)


def _clearance(a: _Contour, b: _Contour) -> float:
    """How far b must move right so as not to overlap a."""
    pairs = zip(reversed(a.right), reversed(b.left), strict=False)
    return max(x - y for x, y in pairs) + a.shift - b.shift + SIBLING_GAP


def _join(a: _Contour, b: _Contour) -> _Contour:
    """The outline of a and b together; changes only the levels that both have."""
    shared = min(len(a.left), len(b.left))
    if len(a.left) >= len(b.left):
        move = b.shift - a.shift
        a.right[-shared:] = [x + move for x in b.right[-shared:]]
        return a
    move = a.shift - b.shift
    b.left[-shared:] = [x + move for x in a.left[-shared:]]
    return b


def _absolute(children: Sequence[Sequence[int]], offsets: Sequence[float]) -> list[float]:
    centres = list(offsets)
    for index, below in enumerate(children):
        for child in below:
            centres[child] += centres[index]
    return centres
