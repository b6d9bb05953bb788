"""`BlockPasses`: log Z of a block graph, expected numbers of its items, gradients of its blocks.

It consists of `Sweeps`, with vectors of one kind each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
from inout.kernels.latent.cpu import passes as compiled
from inout.kernels.limits import LATENT_NOTHING, LATENT_REACH, LATENT_RULES
from inout.kernels.threads import over_batch


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
        compiled.find_block_exponents(rules.offsets, self.graph.rules, self.parameters, found)
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
        compiled.inside(self.grammar, graph.arrays, self.parameters, wanted, found)
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
        compiled.outside(
            self.grammar, self.graph.arrays, self.parameters, self.inside, weights, found
        )
        return found

    def add_ends(self, weights: Vector, outs: AnyVectors, found: Vector) -> None:
        """Adds the gradients by the vectors of roots and leaves to found [p]."""
        compiled.gradient_of_ends(self.graph.arrays, self.inside, weights, outs, found)

    def add_groups(self, order: Numbers, outs: AnyVectors, found: Vector) -> None:
        """Adds the gradients by blocks that belong to some groups to found [p]."""
        values = self.inside.values
        compiled.gradient(self.grammar, self.graph.arrays, order, values, outs, found)


@dataclass(frozen=True, eq=False)
class BlockPasses:
    """The passes over one graph under given parameters, computed lazily.

    Z of a tree or sentence is Σ over its roots of root vector · inside vector, a real number of
    either sign. Time: m³ for each group and m² for each edge, in each pass.

    The entries of a vector share one exponent. Where that may lose something that Z depends on
    (`is_wide`), the passes are made again with an exponent for each entry: nothing is lost
    unnoticed.
    """

    rules: BlockRules
    graph: BlockGraph
    parameters: Vector

    @lazy_property
    def narrow(self) -> Sweeps:
        """The passes with one exponent for each vector."""
        return Sweeps(self.rules, self.graph, self.parameters)

    @lazy_property
    def wide(self) -> Sweeps | None:
        """The passes with one for each entry, over those that need them."""
        if not self.is_wide.any():
            return None
        return Sweeps(self.rules, self.graph, self.parameters, self.is_wide)

    def parts(self, weights: Vector) -> list[tuple[Sweeps, Vector]]:
        """Passes that together are right for all trees or sentences, each with its weights."""
        if self.wide is None:
            return [(self.narrow, weights)]
        return [
            (self.narrow, np.where(self.is_wide, 0.0, weights)),
            (self.wide, np.where(self.is_wide, weights, 0.0)),
        ]

    @lazy_property
    def is_wide(self) -> NDArray[np.bool_]:
        """Whether one exponent for each vector may not be enough for a tree or sentence: [owners].

        Checked first with bounds on the outside vectors, which cost little, and then with these
        vectors themselves. Where Z seems to be 0 anything lost would show, if there are roots.
        """
        mantissas, powers = self.narrow.partitions
        graph = self.graph
        has_root = np.zeros(graph.num_owners, np.bool_)
        has_root[graph.owners] = True
        wide = has_root & (mantissas == 0)
        heights = np.full(len(graph.symbols), float(LATENT_NOTHING))
        tops = self.narrow.inside.seeds.exponents - powers[graph.owners]
        heights[graph.roots] = np.where(wide[graph.owners], LATENT_NOTHING, tops)
        worst = self._reach(heights, spread=True)
        if (worst > LATENT_REACH).any():
            outs = self.narrow.outside(np.where(wide, 0.0, 1.0)).outs
            worst = self._reach(outs.exponents.astype(np.float64), spread=False)
        return np.asarray(wide | (worst > LATENT_REACH))

    def _reach(self, heights: Vector, *, spread: bool) -> Vector:
        """The largest reach of an edge or a root of each tree or sentence: [owners]."""
        graph, exponents = self.graph, self.narrow.inside.values.exponents
        worst = np.full(graph.num_owners, -np.inf)
        np.maximum.at(worst, graph.owners, heights[graph.roots] + exponents[graph.roots])
        owners = np.zeros(len(graph.symbols), np.int32)
        owners[graph.roots] = graph.owners
        grammar = self.narrow.grammar
        compiled.reach(grammar, graph.arrays, exponents, heights, spread, owners, worst)
        return worst

    @lazy_property
    def partitions(self) -> tuple[Vector, Numbers]:
        """Z of each tree or sentence as a number from 1/2 to 1 in size, and a power of two."""
        if self.wide is None:
            return self.narrow.partitions
        (mantissas, powers), (others, more) = self.narrow.partitions, self.wide.partitions
        return np.where(self.is_wide, others, mantissas), np.where(self.is_wide, more, powers)

    @lazy_property
    def log_partitions(self) -> Vector:
        """log |Z| of each tree or sentence: -inf where Z is 0."""
        mantissas, powers = self.partitions
        logs = np.full(len(mantissas), -np.inf)
        some = mantissas != 0
        logs[some] = np.log(np.abs(mantissas[some])) + powers[some] * np.log(2.0)
        return logs

    @lazy_property
    def _expected(self) -> list[Outside]:
        parts = self.parts(np.ones(self.graph.num_owners))
        return [sweeps.outside(weights, expected=True) for sweeps, weights in parts]

    @lazy_property
    def expected_items(self) -> Vector:
        """The expected number of each item [v], which is μ(a, i, j) / p(x)."""
        return np.asarray(sum(found.items for found in self._expected))

    @lazy_property
    def expected_edges(self) -> Vector:
        """The expected number of each edge: [e]."""
        return np.asarray(sum(found.edges for found in self._expected))

    def add_gradient(self, weights: Vector, found: Vector) -> None:
        """Adds Σ over trees or sentences of weight · ∂ log |Z| / ∂ parameters to found [p]."""
        add_gradients([self], [weights], found)


def add_gradients(passes: Sequence[BlockPasses], weights: Sequence[Vector], found: Vector) -> None:
    """`add_gradient` of graphs under the same parameters, in threads; results depend on none.

    The outside passes are a thread's for each graph, then the sums are a thread's for each rule:
    so there is one `found`, and no copy of it for each thread.
    """
    if not passes:
        return
    rules = passes[0].rules
    parts = [part for one, own in zip(passes, weights, strict=True) for part in one.parts(own)]
    outsides: list[Any] = [None] * len(parts)

    def sweep(low: int, high: int) -> None:
        for x in range(low, high):
            sweeps, own = parts[x]
            outsides[x] = sweeps.outside(own).outs

    work = sum(len(one.graph.heads) for one in passes) * int(rules.sizes.max()) ** 3
    over_batch(sweep, len(parts), work)
    counts = np.zeros(len(rules.rules), np.int64)
    bounds = []
    for (sweeps, own), outs in zip(parts, outsides, strict=True):
        sweeps.add_ends(own, outs, found)
        rows = np.arange(len(rules.rules) + 1)
        bounds.append(np.searchsorted(sweeps.graph.sorted_rules, rows))
        counts += np.diff(bounds[-1])

    def part(low: int, high: int) -> None:
        # Some rules of all graphs, then the next: their blocks of `found` stay in cache.
        for first in range(low, high, LATENT_RULES):
            last = min(first + LATENT_RULES, high)
            for (sweeps, _), outs, places in zip(parts, outsides, bounds, strict=True):
                order = sweeps.graph.by_rule[places[first] : places[last]]
                sweeps.add_groups(order, outs, found)

    over_groups(part, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), work)


def over_groups(part: Callable[[int, int], None], bounds: Numbers, work: int) -> None:
    """`over_batch` over groups [g] of different sizes, which are the differences of bounds [g+1].

    Called with numbers of groups; each of the parts has about as many members.
    """
    count = len(bounds) - 1
    shares = np.arange(count + 1) * (bounds[-1] / max(count, 1))
    cuts = np.searchsorted(bounds, shares)
    if len(cuts):
        cuts[0], cuts[-1] = 0, count
    over_batch(lambda low, high: part(int(cuts[low]), int(cuts[high])), count, work)
