"""log Z of trees with one score per span, as a torch function; best trees and samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from inout.kernels.autograd import differentiable_log_partition
from inout.kernels.shapes import LabelledSpans, Lengths, PerElement, Spans
from inout.kernels.spans.cpu import passes, scaled
from inout.kernels.spans.cpu.passes import CpuTreePasses
from inout.kernels.spans.gpu.passes import GpuTreePasses
from inout.kernels.spans.reference import reference_tree_log_partition
from inout.kernels.tiers import choose_tier


def passes_for(scores: Tensor, lengths: Tensor) -> CpuTreePasses | GpuTreePasses:
    """The passes for these scores."""
    on_cpu = choose_tier(scores.device) == "cpu"
    return (CpuTreePasses if on_cpu else GpuTreePasses)(scores, lengths)


def tree_log_partition(scores: Spans, lengths: Lengths) -> PerElement:
    """log Z over the binary trees of each element; lengths at least 1.

    O(b n³) time, O(b n²) memory. Only scores with i <= j < length are read.
    """
    return differentiable_log_partition(
        passes_for, reference_tree_log_partition, scores, lengths=lengths
    )


def best_tree(scores: Spans, lengths: Lengths) -> Bool[Tensor, "b n n"]:
    """The spans of the tree with the highest score (none if no tree is possible); O(b n³)."""
    if choose_tier(scores.device) == "cpu":
        return passes.best_tree(scores, lengths)  # without the inside pass
    return GpuTreePasses(scores, lengths).best()


def sample_trees(
    scores: Spans, potentials: LabelledSpans, lengths: Lengths, count: int, seed: int
) -> Int[Tensor, "m b n n"]:
    """`count` labelled trees for each element: labels of spans, -1 elsewhere.

    `scores` are the potentials summed over the labels in log space.
    """
    return passes_for(scores, lengths).sample(potentials, count, seed)


def splits_of(
    present: Bool[Tensor, "m n n"], lengths: Int[Tensor, " m"]
) -> tuple[Int[Tensor, "m n n"], Bool[Tensor, " m"]]:
    """Where each present span is split, -1 elsewhere, and whether each element is a binary tree."""
    splits, good = _Splits.apply(present, lengths)  # type: ignore[no-untyped-call]
    return splits, good


class _Splits(torch.autograd.Function):
    """`splits_of`, also for torch.vmap."""

    @staticmethod
    def forward(present: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        given, sizes = present.cpu().contiguous().numpy(), lengths.cpu().contiguous().numpy()
        splits, good = np.full(given.shape, -1, np.int64), np.empty(len(given), np.bool_)
        for m in range(len(given)):
            good[m] = scaled.check_tree(given[m], sizes[m], splits[m])
        device = present.device
        return torch.from_numpy(splits).to(device), torch.from_numpy(good).to(device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> Any:
        whole = [
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(tensors, in_dims, strict=True)
        ]
        found = splits_of(whole[0].flatten(0, 1), whole[1].flatten(0, 1))
        return tuple(x.reshape(info.batch_size, -1, *x.shape[1:]) for x in found), (0, 0)
