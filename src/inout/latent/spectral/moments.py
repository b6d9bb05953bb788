"""The grammar of projected nodes: averages over the nodes of a rule (figure 7, steps 2 and 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.lazy import LazyModule
from inout.latent.layout import Layout, Numbers, Vector
from inout.latent.model import LPCFG
from inout.latent.spectral.options import Shrinkage
from inout.latent.spectral.vectors import NodeVectors
from inout.latent.trees import SkeletalTrees

Labels = NDArray[np.int64] | NDArray[np.int32]
sparse: Any = LazyModule("scipy.sparse")  # few need it
_CHUNK = 1 << 14  # nodes whose products are held at a time


def share(counts: Vector, constant: float) -> Vector:
    """λ = n / (n + C), 1 where C is 0."""
    if constant == 0:
        return np.ones_like(counts)
    return counts / (counts + constant)


def grammar_of(
    trees: SkeletalTrees, vectors: NodeVectors, weights: Vector, shrinkage: Shrinkage
) -> LPCFG:
    """The grammar of nodes of weight `weights` [v] in the basis of their vectors.

    Σ is the identity there, so that C = D, c∞ = d∞ and c¹ is the mean of Y at roots.
    O(nodes · m³) time; memory is that of the grammar.
    """
    skeleton, y = trees.skeleton, vectors.inside
    z = _forgotten(trees, vectors, weights, shrinkage.forgetting)
    inner, leaves = np.flatnonzero(~trees.is_leaf), np.flatnonzero(trees.is_leaf)
    binary = [
        _Means.of(rules, weights[inner], part, labels)
        for rules, part, labels in (
            (trees.rules[inner], z[inner], skeleton.binary[:, 0]),
            (trees.rules[inner], y[trees.lefts[inner]], skeleton.binary[:, 1]),
            (trees.rules[inner], y[trees.rights[inner]], skeleton.binary[:, 2]),
        )
    ]
    words = _Means.of(trees.rules[leaves], weights[leaves], z[leaves], skeleton.lexical[:, 0])
    roots = _Means.of(
        trees.labels[trees.roots],
        weights[trees.roots],
        y[trees.roots],
        np.arange(len(vectors.sizes)),
    )
    # Every node is in one group of each list: it has a rule, and is a child or a root.
    binary[0], words = _shrunk_means([binary[0], words], shrinkage.first)
    binary[1], binary[2], roots = _shrunk_means([*binary[1:], roots], shrinkage.first)
    totals = np.bincount(trees.labels, weights, len(vectors.sizes))

    layout = Layout(skeleton, vectors.sizes)
    parameters = np.zeros(layout.size)
    for a in np.flatnonzero(roots.counts).tolist():
        probability = roots.counts[a] / roots.counts.sum()
        layout.root(parameters, a)[:] = roots.mean(a, vectors.sizes) * probability
    for rule in np.flatnonzero(words.counts).tolist():
        probability = words.counts[rule] / totals[words.labels[rule]]
        layout.lexical(parameters, rule)[:] = words.mean(rule, vectors.sizes) * probability
    counts = binary[0].counts
    second, third = share(counts, shrinkage.second), share(counts, shrinkage.third)
    for rule, nodes in _by_rule(trees, inner):
        if counts[rule] > 0:
            means = [each.mean(rule, vectors.sizes) for each in binary]
            joint = _Joint.of(
                z[nodes, : len(means[0])],
                y[trees.lefts[nodes], : len(means[1])],
                y[trees.rights[nodes], : len(means[2])],
                weights[nodes] / counts[rule],
            )
            block = joint.shrunk(means, float(second[rule]), float(third[rule]))
            probability = counts[rule] / totals[skeleton.binary[rule, 0]]
            layout.block(parameters, rule)[:] = block * probability
    return LPCFG(layout, parameters)


@dataclass(frozen=True, eq=False)
class _Means:
    """Mean vectors of groups of nodes; the nodes of a group have one label."""

    labels: Numbers  # [g]
    counts: Vector  # [g]: weights
    means: Vector  # [g m], 0 where there is no weight

    @staticmethod
    def of(groups: Numbers, weights: Vector, values: Vector, labels: Labels) -> _Means:
        """The means of values [n m] by their group [n]; `labels` are those of groups."""
        size = len(labels), len(groups)
        choice = sparse.csr_array((weights, (groups, np.arange(len(groups)))), size)
        counts: Vector = np.bincount(groups, weights, len(labels)).astype(np.float64)
        means = choice @ values / np.where(counts > 0, counts, 1)[:, None]
        return _Means(labels.astype(np.int64), counts, means)

    def mean(self, group: int, sizes: Numbers) -> Vector:
        return self.means[group, : sizes[self.labels[group]]]


def _shrunk_means(groups: list[_Means], constant: float) -> list[_Means]:
    """The groups with means shrunk towards the mean of their label.

    The change of a label's mean is then subtracted from all of its groups. For Z this preserves
    the sum of a label's parameters, and so the total probability of all trees; for Y, a label's
    expected vector.
    """
    labels = np.concatenate([group.labels for group in groups])
    counts = np.concatenate([group.counts for group in groups])
    means = np.concatenate([group.means for group in groups])
    every = np.arange(labels.max(initial=0) + 1)
    overall = _Means.of(labels, counts, means, every).means[labels]
    shrunk = (means - overall) * share(counts, constant)[:, None]
    residue = _Means.of(labels, counts, shrunk, every).means[labels]
    kept = np.split(overall + shrunk - residue, np.cumsum([len(g.labels) for g in groups])[:-1])
    return [_Means(g.labels, g.counts, part) for g, part in zip(groups, kept, strict=True)]


@dataclass(frozen=True, eq=False)
class _Joint:
    """First, second and third moments of Z, Y₂ and Y₃ over the nodes of a rule."""

    means: tuple[Vector, Vector, Vector]
    pairs: tuple[Vector, Vector, Vector]  # E[Y₂ Y₃ᵀ], E[Z Y₃ᵀ], E[Z Y₂ᵀ]
    triple: Vector  # E[Z ⊗ Y₂ ⊗ Y₃]

    @staticmethod
    def of(z: Vector, left: Vector, right: Vector, shares: Vector) -> _Joint:
        """The moments of vectors [n m_a], [n m_b], [n m_c] with weights that add up to 1."""
        weighted = z * shares[:, None]
        triple = np.zeros((z.shape[1] * left.shape[1], right.shape[1]))
        for first in range(0, len(z), _CHUNK):
            part = slice(first, first + _CHUNK)
            products = weighted[part, :, None] * left[part, None, :]
            triple += products.reshape(len(products), -1).T @ right[part]
        return _Joint(
            (shares @ z, shares @ left, shares @ right),
            ((left * shares[:, None]).T @ right, weighted.T @ right, weighted.T @ left),
            triple.reshape(z.shape[1], left.shape[1], right.shape[1]),
        )

    def shrunk(self, means: list[Vector], second: float, third: float) -> Vector:
        """The triple moment of variables with these means and shares of the higher cumulants."""
        covariances = [
            self.pairs[0] - np.outer(self.means[1], self.means[2]),
            self.pairs[1] - np.outer(self.means[0], self.means[2]),
            self.pairs[2] - np.outer(self.means[0], self.means[1]),
        ]
        cumulant = self.triple - _product(self.means) - _mixed(self.means, covariances)
        return np.asarray(_product(means) + second * _mixed(means, covariances) + third * cumulant)


def _product(means: Sequence[Vector]) -> Vector:
    return means[0][:, None, None] * means[1][:, None] * means[2]


def _mixed(means: Sequence[Vector], covariances: Sequence[Vector]) -> Vector:
    """The sum of the covariances of pairs, each times the mean of the third."""
    return np.asarray(
        means[0][:, None, None] * covariances[0]
        + means[1][:, None] * covariances[1][:, None, :]
        + means[2] * covariances[2][:, :, None]
    )


def _forgotten(trees: SkeletalTrees, vectors: NodeVectors, weights: Vector, share: float) -> Vector:
    """Z of all nodes, mixed with this share of the mean of their label."""
    if share == 0:
        return vectors.outside
    labels = np.arange(len(vectors.sizes))
    means = _Means.of(trees.labels, weights, vectors.outside, labels).means
    return vectors.outside * (1 - share) + means[trees.labels] * share


def _by_rule(trees: SkeletalTrees, inner: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Each binary rule in use, with its nodes."""
    order = inner[np.argsort(trees.rules[inner], kind="stable")]
    rules, firsts = np.unique(trees.rules[order], return_index=True)
    bounds = [*firsts.tolist(), len(order)]
    for rule, (low, high) in zip(rules.tolist(), pairwise(bounds), strict=True):
        yield rule, order[low:high]
