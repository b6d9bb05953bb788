"""Errors of training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import TrainingError as TrainingError


def refuse_divergence(*weights: NDArray[np.float64]) -> None:
    """Raise where steps of training were too large for it to go anywhere."""
    if not all(np.isfinite(some).all() for some in weights):
        raise TrainingError(
            "training must keep weights finite. Got others; smaller steps or smaller values of "
            "features are needed"
        )
