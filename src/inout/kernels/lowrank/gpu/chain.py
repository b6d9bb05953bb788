"""Messages of factored chains in torch code that never waits for the device.

Messages are sums by latent value, [r], relative to a power of two: those of the labels before a
step and those after it. A step is two products of matrices, through the labels of one position.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.limits import CHAIN_SHARE, LOWRANK_GPU_LARGE
from inout.kernels.lowrank.gpu.scaling import relative, settle


class Potentials(NamedTuple):
    """Log-weights; nothing but numbers in the padding."""

    nodes: Tensor  # [b n s]
    source: Tensor  # [1|b 1|n-1 s r]
    target: Tensor  # [1|b 1|n-1 r s]


class Weights:
    """Weights relative to the largest of each position or block, and the logs of these.

    With `possible`, 1 for everything possible.
    """

    def __init__(self, given: Potentials, *, possible: bool = False) -> None:
        self.possible = possible
        if possible:
            given = Potentials._make((x > -torch.inf).to(x.dtype).log() for x in given)
        self.nodes, node_tops = relative(given.nodes, (2,))
        self.source, source_tops = relative(given.source, (2, 3))
        self.target, target_tops = relative(given.target, (2, 3))
        self.tops = node_tops  # [b n], a step's at the position that it leads to
        self.tops[:, 1:] += source_tops + target_tops

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Elements, positions, labels, latent values."""
        b, n, s = self.nodes.shape
        return b, n, s, self.source.shape[3]

    @property
    def large(self) -> bool:
        """Whether to read the factors takes longer than to multiply with them."""
        b, n, s, rank = self.size
        shared = self.source.shape[:2] == self.target.shape[:2] == (1, 1)
        fits = self.nodes.is_cuda and self.nodes.dtype == torch.float32 and not self.possible
        least, rows, most = LOWRANK_GPU_LARGE
        return (
            fits and shared and n > 1 and 0 < b <= rows and 16 <= rank <= most and s * rank >= least
        )

    def source_at(self, t: int) -> Float[Tensor, "c s r"]:
        """The weights of the step from t - 1 to t."""
        return self.source[:, 0 if self.source.shape[1] == 1 else t - 1]

    def target_at(self, t: int) -> Float[Tensor, "c r s"]:
        """The weights of the step from t - 1 to t."""
        return self.target[:, 0 if self.target.shape[1] == 1 else t - 1]


def _product(rows: Float[Tensor, "b k"], block: Float[Tensor, "c k l"]) -> Float[Tensor, "b l"]:
    if len(block) == 1:
        return rows @ block[0]
    return (rows[:, None] @ block)[:, 0]


