"""Priors over the parameters of a generative model, and the maximisation that they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.learning.arguments import checked_array
from inout.learning.model import Parameters

Numbers = float | Sequence[float] | NDArray[np.float64] | Tensor
Weights: TypeAlias = Float[np.ndarray, " p"]


@dataclass(frozen=True, slots=True)
class Additive:
    """Adds `amount` to the expected count of every parameter (a number, or one for each [p]).

    The same as `Dirichlet(1 + amount)`, under the name it has where counts are smoothed.
    """

    amount: Numbers

    def pseudo_counts(self, size: int) -> Weights:
        """What is added to each expected count."""
        return _numbers("prior: amount", self.amount, size, least=0.0, open_interval=False)


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """A Dirichlet density over each distribution; `alpha` is a number, or one for each parameter.

    EM then finds a maximum of log-likelihood + Σ (alpha - 1) log weight (the density up to
    a constant). The maximisation adds alpha - 1 to the expected counts.

    If alpha < 1 the density is infinite wherever a weight is zero, so there is no maximum.
    Instead, as in the limit, a parameter whose expected count is at most 1 - alpha is dropped for
    good, unless nothing would be left of its distribution, which then stays unchanged. Steps that
    drop parameters change the objective; it is compared only between the others.
    """

    alpha: Numbers

    def pseudo_counts(self, size: int) -> Weights:
        """What is added to each expected count: alpha - 1."""
        return _numbers("prior: alpha", self.alpha, size, least=0.0, open_interval=True) - 1.0


Prior = Additive | Dirichlet


def log_prior(log_weights: Weights, pseudo_counts: Weights) -> float:
    """Σ pseudo-count · log weight over the parameters that are there."""
    counted = (pseudo_counts != 0) & (log_weights > -np.inf)
    return float(np.dot(pseudo_counts[counted], log_weights[counted]))


def maximise(
    parameters: Parameters, log_weights: Weights, counts: Weights, pseudo_counts: Weights
) -> Weights:
    """The log-weights that maximise Σ (count + pseudo-count) · log weight.

    Each distribution is (count + pseudo-count) over its sum. A distribution without any mass
    keeps its weights, and a weight of zero stays zero: neither could raise the likelihood.

    >>> two = Parameters(np.log([0.5, 0.5, 0.3, 0.7]), np.array([0, 0, 1, 1]), 2)
    >>> np.exp(maximise(two, two.log_weights, np.array([3.0, 1.0, 0.0, 0.0]), np.zeros(4)))
    array([0.75, 0.25, 0.3 , 0.7 ])
    """
    # In place, as there may be tens of millions of parameters.
    mass = counts + pseudo_counts
    np.maximum(mass, 0.0, out=mass)
    mass[log_weights == -np.inf] = 0.0
    totals = np.bincount(parameters.groups, weights=mass, minlength=parameters.num_groups)
    some = totals > 0
    found: NDArray[np.float64] = mass
    with np.errstate(divide="ignore"):
        np.log(mass, out=found)
    found -= np.log(totals, out=np.zeros_like(totals), where=some)[parameters.groups]
    if not some.all():
        np.copyto(found, log_weights, where=~some[parameters.groups])
    return found


def _numbers(
    name: str, values: Numbers, size: int, *, least: float, open_interval: bool
) -> Weights:
    """The values as an array [size], refused below `least` (or at it, if `open_interval`)."""
    wanted = f"must be a number {'above' if open_interval else 'of at least'} {least:g}"
    array = checked_array(name, values, wanted)
    if array.shape not in ((), (size,)):
        raise ArgumentError(name, f"{wanted}, or {[size]} of them. Got {list(array.shape)}")
    fine = np.isfinite(array) & ((array > least) if open_interval else (array >= least))
    if not fine.all():
        bad = array if not array.ndim else array[~fine][0]
        raise ArgumentError(name, f"{wanted}. Got {bad}")
    return np.broadcast_to(array, (size,)).copy()
