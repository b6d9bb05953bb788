"""log Z of semi-Markov chains as a torch function, differentiable to any order; decoding."""

from __future__ import annotations

from math import isqrt

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.kernels.autograd import differentiable_log_partition, gradient_wanted
from inout.kernels.recomputing import Memory, refuse_less
from inout.kernels.segments.cpu import decode as decoding
from inout.kernels.segments.cpu.passes import CpuPasses, arrays
from inout.kernels.segments.cpu.recomputed import RecomputingPasses
from inout.kernels.segments.gpu.passes import GpuPasses
from inout.kernels.segments.reference import reference_log_partition
from inout.kernels.shapes import Labels, Lengths, PerElement, Segments
from inout.kernels.threads import over_batch
from inout.kernels.tiers import choose_tier


def passes_for(potentials: Tensor, lengths: Tensor, *, keep: bool = True) -> CpuPasses | GpuPasses:
    """The passes for these potentials; `keep` what derivatives need."""
    if choose_tier(potentials.device) == "cpu":
        return CpuPasses(potentials, lengths)
    return GpuPasses(potentials, lengths, keep=keep)


def recomputing(potentials: Tensor, lengths: Tensor, memory: Memory) -> RecomputingPasses | None:
    """Passes that keep what √(n w) positions need and make the others again; or None.

    They are needed if `memory` is "sqrt", or fewer bytes than the usual ones take besides the
    potentials and their gradient.
    """
    b, n, w, s, _ = potentials.shape
    size = potentials.element_size()
    row = size * (2 * s + 2 * w + 1) + 8
    if memory is None or (isinstance(memory, int) and b * n * row <= memory):
        return None
    if potentials.is_cuda:
        raise ArgumentError("memory", "can be limited on the CPU only")
    every = isqrt(max(n * w - 1, 0)) + 1
    kept = b * w * -(-n // every) * (size * s + 8)
    refuse_less(memory, kept + min(b, torch.get_num_threads()) * (w + every) * row)
    return RecomputingPasses(potentials, lengths, every=every)


def log_partition(potentials: Segments, lengths: Lengths, memory: Memory = None) -> PerElement:
    """log Z of each element; O(b n w s²) time, O(b n (s + w)) memory besides the gradient.

    `memory` limits that, see `recomputing`.
    """
    keep = gradient_wanted(potentials)

    def make(given: Tensor, sizes: Tensor) -> CpuPasses | GpuPasses | RecomputingPasses:
        passes = recomputing(given, sizes, memory) if keep else None
        return passes or passes_for(given, sizes, keep=keep)

    return differentiable_log_partition(make, reference_log_partition, potentials, lengths=lengths)


def best_segments(potentials: Segments, lengths: Lengths) -> Labels:
    """The segmentation with the highest score (Viterbi); O(b n w s²)."""
    return passes_for(potentials, lengths).best()


def k_best_segments(
    potentials: Segments, lengths: Lengths, k: int
) -> tuple[Int[Tensor, "k b n"], Float[Tensor, "k b"]]:
    """The k segmentations with the highest scores, and their scores (-inf if there are fewer)."""
    given, sizes = arrays(potentials.cpu(), lengths.cpu())
    b, n = potentials.shape[:2]
    labels, scores = np.empty((k, b, n), np.int64), np.empty((k, b))

    def part(lo: int, hi: int) -> None:
        decoding.kbest(given, sizes, lo, hi, k, labels, scores)

    over_batch(part, b, k * potentials.numel())
    device = potentials.device
    return torch.from_numpy(labels).to(device), torch.from_numpy(scores).to(device)


def sample_segments(
    potentials: Segments, lengths: Lengths, count: int, seed: int
) -> tuple[Int[Tensor, "m b n"], Bool[Tensor, " b"]]:
    """`count` independent segmentations of each element, and which elements have any."""
    return passes_for(potentials, lengths).sample(count, seed)
