"""`fit_contexts`: context models from labelled sequences, by AdaGrad or L-BFGS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from inout._core.checks import at_least, expect
from inout._core.errors import ArgumentError
from inout.contexts.history_features import HistoryFeature, checked_features, described
from inout.contexts.model import ContextModel, Settings
from inout.contexts.observations import Observations, Sequences
from inout.contexts.orderings import LEFT_TO_RIGHT, Ordering, name_of, visits
from inout.learning.arguments import checked_number, generator_or_fixed
from inout.learning.context_batches import fit_lbfgs
from inout.learning.context_training import After, Training
from inout.learning.context_training import Passed as Passed
from inout.learning.hogwild import Hogwild

Method = Literal["adagrad", "lbfgs"]


def fit_contexts(
    sequences: Sequences,
    tags: Sequence[Sequence[str]],
    *,
    order: int = 4,
    size: int = 10,
    memory: int | str | None = "order",
    beam: bool = False,
    learn_escape: bool = False,
    shorter: bool = True,
    end: bool = False,
    ordering: Ordering = LEFT_TO_RIGHT,
    history_features: Sequence[HistoryFeature] = (),
    method: Method = "adagrad",
    epochs: int = 5,
    step: float = 0.2,
    delta: float = 0.1,
    l2: float = 0.0,
    truncate: float = 0.0,
    threads: int = 1,
    generator: torch.Generator | None = None,
    every: int | None = None,
    after: After | None = None,
) -> ContextModel:
    """Train a model to maximise Σ log p(tags | sequence), selecting contexts along the way.

    A sequence is a list of positions, each a mapping from features to values or a list of
    features; or an array [n, d]. `order`, `size`, `memory` ("order": as much as n-grams of this
    order and `history_features` need), `beam`, `shorter` and `end` are those of `Settings`.
    `history_features` are functions of the labels before a position: see `HistoryFeature`.

    `ordering`: "left-to-right", "right-to-left", "middle-out", or a function that gives the
    positions of a sequence in the order in which they get their labels. "Before" and n-grams mean
    that order (section 9 of the paper).

    "adagrad": for each sequence, in a random order (by `generator`, by default one with seed 0),
    contexts are selected and one step is taken along the gradient: the features of the tags minus
    those expected. A weight changes by step · g / (delta + √Σ g²), where g is its gradient and the
    sum is over all steps so far; a smaller `delta` learns more from rare features. "lbfgs":
    in each epoch contexts are selected for all sequences, then all weights are optimised with
    these contexts and the penalty l2/2 · |weights|².

    `threads`: so many take steps at a time, sharing all weights without locks (Hogwild); two runs
    then give different models. `truncate`: a gradient in the score of a label after a context that
    is below ±truncate is rounded to 0 or ±truncate, at random, with unchanged expectation; n-grams
    get weights only where it is not 0. Both are of appendix B of the paper.

    With a beam, only histories in the beam have probability. Tags outside it still count with all
    their features; with `learn_escape` they use ⋆…⋆ instead, at a learned cost.

    `after` is called after `every` examples (by default once per epoch) with the progress and the
    current model, whose weights keep changing: `copy` it to keep it.

    Time for an epoch: O(positions · size · labels).

    >>> model = fit_contexts([[["round"], ["dark"]]] * 3, [["sun", "moon"]] * 3, order=2)
    >>> model.tag([[["round"], ["dark"], ["round"]]])[0].labels
    ['sun', 'moon', 'sun']

    Steinhardt & Liang (2015), section 5.
    """
    expect(method in ("adagrad", "lbfgs"), "method", "must be adagrad or lbfgs", method)
    labels = _checked_labels(sequences, tags)
    functions = checked_features(history_features)
    order, size = at_least("order", order, 1), at_least("size", size, 0)
    bound = _checked_memory(memory, order, bool(beam), functions)
    kinds = bool(beam), bool(shorter), bool(end)
    settings = Settings(order, size, bound, *kinds, name_of(ordering), described(functions))
    names: dict[str, int] = {}
    seen = Observations.of(sequences, names, grow=True).visited(visits(ordering, sequences))
    model = ContextModel.untrained(labels, list(names), settings, functions, ordering)
    if learn_escape:
        model = replace(model, escape=0.0)
    training = Training(
        model,
        seen,
        model.targets(seen.in_order_of_visits(tags)),
        learn_escape,
        at_least("epochs", epochs, 0),
        generator_or_fixed(generator),
        len(sequences) if every is None else at_least("every", every, 1),
        after,
    )
    l2 = checked_number("l2", l2, 0.0)
    if method == "adagrad":
        expect(not l2, "l2", "is for lbfgs", l2)
        return training.adagrad(Hogwild(step, delta, threads, truncate))
    expect(threads == 1, "threads", "must be 1 for lbfgs", threads)
    expect(not truncate, "truncate", "is for adagrad", truncate)
    return fit_lbfgs(training, l2)


def _checked_labels(sequences: Sequences, tags: Sequence[Sequence[str]]) -> list[str]:
    """All labels, in order, of data in which every position has one."""
    wanted = f"must be one list for each of {len(sequences)} sequences"
    expect(len(sequences) == len(tags), "tags", wanted, len(tags))
    if not len(sequences):
        raise ArgumentError("sequences", "must not be empty")
    check_positions("tags", sequences, tags)
    found = {label for one in tags for label in one}
    for label in found:
        if not isinstance(label, str):
            raise ArgumentError("tags", f"must be strings. Got {label!r:.80}")
    return sorted(found)


def check_positions(name: str, sequences: Sequence[Any], labels: Sequence[Any]) -> None:
    """Raise unless each sequence has a label for each position."""
    for number, (sequence, own) in enumerate(zip(sequences, labels, strict=True)):
        given = f"number {number} has {len(sequence)} positions and {len(own)} labels"
        if len(sequence) != len(own):
            raise ArgumentError(name, f": a sequence must have a label for each position: {given}")


def _checked_memory(
    memory: int | str | None, order: int, beam: bool, functions: Sequence[HistoryFeature]
) -> int | None:
    """The most labels that a context remembers; None: no bound."""
    if memory == "order":
        return None if beam else max(order - 1, *(one.length for one in functions), 1)
    if isinstance(memory, str):
        raise ArgumentError("memory", f"must be a number, None or 'order'. Got {memory!r:.80}")
    return None if memory is None else at_least("memory", memory, 0)
