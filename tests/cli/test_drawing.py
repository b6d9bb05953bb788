"""Trees and forests as the command draws them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import inout
from inout import Parser
from inout.cli.equations.phrases import phrase_graph, phrase_tree
from inout.cli.grammars.answers import Found
from inout.cli.grammars.forests import packed
from inout.cli.paper import draw
from inout.grammars import library
from inout.io import write_text
from inout.viz import TreeNode, text
from inout.viz.branches import branches, side_by_side
from inout.viz.forest_layout import layout

ENGLISH = Path(__file__).parents[2] / "examples" / "english.tsv"
WORDS = inout.programs.sentence(["a", "b"])


def ground(rules: str) -> inout.Forest:
    program = inout.Program(rules)
    facts = {**WORDS, "rule": [("X",)]}
    return program.ground({name: facts[name] for name in program.inputs})


def brackets(forest: inout.Forest) -> str:
    best = forest.argmax()
    assert isinstance(best, inout.Derivation)
    return bracketed(phrase_tree(best))


def bracketed(node: TreeNode) -> str:
    if not node.children:
        return node.label
    return f"({' '.join([node.label, *map(bracketed, node.children)])})"


def test_symbols_stand_alone_where_one_relation_has_spans():
    forest = ground("""
        goal       += x("S", 0, 2) * length(_).
        x("S",I,K) += x("A",I,J) * x("A",J,K) * rule("X").
        x("A",I,K) += word(_,I,K).
    """)
    assert brackets(forest) == "(S (A a) (A b))"
    labels = {node.label for node in phrase_graph(forest).nodes}
    assert labels == {"goal", "S[0,2]", "A[0,1]", "A[1,2]", "a", "b"}


def test_relations_are_named_where_two_have_spans():
    forest = ground("""
        goal       += y("S", 0, 2) * length(_).
        y("S",I,K) += x("A",I,J) * x("A",J,K) * rule("X").
        x("A",I,K) += word(_,I,K).
    """)
    assert brackets(forest).startswith('(y("S",0,2) (x("A",0,1) a)')
    assert 'y("S",0,2)' in {node.label for node in phrase_graph(forest).nodes}


def test_words_and_spans_of_a_solved_program_stand_as_in_the_sentence():
    """Both readings of each word, although the best derivation was met first."""
    words = inout.programs.sentence(["time", "flies", "like", "an", "arrow"])
    rules = [line.split("\t") for line in ENGLISH.read_text().splitlines() if line[0] != "#"]
    rule = {tuple(row): math.log(float(weight)) for *row, weight in rules}
    program = inout.programs.load("cnf_inside")
    graph = phrase_graph(program.ground({**words, "rule": rule, "start": [("S",)]}))
    rows: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for number, box in layout(graph).boxes:
        node = graph.nodes[number]
        if node.place is not None:
            rows.setdefault((node.kind, box.y), []).append((box.centre, node.place))
    assert sorted(map(len, rows.values())) == [1, 1, 2, 2, 5, 8]
    for row in rows.values():
        places = [place for _, place in sorted(row)]
        assert places == sorted(places)


def test_a_goal_with_several_parts_stays():
    forest = ground("""
        goal += x("A", 0, 1) * x("A", 1, 2).
        x("A",I,K) += word(_,I,K).
    """)
    assert brackets(forest) == "(goal (A a) (A b))"


def test_without_words_every_fact_is_drawn():
    forest = ground("goal += rule(X) * length(N).")
    assert brackets(forest) == '(goal rule("X") length(2))'
    assert len(phrase_graph(forest).nodes) == 3


def test_a_tree_that_does_not_fit_is_drawn_in_lines():
    words = tuple(TreeNode(f"word{i}", kind="axiom") for i in range(10))
    tree = TreeNode("S", words)
    wide = branches(tree, max_width=68)
    assert wide is not None
    assert max(map(len, wide.split("\n"))) == 68
    assert branches(tree, max_width=67) is None
    assert draw(tree, 68) == wide
    assert draw(tree, 67) == text.tree(tree)


def test_depth_is_no_danger():
    tree = TreeNode("leaf")
    for _ in range(5000):
        tree = TreeNode("x", (tree,))
    assert branches(tree) is None
    assert draw(tree, 80) == text.tree(tree)


def test_labels_are_measured_in_cells():
    tree = TreeNode("句", (TreeNode("長い言葉"), TreeNode("語")))
    assert branches(tree) == "      句\n   ┌──┴───┐\n長い言葉  語"


@pytest.mark.parametrize("label", ["", "a very long label", "日本語"])
def test_a_parent_may_be_wider_than_its_child(label):
    drawing = branches(TreeNode(label, (TreeNode("x"),)))
    assert drawing is not None
    top, line, bottom = drawing.split("\n")
    assert line.index("│") == bottom.index("x")
    assert top == label


def test_drawings_stand_side_by_side_where_they_fit():
    assert side_by_side(["aa\nb", "c\nd"], 6, gap=3) == "aa   c\nb    d"
    assert side_by_side(["aa\nb", "c\nd"], 5, gap=3) is None


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(inout.FileError, match=r"page\.html: No space left on device"):
        write_text(path, "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "old"


def test_a_new_file_has_ordinary_permissions(tmp_path):
    write_text(tmp_path / "new", "text")
    (tmp_path / "plain").write_text("text")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    "text", ["time flies like an arrow", "fruit flies like a banana", "I saw her duck"]
)
def test_words_of_a_drawn_forest_stand_as_in_the_sentence(text):
    """Also a word with several tags, which several edges share; boxes of a row, left to right."""
    parser = Parser(library.load("english"))
    parses = parser.kbest(text.split(), 100)
    graph = packed([Found(x.plain_tree, float(x.log_weight), float(x.log_prob)) for x in parses])
    assert graph is not None
    rows: dict[float, list[tuple[float, str]]] = {}
    for number, box in layout(graph).boxes:
        if graph.nodes[number].kind == "axiom":
            rows.setdefault(box.y, []).append((box.centre, graph.nodes[number].label))
    words = text.split()
    for row in rows.values():
        places = [words.index(word) for _, word in sorted(row)]
        assert places == sorted(places)
