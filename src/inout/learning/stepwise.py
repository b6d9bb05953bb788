"""`Stepwise`: online EM, with a step after every minibatch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.checks import at_least
from inout._core.errors import ArgumentError
from inout.learning.arguments import checked_number, naming_examples
from inout.learning.expectation import expect
from inout.learning.model import GenerativeModel

Maximise = Callable[[Float[np.ndarray, " p"], Float[np.ndarray, " p"]], Float[np.ndarray, " p"]]


@dataclass(frozen=True, slots=True)
class Stepwise:
    """EM with a step after every `batch_size` sentences (Liang & Klein 2009, section 3.2).

    After minibatch number k the counts are μ ← (1 - η) μ + η s with η = (k + 2)^-alpha; s are the
    expected counts of the minibatch, times the number of minibatches. The first μ are the counts of
    the whole corpus under the starting point. A smaller alpha forgets sooner; above 0.5 it
    converges to a local maximum, as EM does, often within a few passes. A step may lower the
    likelihood.
    """

    batch_size: int = 100
    alpha: float = 0.7

    def __post_init__(self) -> None:
        at_least("batch_size", self.batch_size, 1)
        if checked_number("alpha", self.alpha, 0.0) > 1:
            raise ArgumentError("alpha", f"must be at most 1. Got {self.alpha}")


class Minibatches:
    """The likelihood of a corpus, minibatch by minibatch; also the function of all of it.

    Minibatch j of m has the sentences j, j + m, j + 2m, …, so that sorted corpora are mixed.
    """

    def __init__(
        self,
        model: GenerativeModel,
        corpus: Any,
        frequencies: Float[np.ndarray, " b"],
        method: Stepwise,
    ) -> None:
        if not hasattr(corpus, "__getitem__"):
            raise ArgumentError("corpus", "must be a list, to be divided into minibatches")
        size = len(frequencies)
        many = -(-size // method.batch_size)
        parts = [np.arange(first, size, many) for first in range(many)]
        self._alpha = method.alpha
        self._frequencies = [frequencies[part] for part in parts]
        self._likelihoods = []
        for part in parts:
            with naming_examples(lambda i, part=part: f"corpus[{part[i]}]"):  # type: ignore[misc]
                self._likelihoods.append(model.likelihood([corpus[i] for i in part]))
        self._places = torch.from_numpy(np.argsort(np.concatenate(parts)))

    def __call__(self, log_weights: Float[Tensor, " p"]) -> Float[Tensor, " b"]:
        """log Z of every sentence."""
        found = torch.cat([likelihood(log_weights) for likelihood in self._likelihoods])
        return found[self._places.to(found.device)]

    def go_through(
        self,
        log_weights: Float[np.ndarray, " p"],
        counts: Float[np.ndarray, " p"],
        passes: int,
        maximise: Maximise,
    ) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
        """The log-weights and the counts μ after one more pass, given those before it.

        `maximise(log_weights, counts)` is the M step.
        """
        many = len(self._likelihoods)
        minibatches = zip(self._likelihoods, self._frequencies, strict=True)
        for number, (likelihood, frequencies) in enumerate(minibatches, passes * many):
            found = expect(likelihood, log_weights, frequencies)
            rate = (number + 2) ** -self._alpha
            counts = (1 - rate) * counts + rate * many * found.counts
            log_weights = maximise(log_weights, counts)
        return log_weights, counts
