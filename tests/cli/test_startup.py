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
answers = [(main(line.split()), sorted(sys.modules)) for line in sys.argv[1:]]
print(json.dumps(answers), file=sys.stderr)
"""

MISTYPED = (
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
)
LIGHT = (
    "convert g.cfg --to json --trim",
    "eval gold.mrg gold.mrg",
    "induce gold.mrg -o t.json",
    "programs",
    "programs earley",
)


def imported(folder: Path, *lines: str) -> dict[str, tuple[int, set[str]]]:
    """The exit code of each command, and the heavy libraries that are imported when it ends.

    All of them run in one process, one after another, so the libraries can only become more.
    """
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, *lines],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    answers = json.loads(ended.stderr.splitlines()[-1])
    told = zip(lines, answers, strict=True)
    return {line: (code, set(HEAVY) & set(modules)) for line, (code, modules) in told}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "g.cfg").write_text("S -> S S [0.25] | 'a' [0.75]\n", encoding="utf-8")
    tree = "(TOP (S (NP (PRP she)) (VP (VBD slept))))\n"
    (tmp_path / "gold.mrg").write_text(tree, encoding="utf-8")
    (tmp_path / "bad.dyna").write_text("goal += .\n", encoding="utf-8")
    return tmp_path


def test_a_mistyped_name_is_told_before_anything_heavy_is_imported(folder):
    assert imported(folder, *MISTYPED) == dict.fromkeys(MISTYPED, (2, set()))


def test_a_program_is_read_before_torch_is_imported(folder):
    lines = ("solve no.dyna", "solve bad.dyna", "solve cnf_inside --facts rule=no.tsv")
    for line, (code, found) in imported(folder, *lines).items():
        assert code == 2, line
        assert found <= {"lark"}, line


def test_what_needs_no_torch_imports_none(folder):
    assert imported(folder, *LIGHT) == dict.fromkeys(LIGHT, (0, set()))
    lines = ("check g.cfg", "convert g.cfg --to lines --normalise")
    for line, (code, found) in imported(folder, *lines).items():
        assert code == 0, line
        assert found <= {"scipy"}, line


def test_parsing_imports_torch_and_numba_alone(folder):
    line = "parse g.cfg --sentence a --restore"
    # numba looks at the version of scipy, which imports nothing but its root.
    assert imported(folder, line) == {line: (0, {"torch", "numba", "scipy"})}
