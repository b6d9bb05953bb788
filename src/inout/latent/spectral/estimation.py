"""`fit_spectral`: a latent-variable grammar from trees, without a starting point or iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from inout._core.checks import expect_shape
from inout._core.errors import ArgumentError
from inout.latent.layout import Numbers, Vector
from inout.latent.model import LPCFG
from inout.latent.spectral.moments import grammar_of
from inout.latent.spectral.options import NONE, Estimator, EstimatorName
from inout.latent.spectral.vectors import Conditioning, NodeVectors, node_vectors
from inout.latent.starts import AUTO_MOST, Latent, most_values
from inout.latent.trees import SkeletalTrees

_SEED = 20120708
AUTO_SHARE = 0.1  # of the largest singular value


@dataclass(frozen=True, eq=False, repr=False)
class SpectralEstimate:
    """The grammar that `fit_spectral` found, and how well the trees determine it."""

    model: LPCFG
    singular_values: tuple[Vector, ...]  # of Ω of each nonterminal, largest first
    conditioning: Conditioning
    is_plain: bool  # in the basis of the paper, see `NodeVectors`
    vectors: NodeVectors | None  # if asked for

    @property
    def sizes(self) -> Numbers:
        return self.model.sizes


def fit_spectral(
    trees: SkeletalTrees,
    latent: Latent = 16,
    estimator: EstimatorName = "shrunk",
    *,
    weights: Vector | None = None,
    generator: torch.Generator | None = None,
    keep_vectors: bool = False,
    progress: bool = False,
    **options: Any,
) -> SpectralEstimate:
    """Estimate a grammar from trees by the method of moments (Cohen et al. 2012, figures 7 and 8).

    For each nonterminal a, with features φ of inside and ψ of outside trees of all of its nodes:

        Ωᵃ = E[φ ψᵀ] ≈ U S Vᵀ,   Y = Uᵀ φ,   Z = Vᵀ ψ,   Σᵃ = E[Y Zᵀ]
        C^{a→b c} = E[[a→b c] Z ⊗ Y₂ ⊗ Y₃] (Σᵃ)⁻¹,   c∞_{a→x} = E[[a→x] Z] (Σᵃ)⁻¹
        c¹_a = E[[a] Y], at roots

    If trees come from an L-PCFG whose latent values the features distinguish, and `latent` is at
    least their number, probabilities of trees and marginals converge to the true ones at the rate
    1/√(number of trees), with `shrinkage=None` or without `forgetting`. The default gives that up
    for better parses of rare combinations. Averages are over all nodes, each with the weight of
    its tree: sampling one node per tree, as in section 7.1, would make inside and outside trees
    dependent through the size of the tree.

    latent: maximum number of values per nonterminal, or of each by name, see `most_values`.
    "auto": as many as a nonterminal has singular values above a tenth of its largest (or above
    another `threshold`), at most 32.

    estimator: "shrunk", or "paper" for that of the figures, with the features of section 7.1,
    unscaled, and nothing centred, shrunk or left out (but directions in which Ω is 0). All
    `options` of either are fields of `Estimator`.

    weights [t]: how often each tree counts, default 1. generator: for random projections of
    large sets, see `decompose`; by default one with a fixed seed.

    The parameters may be negative. O(nodes · (features · m + m³)) time; memory is that of the
    keys of all features and of two vectors for each node.

    >>> from nltk.tree import Tree
    >>> from inout.latent.trees import SkeletalTrees
    >>> agreeing = [Tree.fromstring(text) for text in ("(S (A x) (A x))", "(S (A y) (A y))")]
    >>> trees = SkeletalTrees.of(agreeing)
    >>> model = fit_spectral(trees, fewest=1, support=1, shrinkage=None).model
    >>> model.sizes.tolist()
    [1, 2]
    >>> c = model.layout.block(model.parameters, 0)  # [1 2 2]
    >>> x, y = (model.layout.lexical(model.parameters, rule) for rule in (0, 1))
    >>> print(f"{(c @ x @ x)[0]:.3f} {abs(c @ y @ x)[0]:.3f}")  # p(S → x x), p(S → x y)
    0.500 0.000
    """
    if latent == "auto":
        latent, options = AUTO_MOST, {"threshold": AUTO_SHARE} | options
    how = Estimator.named(estimator, **options)
    limits = most_values(trees.skeleton, latent)
    of_nodes = _node_weights(trees, weights)
    if generator is None:
        generator = torch.Generator().manual_seed(_SEED)
    with _bar(progress, len(trees.labels)) as tell:
        vectors = node_vectors(trees, of_nodes, limits, how, generator=generator, tell=tell)
        model = grammar_of(trees, vectors, of_nodes, how.shrinkage or NONE)
    kept, plain = vectors if keep_vectors else None, not how.centred and how.shrinkage is None
    return SpectralEstimate(model, vectors.singular_values, vectors.conditioning, plain, kept)


def _node_weights(trees: SkeletalTrees, weights: Vector | None) -> Vector:
    """The weight of each node, which is that of its tree."""
    if not len(trees):
        raise ArgumentError("trees", "must hold at least one tree. Got none")
    if weights is None:
        weights = np.ones(len(trees))
    expect_shape("weights", weights, (len(trees),))
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise ArgumentError("weights", "must be finite, at least 0, and not all 0")
    return np.asarray(weights, np.float64)[trees.trees]


@contextmanager
def _bar(shown: bool, total: int) -> Iterator[Callable[[int], None]]:
    """A callback for the number of nodes done: a progress bar if stderr is a terminal."""
    # Imported here for the sake of start-up: few need a bar.
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield lambda done: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("spectral", total=total)
        yield lambda done: bar.update(task, completed=done)
