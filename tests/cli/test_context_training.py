"""`inout context train`: which epoch's model is written, also after Ctrl-C."""

from __future__ import annotations

import json
import signal
from itertools import pairwise

import numpy as np
import pytest

from inout._core.errors import ArgumentError
from inout.cli import main
from inout.cli.contexts import training
from inout.contexts.model import ContextModel
from inout.io.tagged import read_tagged, write_tagged
from inout.learning.context_batches import BatchContexts

COUNT = 12
INTERRUPTED = 130
TRAIN = ("context", "train", "train.tsv", "--order", "2")
WITH_DEV = (*TRAIN, "--dev", "dev.tsv")


def example(seed: int):
    """Words of which only half the letters can be seen, some of them wrong."""
    random = np.random.default_rng(seed)
    sequences, labels = [], []
    for word in random.choice(["abab", "bcbc", "abcb", "acab", "caca"], COUNT):
        seen = [letter if random.random() < 0.5 else "x" for letter in word]
        seen = [letter if random.random() < 0.9 else "a" for letter in seen]
        sequences.append([[f"seen={letter}", "bias"] for letter in seen])
        labels.append(list(word))
    return sequences, labels


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Files, and models after one, two, three epochs, each trained for itself."""
    folder = tmp_path_factory.mktemp("training")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_tagged("train.tsv", *example(0))
        write_tagged("dev.tsv", *example(1))
        for epochs in "123":
            assert main([*TRAIN, "-o", f"{epochs}.ctx", "--epochs", epochs]) == 0
    return folder


@pytest.fixture
def after_epochs(folder):
    """What the models after one, two, three epochs weigh."""
    found = [weights(f"{epochs}.ctx") for epochs in (1, 2, 3)]
    assert all(len(a) != len(b) or (a != b).any() for a, b in pairwise(found))
    return found


def weights(path: str):
    model = ContextModel.load(path)
    return np.concatenate([model.emission.ravel(), model.histories.weights])


def judged(monkeypatch, *shares: tuple[float, float]) -> None:
    """Let the model be found this good on --dev after each epoch."""
    found = iter(shares)
    monkeypatch.setattr(training, "accuracy", lambda *_: next(found))


def interrupted(monkeypatch, examples: int) -> None:
    """Let Ctrl-C be pressed after so many examples."""
    after = training._Follower.after

    def pressed(self, passed, model):
        after(self, passed, model)
        if passed.examples == examples:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(training._Follower, "after", pressed)


@pytest.mark.parametrize(
    ("shares", "best"),
    [
        ([(0.5, 0.7), (0.6, 0.7), (0.4, 0.7)], 2),
        ([(0.5, 0.7), (0.5, 0.8), (0.4, 0.9)], 2),  # sequences first, then labels
        ([(0.5, 0.7), (0.5, 0.7), (0.5, 0.7)], 1),
        ([(0.0, 0.0), (0.0, 0.0), (0.0, 0.1)], 3),
    ],
)
def test_the_best_epoch_is_written(run, after_epochs, monkeypatch, shares, best):
    judged(monkeypatch, *shares)
    told = run(*WITH_DEV, "-o", "x.ctx", "--epochs", "3")
    assert (told.code, told.err) == (0, "")
    assert np.array_equal(weights("x.ctx"), after_epochs[best - 1])
    known = ContextModel.load("x.ctx").training
    assert (known["epoch"], known["epochs"]) == (best, 3)
    lines = told.out.splitlines()
    assert f"wrote       x.ctx, the model of epoch {best}, the best on --dev" in lines
    assert lines[-1].startswith("note: later epochs were no better on --dev") == (best < 3)


def test_the_best_epoch_is_what_it_is_said_to_be(run, folder):
    told = run(*WITH_DEV, "-o", "x.ctx", "--epochs", "9", "--step", "1", "--json")
    answer = json.loads(told.out)
    scores = [(epoch["dev_sequences"], epoch["dev_labels"]) for epoch in answer["epochs"]]
    assert answer["epoch"] == 1 + scores.index(max(scores)) < 9, "data that could tell nothing"
    data = list(read_tagged("dev.tsv"))
    found = ContextModel.load("x.ctx").tag([sequence.positions for sequence in data])
    hits = [
        np.array(a.labels) == np.array(b.labels or []) for a, b in zip(found, data, strict=True)
    ]
    assert max(scores) == (np.mean([own.all() for own in hits]), np.concatenate(hits).mean())


def test_without_dev_the_last_epoch_is_written(run, after_epochs):
    told = run(*TRAIN, "-o", "x.ctx", "--epochs", "2", "--json")
    assert np.array_equal(weights("x.ctx"), after_epochs[1])
    assert json.loads(told.out)["epoch"] == 2
    assert run(*TRAIN, "-o", "x.ctx", "--epochs", "2").out.splitlines()[-1] == "wrote       x.ctx"


@pytest.mark.parametrize("examples", [2 * COUNT, 2 * COUNT + 1, 3 * COUNT - 1])
def test_interrupted_epochs_leave_the_last_finished_one(run, after_epochs, monkeypatch, examples):
    interrupted(monkeypatch, examples)
    told = run(*TRAIN, "-o", "x.ctx", "--epochs", "5")
    assert (told.code, told.out) == (INTERRUPTED, "")
    assert told.err == "stopped; wrote x.ctx, the model of epoch 2 of 5\n"
    assert np.array_equal(weights("x.ctx"), after_epochs[1])
    assert run("context", "tag", "x.ctx", "dev.tsv").code == 0


def test_interrupted_epochs_leave_the_best_one(run, after_epochs, monkeypatch):
    judged(monkeypatch, (0.5, 0.7), (0.4, 0.7))
    interrupted(monkeypatch, 2 * COUNT + 5)
    told = run(*WITH_DEV, "-o", "x.ctx", "--epochs", "5", "--json")
    answer = json.loads(told.out)
    assert (told.code, answer["stopped"], answer["epoch"]) == (INTERRUPTED, True, 1)
    assert len(answer["epochs"]) == 2
    assert told.err == "stopped; wrote x.ctx, the model of epoch 1, the best on --dev\n"
    assert np.array_equal(weights("x.ctx"), after_epochs[0])


def test_the_first_epoch_counts_before_it_is_tried(run, after_epochs, monkeypatch):
    monkeypatch.setattr(training, "accuracy", lambda *_: signal.raise_signal(signal.SIGINT))
    told = run(*WITH_DEV, "-o", "x.ctx", "--epochs", "5")
    assert (told.code, told.out) == (INTERRUPTED, "")
    assert told.err == "stopped; wrote x.ctx, the model of epoch 1 of 5\n"
    assert np.array_equal(weights("x.ctx"), after_epochs[0])


@pytest.mark.parametrize("examples", [2 * COUNT + 1, None])
def test_nothing_is_lost_by_ctrl_c_while_the_model_is_written(
    run, after_epochs, monkeypatch, examples
):
    if examples is not None:
        interrupted(monkeypatch, examples)
    save = ContextModel.save

    def pressed(model, path):
        signal.raise_signal(signal.SIGINT)
        save(model, path)

    monkeypatch.setattr(ContextModel, "save", pressed)
    told = run(*TRAIN, "-o", "x.ctx", "--epochs", "2" if examples is None else "5")
    assert told.code == (0 if examples is None else INTERRUPTED)
    assert np.array_equal(weights("x.ctx"), after_epochs[1])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("error", [MemoryError(), ArgumentError("training", "must end well")])
def test_errors_leave_the_last_finished_epoch(run, after_epochs, monkeypatch, error):
    after = training._Follower.after

    def failing(self, passed, model):
        after(self, passed, model)
        if passed.examples == 2 * COUNT + 1:
            raise error

    monkeypatch.setattr(training._Follower, "after", failing)
    told = run(*TRAIN, "-o", "x.ctx", "--epochs", "5")
    assert (told.code, told.out) == (2, "")
    kept, message = told.err.splitlines()
    assert kept == "stopped; wrote x.ctx, the model of epoch 2 of 5"
    assert message.startswith("inout: out of memory" if not error.args else "inout: training must")
    assert np.array_equal(weights("x.ctx"), after_epochs[1])


def test_labels_of_dev_that_cannot_be_learned(run, folder):
    (folder / "other.tsv").write_text("X\tseen=a\nY\tseen=b\n")
    told = run(*TRAIN, "-o", "x.ctx", "--dev", "other.tsv")
    assert told.code == 2
    assert "other.tsv: labels must be those of the training data (a, b, c, …). Got X, Y" in told.err
    assert not (folder / "x.ctx").exists()


def test_an_epoch_that_was_not_tried_does_not_count(run, after_epochs, monkeypatch):
    def tried(*_):
        for _ in range(2):
            yield 0.5, 0.5
        signal.raise_signal(signal.SIGINT)

    shares = tried()
    monkeypatch.setattr(training, "accuracy", lambda *_: next(shares))
    told = run(*WITH_DEV, "-o", "x.ctx", "--epochs", "5")
    assert told.code == INTERRUPTED
    assert np.array_equal(weights("x.ctx"), after_epochs[0])


def test_optimisers_can_be_interrupted(run, folder, monkeypatch):
    lbfgs = (*TRAIN, "--method", "lbfgs", "--l2", "0.1")
    assert run(*lbfgs, "-o", "one.ctx", "--epochs", "1").code == 0
    selected, counts, epochs = BatchContexts.selected, BatchContexts.counts, []

    def noted(*arguments):
        epochs.append(None)
        return selected(*arguments)

    def pressed(*arguments):
        if len(epochs) == 2:
            signal.raise_signal(signal.SIGINT)
        return counts(*arguments)

    monkeypatch.setattr(BatchContexts, "selected", staticmethod(noted))
    monkeypatch.setattr(BatchContexts, "counts", pressed)
    told = run(*lbfgs, "-o", "x.ctx", "--epochs", "3")
    assert (told.code, told.err) == (
        INTERRUPTED,
        "stopped; wrote x.ctx, the model of epoch 1 of 3\n",
    )
    assert np.array_equal(weights("x.ctx"), weights("one.ctx"))


@pytest.mark.parametrize("command", [TRAIN, WITH_DEV], ids=["alone", "dev"])
def test_nothing_is_written_before_an_epoch_is_over(run, folder, monkeypatch, command):
    (folder / "x.ctx").write_bytes(b"an earlier one")
    interrupted(monkeypatch, COUNT - 1)
    told = run(*command, "-o", "x.ctx")
    assert (told.code, told.out) == (INTERRUPTED, "")
    assert told.err == "stopped before the first epoch was complete; nothing written\n"
    assert (folder / "x.ctx").read_bytes() == b"an earlier one"
