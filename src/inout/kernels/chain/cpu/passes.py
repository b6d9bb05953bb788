"""Chains on the CPU: the compiled passes, shared out among threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from inout.kernels.chain.cpu import decode as decoding
from inout.kernels.chain.cpu import logspace, scaled, tangent
from inout.kernels.chain.cpu.scaled import Array, Chains, Limits, Messages, Parts
from inout.kernels.limits import CHAIN_EXACT, CHAIN_SHARE
from inout.kernels.threads import groups, over_batch


class CpuPasses:
    """Scaled arithmetic, and log space for elements that need it.

    Gradients of transitions have their shape: [1 nt s s] if all elements share them. Without
    `keep` there are only log Z and samples, and no alphas are kept for log Z.
    """

    def __init__(
        self, emissions: Tensor, transitions: Tensor, lengths: Tensor, *, keep: bool = True
    ) -> None:
        # Whether to add up the elements' gradients of transitions, or to give each one's.
        self.shared = len(transitions) == 1 and len(emissions) != 1
        if len(transitions) > 1 and transitions.stride(0) == 0:
            transitions = transitions[:1]  # one block for all elements, expanded
        self.emissions, given = (x.detach().contiguous().numpy() for x in (emissions, transitions))
        self.keep, self.stationary = keep, given.shape[1] == 1
        b, n, s = self.emissions.shape
        dtype = self.emissions.dtype
        limits = (CHAIN_EXACT.of(dtype), 8 * s * np.finfo(dtype).tiny, CHAIN_SHARE.of(dtype))
        self.limits = Limits(*(dtype.type(x) for x in limits))
        self.work = b * n * s * s
        factors = np.empty((0, s, s), dtype)
        if self.stationary:
            tops = given.max(axis=(2, 3), keepdims=True, initial=np.finfo(dtype).min)
            with np.errstate(invalid="ignore"):  # one step may be padding, with anything in it
                factors = np.exp(given - tops)[:, 0]
        self.chains = Chains(self.emissions, given, factors, lengths.contiguous().numpy())
        self.fits: Array = np.empty(b)  # log Z, or NaN if the element needs log space
        self.differentiated = False

    def _run_forward(self, rows: int, back: int, every: int = 0) -> Messages:
        """Fills fits, and the messages but for the betas, for which it makes room."""
        b, n, s = self.emissions.shape
        kept = -(-n // every) if every else 0
        sizes = (b, rows, s), (b, back, s), (b, n), (b, n), (b, kept, s)
        alphas, betas, scales, shifts, some = (np.empty(x, self.emissions.dtype) for x in sizes)
        made = Messages(alphas, betas, scales, shifts, self.fits, some, every)
        over_batch(
            lambda lo, hi: scaled.forward(self.chains, lo, hi, self.limits, made), b, self.work
        )
        return made

    @cached_property
    def messages(self) -> Messages:
        """Alphas and, once differentiated, betas."""
        n = self.emissions.shape[1]
        return self._run_forward(n, n)

    @cached_property
    def log_z(self) -> Tensor:
        """log Z [b]; NaN where a potential is NaN or +inf."""
        if self.keep:
            _ = self.messages
        else:
            self._run_forward(2, 0)
        log_z = self.fits.copy()

        def again(b: int) -> None:
            exact, _ = logspace.forward(self.chains, b)
            log_z[b] = exact if self._is_valid(b) else np.nan

        self._in_log_space(again)
        return torch.from_numpy(log_z)

    def _is_valid(self, b: int) -> bool:
        """Whether an element's potentials are all below +inf."""
        length = int(self.chains.lengths[b])
        own = self.chains.transitions[b if len(self.chains.transitions) > 1 else 0]
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
            logs = np.log(self.messages.alphas.astype(np.float64))

        def again(b: int) -> None:
            _, exact = logspace.forward(self.chains, b)
            logs[b, : len(exact)] = exact

        self._in_log_space(again)
        return logs

    def _fill_in_log_space(self, task: Callable[[int], Array], pairs: Array) -> None:
        """Adds what task(b) gives [n-1 s s] to pairs that are shared, or puts it into its place."""
        shares: dict[int, Array] = {}  # to be added in order

        def again(b: int) -> None:
            own = task(b)
            if self.stationary:
                own = own.sum(0, keepdims=True)
            if self.shared:
                shares[b] = own
            else:
                pairs[b] = own

        self._in_log_space(again)
        for b in sorted(shares):
            pairs[0] += shares[b].astype(pairs.dtype)

    def _log_space_marginals(self, b: int) -> tuple[Array, Array]:
        """Marginals of one element: nodes [n s], pairs [n-1 s s]."""
        _, n, s = self.emissions.shape
        nodes, pairs = np.empty((n, s)), np.empty((max(n - 1, 0), s, s))
        logspace.marginals(self.chains, b, nodes, pairs)
        return nodes, pairs

    @cached_property
    def _places(self) -> Array:
        """Where each element adds its gradient of stationary transitions [b]: one for a group."""
        size, bounds = len(self.emissions), groups(len(self.emissions))
        return (
            np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
            if self.shared
            else np.arange(size)
        )

    def _by_groups(self, part: Callable[[int, int], None], work: int) -> None:
        """Calls part(lo, hi) so that each group is done by one thread, if groups have sums."""
        bounds = groups(len(self.emissions))
        if self.stationary and self.shared:
            over_batch(lambda lo, hi: part(bounds[lo], bounds[hi]), len(bounds) - 1, work)
        else:
            over_batch(part, len(self.emissions), work)

    def _run_backward(self, scales: Array) -> Parts:
        """Gradients of the elements that fit: nodes [b n s], pairs as `gradients` gives them."""
        b, _, s = self.emissions.shape
        factors = self.chains.factors
        transposed, exact = np.ascontiguousarray(factors.swapaxes(1, 2)), self.limits.exact
        places = self._places
        dtype = self.emissions.dtype
        pairs = np.empty((b, *self.chains.transitions.shape[1:]), dtype)
        if self.stationary:
            pairs = np.zeros((len(groups(b)) - 1 if self.shared else b, 1, s, s), dtype)
        made = Parts(np.empty_like(self.emissions), pairs)

        def part(lo: int, hi: int) -> None:
            scaled.backward(
                self.chains, transposed, lo, hi, exact, self.messages, scales, made, places
            )

        self._by_groups(part, self.work)
        self.differentiated = True
        if self.stationary:
            if self.shared:
                pairs = pairs.sum(0, keepdims=True)
            pairs *= np.nan_to_num(factors)[:, None]
        elif self.shared:
            pairs = pairs[~np.isnan(self.fits)].sum(0, keepdims=True)
        return made._replace(pairs=pairs)

    def gradients(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of weights . log Z: nodes [b n s] and pairs [bt nt s s]."""
        _ = self.messages
        given = self.emissions.dtype
        # Without any labelling the gradient is 0, whatever the weight became by log Z = -inf.
        possible = self.log_z.numpy() > -np.inf
        scales = np.where(possible, weights.detach().numpy(), 0).astype(given)
        nodes, pairs = self._run_backward(np.ascontiguousarray(scales))

        def again(b: int) -> Array:
            own_nodes, own_pairs = self._log_space_marginals(b)
            nodes[b] = scales[b] * own_nodes
            own_pairs *= scales[b]
            return own_pairs

        self._fill_in_log_space(again, pairs)
        return torch.from_numpy(nodes), torch.from_numpy(pairs)

    def tangents(
        self, weights: Tensor, directions: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hessian of weights . log Z times u: nodes [b n s], pairs [bt nt s s]; and E[U] [b]."""
        if not self.differentiated:  # which leaves the betas
            self.gradients(torch.ones(len(self.emissions)))
        scales = weights.detach().numpy().astype(self.emissions.dtype)
        u_nodes = directions[0].detach().contiguous().numpy()
        u = Parts(u_nodes, _without_copies(directions[1].detach()))
        nodes, expected = np.empty_like(self.emissions), np.zeros(len(self.emissions))
        tangents = self._stationary_tangents if self.stationary else self._specific_tangents
        pairs = tangents(scales, u, nodes, expected)

        def again(b: int) -> Array:
            own_nodes, own_pairs = self._log_space_marginals(b)
            out = np.empty(own_pairs.shape, nodes.dtype)
            expected[b] = tangent.covariances(
                own_nodes.astype(nodes.dtype), own_pairs.astype(nodes.dtype),
                self.chains.lengths[b], u.nodes[b], u.pairs[b if len(u.pairs) > 1 else 0],
                scales[b], nodes[b], out,
            )  # fmt: skip
            return out

        self._fill_in_log_space(again, pairs)
        return torch.from_numpy(nodes), torch.from_numpy(pairs), torch.from_numpy(expected)

    def _specific_tangents(self, scales: Array, u: Parts, nodes: Array, expected: Array) -> Array:
        """Of the elements that fit fills nodes and expected; pairs [bt n-1 s s]."""
        pairs = np.empty((len(nodes), *self.chains.transitions.shape[1:]), nodes.dtype)
        out = Parts(nodes, pairs)

        def part(lo: int, hi: int) -> None:
            tangent.specific_covariances(
                self.chains, lo, hi, self.messages, u, scales, out, expected
            )

        over_batch(part, len(nodes), 3 * self.work)
        return pairs[~np.isnan(self.fits)].sum(0, keepdims=True) if self.shared else pairs

    def _stationary_tangents(self, scales: Array, u: Parts, nodes: Array, expected: Array) -> Array:
        """Of the elements that fit fills nodes and expected; pairs [bt 1 s s]."""
        size = nodes.shape[2]
        factors = np.nan_to_num(self.chains.factors)  # NaN: blocks that are all padding
        changes, mean = _changes(factors, u.pairs[:, 0])
        matrices = tangent.Matrices(
            factors, np.ascontiguousarray(factors.swapaxes(1, 2)),
            changes, np.ascontiguousarray(changes.swapaxes(1, 2)),
        )  # fmt: skip
        places, slots = self._places, len(groups(len(nodes))) - 1 if self.shared else len(nodes)
        sums = np.zeros((slots, 2 if len(changes) else 1, size, size), nodes.dtype)

        def part(lo: int, hi: int) -> None:
            tangent.stationary_covariances(
                self.chains, lo, hi, self.messages, matrices, u.nodes, scales, nodes, sums, places,
                expected,
            )  # fmt: skip

        self._by_groups(part, 3 * self.work)
        expected += np.maximum(self.chains.lengths - 1, 0) * mean
        if self.shared:
            sums = sums.sum(0, keepdims=True)
        pairs: Array = sums[:, :1] * factors[:, None]
        if len(changes):
            pairs += sums[:, 1:] * changes[:, None]
        return pairs

    def best(self) -> Tensor:
        """The labels [b n] with the highest score (Viterbi); 0 beyond the lengths."""
        b, n, _ = self.emissions.shape
        labels, scores = np.empty((b, n), np.int64), np.empty(b)

        def part(lo: int, hi: int) -> None:
            decoding.viterbi(
                self.emissions, self.chains.transitions, self.chains.lengths, lo, hi, labels, scores
            )

        over_batch(part, b, self.work)
        return torch.from_numpy(labels)

    def sample(self, count: int, seed: int) -> Tensor:
        """Labels [m b n], drawn backwards; -1 throughout an element that has none."""
        log_alphas = self.log_alphas()
        b, n, s = self.emissions.shape
        labels = np.empty((b, count, n), np.int64)

        def part(lo: int, hi: int) -> None:
            for element in range(lo, hi):
                possible = decoding.sample(
                    log_alphas[element], self.chains.transitions, self.chains.lengths[element],
                    element, np.uint64(seed), element * count, labels[element],
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
    """The factors times a direction [bu s s] minus its mean, and that mean [bu].

    A direction that is the same for all pairs has no covariance: without it less cancels. A
    constant direction, as of a loss without pairs, becomes empty ([0 s s]).
    """
    constant = u[:1, :1, :1]
    if np.isfinite(constant).all() and (u == constant).all():
        return factors[:0], constant.reshape(-1)
    share = factors * np.where(factors == 0, 0, u)
    mean = share.sum((1, 2)) / np.maximum(factors.sum((1, 2)), np.finfo(factors.dtype).tiny)
    return share - factors * mean[:, None, None], mean
