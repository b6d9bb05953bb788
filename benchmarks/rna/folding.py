"""Structures of least risk, and how right structures are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from benchmarks.rna.pfold import Pairs


def most_accurate(posteriors: NDArray[np.float64], gamma: float = 1.0) -> Pairs:
    """The nested pairs that maximise Σ unpaired q(i) + gamma Σ pairs 2 p(i, j).

    With gamma 1 it is the structure with the most bases expected to be right (Knudsen & Hein
    2003); above 1 it has more pairs (Do, Woods & Batzoglou 2006). O(n³) time, O(n²) memory.
    """
    n = len(posteriors)
    single = 1 - posteriors.sum(axis=0) - posteriors.sum(axis=1)
    # best[i, j] is that of i .. j−1; choice the base that i is paired with, i itself if none.
    best = np.full((n + 1, n + 1), -np.inf)
    best[n, n] = 0.0
    choice = np.zeros((n + 1, n + 1), dtype=np.int64)
    for i in range(n - 1, -1, -1):
        alone = single[i] + best[i + 1]
        below = 2 * gamma * posteriors[i, i + 1 :] + best[i + 1, i + 1 : n]
        gains = np.vstack([alone, below[:, None] + best[i + 2 :]])  # [partner, j]
        choice[i] = i + gains.argmax(axis=0)
        best[i] = gains.max(axis=0)
        best[i, i] = 0.0
    found, agenda = set(), [(0, n)]
    while agenda:
        i, j = agenda.pop()
        if i == j:
            continue
        k = int(choice[i, j])
        if k == i:
            agenda.append((i + 1, j))
        else:
            found.add((i, k))
            agenda += [(i + 1, k), (k + 1, j)]
    return found


@dataclass(frozen=True)
class Accuracy:
    """Pairs that are there, that were found, and that were found rightly, of each molecule."""

    gold: Sequence[int]
    found: Sequence[int]
    right: Sequence[int]

    @classmethod
    def of(cls, gold: Sequence[Pairs], found: Sequence[Pairs]) -> Accuracy:
        """The counts; a pair is right if both its bases are."""
        right = [len(a & b) for a, b in zip(gold, found, strict=True)]
        return cls([len(a) for a in gold], [len(b) for b in found], right)

    @property
    def sensitivity(self) -> float:
        """The share of the pairs that was found."""
        return sum(self.right) / max(sum(self.gold), 1)

    @property
    def ppv(self) -> float:
        """The share of the pairs found that is right (positive predictive value)."""
        return sum(self.right) / max(sum(self.found), 1)

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return 2 * sum(self.right) / max(sum(self.gold) + sum(self.found), 1)

    @property
    def mean_sensitivity(self) -> float:
        """The mean over molecules, each of which has a pair."""
        return fmean(r / max(g, 1) for r, g in zip(self.right, self.gold, strict=True))

    @property
    def mean_ppv(self) -> float:
        """The mean over molecules; 0 for one in which no pair was found."""
        return fmean(r / max(f, 1) for r, f in zip(self.right, self.found, strict=True))
