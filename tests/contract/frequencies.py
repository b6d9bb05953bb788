"""Pearson's test of frequencies."""

from __future__ import annotations

import torch
from scipy.stats import chi2
from torch import Tensor


def surprise(observed: Tensor, expected: Tensor) -> float:
    """p-value of Pearson's test, rare events taken together."""
    common = expected >= 5
    seen = torch.cat([observed[common], observed[~common].sum()[None]])
    meant = torch.cat([expected[common], expected[~common].sum()[None]])
    assert bool((seen[meant == 0] == 0).all())
    seen, meant = seen[meant > 0], meant[meant > 0]
    if len(seen) < 2:
        return 1.0
    statistic = float(((seen - meant) ** 2 / meant).sum())
    return float(chi2.sf(statistic, len(seen) - 1))
