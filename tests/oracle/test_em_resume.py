"""Checkpoints: a run that was killed ends as if nothing had happened; others are refused."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from inout import ArgumentError, FileError, Grammar, HiddenMarkovModel, em, fit_conditional
from inout.learning import Additive, Progress
from inout.learning.checkpoint import digest
from tests.processes import python, started

# Trains and says after each iteration which one it was; `--resume` as its last argument goes on.
TRAIN = """
import sys, torch, inout
g = torch.Generator().manual_seed(0)
model = inout.HiddenMarkovModel.random(4, 5, generator=g)
corpus = model.sample([7] * 30, generator=g)
inout.em(
    inout.HiddenMarkovModel.random(4, 5, generator=g),
    corpus,
    restarts=2,
    generator=torch.Generator().manual_seed(1),
    max_iterations=25,
    tolerance=0.0,
    checkpoint=sys.argv[1],
    resume=len(sys.argv) > 2,
    progress=lambda p: print(p.run, p.iteration, flush=True),
)
"""


def inputs() -> tuple[HiddenMarkovModel, list[Any]]:
    g = torch.Generator().manual_seed(0)
    model = HiddenMarkovModel.random(4, 5, generator=g)
    corpus = model.sample([7] * 30, generator=g)
    return HiddenMarkovModel.random(4, 5, generator=g), corpus


def options() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {"restarts": 2, "generator": generator, "max_iterations": 25, "tolerance": 0.0}


def start_and_kill(path: Path, *arguments: str, after: str) -> list[str]:
    """Run TRAIN until it says `after`, then kill it; what it said."""
    said = []
    with started("-c", TRAIN, path, *arguments) as process:
        for line in process.stdout:
            said.append(line.strip())
            if said[-1] == after:
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL
    return said


def assert_same(one: Any, other: Any) -> None:
    assert torch.equal(one.model.log_weights, other.model.log_weights)
    assert torch.equal(one.expected_counts, other.expected_counts)
    assert one.runs == other.runs
    assert (one.best, one.left_out) == (other.best, other.left_out)


@pytest.mark.exhaustive
def test_a_killed_run_ends_like_an_undisturbed_one(tmp_path: Path):
    path = tmp_path / "run.safetensors"
    start_and_kill(path, after="0 6")
    said = start_and_kill(path, "--resume", after="2 3")
    # It went on with the next iteration, or the one it was killed in.
    assert said[0] in ("0 7", "0 8")
    model, corpus = inputs()
    heard: list[Progress] = []
    resumed = em(model, corpus, **options(), checkpoint=path, resume=True, progress=heard.append)
    assert (heard[0].run, heard[0].iteration) in ((2, 4), (2, 5))
    assert_same(resumed, em(model, corpus, **options()))
    # What is finished is not done again.
    heard.clear()
    again = em(model, corpus, **options(), checkpoint=path, resume=True, progress=heard.append)
    assert heard == []
    assert_same(again, resumed)


class StopError(Exception):
    """Raised by a callback to end a run."""


def stopping(run: int, iteration: int) -> Any:
    def stop(progress: Progress) -> None:
        if (progress.run, progress.iteration) == (run, iteration):
            raise StopError

    return stop


@pytest.mark.few(2)
@pytest.mark.parametrize(("run", "iteration"), [(0, 0), (0, 25), (1, 0), (2, 24)])
def test_any_iteration_can_be_the_last(tmp_path: Path, run: int, iteration: int):
    path, (model, corpus) = tmp_path / "run", inputs()
    with pytest.raises(StopError):
        em(model, corpus, **options(), checkpoint=path, progress=stopping(run, iteration))
    resumed = em(model, corpus, **options(), checkpoint=path, resume=True)
    undisturbed = options()
    assert_same(resumed, em(model, corpus, **undisturbed))


def test_the_generator_goes_on_as_well(tmp_path: Path):
    path, (model, corpus) = tmp_path / "run", inputs()
    given = options()
    with pytest.raises(StopError):  # in the same process: the generator has moved on already
        em(model, corpus, **given, checkpoint=path, progress=stopping(1, 2))
    resumed = em(model, corpus, **given, checkpoint=path, resume=True)
    other = options()
    assert_same(resumed, em(model, corpus, **other))
    assert torch.equal(given["generator"].get_state(), other["generator"].get_state())
    seeded = options() | {"generator": torch.Generator().manual_seed(2)}
    with pytest.raises(ArgumentError, match="generator"):
        em(model, corpus, **seeded, checkpoint=path, resume=True)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model", {"model": 1}),
        ("corpus", {"corpus": [[0, 1], [2, 1]]}),
        ("corpus", {"corpus": [[0, 2], [1, 2]]}),
        ("frequencies", {"frequencies": [1.0, 2.0]}),
        ("starts", {"starts": [2]}),
        ("restarts", {"restarts": 1}),
        ("prior", {"prior": Additive(0.5)}),
        ("tolerance was 1e-06 and is 0.001", {"tolerance": 1e-3}),
        ("max_iterations was 5 and is 6", {"max_iterations": 6}),
    ],
)
def test_another_run_is_refused_and_named(tmp_path: Path, name: str, change: dict[str, Any]):
    def run(resume: bool, **given: Any) -> Any:
        models = [
            HiddenMarkovModel.random(2, 3, generator=torch.Generator().manual_seed(seed))
            for seed in range(3)
        ]
        model = models[given.pop("model", 0)]
        corpus = given.pop("corpus", [[0, 1], [1, 2]])
        given = {"max_iterations": 5, "generator": torch.Generator().manual_seed(0)} | given
        given["starts"] = [models[k] for k in given.get("starts", [])]
        return em(model, corpus, checkpoint=tmp_path / "run", resume=resume, **given)

    run(False)
    before = (tmp_path / "run").read_bytes()
    with pytest.raises(ArgumentError, match=f"must be of the same run.*{name}"):
        run(True, **change)
    assert (tmp_path / "run").read_bytes() == before
    run(True)


def test_another_grammar_is_refused(tmp_path: Path):
    one, other = (Grammar.from_text(f"S -> S S [0.5] | '{word}' [0.5]") for word in "ab")
    em(one, [["a", "a"]], max_iterations=2, checkpoint=tmp_path / "run")
    with pytest.raises(ArgumentError, match="model was"):
        em(other, [["a", "a"]], max_iterations=2, checkpoint=tmp_path / "run", resume=True)


def test_files_that_are_no_checkpoints(tmp_path: Path):
    model, corpus = inputs()
    path = tmp_path / "run"
    with pytest.raises(FileError, match="there is no checkpoint to resume"):
        em(model, corpus, checkpoint=path, resume=True)
    em(model, corpus, max_iterations=1, checkpoint=path)
    whole = path.read_bytes()
    with pytest.raises(FileError, match="resume=True continues from it"):
        em(model, corpus, max_iterations=1, checkpoint=path)
    assert path.read_bytes() == whole
    for damaged in (b"", b"text", whole[: len(whole) // 2], whole[:-3]):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match="not a checkpoint, or a damaged one"):
            em(model, corpus, max_iterations=1, checkpoint=path, resume=True)
    path.unlink()
    path.mkdir()
    with pytest.raises(FileError, match="directory"):
        em(model, corpus, max_iterations=1, checkpoint=path)


def test_a_checkpoint_is_tensors_and_json(tmp_path: Path):
    model, corpus = inputs()
    path = tmp_path / "run"
    em(model, corpus, max_iterations=1, checkpoint=path)
    assert load_file(path)
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    content = json.loads(header["__metadata__"]["inout"])
    assert (content["kind"], content["version"]) == ("em", 1)
    assert list(tmp_path.iterdir()) == [path]  # no temporary file is left


FULL_DISK = """
import resource, sys, torch, inout
g = torch.Generator().manual_seed(0)
model = inout.HiddenMarkovModel.random(4, 5, generator=g)
corpus = model.sample([7] * 30, generator=g)
def fill(progress):
    if progress.iteration == 3:  # from now on files of more than a kilobyte do not fit
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    inout.em(model, corpus, max_iterations=6, tolerance=0.0, checkpoint=sys.argv[1], progress=fill)
except inout.FileError as error:
    print(error)
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file sizes")
def test_a_full_disk_costs_one_message_and_no_checkpoint(tmp_path: Path):
    path = tmp_path / "run"
    answer = python("-c", FULL_DISK, path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith(f"{path}: ")
    assert answer.stdout.endswith("the former one is still there)\n")
    assert answer.stdout.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    g = torch.Generator().manual_seed(0)
    model = HiddenMarkovModel.random(4, 5, generator=g)
    corpus = model.sample([7] * 30, generator=g)
    heard: list[Progress] = []
    resumed = em(
        model,
        corpus,
        max_iterations=6,
        tolerance=0.0,
        checkpoint=path,
        resume=True,
        progress=heard.append,
    )
    assert heard[0].iteration == 4
    assert_same(resumed, em(model, corpus, max_iterations=6, tolerance=0.0))


def log_partition(weights: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.logsumexp(weights[:3], 0), torch.logsumexp(weights[1:] * 2, 0)])


