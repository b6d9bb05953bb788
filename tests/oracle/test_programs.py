"""The library of programs itself: names, texts, descriptions, errors, and the fact helpers."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
import torch

import inout
from inout import ArgumentError, Program, programs

NAMES = programs.names()


def test_every_program_of_the_issue_is_there():
    wanted = {
        "cnf_inside",
        "hmm_backward",
        "semi_markov",
        "linear_chain_crf",
        "lattice_parsing",
        "prefix_probability",
        "earley",
        "projective_dependency",
        "edit_transducer",
        "monotone_alignment",
        "inversion_transduction_grammar",
        "tree_adjoining_grammar",
        "lexicalised_cfg",
        "structured_language_model",
        "categorial_grammar",
        "tree_substitution_grammar",
        "synchronous_cfg",
        "arc_standard",
        "arc_hybrid",
        "partial_brackets",
        "shift_reduce",
    }
    assert wanted <= set(NAMES)
    assert list(NAMES) == sorted(NAMES)
    stored = {p.name for p in files("inout.programs").iterdir() if p.name.endswith(".dyna")}
    assert stored == {f"{name}.dyna" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_program_loads_once_by_name_and_as_an_attribute(name: str):
    program = programs.load(name)
    assert isinstance(program, Program)
    assert programs.load(name) is program
    assert getattr(inout.programs, name) is program
    assert program.text == programs.text(name)
    assert name in dir(programs)


@pytest.mark.parametrize("name", NAMES)
def test_the_description_names_exactly_the_facts_that_the_program_needs(name: str):
    description = programs.describe(name)
    facts = description[description.index("Facts") : description.index("Items:")]
    described: dict[str, set[int]] = {}
    for relation, arguments in re.findall(r"\b([a-z_]+)\(([A-Z](?:,[A-Z])*)\)", facts):
        described.setdefault(relation, set()).add(arguments.count(",") + 1)
    assert {r: tuple(sorted(a)) for r, a in described.items()} == programs.load(name).inputs


@pytest.mark.parametrize("name", NAMES)
def test_the_description_gives_cost_and_paper(name: str):
    description = programs.describe(name)
    assert re.match(r"[A-Z][^\n]*\.\n\n", description), "one sentence first, then a blank line"
    assert re.search(r"^Time", description, re.MULTILINE)
    assert "Eisner (2016)" in description
    assert "%" not in description
    assert max(map(len, programs.text(name).splitlines())) <= 100


def test_the_documentation_lists_every_program():
    page = Path(__file__).parents[2] / "docs" / "language.md"
    table = page.read_text(encoding="utf-8").split("## Worked programs")[1]
    listed = [
        n for row in re.findall(r"^\| [a-z].*$", table, re.M) for n in re.findall("`(.*?)`", row)
    ]
    assert sorted(listed) == list(NAMES)


def test_an_unknown_program_is_refused_with_a_suggestion():
    with pytest.raises(ArgumentError, match=r"'early'; did you mean earley"):
        programs.load("early")
    with pytest.raises(ArgumentError, match=r"there are .*cnf_inside"):
        programs.describe("zzzz")
    with pytest.raises(ArgumentError):
        programs.text("../deduction/grammar")
    with pytest.raises(AttributeError, match="early"):
        programs.early  # noqa: B018


def test_sentence_facts():
    assert programs.sentence([]) == {"word": [], "length": [(0,)]}
    assert programs.sentence(("x", "y")) == {"word": [("x", 0, 1), ("y", 1, 2)], "length": [(2,)]}
    pair = programs.sentence_pair(list("ab"), list("c"))
    assert pair == {
        "source": [("a", 0, 1), ("b", 1, 2)],
        "target": [("c", 0, 1)],
        "source_length": [(2,)],
        "target_length": [(1,)],
    }
    with pytest.raises(ArgumentError, match=r"words must be a sequence of words.*'the dog'"):
        programs.sentence("the dog")
    with pytest.raises(ArgumentError, match="target must be"):
        programs.sentence_pair(["a"], "b")


def test_bracket_and_rule_facts_refuse_nonsense():
    assert programs.brackets([]) == {"bracket": [], "brackets": [(0,)]}
    with pytest.raises(ArgumentError, match=r"Got \(2, 2\) at place 1"):
        programs.brackets([(0, 1), (2, 2)])
    with pytest.raises(ArgumentError, match="the string 'NP VP' in rule 1"):
        programs.earley_rules([("S", []), ("S", "NP VP")])


def test_rule_facts_keep_the_tensor_of_weights():
    weights = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    facts = programs.earley_rules([("S", ["S", "S"]), ("S", ["x"])], weights)
    assert facts["rule"].log_weights is weights


def test_left_corner_closure_refuses_sums_that_diverge():
    with pytest.raises(ArgumentError, match="sentences sum to infinity"):
        programs.left_corner_closure({("S", "S", "S"): 0.0, ("S", "a"): 0.0})
    with pytest.raises(ArgumentError, match="left corners sum to infinity"):
        programs.left_corner_closure({("S", "S", "S"): 1.0, ("S", "a"): 0.0}, total={"S": 0.0})
    with pytest.raises(ArgumentError, match=r"Got \('S',\) at row 1"):
        programs.left_corner_closure({("S", "a"): 0.0, ("S",): 0.0})
    with pytest.raises(ArgumentError, match="a log-weight for 'S'"):
        programs.left_corner_closure({("S", "a"): 0.0}, total={})


def test_left_corner_closure_of_no_rules_is_empty():
    sums = programs.left_corner_closure({("S", "S", "S"): 0.0})
    assert len(sums["total"]) == len(sums["corner"]) == 0
