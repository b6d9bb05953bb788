"""`fit_alignment`: an alignment model by AdaGrad, from inputs and outputs without alignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch

from inout._core.checks import at_least
from inout._core.errors import ArgumentError
from inout.contexts.alignment_actions import action_targets, alignment_actions
from inout.contexts.alignment_model import AlignmentModel, AlignmentSettings
from inout.kernels.contexts.arrays import Columns, Targets
from inout.kernels.contexts.op import Lattice
from inout.learning.arguments import checked_generator, checked_number

Strategy = Literal["contexts", "model", "target", "hybrid", "forced"]


@dataclass
class AlignmentStats:
    """What training has done so far; sums over examples."""

    seen: int = 0
    lost: int = 0
    """Examples whose target was not in the lattice, and that taught nothing."""

    context_length: float = 0.0
    """Mean number of edges that contexts remember, weighted by their mass, of each example."""

    log_likelihood: float = 0.0
    """log p(target | input) of examples that were not lost, before the update of each."""


After = Callable[[int, AlignmentModel, AlignmentStats], None]


def fit_alignment(
    inputs: Sequence[Sequence[str]],
    outputs: Sequence[Sequence[str]],
    *,
    strategy: Strategy = "contexts",
    order: int = 5,
    size: int = 20,
    epochs: int = 5,
    step: float = 0.2,
    delta: float = 1e-4,
    generator: torch.Generator | None = None,
    after: After | None = None,
    **settings: Any,
) -> AlignmentModel:
    """The model that explains outputs by inputs, their alignments being hidden.

    Every example moves the weights along equation (7) of Steinhardt & Liang (2015): the features
    expected given input and output, less those expected given the input. The strategies (section
    6) differ in where the expectations are taken:

    - contexts: in contexts of `size` selected by the model (RCMS), which cover everything;
    - model: in a beam of the model; what is not in it teaches nothing;
    - target: given the output in a beam of what spells it, else in a beam of the model;
    - hybrid: in one beam, the union of both at every step;
    - forced: a bigram model with exact inference is trained first, its best alignments are taken
      for true, and a beam is trained on them.

    `settings` are those of `AlignmentSettings`. `after(seen, model, stats)` is called after each
    example; `generator` draws the order of each epoch.

    >>> inputs, outputs = [["A", "B"], ["B"], ["B", "A"]], ["xyy", "yy", "yyx"]
    >>> model = fit_alignment(inputs, outputs, order=2, epochs=10)
    >>> print(model.predict([["A", "B", "A"]])[0].alignment)
    | A | B  | A |
    | x | yy | x |
    """
    if strategy not in get_args(Strategy):
        raise ArgumentError(
            f"strategy must be one of {', '.join(get_args(Strategy))}. Got {strategy!r}"
        )
    if not inputs or len(inputs) != len(outputs):
        raise ArgumentError(
            f"there must be an output for each of one or more inputs. "
            f"Got {len(inputs)} inputs and {len(outputs)} outputs"
        )
    at_least("epochs", epochs, 0)
    checked_number("step", step, 0, above=True)
    checked_number("delta", delta, 0)
    source = checked_generator(generator, needed=False) or torch.Generator().manual_seed(0)
    symbols = sorted({symbol for given in inputs for symbol in given})
    letters = sorted({letter for output in outputs for letter in output})
    chosen = AlignmentSettings(size=size, beam=strategy != "contexts", **settings)
    targets = None
    if strategy == "forced":
        simple = AlignmentModel.start(
            symbols, letters, order=2, settings=_exact(chosen, len(letters))
        )
        plan = Examples.of(simple, inputs, outputs)
        train(simple, plan, "contexts", epochs, step, delta, source)
        targets = imputed_targets(simple, inputs, outputs)
    model = AlignmentModel.start(symbols, letters, order=order, settings=chosen)
    examples = Examples.of(model, inputs, outputs, targets)
    train(model, examples, "target" if targets else strategy, epochs, step, delta, source, after)
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
        """The examples of a model; their targets are the outputs unless others are given."""
        return Examples(
            [model.columns([numbers]) for numbers in model.numbered_inputs(inputs)],
            list(targets or [model.targets([output]) for output in outputs]),
        )


def train(
    model: AlignmentModel,
    examples: Examples,
    strategy: Strategy,
    epochs: int,
    step: float,
    delta: float,
    generator: torch.Generator,
    after: After | None = None,
) -> None:
    """Go through all examples in a random order, `epochs` times, moving the model's weights."""
    stats = AlignmentStats()
    for _ in range(epochs):
        for e in torch.randperm(len(examples.columns), generator=generator).tolist():
            target = examples.targets[e]
            if target is not None and add_gradient(
                model, examples.columns[e], target, strategy, stats
            ):
                model.histories.adagrad(step, delta)
            else:
                stats.lost += 1
            stats.seen += 1
            if after is not None:
                after(stats.seen, model, stats)


def add_gradient(
    model: AlignmentModel,
    columns: Columns,
    targets: Targets,
    strategy: Strategy,
    stats: AlignmentStats,
) -> bool:
    """Add equation (7) of one example to the gradient; False, and nothing, if it has no target."""
    by: Any = "hybrid" if strategy == "hybrid" else "model"
    lattice = model.lattice(columns, by=by, targets=targets if by == "hybrid" else None, grow=True)
    aimed = lattice
    if strategy == "target":
        aimed = model.lattice(columns, by="target", targets=targets, grow=True)
    given = aimed.constrained(targets)
    stats.context_length += mean_context_length(lattice)
    if given.log_partition[0] == -np.inf:
        return False
    stats.log_likelihood += float(given.log_partition[0] - lattice.log_partition[0])
    if aimed is lattice:
        model.histories.add_gradient(lattice, given.posteriors - lattice.posteriors, 1.0)
    else:
        model.histories.add_gradient(aimed, given.posteriors, 1.0)
        model.histories.add_gradient(lattice, lattice.posteriors, -1.0)
    return True


def mean_context_length(lattice: Lattice) -> float:
    """How many edges the contexts of one example remember, weighted by their mass.

    The first and the last context, the beginning and the end, do not count.
    """
    mass = lattice.mass[1:-1]
    total = float(mass.sum())
    return float(mass @ lattice.lengths[1:-1]) / total if total > 0 else 0.0


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
        actions = alignment_actions(given.alignment, numbers, letters)
        found.append(action_targets([actions], letters))
    return found


def _exact(settings: AlignmentSettings, letters: int) -> AlignmentSettings:
    """Contexts that remember one edge, and room for all of them."""
    return replace(settings, beam=False, memory=1, size=2 * letters + 2)
