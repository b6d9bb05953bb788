"""log Z of linear chains as a torch function, differentiable to any order; best paths, samples."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.kernels.autograd import differentiable_log_partition, gradient_wanted
from inout.kernels.chain.cpu import decode as decoding
from inout.kernels.chain.cpu import logspace
from inout.kernels.chain.cpu.passes import CpuPasses
from inout.kernels.chain.cpu.recomputed import RecomputingPasses
from inout.kernels.chain.cpu.without_replacement import ChainChoices, search
from inout.kernels.chain.gpu.matrix import MatrixPasses
from inout.kernels.chain.gpu.passes import GpuPasses
from inout.kernels.chain.reference import reference_log_partition
from inout.kernels.limits import CHAIN_GPU_LABELS
from inout.kernels.math.without_replacement import empty_batch, sample_leaves
from inout.kernels.recomputing import Memory, refuse_less
from inout.kernels.shapes import Emissions, Labels, Lengths, PerElement, Transitions
from inout.kernels.threads import over_batch
from inout.kernels.tiers import choose_tier

ChainPasses = CpuPasses | GpuPasses | MatrixPasses


def passes_for(
    emissions: Tensor, transitions: Tensor, lengths: Tensor, *, keep: bool = True
) -> ChainPasses:
    """The passes for these potentials; `keep` what derivatives need."""
    if choose_tier(emissions.device) == "cpu":
        return CpuPasses(emissions, transitions, lengths, keep=keep)
    few = emissions.shape[2] <= CHAIN_GPU_LABELS
    return (GpuPasses if few else MatrixPasses)(emissions, transitions, lengths, keep=keep)


def recomputing(
    emissions: Tensor, transitions: Tensor, lengths: Tensor, memory: Memory
) -> RecomputingPasses | None:
    """Passes that keep the alphas of √n positions and compute the others again; or None.

    They are needed if `memory` is "sqrt", or fewer bytes than the usual ones take besides the
    potentials and their gradients.
    """
    b, n, s = emissions.shape
    row = b * s * emissions.element_size()
    if memory is None or (isinstance(memory, int) and 4 * n * row <= memory):
        return None
    if emissions.is_cuda:
        raise ArgumentError("memory", "can be limited on the CPU only")
    every = math.isqrt(n - 1) + 1 if n else 1
    least = (3 * -(-n // every) + 6 * every) * row
    refuse_less(memory, least)
    return RecomputingPasses(emissions, transitions, lengths, every=every)


def log_partition(
    emissions: Emissions, transitions: Transitions, lengths: Lengths, memory: Memory = None
) -> PerElement:
    """log Z of each chain; bt is 1 or b, nt is 1 (stationary) or n - 1. 0 for the empty chain.

    O(b n s²) time; O(b n s) memory besides the potentials and their gradients, or O(b n) without
    gradients. `memory` limits it, see `recomputing`. NaN if an element has NaN or +inf among its
    potentials.
    """
    keep = gradient_wanted(emissions, transitions)

    def make(e: Tensor, t: Tensor, sizes: Tensor) -> ChainPasses | RecomputingPasses:
        passes = recomputing(e, t, sizes, memory) if keep else None
        return passes or passes_for(e, t, sizes, keep=keep)

    return differentiable_log_partition(
        make, reference_log_partition, emissions, transitions, lengths=lengths
    )


def best_labels(emissions: Emissions, transitions: Transitions, lengths: Lengths) -> Labels:
    """The labels with the highest score (Viterbi); O(b n s²)."""
    return passes_for(emissions, transitions, lengths).best()


def k_best_labels(
    emissions: Emissions, transitions: Transitions, lengths: Lengths, k: int
) -> tuple[Int[Tensor, "k b n"], Float[Tensor, "k b"]]:
    """The k labellings with the highest scores, and their scores (-inf if there are fewer)."""
    given = [x.detach().cpu().contiguous().numpy() for x in (emissions, transitions, lengths)]
    b, n, s = emissions.shape
    labels, scores = np.empty((k, b, n), np.int64), np.empty((k, b))

    def part(lo: int, hi: int) -> None:
        decoding.kbest(given[0], given[1], given[2], lo, hi, k, labels, scores)

    over_batch(part, b, k * b * n * s * s)
    device = emissions.device
    return torch.from_numpy(labels).to(device), torch.from_numpy(scores).to(device)


def sample_labels(
    emissions: Emissions, transitions: Transitions, lengths: Lengths, count: int, seed: int
) -> Int[Tensor, "m b n"]:
    """`count` independent labellings of each chain; -1 in all places where none is possible."""
    return passes_for(emissions, transitions, lengths).sample(count, seed)


def distinct_labels(
    emissions: Emissions, transitions: Transitions, lengths: Lengths, k: int, seed: int
) -> tuple[Int[Tensor, "k b n"], Float[Tensor, "k b"], PerElement]:
    """k labellings without replacement, their keys and the next keys; on the CPU.

    0 and -inf where there are fewer. O(b n s² + b k n (s + log k)): messages in log space, so that
    no labelling is lost however improbable it is.
    """
    given, pairs = (x.detach().double().cpu() for x in (emissions, transitions))
    chains = CpuPasses(given, pairs, lengths.cpu()).chains
    b, n, s = emissions.shape
    labels, keys, thresholds = np.zeros((k, b, n), np.int64), *empty_batch(k, b)
    for element, length in enumerate(lengths.tolist()):
        _, alphas = logspace.forward(chains, element)
        problem = ChainChoices(alphas, chains.transitions, element)
        found = sample_leaves(search, problem, s, k, seed, element)
        count = len(found.keys)
        labels[:count, element, :length] = found.choices.reshape(count, length)[:, ::-1]
        keys[:count, element], thresholds[element] = found.keys, found.threshold
    device = emissions.device
    drawn, own, following = (torch.from_numpy(x).to(device) for x in (labels, keys, thresholds))
    return drawn, own, following
