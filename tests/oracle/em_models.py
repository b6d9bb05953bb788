"""Models for the tests of `em`, and slow transcriptions that share no code with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from inout import PCFG

Sentence = Sequence[int]


@dataclass(frozen=True)
class DenseGrammar:
    """A PCFG in Chomsky normal form on the dense distribution, as a generative model.

    Parameters: root [nt], rules [nt s s], emission [pt v].
    """

    root: Tensor
    rules: Tensor
    emission: Tensor

    @staticmethod
    def random(nt: int, pt: int, v: int, generator: torch.Generator) -> DenseGrammar:
        def drawn(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)

        rules = drawn(nt, (nt + pt) ** 2)
        return DenseGrammar(
            drawn(nt).log().log_softmax(-1),
            rules.log().log_softmax(-1).reshape(nt, nt + pt, nt + pt),
            drawn(pt, v).log().log_softmax(-1),
        )

    @cached_property
    def log_weights(self) -> Tensor:
        return torch.cat([x.reshape(-1) for x in (self.root, self.rules, self.emission)])

    @cached_property
    def distributions(self) -> np.ndarray:
        (nt, s, _), (pt, v) = self.rules.shape, self.emission.shape
        rules, words = 1 + np.arange(nt), 1 + nt + np.arange(pt)
        return np.concatenate([np.zeros(nt, int), rules.repeat(s * s), words.repeat(v)])

    def with_log_weights(self, log_weights: Tensor) -> DenseGrammar:
        return DenseGrammar(*self.split(log_weights))

    def split(self, log_weights: Tensor) -> list[Tensor]:
        parts = (self.root, self.rules, self.emission)
        pieces = torch.split(log_weights, [x.numel() for x in parts])
        return [piece.reshape(x.shape) for piece, x in zip(pieces, parts, strict=True)]

    def likelihood(self, corpus: Sequence[Sentence]) -> Callable[[Tensor], Tensor]:
        lengths = torch.tensor([len(sentence) for sentence in corpus])
        words = torch.zeros(len(corpus), max(int(lengths.max()), 2), dtype=torch.long)
        for row, sentence in zip(words, corpus, strict=True):
            row[: len(sentence)] = torch.tensor(sentence, dtype=torch.long)

        def log_partitions(log_weights: Tensor) -> Tensor:
            root, rules, emission = self.split(log_weights)
            return PCFG(root, rules, emission.T[words], lengths).log_partition()

        return log_partitions


Part = tuple[str, tuple[int, ...]]


def derivations(
    model: DenseGrammar, sentence: Sentence, span: tuple[int, int], symbol: int
) -> Iterator[tuple[float, Counter[Part]]]:
    """Every tree of a symbol over a span: its probability and how often it uses each parameter."""
    nt, s, _ = model.rules.shape
    i, j = span
    if symbol >= nt:
        if j - i == 1:
            part = ("emission", (symbol - nt, sentence[i]))
            yield math.exp(model.emission[part[1]]), Counter([part])
        return
    for k in range(i + 1, j):
        for left in range(s):
            for right in range(s):
                rule = ("rules", (symbol, left, right))
                p = math.exp(model.rules[rule[1]])
                for a, used_left in derivations(model, sentence, (i, k), left):
                    for b, used_right in derivations(model, sentence, (k, j), right):
                        yield p * a * b, Counter([rule]) + used_left + used_right


def enumerated_counts(
    model: DenseGrammar, corpus: Sequence[Sentence], frequencies: Sequence[float]
) -> tuple[float, dict[str, np.ndarray]]:
    """Log-likelihood and expected counts of a corpus, by going through all trees."""
    totals = {name: np.zeros(getattr(model, name).shape) for name in ("root", "rules", "emission")}
    log_likelihood = 0.0
    for sentence, frequency in zip(corpus, frequencies, strict=True):
        trees = [
            (math.exp(model.root[top]) * p, Counter([("root", (top,))]) + used)
            for top in range(len(model.root))
            for p, used in derivations(model, sentence, (0, len(sentence)), top)
        ]
        z = sum(p for p, _ in trees)
        if z == 0:
            continue
        log_likelihood += frequency * math.log(z)
        for p, used in trees:
            for (name, place), times in used.items():
                totals[name][place] += frequency * times * p / z
    return log_likelihood, totals


def baum_welch_step(
    initial: np.ndarray,
    transition: np.ndarray,
    emission: np.ndarray,
    corpus: Sequence[Sentence],
    frequencies: Sequence[float],
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """One step of Baum-Welch, Rabiner (1989), equations 19-25, 27, 37, 38, 40 and 109-111.

    Probabilities in and out, and the log-likelihood before the step. Without scaling: for short
    sequences only.
    """
    s, v = emission.shape
    first, pairs, words = np.zeros(s), np.zeros((s, s)), np.zeros((s, v))
    log_likelihood = 0.0
    for sequence, frequency in zip(corpus, frequencies, strict=True):
        n = len(sequence)
        if n == 0:
            continue
        alpha, beta = np.zeros((n, s)), np.ones((n, s))
        for i in range(s):
            alpha[0, i] = initial[i] * emission[i, sequence[0]]
        for t in range(n - 1):
            for j in range(s):
                total = sum(alpha[t, i] * transition[i, j] for i in range(s))
                alpha[t + 1, j] = total * emission[j, sequence[t + 1]]
        for t in reversed(range(n - 1)):
            for i in range(s):
                beta[t, i] = sum(
                    transition[i, j] * emission[j, sequence[t + 1]] * beta[t + 1, j]
                    for j in range(s)
                )
        probability = alpha[n - 1].sum()
        if probability == 0:
            continue
        log_likelihood += frequency * math.log(probability)
        gamma = alpha * beta / probability
        first += frequency * gamma[0]
        for t in range(n):
            words[:, sequence[t]] += frequency * gamma[t]
        for t in range(n - 1):
            for i in range(s):
                for j in range(s):
                    xi = alpha[t, i] * transition[i, j] * emission[j, sequence[t + 1]]
                    pairs[i, j] += frequency * xi * beta[t + 1, j] / probability

    def normalised(counts: np.ndarray, before: np.ndarray) -> np.ndarray:
        total = counts.sum(-1, keepdims=True)
        return np.where(total > 0, counts / np.where(total > 0, total, 1), before)

    return (
        log_likelihood,
        normalised(first, initial),
        normalised(pairs, transition),
        normalised(words, emission),
    )
