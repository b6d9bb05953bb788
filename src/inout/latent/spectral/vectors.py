"""`NodeVectors`: inside and outside trees of all nodes, projected to few numbers each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from inout._core.errors import ArgumentError
from inout.latent.layout import Numbers, Vector
from inout.latent.spectral.features import FeatureFunction
from inout.latent.spectral.options import Estimator
from inout.latent.spectral.projection import CrossMoments, decompose, feature_matrix
from inout.latent.trees import SkeletalTrees

# Singular values below this share of the largest are noise of floating-point arithmetic.
_ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class Conditioning:
    """What determined the number of latent values of each nonterminal, and their conditioning.

    A nonterminal gets `wanted` values at most. `supported` is the number that its nodes support,
    `ranked` how many singular values are above the threshold. `conditions` is the ratio of the
    largest to the smallest singular value of Σ as projected; `repaired` is how many directions
    were dropped because it was worse than allowed.
    """

    wanted: Numbers  # [a]
    supported: Numbers  # [a]
    ranked: Numbers  # [a]
    conditions: Vector  # [a]
    repaired: Numbers  # [a]


@dataclass(frozen=True, eq=False, repr=False)
class NodeVectors:
    """Y and Z of every node (figure 7, step 1), in a basis where E[Y Zᵀ | a] is the identity.

    A node of label a has `sizes[a]` numbers of each kind, followed by zeros. If `centred`, the
    first one is 1 and the others have mean 0 over the nodes of the label; if not, Y is that of the
    figure, and Z that times (Σᵃ)⁻¹.
    """

    sizes: Numbers  # [a]
    inside: Vector  # [v m]
    outside: Vector  # [v m]
    centred: bool
    singular_values: tuple[Vector, ...]  # of each Ω, as many as were computed
    conditioning: Conditioning


def node_vectors(
    trees: SkeletalTrees,
    weights: Vector,
    limits: Numbers,
    how: Estimator,
    *,
    generator: torch.Generator | None = None,
    tell: Callable[[int], None] = lambda nodes: None,
) -> NodeVectors:
    """The vectors of all nodes of weight `weights` [v]; `limits` [a] are most values of a label.

    `tell` is called with the number of nodes done, label by label.
    """
    count = len(trees.skeleton.nonterminals)
    order = np.argsort(trees.labels, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(trees.labels, minlength=count))])
    inside_keys = list(_keys(trees, how.features.inside, order))
    outside_keys = list(_keys(trees, how.features.outside, order))
    supported = _supported(trees, weights, limits, how.support)
    inside, outside = np.zeros((2, len(trees.labels), int(supported.max(initial=1))))
    sizes = np.ones(count, np.int64)
    ranked, repaired = np.ones(count, np.int64), np.ones(count, np.int64)
    conditions = np.ones(count)
    values: list[Vector] = []
    for a in range(count):
        part = slice(int(bounds[a]), int(bounds[a + 1]))
        nodes = order[part]
        found = _of_label(
            [keys[part] for keys in inside_keys],
            [keys[part] for keys in outside_keys],
            weights[nodes],
            int(supported[a]),
            how,
            generator,
        )
        sizes[a], ranked[a] = found.inside.shape[1], found.ranked
        conditions[a], repaired[a] = found.condition, found.repaired
        values.append(found.values)
        inside[nodes, : sizes[a]] = found.inside
        outside[nodes, : sizes[a]] = found.outside
        tell(int(bounds[a + 1]))
    widest = int(sizes.max(initial=1))
    return NodeVectors(
        sizes,
        np.ascontiguousarray(inside[:, :widest]),
        np.ascontiguousarray(outside[:, :widest]),
        how.centred,
        tuple(values),
        Conditioning(limits, supported, ranked, conditions, repaired),
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """The vectors of the nodes of one label, and their conditioning."""

    inside: Vector  # [n m]
    outside: Vector  # [n m]
    values: Vector
    ranked: int
    condition: float = 1.0
    repaired: int = 0


def _supported(trees: SkeletalTrees, weights: Vector, limits: Numbers, support: float) -> Numbers:
    """The number of values [a] that the weights of nodes support, at most `limits`."""
    if support == 0:
        return limits
    totals = np.bincount(trees.labels, weights, len(limits))
    found: Numbers = np.minimum(limits, np.maximum(1, totals // support).astype(np.int64))
    return found


def _of_label(
    inside_keys: list[Numbers],
    outside_keys: list[Numbers],
    weights: Vector,
    supported: int,
    how: Estimator,
    generator: torch.Generator | None,
) -> _Found:
    total = weights.sum()
    ones = np.ones((len(weights), 1))
    if total <= 0 or (supported == 1 and how.centred):
        return _Found(ones, ones, np.zeros(0), 1)
    phi, psi = (
        feature_matrix(
            keys,
            weights,
            [how.features.sizes.get(name, 1.0) for name in names],
            fewest=how.fewest,
            scaling=how.scaling,
        )
        for keys, names in (
            (inside_keys, how.features.inside),
            (outside_keys, how.features.outside),
        )
    )
    shares = weights / total
    moments = CrossMoments(phi, psi, shares, how.centred)
    apart = int(how.centred)  # the constant, which is a direction of its own
    found = decompose(moments, supported - apart, solver=how.solver, generator=generator)
    ranked = _rank(found.values, max(how.threshold, _ROUNDING), moments)
    y, z = phi @ found.left[:, :ranked], psi @ found.right[:, :ranked]
    if how.centred:
        y, z = y - shares @ y, z - shares @ z
    y, z, condition, repaired = _balanced(y, z, shares, how)
    if how.centred:
        y, z = np.concatenate([ones, y], axis=1), np.concatenate([ones, z], axis=1)
    return _Found(y, z, found.values, ranked + apart, condition, repaired)


def _rank(values: Vector, share: float, moments: CrossMoments) -> int:
    """How many singular values are above a share of the largest, if that is no rounding error.

    Centred features of a label that carry no information have nothing but rounding errors.
    """
    if not len(values):
        return 0
    scale = np.sqrt(
        (moments.shares @ moments.phi.power(2).sum(axis=1))
        * (moments.shares @ moments.psi.power(2).sum(axis=1))
    )  # an upper bound of them all
    if values[0] <= _ROUNDING * scale:
        return 0
    return int((values > share * values[0]).sum())


def _balanced(
    y: Vector, z: Vector, shares: Vector, how: Estimator
) -> tuple[Vector, Vector, float, int]:
    """Y and Z in bases where Σ = E[Y Zᵀ] is the identity; its condition, and what was dropped.

    Any basis gives the same grammar (theorem 1); this one shares the size of Σ⁻¹ between both
    sides, or gives it to Z in the paper's form. Directions in which Σ is smaller than
    `1 / worst_condition` of its largest singular value are dropped: the inverse would be noise.
    """
    left, values, right = np.linalg.svd((y * shares[:, None]).T @ z)
    usable = len(values) > 0 and values[0] > 0
    kept = int((values * how.worst_condition >= values[0]).sum()) if usable else 0
    condition = float(values[0] / values[kept - 1]) if kept else 1.0
    own = np.sqrt(values[:kept]) if how.centred else np.ones(kept)
    y, z = y @ (left[:, :kept] / own), z @ (right[:kept].T * (own / values[:kept]))
    return y, z, condition, len(values) - kept


def _keys(
    trees: SkeletalTrees, functions: Mapping[str, FeatureFunction], order: Numbers
) -> Iterator[Numbers]:
    """The keys that each function gives the nodes, in this order."""
    for name, function in functions.items():
        keys = np.asarray(function(trees))
        if keys.shape != trees.labels.shape or keys.dtype.kind not in "iu":
            raise ArgumentError(
                "functions",
                f": feature {name!r} must give one integer for each of {len(trees.labels)} nodes. "
                f"Got {keys.dtype} {list(keys.shape)}",
            )
        yield keys[order]
