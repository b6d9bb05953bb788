"""Trees, forests, tables and bars drawn with characters, for a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from inout._core.checks import expect

from .geometry import share
from .labels import cells, clean, pad
from .model import Graph, HyperEdge, NodeId, TreeNode
from .selection import best_part

Cell: TypeAlias = str | int | float | None

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = " ▁▂▃▄▅▆▇█"


def tree(node: TreeNode, max_indent: int = 100) -> str:
    """The tree drawn with box characters, one node per line, notes aligned in a column.

    Below `max_indent` levels the lines stop moving right and say how many levels were cut, so a
    chain of thousands of nodes stays linear in size: O(v max_indent) characters.

    >>> print(tree(TreeNode("S", (TreeNode("NP", note="0.5"), TreeNode("VP")), note="1")))
    S       1
    ├── NP  0.5
    └── VP
    """
    lines: list[tuple[str, int, str]] = []
    # (node, connector, indentation of its children, depth); the indentation is kept cut to size.
    stack = [(node, "", "", 0)]
    while stack:
        here, connector, indent, depth = stack.pop()
        cut = depth - max_indent
        before = f"⋯{cut} {connector}" if cut > 0 else connector
        label = clean(here.label)
        # Every character drawn before the label fills one cell.
        lines.append((before + label, len(before) + cells(label), clean(here.note)))
        keep = indent[-4 * (max_indent - 1) :] if max_indent > 1 else ""
        for position, child in enumerate(reversed(here.children)):
            last = position == 0
            branch = keep + ("└── " if last else "├── ")
            stack.append((child, branch, keep + ("    " if last else "│   "), depth + 1))
    column = max((width for _, width, note in lines if note), default=0) + 2
    return "\n".join(
        text + " " * (column - width) + note if note else text for text, width, note in lines
    )


def forest(graph: Graph, max_items: int = 100) -> str:
    """The items from the goals downwards, each with its count and its edges with posteriors.

    The best edges come first. Of more than `max_items` items the best part is shown, and the last
    line says so.

    >>> from .model import Node
    >>> nodes = [Node(0, "a", "axiom", 0.6), Node(1, "b", "axiom", 0.4), Node(2, "S", "item", 1, 1)]
    >>> print(forest(Graph(nodes, [HyperEdge(2, (1,), 0.4), HyperEdge(2, (0,), 0.6)])))
    S              1.000
      ├ 0.60  a
      └ 0.40  b
    a              0.600
    b              0.400
    """
    part = best_part(graph, max_items)
    graph = part.graph
    if not graph.nodes:
        return "(empty forest)"
    labels = {node.id: clean(node.label) for node in graph.nodes}
    joint = " · " if any(" " in label for label in labels.values()) else " "
    below: dict[NodeId, list[HyperEdge]] = defaultdict(list)
    for edge in graph.edges:
        below[edge.head].append(edge)
    goals = set(graph.goals)
    order = sorted(graph.nodes, key=lambda n: (n.id not in goals, n.kind == "axiom", -n.level))
    lines: list[tuple[str, str]] = []
    for node in order:
        lines.append((labels[node.id], "" if node.weight is None else f"{node.weight:.3f}"))
        ways = sorted(below[node.id], key=lambda e: -(e.weight or 0.0))
        texts = [_way(edge, labels, joint) for edge in ways]
        if part.more.get(node.id):
            texts.append(f"⋯ {part.more[node.id]:,} more")
        for position, text in enumerate(texts):
            lines.append((f"  {'└' if position == len(texts) - 1 else '├'} {text}", ""))
    column = min(max(cells(text) for text, _ in lines) + 2, 60)
    drawn = [pad(text, column) + "  " + number if number else text for text, number in lines]
    return "\n".join([*drawn, *([f"({part.caption})"] if part.caption else [])])


def table(rows: Sequence[Sequence[Cell]], headers: Sequence[str], align: str | None = None) -> str:
    """Rows set in aligned columns under a ruled header.

    `align` has one letter per column: l, r or c. By default, columns of numbers are aligned right.
    Floats are shown with three decimals and None as an empty cell.

    >>> print(table([["NP", 0.5], ["VP", 12.25]], ["item", "count"]))
    item   count
    ────  ──────
    NP     0.500
    VP    12.250
    """
    align = column_alignment(rows, headers, align)
    texts = [[clean(header) for header in headers]]
    texts += [[format_cell(cell) for cell in row] for row in rows]
    widths = [max(cells(row[c]) for row in texts) for c in range(len(headers))]
    texts.insert(1, ["─" * width for width in widths])
    return "\n".join(
        "  ".join(pad(text, w, a) for text, w, a in zip(row, widths, align, strict=True)).rstrip()
        for row in texts
    )


def bar(value: float, width: int = 10) -> str:
    """A horizontal bar of `width` cells, filled to `value` in 0..1 in steps of an eighth.

    >>> bar(0.55) + "|"
    '█████▌    |'
    """
    eighths = round(share(value) * width * 8)
    # A possible event must not look impossible.
    if value > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def bars(labels: Sequence[str], values: Sequence[float], width: int = 20) -> str:
    """One line per value: label, bar and number, aligned.

    >>> print(bars(["NP", "VP"], [0.75, 0.25], width=4))
    NP  ███   0.750
    VP  █     0.250
    """
    wanted = f"must be one for each of {len(values)} values"
    expect(len(labels) == len(values), "labels", wanted, len(labels))
    names = [clean(label) for label in labels]
    column = max(map(cells, names), default=0)
    return "\n".join(
        f"{pad(name, column)}  {bar(value, width)}  {value:.3f}"
        for name, value in zip(names, values, strict=True)
    )


def columns(values: Sequence[float], width: int = 60, height: int = 6) -> list[str]:
    """The lines of a drawing with one column for each value, the lowest value at the bottom.

    Of more than `width` values, evenly spaced ones are shown, with the first and the last.

    >>> print(*columns([0.0, 1.0, 3.0, 4.0], height=2), sep="\\n")
      ▄█
    ▁▅██
    """
    last = len(values) - 1
    if last >= width:
        values = [values[round(last * column / max(width - 1, 1))] for column in range(width)]
    low, high = min(values), max(values)
    # The lowest value has a mark as well, so that no step looks as if it were missing.
    full = 8 * height - 1
    levels = [1 + round(full * (value - low) / ((high - low) or 1.0)) for value in values]
    return [
        "".join(_LEVELS[min(max(level - 8 * row, 0), 8)] for level in levels).rstrip()
        for row in reversed(range(height))
    ]


def format_cell(cell: Cell) -> str:
    """The text of one table cell: floats with three decimals, None empty, control characters shown.

    >>> format_cell(0.5), format_cell(3), format_cell(None)
    ('0.500', '3', '')
    """
    if cell is None:
        return ""
    return f"{cell:.3f}" if isinstance(cell, float) else clean(str(cell))


def column_alignment(
    rows: Sequence[Sequence[Cell]], headers: Sequence[str], align: str | None = None
) -> str:
    """One letter per column: as given, or r for columns of numbers and l for others."""
    for number, row in enumerate(rows):
        wanted = f": row {number} must have {len(headers)} cells"
        expect(len(row) == len(headers), "rows", wanted, len(row))
    if align is None:
        columns = range(len(headers))
        return "".join("r" if all(_is_number(row[c]) for row in rows) else "l" for c in columns)
    fits = len(align) == len(headers) and set(align) <= set("lrc")
    expect(fits, "align", f"must be {len(headers)} letters out of l, r and c", align)
    return align


def _is_number(cell: Cell) -> bool:
    return cell is None or isinstance(cell, int | float)


def _way(edge: HyperEdge, labels: dict[NodeId, str], joint: str) -> str:
    tails = joint.join(labels[tail] for tail in edge.tails) or "(no tails)"
    return tails if edge.weight is None else f"{edge.weight:.2f}  {tails}"
