"""`inout solve`: numbers, trees and tables for people, JSON for machines, pages for browsers."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser

import pytest

from inout import programs

SENTENCE = ("--facts", "rule=rule.tsv", "--probabilities", "--sentence")


@pytest.fixture
def solve_json(run, files):
    def call(*arguments):
        outcome = run("solve", *arguments, "--json")
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)

    return call


def test_the_text_has_numbers_trees_and_counts(run, files):
    outcome = run("solve", "cnf.dyna", *SENTENCE, "a b a")
    assert (outcome.code, outcome.err) == (0, "")
    # Two trees of weight 0.25**2 * 0.5 * 0.25 * 0.5 each.
    log_z = math.log(2 * 0.25**2 * 0.5 * 0.25 * 0.5)
    assert f"log Z        {log_z:.4f}" in outcome.out
    assert "derivations  2" in outcome.out
    assert f"entropy      {math.log(2):.4f} nats" in outcome.out
    assert outcome.out.count("probability 0.5000  ██████████ ") == 2
    tree = ["  S", "┌─┴─┐", "S   S", "│  ┌┴─┐", "a  S  S", "   │  │", "   b  a"]
    assert "".join(f"   {line}\n" for line in tree) in outcome.out
    counts = [line.split()[:-1] for line in outcome.out.splitlines() if line.endswith("█")]
    assert counts == [["S", "S", "S", "0.2500", "2.0000"], ["S", "a", "0.5000", "2.0000"]]
    assert "\x1b" not in outcome.out


def test_json_holds_everything(solve_json):
    answer = solve_json("cnf.dyna", *SENTENCE, "a b a", "--best", "1")
    log_z = math.log(2 * 0.25**2 * 0.5 * 0.25 * 0.5)
    assert answer["format"] == "inout solve 1"
    assert answer["log_partition"] == pytest.approx(log_z, abs=1e-12)
    assert (answer["count"], answer["sentence"]) == (2, "a b a")
    assert answer["entropy"] == pytest.approx(math.log(2), abs=1e-12)
    (goal,) = answer["goals"]
    assert (goal["item"], goal["relation"], goal["arguments"]) == ("goal", "goal", [])
    assert goal["log_partition"] == answer["log_partition"]
    (best,) = goal["derivations"]
    assert best["probability"] == pytest.approx(0.5)
    assert best["log_weight"] == pytest.approx(log_z - math.log(2))
    first, second, *_ = best["items"]
    assert (first["depth"], first["item"]) == (0, "goal")
    assert second == {
        "depth": 1,
        "item": 'beta("S",0,3)',
        "relation": "beta",
        "arguments": ["S", 0, 3],
    }
    assert [entry["row"] for entry in answer["expected_counts"]["rule"]] == [
        ["S", "S", "S"],
        ["S", "a"],
        ["S", "b"],
    ]
    counts = [entry["count"] for entry in answer["expected_counts"]["rule"]]
    assert counts == pytest.approx([2, 2, 1])
    assert [entry["count"] for entry in answer["expected_counts"]["word"]] == [1, 1, 1]
    assert answer["expected_counts"]["rule"][0]["log_weight"] == pytest.approx(math.log(0.25))
    assert answer["sizes"]["edges"] == 8
    assert set(answer["seconds"]) == {"read", "ground", "infer"}


def test_json_has_inside_and_outside_values(solve_json):
    answer = solve_json("cnf.dyna", *SENTENCE, "a b a")
    log_z = answer["log_partition"]
    facts = [entry for facts in answer["expected_counts"].values() for entry in facts]
    for entry in facts:
        product = math.exp(entry["log_weight"] + entry["log_outside"] - log_z)
        assert product == pytest.approx(entry["count"], rel=1e-12)
    items = {entry["item"]: entry for entry in answer["items"]}
    assert items["goal"]["log_inside"] == pytest.approx(log_z, rel=1e-12)
    assert items["goal"]["log_outside"] == 0
    whole = items['beta("S",0,2)']
    assert whole["log_inside"] == pytest.approx(math.log(0.25 * 0.5 * 0.25))
    assert whole["log_outside"] == pytest.approx(math.log(0.25 * 0.5))
    assert whole["count"] == pytest.approx(0.5)
    assert {"relation", "arguments"} < whole.keys()


def test_the_page_has_outside_values(run, files):
    outcome = run("solve", "cnf.dyna", *SENTENCE, "a b a", "--html", "page.html")
    assert outcome.code == 0
    page = (files / "page.html").read_text(encoding="utf-8")
    assert "log-outside" in page
    values = math.log(0.25 * 0.5 * 0.25), math.log(0.125)
    assert "log inside {:.6g}, log outside {:.6g}".format(*values) in page


def test_derivations_as_a_grammar(run, files):
    outcome = run("solve", "cnf.dyna", *SENTENCE, "a b a", "--grammar", "found.json")
    assert outcome.code == 0
    assert "found.json" in outcome.out + outcome.err
    drawn = run("sample", "found.json", "-n", "40", "--seed", "1")
    assert drawn.code == 0
    assert len(set(drawn.out.splitlines())) == 2  # the two derivations
    refused = run("solve", "cnf.dyna", *SENTENCE, "a c a", "--grammar", "found.json")
    assert refused.code != 0
    assert "a grammar needs a forest with a derivation" in refused.err


def test_no_derivation_is_an_answer(run, solve_json):
    answer = solve_json("cnf.dyna", *SENTENCE, "a c a")
    assert (answer["log_partition"], answer["count"], answer["entropy"]) == ("-inf", 0, "-inf")
    assert answer["goals"][0]["derivations"] == []
    assert [entry["count"] for entry in answer["expected_counts"]["rule"]] == [0, 0, 0]
    assert answer["notes"] == ["no other fact has these words: c"]
    outcome = run("solve", "cnf.dyna", *SENTENCE, "a c a")
    assert (outcome.code, outcome.err) == (0, "note: no other fact has these words: c\n")
    assert "log Z        -inf" in outcome.out
    assert "No derivation" in outcome.out


def test_a_fact_of_weight_zero_is_minus_infinity(solve_json, files):
    (files / "rule.tsv").write_text("S\tS\tS\t0\nS\ta\t1\n")
    answer = solve_json("cnf.dyna", *SENTENCE, "a")
    assert answer["log_partition"] == 0
    assert answer["expected_counts"]["rule"][0]["log_weight"] == "-inf"


def test_several_goals_are_told_apart(run, solve_json, files):
    (files / "paths.dyna").write_text(
        "path(X) += start(X).\npath(Y) += path(X) * edge(X,Y).\n", encoding="utf-8"
    )
    (files / "edge.tsv").write_text("a\tb\t-1\na\tc\t-2\nb\tc\t-3\n")
    arguments = ("paths.dyna", "--facts", "edge=edge.tsv", "--fact", "start=a", "--goal", "path")
    answer = solve_json(*arguments)
    assert answer["log_partition"] is None
    assert [goal["item"] for goal in answer["goals"]] == ['path("a")', 'path("b")', 'path("c")']
    expected = [0, -1, math.log(math.exp(-2) + math.exp(-4))]
    assert [goal["log_partition"] for goal in answer["goals"]] == pytest.approx(expected)
    assert [goal["count"] for goal in answer["goals"]] == [1, 1, 2]
    outcome = run("solve", *arguments)
    assert 'path("c")' in outcome.out
    assert 'Best derivations of path("c")' in outcome.out
    # Facts other than words are drawn where there are no words.
    assert '└── edge("b","c")' in outcome.out


def test_more_goals_than_are_explained(solve_json, files):
    (files / "all.dyna").write_text("goal(X) += item(X).\n", encoding="utf-8")
    (files / "item.tsv").write_text("".join(f"{i}\n" for i in range(150)))
    answer = solve_json("all.dyna", "--facts", "item=item.tsv")
    assert len(answer["goals"]) == 150
    assert answer["goals"][149] == {
        "item": "goal(149)",
        "relation": "goal",
        "arguments": [149],
        "log_partition": 0,
        "count": 1,
        "entropy": None,
        "derivations": None,
    }


def test_a_huge_count_is_exact_in_json_and_short_in_text(run, solve_json, files):
    (files / "twice.dyna").write_text(
        "goal += x(200).\nx(0) += one.\nx(K) += x(I) * step, K = I+1, K <= 200.\n"
        "x(K) += x(I) * step, K = I+1, K <= 200.\n",
        encoding="utf-8",
    )
    arguments = ("twice.dyna", "--fact", "one", "--fact", "step")
    assert solve_json(*arguments)["count"] == str(2**200)
    assert "derivations  about 1.607 × 10^60" in run("solve", *arguments, "--best", "0").out


def test_facts_of_one_relation_may_come_from_several_files(solve_json, files):
    (files / "more.tsv").write_text("S\tS\tS\t0.5\nS\tc\t1\n")
    answer = solve_json("cnf.dyna", "--facts", "rule=more.tsv", *SENTENCE, "c a")
    rows = [entry["row"] for entry in answer["expected_counts"]["rule"]]
    assert rows == [["S", "S", "S"], ["S", "c"], ["S", "S", "S"], ["S", "a"], ["S", "b"]]
    assert answer["log_partition"] == pytest.approx(math.log((0.5 + 0.25) * 1 * 0.5))


def test_words_are_read_like_fields(solve_json, files):
    (files / "rule.tsv").write_text('S\tS\tS\nS\t3\nS\t"4"\n')
    arguments = ("cnf.dyna", "--facts", "rule=rule.tsv", "--sentence")
    assert solve_json(*arguments, '3 "4"')["count"] == 1
    assert solve_json(*arguments, "4")["count"] == 0


def test_probabilities_taken_for_logarithms_are_noticed(run, files):
    outcome = run("solve", "cnf.dyna", "--facts", "rule=rule.tsv", "--sentence", "a")
    assert outcome.code == 0
    assert "use --probabilities" in outcome.err


def test_a_library_program_runs_by_name(solve_json):
    answer = solve_json("cnf_inside", *SENTENCE, "a b a", "--fact", "start=S")
    assert answer["count"] == 2


def test_a_file_hides_a_library_program_and_a_directory_does_not(solve_json, files):
    (files / "hmm").mkdir()
    (files / "cnf_inside").write_text("goal += word(W,I,K).\n", encoding="utf-8")
    assert solve_json("cnf_inside", "--sentence", "x y z")["count"] == 3
    assert solve_json("hmm", "--sentence", "x", *_empty("start transition emission stop"))


def _empty(names):
    sizes = {"transition": "x y", "emission": "x y"}
    return [f"--fact={name}={sizes.get(name, 'x')}" for name in names.split()]


def test_a_beam_keeps_less(solve_json):
    arguments = ("shift_reduce", *SENTENCE, "a b a b", "--fact", "start=S")
    exact = solve_json(*arguments)
    pruned = solve_json(*arguments, "--beam", "state=1")
    assert exact["count"] == 5
    assert pruned["count"] < 5
    assert pruned["log_partition"] < exact["log_partition"]


class Outline(HTMLParser):
    """The headings of a page, and everything it would load."""

    def __init__(self, text):
        super().__init__()
        self.headings, self.loaded, self.open, self.tags = [], [], None, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open = tag
        self.loaded += [v for k, v in attributes if k in ("src", "href")]

    def handle_data(self, data):
        if self.open in ("h1", "h2"):
            self.headings.append(data)
        self.open = None


def test_the_page_is_whole_and_loads_nothing(run, files):
    outcome = run("solve", "cnf.dyna", *SENTENCE, "a b a", "--html", "out.html")
    assert outcome.code == 0
    assert outcome.out.endswith("wrote out.html\n")
    page = Outline((files / "out.html").read_text(encoding="utf-8"))
    assert page.headings == [
        "cnf.dyna: a b a",
        "Numbers",
        "Best derivations",
        "Expected counts of rule",
        "Forest",
    ]
    assert page.loaded == []
    assert page.tags.count("svg") == 3
    assert "script" not in page.tags
    assert sorted(path.name for path in files.iterdir()) == ["cnf.dyna", "out.html", "rule.tsv"]


def test_names_in_the_page_are_escaped(run, files):
    (files / "evil.dyna").write_text('goal += x("<script>alert(1)</script>").\n', encoding="utf-8")
    (files / "x.tsv").write_text("<script>alert(1)</script>\n")
    assert run("solve", "evil.dyna", "--facts", "x=x.tsv", "--html", "e.html").code == 0
    assert "script" not in Outline((files / "e.html").read_text(encoding="utf-8")).tags


def test_json_and_a_page_at_once(run, files):
    outcome = run("solve", "cnf.dyna", *SENTENCE, "a", "--json", "--html", "o.html")
    assert json.loads(outcome.out)["count"] == 1
    assert (files / "o.html").exists()


def test_a_page_replaces_an_older_one(run, files):
    (files / "o.html").write_text("old")
    (files / "link.html").symlink_to(files / "o.html")
    assert run("solve", "cnf.dyna", *SENTENCE, "a", "--html", "link.html").code == 0
    assert (files / "link.html").is_symlink()
    assert "<h1>" in (files / "o.html").read_text(encoding="utf-8")


def test_control_characters_do_not_reach_the_terminal(run, files):
    (files / "x.dyna").write_text("goal += x(X).\n", encoding="utf-8")
    (files / "x.tsv").write_text("\x1b[31mred\x07\n[bold]not markup[/bold]\n")
    outcome = run("solve", "x.dyna", "--facts", "x=x.tsv")
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert "\x07" not in outcome.out
    assert "[bold]not markup[/bold]" in outcome.out


@pytest.mark.parametrize("name", programs.names())
def test_every_program_of_the_library_is_listed_and_printed(run, name):
    assert name in run("programs").out
    assert run("programs", name).out == programs.text(name)
    assert run("programs", name, "--folded").out == programs.load(name).folded().text
