"""log Z of projective dependency trees as a torch function; best trees and samples.

Scores [b n+1 n] in float64: row 0 is the root, row h the h-th word as a head; column d - 1 is the
dependent d. -inf forbids an arc. Only rows and columns up to an element's length, at least 1, are
read, and no word's arc to itself. With `siblings` [b n n n] (head, dependent, and the dependent of
the head that comes before it, between them) trees are scored to second order.
"""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from inout.kernels.autograd import differentiable_log_partition, gradient_wanted
from inout.kernels.dependencies.cpu import passes
from inout.kernels.dependencies.cpu.passes import CpuDependencyPasses, Sentences
from inout.kernels.dependencies.gpu.passes import GpuDependencyPasses
from inout.kernels.dependencies.reference import reference_log_partition
from inout.kernels.shapes import Arcs, Heads, Lengths, PerElement, Siblings


def log_partition(
    scores: Arcs, lengths: Lengths, single_root: bool, siblings: Siblings | None = None
) -> PerElement:
    """log Z over the projective trees of each element, with one root word or with any number.

    O(b n³) time. On a GPU, scores of second order are summed by plain torch code.
    """
    if siblings is not None and scores.is_cuda:
        return reference_log_partition(scores, lengths, single_root, siblings)
    given = (scores,) if siblings is None else (scores, siblings)
    keep = gradient_wanted(*given)

    def make(*own: Tensor) -> CpuDependencyPasses | GpuDependencyPasses:
        scores, siblings, sizes = _unpacked(*own)
        if scores.is_cuda:
            return GpuDependencyPasses(scores, sizes, single_root)
        return CpuDependencyPasses(scores, siblings, sizes, single_root, keep)

    def twin(*own: Tensor) -> Tensor:
        scores, siblings, sizes = _unpacked(*own)
        return reference_log_partition(scores, sizes, single_root, siblings)

    return differentiable_log_partition(make, twin, *given, lengths=lengths)


def _unpacked(scores: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """Scores, siblings if there are any, and lengths, which come last."""
    return scores, rest[0] if len(rest) > 1 else None, rest[-1]


def best_heads(
    scores: Arcs, lengths: Lengths, single_root: bool, siblings: Siblings | None = None
) -> Heads:
    """The heads of the best tree, -1 in the padding and if there is none."""
    if scores.is_cuda and siblings is None:
        return GpuDependencyPasses(scores, lengths, single_root).best()
    return _on_cpu(scores, siblings, lengths, single_root).best().to(scores.device)


def sample_heads(
    scores: Arcs,
    lengths: Lengths,
    single_root: bool,
    count: int,
    seed: int,
    siblings: Siblings | None = None,
) -> Int[Tensor, "m b n"]:
    """The heads of `count` independent trees, -1 in the padding and if there is none."""
    if scores.is_cuda and siblings is None:
        return GpuDependencyPasses(scores, lengths, single_root).sample(count, seed)
    sentences = _on_cpu(scores, siblings, lengths, single_root)
    return sentences.sample(count, seed).to(scores.device)


def faults(heads: Int[Tensor, "m n"], lengths: Int[Tensor, " m"]) -> Int[Tensor, " m"]:
    """What is wrong with given heads: bits 1 no tree, 2 several root words, 4 crossing arcs."""
    return passes.faults(heads.cpu(), lengths.cpu()).to(heads.device)


def _on_cpu(
    scores: Arcs, siblings: Siblings | None, lengths: Lengths, single_root: bool
) -> Sentences:
    second = None if siblings is None else siblings.cpu()
    return Sentences(scores.cpu(), second, lengths.cpu(), single_root)
