"""`fit_context_hidden_markov`: EM for hidden Markov models whose contexts are selected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from inout._core.checks import at_least
from inout._core.errors import ArgumentError, TrainingError
from inout.contexts.hidden_markov import ContextExpectation, ContextHiddenMarkovModel
from inout.learning.arguments import checked_corpus, checked_number
from inout.learning.model import Parameters
from inout.learning.priors import maximise


@dataclass(frozen=True, slots=True)
class ContextPass:
    """One pass over the corpus: what it found under the model before, and the model after."""

    iteration: int  # from 1
    model: ContextHiddenMarkovModel
    expectation: ContextExpectation


@dataclass(frozen=True, slots=True)
class ContextEMResult:
    """The model after the last pass, and what each pass found under the model before it."""

    model: ContextHiddenMarkovModel
    log_likelihoods: tuple[float, ...]
    context_lengths: tuple[float, ...]


def fit_context_hidden_markov(
    model: ContextHiddenMarkovModel,
    corpus: Iterable[Any],
    *,
    iterations: int = 30,
    smoothing: float = 0.01,
    after: Callable[[ContextPass], None] | None = None,
) -> ContextEMResult:
    """The model with emissions learned by EM, contexts being selected anew in each iteration.

    Each pass over the corpus selects contexts under the emissions so far, counts in them how
    often each label is expected to emit each symbol, adds `smoothing`, and divides by the sums.
    `after` is called after each pass.

    The likelihoods of the passes are those of different models, and may fall. With the contexts of
    the start fixed they cannot: that is `em(model, corpus, prior=Additive(smoothing))`. From
    uniform emissions contexts are short at first, and become longer as the model learns
    (Steinhardt & Liang 2015, sections 6 and 7).

    >>> from inout.contexts.language_model import NGramLanguageModel
    >>> text = [[0, 1, 2, 2], [0, 1, 2, 1, 2]]
    >>> words = NGramLanguageModel.estimated(text, labels=3, order=2)
    >>> uniform = torch.full((3, 3), 1 / 3, dtype=torch.float64).log()
    >>> start = ContextHiddenMarkovModel(words, uniform, size=4)
    >>> result = fit_context_hidden_markov(start, [[1, 2, 0, 0], [1, 2, 0, 2, 0]])
    >>> result.model.emission.argmax(1)  # 0 was enciphered as 1, 1 as 2, 2 as 0
    tensor([1, 2, 0])
    """
    if not isinstance(model, ContextHiddenMarkovModel):
        raise ArgumentError("model", f"must be a ContextHiddenMarkovModel. Got {model!r:.80}")
    sequences: Any = checked_corpus(corpus)
    iterations = at_least("iterations", iterations, 0)
    smoothing = checked_number("smoothing", smoothing, 0.0)
    parameters = Parameters.of(model)
    pseudo_counts = np.full(len(parameters.log_weights), smoothing)
    passes = []
    for iteration in range(1, iterations + 1):
        found = model.expectation(sequences)
        if not (found.log_likelihoods > -np.inf).any():
            raise TrainingError("no sequence of the corpus is possible under the model")
        weights = maximise(
            parameters, model.log_weights.numpy(), found.counts.reshape(-1), pseudo_counts
        )
        model = model.with_log_weights(torch.from_numpy(weights))
        passes.append(found)
        if after is not None:
            after(ContextPass(iteration, model, found))
    return ContextEMResult(
        model,
        tuple(one.log_likelihood for one in passes),
        tuple(one.context_length for one in passes),
    )
