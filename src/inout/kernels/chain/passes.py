"""Chains at one setting of their potentials: log Z, derivatives and decoding, on CPU or GPU.

`passes_for` is the one place where the tier is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.kernels.chain import cpu
from inout.kernels.chain.decoding import cpu as decoding
from inout.kernels.chain.logspace import cpu as logspace
from inout.kernels.chain.reference import reference_tangents
from inout.kernels.chain.tangent import cpu as tangent
from inout.kernels.threads import over_batch

Array = NDArray[Any]
Kernel = Callable[..., Any]

# numba's dispatchers have no types for starred arguments.
forward: Kernel = cpu.forward
backward: Kernel = cpu.backward
pair_marginals: Kernel = cpu.pair_marginals
log_space_forward: Kernel = logspace.forward
log_space_marginals: Kernel = logspace.marginals
covariances: Kernel = tangent.covariances
viterbi: Kernel = decoding.viterbi
draw: Kernel = decoding.sample

# Sums of at least this much are exact, whatever underflows beside them; and the share of a total
# that may be lost. Elements for which neither can be said go to log space.
TINY = {torch.float32: 1e-25, torch.float64: 1e-280}
SHARE = {torch.float32: 1e-9, torch.float64: 1e-18}


@runtime_checkable
class Passes(Protocol):
    """What a tier supplies; all results are tensors on the device of the potentials."""

    @property
    def log_z(self) -> Float[Tensor, " b"]:
        """log Z in float64; asked for before derivatives."""

    def gradients(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of weights . log Z: nodes [b n s] and, for each element, pairs [b nt s s]."""

    def tangents(
        self, weights: Tensor, u_nodes: Tensor, u_pairs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hessian of weights . log Z times u: nodes [b n s], pairs [b nt s s]; and E[U] [b]."""

    def best(self) -> Tensor:
        """The labels [b n] with the highest score; 0 beyond the lengths."""

    def sample(self, count: int, seed: int) -> Tensor:
        """Labels [m b n] of independent samples; -1 throughout an element that has none."""


class CpuPasses:
    """Compiled passes in scaled arithmetic, in log space where an element's range asks for it."""

    def __init__(self, emissions: Tensor, transitions: Tensor, lengths: Tensor) -> None:
        if len(transitions) > 1 and transitions.stride(0) == 0:
            transitions = transitions[:1]  # one block for all elements, expanded
        self.emissions: Array = emissions.detach().contiguous().numpy()  # [b n s]
        self.transitions: Array = transitions.detach().contiguous().numpy()  # [bt nt s s]
        self.lengths: Array = lengths.contiguous().numpy()
        b, n, s = self.emissions.shape
        dtype = self.emissions.dtype
        floor = 8 * s * np.finfo(dtype).tiny
        self.limits = np.array([TINY[emissions.dtype], floor, SHARE[emissions.dtype]], dtype)
        self.work = b * n * s * s
        self.stationary = self.transitions.shape[1] == 1
        self.factors: Array = np.empty((0, s, s), dtype)
        if self.stationary:
            lowest = np.finfo(dtype).min
            tops = self.transitions.max(axis=(2, 3), keepdims=True, initial=lowest)
            with np.errstate(invalid="ignore"):  # one step may be padding, with anything in it
                self.factors = np.exp(self.transitions - tops)[:, 0]
        self.alphas, self.betas = np.empty_like(self.emissions), np.empty_like(self.emissions)
        self.scales, self.shifts = np.empty((b, n), dtype), np.empty((b, n), dtype)
        self.fits: Array = np.empty(b)  # log Z, or NaN where the element needs log space

    @property
    def _potentials(self) -> tuple[Array, ...]:
        return self.emissions, self.transitions, self.factors, self.lengths

    @cached_property
    def log_z(self) -> Tensor:
        """log Z [b] in float64; the derivatives and samples stand on the alphas it leaves."""

        def part(lo: int, hi: int) -> None:
            forward(
                *self._potentials, lo, hi, self.limits,
                self.alphas, self.scales, self.shifts, self.fits,
            )  # fmt: skip

        over_batch(part, len(self.emissions), self.work)
        log_z = self.fits.copy()

        def again(b: int) -> None:
            log_z[b] = log_space_forward(self.emissions, self.transitions, self.lengths, b)[0]

        self._in_log_space(again)
        return torch.from_numpy(log_z)

    def _in_log_space(self, task: Callable[[int], None]) -> None:
        """Calls task(b) for the elements that do not fit scaled arithmetic."""
        places = np.isnan(self.fits).nonzero()[0].tolist()

        def part(lo: int, hi: int) -> None:
            for b in places[lo:hi]:
                task(b)

        _, n, s = self.emissions.shape
        over_batch(part, len(places), 5 * len(places) * n * s * s)

    def log_alphas(self) -> Array:
        """log alphas [b n s] in float64, at each position up to a constant."""
        with np.errstate(divide="ignore", invalid="ignore"):  # the padding was never filled
            logs = np.log(self.alphas.astype(np.float64))

        def again(b: int) -> None:
            exact = log_space_forward(self.emissions, self.transitions, self.lengths, b)[1]
            logs[b, : len(exact)] = exact

        self._in_log_space(again)
        return logs

    def _log_space_marginals(self, b: int) -> tuple[Array, Array]:
        """Marginals of one element: nodes [n s], pairs [n-1 s s]."""
        _, n, s = self.emissions.shape
        nodes, pairs = np.empty((n, s)), np.empty((max(n - 1, 0), s, s))
        log_space_marginals(self.emissions, self.transitions, self.lengths, b, nodes, pairs)
        return nodes, pairs

    def gradients(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of weights . log Z: nodes [b n s] and, for each element, pairs [b nt s s]."""
        _ = self.log_z  # fills the alphas
        nodes = np.empty_like(self.emissions)
        pairs = np.empty((len(nodes), *self.transitions.shape[1:]), nodes.dtype)
        scales = weights.detach().to(torch.from_numpy(nodes).dtype).contiguous().numpy()

        def part(lo: int, hi: int) -> None:
            backward(
                *self._potentials, lo, hi, self.limits, self.alphas, self.scales, self.shifts,
                scales, self.betas, nodes, pairs, self.fits,
            )  # fmt: skip

        over_batch(part, len(nodes), self.work)

        def again(b: int) -> None:
            own_nodes, own_pairs = self._log_space_marginals(b)
            if self.stationary:
                own_pairs = own_pairs.sum(0, keepdims=True)
            nodes[b], pairs[b] = scales[b] * own_nodes, scales[b] * own_pairs

        self._in_log_space(again)
        return torch.from_numpy(nodes), torch.from_numpy(pairs)

    def tangents(
        self, weights: Tensor, u_nodes: Tensor, u_pairs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hessian of weights . log Z times u: nodes [b n s], pairs [b nt s s]; and E[U] [b]."""
        ones = torch.ones(len(self.emissions))
        marginals = self.gradients(ones)[0].numpy()  # fills betas as well
        scales = weights.detach().numpy()
        u_n, u_p = u_nodes.detach().contiguous().numpy(), u_pairs.detach().contiguous().numpy()
        nodes = np.empty_like(self.emissions)
        pairs = np.empty((len(nodes), *self.transitions.shape[1:]), nodes.dtype)
        expected = np.empty(len(nodes))
        _, n, s = nodes.shape

        def part(lo: int, hi: int) -> None:
            own = np.empty((max(n - 1, 0), s, s), nodes.dtype)
            for b in range(lo, hi):
                if np.isnan(self.fits[b]):
                    own[:] = self._log_space_marginals(b)[1]
                else:
                    pair_marginals(
                        *self._potentials, b, self.alphas, self.betas, self.scales, self.shifts, own
                    )
                out = np.empty_like(own) if self.stationary else pairs[b]
                expected[b] = covariances(
                    marginals[b], own, self.lengths[b], u_n[b], u_p[b if len(u_p) > 1 else 0],
                    scales[b], nodes[b], out,
                )  # fmt: skip
                if self.stationary:
                    pairs[b, 0] = out.sum(0)

        over_batch(part, len(nodes), 3 * self.work)
        return torch.from_numpy(nodes), torch.from_numpy(pairs), torch.from_numpy(expected)

    def best(self) -> Tensor:
        """The labels [b n] with the highest score (Viterbi)."""
        b, n, _ = self.emissions.shape
        labels, scores = np.empty((b, n), np.int64), np.empty(b)

        def part(lo: int, hi: int) -> None:
            viterbi(self.emissions, self.transitions, self.lengths, lo, hi, labels, scores)

        over_batch(part, b, self.work)
        return torch.from_numpy(labels)

    def sample(self, count: int, seed: int) -> Tensor:
        """Labels [m b n], drawn backwards from the alphas."""
        _ = self.log_z  # fills the alphas
        log_alphas = self.log_alphas()
        b, n, s = self.emissions.shape
        labels = np.empty((b, count, n), np.int64)

        def part(lo: int, hi: int) -> None:
            for element in range(lo, hi):
                possible = draw(
                    log_alphas[element], self.transitions, self.lengths[element], element,
                    np.uint64(seed), element * count, labels[element],
                )  # fmt: skip
                if not possible:
                    labels[element] = -1

        over_batch(part, b, b * count * n * s)
        return torch.from_numpy(labels.swapaxes(0, 1).copy())


class GpuPasses:
    """Triton kernels, one program for each element; see `gpu.py`."""

    def __init__(self, emissions: Tensor, transitions: Tensor, lengths: Tensor) -> None:
        from inout.kernels.chain import gpu  # here, because triton is only where GPUs are

        self.kernels = gpu
        if len(transitions) > 1 and transitions.stride(0) == 0:
            transitions = transitions[:1]
        self.empty = lengths == 0
        if bool(self.empty.any()):
            # The kernels want a first position; give the empty chains one that says nothing.
            emissions = torch.where(self.empty[:, None, None], 0.0, emissions)
        self.emissions = emissions.detach().contiguous()
        self.transitions = transitions.detach().contiguous()
        self.lengths = lengths.clamp(min=1).contiguous()

    @property
    def _potentials(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.emissions, self.transitions, self.lengths

    @cached_property
    def _forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """(log Z, log alphas, their log scales)."""
        return self.kernels.forward(*self._potentials)

    @property
    def log_z(self) -> Tensor:
        """log Z [b] in float64."""
        return torch.where(self.empty, 0.0, self._forward[0])

    def gradients(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of weights . log Z: nodes [b n s] and, for each element, pairs [b nt s s]."""
        scales = torch.where(self.empty, 0.0, weights.detach()).to(self.emissions.dtype)
        nodes, pairs = self.kernels.gradients(*self._potentials, *self._forward[1:], scales)
        return nodes, pairs

    def tangents(
        self, weights: Tensor, u_nodes: Tensor, u_pairs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hessian products by autograd through the reference."""
        b = len(self.emissions)
        own = self.transitions.expand(b, *self.transitions.shape[1:])
        inputs = (self.emissions, own, torch.where(self.empty, 0.0, weights))
        outputs = reference_tangents(*inputs, u_nodes, u_pairs.expand_as(own), self.lengths)
        nodes, pairs, expected = (x.detach() for x in outputs)
        return nodes, pairs, torch.where(self.empty, 0.0, expected)

    def best(self) -> Tensor:
        """The labels [b n] with the highest score (Viterbi)."""
        labels: Tensor = self.kernels.best_labels(*self._potentials)
        return labels

    def sample(self, count: int, seed: int) -> Tensor:
        """Labels [m b n], drawn backwards from the alphas."""
        device = self.emissions.device
        generator = torch.Generator(device=device).manual_seed(seed % 2**63)
        shape = (count, *self.emissions.shape[:2])
        uniform = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
        labels: Tensor = self.kernels.sample_labels(
            self.transitions, self.lengths, self._forward[1], uniform.to(self.emissions.dtype)
        )
        return labels


# Labels a Triton program can hold; `gpu.py` cannot be asked where there is no triton.
MOST_GPU_LABELS = 128


def passes_for(emissions: Tensor, transitions: Tensor, lengths: Tensor) -> Passes:
    """The passes that run for these potentials: compiled on the CPU, Triton on a GPU."""
    if emissions.device.type == "cpu":
        return CpuPasses(emissions, transitions, lengths)
    if emissions.shape[2] > MOST_GPU_LABELS:
        raise ArgumentError(
            f"on a GPU chains have at most {MOST_GPU_LABELS} labels. Got {emissions.shape[2]}; "
            'use tier="reference" or the CPU'
        )
    return GpuPasses(emissions, transitions, lengths)
