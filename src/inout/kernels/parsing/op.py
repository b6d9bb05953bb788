"""log Z of sentences under a sparse grammar as a torch function of the log-weights."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.autograd import differentiable_log_partition, tangents_by
from inout.kernels.parsing.arrays import RuleArrays, SentenceArrays
from inout.kernels.parsing.passes import ParsingPasses
from inout.kernels.parsing.reference import reference_log_partition


class _Derivatives:
    """The passes as `differentiable_log_partition` wants them; nothing is kept between them."""

    def __init__(
        self,
        rules: RuleArrays,
        sentences: SentenceArrays,
        potentials: tuple[Tensor, Tensor, Tensor],
        beam: float,
    ) -> None:
        self.rules, self.sentences, self.beam = rules, sentences, beam
        self.potentials = tuple(x.detach() for x in potentials)
        binary, unary, words = (x.numpy() for x in self.potentials)
        self.passes = ParsingPasses(rules, sentences, binary, unary, words, beam)

    @property
    def log_z(self) -> Tensor:
        return torch.from_numpy(self.passes.log_partition())

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        _, *counts = self.passes.expected_counts(weights.detach().numpy())
        return tuple(torch.from_numpy(x) for x in counts)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tangents_by(self.twin, weights, self.potentials, directions)

    def twin(self, binary: Tensor, unary: Tensor, words: Tensor) -> Tensor:
        return reference_log_partition(self.rules, self.sentences, binary, unary, words, self.beam)


def log_partition(
    rules: RuleArrays,
    sentences: SentenceArrays,
    binary_log_weights: Float[Tensor, " r"] | Float[Tensor, "cells r"],
    unary_log_weights: Float[Tensor, " u"] | Float[Tensor, "cells u"],
    word_log_weights: Float[Tensor, " entries"],
    beam: float = 0.0,
) -> Float[Tensor, " b"]:
    """log Z of each sentence, differentiable to any order; float64, on the CPU.

    Weights and beam are those of `ParsingPasses`. Gradients are the expected counts, made by an
    inside and an outside pass; what the beam drops is taken as fixed. Second and higher derivatives
    are those of the reference and as slow as it is.
    """
    potentials = binary_log_weights, unary_log_weights, word_log_weights
    passes = _Derivatives(rules, sentences, potentials, beam)
    return differentiable_log_partition(passes, passes.twin, *potentials)
