"""The benchmark runner: nothing is timed on wrong numbers, and bounds decide the exit code."""

from __future__ import annotations

import json
from functools import partial
from time import sleep

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import compare as comparing
from benchmarks import report, timing
from benchmarks.data import DataMissingError
from benchmarks.peers import peer
from benchmarks.registry import WORKLOADS, Stages, Workload
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate

NAN = float("nan")


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run a made-up workload; returns (exit code, last line of the output, files written)."""

    def run(agreements, figures, *options):
        stages = Stages(lambda quick: quick, lambda state: agreements, lambda state: figures)
        monkeypatch.setattr(Workload, "load", lambda self, *_: stages)
        monkeypatch.setitem(WORKLOADS, "made-up", Workload("made-up", "a test", "nowhere"))
        monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
        monkeypatch.setattr("sys.argv", ["benchmarks", "run", "made-up", *options])
        code = command.main()
        lines = capsys.readouterr().out.splitlines()
        written = sorted(path.name for path in tmp_path.glob("results/*"))
        return code, lines[-1] if lines else None, written

    return run


def test_bounds_met(run):
    figures = [Figure("speed", 12.0, "M/s", at_least=10), Figure("size", 3.0, "B", at_most=3)]
    code, last, written = run([Agreement("a", 1e-12, 1e-10)], [*figures, Figure("x", 1.0, "s")])
    assert code == 0
    assert written == ["made-up.json", "made-up.md"]
    document = json.loads(last)
    assert document["holds"] is True
    assert [(f["bound"], f["holds"]) for f in document["figures"]] == [
        (">= 10", True),
        ("<= 3", True),
        (None, None),
    ]


@pytest.mark.parametrize(
    "figure",
    [
        Figure("speed", 9.99, "M/s", at_least=10),
        Figure("size", 3.01, "B", at_most=3),
        Figure("nothing", NAN, "s", at_most=3),
    ],
)
def test_a_missed_bound_is_an_error(run, figure):
    code, last, _ = run([], [figure])
    assert code == 1
    assert json.loads(last)["holds"] is False


def test_a_figure_that_failed_is_reported_and_the_rest_goes_on(run, tmp_path):
    figures = [Figure.failed("speed", "TypeError: no kernel"), Figure("x", 1.0, "s")]
    code, last, _ = run([], figures)
    assert code == 1
    document = json.loads(last)
    assert [f["value"] for f in document["figures"]] == [None, 1.0]
    assert document["figures"][0]["failure"] == "TypeError: no kernel"
    table = (tmp_path / "results" / "made-up.md").read_text(encoding="utf-8")
    assert "- speed: failed: TypeError: no kernel" in table


def test_a_missing_peer_is_named_with_what_installs_it():
    with pytest.raises(DataMissingError, match=r"some-peer.*make bench"):
        peer("no_module_of_this_name", "some-peer")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_workload_says_so(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "run", "gpu", "--quick"])
    assert command.main() == 2
    assert "needs an NVIDIA GPU" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("difference", [1e-9, NAN, float("inf")])
def test_nothing_is_timed_on_wrong_numbers(run, difference):
    def figures():
        raise AssertionError("timed")
        yield

    code, last, written = run([Agreement("a", difference, 1e-10)], figures())
    assert (code, last, written) == (1, None, [])


def test_a_quick_run_is_saved_only_when_asked(run):
    assert run([], [], "--quick")[2] == []
    assert run([], [], "--quick", "--save")[2] == ["made-up.json", "made-up.md"]


def test_list_names_every_workload(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "list"])
    assert command.main() == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(WORKLOADS)


def test_ways_take_turns(monkeypatch):
    monkeypatch.setattr(timing, "IN_A_ROW", 0.0)
    calls = []
    seconds = alternate({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert "".join(calls) == "aabb" + "ab" * 2  # twice to warm up
    assert set(seconds) == {"a", "b"}


def test_short_ways_run_several_times_in_a_row():
    calls = []
    alternate({"a": lambda: calls.append("a"), "b": lambda: sleep(0.05)}, 1)
    assert len(calls) > 10


def test_a_seed_goes_to_workloads_that_take_one():
    seeded = WORKLOADS["contexts-align"].load(7, resume=True).prepare
    assert isinstance(seeded, partial)
    assert seeded.keywords == {"seed": 7, "resume": True}
    assert not WORKLOADS["rna"].load(7).prepare.keywords


def checkout(folder, value):
    """A folder whose benchmarks print one figure, one that only it has, and one that failed."""
    package = folder / "benchmarks"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    values = {"time": value, f"only {value}": 1.0, "failed": None}
    figures = [{"name": name, "value": number} for name, number in values.items()]
    line = json.dumps({"figures": figures})
    (package / "__main__.py").write_text(f"import sys; print(sys.argv[1:]); print({line!r})")
    return folder


def test_figures_of_two_checkouts_are_compared(tmp_path, monkeypatch, capsys):
    before, after = checkout(tmp_path / "before", 2.0), checkout(tmp_path / "after", 3.0)
    monkeypatch.setattr(comparing, "ROOT", after)
    monkeypatch.setattr("sys.argv", ["benchmarks", "compare", str(before), "em", "--rounds", "2"])
    assert command.main() == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "## `em`"
    assert [cell.strip() for cell in table[-2].split("|")[1:-1]] == ["time", "2", "3", "1.50"]
    assert not any("only" in line or "failed" in line for line in table)


def test_a_run_that_fails_ends_the_comparison(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks", "compare", str(tmp_path), "em"])
    with pytest.raises(SystemExit, match=r"benchmarks: em failed in .*\n.*No module named benchm"):
        command.main()
