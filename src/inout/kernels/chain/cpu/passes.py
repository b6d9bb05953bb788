"""Chains on the CPU: the compiled passes, shared out among threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout.kernels.chain.cpu import decode as decoding
from inout.kernels.chain.cpu import logspace, scaled, tangent
from inout.kernels.limits import CHAIN_EXACT, CHAIN_SHARE
from inout.kernels.threads import groups, over_batch

Array = NDArray[Any]
Kernel = Callable[..., Any]

# numba's dispatchers have no types for starred arguments.
forward: Kernel = scaled.forward
backward: Kernel = scaled.backward
stationary_backward: Kernel = scaled.stationary_backward
log_space_forward: Kernel = logspace.forward
log_space_marginals: Kernel = logspace.marginals
covariances: Kernel = tangent.covariances
specific_covariances: Kernel = tangent.specific_covariances
stationary_covariances: Kernel = tangent.stationary_covariances
viterbi: Kernel = decoding.viterbi
draw: Kernel = decoding.sample


class CpuPasses:
    """Scaled arithmetic, and log space where an element's range asks for it.

    Gradients of transitions come as these were given: [1 nt s s] if all elements share them.
    Without `keep` there are log Z and samples only, and no alphas are kept for log Z.
    """

    def __init__(
        self, emissions: Tensor, transitions: Tensor, lengths: Tensor, *, keep: bool = True
    ) -> None:
        # Whether to add up the elements' gradients of transitions, or to give each one's.
        self.shared = len(transitions) == 1 and len(emissions) != 1
        if len(transitions) > 1 and transitions.stride(0) == 0:
            transitions = transitions[:1]  # one block for all elements, expanded
        self.emissions: Array = emissions.detach().contiguous().numpy()  # [b n s]
        self.transitions: Array = transitions.detach().contiguous().numpy()  # [bt nt s s]
        self.lengths: Array = lengths.contiguous().numpy()
        self.keep = keep
        b, n, s = self.emissions.shape
        dtype = self.emissions.dtype
        floor = 8 * s * np.finfo(dtype).tiny
        self.limits = np.array([CHAIN_EXACT.of(dtype), floor, CHAIN_SHARE.of(dtype)], dtype)
        self.work = b * n * s * s
        self.stationary = self.transitions.shape[1] == 1
        self.factors: Array = np.empty((0, s, s), dtype)
        if self.stationary:
            lowest = np.finfo(dtype).min
            tops = self.transitions.max(axis=(2, 3), keepdims=True, initial=lowest)
            with np.errstate(invalid="ignore"):  # one step may be padding, with anything in it
                self.factors = np.exp(self.transitions - tops)[:, 0]
        self.scales, self.shifts = np.empty((b, n), dtype), np.empty((b, n), dtype)
        self.fits: Array = np.empty(b)  # log Z, or NaN where the element needs log space

    @property
    def _potentials(self) -> tuple[Array, ...]:
        return self.emissions, self.transitions, self.factors, self.lengths

    def _run_forward(self, rows: int) -> Array:
        """Fills fits, scales and shifts; alphas [b rows s]."""
        b, _, s = self.emissions.shape
        alphas = np.empty((b, rows, s), self.emissions.dtype)

        def part(lo: int, hi: int) -> None:
            forward(
                *self._potentials, lo, hi, self.limits, alphas, self.scales, self.shifts, self.fits
            )

        over_batch(part, b, self.work)
        return alphas

    @cached_property
    def alphas(self) -> Array:
        """Alphas [b n s], each position's relative to the largest."""
        return self._run_forward(self.emissions.shape[1])

    @cached_property
    def betas(self) -> Array:
        """Room for the betas [b n s]."""
        return np.empty_like(self.emissions)

    @cached_property
    def log_z(self) -> Tensor:
        """log Z [b]; NaN where a potential is NaN or +inf."""
        if self.keep:
            _ = self.alphas
        else:
            self._run_forward(2)
        log_z = self.fits.copy()

        def again(b: int) -> None:
            exact = log_space_forward(self.emissions, self.transitions, self.lengths, b)[0]
            log_z[b] = exact if self._is_valid(b) else np.nan

        self._in_log_space(again)
        return torch.from_numpy(log_z)

    def _is_valid(self, b: int) -> bool:
        """Whether an element's potentials are all below +inf."""
        length = int(self.lengths[b])
        own = self.transitions[b if len(self.transitions) > 1 else 0]
        steps = max(length - 1, 0)
        used = own[: min(steps, 1) if self.stationary else steps]
        return bool((self.emissions[b, :length] < np.inf).all() and (used < np.inf).all())

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

    def _run_backward(self, scales: Array) -> tuple[Array, Array]:
        """Gradients of the elements that fit: nodes [b n s], pairs as `gradients` gives them."""
        alphas, betas, tiny = self.alphas, self.betas, self.limits[0]
        nodes = np.empty_like(self.emissions)
        b, _, s = nodes.shape
        if not self.stationary:
            pairs = np.empty((b, *self.transitions.shape[1:]), nodes.dtype)

            def part(lo: int, hi: int) -> None:
                backward(
                    self.emissions, self.transitions, self.lengths, lo, hi, tiny, alphas,
                    self.scales, self.shifts, scales, betas, nodes, pairs, self.fits,
                )  # fmt: skip

            over_batch(part, b, self.work)
            fits = ~np.isnan(self.fits)
            return nodes, pairs[fits].sum(0, keepdims=True) if self.shared else pairs
        bounds, transposed = groups(b), np.ascontiguousarray(self.factors.swapaxes(1, 2))
        products = np.zeros((len(bounds) - 1 if self.shared else b, s, s), nodes.dtype)

        def sums(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                stationary_backward(
                    self.emissions, transposed, self.lengths, bounds[g], bounds[g + 1], tiny,
                    alphas, self.scales, scales, betas, nodes, products,
                    g if self.shared else -1, self.fits,
                )  # fmt: skip

        over_batch(sums, len(bounds) - 1, self.work)
        if self.shared:
            products = products.sum(0, keepdims=True)
        products *= np.nan_to_num(self.factors)
        return nodes, products[:, None]

    def gradients(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of weights . log Z: nodes [b n s] and pairs [bt nt s s]."""
        _ = self.alphas
        given = self.emissions.dtype
        # Without any labelling the gradient is 0, whatever log Z = -inf has made of the weight.
        possible = self.log_z.numpy() > -np.inf
        scales = np.where(possible, weights.detach().numpy(), 0).astype(given)
        nodes, pairs = self._run_backward(np.ascontiguousarray(scales))
        shares: dict[int, Array] = {}  # of the shared transitions, to be added in order

        def again(b: int) -> None:
            own_nodes, own_pairs = self._log_space_marginals(b)
            if self.stationary:
                own_pairs = own_pairs.sum(0, keepdims=True)
            nodes[b] = scales[b] * own_nodes
            if self.shared:
                shares[b] = scales[b] * own_pairs
            else:
                pairs[b] = scales[b] * own_pairs

        self._in_log_space(again)
        for b in sorted(shares):
            pairs[0] += shares[b].astype(given)
        return torch.from_numpy(nodes), torch.from_numpy(pairs)

    def tangents(
        self, weights: Tensor, directions: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hessian of weights . log Z times u: nodes [b n s], pairs [bt nt s s]; and E[U] [b]."""
        if "betas" not in self.__dict__:  # as the first derivative leaves them
            self.gradients(torch.ones(len(self.emissions)))
        scales = weights.detach().numpy().astype(self.emissions.dtype)
        u_nodes = directions[0].detach().contiguous().numpy()
        u_pairs = _without_copies(directions[1].detach())
        nodes, expected = np.empty_like(self.emissions), np.zeros(len(self.emissions))
        tangents = self._stationary_tangents if self.stationary else self._specific_tangents
        pairs = tangents(scales, u_nodes, u_pairs, nodes, expected)
        shares: dict[int, Array] = {}  # of the shared transitions, to be added in order

        def again(b: int) -> None:
            own_nodes, own_pairs = self._log_space_marginals(b)
            out = np.empty(own_pairs.shape, nodes.dtype)
            expected[b] = covariances(
                own_nodes.astype(nodes.dtype), own_pairs.astype(nodes.dtype), self.lengths[b],
                u_nodes[b], u_pairs[b if len(u_pairs) > 1 else 0], scales[b], nodes[b], out,
            )  # fmt: skip
            if self.stationary:
                out = out.sum(0, keepdims=True)
            if self.shared:
                shares[b] = out
            else:
                pairs[b] = out

        self._in_log_space(again)
        for b in sorted(shares):
            pairs[0] += shares[b]
        return torch.from_numpy(nodes), torch.from_numpy(pairs), torch.from_numpy(expected)

    def _specific_tangents(
        self, scales: Array, u_nodes: Array, u_pairs: Array, nodes: Array, expected: Array
    ) -> Array:
        """Of the elements that fit fills nodes and expected; pairs [bt n-1 s s]."""
        pairs = np.empty((len(nodes), *self.transitions.shape[1:]), nodes.dtype)

        def part(lo: int, hi: int) -> None:
            specific_covariances(
                *self._potentials, lo, hi, self.alphas, self.betas, self.scales, self.shifts,
                self.fits, u_nodes, u_pairs, scales, nodes, pairs, expected,
            )  # fmt: skip

        over_batch(part, len(nodes), 3 * self.work)
        return pairs[~np.isnan(self.fits)].sum(0, keepdims=True) if self.shared else pairs

    def _stationary_tangents(
        self, scales: Array, u_nodes: Array, u_pairs: Array, nodes: Array, expected: Array
    ) -> Array:
        """Of the elements that fit fills nodes and expected; pairs [bt 1 s s]."""
        size = nodes.shape[2]
        bounds = groups(len(nodes))
        slots = len(bounds) - 1 if self.shared else len(nodes)
        factors = np.nan_to_num(self.factors)  # NaN: blocks that are all padding
        transposed = np.ascontiguousarray(factors.swapaxes(1, 2))
        changes, mean = _changes(factors, u_pairs[:, 0])
        changes_transposed = np.ascontiguousarray(changes.swapaxes(1, 2))
        first = np.zeros((slots, size, size), nodes.dtype)
        second = np.zeros((slots if len(changes) else 0, size, size), nodes.dtype)

        def sums(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                stationary_covariances(
                    self.emissions, self.lengths, bounds[g], bounds[g + 1], self.alphas,
                    self.betas, self.scales, self.fits, factors, transposed, changes,
                    changes_transposed, u_nodes, scales, nodes, first, second,
                    g if self.shared else -1, expected,
                )  # fmt: skip

        over_batch(sums, len(bounds) - 1, 3 * self.work)
        expected += np.maximum(self.lengths - 1, 0) * mean
        if self.shared:
            first, second = (x.sum(0, keepdims=True) for x in (first, second))
        first *= factors
        if len(changes):
            first += second * changes
        return first[:, None]

    def best(self) -> Tensor:
        """The labels [b n] with the highest score (Viterbi); 0 beyond the lengths."""
        b, n, _ = self.emissions.shape
        labels, scores = np.empty((b, n), np.int64), np.empty(b)

        def part(lo: int, hi: int) -> None:
            viterbi(self.emissions, self.transitions, self.lengths, lo, hi, labels, scores)

        over_batch(part, b, self.work)
        return torch.from_numpy(labels)

    def sample(self, count: int, seed: int) -> Tensor:
        """Labels [m b n], drawn backwards; -1 throughout an element that has none."""
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


def _without_copies(u: Tensor) -> Array:
    """A direction of pairs [b nt s s] as [bu nu s s], without the copies that `expand` made."""
    for dim in range(2):
        if u.shape[dim] > 1 and u.stride(dim) == 0:
            u = u.narrow(dim, 0, 1)
    return u.contiguous().numpy()


def _changes(factors: Array, u: Array) -> tuple[Array, Array]:
    """What a direction [bu s s] less its mean makes of the factors, and that mean [bu].

    A direction that is the same for all pairs has no covariance: without it less cancels, and
    nothing is left ([0 s s]) of one that is constant, as where a loss knows no pairs.
    """
    constant = u[:1, :1, :1]
    if np.isfinite(constant).all() and (u == constant).all():
        return factors[:0], constant.reshape(-1)
    share = factors * np.where(factors == 0, 0, u)
    mean = share.sum((1, 2)) / np.maximum(factors.sum((1, 2)), np.finfo(factors.dtype).tiny)
    return share - factors * mean[:, None, None], mean
