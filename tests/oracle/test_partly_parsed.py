"""EM from trees and from sentences without trees, against sums over all trees and values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nltk.tree import Tree
from torch.autograd import gradcheck, gradgradcheck

import inout
from inout.latent import LatentParser, PartlyParsed, TrainingSet, random_model
from inout.learning.latent_grammars import add_sentences, fit_latent_grammar
from tests.oracle.latent_trees import (
    enumerated,
    random_parameters,
    random_tree,
    random_trees,
    seeded,
)
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(6)


def trees_of(skeleton, words):
    """All trees of some words that the rules have, with any symbol on top."""
    names = skeleton.nonterminals
    binary = [tuple(names[s] for s in rule) for rule in skeleton.binary.tolist()]
    lexical = [(names[a], skeleton.words[x]) for a, x in skeleton.lexical.tolist()]

    def below(a, i, j):
        if j == i + 1:
            yield from (Tree(a, [x]) for b, x in lexical if (b, x) == (a, words[i]))
            return
        for head, b, c in binary:
            if head == a:
                for k in range(i + 1, j):
                    for left in below(b, i, k):
                        yield from (Tree(a, [left, right]) for right in below(c, k, j))

    return [tree for a in names for tree in below(a, 0, len(words))] if words else []


def summed(model, trees):
    """log of the sum of p over trees, and the expected numbers of uses of parameters given it."""
    found = [enumerated(model, tree) for tree in trees]
    total = sum(p for p, _ in found)
    if total == 0:
        return -np.inf, np.zeros(len(model.parameters))
    return np.log(total), sum(p * counts for p, counts in found) / total


def case(seed):
    """A model, a corpus of trees and sentences, and for each all trees that it leaves open."""
    rng = np.random.default_rng(seed)
    trees = random_trees(rng, 6)
    model = random_parameters(rng, trees, 2)
    sentences = [random_tree(rng, int(rng.integers(1, 4))).leaves() for _ in range(4)]
    sentences += [["nobody", "knows"]]
    options = [[trees.tree(t)] for t in range(len(trees))]
    options += [trees_of(trees.skeleton, words) for words in sentences]
    return model, PartlyParsed(trees, sentences), options


@pytest.mark.parametrize("seed", SEEDS)
def test_likelihood_and_counts(seed):
    model, corpus, options = case(seed)
    factors = np.random.default_rng(seed).exponential(size=len(corpus))
    expected = [summed(model, trees) for trees in options]
    weights = model.log_weights.requires_grad_()
    values = model.likelihood(corpus)(weights)
    assert_close(values, [value for value, _ in expected])
    (found,) = torch.autograd.grad(values[:-1], weights, torch.from_numpy(factors[:-1]))
    assert_close(found, sum(f * c for f, (_, c) in zip(factors[:-1], expected, strict=False)))
    lengths = [len(trees[0].leaves()) for trees in options[: len(corpus.trees)]]
    assert model.lengths(corpus).tolist() == lengths + [len(x) for x in corpus.sentences]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_step(seed):
    model, corpus, options = case(seed)
    shares = np.array([1.0] * len(corpus.trees) + [0.3] * len(corpus.sentences))
    counts = sum(f * summed(model, trees)[1] for f, trees in zip(shares, options, strict=True))
    totals = np.bincount(model.distributions, counts)[model.distributions]
    expected = np.where(totals > 0, counts / np.where(totals > 0, totals, 1), model.parameters)
    result = inout.em(model, corpus, frequencies=shares, max_iterations=1)
    assert_close(result.model.parameters, expected)
    left_out = [t for t, trees in enumerate(options) if summed(model, trees)[0] == -np.inf]
    assert list(result.left_out) == left_out
    result = inout.em(model, corpus, frequencies=shares, max_iterations=30, tolerance=0.0)
    assert (np.diff(result.log_likelihoods) > -1e-9).all()
    assert result.log_likelihoods[-1] > result.log_likelihoods[0]


@pytest.mark.exhaustive
def test_second_derivatives():
    model, corpus, _ = case(1)
    known = PartlyParsed(corpus.trees, [["x", "y"], ["y"], ["x", "x", "y"]])
    likelihood = model.likelihood(known)
    finite = np.flatnonzero(likelihood(model.log_weights).isfinite())
    weights = model.log_weights.requires_grad_()
    assert gradcheck(lambda w: likelihood(w)[finite], (weights,))
    assert gradgradcheck(lambda w: likelihood(w)[finite], (weights,))


def test_many_sentences_are_cut_into_parts():
    rng = np.random.default_rng(0)
    trees = random_trees(rng, 200, words=8)
    model = random_model(trees, 3, seeded(0))
    sentences = [trees.tree(t).leaves() for t in range(len(trees))]
    whole = model.likelihood(PartlyParsed(trees, sentences))
    assert len(whole.graphs) > 8
    one_by_one = [
        model.likelihood(PartlyParsed([], [words]))(model.log_weights) for words in sentences
    ]
    assert_close(whole(model.log_weights)[len(trees) :], torch.cat(one_by_one))
    weights = model.log_weights.requires_grad_()
    (found,) = torch.autograd.grad(whole(weights)[len(trees) :].sum(), weights)
    parts = [
        torch.autograd.grad(model.likelihood(PartlyParsed([], [words]))(weights).sum(), weights)[0]
        for words in sentences
    ]
    assert_close(found, torch.stack(parts).sum(0), rtol=1e-9, atol=1e-9)


def test_allowed_symbols():
    """What is not allowed is left out, and only that."""
    model, corpus, _ = case(2)
    words = ["x", "y", "x"]
    every = trees_of(model.skeleton, words)
    label = every[0][0].label() if len(every[0][0]) == 2 else every[0][1].label()
    span = (0, len(every[0][0].leaves())) if label == every[0][0].label() else (1, 3)
    allowed = np.ones((3, 4, len(model.sizes)), bool)
    allowed[(*span, model.skeleton.nonterminals.index(label))] = False

    def has(tree):
        left, right = tree
        return (label, span) in {
            (left.label(), (0, len(left.leaves()))),
            (right.label(), (len(left.leaves()), 3)),
        }

    kept = [tree for tree in every if not has(tree)]
    assert len(kept) < len(every)
    found = model.likelihood(PartlyParsed(corpus.trees, [words], [allowed]))(model.log_weights)
    assert_close(found[-1], summed(model, kept)[0])


SURE = "(TOP (S (NP (DT the) (NN dog)) (VP (VB sees) (NP (DT the) (NN cat)))))"
DOUBT = [
    "(TOP (S (NP he) (VP (VB saw) (NP (NP (DT the) (NN cat)) (PP (IN with) (NP glass))))))",
    "(TOP (S (NP he) (VP (VB saw) (NP (DT the) (NN cat)) (PP (IN with) (NP glass)))))",
]


@pytest.mark.parametrize("threshold", [None, 1e-9])
@pytest.mark.parametrize("start", ["split", "random", "spectral"])
def test_sentences_raise_the_likelihood_of_all(start, threshold):
    trees = [Tree.fromstring(text) for text in [SURE] * 4 + DOUBT]
    data = TrainingSet.of(trees, unknown_threshold=0)
    sentences = [tree.leaves() for tree in trees[-2:]] * 3 + [["the"] * 7, []]
    plain = fit_latent_grammar(data, 2, "em", start=start, iterations=4)
    told = []
    more = add_sentences(
        data,
        plain.model,
        sentences,
        threshold=threshold,
        weight=2.0,
        iterations=6,
        smoothing=0.0,
        lexical_smoothing=0.0,
        progress=lambda p: told.append(p.log_likelihood),
    )
    assert (np.diff(told) > -1e-9).all()
    parsers = [LatentParser(data.grammar(model), threshold=None) for model in (plain.model, more)]
    totals = [
        sum(model.tree_log_probs(data.trees)[0])
        + 2 * sum(parser.given(words).log_partition for words in sentences[:-2])
        for model, parser in zip((plain.model, more), parsers, strict=True)
    ]
    assert_close(totals, [told[0], told[-1]], rtol=1e-9)
    assert totals[1] > totals[0]
    whole = fit_latent_grammar(
        data, 2, "em", start=start, iterations=4, sentences=sentences, sentence_weight=2.0
    )
    assert whole.model.is_nonnegative
