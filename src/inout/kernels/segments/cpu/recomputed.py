"""Gradients of long semi-Markov chains in little memory: steps are made again, block by block.

A block begins with the alphas of the w positions before it, which are all that is kept, so that
w n / every + every positions are in memory at a time instead of n. The arithmetic is that of the
usual passes, so the numbers are the same to the last digit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.limits import SEGMENTS_TINY
from inout.kernels.segments.cpu.passes import CpuPasses
from inout.kernels.segments.cpu.scaled import (
    Array,
    State,
    advance,
    begin,
    end_at,
    retreat,
    total_of,
    wipe,
)
from inout.kernels.threads import over_batch


class Kept(NamedTuple):
    """The alphas of the w positions before each block, and the logarithms of their scales."""

    alphas: Array  # [b blocks w s]
    logs: Array  # [b blocks w]


class RecomputingPasses(CpuPasses):
    """Keeps what blocks of `every` positions begin with, and log Z."""

    def __init__(self, potentials: Tensor, lengths: Tensor, *, every: int) -> None:
        self.every = every
        super().__init__(potentials, lengths)

    def _run_forward(self) -> None:
        b, n, w, s, _ = self.potentials.shape
        blocks, dtype = max(-(-n // self.every), 1), self.potentials.dtype
        self.kept = Kept(np.zeros((b, blocks, w, s), dtype), np.zeros((b, blocks, w)))
        self.tiny = SEGMENTS_TINY.of(dtype)

        def part(lo: int, hi: int) -> None:
            forward(
                self.potentials, self.lengths, lo, hi, self.tiny, self.kept,
                _room(self.potentials, self.every), self.fits,
            )  # fmt: skip

        over_batch(part, b, self.work)

    def _run_backward(self, lo: int, hi: int, scales: Array, out: Array) -> None:
        own = slice(lo, hi)
        kept = Kept(*(x[own] for x in self.kept))
        room = _room(self.potentials, self.every)
        backward(
            self.potentials[own], self.lengths[own], self.tiny, kept, room,
            np.zeros_like(room.alphas), self.fits[own], scales, out,
        )  # fmt: skip


def _room(potentials: Array, every: int) -> State:
    """The state of one block: w rows before it and its own."""
    _, _, w, s, _ = potentials.shape
    kind = potentials.dtype
    rows = w + every
    return State(
        alphas=np.zeros((rows, s), kind),
        logs=np.zeros(rows),
        scales=np.zeros(rows, kind),
        offsets=np.zeros((rows, w), kind),
        rounding=np.zeros((rows, w), kind),
    )


@inner
def origin_of(block, state):
    """(last step before a block, the position in row 0, steps of a block)."""
    widths = state.offsets.shape[1]
    every = state.logs.shape[0] - widths
    return block * every, block * every + 1 - widths, every


@compiled
def forward(potentials, lengths, lo, hi, tiny, kept, state, log_z):
    """Fills what is kept and log_z [b] (NaN: log space); `state` is room for one block."""
    widths = potentials.shape[2]
    for b in range(lo, hi):
        begin(widths - 1, state)
        fits, block = True, 0
        while True:
            before, origin, every = origin_of(block, state)
            for row in range(widths):
                kept.logs[b, block, row] = state.logs[row]
                for j in range(state.alphas.shape[1]):
                    kept.alphas[b, block, row, j] = state.alphas[row, j]
            last = min(before + every, lengths[b])
            fits = advance(potentials[b], before + 1, last, origin, tiny, state)
            if not fits or last == lengths[b]:
                break
            for row in range(widths):
                state.logs[row] = state.logs[row + every]
                for j in range(state.alphas.shape[1]):
                    state.alphas[row, j] = state.alphas[row + every, j]
            block += 1
        log_z[b] = total_of(lengths[b] - origin, state) if fits else np.nan


@compiled
def backward(potentials, lengths, tiny, kept, state, betas, log_z, weights, out):
    """Fills out [b n w s s] with the gradients of sum(weights * log Z), but where log_z is NaN."""
    positions, widths, size = potentials.shape[1:4]
    for b in range(potentials.shape[0]):
        if np.isnan(log_z[b]):
            continue
        length = lengths[b] if log_z[b] > -np.inf else 0
        for t in range(length, positions):
            wipe(out[b, t].reshape(widths * size * size))
        last = length
        while last > 0:
            block = (last - 1) // (state.logs.shape[0] - widths)
            before, origin, every = origin_of(block, state)
            for row in range(widths):
                state.logs[row] = kept.logs[b, block, row]
                for j in range(size):
                    state.alphas[row, j] = kept.alphas[b, block, row, j]
            advance(potentials[b], before + 1, last, origin, tiny, state)
            if last == length:
                wipe(betas.reshape(betas.size))
                end_at(last - origin, state.alphas, betas)
            retreat(potentials[b], last, before + 1, origin, state, betas, weights[b], out[b])
            for row in range(widths - 1, -1, -1):
                for j in range(size):
                    betas[row + every, j] = betas[row, j]
            wipe(betas[:every].reshape(every * size))
            last = before
