"""What limits spectral learning with few values: other projections, and EM that goes on from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from nltk.tree import Tree
from numpy.typing import NDArray

from benchmarks.latent.rows import latent_row
from benchmarks.report import Figure
from inout import em
from inout.grammars.treebank import leaves
from inout.latent import (
    LPCFG,
    Features,
    Shrinkage,
    TrainingSet,
    cluster_nodes,
    clustered_model,
    fit_spectral,
    latent_sizes,
    smoothed,
)
from inout.latent.spectral import DEFAULT, Conditioning, Estimator, NodeVectors, grammar_of, vectors
from inout.learning.latent_grammars import add_sentences, fit_latent_em
from inout.learning.progress import Progress

ITERATIONS = (0, 1, 2, 5)
Vector = NDArray[np.float64]


def limits(data: TrainingSet, latent: int, by_em: LPCFG, trees: list[Tree]) -> Iterator[Figure]:
    """F1 with few values, by directions chosen in different ways, and after steps of EM."""

    def f1(model: LPCFG, how: str) -> Figure:
        row = latent_row(how, 0.0, data.grammar(model), {"dev": trees})
        return Figure(f"{about}: F1 {how}", row.f1["dev"], "%")

    about = f"m = {latent}, {len(trees)} dev sentences"
    alike = Features(DEFAULT.inside, DEFAULT.outside)
    structural = DEFAULT.without(*DEFAULT.sizes)
    yield f1(fit_spectral(data.trees, latent).model, "of spectral learning")
    yield f1(fit_spectral(data.trees, latent, features=alike).model, "with features of one size")
    yield f1(
        fit_spectral(data.trees, latent, features=structural).model, "without features of words"
    )
    yield f1(projected_by(data, by_em), "of moments, in the directions of EM")
    for steps, model in _steps(data, latent):
        yield f1(model, f"of clusters and {steps} steps of EM")
    yield f1(by_em, "of EM")


def projected_by(data: TrainingSet, model: LPCFG) -> LPCFG:
    """The grammar of moments whose projections are a model's own inside and outside vectors.

    Given enough trees of that model it is the model, whatever other features would say.
    """
    trees, how = data.trees, Estimator(worst_condition=1e6)
    passes = model.likelihood(trees).passes(model.parameters)
    inside = [_shares(one.narrow.inside.values) for one in passes]
    outside = [_shares(one.narrow.outside(np.ones(one.graph.num_owners)).outs) for one in passes]
    b, o = (_padded(each, int(model.sizes.max())) for each in (inside, outside))
    y, z = np.zeros_like(b), np.zeros_like(o)
    sizes = np.ones_like(model.sizes)
    for a, size in enumerate(model.sizes.tolist()):
        nodes = np.flatnonzero(trees.labels == a)
        y[nodes, 0] = z[nodes, 0] = 1
        if size > 1 and len(nodes):
            # Shares add up to 1: one of them says nothing that the others and the 1 do not.
            shares = np.full(len(nodes), 1 / len(nodes))
            own = [part[nodes, : size - 1] - shares @ part[nodes, : size - 1] for part in (b, o)]
            left, right, _, _ = vectors._balanced(own[0], own[1], shares, how)
            sizes[a] = 1 + left.shape[1]
            y[nodes, 1 : sizes[a]], z[nodes, 1 : sizes[a]] = left, right
    found = Conditioning(model.sizes, sizes, sizes, np.ones(len(sizes)), 0 * sizes)
    made = NodeVectors(sizes, y, z, True, (), found)
    return grammar_of(trees, made, np.ones(len(trees.labels)), Shrinkage())


def _shares(found: Any) -> list[Vector]:
    """Each vector, divided by its sum."""
    parts = np.split(found.values, found.starts[1:-1])
    return [part / part.sum() for part in parts]


def _padded(parts: list[list[Vector]], width: int) -> Vector:
    rows = [row for part in parts for row in part]
    found = np.zeros((len(rows), width))
    for v, row in enumerate(rows):
        found[v, : len(row)] = row
    return found


def _steps(data: TrainingSet, latent: int) -> Iterator[tuple[int, LPCFG]]:
    """The models of EM that starts from clusters of the spectral vectors, smoothed."""
    generator = torch.Generator().manual_seed(0)
    estimate = fit_spectral(data.trees, latent, keep_vectors=True)
    assert estimate.vectors is not None
    both = np.concatenate([estimate.vectors.inside, estimate.vectors.outside], axis=1)
    sizes = latent_sizes(data.trees, latent, support=50)
    clusters = cluster_nodes(data.trees, both, sizes, generator)
    start = clustered_model(data.trees, clusters, sizes)
    found: dict[int, LPCFG] = {}

    def keep(progress: Progress) -> None:
        if progress.iteration in ITERATIONS:
            found[progress.iteration] = start.with_log_weights(progress.log_weights)

    em(start, data.trees, max_iterations=max(ITERATIONS), tolerance=0.0, progress=keep)
    for steps, model in found.items():
        yield steps, smoothed(model)


def semi_supervised(
    train: list[Tree], trees: list[Tree], *, parsed: int, words_only: int
) -> Iterator[Figure]:
    """F1 of a model of few trees, before and after EM with sentences that have none."""
    data = TrainingSet.of(train[:parsed])
    sentences = [leaves(tree) for tree in train[parsed:] if len(leaves(tree)) <= 25][:words_only]
    model = fit_latent_em(data, 2)
    more = add_sentences(data, model, sentences, weight=0.2, iterations=3)
    about = f"m = 2, {parsed} trees"
    for name, found in ((about, model), (f"{about}, {len(sentences)} sentences", more)):
        row = latent_row(name, 0.0, data.grammar(found), {"dev": trees})
        yield Figure(f"EM, {name}: F1 of {len(trees)} dev sentences", row.f1["dev"], "%")