class Messages:
    """Forward messages of a batch; backward ones when they are asked for, or with `both`.

    If few rows meet large factors, kernels of our own are faster: see `steps.py`.
    """

    def __init__(self, weights: Weights, lengths: Tensor, *, both: bool = False) -> None:
        self.weights, self.lengths = weights, lengths
        b, n, _, rank = weights.size
        new = weights.nodes.new_zeros
        self.real = torch.arange(n, device=lengths.device) < lengths[:, None]  # [b n]
        self.alphas = torch.empty_like(weights.nodes)
        self.latents: Float[Tensor, "b n r"] = new(b, n, rank)  # from position 1 on
        self.exponents: Float[Tensor, "b n"] = new(b, n, dtype=torch.float64)
        self.alphas[:, :1] = weights.nodes[:, :1]
        if weights.large:
            self._fill_by_kernels(both)
        else:
            self._fill()
            if both:
                self.backward  # noqa: B018  # made here
        logs = self.exponents * math.log(2.0) + weights.tops
        self.log_z: Float[Tensor, " b"] = logs.where(self.real, 0.0).sum(1)
        if n:
            place = torch.arange(b, device=lengths.device), (lengths - 1).clamp(min=0)
            ends = self.alphas[place].sum(-1).double().log()
            self.log_z += ends.where(lengths > 0, 0.0)

    def _fill(self) -> None:
        weights = self.weights
        for t in range(1, weights.size[1]):
            total = _product(self.alphas[:, t - 1], weights.source_at(t))
            if weights.possible:
                total = (total > 0).to(total.dtype)
            self.latents[:, t], self.exponents[:, t], _ = settle(total)
            after = _product(self.latents[:, t], weights.target_at(t))
            self.alphas[:, t] = after * weights.nodes[:, t]

    def _fill_by_kernels(self, both: bool) -> None:
        from inout.kernels.lowrank.gpu import steps  # here: triton is only where GPUs are

        weights = self.weights
        nodes, source, target = weights.nodes, weights.source[0, 0], weights.target[0, 0]
        given = nodes, source.mT.contiguous(), target.contiguous(), self.lengths
        if both:
            betas, ahead, latents, _ = self._empty_backward
            steps.both_ways(*given, (self.alphas, self.latents), (ahead, latents, betas))
            self.backward = betas, ahead, *_settled(latents)
        else:
            steps.forwards(*given, self.alphas, self.latents)
        # The kernels scale messages where they read them.
        self.latents, self.exponents = _settled(self.latents)

    @property
    def _empty_backward(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Room for `backward`, with what the last position begins with."""
        nodes = self.weights.nodes
        betas, ahead = torch.empty_like(nodes), torch.empty_like(nodes)
        betas[:, -1:], ahead[:, -1:] = 1.0, nodes[:, -1:]
        return betas, ahead, torch.zeros_like(self.latents), torch.zeros_like(self.exponents)

    @cached_property
    def backward(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Betas [b n s], those times the nodes, messages [b n r] and their exponents [b n].

        From the labels of each position on; the messages go to the step that leads there.
        """
        weights, n = self.weights, self.weights.size[1]
        betas, ahead, latents, exponents = self._empty_backward
        for t in range(n - 1, 0, -1):
            total = _product(ahead[:, t], weights.target_at(t).mT)
            latents[:, t], exponents[:, t], _ = settle(total)
            before = _product(latents[:, t], weights.source_at(t).mT)
            betas[:, t - 1] = torch.where(self.real[:, t, None], before, 1.0)
            ahead[:, t - 1] = betas[:, t - 1] * weights.nodes[:, t - 1]
        return betas, ahead, latents, exponents

    def certain(self) -> Tensor:
        """Whether all that was lost is too small to matter, seen from the forward messages."""
        least = self.latents.amin(-1) * self.exponents.exp2()
        sure = (least[:, 1:] * self._share > self._floor) | ~self.real[:, 1:]
        return sure.all()

    @property
    def _floor(self) -> float:
        """A number lost from a message, relative to those that it was made of, is below this."""
        _, _, s, rank = self.weights.size
        return 8 * s * rank * torch.finfo(self.alphas.dtype).tiny

    @property
    def _share(self) -> float:
        return CHAIN_SHARE.of(self.alphas.dtype) / max(self.weights.size[1], 1)

    def lost(self) -> Tensor:
        """Elements in which lost numbers may matter [b].

        What one message has lost changes the mass at its step by at most `_floor` times the sum of
        the other message.
        """
        _, _, latents, exponents = self.backward
        mass = (self.latents * latents).sum(-1)
        lost = latents.sum(-1) * (-self.exponents).exp2()
        lost += self.latents.sum(-1) * (-exponents).exp2()
        # A NaN, from a mass of 0, is no good either.
        good = (lost * self._floor <= self._share * mass) & (mass > 0) | ~self.real
        return ~good[:, 1:].all(1) | ~(self.log_z > -torch.inf)

    def gradients(self, factors: Float[Tensor, " b"]) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of factors . log Z by nodes, source and target, as these were given."""
        weights = self.weights
        betas, ahead, latents, exponents = self.backward
        # Products of both messages add up to the mass at a step, in the scale of each.
        mass = (self.latents * latents).sum(-1)
        real = self.real & (factors != 0)[:, None]
        shares = torch.where(real & (mass > 0), factors[:, None] / mass, 0.0)  # [b n]
        nodes = self.alphas * betas
        own = nodes.sum(-1)
        nodes *= torch.where(real & (own > 0), factors[:, None] / own, 0.0)[..., None]
        into = (shares * _inverse(self.exponents, shares))[..., None] * latents
        out_of = (shares * _inverse(exponents, shares))[..., None] * self.latents
        out_of = out_of.where(real[..., None], 0.0)
        before = torch.zeros_like(into)
        before[:, :-1] = into[:, 1:].where(real[:, 1:, None], 0.0)
        source = _outer(self.alphas, before, weights.source, slice(None, -1)) * weights.source
        target = _outer(out_of, ahead, weights.target, slice(1, None)) * weights.target
        return nodes.where(real[..., None], 0.0), source, target


def _settled(messages: Float[Tensor, "b n r"]) -> tuple[Tensor, Tensor]:
    """Messages and their exponents; there are none of position 0."""
    found, exponents, _ = settle(messages)
    exponents[:, 0] = 0.0
    return found, exponents


def _inverse(exponents: Tensor, like: Tensor) -> Tensor:
    """2^-exponents, 0 where these are -inf: of zeros."""
    return torch.where(exponents > -torch.inf, (-exponents).exp2(), 0.0).to(like.dtype)


def _outer(
    x: Float[Tensor, "b n k"], y: Float[Tensor, "b n l"], like: Tensor, steps: slice
) -> Float[Tensor, "c d k l"]:
    """Products of x and y, added up over the elements and the steps that share a block."""
    own, own_step = len(like) > 1, like.shape[1] > 1
    if own_step:
        x, y = x[:, steps], y[:, steps]
        if own:
            return x[..., :, None] * y[..., None, :]
        return (x.permute(1, 2, 0) @ y.transpose(0, 1))[None]
    if own:
        return (x.mT @ y)[:, None]
    return (x.flatten(0, 1).mT @ y.flatten(0, 1))[None, None]
