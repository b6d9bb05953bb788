"""log Z of semi-Markov chains as a torch function, differentiable to any order; decoding."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout.kernels.autograd import differentiable_log_partition, gradient_wanted
from inout.kernels.segments.cpu import decode as decoding
from inout.kernels.segments.cpu.passes import CpuPasses, arrays
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


def log_partition(potentials: Segments, lengths: Lengths) -> PerElement:
    """log Z of each element; O(b n w s²) time, O(b n (s + w)) memory besides the gradient."""
    return differentiable_log_partition(
        passes_for(potentials, lengths, keep=gradient_wanted(potentials)),
        lambda x: reference_log_partition(x, lengths),
        potentials,
    )


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
