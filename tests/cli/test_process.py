"""The command as a process of its own: streams, terminals, and what it loads."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

RUN = [sys.executable, "-c", "import sys; from inout.cli import main; sys.exit(main())"]
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


def test_json_stands_alone_on_stdout():
    answer = subprocess.run(
        [*RUN, *PARSE, "--json"], capture_output=True, text=True, timeout=300, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads(answer.stdout)["count"] == 2
    assert answer.stdout.count("\n") == 1


def test_a_reader_that_stops_early_is_no_error():
    process = subprocess.Popen(
        [*RUN, "programs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=300)
    assert errors == ""


def on_terminal(arguments: list[str], columns: int, **variables: str) -> str:
    """What a terminal of that width is sent, stderr included."""
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm", "COLUMNS": str(columns), **variables}
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*RUN, *arguments], stdin=follower, stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    sent = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not chunk:
            break
        sent += chunk
    os.close(leader)
    assert process.wait(timeout=300) == 0
    return sent.decode()


@pytest.mark.parametrize("columns", [60, 80])
def test_lines_fit_the_terminal(columns, tmp_path):
    sent = on_terminal(["demo", "--html", str(tmp_path / "demo.html")], columns)
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


def test_colours_can_be_refused():
    sent = on_terminal(PARSE, 80, NO_COLOR="1")
    assert not re.search(r"\x1b\[(3[0-9]|9[0-7])m", sent)
    assert "█" in sent
