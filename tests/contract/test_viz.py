"""Drawings are well formed, complete, escaped, the same each time, and nothing overlaps."""

from __future__ import annotations

import ast
import math
import sys
from collections import defaultdict
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inout.viz
from inout._core.errors import ArgumentError
from inout.viz import Graph, HyperEdge, Node, TreeNode, forest_layout, page, svg, text, tree_layout
from inout.viz.geometry import Box
from inout.viz.labels import cells
from inout.viz.selection import best_part

NASTY = "<b>&\"'\x00\x1b[2J\n\u202e\ud800 語 é \U0001f600 ]]>"
SVG = "{http://www.w3.org/2000/svg}"

RULES = {
    ("S", "NP", "VP"): 1.0,
    ("NP", "Det", "N"): 0.5,
    ("NP", "NP", "PP"): 0.2,
    ("VP", "V", "NP"): 0.6,
    ("VP", "VP", "PP"): 0.4,
    ("PP", "P", "NP"): 1.0,
}
WORDS = {"I": "NP", "saw": "V", "the": "Det", "man": "N", "with": "P", "telescope": "N"}


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes have more than a border in common."""
    return a.x < b.right and b.x < a.right and a.y < b.bottom and b.y < a.bottom


def parse_forest(words: list[str]) -> Graph:
    """The forest of all parses below S, with expected counts and posteriors."""
    chart: dict[tuple[int, int], dict[str, list[tuple[str, ...]]]] = defaultdict(dict)
    value = {f"{'→'.join(r)}": w for r, w in RULES.items()}
    ways: dict[str, list[tuple[str, ...]]] = {}
    for i, word in enumerate(words):
        value[f"{word}@{i}"] = 1.0
        chart[i, i + 1][WORDS[word]] = [(f"{word}@{i}",)]
    for width in range(1, len(words) + 1):
        for i in range(len(words) - width + 1):
            k = i + width
            for j in range(i + 1, k):
                for a, b, c in RULES:
                    if b in chart[i, j] and c in chart[j, k]:
                        tails = (f"{a}→{b}→{c}", f"{b}[{i},{j}]", f"{c}[{j},{k}]")
                        chart[i, k].setdefault(a, []).append(tails)
            for a, edges in chart[i, k].items():
                ways[f"{a}[{i},{k}]"] = edges
    level = dict.fromkeys(value, 0)
    for head, edges in ways.items():
        value[head] = sum(math.prod(value[t] for t in tails) for tails in edges)
        level[head] = 1 + max(level[t] for tails in edges for t in tails)
    goal = f"S[0,{len(words)}]"
    outside: dict[str, float] = defaultdict(float, {goal: 1.0})
    edges = []
    for head in reversed(ways):
        for tails in ways[head]:
            posterior = outside[head] * math.prod(value[t] for t in tails) / value[goal]
            edges.append(HyperEdge(head, tails, posterior))
            for t in tails:
                outside[t] += posterior * value[goal] / value[t]
    kept = [e for e in edges if outside[e.head] > 0]
    nodes = [
        Node(n, n, "item" if n in ways else "axiom", outside[n] * v / value[goal], level[n])
        for n, v in value.items()
        if outside[n] > 0
    ]
    return Graph(nodes, kept, [goal])


SENTENCE = ["I", "saw", "the", "man", "with", "the", "telescope"]
TELESCOPE = parse_forest(SENTENCE)
PARK = parse_forest(SENTENCE[:4] + 5 * SENTENCE[4:])
EMPTY = Graph([], [])
SINGLE = Graph([Node(0, "S", weight=1.0)], [])
ODD = Graph(
    [Node(0, "a", "axiom", 2.0), Node(1, "", level=1), Node(2, NASTY, level=2), Node(3, "dead")],
    [HyperEdge(1, (), 0.5), HyperEdge(1, (0,)), HyperEdge(2, (1, 1, 0), math.nan)] * 2,
    [2, 0],
)
GRAPHS = {"telescope": TELESCOPE, "park": PARK, "empty": EMPTY, "single": SINGLE, "odd": ODD}

labels = st.text(max_size=12)
kinds = st.sampled_from(["item", "axiom"])
trees = st.recursive(
    st.builds(TreeNode, labels, st.just(()), labels, kinds),
    lambda below: st.builds(
        TreeNode, labels, st.lists(below, min_size=1, max_size=4).map(tuple), labels, kinds
    ),
    max_leaves=40,
)


@st.composite
def graph_data(draw: st.DrawFn) -> tuple[list, list, list]:
    """What `build` makes a graph of: building one here would let beartype draw random numbers."""
    levels = sorted(draw(st.lists(st.integers(0, 5), max_size=14)))
    weights = st.none() | st.floats(0, 2)
    nodes = [
        (i, draw(labels), "axiom" if level == 0 else "item", draw(weights), level)
        for i, level in enumerate(levels)
    ]
    edges = []
    for i, level in enumerate(levels):
        lower = [j for j, other in enumerate(levels) if other < level]
        if lower:
            tails = st.lists(st.sampled_from(lower), max_size=3).map(tuple)
            edges += [(i, t, draw(weights)) for t in draw(st.lists(tails, max_size=3))]
    goals = draw(st.lists(st.sampled_from(range(len(nodes))), max_size=3)) if nodes else []
    return nodes, edges, goals


def build(data: tuple[list, list, list]) -> Graph:
    nodes, edges, goals = data
    return Graph([Node(*n) for n in nodes], [HyperEdge(*e) for e in edges], goals)


def chain(depth: int) -> TreeNode:
    """A tree that grows to the right, a leaf at each level."""
    node = TreeNode("end", kind="axiom")
    for _ in range(depth):
        node = TreeNode("X", (TreeNode("w", kind="axiom"), node), note="0.5")
    return node


def parse(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture.encode())


def by_class(picture: str, name: str) -> list[ElementTree.Element]:
    return [g for g in parse(picture).iter(f"{SVG}g") if name in g.attrib["class"].split()]


def title(group: ElementTree.Element) -> list[str]:
    return (group.findtext(f"{SVG}title") or "").split("\n")


# Trees


def test_text_tree_is_aligned():
    tree = TreeNode(
        "S", (TreeNode("語P", (TreeNode("I"),), note="½"), TreeNode("VP", note="x")), "1"
    )
    assert text.tree(tree) == "S        1\n├── 語P  ½\n│   └── I\n└── VP   x"


def test_indentation_stops_growing_and_says_so():
    lines = text.tree(chain(5), max_indent=2).splitlines()
    assert lines[:4] == ["X             0.5", "├── w", "└── X         0.5", "    ├── w"]
    assert lines[5:7] == ["⋯1     ├── w", "⋯1     └── X  0.5"]


@given(trees)
def test_text_tree_shows_every_node_on_its_own_line(tree):
    nodes = tree_layout.layout(tree).nodes
    lines = text.tree(tree).split("\n")
    assert len(lines) == len(nodes)
    assert not any(c < " " or "\x7f" <= c < "\xa0" for line in lines for c in line)
    columns = {
        cells(line) - cells(note)
        for line, node in zip(lines, nodes, strict=True)
        if (note := text.format_cell(node.note))
    }
    assert len(columns) <= 1


@pytest.mark.parametrize("baseline", [False, True])
@settings(deadline=None)
@given(tree=trees)
def test_tree_layout(baseline, tree):
    drawing = tree_layout.layout(tree, baseline)
    for a, b in combinations(drawing.boxes, 2):
        assert not overlap(a, b)
    children = defaultdict(list)
    for index, parent in enumerate(drawing.parents):
        children[parent].append(index)
    for parent, below in children.items():
        centres = [drawing.boxes[i].centre for i in below]
        assert centres == sorted(centres)
        if parent >= 0:
            middle = (centres[0] + centres[-1]) / 2
            assert math.isclose(drawing.boxes[parent].centre, middle, abs_tol=1e-6)
            assert all(drawing.boxes[i].y > drawing.boxes[parent].bottom for i in below)
    if baseline:
        leaves = {drawing.boxes[i].y for i in range(len(drawing.nodes)) if i not in children}
        assert len(leaves) == 1
    for box in drawing.boxes:
        assert 0 <= box.x < box.right <= drawing.width
        assert 0 <= box.y < box.bottom <= drawing.height


def test_tidy_layout_is_symmetric():
    def mirror(node: TreeNode) -> TreeNode:
        return TreeNode(node.label, tuple(mirror(c) for c in reversed(node.children)))

    tree = mirror(TreeNode("a", (TreeNode("b", (TreeNode("label"),) * 3), TreeNode("c"), chain(3))))
    one, two = tree_layout.layout(tree), tree_layout.layout(mirror(tree))
    left = sorted((round(box.x, 6), box.y) for box in one.boxes)
    assert left == sorted((round(two.width - box.right, 6), box.y) for box in two.boxes)


@settings(deadline=None)
@given(trees)
def test_svg_tree_has_every_node_and_line(tree):
    picture = svg.tree(tree)
    nodes = tree_layout.layout(tree).nodes
    assert len(by_class(picture, "io-node")) == len(nodes)
    assert len(list(parse(picture).iter(f"{SVG}path"))) == len(nodes) - 1


def test_deep_trees_do_not_recurse():
    tree = chain(5000)
    drawn = text.tree(tree)
    assert len(drawn.splitlines()) == 10001
    assert len(drawn) < 10_000_000
    for baseline in (False, True):
        assert len(tree_layout.layout(tree, baseline).boxes) == 10001
    assert svg.tree(chain(2500)).count('<g class="io-node') == 5001
    assert "X" in repr(tree)


# Forests


def test_text_forest_lists_goals_first_and_best_edges_first():
    nodes = [Node("x", "x", "axiom", 1.0), Node("A", "A[0,1]", weight=1.0, level=1)]
    nodes.append(Node("S", "S[0,5]", weight=1.0, level=2))
    edges = [HyperEdge("S", ("A",), 0.38), HyperEdge("S", ("A", "x"), 0.62)]
    assert text.forest(Graph(nodes, [*edges, HyperEdge("A", ("x",), 1.0)])).splitlines() == [
        "S[0,5]                1.000",
        "  ├ 0.62  A[0,1] x",
        "  └ 0.38  A[0,1]",
        "A[0,1]                1.000",
        "  └ 1.00  x",
        "x                     1.000",
    ]


def test_text_forest_is_complete():
    drawn = text.forest(PARK, max_items=1000)
    assert len(drawn.splitlines()) == len(PARK.nodes) + len(PARK.edges)
    assert text.forest(EMPTY) == "(empty forest)"
    assert text.forest(SINGLE).split() == ["S", "1.000"]
    assert not set(text.forest(ODD)) & {"\x00", "\x1b", "\u202e"}


def test_text_forest_says_what_it_left_out():
    drawn = text.forest(PARK, max_items=12).splitlines()
    part = best_part(PARK, 12)
    assert drawn[-1].startswith(f"({len(part.graph.nodes)} of {len(PARK.nodes)} items shown")
    hidden = [line for line in drawn if "⋯" in line]
    assert len(hidden) == len(part.more) > 0


@pytest.mark.parametrize("name", GRAPHS)
def test_svg_forest_has_every_node_and_edge(name):
    graph = GRAPHS[name]
    picture = svg.forest(graph)
    nodes = by_class(picture, "io-node")
    assert {g.attrib["data-id"] for g in nodes} == {str(n.id) for n in graph.nodes}
    assert len(by_class(picture, "io-edge")) == len(graph.edges)
    lines = sum(path.attrib["d"].count("M") for path in parse(picture).iter(f"{SVG}path"))
    assert lines == sum(1 + len(e.tails) for e in graph.edges)
    assert len({g.attrib["data-id"] for g in by_class(picture, "io-goal")}) == len(graph.goals)


def test_svg_forest_tooltips_give_exact_numbers():
    picture = svg.forest(TELESCOPE)
    names = {n.label: f"expected count {n.weight!r}" for n in TELESCOPE.nodes}
    assert {tuple(title(g)) for g in by_class(picture, "io-node")} == set(names.items())
    edges = {
        (f"{e.head} ← {' '.join(e.tails)}", f"posterior {e.weight!r}") for e in TELESCOPE.edges
    }
    assert {tuple(title(g)) for g in by_class(picture, "io-edge")} == edges


def test_likely_lines_are_wider_and_counted_boxes_darker():
    picture = svg.forest(TELESCOPE)
    widths = {
        title(g)[0]: max(float(p.attrib["stroke-width"]) for p in g.iter(f"{SVG}path"))
        for g in by_class(picture, "io-edge")
    }
    shades = {
        title(g)[0]: float(g.findall(f"{SVG}rect")[1].attrib["fill-opacity"])
        for g in by_class(picture, "io-item")
    }
    assert widths["VP[1,7] ← VP→VP→PP VP[1,4] PP[4,7]"] > widths["VP[1,7] ← VP→V→NP V[1,2] NP[2,7]"]
    assert shades["S[0,7]"] > shades["VP[1,4]"] > shades["NP[2,7]"]


def check_forest_layout(graph: Graph) -> None:
    drawing = forest_layout.layout(graph)
    boxes = [box for _, box in drawing.boxes]
    for a, b in combinations(boxes, 2):
        assert not overlap(a, b)
    for x, y in drawing.dots:
        assert not any(b.x < x < b.right and b.y < y < b.bottom for b in boxes)
    assert len(set(drawing.dots)) == len(graph.edges)
    home = {graph.nodes[number].id: box for number, box in drawing.boxes}
    for edge, dot, routes in zip(graph.edges, drawing.dots, drawing.routes, strict=True):
        assert home[edge.head].bottom < dot[1]
        for tail, route in zip(edge.tails, routes, strict=True):
            ends = {(b.centre, b.y) for n, b in drawing.boxes if graph.nodes[n].id == tail}
            assert route.points[-1] in ends
            for (_, above), (_, below) in pairwise([dot, *route.points]):
                assert above < below
            for x, y in route.points[:-1]:
                assert not any(b.x < x < b.right and b.y < y < b.bottom for b in boxes)
    for box in boxes:
        assert 0 <= box.x < box.right <= drawing.width
        assert 0 <= box.y < box.bottom <= drawing.height


@pytest.mark.parametrize("name", GRAPHS)
def test_forest_layout(name):
    check_forest_layout(GRAPHS[name])


@settings(deadline=None)
@given(graph_data())
def test_forest_layout_of_any_graph(data):
    graph = build(data)
    check_forest_layout(graph)
    picture = svg.forest(graph)
    assert {g.attrib["data-id"] for g in by_class(picture, "io-node")} == {
        str(n.id) for n in graph.nodes
    }
    assert len(by_class(picture, "io-edge")) == len(graph.edges)


def test_items_of_a_chart_stand_in_the_order_of_the_sentence():
    drawing = forest_layout.layout(PARK)
    words = [(box.x, PARK.nodes[i].label) for i, box in drawing.boxes if "@" in PARK.nodes[i].label]
    positions = [int(label.split("@")[1]) for _, label in sorted(words)]
    assert positions == sorted(positions)
    assert len(positions) == 19


def test_large_forest_shows_its_best_part_and_says_so():
    picture = svg.forest(PARK, max_nodes=30)
    part = best_part(PARK, 30)
    shown = {g.attrib["data-id"] for g in by_class(picture, "io-node")}
    assert shown == {n.id for n in part.graph.nodes}
    assert len(shown) <= 30
    assert f"{len(shown)} of {len(PARK.nodes)} items shown" in picture
    assert len(by_class(picture, "io-more")) == len(part.more) > 0
    assert "items shown" not in svg.forest(PARK)


def test_large_numbers_have_separators():
    nodes = [Node(i, str(i), "axiom", 1 / 8212) for i in range(8212)]
    edges = [HyperEdge("S", (i,), 1 / 8212) for i in range(8212)]
    picture = svg.forest(Graph([*nodes, Node("S", "S", weight=1.0, level=1)], edges))
    assert "150 of 8,213 items shown, with 149 of 8,212 edges" in picture


def test_caption_counts_what_the_caller_left_out():
    graph = Graph(TELESCOPE.nodes, TELESCOPE.edges, TELESCOPE.goals, 8213, 30000)
    size = len(graph.nodes)
    for drawn in (svg.forest(graph), text.forest(graph)):
        assert f"{size} of 8,213 items shown, with {len(graph.edges)} of 30,000 edges" in drawn
    assert " of 8,213 items shown" in svg.forest(graph, max_nodes=10)


@settings(deadline=None)
@given(graph_data(), st.integers(1, 15), st.integers(0, 15))
def test_best_part_stays_within_limits(data, max_nodes, max_edges):
    graph = build(data)
    part = best_part(graph, max_nodes, max_edges)
    assert len(part.graph.nodes) <= max_nodes
    assert len(part.graph.edges) <= max_edges
    shown = {n.id for n in part.graph.nodes}
    assert not graph.goals or set(part.graph.goals) == set(graph.goals[:max_nodes]) & shown
    hidden = sum(e.head in shown for e in graph.edges) - len(part.graph.edges)
    assert hidden == sum(part.more.values())


def test_best_part_prefers_the_likely():
    best = best_part(TELESCOPE, 25).graph
    shown = {n.id for n in best.nodes}
    assert "VP[1,4]" in shown
    assert "NP[2,7]" not in shown


# Escaping and wrong input


def test_nasty_labels_come_through_visibly():
    tree = TreeNode(NASTY, (TreeNode(NASTY, kind="axiom"),), note=NASTY)
    graph = Graph([Node(NASTY, NASTY, "axiom"), Node(1, NASTY, level=1)], [HyperEdge(1, (NASTY,))])
    for picture in (svg.tree(tree), svg.forest(graph)):
        assert "<b>" not in picture
        labels = [element.text or "" for element in parse(picture).iter(f"{SVG}text")]
        assert any(label.startswith("<b>&\"'␀␛[2J␊\ufffd\ufffd 語 é 😀") for label in labels)
    for drawn in (text.tree(tree), text.forest(graph)):
        drawn.encode()
        assert "\x1b" not in drawn


def test_long_labels_are_shortened_but_whole_in_the_tooltip():
    (group,) = by_class(svg.tree(TreeNode("x" * 500)), "io-node")
    assert title(group) == ["x" * 500]
    assert group.findtext(f"{SVG}text") == "x" * 39 + "…"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph([Node(0, "a"), Node(0, "b")], []), "Got 0 2 times"),
        (lambda: Graph([Node(0, "a")], [HyperEdge(0, (7,))]), "Got 7"),
        (lambda: Graph([Node(0, "a")], [HyperEdge(0, (0,))]), "lower level"),
        (lambda: Graph([], [], ["S"]), "Got 'S'"),
        (lambda: Graph([Node(0, "a")], [], (), 0), "must be at least its part. Got 0"),
        (lambda: Node(0, "a", "goal"), "kind must be 'item' or 'axiom'"),
        (lambda: TreeNode("a", kind="word"), "kind must be 'item' or 'axiom'"),
        (lambda: svg.forest(TELESCOPE, max_nodes=0), "max_nodes must be at least 1. Got 0"),
        (lambda: text.table([["a"]], ["x", "y"]), "row 0 must have 2 cells. Got 1"),
        (lambda: text.table([["a"]], ["x"], "q"), "Got 'q'"),
        (lambda: text.bars(["a"], []), "labels must be one for each of 0 values. Got 1"),
    ],
)
def test_wrong_input_is_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


# Tables, bars and pages


def test_text_table_is_aligned():
    rows = [["語", 1, 0.5, None], ["abc", 20, 10.25, "x\n"]]
    assert text.table(rows, ["a", "b", "p", "note"], "lrrc") == (
        "a     b       p  note\n───  ──  ──────  ────\n語    1   0.500\nabc  20  10.250   x␊"
    )


@given(st.floats(0, 1), st.integers(1, 40))
def test_bar_has_its_width_and_grows(value, width):
    drawn = text.bar(value, width)
    filled = 8 * drawn.count("█") + sum(" ▏▎▍▌▋▊▉".index(c) for c in drawn if c != "█")
    assert len(drawn) == width
    assert abs(filled - 8 * width * value) <= 1
    assert (filled > 0) == (value > 0)


class Balance(HTMLParser):
    """Fails where tags do not nest; collects tags and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def make_page() -> str:
    pictures = page.figures([(svg.forest(TELESCOPE), NASTY), (svg.tree(chain(2)), "")])
    table = page.table([[NASTY, 0.5], ["x", 2.0]], [NASTY, "p"], bars=[1])
    parts = [(NASTY, pictures), ("Table", table)]
    return page.html(NASTY, parts, lead=NASTY)


