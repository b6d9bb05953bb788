"""`WidePasses`: the passes where entries of a vector are too far apart for one exponent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inout._core.lazy import lazy_property
from inout.kernels.latent.arrays import BlockGraph, BlockRules, Blocks
from inout.kernels.latent.cpu import wide
from inout.kernels.latent.powers import ldexp

Vector = NDArray[np.float64]
Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Scaled = tuple[Vector, Numbers]  # numbers from 1/2 to 1 in size, or 0, and powers of two


@dataclass(frozen=True, eq=False)
class WidePasses:
    """As `BlockPasses`, for some of the trees or sentences, and some sixty times slower."""

    rules: BlockRules
    graph: BlockGraph
    parameters: Vector
    chosen: Mask  # [owners]

    @lazy_property
    def _grammar(self) -> Blocks:
        unused = np.zeros(0, np.int32)  # entries have exponents of their own
        return Blocks(self.rules.rules, self.rules.sizes, self.rules.offsets, unused)

    @lazy_property
    def _starts(self) -> Numbers:
        return self.rules.starts(self.graph)

    @lazy_property
    def _wanted(self) -> Mask:
        wanted = np.zeros(len(self.graph.symbols), np.bool_)
        wanted[self.graph.roots[self.chosen[self.graph.owners]]] = True
        wide.find_wanted(self.graph.edges, wanted)
        return wanted

    def _zeros(self, size: int) -> Scaled:
        return np.zeros(size), np.zeros(size, np.int64)

    @lazy_property
    def inside(self) -> Scaled:
        """The entries of the inside vectors of all items, one item after the other."""
        values, exponents = self._zeros(int(self._starts[-1]))
        wide.inside(
            self._grammar, self.graph.edges, self.parameters, self.graph.leaves,
            self.graph.leaf_offsets, self._wanted, self._starts, values, exponents,
        )  # fmt: skip
        return values, exponents

    @lazy_property
    def _root_entries(self) -> tuple[Numbers, Numbers, Numbers]:
        """For the entries of all chosen roots: their places among the values and the parameters,
        and their owners."""
        roots = np.flatnonzero(self.chosen[self.graph.owners])
        items = self.graph.roots[roots]
        inner, rows = _ranges(self.rules.sizes[self.graph.symbols[items]])
        return (
            self._starts[items][rows] + inner,
            self.graph.root_offsets[roots][rows] + inner,
            self.graph.owners[roots][rows].astype(np.int64),
        )

    @lazy_property
    def partitions(self) -> Scaled:
        """Z of each tree or sentence that is chosen, 0 for the others."""
        places, sources, owners = self._root_entries
        totals = self._zeros(self.graph.num_owners)
        wide.add_up(places, owners, *self.inside, *_scaled(self.parameters[sources]), *totals)
        return totals

    @lazy_property
    def _outside(self) -> tuple[Vector, Numbers, Vector]:
        return self.outside(np.ones(self.graph.num_owners))

    def outside(self, weights: Vector) -> tuple[Vector, Numbers, Vector]:
        """The entries of the outside vectors over Z, times the weights [owners]; expected edges."""
        places, sources, owners = self._root_entries
        mantissas, powers = self.partitions
        some = mantissas[owners] != 0
        places, sources, owners = places[some], sources[some], owners[some]
        outs, out_exponents = self._zeros(int(self._starts[-1]))
        seeds, exponents = _scaled(self.parameters[sources])
        outs[places], more = _scaled(seeds * (weights[owners] / mantissas[owners]))
        out_exponents[places] = exponents + more - powers[owners]
        shares = np.zeros(len(self.graph.lefts))
        wide.outside(
            self._grammar, self.graph.edges, self.parameters, self._wanted, self._starts,
            *self.inside, outs, out_exponents, shares,
        )  # fmt: skip
        return outs, out_exponents, shares

    @lazy_property
    def expected_items(self) -> Vector:
        """The expected number of each item: [v]."""
        outs, out_exponents, _ = self._outside
        _, items = _ranges(np.diff(self._starts))
        totals = self._zeros(len(self.graph.symbols))
        wide.add_up(np.arange(len(items)), items, *self.inside, outs, out_exponents, *totals)
        return ldexp(*totals)

    @property
    def expected_edges(self) -> Vector:
        """The expected number of each edge: [e]."""
        return self._outside[2]

    def add_gradient(self, weights: Vector, found: Vector) -> None:
        """Adds Σ over those chosen of weight · ∂ log |Z| / ∂ parameters to found [p]."""
        (values, exponents), (outs, out_exponents, _) = self.inside, self.outside(weights)
        mantissas, powers = self.partitions
        places, targets, owners = self._root_entries
        some = mantissas[owners] != 0
        places, targets, owners = places[some], targets[some], owners[some]
        shares = values[places] * (weights[owners] / mantissas[owners])
        # By a parameter of zero the derivative may be out of range, in both directions.
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(found, targets, ldexp(shares, exponents[places] - powers[owners]))
        leaves = self.graph.leaves
        inner, rows = _ranges(self.rules.sizes[self.graph.symbols[leaves]])
        places = self._starts[leaves][rows] + inner
        targets = self.graph.leaf_offsets[rows] + inner
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(found, targets, ldexp(outs[places], out_exponents[places]))
        wide.gradient(
            self._grammar, self.graph.edges, self._wanted, self._starts, values, exponents, outs,
            out_exponents, found,
        )  # fmt: skip


def _scaled(values: Vector) -> Scaled:
    mantissas, powers = np.frexp(values)
    return mantissas, powers.astype(np.int64)


def _ranges(sizes: Numbers) -> tuple[Numbers, Numbers]:
    """0, 1, … up to each size, one after the other, and the number of the size for each."""
    rows = np.repeat(np.arange(len(sizes)), sizes)
    return np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes), rows
