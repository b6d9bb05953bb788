"""`BlockPasses`: log Z of a block graph, expected numbers of its items, gradients of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.lazy import lazy_property
from inout.kernels.latent.arrays import BlockGraph, BlockRules, Blocks
from inout.kernels.latent.cpu import blocks
from inout.kernels.latent.powers import ldexp
from inout.kernels.latent.wide import WidePasses
from inout.kernels.threads import over_batch

Vector = NDArray[np.float64]
Numbers = NDArray[np.int64]

_RULES = 32  # whose gradients are made together


# Entries below 2^-1022 of the largest of their vector are lost, and with them what they would have
# brought. That may show where block · outside · left · right of an edge, by their largest entries,
# are this many powers of two above Z; the rest is for sums over latent values and edges.
LARGEST_REACH = 900


@dataclass(frozen=True, eq=False)
class BlockPasses:
    """The passes over one graph under given parameters, each made when first asked for.

    Z of a tree or sentence is Σ over its roots of root vector · inside vector, a real number of
    either sign. Time: m³ for each group and m² for each edge, in each pass.

    The entries of a vector share one exponent. Where that may lose something that Z depends on
    (`is_wide`), the passes are made again with an exponent for each entry, at some sixty
    times the cost: nothing is lost unnoticed.
    """

    rules: BlockRules
    graph: BlockGraph
    parameters: Vector

    @lazy_property
    def _grammar(self) -> Blocks:
        rules = self.rules
        return Blocks(rules.rules, rules.sizes, rules.offsets, self.block_exponents)

    @lazy_property
    def block_exponents(self) -> NDArray[np.int32]:
        """The exponent of the largest entry of the block of each rule that the graph uses: [r]."""
        found = np.full(len(self.rules.rules), blocks.NOTHING, np.int32)
        blocks.find_block_exponents(self.rules.offsets, self.graph.rules, self.parameters, found)
        return found

    @lazy_property
    def starts(self) -> Numbers:
        """Where the vectors of the items begin: [v+1]."""
        return self.rules.starts(self.graph)

    @lazy_property
    def inside(self) -> tuple[Vector, NDArray[np.int32]]:
        """The inside vectors of all items, each up to a power of two, and these powers: [v]."""
        values, exponents = self._new_vectors()
        blocks.inside(
            self._grammar, self.graph.edges, self.parameters, self.graph.leaves,
            self.graph.leaf_offsets, self.starts, values, exponents,
        )  # fmt: skip
        return values, exponents

    def _new_vectors(self) -> tuple[Vector, NDArray[np.int32]]:
        size = len(self.graph.symbols)
        return np.zeros(int(self.starts[-1])), np.full(size, blocks.NOTHING, np.int32)

    @lazy_property
    def partitions(self) -> tuple[Vector, Numbers]:
        """Z of each tree or sentence as a number from 1/2 to 1 in size, and a power of two."""
        narrow, wide = self._narrow_partitions, self._wide
        if wide is None:
            return narrow
        mantissas, powers = wide.partitions
        chosen = self.is_wide
        return np.where(chosen, mantissas, narrow[0]), np.where(chosen, powers, narrow[1])

    @lazy_property
    def _root_seeds(self) -> tuple[Vector, Numbers]:
        """The root vectors, each up to a power of two, in one row; and these powers [z]."""
        _, places, firsts = self._root_entries
        if not len(firsts):
            return np.zeros(0), np.zeros(0, np.int64)
        own = self.parameters[places]
        powers = np.frexp(np.maximum.reduceat(np.abs(own), firsts))[1].astype(np.int64)
        sizes = np.diff(self.starts)[self.graph.roots]
        return ldexp(own, np.repeat(-powers, sizes)), powers

    @lazy_property
    def _narrow_partitions(self) -> tuple[Vector, Numbers]:
        """Z where nothing is lost."""
        graph, (values, exponents) = self.graph, self.inside
        sources, _, firsts = self._root_entries
        own, own_powers = self._root_seeds
        masses = np.zeros(0)
        if len(firsts):
            masses = np.add.reduceat(values[sources] * own, firsts)
        powers = np.where(masses != 0, exponents[graph.roots] + own_powers, blocks.NOTHING)
        largest = np.full(graph.num_owners, blocks.NOTHING, np.int64)
        np.maximum.at(largest, graph.owners, powers)
        shifts = np.maximum(powers - largest[graph.owners], -1080)
        totals = np.bincount(graph.owners, ldexp(masses, shifts), minlength=graph.num_owners)
        mantissas, more = np.frexp(totals)
        return mantissas, np.where(mantissas != 0, largest + more, 0)

    @lazy_property
    def is_wide(self) -> NDArray[np.bool_]:
        """Whether one exponent for each vector may not be enough for a tree or sentence: [owners].

        Looked at first with bounds on the outside vectors, which cost little, and then with these
        vectors themselves. Where Z seems to be 0 anything lost would show, if there are roots.
        """
        mantissas, powers = self._narrow_partitions
        graph = self.graph
        has_root = np.zeros(graph.num_owners, np.bool_)
        has_root[graph.owners] = True
        wide = has_root & (mantissas == 0)
        heights = np.full(len(graph.symbols), float(blocks.NOTHING))
        tops = self._root_seeds[1] - powers[graph.owners]
        heights[graph.roots] = np.where(wide[graph.owners], blocks.NOTHING, tops)
        worst = self._reach(heights, spread=True)
        if (worst > LARGEST_REACH).any():
            outs = self._sweep(np.where(wide, 0.0, 1.0), shares=False)
            worst = self._reach(outs[1].astype(np.float64), spread=False)
        return np.asarray(wide | (worst > LARGEST_REACH))

    def _reach(self, heights: Vector, *, spread: bool) -> Vector:
        """The largest reach of an edge or a root of each tree or sentence: [owners]."""
        graph, (_, exponents) = self.graph, self.inside
        worst = np.full(graph.num_owners, -np.inf)
        np.maximum.at(worst, graph.owners, heights[graph.roots] + exponents[graph.roots])
        owners = np.zeros(len(graph.symbols), np.int32)
        owners[graph.roots] = graph.owners
        blocks.reach(self._grammar, self.graph.edges, exponents, heights, spread, owners, worst)
        return worst

    @lazy_property
    def _wide(self) -> WidePasses | None:
        """The passes over those that need them."""
        if not self.is_wide.any():
            return None
        return WidePasses(self.rules, self.graph, self.parameters, self.is_wide)

    @lazy_property
    def log_partitions(self) -> Vector:
        """log |Z| of each tree or sentence: -inf where Z is 0."""
        mantissas, powers = self.partitions
        logs = np.full(len(mantissas), -np.inf)
        some = mantissas != 0
        logs[some] = np.log(np.abs(mantissas[some])) + powers[some] * np.log(2.0)
        return logs

    @lazy_property
    def _outside(self) -> tuple[Vector, NDArray[np.int32], Vector]:
        return self.outside(np.ones(self.graph.num_owners), shares=True)

    def outside(
        self, weights: Vector, *, shares: bool = False
    ) -> tuple[Vector, NDArray[np.int32], Vector]:
        """The outside vectors over Z, times the weights [owners], and the expected edges [e].

        Where Z is 0 there is nothing to expect: all is 0. So it is here where Z `is_wide`.
        """
        return self._sweep(np.where(self.is_wide, 0.0, weights), shares=shares)

    def _sweep(self, weights: Vector, *, shares: bool) -> tuple[Vector, NDArray[np.int32], Vector]:
        graph, (values, exponents) = self.graph, self.inside
        outs, out_exponents = self._new_vectors()
        mantissas, powers = self._narrow_partitions
        some = (mantissas != 0) & (weights != 0)
        factors = np.divide(weights, mantissas, out=np.zeros(len(weights)), where=some)
        own, own_powers = self._root_seeds
        sizes = np.diff(self.starts)[graph.roots]
        outs[self._root_entries[0]] = own * np.repeat(factors[graph.owners], sizes)
        out_exponents[graph.roots] = np.where(
            some[graph.owners], own_powers - powers[graph.owners], blocks.NOTHING
        )
        found = np.zeros(len(graph.lefts) if shares else 0)
        blocks.outside(
            self._grammar, self.graph.edges, self.parameters, self.starts, values, exponents, outs,
            out_exponents, found,
        )  # fmt: skip
        return outs, out_exponents, found

    @lazy_property
    def expected_items(self) -> Vector:
        """The expected number of each item [v], which is μ(a, i, j) / p(x)."""
        values, exponents = self.inside
        outs, out_exponents, _ = self._outside
        if not len(exponents):
            return np.zeros(0)
        masses = np.add.reduceat(values * outs, self.starts[:-1])
        here = (exponents > blocks.NOTHING) & (out_exponents > blocks.NOTHING)
        powers = np.where(here, exponents.astype(np.int64) + out_exponents, 0)
        found = np.where(here, ldexp(masses, powers), 0.0)
        return found if self._wide is None else found + self._wide.expected_items

    @lazy_property
    def expected_edges(self) -> Vector:
        """The expected number of each edge: [e]."""
        found = self._outside[2]
        return found if self._wide is None else found + self._wide.expected_edges

    def add_gradient(self, weights: Vector, found: Vector) -> None:
        """Adds Σ over trees or sentences of weight · ∂ log |Z| / ∂ parameters to found [p]."""
        add_gradients([self], [weights], found)

    def _add_roots(self, weights: Vector, found: Vector) -> None:
        """Adds what belongs to root vectors, and to all that `is_wide`."""
        graph, (values, exponents) = self.graph, self.inside
        if self._wide is not None:
            self._wide.add_gradient(weights, found)
        mantissas, powers = self.partitions
        owners = graph.owners
        here = (mantissas[owners] != 0) & (exponents[graph.roots] != blocks.NOTHING)
        here &= ~self.is_wide[owners]
        shares = np.zeros(len(owners))
        shifts = exponents[graph.roots[here]] - powers[owners[here]]
        shares[here] = weights[owners[here]] / mantissas[owners[here]]
        powers_of_roots = np.zeros(len(owners), np.int64)
        powers_of_roots[here] = shifts
        sources, places, _ = self._root_entries
        sizes = np.diff(self.starts)[graph.roots]
        masses = values[sources] * np.repeat(shares, sizes)
        np.add.at(found, places, ldexp(masses, np.repeat(powers_of_roots, sizes)))

    @lazy_property
    def _root_entries(self) -> tuple[Numbers, Numbers, Numbers]:
        """Where the entries of the roots are among the values and among the parameters, [z m] in
        one row, and where each root begins in it."""
        graph = self.graph
        sizes = np.diff(self.starts)[graph.roots]
        firsts = np.cumsum(sizes) - sizes
        inner = np.arange(int(sizes.sum())) - np.repeat(firsts, sizes)
        sources = np.repeat(self.starts[graph.roots], sizes) + inner
        return sources, np.repeat(graph.root_offsets, sizes) + inner, firsts


def add_gradients(passes: Sequence[BlockPasses], weights: Sequence[Vector], found: Vector) -> None:
    """`add_gradient` of graphs under the same parameters, in threads; results depend on none.

    The outside passes are a thread's for each graph, then the sums are a thread's for each rule:
    so there is one `found`, and no copy of it for each thread.
    """
    if not passes:
        return
    rules = passes[0].rules
    cube = int(rules.sizes.max()) ** 3
    outsides: list[Any] = [None] * len(passes)

    def sweep(low: int, high: int) -> None:
        for x in range(low, high):
            outsides[x] = passes[x].outside(weights[x])[:2]

    groups = sum(len(one.graph.heads) for one in passes)
    over_batch(sweep, len(passes), groups * cube)
    counts = np.zeros(len(rules.rules), np.int64)
    bounds = []
    for one, own, (outs, exponents) in zip(passes, weights, outsides, strict=True):
        one._add_roots(own, found)
        graph = one.graph
        blocks.leaf_gradient(graph.leaves, graph.leaf_offsets, one.starts, outs, exponents, found)
        bounds.append(np.searchsorted(graph.sorted_rules, np.arange(len(rules.rules) + 1)))
        counts += np.diff(bounds[-1])

    def part(low: int, high: int) -> None:
        # Some rules of all graphs, then the next: their blocks of `found` stay in cache.
        for first in range(low, high, _RULES):
            last = min(first + _RULES, high)
            for one, (outs, exponents), places in zip(passes, outsides, bounds, strict=True):
                blocks.gradient(
                    one._grammar, one.graph.edges, one.graph.by_rule[places[first] : places[last]],
                    one.starts, *one.inside, outs, exponents, found,
                )  # fmt: skip

    over_groups(part, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), groups * cube)


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
