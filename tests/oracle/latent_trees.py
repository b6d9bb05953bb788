"""Small skeletal trees, and their probability by going through all latent values of all nodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import torch
from nltk.tree import Tree
from numpy.typing import NDArray

from inout.latent.layout import Layout
from inout.latent.model import LPCFG
from inout.latent.trees import SkeletalTrees

PHRASES, TAGS, WORDS = ("S", "T"), ("A", "B"), ("x", "y")


def random_tree(rng: np.random.Generator, words: int) -> Tree:
    """A tree of some words; tags have words only, and phrases may have them too."""
    if words == 1:
        names = TAGS + PHRASES[:1]
        return Tree(names[rng.integers(3)], [WORDS[rng.integers(2)]])
    left = int(rng.integers(1, words))
    below = [random_tree(rng, left), random_tree(rng, words - left)]
    return Tree(PHRASES[rng.integers(2)], below)


def random_trees(rng: np.random.Generator, count: int, words: int = 4) -> SkeletalTrees:
    """Trees of at most so many words."""
    return SkeletalTrees.of(
        [random_tree(rng, int(rng.integers(1, words + 1))) for _ in range(count)]
    )


def random_parameters(rng: np.random.Generator, trees: SkeletalTrees, most: int = 3) -> LPCFG:
    """Positive numbers that sum to 1 in each distribution, with up to `most` values each."""
    layout = Layout(trees.skeleton, rng.integers(1, most + 1, len(trees.skeleton.nonterminals)))
    weights = rng.exponential(size=layout.size)
    return LPCFG(layout, weights / np.bincount(layout.distributions, weights)[layout.distributions])


def uses(model: LPCFG, tree: Tree) -> Iterator[list[int]]:
    """The parameters that a tree uses, by place, for each choice of all its latent values.

    Places are counted anew here: roots, then lexical rules, then blocks, the parent's value first.
    """
    skeleton, sizes = model.skeleton, model.sizes.tolist()
    names = {name: a for a, name in enumerate(skeleton.nonterminals)}
    firsts: dict[tuple[str, ...], int] = {}
    place = 0
    for name, size in zip(skeleton.nonterminals, sizes, strict=True):
        firsts[(name,)] = place
        place += size
    for a, x in skeleton.lexical.tolist():
        firsts[(skeleton.nonterminals[a], skeleton.words[x], "word")] = place
        place += sizes[a]
    for a, b, c in skeleton.binary.tolist():
        firsts[tuple(skeleton.nonterminals[s] for s in (a, b, c))] = place
        place += sizes[a] * sizes[b] * sizes[c]
    assert place == len(model.parameters)
    nodes = list(tree.subtrees())
    numbers = {id(node): v for v, node in enumerate(nodes)}
    for values in product(*(range(sizes[names[node.label()]]) for node in nodes)):
        used = [firsts[(tree.label(),)] + values[0]]
        for node, value in zip(nodes, values, strict=True):
            if isinstance(node[0], str):
                used.append(firsts[(node.label(), node[0], "word")] + value)
                continue
            left, right = (values[numbers[id(child)]] for child in node)
            b, c = (sizes[names[child.label()]] for child in node)
            first = firsts[(node.label(), node[0].label(), node[1].label())]
            used.append(first + (value * b + left) * c + right)
        yield used


def enumerated(model: LPCFG, tree: Tree) -> tuple[float, NDArray[np.float64]]:
    """p of a tree, and the expected number of times that it uses each parameter."""
    total, counts = 0.0, np.zeros(len(model.parameters))
    for used in uses(model, tree):
        weight = float(np.prod(model.parameters[used]))
        total += weight
        np.add.at(counts, used, weight)
    return total, counts / total if total else counts


def seeded(seed: int) -> torch.Generator:
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)
