"""`fit_alignment`: an alignment model by AdaGrad, from inputs and outputs without alignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, Literal, get_args

import numpy as np
import torch

from inout._core.checks import at_least, expect_one_of
from inout._core.errors import ArgumentError
from inout.contexts.alignments.actions import action_targets, alignment_actions
from inout.contexts.alignments.model import AlignmentModel, AlignmentSettings
from inout.kernels.lattice.arrays import Columns, Targets, Vector
from inout.kernels.lattice.op import Lattice
from inout.kernels.lattice.selection import By
from inout.learning.arguments import generator_or_fixed
from inout.learning.context_training import refuse_divergence
from inout.learning.hogwild import Hogwild, Steps, shared_out
from inout.learning.progress import Callback, Progress, reporter

LEAST = 1e-3
TOLD = 50  # examples between two words on progress

Strategy = Literal["contexts", "model", "target", "hybrid", "forced"]


@dataclass
class AlignmentStats:
    """What training has done so far; sums over examples."""

    seen: int = 0
    lost: int = 0  # examples whose target was not in the lattice, and which were skipped
    # Mean number of edges that contexts remember, weighted by their mass, of each example.
    context_length: float = 0.0
    # log p(target | input) of examples that were not lost, before the update of each.
    log_likelihood: float = 0.0

    def add(self, other: AlignmentStats) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


After = Callable[[int, AlignmentModel, AlignmentStats], None]


def fit_alignment(
    inputs: Sequence[Sequence[str]],
    outputs: Sequence[Sequence[str]],
    *,
    strategy: Strategy = "contexts",
    order: int = 5,
    only_longest: bool = False,
    size: int = 20,
    epochs: int = 5,
    step: float = 0.2,
    delta: float = 0.1,
    least: float = LEAST,
    threads: int = 1,
    truncate: float = 0.0,
    generator: torch.Generator | None = None,
    after: After | None = None,
    progress: bool | Callback = False,
    symbols: Sequence[str] | None = None,
    letters: Sequence[str] | None = None,
    **settings: Any,
) -> AlignmentModel:
    """Train a model of outputs given inputs, with hidden alignments.

    Every example moves the weights along equation (7) of Steinhardt & Liang (2015): the features
    expected given input and output, minus those expected given the input. The strategies (section
    6) differ in where the expectations are taken:

    - contexts: in contexts of `size` selected by the model (RCMS), which cover everything;
    - model: in a beam of the model; examples outside it are skipped;
    - target: given the output in a beam of what spells it, else in a beam of the model;
    - hybrid: in one beam, the union of both at every step;
    - forced: a bigram model with exact inference is trained first, its best alignments are taken
      for true, and a beam is trained on them.

    A weight changes by step · g / (delta + √Σ g²), where g is its gradient and the sum is over all
    steps so far. The edges of unlikely alignments have small gradients, which count like those of
    certain ones if `delta` is even smaller (the paper's is 1e-4). With thousands of examples
    contexts learn even better with 1 than with 0.1.

    `order`: n-grams up to this length have weights, or `only_longest`; an n-gram gets a weight once
    its gradient exceeds ±least. By default `symbols` and `letters` are those of the examples.
    `settings` are those of `AlignmentSettings`. `generator` draws the order of each epoch, by
    default one with seed 0; `after(seen, model, stats)` is called after each example, with several
    threads after every 50. `threads` and `truncate` are those of `fit_contexts`; with `truncate`,
    rounding decides which n-grams get weights, and `least` does not.

    >>> inputs, outputs = [["A", "B"], ["B"], ["B", "A"]], ["xyy", "yy", "yyx"]
    >>> model = fit_alignment(inputs, outputs, order=2, epochs=10)
    >>> print(model.predict([["A", "B", "A"]])[0].alignment)
    | A | B  | A |
    | x | yy | x |
    """
    expect_one_of("strategy", strategy, get_args(Strategy))
    if not inputs or len(inputs) != len(outputs):
        given = f"{len(inputs)} inputs and {len(outputs)} outputs"
        raise ArgumentError(None, f"there must be inputs, with an output for each. Got {given}")
    how = Hogwild(step, delta, threads, truncate, least)
    at_least("epochs", epochs, 0)
    source = generator_or_fixed(generator)
    if symbols is None:
        symbols = sorted({symbol for given in inputs for symbol in given})
    if letters is None:
        letters = sorted({letter for output in outputs for letter in output})
    chosen = AlignmentSettings(size=size, beam=strategy != "contexts", **settings)
    fit = partial(_fit_stage, epochs=epochs, how=how, generator=source, progress=progress)
    targets = None
    if strategy == "forced":
        exact = replace(chosen, beam=False, memory=1, size=2 * len(letters) + 2)
        simple = AlignmentModel.start(symbols, letters, order=2, settings=exact)
        state = source.get_state()
        fit(simple, Examples.of(simple, inputs, outputs), "contexts")
        source.set_state(state)  # the examples come in the order that other strategies see
        targets = imputed_targets(simple, inputs, outputs)
        strategy = "target"
    model = AlignmentModel.start(
        symbols, letters, order=order, only_longest=only_longest, settings=chosen
    )
    fit(model, Examples.of(model, inputs, outputs, targets), strategy, after=after)
    return model


@dataclass(frozen=True, eq=False)
class Examples:
    """Columns and targets of each example."""

    columns: list[Columns]
    targets: list[Targets | None]

    @staticmethod
    def of(
        model: AlignmentModel,
        inputs: Sequence[Sequence[str]],
        outputs: Sequence[Sequence[str]],
        targets: Sequence[Targets | None] | None = None,
    ) -> Examples:
        """The examples of a model; by default their targets are the outputs."""
        return Examples(
            [model.columns([numbers]) for numbers in model.numbered_inputs(inputs)],
            list(targets or [model.targets([output]) for output in outputs]),
        )


def _fit_stage(
    model: AlignmentModel,
    examples: Examples,
    strategy: Strategy,
    *,
    epochs: int,
    how: Hogwild,
    generator: torch.Generator,
    after: After | None = None,
    progress: bool | Callback = False,
) -> AlignmentStats:
    """Go through all examples in a random order, `epochs` times, moving the model's weights."""
    stats = AlignmentStats()
    size = len(examples.columns)
    started = monotonic()
    workers = [
        partial(_learn, model, examples, strategy, steps)
        for steps in how.steps(model.histories, generator)
    ]
    together = 1 if how.threads == 1 else TOLD
    with reporter(progress, "alignments") as tell:
        for _ in range(epochs):
            order = torch.randperm(size, generator=generator).tolist()
            for first in range(0, size, together):
                for found in shared_out(workers, order[first : first + together]):
                    stats.add(found)
                if after is not None:
                    after(stats.seen, model, stats)
                if stats.seen % TOLD == 0:
                    tell(_progress(stats, size * epochs, monotonic() - started))
            refuse_divergence(model.histories.weights)
    return stats


def _learn(
    model: AlignmentModel, examples: Examples, strategy: Strategy, steps: Steps, e: int
) -> AlignmentStats:
    """A step for one example."""
    stats, target = AlignmentStats(seen=1), examples.targets[e]
    found: list[tuple[Lattice, Vector]] = []
    if target is not None:
        found = difference(model, examples.columns[e], target, strategy, stats)
    for lattice, slopes in found:
        steps.add(lattice, slopes)
    if found:
        steps.take()
    stats.lost += not found
    return stats


def _progress(stats: AlignmentStats, all_examples: int, seconds: float) -> Progress:
    left = all_examples - stats.seen
    mean = stats.log_likelihood / max(stats.seen - stats.lost, 1)
    return Progress(
        run=0,
        runs=1,
        iteration=stats.seen,
        max_iterations=all_examples,
        log_likelihood=mean,
        objective=mean,
        perplexity=None,
        iterations_left=left,
        seconds_left=seconds / stats.seen * left,
    )


def difference(
    model: AlignmentModel,
    columns: Columns,
    targets: Targets,
    strategy: Strategy,
    stats: AlignmentStats,
) -> list[tuple[Lattice, Vector]]:
    """Equation (7) of one example, as weights of the edges of one lattice or two.

    Nothing where the target is not in the lattice.
    """
    by: By = "hybrid" if strategy == "hybrid" else "model"
    lattice = model.lattice(columns, by=by, targets=targets if by == "hybrid" else None)
    aimed = lattice
    if strategy == "target":
        aimed = model.lattice(columns, by="target", targets=targets)
    given = aimed.constrained(targets)
    stats.context_length += float(lattice.mean_lengths[0])
    if given.log_partition[0] == -np.inf:
        return []
    stats.log_likelihood += float(given.log_partition[0] - lattice.log_partition[0])
    if aimed is lattice:
        return [(lattice, given.posteriors - lattice.posteriors)]
    return [(aimed, given.posteriors), (lattice, -lattice.posteriors)]


def imputed_targets(
    model: AlignmentModel, inputs: Sequence[Sequence[str]], outputs: Sequence[Sequence[str]]
) -> list[Targets | None]:
    """The actions of the best alignment of each pair; None where there is no alignment."""
    found: list[Targets | None] = []
    for given in model.align(inputs, outputs):
        if given.alignment is None:
            found.append(None)
            continue
        numbers = model.numbered_outputs([given.output])[0]
        letters = len(model.letters)
        found.append(
            action_targets([alignment_actions(given.alignment, numbers, letters)], letters)
        )
    return found
