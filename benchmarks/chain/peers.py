"""What the peers are asked for: log Z and gradients in our terms, one EM step, decoding.

Each peer is given its own form of the potentials before anything is timed. torch-struct runs
without genbmm, its optional CUDA extension.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import peer, torch_struct
from benchmarks.problems import Gradient, Problem

IMPOSSIBLE = -1e9  # torch-struct's own zero: it makes NaN of -inf


def import_all() -> None:
    """Import every peer, so that a missing one is noticed before the long runs."""
    torch_struct()
    peer("torchcrf", "pytorch-crf")
    peer("hmmlearn.hmm", "hmmlearn")
    # It remarks, at each fit, that there are more parameters than tokens.
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)


@dataclass(frozen=True, eq=False)
class StructChain:
    """torch-struct's `LinearChainCRF` with the potentials of one of our chains.

    It has one kind of potentials [b n-1 s s], this label first and the previous one second;
    emissions are added into them.
    """

    edges: Tensor

    @classmethod
    def of(cls, problem: Problem) -> StructChain:
        """The same chain for torch-struct."""
        emissions, transitions = problem.potentials["emissions"], problem.potentials["transitions"]
        edges = transitions + emissions[:, 1:, None, :]
        edges[:, 0] += emissions[:, 0, :, None]
        return cls(edges.mT.contiguous())

    def _make(self) -> Any:
        # It sets requires_grad on what it is given.
        return torch_struct().LinearChainCRF(self.edges.detach().requires_grad_())

    def gradient(self) -> tuple[Tensor, Gradient]:
        """log Z and its gradient in the transitions, as ours."""
        chain = self._make()
        log_z = chain.partition
        (found,) = torch.autograd.grad(log_z.sum(), chain.log_potentials)
        return log_z.detach(), {"transitions": found.mT}

    def argmax(self) -> Tensor:
        """The best labelling as indicators of label pairs, the form it decodes to."""
        indicators: Tensor = self._make().argmax
        return indicators.detach()

    def labels(self, indicators: Tensor) -> Tensor:
        """Labels [b n] of indicators; not timed, because it is a Python loop over all of them."""
        labels: Tensor = torch_struct().LinearChain.from_parts(indicators.long())[0]
        return labels

    def sample(self, count: int) -> Tensor:
        """Samples, as indicators of label pairs."""
        samples: Tensor = self._make().sample((count,))
        return samples


@dataclass(frozen=True, eq=False)
class StructSegments:
    """torch-struct's `SemiMarkovCRF` with the potentials of one of our segmentations.

    Its potentials [b n w+1 s s] are indexed by where a segment starts, its width (0 is unused),
    its label and the previous one. The first segment may follow any label there.
    """

    edges: Tensor

    @classmethod
    def of(cls, problem: Problem) -> StructSegments:
        """The same segmentations for torch-struct."""
        ours = problem.potentials["log_potentials"]
        b, n, w, s, _ = ours.shape
        edges = ours.new_full((b, n, w + 1, s, s), IMPOSSIBLE)
        for width in range(1, w + 1):
            edges[:, : n - width + 1, width] = ours[:, width - 1 :, width - 1].mT
        edges[:, 0, :, :, 1:] = IMPOSSIBLE
        return cls(edges)

    def gradient(self) -> tuple[Tensor, Gradient]:
        """log Z and its gradient as torch-struct has it."""
        segments = torch_struct().SemiMarkovCRF(self.edges.detach().requires_grad_())
        log_z = segments.partition
        (found,) = torch.autograd.grad(log_z.sum(), segments.log_potentials)
        return log_z.detach(), {"log_potentials": found}

    @staticmethod
    def in_our_places(gradient: Tensor) -> Tensor:
        """Its gradient [b n w+1 s s] as ours [b n w s s]."""
        b, n, widths, s, _ = gradient.shape
        ours = gradient.new_zeros(b, n, widths - 1, s, s)
        for width in range(1, widths):
            ours[:, width - 1 :, width - 1] = gradient[:, : n - width + 1, width].mT
        return ours


@dataclass(frozen=True, eq=False)
class PytorchCrf:
    """pytorch-crf's `CRF` with the potentials of a chain with shared transitions, and labels."""

    crf: Any
    emissions: Tensor  # [n b s], the layout it computes in
    tags: Tensor  # [n b]
    mask: Tensor  # [n b], of bool: the default of uint8 is refused by today's torch

    @classmethod
    def of(cls, problem: Problem, tags: Tensor) -> PytorchCrf:
        """The same chain for pytorch-crf."""
        ours = problem.potentials
        crf = peer("torchcrf", "pytorch-crf").CRF(len(ours["start"])).to(ours["start"].dtype)
        with torch.no_grad():
            crf.start_transitions.copy_(ours["start"])
            crf.end_transitions.copy_(ours["end"])
            crf.transitions.copy_(ours["transitions"])
        emissions = ours["emissions"].transpose(0, 1).contiguous()
        tags = tags.T.contiguous()
        return cls(crf, emissions, tags, torch.ones_like(tags, dtype=torch.bool))

    def loss_gradient(self) -> tuple[Tensor, Gradient]:
        """The negative log-likelihood of the labels, and its gradient."""
        emissions = self.emissions.detach().requires_grad_()
        loss = -self.crf(emissions, self.tags, self.mask)
        parameters = (self.crf.transitions, self.crf.start_transitions, self.crf.end_transitions)
        of_emissions, *found = torch.autograd.grad(loss, [emissions, *parameters])
        names = ("transitions", "start", "end")
        return loss.detach(), {
            "emissions": of_emissions.transpose(0, 1),
            **dict(zip(names, found, strict=True)),
        }

    def decode(self) -> list[list[int]]:
        """The best labels of each element."""
        with torch.no_grad():
            labels: list[list[int]] = self.crf.decode(self.emissions, self.mask)
        return labels


@dataclass(frozen=True, eq=False)
class HmmlearnStep:
    """hmmlearn's `CategoricalHMM`, float64 and "scaling", one iteration from given parameters."""

    model: Any
    start: np.ndarray
    transition: np.ndarray
    emission: np.ndarray
    symbols: np.ndarray  # all sequences, one after the other [tokens 1]
    lengths: list[int]

    @classmethod
    def of(cls, problem: Problem) -> HmmlearnStep:
        """The same model for hmmlearn."""
        start, transition, emission = (
            problem.potentials[name].double().exp().numpy()
            for name in ("initial", "transition", "emission")
        )
        observations = problem.others["observations"].numpy()
        model = peer("hmmlearn.hmm", "hmmlearn").CategoricalHMM(
            emission.shape[0],
            n_features=emission.shape[1],
            n_iter=1,
            init_params="",
            implementation="scaling",
        )
        b, n = observations.shape
        return cls(model, start, transition, emission, observations.reshape(-1, 1), [n] * b)

    def step(self) -> Gradient:
        """The re-estimated probabilities, named as ours."""
        self.model.startprob_ = self.start
        self.model.transmat_ = self.transition
        self.model.emissionprob_ = self.emission
        self.model.fit(self.symbols, self.lengths)
        return {
            "initial": torch.from_numpy(self.model.startprob_),
            "transition": torch.from_numpy(self.model.transmat_),
            "emission": torch.from_numpy(self.model.emissionprob_),
        }
