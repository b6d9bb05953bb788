"""Training of a latent model on treebanks, for `inout induce --latent`."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np
import torch

from inout.cli.formats import duration, plural
from inout.latent.grammar import LatentGrammar, TrainingSet
from inout.latent.model import LPCFG
from inout.latent.starts import Latent, most_values
from inout.learning.latent_grammars import Method, Start, auto_values, fit_latent_grammar
from inout.learning.progress import Callback, Progress, reporter

SHOWN = 12  # labels whose numbers of values are told


def train(
    data: TrainingSet,
    latent: Latent,
    method: Method,
    *,
    seed: int | None,
    options: dict[str, Any],
    about: dict[str, Any],
) -> LatentGrammar:
    """Train the model, with progress bars; `about` is stored in its file."""
    began = monotonic()
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    if method == "spectral":
        made = fit_latent_grammar(
            data, latent, method, generator=generator, progress=True, **options
        )
    else:
        latent = auto_values(data) if latent == "auto" else latent
        most = int(most_values(data.trees.skeleton, latent).max())
        with ExitStack() as stack:
            bars = EMBars(most, options["start"], stack, more="sentences" in options)
            made = fit_latent_grammar(
                data,
                latent,
                method,
                generator=generator,
                progress=bars.show,
                after_round=bars.after_round,
                **options,
            )
    known: dict[str, Any] = {"trees": len(data.trees), "seconds": round(monotonic() - began, 1)}
    if "sentences" in options:
        options = options | {"sentences": len(options["sentences"])}
    known |= {"seed": seed, **options, **about}
    told = {name: value for name, value in known.items() if value is not None}
    return replace(made, training=made.training | told)


class EMBars:
    """A bar for each round of EM; a round ends with a smoothed model.

    Split EM begins with two values and doubles them. With `more`, a round with sentences follows.
    """

    def __init__(self, latent: int, start: Start, stack: ExitStack, *, more: bool = False) -> None:
        doublings = max(math.ceil(math.log2(latent)), 1) if start == "split" else 0
        self._sizes = [min(2**k, latent) for k in range(1, doublings + 1)] or [latent]
        self._sizes += [latent] * more
        self._stack, self._round, self._each = stack, 0, 0.0
        self._show = self._opened()

    def show(self, progress: Progress) -> None:
        """Move the bar of this round; the time left includes all rounds."""
        left = progress.seconds_left
        if left is not None:
            if progress.iterations_left:
                self._each = left / progress.iterations_left
            now, *later = self._sizes[self._round :]
            # The cost of an iteration grows at least quadratically in the number of values.
            iterations = progress.max_iterations * sum((size / now) ** 2 for size in later)
            progress = replace(progress, seconds_left=left + self._each * iterations)
        self._show(progress)

    def after_round(self, model: LPCFG, size: int) -> None:
        """Start the bar of the next round, if there is one."""
        self._stack.close()
        self._round += 1
        if self._round < len(self._sizes):
            self._show = self._opened()

    def _opened(self) -> Callback:
        name = "EM"
        if len(self._sizes) > 1:
            name = f"EM with {self._sizes[self._round]} of {self._sizes[-1]} values"
        return self._stack.enter_context(reporter(True, name))


def put_model(out: str, made: LatentGrammar, began: float) -> None:
    """Write the model, and report its size and the time taken."""
    made.save(out)
    skeleton, values = made.model.skeleton, int(made.model.sizes.max())
    parts = [
        plural(len(skeleton.binary), "binary rule"),
        plural(len(skeleton.lexical), "lexical rule"),
        plural(len(skeleton.nonterminals), "nonterminal"),
        plural(values, "latent value"),
        made.training["method"],
        duration(monotonic() - began),
    ]
    print(f"wrote {out}: {', '.join(parts)}", file=sys.stderr)
    if not isinstance(made.training["latent"], int):
        print(f"values: {_values(made.model)}", file=sys.stderr)


def _values(model: LPCFG) -> str:
    """The labels with the most values, and how many those have that are not named."""
    order = np.argsort(-model.sizes, kind="stable").tolist()
    shown = [f"{model.skeleton.nonterminals[a]} {model.sizes[a]}" for a in order[:SHOWN]]
    if len(order) > SHOWN:
        shown.append(f"others up to {model.sizes[order[SHOWN]]}")
    return ", ".join(shown)
