"""What the command imports: nothing heavy before its arguments are checked, and what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "numba", "nltk", "scipy", "sklearn", "polars", "lark")
PROBE = """
import json, sys
from inout.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(folder: Path, *arguments: str) -> tuple[int, set[str]]:
    """The exit code of a command, and which of the heavy libraries it has imported."""
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    code, modules = json.loads(ended.stderr.splitlines()[-1])
    return code, set(HEAVY) & set(modules)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "g.cfg").write_text("S -> S S [0.25] | 'a' [0.75]\n", encoding="utf-8")
    tree = "(TOP (S (NP (PRP she)) (VP (VBD slept))))\n"
    (tmp_path / "gold.mrg").write_text(tree, encoding="utf-8")
    (tmp_path / "bad.dyna").write_text("goal += .\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        "parse no.cfg --sentence a",
        "parse g.cfg no.txt",
        "parse --model no.lpcfg --sentence a",
        "parse g.cfg --sentence a --start X",
        "surprisal g.cfg no.txt",
        "sample no.cfg",
        "em g.cfg no.txt -o t.cfg",
        "em g.cfg g.cfg -o no/t.cfg",
        "induce no.mrg -o t.json",
        "induce no.mrg --latent 2 -o t.lpcfg",
        "context train no.tsv -o t.ctx",
        "context tag no.ctx gold.mrg",
        "context curve no.ctx gold.mrg",
        "demo --html no/demo.html",
    ],
)
def test_a_mistyped_name_is_told_before_anything_heavy_is_imported(folder, arguments):
    assert imported(folder, *arguments.split()) == (2, set())


@pytest.mark.parametrize(
    "arguments", ["solve no.dyna", "solve bad.dyna", "solve cnf_inside --facts rule=no.tsv"]
)
def test_a_program_is_read_before_torch_is_imported(folder, arguments):
    code, found = imported(folder, *arguments.split())
    assert code == 2
    assert found <= {"lark"}


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ("check g.cfg", {"scipy"}),
        ("convert g.cfg --to json --trim", set()),
        ("convert g.cfg --to lines --normalise", {"scipy"}),
        ("eval gold.mrg gold.mrg", set()),
        ("induce gold.mrg -o t.json", set()),
        ("programs", set()),
        ("programs earley", set()),
    ],
)
def test_what_needs_no_torch_imports_none(folder, arguments, allowed):
    code, found = imported(folder, *arguments.split())
    assert code == 0
    assert found <= allowed


def test_parsing_imports_torch_and_numba_alone(folder):
    code, found = imported(folder, "parse", "g.cfg", "--sentence", "a a", "--restore")
    assert code == 0
    # numba looks at the version of scipy, which imports nothing but its root.
    assert found == {"torch", "numba", "scipy"}
