"""`Sweeps`: inside, outside and gradient over a block graph, with vectors of one kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inout._core.lazy import lazy_property
from inout.kernels.latent.arrays import (
    AnyVectors,
    BlockGraph,
    BlockRules,
    Blocks,
    Inside,
    Numbers,
    Outside,
    Vector,
    Vectors,
    WideVectors,
)
from inout.kernels.latent.cpu import passes
from inout.kernels.limits import LATENT_NOTHING


@dataclass(frozen=True, eq=False)
class Sweeps:
    """The passes over one graph under given parameters, computed lazily.

    The entries of a vector share an exponent. With `chosen`, each has its own: nothing underflows,
    at dozens of times the cost, and trees or sentences that are not chosen are left out.
    """

    rules: BlockRules
    graph: BlockGraph
    parameters: Vector
    chosen: NDArray[np.bool_] | None = None  # [owners]: for these, `WideVectors`

    @lazy_property
    def grammar(self) -> Blocks:
        """The rules, and the exponents of the blocks of those that the graph uses."""
        rules = self.rules
        found = np.full(len(rules.rules), LATENT_NOTHING, np.int32)
        passes.find_block_exponents(rules.offsets, self.graph.rules, self.parameters, found)
        return Blocks(rules.rules, rules.sizes, rules.offsets, found)

    @lazy_property
    def starts(self) -> Numbers:
        """Where the vectors of the items begin: [v+1]."""
        return self.rules.starts(self.graph.symbols)

    def _zeros(self, starts: Numbers) -> AnyVectors:
        values = np.zeros(int(starts[-1]))
        if self.chosen is not None:
            return WideVectors(starts, values, np.zeros(len(values), np.int64))
        return Vectors(starts, values, np.full(len(starts) - 1, LATENT_NOTHING, np.int64))

    @lazy_property
    def inside(self) -> Inside:
        """The inside vectors of items, those of the roots' parameters, and Z."""
        graph = self.graph
        wanted = np.zeros(0, np.bool_)
        if self.chosen is not None:
            wanted = np.zeros(len(graph.symbols), np.bool_)
            wanted[graph.roots[self.chosen[graph.owners]]] = True
        found = Inside(
            values=self._zeros(self.starts),
            seeds=self._zeros(self.rules.starts(graph.symbols[graph.roots])),
            totals=self._zeros(np.arange(graph.num_owners + 1)),
        )
        passes.inside(self.grammar, graph.arrays, self.parameters, wanted, found)
        return found

    @property
    def partitions(self) -> tuple[Vector, Numbers]:
        """Z of each tree or sentence: numbers from 1/2 to 1 in size, or 0, and powers of two."""
        _, mantissas, powers = self.inside.totals
        return mantissas, np.where(mantissas != 0, powers, 0)

    def outside(self, weights: Vector, *, expected: bool = False) -> Outside:
        """The outside vectors over Z, times weights [owners]; with `expected`, expected numbers.

        Where Z is 0 there is nothing to expect: all is 0.
        """
        items, edges = (len(self.starts) - 1, len(self.graph.lefts)) if expected else (0, 0)
        found = Outside(self._zeros(self.starts), np.zeros(items), np.zeros(edges))
        passes.outside(
            self.grammar, self.graph.arrays, self.parameters, self.inside, weights, found
        )
        return found

    def add_ends(self, weights: Vector, outs: AnyVectors, found: Vector) -> None:
        """Adds the gradients by the vectors of roots and leaves to found [p]."""
        passes.gradient_of_ends(self.graph.arrays, self.inside, weights, outs, found)

    def add_groups(self, order: Numbers, outs: AnyVectors, found: Vector) -> None:
        """Adds the gradients by blocks that belong to some groups to found [p]."""
        values = self.inside.values
        passes.gradient(self.grammar, self.graph.arrays, order, values, outs, found)
