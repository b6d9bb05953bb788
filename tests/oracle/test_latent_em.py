"""EM for latent-variable grammars against sums over all latent values, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nltk.tree import Tree
from torch.autograd import gradcheck, gradgradcheck

from inout import ArgumentError, em
from inout.latent.clustering import cluster_nodes, clustered_model
from inout.latent.layout import Layout
from inout.latent.model import LPCFG
from inout.latent.skeleton import Skeleton
from inout.latent.starts import latent_sizes, random_model, smoothed, split, treebank_model
from inout.latent.trees import SkeletalTrees
from inout.learning import GenerativeModel
from tests.oracle.latent_trees import enumerated, random_parameters, random_trees, seeded
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(8)


def case(seed: int, count: int = 5) -> tuple[LPCFG, SkeletalTrees, list[Tree]]:
    rng = np.random.default_rng(seed)
    trees = random_trees(rng, count)
    return random_parameters(rng, trees), trees, [trees.tree(t) for t in range(count)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_likelihood_is_the_sum_over_all_latent_values(seed: int):
    model, trees, shown = case(seed)
    expected = [enumerated(model, tree)[0] for tree in shown]
    assert_close(model.likelihood(trees)(model.log_weights), np.log(expected))
    assert_close(model.tree_probabilities(trees), expected)
    assert_close(model.likelihood(shown)(model.log_weights), np.log(expected))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gradient_is_expected_counts(seed: int):
    model, trees, shown = case(seed)
    factors = np.random.default_rng(seed).exponential(size=len(shown))
    expected = sum(f * enumerated(model, tree)[1] for f, tree in zip(factors, shown, strict=True))
    weights = model.log_weights.requires_grad_()
    log_probabilities = model.likelihood(trees)(weights)
    (found,) = torch.autograd.grad(log_probabilities, weights, torch.from_numpy(factors))
    assert_close(found, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_step_divides_the_expected_counts_by_their_sums(seed: int):
    model, trees, shown = case(seed)
    counts = sum(enumerated(model, tree)[1] for tree in shown)
    totals = np.bincount(model.distributions, counts)[model.distributions]
    expected = np.where(totals > 0, counts / np.where(totals > 0, totals, 1), model.parameters)
    assert_close(em(model, trees, max_iterations=1).model.parameters, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_negative_parameters_have_signed_probabilities(seed: int):
    model, trees, shown = case(seed)
    signs = np.where(np.random.default_rng(seed).random(len(model.parameters)) < 0.3, -1.0, 1.0)
    model = LPCFG(model.layout, model.parameters * signs)
    expected = np.array([enumerated(model, tree)[0] for tree in shown])
    logs, found = model.tree_log_probs(trees)
    assert_close(found, np.sign(expected))
    assert_close(logs, np.log(np.abs(expected)), rtol=1e-8, atol=1e-8)  # terms cancel
    assert_close(model.tree_probabilities(trees), expected)


def test_derivatives_of_first_and_second_order():
    model, trees, _ = case(3, count=2)
    weights = model.log_weights.requires_grad_()
    likelihood = model.likelihood(trees)
    assert gradcheck(likelihood, (weights,))
    assert gradgradcheck(likelihood, (weights,))


def test_a_tree_without_probability_is_left_out():
    trees = SkeletalTrees.of(map(Tree.fromstring, ["(S (A x) (A y))", "(S (A y) (A y))"]))
    layout = Layout(trees.skeleton, 2)
    parameters = np.full(layout.size, 0.5)
    layout.lexical(parameters, 0)[:] = 0.0  # A → x
    model = LPCFG(layout, parameters)
    assert model.tree_probabilities(trees)[0] == 0.0
    assert model.tree_log_probs(trees)[1].tolist() == [0.0, 1.0]
    result = em(model, trees, max_iterations=3)
    assert result.left_out == (0,)


def test_weights_beyond_what_a_float_holds_count_as_zero():
    model, trees, _ = case(0)
    weights = model.log_weights.index_fill(0, torch.tensor([3]), -5000.0)
    same = model.log_weights.index_fill(0, torch.tensor([3]), -torch.inf)
    likelihood = model.likelihood(trees)
    assert_close(likelihood(weights), likelihood(same))
    (found,) = torch.autograd.grad(likelihood(weights.requires_grad_()).sum(), weights)
    assert found.isfinite().all()
    assert found[3] == 0


def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(5)
    trees = random_trees(rng, 500, words=12)
    model = random_model(trees, 8, seeded(0))
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            weights = model.log_weights.requires_grad_()
            values = model.likelihood(trees)(weights)
            found.append((values.detach(), torch.autograd.grad(values.sum(), weights)[0]))
    finally:
        torch.set_num_threads(threads)
    for values, gradient in found[1:]:
        assert values.equal(found[0][0])
        assert gradient.equal(found[0][1])


def test_the_model_is_a_generative_model_that_knows_its_lengths():
    model, trees, shown = case(1)
    assert isinstance(model, GenerativeModel)
    assert model.lengths(trees).tolist() == [len(tree.leaves()) for tree in shown]
    again = model.with_log_weights(model.log_weights)
    assert_close(again.parameters, model.parameters)
    result = em(model, trees, max_iterations=2)
    words = sum(len(tree.leaves()) for tree in shown)
    assert_close(result.perplexity, float(np.exp(-result.log_likelihood / words)))


def test_fingerprints_tell_models_apart():
    model, trees, _ = case(1)
    others = [
        LPCFG(Layout(trees.skeleton, 1), np.ones(Layout(trees.skeleton, 1).size)),
        case(2)[0],
        model.with_log_weights(model.log_weights),
    ]
    texts = [other.fingerprint() for other in others]
    assert texts[2] == model.fingerprint()
    assert len({*texts}) == 3


def test_a_run_that_goes_on_ends_as_an_undisturbed_one(tmp_path: Path):
    rng = np.random.default_rng(0)
    trees = random_trees(rng, 40, words=8)
    model = random_model(trees, latent_sizes(trees, 3, support=2), seeded(1))
    options: dict[str, Any] = {"tolerance": 0.0, "max_iterations": 12, "restarts": 1}
    whole = em(model, trees, generator=seeded(2), **options)
    path = tmp_path / "run.safetensors"

    def stop(progress: Any) -> None:
        if (progress.run, progress.iteration) == (1, 5):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        em(model, trees, generator=seeded(2), checkpoint=path, progress=stop, **options)
    rest = em(model, trees, generator=seeded(2), checkpoint=path, resume=True, **options)
    assert rest.log_likelihoods == whole.log_likelihoods
    assert np.array_equal(rest.model.parameters, whole.model.parameters)
    with pytest.raises(ArgumentError, match="corpus was"):
        em(model, trees.select(range(39)), generator=seeded(2), checkpoint=path, resume=True,
           **options)  # fmt: skip


def test_the_treebank_model_has_relative_frequencies():
    trees = SkeletalTrees.of(map(Tree.fromstring, ["(S (A x) (A y))", "(S (A x) (S (A x) (A x)))"]))
    # p(root S) = 1, p(S → A A) = 2/3, p(S → A S) = 1/3, p(x | A) = 4/5.
    expected = [2 / 3 * 4 / 25, 1 / 3 * 2 / 3 * 64 / 125]
    for sizes in (1, 3, [2, 1]):
        model = treebank_model(trees, sizes)
        assert_close(model.tree_probabilities(trees), expected)
        sums = np.bincount(model.distributions, model.parameters)
        assert_close(sums, np.ones(len(sums)))
    # With nothing latent that is where EM ends, in one step.
    other = LPCFG(Layout(trees.skeleton, 1), np.full(Layout(trees.skeleton, 1).size, 0.3))
    assert_close(em(other, trees).model.parameters, treebank_model(trees).parameters)


def test_random_models_are_distributions_that_differ():
    trees = random_trees(np.random.default_rng(0), 20)
    models = [random_model(trees, 3, seeded(seed)) for seed in (0, 0, 1)]
    assert np.array_equal(models[0].parameters, models[1].parameters)
    assert not np.array_equal(models[0].parameters, models[2].parameters)
    sums = np.bincount(models[0].distributions, models[0].parameters)
    assert_close(sums, np.ones(len(sums)))
    assert (models[0].tree_probabilities(trees) > 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_split_keeps_all_probabilities(seed: int):
    model, trees, _ = case(seed)
    expected = model.tree_probabilities(trees)
    sizes = model.sizes + np.random.default_rng(seed).integers(0, 7, len(model.sizes))
    for wanted in (None, sizes):
        found = split(model, seeded(0), noise=0.0, sizes=wanted)
        assert (found.sizes == (2 * model.sizes if wanted is None else wanted)).all()
        assert_close(found.tree_probabilities(trees), expected)
    noisy = split(model, seeded(0), noise=0.05)
    sums = np.bincount(noisy.distributions, noisy.parameters)
    assert_close(sums, np.ones(len(sums)))
    changes = noisy.parameters / split(model, seeded(0), noise=0.0).parameters
    assert 0.85 < changes.min() < 1 < changes.max() < 1.15
    assert_close(noisy.tree_probabilities(trees), expected, rtol=0.5)
    again = split(model, seeded(0), noise=0.05)
    assert np.array_equal(noisy.parameters, again.parameters)


def test_smoothing_moves_values_towards_their_average():
    model, _, _ = case(6, count=30)
    found = smoothed(model, share=0.2, lexical=0.4)
    sums = np.bincount(found.distributions, found.parameters)
    assert_close(sums, np.ones(len(sums)))
    layout = model.layout
    both = set(layout.skeleton.binary[:, 0].tolist()) & set(layout.skeleton.lexical[:, 0].tolist())
    assert both  # one that is scaled in the end
    assert_close(found.parameters[: layout.root_offsets[-1]],
                 model.parameters[: layout.root_offsets[-1]])  # fmt: skip
    for rule, (a, *_) in enumerate(layout.skeleton.binary.tolist()):
        before, after = (layout.block(x.parameters, rule) for x in (model, found))
        if a not in both:
            assert_close(after, 0.8 * before + 0.2 * before.mean(axis=0))
    for rule, (a, _) in enumerate(layout.skeleton.lexical.tolist()):
        before, after = (layout.lexical(x.parameters, rule) for x in (model, found))
        if a not in both:
            assert_close(after, 0.6 * before + 0.4 * before.mean(axis=0))
    # All the way, a value is like any other.
    flat = smoothed(model, share=1.0, lexical=1.0)
    for rule in range(len(layout.skeleton.binary)):
        block = layout.block(flat.parameters, rule)
        assert_close(block, np.broadcast_to(block[0], block.shape).copy())


def test_clusters_are_found_where_there_are_some():
    trees = random_trees(np.random.default_rng(1), 60, words=6)
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 3, len(trees.labels))
    centres = np.array([[0.0, 0.0], [90.0, 0.0], [0.0, 90.0]])
    vectors = centres[truth] + rng.normal(size=(len(truth), 2))
    found = cluster_nodes(trees, vectors, 3, seeded(0))
    for a in range(len(trees.skeleton.nonterminals)):
        pairs = {*zip(truth[trees.labels == a], found[trees.labels == a], strict=True)}
        assert len(pairs) == 3  # a permutation
    assert np.array_equal(found, cluster_nodes(trees, vectors, 3, seeded(0)))
    assert set(cluster_nodes(trees, np.zeros_like(vectors), 3, seeded(0)).tolist()) == {0}


def test_a_clustered_model_counts_the_assigned_values():
    trees = SkeletalTrees.of([Tree.fromstring("(S (A x) (S (A y) (A x)))")])
    values = np.array([1, 2, 0, 0, 1])  # S₁ → A₂ S₀, S₀ → A₀ A₁
    model = clustered_model(trees, values, [2, 4], smoothing=0.0)
    assert_close(model.tree_probabilities(trees), [1.0])
    mixed = clustered_model(trees, values, [2, 4], smoothing=0.25)
    sums = np.bincount(mixed.distributions, mixed.parameters)
    assert_close(sums, np.ones(len(sums)))
    layout = mixed.layout
    assert_close(layout.root(mixed.parameters, 0), [0.125, 0.875])
    assert_close(layout.block(mixed.parameters, 0)[1, 2, 0], 0.75 + 0.25 / 2 / 8)  # S → A S
    # A₁ and A₂ have x, A₀ has y, A₃ no node: there is the treebank's share alone.
    share = 0.25 * 2 / 3
    expected = [share, 0.75 + share, 0.75 + share, 2 / 3]
    assert_close(layout.lexical(mixed.parameters, 0), expected)
    assert (mixed.parameters[layout.root_offsets[-1] :] > 0).all()
    result = em(mixed, trees, max_iterations=30)
    assert result.log_likelihood > np.log(0.9)


def test_a_sample_has_the_frequencies_of_the_model():
    rng = np.random.default_rng(11)
    trees = SkeletalTrees.of(map(Tree.fromstring, ["(S (A x) (S (A y) (A x)))", "(S (S y) (A x))"]))
    layout = Layout(trees.skeleton, [2, 3])
    parameters = rng.exponential(size=layout.size) ** 3
    parameters[layout.lexical_offsets[-1] :] *= 0.2  # for small trees
    parameters /= np.bincount(layout.distributions, parameters)[layout.distributions]
    model = LPCFG(layout, parameters)
    n = 100_000
    drawn = model.sample(n, seeded(0))
    assert len(drawn) == n
    # Read as arrays say it, and made anew from the text of the trees.
    counts: dict[str, int] = {}
    small = np.flatnonzero(np.isin(np.diff(drawn.offsets), (3, 5)))
    for t in small.tolist():
        text = drawn.tree(t).pformat(margin=10**6)
        counts[text] = counts.get(text, 0) + 1
    shown = sorted(counts, key=counts.__getitem__)[-20:]
    expected = np.array([enumerated(model, Tree.fromstring(text))[0] for text in shown])
    errors = np.array([counts[text] for text in shown]) / n - expected
    assert (np.abs(errors) < 5 * np.sqrt(expected / n)).all()
    again = SkeletalTrees.of((drawn.tree(t) for t in range(50)), drawn.skeleton)
    head = drawn.select(range(50))
    for name in ("offsets", "labels", "rules", "lefts", "rights"):
        assert np.array_equal(getattr(again, name), getattr(head, name))
    assert np.array_equal(model.sample(50, seeded(1)).rules, model.sample(50, seeded(1)).rules)
    assert len(model.sample(0, seeded(0))) == 0


@pytest.mark.exhaustive
def test_em_on_a_sample_reaches_the_likelihood_of_its_model():
    rng = np.random.default_rng(4)
    rules = [("S", "A", "S"), ("S", "A", "A")], [("A", x) for x in "xyz"]
    layout = Layout(Skeleton.of(*rules), 2)
    weights = rng.exponential(size=layout.size) ** 3
    for a in layout.skeleton.lexical[:, 0].tolist()[:1]:
        layout.root(weights, a)[:] = 0.0
    groups = layout.distributions
    truth = LPCFG(layout, weights / np.bincount(groups, weights)[groups])
    trees = truth.sample(400, seeded(0))
    reached = truth.tree_log_probs(trees)[0].sum()
    flat = treebank_model(trees).tree_log_probs(trees)[0].sum()
    assert flat < reached - 20  # there is something to learn
    start = random_model(trees, 2, seeded(1))
    result = em(start, trees, restarts=3, generator=seeded(2), max_iterations=100)
    assert result.log_likelihood >= reached


def test_misuse_is_refused():
    model, trees, shown = case(0)
    negative = LPCFG(model.layout, -model.parameters)
    with pytest.raises(ArgumentError, match="parameters must not be negative"):
        negative.log_weights  # noqa: B018  # which `em` asks for first
    with pytest.raises(ArgumentError, match="negative"):
        negative.sample(1, seeded(0))
    with pytest.raises(ArgumentError, match="sum to 1"):
        LPCFG(model.layout, 2 * model.parameters).sample(1, seeded(0))
    other = random_trees(np.random.default_rng(99), 9)
    with pytest.raises(ArgumentError, match="skeleton of the model"):
        em(model, other)
    with pytest.raises(ArgumentError, match="rules of the skeleton"):
        model.likelihood([Tree.fromstring("(Q z)")])
    with pytest.raises(ArgumentError, match="at least one sentence"):
        em(model, trees.select([]))
    with pytest.raises(ArgumentError, match=r"shape \[\d+\]"):
        model.likelihood(trees)(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(ArgumentError, match="noise must be"):
        split(model, seeded(0), noise=1.5)
    with pytest.raises(ArgumentError, match="at least those of the model"):
        split(LPCFG(Layout(trees.skeleton, 2), np.ones(Layout(trees.skeleton, 2).size)),
              seeded(0), sizes=1)  # fmt: skip
    with pytest.raises(ArgumentError, match="share must be"):
        smoothed(model, share=-0.1)
    with pytest.raises(ArgumentError, match="lexical must be"):
        smoothed(model, lexical=1.1)
    with pytest.raises(ArgumentError, match="latent must be"):
        latent_sizes(trees, 0)
    count = len(trees.labels)
    with pytest.raises(ArgumentError, match="one for each"):
        cluster_nodes(trees, np.zeros((count + 1, 2)), 2, seeded(0))
    with pytest.raises(ArgumentError, match="finite"):
        cluster_nodes(trees, np.full((count, 2), np.nan), 2, seeded(0))
    with pytest.raises(ArgumentError, match="below the size"):
        clustered_model(trees, np.full(count, 2), 2)
    with pytest.raises(ArgumentError, match="smoothing must be"):
        clustered_model(trees, np.zeros(count, np.int64), 2, smoothing=2.0)


def test_a_grammar_that_does_not_end_is_given_up():
    trees = SkeletalTrees.of([Tree.fromstring("(S (S x) (S x))")])
    layout = Layout(trees.skeleton, 1)
    with pytest.raises(ArgumentError, match="max_nodes must be larger"):
        LPCFG(layout, np.array([1.0, 0.2, 0.8])).sample(100, seeded(0), max_nodes=20_000)
    with pytest.raises(ArgumentError, match="every value that is met"):
        LPCFG(Layout(trees.skeleton, 1), np.array([1.0, 0.0, 0.0])).sample(1, seeded(0))
