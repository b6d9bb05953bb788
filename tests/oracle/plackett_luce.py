"""Sampling without replacement by enumeration: the probabilities of ordered subsets."""

from __future__ import annotations

from itertools import permutations

from torch import Tensor


def ordered_subsets(probabilities: Tensor, k: int) -> dict[tuple[int, ...], float]:
    """How likely it is that k events are drawn in this order, one by one from those left."""
    p = [float(x) for x in probabilities]
    alive = [i for i, x in enumerate(p) if x > 0]
    result = {}
    for chosen in permutations(alive, min(k, len(alive))):
        chance, left = 1.0, 1.0
        for place, i in enumerate(chosen):
            # Added up anew: what is left must not be a small difference.
            left = sum(p[j] for j in alive if j not in chosen[:place])
            chance *= p[i] / left
        result[chosen] = chance
    return result
