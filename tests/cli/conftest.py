"""The command run inside the test's process, which saves importing torch each time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from inout.cli import main

CNF = """\
goal        += beta("S", 0, N) * length(N).
beta(X,I,K) += rule(X,Y,Z) * beta(Y,I,J) * beta(Z,J,K).
beta(X,I,K) += rule(X,W) * word(W,I,K).
"""
# S -> S S (0.25) | a (0.5) | b (0.25)
GRAMMAR = "S\tS\tS\t0.25\nS\ta\t0.5\nS\tb\t0.25\n"


@dataclass(frozen=True)
class Outcome:
    """What a run of the command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    # Kernels may have to be compiled now, or not: in this process, and without a word.
    monkeypatch.setattr("inout.cli.app.announcing", nullcontext)
    monkeypatch.setattr("inout.cli.warmup.workers.cores", lambda: 1)

    def call(*arguments: str | Path) -> Outcome:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with the program cnf.dyna and the facts rule.tsv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cnf.dyna").write_text(CNF, encoding="utf-8")
    (tmp_path / "rule.tsv").write_text(GRAMMAR, encoding="utf-8")
    return tmp_path


@pytest.fixture
def folder(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Path:
    """A working directory with copies of what the module's own fixture `trained` has made."""
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    for path in trained.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path
