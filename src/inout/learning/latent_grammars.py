"""`fit_latent_grammar`: a latent-variable grammar of a treebank, by spectral learning or by EM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

import numpy as np
import torch

from inout._core.checks import at_least, expect_one_of
from inout._core.errors import ArgumentError
from inout.grammars.tree import Tree
from inout.latent.clustering import cluster_nodes, clustered_model
from inout.latent.grammar import LatentGrammar, TrainingSet
from inout.latent.model import LPCFG
from inout.latent.spectral import fit_spectral
from inout.latent.starts import latent_sizes, random_model, smoothed, split
from inout.learning.arguments import generator_or_fixed
from inout.learning.em import em
from inout.learning.progress import Callback

Method = Literal["spectral", "em"]
Start = Literal["split", "random", "spectral"]
Rounds = Callable[[LPCFG, int], None]

ITERATIONS = 50
SMOOTHING = 0.01
LEXICAL_SMOOTHING = 0.1


def fit_latent_grammar(
    trees: Iterable[Tree] | TrainingSet,
    latent: int = 16,
    method: Method = "spectral",
    *,
    generator: torch.Generator | None = None,
    progress: bool | Callback = False,
    **options: Any,
) -> LatentGrammar:
    """Train a grammar on a treebank, with up to `latent` values per nonterminal.

    spectral: by the method of moments, in one pass (`inout.latent.fit_spectral`, which has the
    options). em: by `fit_latent_em`, which has the options. `generator` is the source of
    randomness, by default one with a fixed seed. Parse with either:

    >>> from nltk.tree import Tree
    >>> trees = [Tree.fromstring("(TOP (S (NP (PRP she)) (VP (VBD ran))))")] * 3
    >>> grammar = fit_latent_grammar(trees, 2)
    >>> from inout.latent import LatentParser
    >>> print(LatentParser(grammar).parse("she ran".split()).tree)
    (TOP (S (NP (PRP she)) (VP (VBD ran))))
    """
    data = trees if isinstance(trees, TrainingSet) else TrainingSet.of(trees)
    expect_one_of("method", method, get_args(Method))
    if method == "spectral":
        made = fit_spectral(
            data.trees, latent, generator=generator, progress=progress is not False, **options
        )
        return data.grammar(made.model, method="spectral", latent=latent)
    model = fit_latent_em(data, latent, generator=generator, progress=progress, **options)
    return data.grammar(model, method="em", latent=latent)


def fit_latent_em(
    data: TrainingSet,
    latent: int,
    start: Start = "split",
    *,
    iterations: int = ITERATIONS,
    restarts: int = 0,
    smoothing: float = SMOOTHING,
    lexical_smoothing: float = LEXICAL_SMOOTHING,
    noise: float = 0.02,
    support: int = 50,
    tolerance: float = 0.0,
    generator: torch.Generator | None = None,
    progress: bool | Callback = False,
    after_round: Rounds | None = None,
) -> LPCFG:
    """Train a model by EM on the trees of a treebank (Matsuzaki et al. 2005), then smooth it.

    start: "split" doubles the values of the treebank's own grammar repeatedly, with EM and
    smoothing in between (Petrov et al. 2006, without merging); "random" starts from the full
    number with random weights, and from `restarts` more points; "spectral" starts from clusters
    of the nodes' spectral vectors. `iterations` are those of EM per split, or in total.
    `smoothing` and `lexical_smoothing`: see `latent.smoothed`. `support`: see `latent_sizes`.
    `after_round(model, latent)` is called with each smoothed model. `generator` is the source of
    randomness, by default one with seed 0.
    """
    at_least("latent", latent, 1)
    expect_one_of("start", start, get_args(Start))
    if restarts and start != "random":
        raise ArgumentError("restarts", f"need start='random'. Got {restarts} with {start!r}")
    source = generator_or_fixed(generator)
    sizes = latent_sizes(data.trees, latent, support=support)
    told: dict[str, Any] = {"tolerance": tolerance, "progress": progress}
    told["max_iterations"] = iterations

    def finished(model: LPCFG, size: int) -> LPCFG:
        made = smoothed(model, share=smoothing, lexical=lexical_smoothing)
        if after_round is not None:
            after_round(made, size)
        return made

    if start == "split":
        model, size = data.skeletal, 1
        if latent == 1:  # the relative frequencies are the maximum
            return finished(model, 1)
        while size < latent:
            size = min(2 * size, latent)
            grown = split(model, source, noise=noise, sizes=np.minimum(sizes, size))
            model = finished(em(grown, data.trees, **told).model, size)
        return model
    if start == "random":
        first = random_model(data.trees, sizes, source)
        found = em(first, data.trees, restarts=restarts, generator=source, **told)
        return finished(found.model, latent)
    estimate = fit_spectral(data.trees, latent, keep_vectors=True, generator=source)
    assert estimate.vectors is not None
    vectors = np.concatenate([estimate.vectors.inside, estimate.vectors.outside], axis=1)
    clustered = clustered_model(
        data.trees, cluster_nodes(data.trees, vectors, sizes, source), sizes
    )
    return finished(em(clustered, data.trees, **told).model, latent)
