"""Semi-Markov chains on the CPU: the compiled passes, divided among threads.

Elements whose range does not fit scaled arithmetic run in log space.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from inout.kernels.limits import SEGMENTS_TINY
from inout.kernels.segments.cpu import decode as decoding
from inout.kernels.segments.cpu import logspace, scaled, tangent
from inout.kernels.segments.cpu.scaled import Array, State
from inout.kernels.threads import over_batch


class CpuPasses:
    """Semi-Markov chains at one setting of their potentials: log Z now, derivatives on demand."""

    def __init__(self, potentials: Tensor, lengths: Tensor) -> None:
        self.potentials, self.lengths = arrays(potentials, lengths)  # [b n w s s], [b]
        self.work = self.potentials.size
        self.fits: Array = np.empty(len(self.potentials))  # log Z, or NaN if it needs log space
        self._run_forward()
        log_z: Array = self.fits.copy()
        for k in np.isnan(self.fits).nonzero()[0]:
            log_z[k], _ = logspace.forward(self.potentials[k], self.lengths[k])
        self.log_z = torch.from_numpy(log_z)

    def _run_forward(self) -> None:
        """Fills `fits`, and what the way back needs."""
        b, n, w, s, _ = self.potentials.shape
        dtype = self.potentials.dtype
        self.state = State(
            alphas=np.zeros((b, n + 1, s), dtype),
            logs=np.zeros((b, n + 1)),
            scales=np.zeros((b, n), dtype),
            offsets=np.zeros((b, n, w), dtype),
            rounding=np.zeros((b, n, w), dtype),
        )
        tiny = SEGMENTS_TINY.of(dtype)

        def part(lo: int, hi: int) -> None:
            scaled.forward(self.potentials, self.lengths, lo, hi, tiny, self.state, self.fits)

        over_batch(part, b, self.work)

    def _run_backward(self, lo: int, hi: int, scales: Array, out: Array) -> None:
        """Fills out [hi-lo n w s s] with scales [hi-lo] times the marginals, where they fit."""
        own = slice(lo, hi)
        state = State(*(x[own] for x in self.state))
        scaled.backward(
            self.potentials[own], self.lengths[own], 0, hi - lo, state, self.fits[own], scales, out
        )

    def log_alphas(self) -> Array:
        """log alphas [b n+1 s] in float64."""
        with np.errstate(divide="ignore"):
            result = np.log(self.state.alphas.astype(np.float64)) + self.state.logs[:, :, None]
        for k in np.isnan(self.fits).nonzero()[0]:
            _, exact = logspace.forward(self.potentials[k], self.lengths[k])
            result[k, : len(exact)] = exact
        return result

    def _log_space_marginals(self, k: int) -> Array:
        """Marginals [n w s s] of one element."""
        result = np.empty(self.potentials.shape[1:])
        logspace.marginals(self.potentials[k], self.lengths[k], result)
        return result

    def gradients(self, weights: Tensor) -> tuple[Tensor]:
        """Gradients [b n w s s] of weights . log Z."""
        result = np.empty_like(self.potentials)
        scales = weights.detach().contiguous().numpy()

        def part(lo: int, hi: int) -> None:
            self._run_backward(lo, hi, scales[lo:hi], result[lo:hi])
            for k in range(lo, hi):
                if np.isnan(self.fits[k]):
                    result[k] = scales[k] * self._log_space_marginals(k)

        over_batch(part, len(result), self.work)
        return (torch.from_numpy(result),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Hessian of weights . log Z times u, [b n w s s]; and E[U] [b]."""
        scales, u = arrays(weights, directions[0])
        result, expected = np.empty_like(self.potentials), np.empty(len(self.potentials))
        one = np.ones(1, self.potentials.dtype)

        def part(lo: int, hi: int) -> None:
            own = np.empty_like(self.potentials[0])
            for k in range(lo, hi):
                if np.isnan(self.fits[k]):
                    own[:] = self._log_space_marginals(k)
                else:
                    self._run_backward(k, k + 1, one, own[None])
                expected[k] = tangent.covariances(own, self.lengths[k], u[k], scales[k], result[k])

        over_batch(part, len(result), 3 * self.work)
        return torch.from_numpy(result), torch.from_numpy(expected)

    def best(self) -> Tensor:
        """The segmentation [b n] with the highest score (Viterbi)."""
        b, n = self.potentials.shape[:2]
        labels, scores = np.empty((b, n), np.int64), np.empty(b)

        def part(lo: int, hi: int) -> None:
            decoding.viterbi(self.potentials, self.lengths, lo, hi, labels, scores)

        over_batch(part, b, self.work)
        return torch.from_numpy(labels)

    def sample(self, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Independent segmentations [m b n], and which elements have any [b]."""
        log_alphas = self.log_alphas()
        b, n, w, s, _ = self.potentials.shape
        labels, possible = np.empty((b, count, n), np.int64), np.ones(b, np.bool_)

        def part(lo: int, hi: int) -> None:
            for k in range(lo, hi):
                possible[k] = decoding.sample(
                    log_alphas[k], self.potentials[k], self.lengths[k],
                    np.uint64(seed), k * count, labels[k],
                )  # fmt: skip

        over_batch(part, b, b * count * n * w * s)
        return torch.from_numpy(labels.swapaxes(0, 1).copy()), torch.from_numpy(possible)


def arrays(*tensors: Tensor) -> list[Array]:
    """The tensors as contiguous arrays."""
    return [x.detach().contiguous().numpy() for x in tensors]