def test_page_is_whole_and_loads_nothing():
    whole = make_page()
    reader = Balance()
    reader.feed(whole)
    assert not reader.open
    assert whole.count("http") == whole.count('xmlns="http://www.w3.org/2000/svg"') == 2
    assert not {"src", "href"} & {name for _, attrs in reader.seen for name in attrs}
    assert not {"script", "link", "b"} & {tag for tag, _ in reader.seen}
    assert whole.count("prefers-color-scheme:dark") == 3
    whole.encode()


def test_table_bars_follow_the_probability():
    drawn = page.table([["a", 0.25], ["b", 3.0], ["c", None]], ["x", "p"], bars=[1])
    assert [w in drawn for w in ("width:25.0%", "width:100.0%")] == [True, True]
    assert drawn.count("io-fill") == 2
    assert drawn.count('<td class="io-r">') == 3


def test_html_cells_are_not_escaped_twice():
    assert '<td class="io-l"><p>a</p></td>' in page.table([[page.paragraph("a")]], ["x"])


def test_styles_of_a_fragment_stay_inside():
    fragment = page.fragment(svg.tree(chain(1)), page.paragraph("a"))
    reader = Balance()
    reader.feed(fragment)
    assert not reader.open
    for style in fragment.split("<style>")[1:]:
        css = style.split("</style>")[0].replace("@media (prefers-color-scheme:dark){", "")
        for rule in css.replace("}}", "}").split("}")[:-1]:
            selectors = rule.split("{")[0].strip().split(",")
            assert all(".inout" in s for s in selectors), selectors


def test_output_is_the_same_each_time():
    assert make_page() == make_page()
    again = parse_forest(SENTENCE)
    assert svg.forest(again) == svg.forest(TELESCOPE)
    assert text.forest(again) == text.forest(TELESCOPE)


def test_only_the_standard_library_is_needed():
    for path in Path(inout.viz.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            for name in names:
                ours = name in ("inout._core.checks", "inout._core.errors")
                assert ours or name.split(".")[0] in sys.stdlib_module_names
