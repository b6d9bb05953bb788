"""`GenerativeModel`: the interface of models that EM can train, and their parameters in arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import as_log_weights, expect_shape
from inout._core.errors import ArgumentError

LogPartitions = Callable[[Tensor], Tensor]
Own = TypeVar("Own")  # typing.Self, which beartype does not take here


@runtime_checkable
class GenerativeModel(Protocol):
    """A model whose parameters are probabilities, and whose log Z of a sentence is differentiable.

    That is all EM needs: the gradient of Σ log Z is the expected count of each parameter (Eisner
    2016, section 3), and the M step normalises these counts in each distribution.

    Two further methods are optional. `lengths(corpus)` gives the number of words of each sentence
    (by default `len(sentence)`), for the perplexity, or None where there are none. `fingerprint()`
    gives a text that differs from that of every other model, for checkpoints (by default the text
    of a grammar's rules; of other models the name of the class and the parameters).
    """

    @property
    def log_weights(self) -> Tensor:
        """All parameters [p] as natural logs, -inf for what is impossible."""

    @property
    def distributions(self) -> NDArray[np.int64]:
        """The number of the distribution [p] that each parameter belongs to; each sums to 1."""

    def with_log_weights(self: Own, log_weights: Tensor) -> Own:
        """The same model with other parameters."""

    def likelihood(self, corpus: Any) -> LogPartitions:
        """A function of the parameters [p] that gives log Z of every sentence [b].

        Everything independent of the parameters is computed here, once. -inf means that a sentence
        has no analysis.
        """


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a model and the distributions that they form, in arrays."""

    log_weights: NDArray[np.float64]  # [p]
    groups: NDArray[np.int64]  # [p], numbered without gaps
    num_groups: int

    @staticmethod
    def of(model: GenerativeModel) -> Parameters:
        """The parameters of a model, checked."""
        wanted = ("log_weights", "distributions", "with_log_weights", "likelihood")
        missing = [name for name in wanted if not hasattr(model, name)]
        if missing:
            found = f"{type(model).__name__} without {', '.join(missing)}"
            raise ArgumentError("model", f"must be a GenerativeModel. Got {found}")
        given = np.asarray(model.distributions)
        if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size:
            found = f"{given.dtype} {list(given.shape)}"
            needed = "must be integers [p], at least one"
            raise ArgumentError("model.distributions", f"{needed}. Got {found}")
        log_weights = as_array("model.log_weights", model.log_weights, given.size)
        groups = _without_gaps(given)
        return Parameters(log_weights, groups, int(groups.max()) + 1)

    def totals(self, values: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
        """For each parameter the sum of the values of its distribution."""
        sums = np.bincount(self.groups, weights=values, minlength=self.num_groups)
        return sums[self.groups]

    def normalised(self, log_weights: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
        """The log-weights, each distribution divided by its sum; one without any weight stays.

        >>> two = Parameters(np.zeros(3), np.array([0, 0, 1]), 2)
        >>> np.exp(two.normalised(np.log([3.0, 1.0, 5.0])))
        array([0.75, 0.25, 1.  ])
        """
        largest = np.full(self.num_groups, -np.inf)
        np.maximum.at(largest, self.groups, log_weights)
        shift = np.where(largest == -np.inf, 0.0, largest)[self.groups]
        totals = self.totals(np.exp(log_weights - shift))
        return log_weights - shift - np.log(np.where(totals > 0, totals, 1.0))


def log_softmax(
    scores: Float[Tensor, " p"], distributions: NDArray[np.int64] | Sequence[int]
) -> Float[Tensor, " p"]:
    """Scores as log-probabilities: within each distribution, the scores minus their log-sum-exp.

    With this any optimiser of torch trains any generative model, whose scores are then free. A
    score of -inf stays, and its gradient is 0. O(p); differentiable to any order.

    >>> import torch
    >>> from inout.learning import HiddenMarkovModel
    >>> model = HiddenMarkovModel.random(2, 2, generator=torch.Generator().manual_seed(0))
    >>> likelihood = model.likelihood([[0, 1, 0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> scores = model.log_weights.clone().requires_grad_()
    >>> optimiser = torch.optim.Adam([scores], lr=0.5)
    >>> for _ in range(100):
    ...     optimiser.zero_grad()
    ...     loss = -likelihood(log_softmax(scores, model.distributions)).sum()
    ...     loss.backward()
    ...     optimiser.step()
    >>> trained = model.with_log_weights(log_softmax(scores.detach(), model.distributions))
    >>> trained.transition.exp().round(decimals=2)
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """
    groups = torch.from_numpy(_without_gaps(np.asarray(distributions))).to(scores.device)
    expect_shape("scores", scores, tuple(groups.shape))
    nothing = scores.new_full((int(groups.max()) + 1,), -torch.inf)
    largest = nothing.scatter_reduce(0, groups, scores.detach(), "amax")
    shifted = scores - largest.clamp_min(torch.finfo(scores.dtype).min)[groups]
    totals = torch.zeros_like(nothing).index_add(0, groups, shifted.exp())
    return shifted - totals.where(totals > 0, 1.0).log()[groups]


def _without_gaps(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """The rank of each number among the distinct ones."""
    least, span = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
    if span > 4 * len(numbers):
        _, ranked = np.unique(numbers, return_inverse=True)
        return ranked.astype(np.int64)
    # Without a sort, which takes longer than all else where there are millions of parameters.
    if numbers.dtype.kind == "i":
        numbers = numbers.astype(np.int64, copy=False)  # differences of narrower ones may overflow
    shifted = (numbers - numbers.dtype.type(least)).astype(np.int64, copy=False)
    ranks = np.cumsum(np.bincount(shifted, minlength=span) > 0) - 1
    return np.asarray(ranks[shifted], np.int64)


def as_array(name: str, values: Any, size: int) -> Float[np.ndarray, " p"]:
    """Log-weights [size] as a float64 array of their own, on the CPU, outside any graph."""
    tensor = as_log_weights(name, values, size).detach()
    array: NDArray[np.float64] = tensor.cpu().double().numpy().copy()
    return array


def sentence_lengths(model: GenerativeModel, corpus: Any) -> Int[np.ndarray, " b"] | None:
    """The number of words of each sentence; None where unknown."""
    if hasattr(model, "lengths"):
        found = model.lengths(corpus)
        return None if found is None else np.asarray(found, np.int64)
    try:
        return np.array([len(sentence) for sentence in corpus], np.int64)
    except TypeError:
        return None
