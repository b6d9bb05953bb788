"""Edges of latent grammars where a review found wrong answers, crashes or waste."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from nltk.tree import Tree

import inout
from inout._core.pipeline import in_threads
from inout.cli.commands import induce
from inout.latent import (
    LPCFG,
    LatentParser,
    Layout,
    SkeletalTrees,
    cluster_nodes,
    fit_spectral,
    graphs,
    smoothed,
    split,
    treebank_model,
)
from inout.latent.spectral.features import both, pair
from inout.learning import latent_grammars
from inout.learning.latent_grammars import fit_latent_em, fit_latent_grammar
from inout.learning.model import _without_gaps


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def trees_of(*texts: str) -> SkeletalTrees:
    return SkeletalTrees.of([Tree.fromstring(text) for text in texts])


AGREEING = ("(S (A x) (A x))", "(S (A y) (A y))")


@pytest.mark.parametrize("method", ["spectral", "em"])
def test_a_treebank_of_single_words(method):
    trees = [Tree.fromstring("(TOP (NN x))"), Tree.fromstring("(TOP (NN y))")] * 3
    grammar = fit_latent_grammar(trees, 2, method)
    assert str(LatentParser(grammar).parse(["y"]).tree) == "(TOP (NN y))"


def test_what_needs_probabilities_refuses_negative_parameters():
    trees = trees_of(*AGREEING)
    model = fit_spectral(trees, 2, fewest=1, support=1, shrinkage=None).model
    assert not model.is_nonnegative
    with pytest.raises(inout.ArgumentError, match="negative"):
        smoothed(model)
    with pytest.raises(inout.ArgumentError, match="negative"):
        split(model, generator())
    grown = split(model, generator(), noise=0)  # which is exact in any basis
    before, after = (m.tree_probabilities(trees) for m in (model, grown))
    np.testing.assert_allclose(after, before, rtol=1e-12)


def test_counts_of_tiny_parameters_are_finite():
    trees = SkeletalTrees.of([Tree.fromstring(t) for t in [AGREEING[0]] * 50 + [AGREEING[1]]])
    layout = Layout(trees.skeleton, 1)
    parameters = np.ones(layout.size)
    parameters[layout.lexical_offsets[0]] = 3e-280
    found = inout.em(LPCFG(layout, parameters), trees, max_iterations=1)
    assert found.model.parameters[layout.lexical_offsets[0]] == pytest.approx(100 / 102)


def test_clusters_do_not_depend_on_where_the_origin_is():
    trees = trees_of("(S (A x) (S (A y) (A x)))")
    vectors = np.array([[0.0], [0.0], [1.0], [0.0], [1.0]])
    here = cluster_nodes(trees, vectors, [1, 2], generator())
    there = cluster_nodes(trees, vectors + 1e9, [1, 2], generator())
    np.testing.assert_array_equal(here, there)
    assert here[1] == here[3] != here[4]


def test_pairs_of_features_do_not_overflow():
    def large_label(trees):
        return trees.labels + 2**40

    assert (both(large_label, large_label)(trees_of(AGREEING[0])) >= 0).all()
    large = np.array([2**40, 2**40, 2**41, -1])
    found = pair(large, large[::-1].copy()).tolist()
    assert found[0] == found[3] == -1
    assert found[1] >= 0
    assert found[1] != found[2] >= 0


def test_vectors_take_no_room_for_values_that_no_label_has():
    estimate = fit_spectral(trees_of(*AGREEING), 10**9, fewest=1, support=1, keep_vectors=True)
    assert estimate.vectors is not None
    assert estimate.vectors.inside.shape == (6, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.0}, "threshold"),
        ({"threshold": 1.0, "centred": False}, "threshold"),
        ({"latent": 0}, "latent"),
    ],
)
def test_wrong_options_of_spectral(options, message):
    with pytest.raises(inout.ArgumentError, match=message):
        fit_spectral(trees_of(*AGREEING), **options)


def test_no_trees():
    with pytest.raises(inout.ArgumentError, match="at least one tree"):
        fit_spectral(SkeletalTrees.of([]), 2)


def test_restarts_need_random_starts():
    data = inout.latent.TrainingSet.of([Tree.fromstring(t) for t in AGREEING])
    with pytest.raises(inout.ArgumentError, match="start='random'"):
        fit_latent_em(data, 2, restarts=1)
    told = []
    model = fit_latent_em(data, 1, after_round=lambda model, latent: told.append(latent))
    assert told == [1]
    np.testing.assert_allclose(model.parameters, treebank_model(data.trees).parameters)


def test_one_tree_is_not_several():
    tree = Tree.fromstring(AGREEING[0])
    for collect in (SkeletalTrees.of, inout.latent.TrainingSet.of):
        with pytest.raises(inout.ArgumentError, match="put it in a list"):
            collect(tree)


def test_labels_may_have_a_plus():
    tree = Tree.fromstring("(TOP (PP (P+D du) (NP (N (+ +)))))")
    grammar = fit_latent_grammar([tree] * 3, 2)
    assert LatentParser(grammar).parse(["du", "+"]).tree == tree
    assert LatentParser(grammar).parse(["du", "+"], "min_risk").tree == tree


def test_trees_deeper_than_the_stack_of_python():
    words = [f"w{k % 7}" for k in range(1500)]
    tree = Tree("A", [words[-1]])
    for word in reversed(words[:-1]):
        tree = Tree("S", [Tree("A", [word]), tree])
    data = inout.latent.TrainingSet.of([tree])
    assert len(data.trees.labels) == 2999
    assert fit_latent_grammar(data, 2).model.sizes.max() == 2


def test_equal_skeletons_are_the_same():
    trees = [Tree.fromstring(t) for t in AGREEING]
    one, other = (inout.latent.TrainingSet.of(trees) for _ in range(2))
    grammar = one.grammar(treebank_model(other.trees))
    assert LatentParser(grammar).parse(["x", "x"]).source == "latent"


def test_charts_are_not_larger_than_memory(monkeypatch):
    trees = [Tree.fromstring("(TOP (S (A a) (S (A a) (A a))))")] * 9
    grammar = fit_latent_grammar(trees, 1)
    whole = LatentParser(grammar, threshold=None)
    assert len(whole.given(["a"] * 9).chart.graph.lefts) > 7
    monkeypatch.setattr(graphs, "LATENT_MOST_EDGES", 7)
    with pytest.raises(graphs.ChartTooLargeError, match="of 9 words has more than 7 edges"):
        whole.parse(["a"] * 9)
    assert whole.parse(["a"] * 3).source == "latent"


def test_methods_are_named():
    with pytest.raises(inout.ArgumentError, match=r"goodman, min_risk, max_rule\. Got 'viterbi'"):
        LatentParser(fit_latent_grammar([Tree.fromstring("(S (A a))")], 1)).parse(["a"], "viterbi")


def test_both_defaults_are_one():
    assert induce.ITERATIONS == latent_grammars.ITERATIONS


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64])
def test_numbers_of_distributions_of_any_kind(dtype):
    given = np.array([3, 100, 3, 7], dtype)
    np.testing.assert_array_equal(_without_gaps(given), [0, 2, 0, 1])
    if dtype != np.uint64:
        wide = np.arange(-100, 101).astype(dtype)
        np.testing.assert_array_equal(_without_gaps(wide), np.arange(201))


def test_sentences_are_read_by_the_thread_that_asks():
    threads = set()

    def source():
        for number in range(100):
            threads.add(threading.get_ident())
            yield number

    given = source()
    results = in_threads(lambda n: n * n, given, threads=2)
    assert [next(results), next(results)] == [0, 1]
    results.close()
    assert threads == {threading.get_ident()}
    assert next(given) <= 8  # few were taken ahead, and the rest is still there
