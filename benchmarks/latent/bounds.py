"""Theorem 3 beside the error that there is: a grammar of four trees, more and more of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from nltk.tree import Tree

from benchmarks.report import Figure
from inout.latent import LPCFG, ErrorBound, Layout, SkeletalTrees, fit_spectral

COUNTS = (10**3, 10**6, 10**9, 10**12, 10**15)
FAILURE = 0.05  # δ
NODES = 3


def grammar() -> tuple[SkeletalTrees, LPCFG]:
    """S → A A whose children mostly have the same value, which mostly shows in their words."""
    trees = SkeletalTrees.of(
        [Tree("S", [Tree("A", [x]), Tree("A", [y])]) for x, y in product("xy", repeat=2)]
    )
    layout = Layout(trees.skeleton, [1, 2])
    parameters = np.zeros(layout.size)
    layout.root(parameters, 0)[:] = 1
    layout.block(parameters, 0)[:] = [[0.45, 0.05], [0.05, 0.45]]
    layout.lexical(parameters, 0)[:] = 0.9, 0.2
    layout.lexical(parameters, 1)[:] = 0.1, 0.8
    return trees, LPCFG(layout, parameters)


def errors(draws: int, seed: int = 0) -> tuple[ErrorBound, list[float]]:
    """The constants of the grammar, and the largest error of p̂/p that 95 % of the draws keep."""
    random = np.random.default_rng(seed)
    trees, model = grammar()
    p = model.tree_probabilities(trees)
    found = []
    for count in COUNTS:
        largest = []
        for _ in range(draws):
            drawn = random.multinomial(count, p).astype(np.float64)
            made = fit_spectral(trees, 2, "paper", weights=drawn).model
            largest.append(np.abs(made.tree_probabilities(trees) / p - 1).max())
        found.append(float(np.quantile(largest, 1 - FAILURE)))
    return ErrorBound.of(fit_spectral(trees, 2, "paper", weights=p)), found


def figures(draws: int = 60) -> Iterator[Figure]:
    """Both errors for each number of trees, and the exponent of the one that there is."""
    bound, found = errors(draws)
    for count, error in zip(COUNTS, found, strict=True):
        name = f"theorem 3, {count:.0e} trees"
        yield Figure(f"{name}: largest error of p̂/p in 95 % of {draws} draws", error, "")
        yield Figure(f"{name}: its bound ε", bound.error(count, NODES, FAILURE), "")
    slope = float(np.polyfit(np.log(COUNTS), np.log(found), 1)[0])
    yield Figure("theorem 3: exponent of the error, 1/2 by the theorem", -slope, "", at_least=0.45)
