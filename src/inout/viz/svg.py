"""Trees and forests drawn as SVG, in light or dark colours as the reader prefers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from . import forest_layout, tree_layout
from .forest_layout import DOT_RADIUS, ForestLayout
from .geometry import MARGIN, Box, share, shown
from .labels import escape, text_width
from .model import Graph, HyperEdge, Node, TreeNode
from .selection import best_part
from .style import document, tooltip

CAPTION_SIZE = 12.0


def tree(node: TreeNode, baseline: bool = False) -> str:
    """The tree as an SVG document; `baseline` puts all leaves on one line.

    >>> picture = tree(TreeNode("S", (TreeNode("NP"), TreeNode("VP"))))
    >>> picture.count('class="io-node')
    3
    """
    drawing = tree_layout.layout(node, baseline)
    lines, boxes = [], []
    for here, box, parent in zip(drawing.nodes, drawing.boxes, drawing.parents, strict=True):
        if parent >= 0:
            above = drawing.boxes[parent]
            line = _route(above.centre, above.bottom, [(box.centre, box.y)])
            lines.append(_lines([line], 0.3))
        boxes.append(_tree_box(here, box))
    return document(round(drawing.width, 1), round(drawing.height, 1), [*lines, *boxes])


def forest(graph: Graph, max_nodes: int = 150) -> str:
    """The hypergraph as an SVG document: goals at the top, a dot for each edge.

    Boxes are shaded by expected count and lines by posterior; the exact numbers are in tooltips.
    Of more than `max_nodes` items the best part is drawn, and a caption says what was left out.

    >>> nodes = [Node(0, "a", "axiom", 1.0), Node(1, "S", "item", 1.0, 1)]
    >>> "S ← a" in forest(Graph(nodes, [HyperEdge(1, (0,), 1.0)]))
    True
    """
    part = best_part(graph, max_nodes)
    graph = part.graph
    drawing = forest_layout.layout(graph)
    labels = {node.id: node.label for node in graph.nodes}
    boxes = {graph.nodes[number].id: box for number, box in drawing.boxes}
    goals = set(graph.goals)
    # Faint lines first, so that likely ones lie on top of them.
    order = sorted(range(len(graph.edges)), key=lambda j: share(graph.edges[j].weight))
    pieces = []
    for j in order:
        edge = graph.edges[j]
        title = f"{labels[edge.head]} ← {' '.join(labels[tail] for tail in edge.tails)}"
        pieces.append(_edge(edge, j, boxes[edge.head], drawing, title))
    for i, box in drawing.boxes:
        node = graph.nodes[i]
        pieces.append(_node(node, box, node.id in goals, part.more.get(node.id, 0)))
    width, height = drawing.width, drawing.height
    caption = part.caption or ("" if graph.nodes else "(empty forest)")
    if caption:
        width = max(width, text_width(caption, CAPTION_SIZE) + 2 * MARGIN)
        y = height + CAPTION_SIZE / 2
        pieces.append(_text(MARGIN, y, caption, "io-caption"))
        height += CAPTION_SIZE + MARGIN
    return document(round(width, 1), round(height, 1), pieces)


def _tree_box(node: TreeNode, box: Box) -> str:
    middle = box.y + box.height / 2
    pieces = [tooltip(node.label, node.note), _rect(box, 0.11)]
    if node.note:
        pieces.append(_text(box.centre, middle - 6, shown(node.label)))
        pieces.append(_text(box.centre, middle + 8.5, shown(node.note), "io-note"))
    else:
        pieces.append(_text(box.centre, middle, shown(node.label)))
    return f'<g class="io-node io-{node.kind}">{"".join(pieces)}</g>'


def _node(node: Node, box: Box, is_goal: bool, more: int) -> str:
    classes = ["io-node", f"io-{node.kind}", *["io-goal"] * is_goal, *["io-more"] * (more > 0)]
    title = [node.label]
    if node.weight is not None:
        title.append(f"expected count {float(node.weight)!r}")
    title += [node.note] * bool(node.note)
    if more:
        title.append(f"{more:,} more edges are not shown")
    shade = 0.05 + (0.40 if node.kind == "item" else 0.17) * share(node.weight)
    return (
        f'<g class="{" ".join(classes)}" data-id="{escape(str(node.id))}">'
        f"{tooltip(*title)}{_rect(box, shade)}"
        f"{_text(box.centre, box.y + box.height / 2, shown(node.label))}</g>"
    )


def _edge(edge: HyperEdge, j: int, head: Box, drawing: ForestLayout, title: str) -> str:
    x, y = drawing.dots[j]
    strong = [_route(head.centre, head.bottom, [(x, y)])]
    faint: list[str] = []
    for position, route in enumerate(drawing.routes[j]):
        # A tail that comes twice in one edge gets two lines side by side.
        aside = 6.0 * edge.tails[:position].count(edge.tails[position])
        line = _route(x, y, [(px + aside, py) for px, py in route.points])
        (faint if route.to_axiom else strong).append(line)
    titles, number = [title], ""
    if edge.weight is not None:
        titles.append(f"posterior {float(edge.weight)!r}")
        if drawing.labelled[j]:
            number = _text(x + DOT_RADIUS + 3, y, f"{edge.weight:.2f}", "io-number")
    bare = "" if edge.tails else " io-bare"
    return (
        f'<g class="io-edge">{tooltip(*titles)}'
        f"{_lines(faint, 0.5 * share(edge.weight), 'io-faint')}{_lines(strong, share(edge.weight))}"
        f'<circle class="io-dot{bare}" cx="{_number(x)}" cy="{_number(y)}" r="{DOT_RADIUS:g}"/>'
        f"{number}</g>"
    )


def _lines(lines: Sequence[str], strength: float, style: str = "") -> str:
    if not lines:
        return ""
    classes = f' class="{style}"' if style else ""
    return (
        f'<path{classes} d="{"".join(lines)}" stroke-width="{0.8 + 2.2 * strength:.2f}" '
        f'stroke-opacity="{0.22 + 0.68 * strength:.2f}"/>'
    )


def _route(x: float, y: float, points: Sequence[tuple[float, float]]) -> str:
    """A smooth line from x, y through the points, running straight down at both ends.

    It is the monotone cubic of x over y (Fritsch and Carlson 1980): it never swings out to the
    side of the points, where boxes may stand.
    """
    xs = [x, *(px for px, _ in points)]
    ys = [y, *(py for _, py in points)]
    slopes = [(xs[i + 1] - xs[i]) / (ys[i + 1] - ys[i]) for i in range(len(points))]
    tangents = [0.0]
    for before, after in pairwise(slopes):
        steepest = 3 * min(abs(before), abs(after)) if before * after > 0 else 0.0
        tangents.append(min(max((before + after) / 2, -steepest), steepest))
    tangents.append(0.0)
    pieces = [f"M{_point(x, y)}"]
    for i in range(len(points)):
        third = (ys[i + 1] - ys[i]) / 3
        # At a dot or a box the line keeps straight for longer, which tells lines apart.
        start = third if i else 1.5 * third
        end = third if i < len(points) - 1 else 1.5 * third
        pieces.append(
            f"C{_point(xs[i] + tangents[i] * start, ys[i] + start)} "
            f"{_point(xs[i + 1] - tangents[i + 1] * end, ys[i + 1] - end)} "
            f"{_point(xs[i + 1], ys[i + 1])}"
        )
    return "".join(pieces)


def _rect(box: Box, shade: float) -> str:
    corner = min(box.height * 0.32, 8.0)
    frame = (
        f'x="{_number(box.x)}" y="{_number(box.y)}" width="{_number(box.width)}" '
        f'height="{_number(box.height)}" rx="{_number(corner)}"'
    )
    # The shade is translucent, so a solid box below it hides the lines that pass behind.
    return f'<rect class="io-under" {frame}/><rect {frame} fill-opacity="{shade:.2f}"/>'


def _text(x: float, y: float, text: str, style: str = "") -> str:
    classes = f' class="{style}"' if style else ""
    return f'<text{classes} x="{_number(x)}" y="{_number(y)}">{escape(text)}</text>'


def _point(x: float, y: float) -> str:
    return f"{_number(x)},{_number(y)}"


def _number(value: float) -> str:
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text
