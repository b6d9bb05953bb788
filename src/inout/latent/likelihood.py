"""`TreeLikelihood`: log p of trees and sentences as a function of a latent grammar's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import as_log_weights
from inout.kernels.autograd import differentiable_log_partition, tangents_by
from inout.kernels.latent.arrays import BlockGraph, BlockRules
from inout.kernels.latent.op import BlockPasses, add_gradients
from inout.kernels.latent.reference import log_partitions as reference_log_partitions
from inout.kernels.threads import GROUPS, over_batch
from inout.latent.graphs import block_rules, graph_of_trees, joined
from inout.latent.layout import Layout, Vector
from inout.latent.trees import SkeletalTrees

SMALLEST = 1e-290
"""Parameters below this count as zero: derivatives by them, which are counts divided by them, may
be out of range."""


# A part of the trees has at least this many nodes: below, a pass takes no longer than its call.
_NODES = 500


class TreeLikelihood:
    """The log-probability of each of many trees, summed over the latent values of all nodes.

    Behind the trees come sentences, given by the graphs of their charts: these are summed over
    all of their trees as well. Called with log-weights [p] it gives log p [t], −inf for what has
    no probability; weights below 1e-290 count as zero, unlike in `LPCFG.tree_log_probs`. Its
    gradient is expected counts, by one inside and one outside pass. O(nodes · m³) time; a vector
    of m numbers for each node in memory. Second and higher derivatives are those of the reference
    in torch, which is slow.

    The trees are cut into a fixed number of parts, each one thread's, so results do not depend on
    the number of threads.
    """

    def __init__(
        self, layout: Layout, trees: SkeletalTrees, charts: Sequence[BlockGraph] = ()
    ) -> None:
        self.layout = layout
        self.rules: BlockRules = block_rules(layout)
        self._cuts = _cuts(trees.offsets)
        self.graphs = [
            graph_of_trees(layout, trees.select(np.arange(low, high)))
            for low, high in pairwise(self._cuts)
        ]
        if charts:
            edges = np.cumsum([0, *(len(chart.lefts) for chart in charts)])
            cuts = _cuts(edges)
            self.graphs += [joined(charts[low:high]) for low, high in pairwise(cuts)]
            self._cuts += [len(trees) + cut for cut in cuts[1:]]

    def __call__(self, log_weights: Float[Tensor, " p"]) -> Float[Tensor, " t"]:
        log_weights = as_log_weights("log_weights", log_weights, self.layout.size).cpu().double()
        passes = _Derivatives(self, log_weights)
        return differentiable_log_partition(lambda *_: passes, passes.twin, log_weights)

    def passes(self, parameters: Vector) -> list[BlockPasses]:
        """The passes of each part, their inside vectors made, under any real parameters [p]."""
        found = [BlockPasses(self.rules, graph, parameters) for graph in self.graphs]

        def part(low: int, high: int) -> None:
            for one in found[low:high]:
                one.log_partitions  # noqa: B018  # made and kept

        over_batch(part, len(found), self._work)
        return found

    def gradient(self, passes: list[BlockPasses], factors: Float[np.ndarray, " t"]) -> Vector:
        """Σ factor · ∂ log |p| / ∂ parameters over all trees: [p]."""
        found = np.zeros(self.layout.size)
        parts = [factors[low:high] for low, high in pairwise(self._cuts)]
        add_gradients(passes, parts, found)
        return found

    @cached_property
    def _work(self) -> int:
        """The approximate number of elementary operations in a pass."""
        return sum(len(graph.heads) for graph in self.graphs) * int(self.rules.sizes.max()) ** 3


def _cuts(offsets: NDArray[np.int64]) -> list[int]:
    """Bounds of the parts, which have about as many nodes each; few nodes are one part."""
    size = len(offsets) - 1
    count = max(min(size, int(offsets[-1]) // _NODES, GROUPS), 1)
    nodes = offsets[-1] * np.arange(1, count) // count
    return [0, *np.searchsorted(offsets, nodes).tolist(), size]


def _exp(log_weights: Vector) -> Vector:
    """The parameters, in threads."""
    found = np.empty(len(log_weights))

    def part(low: int, high: int) -> None:
        own = np.exp(log_weights[low:high], out=found[low:high])
        own[own < SMALLEST] = 0.0

    over_batch(part, len(found), len(found))
    return found


def _multiply(gradient: Vector, parameters: Vector) -> None:
    """gradient · parameters in place of the gradient; 0 where a parameter is zero."""

    def part(low: int, high: int) -> None:
        own, factors = gradient[low:high], parameters[low:high]
        own[factors == 0] = 0.0  # there it may be out of range
        own *= factors

    over_batch(part, len(gradient), len(gradient))


class _Derivatives:
    """The passes at one setting of the log-weights, for `differentiable_log_partition`."""

    def __init__(self, likelihood: TreeLikelihood, log_weights: Tensor) -> None:
        self.likelihood = likelihood
        self.log_weights = log_weights.detach()
        self.passes = likelihood.passes(_exp(self.log_weights.numpy()))

    @property
    def log_z(self) -> Tensor:
        found = [one.log_partitions for one in self.passes]
        return torch.from_numpy(np.concatenate([np.empty(0), *found]))

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        factors = weights.detach().numpy().astype(np.float64)
        found = self.likelihood.gradient(self.passes, factors)
        _multiply(found, self.passes[0].parameters)
        return (torch.from_numpy(found),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tangents_by(self.twin, weights, (self.log_weights,), directions)

    def twin(self, log_weights: Tensor) -> Tensor:
        """log p by code that torch can differentiate to any order."""
        rules, parameters = self.likelihood.rules, log_weights.exp()
        found = [
            reference_log_partitions(rules, graph, parameters) for graph in self.likelihood.graphs
        ]
        return torch.cat([log_weights.new_empty(0), *found])
