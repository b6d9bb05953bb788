"""log Z of sentences under a sparse grammar as a torch function of the log-weights."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout.kernels.autograd import differentiable_log_partition, gradient_wanted, tangents_by
from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
from inout.kernels.sparse.cpu.outside import Counts
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.reference import LogWeights, reference_log_partition


class Foresight:
    """The expected factors of log Z's gradients: those of the last time, 1 at first.

    With them one inside and one outside pass give log Z and its gradient; if they turn out wrong,
    the backward pass needs another inside pass. Training calls the same function with the same
    factors repeatedly.
    """

    def __init__(self, size: int) -> None:
        self.factors = np.ones(size)


class _Derivatives:
    """The passes in the form that `differentiable_log_partition` needs."""

    def __init__(
        self,
        rules: RuleArrays,
        sentences: SentenceArrays,
        potentials: tuple[Tensor, Tensor, Tensor],
        beam: float,
        foresight: Foresight | None,
    ) -> None:
        self.rules, self.sentences, self.beam = rules, sentences, beam
        self.potentials = tuple(x.detach() for x in potentials)
        binary, unary, words = (x.numpy() for x in self.potentials)
        self.passes = ParsingPasses(rules, sentences, binary, unary, words, beam)
        self.foresight = foresight if gradient_wanted(*potentials) else None
        self.foreseen: tuple[Counts, NDArray[np.float64]] | None = None

    @property
    def log_z(self) -> Tensor:
        if self.foresight is None:
            return torch.from_numpy(self.passes.log_partition())
        factors = self.foresight.factors
        self.foreseen = self.passes.expected_counts(factors), factors
        return torch.from_numpy(self.foreseen[0].log_z)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        factors = weights.detach().numpy().astype(np.float64)
        counts = self._foreseen(factors)
        if counts is None:
            counts = self.passes.expected_counts(factors)
            if self.foresight is not None:
                self.foresight.factors = factors
        return tuple(torch.from_numpy(x.copy()) for x in counts[1:])

    def _foreseen(self, factors: NDArray[np.float64]) -> Counts | None:
        if self.foreseen is None:
            return None
        counts, expected = self.foreseen
        # Sentences without a tree have no counts, whatever their factor.
        same = (factors == expected) | (counts.log_z == -np.inf)
        return counts if same.all() else None

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tangents_by(self.twin, weights, self.potentials, directions)

    def twin(self, binary: Tensor, unary: Tensor, words: Tensor) -> Tensor:
        logs = LogWeights(binary, unary, words)
        return reference_log_partition(self.rules, self.sentences, logs, self.beam)


def log_partition(
    rules: RuleArrays,
    sentences: SentenceArrays,
    binary_log_weights: Float[Tensor, " r"] | Float[Tensor, "cells r"],
    unary_log_weights: Float[Tensor, " u"] | Float[Tensor, "cells u"],
    word_log_weights: Float[Tensor, " entries"],
    beam: float = 0.0,
    foresight: Foresight | None = None,
) -> Float[Tensor, " b"]:
    """log Z of each sentence, differentiable to any order; float64, on the CPU.

    Weights and beam are those of `ParsingPasses`. Gradients are the expected counts, made by an
    inside and an outside pass; the beam's choices are constants. Second and higher derivatives
    come from the reference and are as slow.
    """
    potentials = binary_log_weights, unary_log_weights, word_log_weights
    passes = _Derivatives(rules, sentences, potentials, beam, foresight)
    return differentiable_log_partition(lambda *_: passes, passes.twin, *potentials)
