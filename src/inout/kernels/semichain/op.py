"""log Z and marginals of semi-Markov chains as torch functions, differentiable to any order.

Forward, first and second derivative run as compiled passes; elements whose range does not fit
scaled arithmetic run in log space. Third and higher derivatives use the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from inout.kernels.semichain import cpu
from inout.kernels.semichain.decoding import cpu as decoding
from inout.kernels.semichain.logspace import cpu as logspace
from inout.kernels.semichain.reference import reference_log_partition
from inout.kernels.semichain.tangent import cpu as tangent
from inout.kernels.threads import over_batch

Array = NDArray[Any]
# What `cpu.forward` finds out: alphas, logs, scales, offsets, rounding.
State = tuple[Array, Array, Array, Array, Array]

# A possible label below this share of the best one sends its element to log space.
TINY = {torch.float32: 1e-28, torch.float64: 1e-280}


class _Passes:
    """Semi-Markov chains at one setting of their potentials: log Z now, derivatives on demand."""

    def __init__(self, potentials: Tensor, lengths: Tensor) -> None:
        self.potentials, self.lengths = _arrays(potentials, lengths)  # [b n w s s], [b]
        b, n, w, s, _ = self.potentials.shape
        dtype = self.potentials.dtype
        self.work = self.potentials.size
        self.state: State = (
            np.zeros((b, n + 1, s), dtype), np.zeros((b, n + 1)), np.zeros((b, n), dtype),
            np.zeros((b, n, w), dtype), np.zeros((b, n, w), dtype),
        )  # fmt: skip
        self.fits: Array = np.empty(b)  # log Z, or NaN where the element needs log space
        tiny = TINY[potentials.dtype]

        def part(lo: int, hi: int) -> None:
            cpu.forward(self.potentials, self.lengths, lo, hi, tiny, *self.state, self.fits)

        over_batch(part, b, self.work)
        self.log_z: Array = self.fits.copy()
        for k in np.isnan(self.fits).nonzero()[0]:
            self.log_z[k], _ = logspace.forward(self.potentials[k], self.lengths[k])

    def log_alphas(self) -> Array:
        """log alphas [b n+1 s] in float64."""
        alphas, logs = self.state[:2]
        with np.errstate(divide="ignore"):
            result = np.log(alphas.astype(np.float64)) + logs[:, :, None]
        for k in np.isnan(self.fits).nonzero()[0]:
            exact = logspace.forward(self.potentials[k], self.lengths[k])[1]
            result[k, : len(exact)] = exact
        return result

    def _state_of(self, k: int) -> State:
        alphas, logs, scales, offsets, rounding = self.state
        return alphas[k], logs[k], scales[k], offsets[k], rounding[k]

    def _log_space_marginals(self, k: int) -> Array:
        """Marginals [n w s s] of one element."""
        result = np.empty(self.potentials.shape[1:])
        logspace.marginals(self.potentials[k], self.lengths[k], result)
        return result

    def gradients(self, weights: Tensor) -> Array:
        """Gradients [b n w s s] of weights . log Z."""
        result = np.empty_like(self.potentials)
        scales = weights.detach().contiguous().numpy()

        def part(lo: int, hi: int) -> None:
            cpu.backward(
                self.potentials, self.lengths, lo, hi, *self.state, self.fits, scales, result
            )
            for k in range(lo, hi):
                if np.isnan(self.fits[k]):
                    result[k] = scales[k] * self._log_space_marginals(k)

        over_batch(part, len(result), self.work)
        return result

    def tangents(self, weights: Tensor, direction: Tensor) -> tuple[Array, Array]:
        """Hessian of weights . log Z times u, [b n w s s]; and E[U] [b]."""
        scales, u = weights.detach().contiguous().numpy(), direction.detach().contiguous().numpy()
        result, expected = np.empty_like(self.potentials), np.empty(len(self.potentials))
        one = np.ones(1, self.potentials.dtype)[0]

        def part(lo: int, hi: int) -> None:
            own = np.empty_like(self.potentials[0])
            for k in range(lo, hi):
                if np.isnan(self.fits[k]):
                    own[:] = self._log_space_marginals(k)
                else:
                    cpu.marginals(self.potentials[k], self.lengths[k], *self._state_of(k), one, own)
                expected[k] = tangent.covariances(own, self.lengths[k], u[k], scales[k], result[k])

        over_batch(part, len(result), 3 * self.work)
        return result, expected


class _LogPartition(torch.autograd.Function):
    """potentials [b n w s s] -> log Z [b]."""

    @staticmethod
    def forward(ctx: Any, potentials: Tensor, lengths: Tensor) -> Tensor:
        ctx.passes = _Passes(potentials, lengths)
        ctx.save_for_backward(potentials, lengths)
        return torch.from_numpy(ctx.passes.log_z).to(potentials.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        potentials, lengths = ctx.saved_tensors
        return _apply(_Gradient, potentials, gradients[0], lengths, ctx.passes), None


class _Gradient(torch.autograd.Function):
    """(potentials, g [b]) -> gradient of g . log Z."""

    @staticmethod
    def forward(
        ctx: Any, potentials: Tensor, gradient: Tensor, lengths: Tensor, passes: _Passes
    ) -> Tensor:
        ctx.passes = passes
        ctx.save_for_backward(potentials, gradient, lengths)
        return torch.from_numpy(passes.gradients(gradient))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        potentials, gradient, lengths = ctx.saved_tensors
        results = _apply(_Tangent, potentials, gradient, gradients[0], lengths, ctx.passes)
        return (*results, None, None)


class _Tangent(torch.autograd.Function):
    """(potentials, g, u) -> (Hessian of g . log Z times u, E[U] of each element)."""

    @staticmethod
    def forward(
        ctx: Any,
        potentials: Tensor,
        gradient: Tensor,
        direction: Tensor,
        lengths: Tensor,
        passes: _Passes,
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(potentials, gradient, direction, lengths)
        result, expected = passes.tangents(gradient, direction)
        return torch.from_numpy(result), torch.from_numpy(expected).to(gradient.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *given, lengths = ctx.saved_tensors
        higher = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases: what flows where one input depends on another is the caller's graph's task.
            inputs = [
                x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in given
            ]
            potentials, gradient, direction = inputs
            log_z = reference_log_partition(potentials, lengths)
            log_z = torch.where(log_z == -torch.inf, 0.0, log_z)
            first = torch.autograd.grad(log_z, potentials, gradient, create_graph=True)
            outputs = torch.autograd.grad(
                first, inputs[:2], direction, create_graph=True, materialize_grads=True
            )
            results = torch.autograd.grad(
                outputs, inputs, gradients, create_graph=higher, materialize_grads=True
            )
        return (*results, None, None)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`, which torch leaves untyped."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def _arrays(potentials: Tensor, lengths: Tensor) -> tuple[Array, Array]:
    return potentials.detach().contiguous().numpy(), lengths.contiguous().numpy()


def log_partition(
    potentials: Float[Tensor, "b n w s s"], lengths: Int[Tensor, " b"]
) -> Float[Tensor, " b"]:
    """log Z of each element; O(b n w s²) time, O(b n (s + w)) memory besides the gradient."""
    result: Tensor = _apply(_LogPartition, potentials, lengths)
    return result


def best_segments(
    potentials: Float[Tensor, "b n w s s"], lengths: Int[Tensor, " b"]
) -> Int[Tensor, "b n"]:
    """The segmentation with the highest score (Viterbi); O(b n w s²)."""
    given = _arrays(potentials, lengths)
    b, n = potentials.shape[:2]
    labels, scores = np.empty((b, n), np.int64), np.empty(b)
    over_batch(
        lambda lo, hi: decoding.viterbi(*given, lo, hi, labels, scores), b, potentials.numel()
    )
    return torch.from_numpy(labels)


def k_best_segments(
    potentials: Float[Tensor, "b n w s s"], lengths: Int[Tensor, " b"], k: int
) -> tuple[Int[Tensor, "k b n"], Float[Tensor, "k b"]]:
    """The k segmentations with the highest scores, and these (-inf where there are fewer)."""
    given = _arrays(potentials, lengths)
    b, n = potentials.shape[:2]
    labels, scores = np.empty((k, b, n), np.int64), np.empty((k, b))
    over_batch(
        lambda lo, hi: decoding.kbest(*given, lo, hi, k, labels, scores), b, k * potentials.numel()
    )
    return torch.from_numpy(labels), torch.from_numpy(scores)


def sample_segments(
    potentials: Float[Tensor, "b n w s s"], lengths: Int[Tensor, " b"], count: int, seed: int
) -> tuple[Int[Tensor, "m b n"], Bool[Tensor, " b"]]:
    """`count` independent segmentations of each element, and which elements have any."""
    passes = _Passes(potentials, lengths)
    log_alphas = passes.log_alphas()
    b, n, w, s, _ = potentials.shape
    labels, possible = np.empty((b, count, n), np.int64), np.ones(b, np.bool_)

    def part(lo: int, hi: int) -> None:
        for k in range(lo, hi):
            possible[k] = decoding.sample(
                log_alphas[k], passes.potentials[k], passes.lengths[k],
                np.uint64(seed), k * count, labels[k],
            )  # fmt: skip

    over_batch(part, b, b * count * n * w * s)
    return torch.from_numpy(labels.swapaxes(0, 1).copy()), torch.from_numpy(possible)