@pytest.mark.parametrize("method", ["lbfgs", "adam"])
@pytest.mark.parametrize("iteration", [0, 1, 6])
def test_conditional_training_goes_on_bit_for_bit(tmp_path: Path, method: Any, iteration: int):
    path, observed = tmp_path / "run", [0.2, 1.0, 0.5, 1.3]
    given: dict[str, Any] = {"l2": 0.01, "method": method, "max_iterations": 12, "tolerance": 0.0}
    with pytest.raises(StopError):
        fit_conditional(
            log_partition, observed, **given, checkpoint=path, progress=stopping(0, iteration)
        )
    resumed = fit_conditional(log_partition, observed, **given, checkpoint=path, resume=True)
    undisturbed = fit_conditional(log_partition, observed, **given)
    assert torch.equal(resumed.log_weights, undisturbed.log_weights)
    assert resumed.objectives == undisturbed.objectives
    with pytest.raises(ArgumentError, match=r"l2 was 0\.01 and is 0\.02"):
        fit_conditional(
            log_partition, observed, **(given | {"l2": 0.02}), checkpoint=path, resume=True
        )
    with pytest.raises(ArgumentError, match="log_partition was"):
        fit_conditional(
            lambda w: 2 * log_partition(w), observed, **given, checkpoint=path, resume=True
        )
    with pytest.raises(ArgumentError, match="must be one of em"):
        em(*inputs(), checkpoint=path, resume=True)


def test_digests_tell_values_apart():
    values: list[Any] = [
        ["ab", "c"],
        ["a", "bc"],
        [["ab"], "c"],
        [1, 2],
        [1.0, 2.0],
        ["1", "2"],
        torch.tensor([1, 2]),
        torch.tensor([1.0, 2.0]),
        {"a": 1},
        {"a": 2},
        {1, 2},
        None,
        b"a",
        "a",
    ]
    assert len({digest(value) for value in values}) == len(values)


@pytest.mark.exhaustive
def test_digests_are_the_same_in_every_process():
    code = (
        "from inout.learning.checkpoint import digest; print(digest([{'x', 'y', 'z'}, object()]))"
    )
    answers = {
        python("-c", code, check=True, env={"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")
    }
    assert len(answers) == 1
