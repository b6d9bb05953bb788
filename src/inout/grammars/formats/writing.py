"""What formats share when they write: weights as text, and the error about what has none."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError


def written_weights(log_weights: NDArray[np.float64]) -> list[str]:
    """exp of each log-weight in at most 17 digits, without exponent, which NLTK does not read.

    Uses the fewest digits whose log is exactly the log-weight, so that 0.1 is written as 0.1 and
    files round-trip. A weight outside the range of normal floats raises ArgumentError: written as
    0 it would be lost.
    """
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(log_weights)
    tiny = (weights < np.finfo(np.float64).tiny) & (log_weights > -np.inf)
    bad = np.flatnonzero(tiny | np.isinf(weights))
    if len(bad):
        raise ArgumentError(
            "format",
            f": weights must be within the range of floats to be written. Got a log-weight of "
            f"{log_weights[bad[0]]} at rule {bad[0]}; use json, or lines with log=True",
        )
    pairs = zip(weights.tolist(), log_weights.tolist(), strict=True)
    return [np.format_float_positional(_tidied(w, x), unique=True, trim="-") for w, x in pairs]


def _tidied(weight: float, log_weight: float) -> float:
    """The float near `weight` with the fewest digits and exactly this log, if there is one."""
    if weight == 0:
        return weight
    for digits in (15, 16):
        candidate = float(f"{weight:.{digits}g}")
        if math.log(candidate) == log_weight:
            return candidate
    if math.log(weight) == log_weight:
        return weight
    near = [math.nextafter(weight, 0.0), math.nextafter(weight, math.inf)]
    return next((w for w in near if math.log(w) == log_weight), weight)


def inexpressible(format: str, kind: str, text: str) -> ArgumentError:
    """The error about a symbol that a format cannot express."""
    return ArgumentError("format", f": {format} has no way to write the {kind} {text!r}; use json")
