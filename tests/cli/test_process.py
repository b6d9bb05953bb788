"""The command as a process of its own: streams, terminals, and what it loads."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.processes import COMMAND, command, on_terminal, started

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PARSE = [
    "solve",
    str(EXAMPLES / "cnf.dyna"),
    "--facts",
    f"rule={EXAMPLES / 'english.tsv'}",
    "--probabilities",
    "--sentence",
    "time flies like an arrow",
]
COLOUR = r"\x1b\[(3[0-9]|9[0-7])m"


def test_json_stands_alone_on_stdout():
    answer = command(*PARSE, "--json")
    assert answer.returncode == 0
    assert re.sub("inout: compiling kernels.*\n", "", answer.stderr) == ""  # where nobody has yet
    assert json.loads(answer.stdout)["count"] == 2
    assert answer.stdout.count("\n") == 1


def test_a_reader_that_stops_early_is_no_error():
    with started(*COMMAND, "programs", stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("columns", [60, 80])
def test_lines_fit_the_terminal(columns, tmp_path):
    sent = on_terminal(*COMMAND, "demo", "--html", tmp_path / "demo.html", columns=columns)
    assert "\x1b[34m█" in sent
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent[sent.index("A small grammar") :])
    # Lines that show progress are rewritten in place, from their beginning.
    *lines, last, _ = re.split(r"[\r\n]+", plain)
    assert max(map(len, lines)) <= columns
    assert last == f"wrote {tmp_path / 'demo.html'}: open it in a browser"  # not cut off
    assert "…" not in plain
    assert re.search(r"EM .*log-likelihood -\d+\.\d\d · .*about \d:\d\d left", plain)
    side_by_side = "Subj         VP                         Subj           VP" in plain
    assert side_by_side == (columns >= 80)


def test_colours_can_be_refused(tmp_path):
    (tmp_path / "g.cfg").write_text("S -> S S [0.25] | 'a' [0.75]\n", encoding="utf-8")
    check = (*COMMAND, "check", tmp_path / "g.cfg")
    assert re.search(COLOUR, on_terminal(*check, columns=80))
    assert not re.search(COLOUR, on_terminal(*check, columns=80, NO_COLOR="1"))


@pytest.mark.exhaustive
def test_pictures_without_colours():
    sent = on_terminal(*COMMAND, *PARSE, columns=80, NO_COLOR="1")
    assert not re.search(COLOUR, sent)
    assert "█" in sent
