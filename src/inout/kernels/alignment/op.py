"""log Z over the paths of a lattice as a torch function, differentiable; best paths, samples.

Planes [b rows columns] have size 1 in dimensions they do not depend on. Best paths and samples of
tensors on a GPU are found on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout.kernels.alignment.cpu.passes import CpuPathPasses, CpuPaths
from inout.kernels.alignment.gpu.passes import GpuCTCPasses, GpuPathPasses
from inout.kernels.alignment.lattice import Lattice
from inout.kernels.alignment.reference import reference_log_partition
from inout.kernels.autograd import differentiable_log_partition, gradient_wanted
from inout.kernels.tiers import choose_tier

Planes = Sequence[Float[Tensor, "b _ _"]]
Sizes = Int[Tensor, "b 2"]
Paths = Int[Tensor, "b p"]


def log_partition(lattice: Lattice, planes: Planes, sizes: Sizes) -> Float[Tensor, " b"]:
    """log Z of each element; O(b n m) time, and memory if there will be gradients."""
    keep = gradient_wanted(*planes)

    def make(*given: Tensor) -> CpuPathPasses | GpuPathPasses:
        return _passes(lattice, given[:-1], given[-1], keep)

    def twin(*given: Tensor) -> Tensor:
        return reference_log_partition(lattice, given[:-1], given[-1])

    return differentiable_log_partition(make, twin, *planes, lengths=sizes)


def _passes(
    lattice: Lattice, planes: Planes, sizes: Sizes, wanted: bool
) -> CpuPathPasses | GpuPathPasses:
    """The passes for planes where they are."""
    if choose_tier(planes[0].device) == "cpu":
        return CpuPathPasses(lattice, planes, sizes, wanted=wanted)
    return GpuPathPasses(lattice, planes, sizes, wanted=wanted)


def ctc_log_partition(
    lattice: Lattice,
    scores: Float[Tensor, "b t v"],
    sizes_and_targets: Int[Tensor, "b _"],
    blank: int,
    planes_of: Callable[[Tensor, Tensor], Planes],
) -> Float[Tensor, " b"]:
    """log Z of CTC on a GPU, without planes: frames, labels and targets [b 2+u] of each element.

    `planes_of(scores, targets)` are those of the lattice.
    """
    keep = gradient_wanted(scores)

    def make(own: Tensor, given: Tensor) -> GpuCTCPasses:
        return GpuCTCPasses(lattice, own, given, blank, planes_of, wanted=keep)

    def twin(own: Tensor, given: Tensor) -> Tensor:
        return reference_log_partition(lattice, planes_of(own, given[:, 2:]), given[:, :2])

    return differentiable_log_partition(make, twin, scores, lengths=sizes_and_targets)


def best_paths(lattice: Lattice, planes: Planes, sizes: Sizes) -> Paths:
    """The moves of the best path of each element; -1 after the last, and if there is none."""
    return CpuPaths(lattice, _on_cpu(planes), sizes.cpu()).best().to(sizes.device)


def k_best_paths(
    lattice: Lattice, planes: Planes, sizes: Sizes, k: int
) -> tuple[Int[Tensor, "k b p"], Float[Tensor, "k b"]]:
    """The k best paths and their scores, -1 and -inf if there are fewer."""
    paths, scores = CpuPaths(lattice, _on_cpu(planes), sizes.cpu()).k_best(k)
    return paths.to(sizes.device), scores.to(sizes.device)


def sample_paths(
    lattice: Lattice, planes: Planes, sizes: Sizes, count: int, seed: int
) -> tuple[Int[Tensor, "m b p"], Bool[Tensor, " b"]]:
    """`count` independent paths of each element, and which elements have any."""
    passes = CpuPathPasses(lattice, _on_cpu(planes), sizes.cpu(), wanted=True)
    paths, some = passes.sample(count, seed)
    return paths.to(sizes.device), some.to(sizes.device)


def shares(
    lattice: Lattice, planes: Planes, sizes: Sizes
) -> tuple[Float[Tensor, "b m r c"], Float[Tensor, "b l"]]:
    """The chance of each move given the node (i, j) it leads to, and those of the last layers."""
    passes = CpuPathPasses(lattice, _on_cpu(planes), sizes.cpu(), wanted=True)
    found, ends = passes.shares_of_nodes()
    return found.to(sizes.device), ends.to(sizes.device)


def expected_uses(lattice: Lattice, planes: Planes, sizes: Sizes) -> tuple[Tensor, ...]:
    """Expected number of uses of each entry of the planes."""
    passes = _passes(lattice, [x.detach() for x in planes], sizes, True)
    return passes.gradients(planes[0].new_ones(len(sizes)))


def _on_cpu(planes: Planes) -> list[Tensor]:
    return [x.detach().cpu() for x in planes]
