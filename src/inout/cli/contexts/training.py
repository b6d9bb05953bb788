"""Training of context models, with a progress bar and a report of each epoch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import torch

from inout.cli.formats import duration, json_line, plural
from inout.contexts.model import ContextModel
from inout.io.tagged import TaggedSequence
from inout.learning.contexts import Passed, fit_contexts
from inout.viz.text import table

FORMAT = "inout context train 1"
_BAR_WIDTH = 20
_STEPS = 50  # bar updates per epoch


@dataclass(frozen=True)
class Epoch:
    """Results of an epoch; `right` are the shares of correct sequences and labels of --dev."""

    number: int
    log_likelihood: float  # mean per sequence
    context_length: float
    missing: int
    right: tuple[float, float] | None


@dataclass(frozen=True)
class Trained:
    """A model, and how it was made."""

    model: ContextModel
    epoch: Epoch  # the epoch that this model is from
    sequences: int
    positions: int
    epochs: list[Epoch]
    seconds: float
    stopped: BaseException | None
    """What stopped training early, for example Ctrl-C."""


def train(
    data: Sequence[TaggedSequence],
    dev: Sequence[TaggedSequence] | None,
    *,
    seed: int,
    form: str,
    **options: Any,
) -> Trained:
    """The model of the last epoch, or of the best one on `dev`, with the results of all epochs.

    Ctrl-C or an error ends training with the result of the completed epochs; during the first
    epoch it is raised.
    """
    began = monotonic()
    follower = _Follower(len(data), dev)
    first = "starting" if options["method"] == "adagrad" else "optimising, 30 iterations per epoch"
    stopped: BaseException | None = None
    try:
        with _bar(options["epochs"] * len(data), first) as show:
            follower.show = show
            fit_contexts(
                [sequence.positions for sequence in data],
                [sequence.labels or [] for sequence in data],
                generator=torch.Generator().manual_seed(seed),
                every=max(len(data) // _STEPS, 1),
                after=follower.after,
                **options,
            )
    except (KeyboardInterrupt, Exception) as error:
        if follower.kept is None:
            if isinstance(error, KeyboardInterrupt):
                told = "stopped before the first epoch was complete; nothing written"
                print(told, file=sys.stderr)
            raise
        stopped = error
    assert follower.kept is not None
    epoch, model = follower.kept
    seconds = monotonic() - began
    # No running times: the same seed gives the same file.
    known = {"sequences": len(data), "seed": seed, "form": form, "epoch": epoch.number}
    trained = replace(model, training=model.training | options | known)
    sizes = len(data), sum(map(len, data))
    return Trained(trained, epoch, *sizes, follower.epochs, seconds, stopped)


class _Follower:
    """Adds up the reports of an epoch, evaluates and keeps its model, moves the bar."""

    def __init__(self, examples: int, dev: Sequence[TaggedSequence] | None) -> None:
        self._examples, self._dev = examples, dev
        self._seen, self._missing, self._likelihood, self._length = 0, 0, 0.0, 0.0
        self.epochs: list[Epoch] = []
        self.kept: tuple[Epoch, ContextModel] | None = None
        """The last completed epoch, or the first of the best ones, and its model."""

        self.show: Callable[[int, str], None] = lambda done, text: None

    def after(self, passed: Passed, model: ContextModel) -> None:
        """Record a report."""
        before = len(self.epochs) * self._examples + self._seen
        new = passed.examples - before
        self._seen += new
        self._missing += passed.missing
        self._likelihood += passed.log_likelihood * (new - passed.missing)
        self._length += passed.context_length * new
        told = f"log-likelihood {passed.log_likelihood:.3f}"
        if self.epochs and self.epochs[-1].right is not None:
            told += f" · dev {self.epochs[-1].right[0]:.1%} right"
        self.show(passed.examples, f"epoch {passed.epoch + 1}/{passed.epochs} · {told}")
        if self._seen >= self._examples:
            self._end(model)

    def _end(self, model: ContextModel) -> None:
        likelihood = self._likelihood / max(self._seen - self._missing, 1)
        length = self._length / self._seen
        epoch = Epoch(len(self.epochs) + 1, likelihood, length, self._missing, None)
        copy = model.copy()
        if self._dev is None:
            self.kept = epoch, copy
        else:
            self.kept = self.kept or (epoch, copy)  # evaluation may take long
            epoch = replace(epoch, right=accuracy(model, self._dev))
            if (epoch.right or ()) > (self.kept[0].right or ()):
                self.kept = epoch, copy
        self.epochs.append(epoch)
        self._seen, self._missing, self._likelihood, self._length = 0, 0, 0.0, 0.0


def accuracy(model: ContextModel, data: Sequence[TaggedSequence]) -> tuple[float, float]:
    """The shares of sequences that are all right and of labels that are right."""
    sequences = labels = 0
    found = model.tag([sequence.positions for sequence in data])
    for sequence, tagging in zip(data, found, strict=True):
        hits = sum(map(str.__eq__, tagging.labels, sequence.labels or []))
        labels += hits
        sequences += hits == len(sequence)
    return sequences / len(data), labels / sum(map(len, data))


def as_text(out: str, made: Trained) -> str:
    """Print a summary for a person."""
    with_dev = any(epoch.right is not None for epoch in made.epochs)
    headers = ["epoch", "log-likelihood", "context length"]
    headers += ["dev sequences", "dev labels"] if with_dev else []
    rows = [
        [
            str(epoch.number),
            f"{epoch.log_likelihood:.4f}",
            f"{epoch.context_length:.2f}",
            *(f"{share:.2%}" for share in epoch.right or ()),
        ]
        for epoch in made.epochs
    ]
    size = f"{plural(made.sequences, 'sequence')}, {plural(made.positions, 'position')}"
    lines = [
        table(rows, headers, align="r" * len(headers)),
        "",
        f"trained on  {size}, in {duration(made.seconds)}",
        f"model       {made.model.describe()}",
        f"wrote       {_written(out, made)}",
    ]
    missing = made.epoch.missing
    if missing:
        lines.append(
            f"note: in epoch {made.epoch.number} the labels of {plural(missing, 'sequence')} were "
            "not in the beam; the log-likelihood leaves them out"
        )
    could_be_better = made.epoch.number < len(made.epochs) and made.epoch.right != (1.0, 1.0)
    if could_be_better and made.model.training["method"] == "adagrad":
        lines.append(
            "note: later epochs were no better on --dev; a larger --delta or a smaller --step may "
            "help"
        )
    return "\n".join(lines)


def as_stopped(out: str, made: Trained) -> str:
    """Say in one line what was written although training stopped early."""
    return f"stopped; wrote {_written(out, made)}"


def _written(out: str, made: Trained) -> str:
    if made.epoch.right is not None:
        return f"{out}, the model of epoch {made.epoch.number}, the best on --dev"
    asked = made.model.training["epochs"]
    return f"{out}, the model of epoch {made.epoch.number} of {asked}" if made.stopped else out


def as_json(out: str, made: Trained) -> str:
    """The summary as one line of JSON."""
    return json_line(
        {
            "format": FORMAT,
            "model": out,
            "labels": list(made.model.labels),
            "features": len(made.model.features),
            "sequences": made.sequences,
            "positions": made.positions,
            "seconds": round(made.seconds, 2),
            "epoch": made.epoch.number,
            "stopped": made.stopped is not None,
            "epochs": [
                {
                    "log_likelihood": epoch.log_likelihood,
                    "context_length": epoch.context_length,
                    "missing": epoch.missing,
                    "dev_sequences": epoch.right and epoch.right[0],
                    "dev_labels": epoch.right and epoch.right[1],
                }
                for epoch in made.epochs
            ],
        }
    )


@contextmanager
def _bar(total: int, first: str) -> Iterator[Callable[[int, str], None]]:
    """A bar on stderr, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, text: None
        return
    columns = (
        BarColumn(bar_width=_BAR_WIDTH),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(first, total=total)
        yield lambda done, text: bar.update(task, completed=done, description=text)
