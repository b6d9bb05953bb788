"""Trainings of benchmarks: one process and one thread each; what ended is not done again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import processes
from benchmarks.processes import Trainings


@dataclass(frozen=True)
class Plan:
    number: int
    marks: str  # a folder in which each training leaves a file


@dataclass
class Run:
    square: int
    process: int
    threads: list[str]


def train(plan: Plan) -> Run:
    (Path(plan.marks) / f"{plan.number} {os.getpid()}").touch()
    if plan.number < 0:
        raise ValueError("a fault")
    threads = [os.environ[name] for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS")]
    return Run(plan.number**2, os.getpid(), threads)


@pytest.fixture
def plans(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(processes, "code", lambda module: f"a hash of {module}")
    (tmp_path / "marks").mkdir()
    return lambda *numbers: [Plan(number, str(tmp_path / "marks")) for number in numbers]


def trainings(resume=False):
    return Trainings("made-up", train, Run, lambda plan, run: f"{plan.number}", resume)


def test_each_training_has_a_process_and_one_thread(plans, capsys):
    done = trainings()(plans(3, 2))
    assert {plan.number: run.square for plan, run in done.items()} == {3: 9, 2: 4}
    assert len({os.getpid(), *(run.process for run in done.values())}) == 3
    assert all(run.threads == ["1", "1"] for run in done.values())
    assert "(2 of 2 trainings)" in capsys.readouterr().err


def test_the_code_that_trains_is_hashed():
    assert processes.code(__name__) != processes.code("benchmarks.contexts_ocr.runs")


def test_a_run_that_was_cut_off_goes_on(plans, tmp_path, monkeypatch):
    trainings()(plans(2, 3))
    with pytest.raises(ValueError, match="a fault"):
        trainings()(plans(-1))
    before = set((tmp_path / "marks").iterdir())
    done = trainings(resume=True)(plans(2, 3, 4))
    assert [run.square for run in done.values()] == [4, 9, 16]
    new = {path.name.split()[0] for path in set((tmp_path / "marks").iterdir()) - before}
    assert new == {"4"}
    # Not what other code left, nor without being told.
    monkeypatch.setattr(processes, "code", lambda module: "another")
    trainings(resume=True)(plans(2))
    trainings()(plans(2))
    assert len(list((tmp_path / "marks").glob("2 *"))) == 3
