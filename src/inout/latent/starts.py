"""Models to start EM from (the treebank's, random, or with values split in two), and smoothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch

from inout._core.checks import at_least, expect
from inout._core.errors import ArgumentError
from inout._core.randomness import checked_generator, drawn
from inout.latent.layout import MOST_VALUES, Layout, Numbers, Vector
from inout.latent.model import LPCFG
from inout.latent.skeleton import Skeleton
from inout.latent.trees import SkeletalTrees

Sizes = int | Sequence[int] | Numbers
Latent = int | Mapping[str, int] | Literal["auto"]

OTHERS = "*"
DEFAULT_MOST = 16
AUTO_MOST = 32


def most_values(skeleton: Skeleton, latent: int | Mapping[str, int]) -> Numbers:
    """How many values each nonterminal may have [a]: the same number, or one for each name.

    Names are those of nonterminals; a node that binarisation added (NP|<>) has the number of its
    constituent, unless it is named itself. All others have that of "*", 16 by default.

    >>> skeleton = Skeleton.of([("S", "NP", "VP"), ("NP", "DT", "NP|<>")], [("DT", "the")])
    >>> found = most_values(skeleton, {"NP": 24, "DT": 4, "*": 8})
    >>> dict(zip(skeleton.nonterminals, found.tolist()))
    {'S': 8, 'NP': 24, 'VP': 8, 'DT': 4, 'NP|<>': 24}
    """
    names = skeleton.nonterminals
    if not isinstance(latent, Mapping):
        return np.full(len(names), min(at_least("latent", latent, 1), MOST_VALUES), np.int64)
    given = {name: at_least(f"latent[{name!r}]", m, 1) for name, m in latent.items()}
    for name in given:
        if name not in skeleton.nonterminal_numbers and name != OTHERS:
            raise ArgumentError("latent", f"must name labels of the trees. Got {name!r}")
    others = given.get(OTHERS, DEFAULT_MOST)
    found = [given.get(name, given.get(name.split("|<")[0], others)) for name in names]
    return np.minimum(np.array(found, np.int64), MOST_VALUES)


def latent_sizes(
    trees: SkeletalTrees, latent: int | Mapping[str, int], *, support: int = 20
) -> Numbers:
    """m_a = min(latent, 1 + n_a // support) for a nonterminal with n_a nodes in the trees: [a].

    A value needs nodes to be learnt from, and a block costs m³ whether or not it has them.
    `latent` may be a number for each name, see `most_values`.

    >>> from nltk.tree import Tree
    >>> trees = SkeletalTrees.of([Tree.fromstring("(S (A x) (S (A y) (A x)))")])
    >>> latent_sizes(trees, 8, support=1)
    array([3, 4])
    >>> latent_sizes(trees, {"A": 2, "*": 8}, support=1)
    array([3, 2])
    """
    counts = np.bincount(trees.labels, minlength=len(trees.skeleton.nonterminals))
    found = 1 + counts // at_least("support", support, 1)
    return np.minimum(most_values(trees.skeleton, latent), found)


def treebank_model(trees: SkeletalTrees, sizes: Sizes = 1) -> LPCFG:
    """Relative frequencies of roots and rules; all latent values of a nonterminal are alike.

    A rule of a nonterminal without nodes has probability 0. The probability of a tree does not
    depend on the sizes, because the values of children share the probability of their rule. EM
    cannot separate identical values: start it from `random_model` or `split`.
    """
    skeleton, layout = trees.skeleton, Layout(trees.skeleton, sizes)
    sizes = layout.sizes
    nodes = np.bincount(trees.labels, minlength=len(sizes))
    roots = np.bincount(trees.labels[trees.roots], minlength=len(sizes)) / max(len(trees), 1)
    leaf = trees.is_leaf
    counts = [
        np.bincount(trees.rules[leaf], minlength=len(skeleton.lexical)),
        np.bincount(trees.rules[~leaf], minlength=len(skeleton.binary)),
    ]
    lexical = counts[0] / np.maximum(nodes[skeleton.lexical[:, 0]], 1)
    binary = counts[1] / np.maximum(nodes[skeleton.binary[:, 0]], 1)
    parts = [
        np.repeat(roots / sizes, sizes),
        np.repeat(lexical, np.diff(layout.lexical_offsets)),
        np.repeat(
            binary / sizes[skeleton.binary[:, 1:]].prod(axis=1), np.diff(layout.block_offsets)
        ),
    ]
    return LPCFG(layout, np.concatenate(parts))


def random_model(
    trees: SkeletalTrees, sizes: Sizes, generator: torch.Generator | None = None
) -> LPCFG:
    """The treebank's probabilities, times random factors, normalised (Matsuzaki et al. 2005).

    The shares are exponential variates: without the treebank, each distribution would be drawn
    uniformly from all. `generator` makes them reproducible; by default torch's own is used.
    """
    start, source = treebank_model(trees, sizes), checked_generator(generator)
    drawn = torch.empty(start.layout.size, dtype=torch.float64, device=source.device)
    drawn.exponential_(generator=source)
    factors = drawn.cpu().numpy()
    np.maximum(factors, np.finfo(np.float64).tiny ** 0.5, out=factors)  # a zero would stay one
    return _with_sums_of(start, start.parameters * factors)


def split(
    model: LPCFG,
    generator: torch.Generator | None = None,
    *,
    noise: float = 0.01,
    sizes: Sizes | None = None,
) -> LPCFG:
    """The model with each latent value split into two, equal up to noise (Petrov et al. 2006).

    With `sizes`, a nonterminal gets that many values, at least those it has: value h of the new
    ones is a copy of value h mod m of the old. Children of a value with k copies choose each with
    1/k of its probability, so the probabilities of trees do not change. Then every parameter is
    multiplied by a uniform number between 1 - noise and 1 + noise, and each distribution is
    rescaled to its sum. EM needs this noise: identical copies stay identical. It separates them
    slowly, so use `em` with tolerance 0 and a number of iterations. `generator` makes the noise
    reproducible; by default torch's own is used.
    """
    source = checked_generator(generator)
    expect(0 <= noise < 1, "noise", "must be at least 0 and below 1", noise)
    if noise > 0:
        model.refuse_negative("to get noise")
    old = model.layout
    layout = Layout(old.skeleton, 2 * old.sizes if sizes is None else sizes)
    if (layout.sizes < old.sizes).any():
        a = int(np.flatnonzero(layout.sizes < old.sizes)[0])
        given = f"{layout.sizes[a]} for {old.skeleton.nonterminals[a]}, which has {old.sizes[a]}"
        raise ArgumentError("sizes", f"must be at least those of the model. Got {given}")
    copies = [
        np.arange(new) % size
        for size, new in zip(old.sizes.tolist(), layout.sizes.tolist(), strict=True)
    ]
    shares = [1.0 / np.bincount(copy)[copy] for copy in copies]
    found = np.empty(layout.size)
    for a in range(len(copies)):
        layout.root(found, a)[:] = old.root(model.parameters, a)[copies[a]] * shares[a]
    for rule, a in enumerate(old.skeleton.lexical[:, 0].tolist()):
        layout.lexical(found, rule)[:] = old.lexical(model.parameters, rule)[copies[a]]
    for rule, (a, b, c) in enumerate(old.skeleton.binary.tolist()):
        block = old.block(model.parameters, rule)[np.ix_(copies[a], copies[b], copies[c])]
        layout.block(found, rule)[:] = block * shares[b][:, None] * shares[c]
    made = LPCFG(layout, found)
    if noise == 0:
        return made
    factors = 1 + noise * (2 * drawn(torch.rand, source, layout.size) - 1)
    return _with_sums_of(made, found * factors)


def _with_sums_of(model: LPCFG, parameters: Vector) -> LPCFG:
    """The model of these parameters, each distribution rescaled to its sum in another model."""
    groups = model.layout.distributions
    before, after = np.bincount(groups, model.parameters), np.bincount(groups, parameters)
    ratios = np.divide(before, after, out=np.ones(len(before)), where=after > 0)
    return LPCFG(model.layout, parameters * ratios[groups])


def smoothed(model: LPCFG, *, share: float = 0.01, lexical: float = 0.1) -> LPCFG:
    """The rules of each value of a nonterminal, mixed with their average over its values.

    p'(a_h → β) = (1 - share) · p(a_h → β) + share · Σ_k p(a_k → β) / m_a for binary rules, and the
    same with `lexical` for words; roots stay (Petrov et al. 2006, section 2.4). A value whose
    nonterminal has rules of both kinds would not keep its sum: its rules are rescaled to it. A
    value without rules stays without.

    >>> from inout.latent.layout import Layout
    >>> from inout.latent.skeleton import Skeleton
    >>> layout = Layout(Skeleton.of([], [("A", "x"), ("A", "y")]), 2)
    >>> smoothed(LPCFG(layout, np.array([0.5, 0.5, 1, 0, 0, 1]))).parameters
    array([0.5 , 0.5 , 0.95, 0.05, 0.05, 0.95])
    """
    model.refuse_negative("to be smoothed")
    for name, value in (("share", share), ("lexical", lexical)):
        expect(0 <= value <= 1, name, "must be from 0 to 1", value)
    layout, found = model.layout, model.parameters.copy()
    parts = [(layout.lexical(found, rule), lexical) for rule in range(len(layout.skeleton.lexical))]
    parts += [(layout.block(found, rule), share) for rule in range(len(layout.skeleton.binary))]
    for part, amount in parts:
        average = part.mean(axis=0)
        part *= 1 - amount
        part += amount * average
    return _with_sums_of(model, found)
