"""Gradients of long chains in little memory: most alphas are discarded, and computed again.

Zweig & Padmanabhan, "Exact alpha-beta computation in logarithmic space" (2000), with one level.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from inout.kernels.chain.cpu import logspace
from inout.kernels.chain.cpu.passes import CpuPasses
from inout.kernels.chain.cpu.scaled import Array, Chains


class RecomputingPasses(CpuPasses):
    """Keeps the alphas of one position in `every`; on the way back, works block by block.

    A block is a chain of its own, up to the first position of the next one. Its first emissions
    are the logs of the alphas there, and the logs of the betas are added to its last ones, so its
    marginals are those of the whole chain.
    """

    def __init__(
        self, emissions: Tensor, transitions: Tensor, lengths: Tensor, *, every: int
    ) -> None:
        super().__init__(emissions, transitions, lengths, keep=False)
        self.given, self.every = (emissions, transitions, lengths), every

    @cached_property
    def _begun(self) -> tuple[Array, Array]:
        """log Z [b], and logs of the alphas [b blocks s] where blocks begin, up to constants."""
        kept = self._run_forward(2, 0, self.every).kept
        with np.errstate(divide="ignore", invalid="ignore"):  # the padding was never filled
            starts = np.log(kept, dtype=np.float64)
        log_z = self.fits.copy()

        def again(b: int) -> None:
            log_z[b] = self._begin_in_logs(b, starts[b]) if self._is_valid(b) else np.nan

        self._in_log_space(again)
        return log_z, starts

    def _begin_in_logs(self, b: int, starts: Array) -> float:
        """Fills the starts of one element in log space; its log Z."""
        total, alphas = 0.0, self.emissions[b, 0].astype(np.float64)
        for block, first in enumerate(range(0, int(self.chains.lengths[b]), self.every)):
            piece = self._piece(np.array([b]), first)
            piece.emissions[0, 0] = starts[block] = alphas
            log_z, found = logspace.forward(piece, 0)
            if log_z == -np.inf:
                return -np.inf
            shift = found[-1].max()
            alphas, total, last = found[-1] - shift, total + shift, log_z - shift
        return float(total + last)

    @property
    def log_z(self) -> Tensor:
        """log Z [b]; NaN where a potential is NaN or +inf."""
        return torch.from_numpy(self._begun[0])

    def _piece(self, which: Array, first: int, dtype: type = np.float64) -> Chains:
        """A block of some elements, in memory of its own."""
        end = first + self.every + 1
        emissions: Array = self.emissions[which, first:end].astype(dtype)
        transitions = self.chains.transitions
        if len(transitions) > 1:
            transitions = transitions[which]
        if not self.stationary:
            transitions = transitions[:, first : end - 1]
        lengths = (self.chains.lengths[which] - first).clip(0, self.every + 1)
        return Chains(emissions, transitions.astype(dtype, copy=False), np.empty(0), lengths)

    def gradients(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of weights . log Z: nodes [b n s] and pairs [bt nt s s]."""
        log_z, starts = self._begun
        possible = log_z > -np.inf
        scales = np.where(possible, weights.detach().numpy(), 0)
        fits = ~np.isnan(self.fits)
        parts = [(np.nonzero(fits)[0], self.emissions.dtype.type)]
        parts += [(np.array([b]), np.float64) for b in np.nonzero(~fits & possible)[0]]
        nodes = np.zeros_like(self.emissions)
        rows = 1 if self.shared else len(nodes)
        pairs = np.zeros((rows, *self.chains.transitions.shape[1:]))
        betas = np.zeros((len(nodes), nodes.shape[2]))
        for block in range(starts.shape[1] - 1, -1, -1):
            first, end = block * self.every, (block + 1) * self.every
            steps = slice(None) if self.stationary else slice(first, end)
            for which, dtype in parts:
                piece = self._piece(which, first, dtype)
                piece.emissions[:, 0] = starts[which, block]
                goes_on = piece.lengths > self.every
                piece.emissions[goes_on, -1] += betas[which[goes_on]]
                own = self._passes(piece)
                own_nodes, own_pairs = own.gradients(torch.from_numpy(scales[which]))
                nodes[which, first:end] = own_nodes[:, : self.every]
                pairs[slice(None) if self.shared else which, steps] += own_pairs.numpy()
                betas[which] = _first_betas(own)
        pairs = pairs.astype(nodes.dtype)
        return torch.from_numpy(nodes), torch.from_numpy(pairs)

    def _passes(self, piece: Chains) -> CpuPasses:
        emissions, transitions, _, lengths = map(torch.from_numpy, piece)
        if not self.shared:  # a gradient for each element
            transitions = transitions.expand(len(emissions), -1, -1, -1)
        return CpuPasses(emissions, transitions, lengths)

    def tangents(
        self, weights: Tensor, directions: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Second derivatives keep everything."""
        return CpuPasses(*self.given).tangents(weights, directions)


def _first_betas(passes: CpuPasses) -> Array:
    """Logs of the betas [b s] of the first position, up to a constant; -inf where alpha is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):  # empty elements have none
        logs = np.log(passes.messages.betas[:, 0], dtype=np.float64)

    def again(b: int) -> None:
        emissions, transitions, _, lengths = passes.chains
        length = int(lengths[b])
        if length:
            block = transitions[b if len(transitions) > 1 else 0]
            mirrored = block if passes.stationary else block[: length - 1][::-1]
            chain = Chains(
                np.ascontiguousarray(emissions[b : b + 1, :length][:, ::-1]),
                np.ascontiguousarray(mirrored.swapaxes(1, 2))[None],
                np.empty(0),
                lengths[b : b + 1],
            )
            _, found = logspace.forward(chain, 0)
            possible = emissions[b, 0] > -np.inf
            logs[b] = -np.inf
            logs[b, possible] = found[-1, possible] - emissions[b, 0, possible]

    passes._in_log_space(again)
    return logs
