"""log Z of arborescences as a torch function; the best ones and samples."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.arborescences.cpu import branching, kbest, sampling
from inout.kernels.arborescences.cpu.passes import CpuArborescences
from inout.kernels.arborescences.cpu.without_replacement import ArborescenceChoices, search
from inout.kernels.arborescences.gpu.passes import GpuArborescences
from inout.kernels.arborescences.reference import reference_log_partition
from inout.kernels.autograd import differentiable_log_partition
from inout.kernels.math.without_replacement import empty_batch, sample_leaves
from inout.kernels.shapes import Arcs, Heads, Lengths, PerElement
from inout.kernels.threads import over_batch
from inout.kernels.tiers import choose_tier


def log_partition(scores: Arcs, lengths: Lengths, single_root: bool) -> PerElement:
    """log Z over the arborescences of each element, in float64.

    Of an element without words: 0, or -inf if the root must have one dependent. O(b n³) time, O(b
    n²) memory. Arcs of a word to itself and padding are never read.
    """
    if not scores.numel():
        return reference_log_partition(scores, lengths, single_root)
    passes = GpuArborescences if choose_tier(scores.device) == "gpu" else CpuArborescences
    return differentiable_log_partition(
        lambda x, sizes: passes(x, sizes, single_root),
        lambda x, sizes: reference_log_partition(x, sizes, single_root),
        scores,
        lengths=lengths,
    )


def _arrays(scores: Tensor, lengths: Tensor) -> tuple[np.ndarray, np.ndarray]:
    given = scores.detach().double().cpu().contiguous().numpy()
    return given, lengths.cpu().contiguous().numpy()


def best_heads(scores: Arcs, lengths: Lengths, single_root: bool) -> Heads:
    """Heads of the arborescence with the highest score, the first among equals; O(b n²).

    0 is the root, j the word j; -1 in the padding, and everywhere if there is no tree. On the CPU.
    """
    given, sizes = _arrays(scores, lengths)
    b, _, n = given.shape
    heads = np.empty((b, n), np.int64)
    over_batch(
        lambda lo, hi: branching.best(given, sizes, single_root, lo, hi, heads), b, b * n * n
    )
    return torch.from_numpy(heads).to(scores.device)


def k_best_arcs(
    potentials: Float[Tensor, "b h n s"], lengths: Lengths, single_root: bool, k: int
) -> tuple[Int[Tensor, "k b n"], Int[Tensor, "k b n"], Float[Tensor, "k b"]]:
    """Heads, labels and scores of the k best arborescences with labelled arcs, best first.

    -1 and -inf where there are fewer. O(b k n³) time at worst. On the CPU.
    """
    given, sizes = _arrays(potentials, lengths)
    b, _, n, _ = given.shape
    found = np.empty((2, b, k, n), np.int64)
    scores = np.empty((b, k))
    over_batch(
        lambda lo, hi: kbest.k_best(given, sizes, single_root, lo, hi, *found, scores),
        b,
        b * k * n**3,
    )
    heads, labels = torch.from_numpy(found.swapaxes(1, 2).copy()).to(potentials.device)
    return heads, labels, torch.from_numpy(scores.T.copy()).to(potentials.device)


def sample_heads(
    scores: Arcs, lengths: Lengths, single_root: bool, count: int, seed: int
) -> Int[Tensor, "m b n"]:
    """Heads of `count` independent arborescences of each element; O(b n³ + b m n²). On the CPU.

    -1 in the padding, and everywhere if there is no tree. The seed decides, whatever the threads.
    """
    given, sizes = _arrays(scores, lengths)
    b, _, n = given.shape
    heads = np.empty((b, count, n), np.int64)
    number = np.uint64(seed)
    over_batch(
        lambda lo, hi: sampling.sample(given, sizes, single_root, number, lo, hi, heads),
        b,
        b * (n**3 + 10 * count * n * n),
    )
    return torch.from_numpy(heads.swapaxes(0, 1).copy()).to(scores.device)


def distinct_arcs(
    potentials: Float[Tensor, "b h n s"],
    scores: Arcs,
    lengths: Lengths,
    single_root: bool,
    k: int,
    seed: int,
) -> tuple[Int[Tensor, "2 k b n"], Float[Tensor, "k b"], PerElement]:
    """Heads and labels of k arborescences without replacement, their keys and the next keys.

    `scores` are those of all labels of an arc together. -1 and -inf where there are fewer. O(b k
    n⁴) at worst: an elimination for each word of each arborescence. On the CPU.

    Stanojević, "Unbiased and efficient sampling of dependency trees" (2022), section 5, where the
    chances come from inverses of matrices that are updated.
    """
    own = potentials.detach().double().cpu().contiguous().numpy()
    given, sizes = _arrays(scores, lengths)
    b, h, n, s = own.shape
    arcs, keys, thresholds = np.full((2, k, b, n), -1, np.int64), *empty_batch(k, b)
    table, ways = np.empty((h, n)), np.empty(h)
    for element, length in enumerate(sizes.tolist()):
        room = table, ways
        problem = ArborescenceChoices(own[element], given[element], length, single_root, *room)
        found = sample_leaves(search, problem, h * s, k, seed, element)
        count = len(found.keys)
        choices = found.choices.reshape(count, length)[:, ::-1]
        arcs[:, :count, element, :length] = choices // s, choices % s
        keys[:count, element], thresholds[element] = found.keys, found.threshold
    device = scores.device
    drawn, chosen, following = (torch.from_numpy(x).to(device) for x in (arcs, keys, thresholds))
    return drawn, chosen, following
