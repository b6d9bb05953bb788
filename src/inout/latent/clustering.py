"""Latent values by clustering the nodes of trees, to start EM from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from inout._core.checks import at_least, expect
from inout._core.errors import ArgumentError
from inout._core.randomness import checked_generator, drawn
from inout.latent.layout import Layout, Numbers, Vector
from inout.latent.model import LPCFG
from inout.latent.starts import treebank_model
from inout.latent.trees import SkeletalTrees

Sizes = int | Sequence[int] | Numbers

# Distances are computed for this many nodes at a time.
_BATCH = 1 << 15
# Iterations end when no greater share of the nodes changes its cluster.
_FEW = 1e-3


def cluster_nodes(
    trees: SkeletalTrees,
    vectors: Vector,
    sizes: Sizes,
    generator: torch.Generator | None = None,
    *,
    max_iterations: int = 30,
) -> Numbers:
    """A latent value for each node [v], from a vector for each node [v d]: k-means.

    The nodes of each nonterminal are clustered separately, into `sizes[a]` values, or fewer if
    there are fewer distinct vectors. Centres are initialised by k-means++ (Arthur & Vassilvitskii
    2007); `generator` makes them reproducible, by default torch's own is used.
    Vectors are not rescaled. O(nodes · m · d · iterations).

    >>> from nltk.tree import Tree
    >>> trees = SkeletalTrees.of([Tree.fromstring("(S (A x) (S (A y) (A x)))")])
    >>> vectors = np.array([[0.0], [1.0], [0.0], [5.0], [1.1]])
    >>> found = cluster_nodes(trees, vectors, [1, 2], torch.Generator().manual_seed(0))
    >>> bool(found[1] == found[4] != found[3])
    True
    """
    layout, source = Layout(trees.skeleton, sizes), checked_generator(generator)
    at_least("max_iterations", max_iterations, 0)
    good = vectors.ndim == 2 and len(vectors) == len(trees.labels)
    wanted = f"must be one for each of {len(trees.labels)} nodes"
    expect(good, "vectors", wanted, list(vectors.shape))
    if not np.isfinite(vectors).all():
        raise ArgumentError("vectors", "must be finite. Got NaN or infinity")
    found = np.zeros(len(trees.labels), np.int64)
    order = np.argsort(trees.labels, kind="stable")
    counts = np.bincount(trees.labels, minlength=len(layout.sizes))
    for a, nodes in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        if layout.sizes[a] > 1 and len(nodes) > 1:
            own = np.ascontiguousarray(vectors[nodes], np.float64)
            own -= own.mean(axis=0)  # distances are differences of squares
            found[nodes] = _k_means(own, int(layout.sizes[a]), source, max_iterations)
    return found


def clustered_model(
    trees: SkeletalTrees, assignments: Numbers, sizes: Sizes, *, smoothing: float = 0.1
) -> LPCFG:
    """Relative frequencies of trees whose nodes have the given latent values [v].

    Each distribution is mixed with a share `smoothing` of `treebank_model`, where all values are
    alike, so that no parameter of a seen rule is zero, which EM could not change. A value without
    nodes has only the latter.
    """
    expect(0 <= smoothing <= 1, "smoothing", "must be from 0 to 1", smoothing)
    start = treebank_model(trees, sizes)
    layout = start.layout
    if assignments.shape != trees.labels.shape or assignments.dtype.kind not in "iu":
        raise ArgumentError(
            "assignments",
            f"must be one integer for each of {len(trees.labels)} nodes. "
            f"Got {assignments.dtype} {list(assignments.shape)}",
        )
    bad = (assignments < 0) | (assignments >= layout.sizes[trees.labels])
    if bad.any():
        node = int(np.flatnonzero(bad)[0])
        raise ArgumentError(
            "assignments",
            f"must be below the size of their nonterminal. Got {assignments[node]} "
            f"for {layout.skeleton.nonterminals[trees.labels[node]]}",
        )
    counts = np.bincount(_places(layout, trees, assignments), minlength=layout.size)
    groups = layout.distributions
    totals = np.bincount(groups, counts)
    found = start.parameters * np.where(totals > 0, smoothing, 1.0)[groups]
    found += ((1 - smoothing) / np.maximum(totals, 1))[groups] * counts
    return LPCFG(layout, found)


def _places(layout: Layout, trees: SkeletalTrees, values: Numbers) -> Numbers:
    """The parameters that the trees use: one for each root and each node."""
    leaf, rules = trees.is_leaf, trees.rules
    inner = ~leaf
    lefts, rights = trees.lefts[inner], trees.rights[inner]
    left_sizes, right_sizes = layout.sizes[trees.labels[lefts]], layout.sizes[trees.labels[rights]]
    within = (values[inner] * left_sizes + values[lefts]) * right_sizes + values[rights]
    return np.concatenate(
        [
            layout.root_offsets[trees.labels[trees.roots]] + values[trees.roots],
            layout.lexical_offsets[rules[leaf]] + values[leaf],
            layout.block_offsets[rules[inner]] + within,
        ]
    )


def _k_means(
    points: Vector, count: int, generator: torch.Generator, max_iterations: int
) -> Numbers:
    """The number of the nearest centre of each point, after some iterations of Lloyd's method."""
    centres = _first_centres(points, count, generator)
    nearest = _nearest(points, centres)
    for _ in range(max_iterations):
        members = np.bincount(nearest, minlength=len(centres))
        sums = np.stack(
            [np.bincount(nearest, column, minlength=len(centres)) for column in points.T], axis=1
        )
        # A centre that lost its points stays where it is.
        centres = np.where(members[:, None] > 0, sums / np.maximum(members, 1)[:, None], centres)
        before, nearest = nearest, _nearest(points, centres)
        if (before != nearest).mean() <= _FEW:
            break
    return nearest


def _first_centres(points: Vector, count: int, generator: torch.Generator) -> Vector:
    """Points drawn one after the other, each in proportion to its distance² from those before."""
    first, *draws = drawn(torch.rand, generator, count).tolist()
    chosen = [int(first * len(points))]
    distances = np.full(len(points), np.inf)
    for draw in draws:
        offsets = points - points[chosen[-1]]
        distances = np.minimum(distances, np.einsum("nd,nd->n", offsets, offsets))
        sums = np.cumsum(distances)
        if not sums[-1] > 0:  # all points are centres
            break
        chosen.append(int(np.searchsorted(sums, draw * sums[-1], side="right")))
        chosen[-1] = min(chosen[-1], len(points) - 1)
    return points[chosen].copy()


def _nearest(points: Vector, centres: Vector) -> Numbers:
    """The number of the nearest centre of each point, the first of those as near."""
    squares = np.einsum("kd,kd->k", centres, centres)
    found = np.empty(len(points), np.int64)
    for low in range(0, len(points), _BATCH):
        part = points[low : low + _BATCH]
        found[low : low + _BATCH] = np.argmin(squares - 2 * part @ centres.T, axis=1)
    return found
