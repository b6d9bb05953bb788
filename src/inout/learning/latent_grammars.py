"""`fit_latent_grammar`: a latent-variable grammar of a treebank, by spectral learning or by EM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.checks import expect_one_of
from inout._core.errors import ArgumentError
from inout.grammars.tree import Tree
from inout.latent.clustering import cluster_nodes, clustered_model
from inout.latent.decoding.pruning import CoarseGrammar
from inout.latent.grammar import LatentGrammar, TrainingSet
from inout.latent.model import LPCFG, PartlyParsed
from inout.latent.spectral import fit_spectral
from inout.latent.starts import Latent, latent_sizes, most_values, random_model, smoothed, split
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
    latent: Latent = 16,
    method: Method = "spectral",
    *,
    generator: torch.Generator | None = None,
    progress: bool | Callback = False,
    **options: Any,
) -> LatentGrammar:
    """Train a grammar on a treebank, with up to `latent` values per nonterminal.

    latent: a number, numbers by name as {"NP": 24, "DT": 4, "*": 8} (see `latent.most_values`), or
    "auto", which lets the singular values of each nonterminal decide (see `latent.fit_spectral`).

    spectral: by the method of moments, in one pass (`inout.latent.fit_spectral`, which has the
    options). em: by `fit_latent_em`, which has the options; with `sentences`, which have no trees,
    it then goes on with these by `add_sentences`. `generator` is the source of randomness, by
    default one with a fixed seed. Parse with either:

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
        return data.grammar(made.model, method="spectral", latent=_shown(latent))
    sentences = options.pop("sentences", None)
    more = {"weight": options.pop("sentence_weight", 1.0)}
    model = fit_latent_em(data, latent, generator=generator, progress=progress, **options)
    if sentences is not None:
        kept = ("iterations", "smoothing", "lexical_smoothing", "tolerance")
        more |= {name: options[name] for name in kept if name in options}
        model = add_sentences(data, model, sentences, progress=progress, **more)
    return data.grammar(model, method="em", latent=_shown(latent))


def fit_latent_em(
    data: TrainingSet,
    latent: Latent,
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
    randomness, by default one with seed 0. "auto" has the sizes that spectral learning finds.
    """
    expect_one_of("start", start, get_args(Start))
    if restarts and start != "random":
        raise ArgumentError("restarts", f"need start='random'. Got {restarts} with {start!r}")
    source = generator_or_fixed(generator)
    latent = auto_values(data) if latent == "auto" else latent
    sizes = latent_sizes(data.trees, latent, support=support)
    most = int(most_values(data.trees.skeleton, latent).max())
    told: dict[str, Any] = {"tolerance": tolerance, "progress": progress}
    told["max_iterations"] = iterations

    def finished(model: LPCFG, size: int) -> LPCFG:
        made = smoothed(model, share=smoothing, lexical=lexical_smoothing)
        if after_round is not None:
            after_round(made, size)
        return made

    if start == "split":
        model, size = data.skeletal, 1
        if most == 1:  # the relative frequencies are the maximum
            return finished(model, 1)
        while size < most:
            size = min(2 * size, most)
            grown = split(model, source, noise=noise, sizes=np.minimum(sizes, size))
            model = finished(em(grown, data.trees, **told).model, size)
        return model
    if start == "random":
        first = random_model(data.trees, sizes, source)
        tried = em(first, data.trees, restarts=restarts, generator=source, **told)
        return finished(tried.model, most)
    estimate = fit_spectral(data.trees, latent, keep_vectors=True, generator=source)
    assert estimate.vectors is not None
    vectors = np.concatenate([estimate.vectors.inside, estimate.vectors.outside], axis=1)
    clustered = clustered_model(
        data.trees, cluster_nodes(data.trees, vectors, sizes, source), sizes
    )
    return finished(em(clustered, data.trees, **told).model, most)


def auto_values(data: TrainingSet) -> dict[str, int]:
    """The number of values of each label that its singular values suggest, see `fit_spectral`."""
    sizes = fit_spectral(data.trees, "auto").sizes
    return dict(zip(data.trees.skeleton.nonterminals, sizes.tolist(), strict=True))


def add_sentences(
    data: TrainingSet,
    model: LPCFG,
    sentences: Iterable[Sequence[str]],
    *,
    weight: float = 1.0,
    threshold: float | None = 1e-5,
    iterations: int = ITERATIONS,
    smoothing: float = SMOOTHING,
    lexical_smoothing: float = LEXICAL_SMOOTHING,
    tolerance: float = 0.0,
    progress: bool | Callback = False,
) -> LPCFG:
    """Train a model of a treebank further by EM, on its trees and on sentences without trees.

    Σ log p(tree) + `weight` · Σ log p(sentence) never falls, p(sentence) being summed over all
    trees of the sentence. Unknown words count as their classes. Symbols whose expected count over
    a span, by the treebank's own grammar, is below `threshold` are left out, as in parsing; None
    for none. Sentences without a tree are ignored. In the end the model is smoothed
    (Cohen et al. 2012, section 9: semi-supervised learning).

    Time: that of parsing all sentences, times 3, for each iteration; memory is that of all charts.

    >>> from nltk.tree import Tree
    >>> texts = ["(S (A x) (B y))", "(S (A z) (B z))"]
    >>> data = TrainingSet.of([Tree.fromstring(text) for text in texts], unknown_threshold=0)
    >>> model = random_model(data.trees, 2, torch.Generator().manual_seed(0))
    >>> more = add_sentences(data, model, [["x", "y"]] * 8, smoothing=0, lexical_smoothing=0)
    >>> more.tree_probabilities(data.trees).round(3).tolist()
    [0.9, 0.1]
    """
    known = [tuple(data.vocabulary.replace(words)) for words in sentences]
    known = [words for words in known if words]
    allowed: list[NDArray[np.bool_] | None] = [None] * len(known)
    if threshold is not None:
        coarse = CoarseGrammar(data.skeletal)
        for number, words in enumerate(known):
            counts = coarse.expected(words)
            shape = len(words), len(words) + 1, len(model.sizes)
            allowed[number] = np.zeros(shape, bool) if counts is None else counts >= threshold
    corpus = PartlyParsed(data.trees, known, allowed)
    share = np.concatenate([np.ones(len(data.trees)), np.full(len(known), float(weight))])
    found = em(
        model,
        corpus,
        frequencies=share,
        max_iterations=iterations,
        tolerance=tolerance,
        progress=progress,
    )
    return smoothed(found.model, share=smoothing, lexical=lexical_smoothing)


def _shown(latent: Latent) -> int | str | dict[str, int]:
    """What a model file says of the numbers of values."""
    return dict(latent) if isinstance(latent, Mapping) else latent
