"""The E step: expected counts are the gradient of the log-likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import TrainingError
from inout.learning.model import LogPartitions

Weights: TypeAlias = Float[np.ndarray, " p"]
# A sum of log Z is right to about this share of its terms; the tolerance of the whole library.
ROUNDING = 1e-10
NOISE = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the E step finds at one setting of the parameters."""

    log_likelihood: float  # Σ frequency · log Z over the sentences that have an analysis
    counts: Weights
    analysed: Bool[np.ndarray, " b"]
    scale: float  # Σ frequency · (1 + |log Z|): rounding errors are relative to this

    @property
    def rounding(self) -> float:
        """More than the rounding error of the log-likelihood: a fall by more is real."""
        return ROUNDING * self.scale

    @property
    def noise(self) -> float:
        """The likely rounding error of the log-likelihood: a rise by less is none."""
        return NOISE * self.scale


def expect(
    log_partitions: LogPartitions, log_weights: Weights, frequencies: Float[np.ndarray, " b"]
) -> Expectation:
    """The log-likelihood of a corpus and its gradient, the expected counts.

    Sentences without analysis are left out: their log Z is -inf, its gradient 0. The cost is that
    of log Z and its gradient.
    """
    weights = torch.from_numpy(log_weights.copy()).requires_grad_()
    log_z = log_partitions(weights)
    if log_z.shape != frequencies.shape:
        raise TrainingError(
            f"the model's likelihood must give one number for each of the {len(frequencies)} "
            f"sentences. Got {list(log_z.shape)}"
        )
    values = log_z.detach().cpu().double().numpy()
    bad = np.isnan(values) | (values == np.inf)
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        wanted = "log Z must be finite or -inf"
        raise TrainingError(f"{wanted}. Got {values[place]} for sentence {place}")
    analysed = values > -np.inf
    kept = np.where(analysed, frequencies, 0.0)
    terms = kept[analysed] * values[analysed]
    return Expectation(
        log_likelihood=math.fsum(terms),  # exact, hence the same in any order of the sentences
        counts=_gradient(log_z, weights, kept),
        analysed=analysed,
        scale=float(np.abs(terms).sum() + kept.sum()),
    )


def _gradient(log_z: Tensor, weights: Tensor, frequencies: Float[np.ndarray, " b"]) -> Weights:
    if not log_z.requires_grad:  # no sentence uses any parameter
        return np.zeros(len(weights))
    factors = torch.from_numpy(frequencies).to(log_z.device, log_z.dtype)
    # Of a scalar: given factors, torch would import sympy, which takes a second.
    (gradient,) = torch.autograd.grad((log_z * factors).sum(), weights, allow_unused=True)
    if gradient is None:
        return np.zeros(len(weights))
    counts: NDArray[np.float64] = gradient.cpu().double().numpy()
    least = -ROUNDING * (1.0 + max(counts.max(initial=0.0), -counts.min(initial=0.0)))
    if not (counts.min(initial=0.0) >= least > -np.inf):  # NaN and infinity as well
        bad = ~((counts >= least) & (counts < np.inf))
        place = int(np.flatnonzero(bad)[0])
        wanted = "the gradient of log Z must be expected counts, which are not negative"
        raise TrainingError(f"{wanted}. Got {counts[place]} for parameter {place}")
    return np.maximum(counts, 0.0)
