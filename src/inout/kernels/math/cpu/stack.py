"""The stack with which binary trees are read off a chart: (start, end, symbol), top first."""

from __future__ import annotations

from inout._core.cpu.compiling import inner


@inner
def push_children(stack, depth, i, k, j, left, right):
    """Puts the children i..k and k+1..j onto the stack, the left one on top: its new depth."""
    stack[depth, 0], stack[depth, 1], stack[depth, 2] = k + 1, j, right
    stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2] = i, k, left
    return depth + 2
