"""Chains with many labels on a GPU: one matrix product for each position, through torch.

Scaled real arithmetic: alphas and betas have 1 as their largest entry. What underflows on the way
is bounded afterwards, when alphas and betas are both known: entries lost from one message, none
larger than `floor`, can change the mass at their position by at most floor times the sum of the
other message. Elements where that is more than a `share` of the mass are done on the CPU.
"""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.chain.cpu.passes import CpuPasses
from inout.kernels.chain.reference import reference_tangents
from inout.kernels.limits import CHAIN_GPU_PAIRS, CHAIN_SHARE
from inout.kernels.math.precision import exact_products


class MatrixPasses:
    """O(n) products of [b s] with [s s], or batches of them where each element has its own.

    Gradients of transitions come as these were given: [1 nt s s] if all elements share them.
    """

    def __init__(
        self, emissions: Tensor, transitions: Tensor, lengths: Tensor, *, keep: bool = True
    ) -> None:
        self.shared = len(transitions) == 1 and len(emissions) != 1
        if len(transitions) > 1 and transitions.stride(0) == 0:
            transitions = transitions[:1]
        self.emissions, self.transitions = emissions.detach(), transitions.detach()
        self.lengths, self.keep = lengths, keep
        b, n, s = emissions.shape
        self.size, self.stationary = (b, n, s), transitions.shape[1] == 1
        self.floor = 8 * s * torch.finfo(emissions.dtype).tiny
        self.share = CHAIN_SHARE.of(emissions.dtype) / max(n, 1)
        position = torch.arange(n, device=lengths.device)[:, None]
        self.real = position < lengths  # [n b]
        # Beyond its length an element emits nothing.
        own = self.emissions.transpose(0, 1).where(self.real[..., None], 0.0)
        self.emission_tops = _finite(own.amax(-1, keepdim=True))
        self.emitted = (own - self.emission_tops).exp()  # [n b s]

    @cached_property
    def _blocks(self) -> tuple[Tensor, Tensor]:
        """exp of the transitions relative to their largest [bt nt s s], and that [bt nt]."""
        tops = _finite(self.transitions.amax((2, 3), keepdim=True))
        return (self.transitions - tops).exp(), tops[..., 0, 0]

    def _block(self, t: int) -> Float[Tensor, "bt s s"]:
        """exp of the transitions from t - 1 to t."""
        return self._blocks[0][:, 0 if self.stationary else t - 1]

    @staticmethod
    def _product(rows: Float[Tensor, "b s"], block: Float[Tensor, "bt s s"]) -> Tensor:
        if len(block) == 1:
            return rows @ block[0]
        return torch.bmm(rows[:, None], block)[:, 0]

    @cached_property
    def _alphas(self) -> tuple[Tensor, Tensor]:
        """Alphas [n b s] with 1 as their largest entry, and the scales [n b] taken out."""
        alphas, scales = torch.empty_like(self.emitted), self.emitted.new_empty(self.size[1::-1])
        with exact_products(alphas):
            for t in range(self.size[1]):
                total = self.emitted[t]
                if t > 0:
                    total = self._product(alphas[t - 1], self._block(t)).mul_(total)
                torch.amax(total, -1, out=scales[t])
                torch.div(total, scales[t][:, None], out=alphas[t])
        return alphas, scales

    @cached_property
    def _betas(self) -> tuple[Tensor, Tensor, Tensor]:
        """Betas [n b s] with 1 as their largest entry, what each was made of, and scales [n b].

        What beta[t - 1] is made of is ahead[t] = beta[t] times what t emits.
        """
        betas, ahead = torch.ones_like(self.emitted), torch.empty_like(self.emitted)
        scales, padding = self.emitted.new_ones(self.size[1::-1]), ~self.real[..., None]
        with exact_products(betas):
            for t in range(self.size[1] - 1, 0, -1):
                torch.mul(betas[t], self.emitted[t], out=ahead[t])
                before = self._product(ahead[t], self._block(t).mT)
                torch.amax(before, -1, out=scales[t - 1])
                torch.div(before, scales[t - 1][:, None], out=betas[t - 1])
                betas[t - 1].masked_fill_(padding[t], 1.0)
        return betas, ahead, scales

    @cached_property
    def _unfit(self) -> Tensor:
        """Numbers of the elements for which scaled arithmetic may have lost something."""
        b, n, s = self.size
        device = self.lengths.device
        if n == 0:
            return torch.empty(0, dtype=torch.long, device=device)
        alphas, scales = self._alphas
        betas, _, beta_scales = self._betas
        mass = (alphas * betas).sum(-1)
        lost = self.floor / scales * betas.sum(-1) + self.floor / beta_scales * alphas.sum(-1)
        # A NaN, from a total of 0, is no good either.
        good = (lost <= self.share * mass) | ~self.real
        return (~good.all(0)).nonzero()[:, 0]

    @cached_property
    def _elsewhere(self) -> CpuPasses | None:
        """The passes of the unfit elements, on the CPU."""
        if not self.keep and self._surely_fits():
            return None
        if not len(self._unfit):
            return None
        transitions = self.transitions
        transitions = (transitions if len(transitions) == 1 else transitions[self._unfit]).cpu()
        if not self.shared:  # one gradient for each element, then
            transitions = transitions.expand(len(self._unfit), *transitions.shape[1:])
        emissions, lengths = self.emissions[self._unfit], self.lengths[self._unfit]
        return CpuPasses(emissions.cpu(), transitions, lengths.cpu())

    def _surely_fits(self) -> bool:
        """Whether the alphas alone show that nothing was lost, which spares the betas."""
        alphas, scales = self._alphas
        least = (alphas.amin(-1) * scales).where(self.real, 1.0)
        return bool((least * self.share > self.floor * self.size[2]).all())

    @cached_property
    def log_z(self) -> Tensor:
        """log Z [b]; NaN where a potential is NaN or +inf."""
        b, n, _ = self.size
        if n == 0:
            return torch.zeros(b, dtype=torch.float64, device=self.lengths.device)
        alphas, scales = self._alphas
        logs = scales.double().log() + self.emission_tops[..., 0].double()
        tops = self._blocks[1].double().expand(-1, n - 1).T  # [n-1 bt]
        logs[1:] += tops.expand(n - 1, b)
        last = (self.lengths - 1).clamp(min=0)
        ends = alphas[last, torch.arange(b, device=last.device)].double().sum(-1).log()
        log_z = logs.where(self.real, 0.0).sum(0) + ends.where(self.lengths > 0, 0.0)
        if self._elsewhere is not None:
            log_z[self._unfit] = self._elsewhere.log_z.to(log_z.device)
        return log_z

    def gradients(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of weights . log Z: nodes [b n s] and pairs [bt nt s s]."""
        b, n, s = self.size
        if n == 0:
            return torch.zeros_like(self.emissions), torch.zeros_like(self.transitions)
        alphas, scales = self._alphas
        betas, ahead, _ = self._betas
        masses = (alphas * betas).sum(-1)
        real = self.real.index_fill(1, self._unfit, False)
        shares = torch.where(real, weights.detach().to(alphas.dtype) / masses, 0.0)  # [n b]
        nodes = (alphas * betas).where(real[..., None], 0.0) * shares[..., None]
        # The pair at t - 1 and t weighs alpha[t - 1] * block * ahead[t] / (mass * scale)[t].
        factors = torch.where(real[1:], shares[1:] / scales[1:], 0.0)
        before = alphas[:-1].where(real[1:, :, None], 0.0) * factors[..., None]
        after = ahead[1:].where(real[1:, :, None], 0.0)
        with exact_products(before):
            pairs = self._pairs(before, after)
        nodes = nodes.transpose(0, 1).contiguous()
        if self._elsewhere is not None:
            bad = self._unfit
            own_nodes, own_pairs = self._elsewhere.gradients(weights[bad].cpu())
            nodes[bad] = own_nodes.to(nodes)
            if self.shared:
                pairs += own_pairs.to(pairs)
            else:
                pairs[bad] = own_pairs.to(pairs)
        return nodes, pairs

    def _pairs(self, before: Tensor, after: Tensor) -> Tensor:
        """Sums of before [n-1 b s] times block times after, as the transitions were given."""
        b, n, s = self.size
        blocks = self._blocks[0]
        if self.stationary and self.shared:
            products = before.reshape(-1, s).T @ after.reshape(-1, s)
            return (products * blocks[0, 0])[None, None]
        if self.stationary:
            products = torch.bmm(before.permute(1, 2, 0), after.transpose(0, 1))
            return (products * blocks[:, 0])[:, None]
        pairs = before.new_empty((1 if self.shared else b, n - 1, s, s))
        for t in range(n - 1):
            if self.shared:
                torch.mul(before[t].T @ after[t], blocks[0, t], out=pairs[0, t])
            else:
                outer = before[t][:, :, None] * after[t][:, None, :]
                torch.mul(outer, blocks[:, t], out=pairs[:, t])
        return pairs

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian products by autograd through the reference; and E[U] [b]."""
        transitions = self.transitions
        if not self.shared:
            transitions = transitions.expand(self.size[0], *transitions.shape[1:])
        return reference_tangents(self.emissions, transitions, self.lengths, weights, directions)

    def best(self) -> Tensor:
        """The labels [b n] with the highest score (Viterbi); 0 beyond the lengths."""
        b, n, s = self.size
        device = self.lengths.device
        labels = torch.zeros((b, n), dtype=torch.long, device=device)
        if n == 0:
            return labels
        pointers = torch.empty((n, b, s), dtype=torch.int32, device=device)
        scores = self.emissions[:, 0]
        for t in range(1, n):
            block = self.transitions[:, 0 if self.stationary else t - 1]
            tops, pointers[t] = _best_before(scores, block)
            going_on = self.real[t][:, None]
            scores = torch.where(going_on, tops + self.emissions[:, t], scores)
        label = scores.argmax(-1)
        element = torch.arange(b, device=device)
        for t in range(n - 1, -1, -1):
            labels[:, t] = torch.where(self.real[t], label, 0)
            if t > 0:
                label = torch.where(self.real[t], pointers[t, element, label].long(), label)
        return labels

    def sample(self, count: int, seed: int) -> Tensor:
        """Labels [m b n], drawn backwards; -1 throughout an element that has none."""
        b, n, s = self.size
        device = self.lengths.device
        labels = torch.zeros((count, b, n), dtype=torch.long, device=device)
        if n == 0 or count == 0:
            return labels
        generator = torch.Generator(device=device).manual_seed(seed % 2**63)
        alphas = self._alphas[0]
        after = labels[..., 0]
        for t in range(n - 1, -1, -1):
            weights = alphas[t].expand(count, b, s)
            if t + 1 < n:
                block = self._block(t + 1).mT  # [bt to from]
                element = torch.arange(b, device=device) if len(block) > 1 else after.new_zeros(1)
                bound = self.real[t + 1][:, None]  # where a label comes after
                weights = weights * block[element.expand(b), after].where(bound, 1.0)
            sums = weights.cumsum(-1)
            uniform = torch.rand(
                (count, b, 1), generator=generator, device=device, dtype=sums.dtype
            )
            # Labels of weight zero leave the running sum as it is, and so are never reached first.
            drawn = (sums <= uniform * sums[..., -1:]).sum(-1).clamp(max=s - 1)
            after = torch.where(self.real[t], drawn, after)
            labels[..., t] = torch.where(self.real[t], drawn, 0)
        if self._elsewhere is not None:
            labels[:, self._unfit] = self._elsewhere.sample(count, seed).to(device)
        return labels


def _finite(tops: Tensor) -> Tensor:
    """Largest values, 0 where they are -inf, so that they can be subtracted."""
    return torch.where(tops == -torch.inf, 0.0, tops)


def _best_before(
    scores: Float[Tensor, "b s"], block: Float[Tensor, "bt s s"]
) -> tuple[Float[Tensor, "b s"], Tensor]:
    """The best score before each label, transition included, and the label it comes from."""
    b, s = scores.shape
    tops, labels = torch.empty_like(scores), scores.new_empty((b, s), dtype=torch.int32)
    step = max(1, CHAIN_GPU_PAIRS // (b * s))
    for first in range(0, s, step):
        columns = slice(first, first + step)
        best = (scores[:, :, None] + block[:, :, columns]).max(1)
        tops[:, columns], labels[:, columns] = best.values, best.indices.int()
    return tops, labels
