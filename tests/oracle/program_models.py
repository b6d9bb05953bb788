"""EM by enumeration and by Ristad & Yianilos's forward-backward, without code of the library."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from tests.oracle.derivations import Derivation, Fact

Group = Callable[[Fact], Hashable]  # None: a fixed weight


def enumerated_counts(
    derivations: Sequence[Sequence[Derivation]],
    weights: Mapping[Fact, float],
    frequencies: Sequence[float],
) -> tuple[float, dict[Fact, float]]:
    """Log-likelihood and expected counts of a corpus, from the derivations of each example.

    Weights are not logs; facts that are not among them weigh one.
    """
    counts, log_likelihood = dict.fromkeys(weights, 0.0), 0.0
    for found, frequency in zip(derivations, frequencies, strict=True):
        products = [math.prod(weights.get(fact, 1.0) for fact in used) for used in found]
        z = math.fsum(products)
        if z == 0:
            continue
        log_likelihood += frequency * math.log(z)
        for used, weight in zip(found, products, strict=True):
            for fact in used:
                if fact in counts:
                    counts[fact] += frequency * weight / z
    return log_likelihood, counts


def normalised(
    counts: Mapping[Fact, float], weights: Mapping[Fact, float], group: Group
) -> dict[Fact, float]:
    """Counts over those of their group; weights stay where they are fixed, 0 or never used."""
    totals: dict[Hashable, float] = defaultdict(float)
    for fact, count in counts.items():
        totals[group(fact)] += count if weights[fact] else 0.0
    return {
        fact: weights[fact]
        if group(fact) is None or not totals[group(fact)] or not weights[fact]
        else counts[fact] / totals[group(fact)]
        for fact in weights
    }


def enumerated_step(
    derivations: Sequence[Sequence[Derivation]],
    weights: Mapping[Fact, float],
    group: Group,
    frequencies: Sequence[float],
    pseudo_count: float = 0.0,
) -> tuple[float, dict[Fact, float]]:
    """Log-likelihood before a step of EM and the weights after it."""
    log_likelihood, counts = enumerated_counts(derivations, weights, frequencies)
    smoothed = {fact: count + pseudo_count for fact, count in counts.items()}
    return log_likelihood, normalised(smoothed, weights, group)


def ristad_yianilos_step(
    delta: np.ndarray, end: float, pairs: Sequence[tuple[list[int], list[int]]]
) -> tuple[float, np.ndarray, float]:
    """One step of EM for the memoryless transducer (Ristad & Yianilos 1998, algorithms 1 to 5).

    `delta` [s+1 t+1]: of a pair of symbols; the last row and column are the empty string. `end`
    is the probability δ(#) of stopping. The log-likelihood is that before the step.
    """
    gamma, gamma_end, log_likelihood = np.zeros_like(delta), 0.0, 0.0
    for x, y in pairs:
        n, m = len(x), len(y)
        alpha, beta = np.zeros((n + 1, m + 1)), np.zeros((n + 1, m + 1))
        for t in range(n + 1):
            for v in range(m + 1):
                if t == v == 0:
                    alpha[0, 0] = 1.0
                if v > 0:
                    alpha[t, v] += delta[-1, y[v - 1]] * alpha[t, v - 1]
                if t > 0:
                    alpha[t, v] += delta[x[t - 1], -1] * alpha[t - 1, v]
                if v > 0 and t > 0:
                    alpha[t, v] += delta[x[t - 1], y[v - 1]] * alpha[t - 1, v - 1]
        for t in reversed(range(n + 1)):
            for v in reversed(range(m + 1)):
                if t == n and v == m:
                    beta[n, m] = end
                if v < m:
                    beta[t, v] += delta[-1, y[v]] * beta[t, v + 1]
                if t < n:
                    beta[t, v] += delta[x[t], -1] * beta[t + 1, v]
                if v < m and t < n:
                    beta[t, v] += delta[x[t], y[v]] * beta[t + 1, v + 1]
        z = alpha[n, m] * end
        if z == 0:
            continue
        log_likelihood += math.log(z)
        gamma_end += 1.0
        for t in range(n + 1):
            for v in range(m + 1):
                if t > 0:
                    a = x[t - 1]
                    gamma[a, -1] += alpha[t - 1, v] * delta[a, -1] * beta[t, v] / z
                if v > 0:
                    b = y[v - 1]
                    gamma[-1, b] += alpha[t, v - 1] * delta[-1, b] * beta[t, v] / z
                if t > 0 and v > 0:
                    gamma[a, b] += alpha[t - 1, v - 1] * delta[a, b] * beta[t, v] / z
    total = gamma.sum() + gamma_end
    return log_likelihood, gamma / total, gamma_end / total
