"""Forests made from forests (pruned, batched, reweighted, written and read back)."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pytest
import torch

from inout import Facts, FileError, Forest, ForestBuilder, Item, Program
from inout.semirings import Counting, Expectation, Log, Max
from tests.oracle.forest_cases import SEEDS, Case, Distribution, case, with_gradient
from tests.support import assert_close

GOALS = [1, 3]


def pruned_oracle(this: Case, threshold: float) -> tuple[np.ndarray, list[Distribution]]:
    """Which edges survive, and what is left of the goals' derivations."""
    posteriors = sum(goal.mean(goal.edge_counts) for goal in this.goals)
    kept = (posteriors >= threshold - 1e-10) & (posteriors > 0)
    goals = []
    for goal in this.goals:
        trees = [tree for tree in goal.trees if kept[list(tree.edges)].all()]
        goals.append(Distribution(trees, goal.num_items, goal.num_edges))
    return kept, goals


def thresholds(this: Case) -> list[float]:
    """0, 1, and some that no edge's posterior is close to."""
    posteriors = np.unique(sum(goal.mean(goal.edge_counts) for goal in this.goals).round(6))
    between = (posteriors[1:] + posteriors[:-1]) / 2
    chosen = this.rng(90).permutation(between[between < 1])[:4]
    return [0.0, 1.0, *chosen.tolist()]


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_prune(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    forest, leaves = with_gradient(this.forest)
    before = forest.log_partition().reshape(-1)
    for threshold in thresholds(this):
        _, goals = pruned_oracle(this, threshold)
        pruned = forest.prune(threshold)
        log_z = pruned.log_partition().reshape(-1)
        assert_close(log_z, np.array([goal.log_partition for goal in goals]))
        assert bool((log_z <= before + 1e-12).all())
        assert pruned.goals == forest.goals
        counts = sum((g.mean(g.counts) for g in goals), np.zeros(this.num_items))
        by_label = dict(zip(forest.labels, counts, strict=True))
        marginals = dict(pruned.marginals())
        assert marginals == pytest.approx({label: by_label[label] for label in marginals})
        assert sum(by_label[label] for label in set(by_label) - set(marginals)) == 0
        # Differentiated as the smaller sum that it is, into the same relations.
        gradients = torch.autograd.grad(log_z.sum(), list(leaves.values()), materialize_grads=True)
        for name, gradient in zip(leaves, gradients, strict=True):
            expected = this.relation_counts(name, counts)
            assert_close(gradient, expected)
            assert_close(pruned.expected_counts(name), expected)
        numbers = pruned.count()
        assert (numbers if num_goals > 1 else [numbers]) == [len(g.trees) for g in goals]


def test_pruning_until_nothing_is_left() -> None:
    builder = ForestBuilder()
    for name in "ab":
        builder.axiom(name, 0.5)
        builder.edge("S", [name])
    forest, leaves = with_gradient(builder.build(goal="S"))
    assert forest.prune(0.5).count() == 2
    nothing = forest.prune(0.6)
    assert nothing.count() == 0
    assert nothing.argmax() is None
    assert len(nothing.kbest(3)) == 0
    assert_close(nothing.log_partition(), -np.inf)
    assert_close(nothing.entropy(), -np.inf)
    nothing.log_partition().backward()
    assert_close(leaves["axioms"].grad, [0.0, 0.0])
    assert_close(nothing.expected_counts("axioms"), [0.0, 0.0])
    assert nothing.prune(1.0).count() == 0
    assert "S" in nothing.to_text()


def test_a_certain_derivation_survives_every_threshold() -> None:
    # Its posterior is one only up to rounding, more so in a long derivation.
    builder = ForestBuilder()
    rng = np.random.default_rng(5)
    for i in range(3000):
        builder.axiom(("leaf", i), float(rng.normal(scale=9)))
        builder.edge(i, [("leaf", i), *([i - 1] if i else [])])
    assert builder.build(goal=2999).prune(1.0).num_edges == 3000


def forests_of(this: Case) -> list[Forest]:
    """A ragged handful of forests with one goal each."""
    others = [case(seed).forest for seed in range(4)]
    axiom = ForestBuilder()
    axiom.axiom("alone", 0.25, relation="left")
    nothing = ForestBuilder()
    nothing.axiom("unused", 0.25)
    nothing.edge("goal", ["missing"])
    return [
        this.forest,
        *others,
        axiom.build(goal="alone"),
        nothing.build(goal="goal"),
        this.forest,
    ]


def stacked(values: list[Any]) -> torch.Tensor:
    return torch.stack(values)


@pytest.mark.parametrize("seed", SEEDS[:9])
def test_a_batch_answers_as_its_forests_do(seed: int) -> None:
    forests = forests_of(case(seed))
    batch = Forest.batch(forests)
    assert len(batch.goals) == len(forests)
    for query in ("log_partition", "entropy"):
        assert_close(getattr(batch, query)(), stacked([getattr(f, query)() for f in forests]))
    assert batch.count() == [f.count() for f in forests]
    rng = np.random.default_rng(seed)
    tables = [
        dict(zip(f.labels, rng.normal(size=(f.num_items, 2)).tolist(), strict=True))
        for f in forests
    ]

    def function(table: dict[Any, list[float]], which: int) -> Any:
        return lambda label: table[label][which]

    def batched(which: int) -> Any:
        return lambda label: tables[label.element][label.item][which]

    pairs = list(zip(forests, tables, strict=True))
    f, g = batched(0), batched(1)
    expectations = [forest.expectation(function(t, 0)) for forest, t in pairs]
    assert_close(batch.expectation(f), stacked(expectations))
    covariances = [forest.covariance(function(t, 0), function(t, 1)) for forest, t in pairs]
    assert_close(batch.covariance(f, g), stacked(covariances))
    products = [forest.expected_product(function(t, 0), function(t, 1)) for forest, t in pairs]
    assert_close(batch.expected_product(f, g), stacked(products))
    for name in ("left", "right", "axioms"):
        parts = [forest.expected_counts(name) for forest in forests if name in forest.relations]
        assert_close(batch.expected_counts(name), torch.cat(parts))
    marginals = {(x.element, x.item): count for x, count in batch.marginals().items()}  # type: ignore[attr-defined]
    apart = {
        (element, label): count
        for element, forest in enumerate(forests)
        for label, count in forest.marginals().items()
    }
    assert marginals == pytest.approx(apart)
    for semiring in (Log(), Max(), Counting()):
        together = batch.evaluate(semiring)
        parts = [np.asarray(forest.evaluate(semiring))[0] for forest in forests]
        assert np.array_equal(np.asarray(together), np.array(parts)) or np.allclose(
            together, parts, rtol=1e-12
        )
    values = torch.ones(batch.arrays.num_axioms, 1, dtype=torch.float64)
    parts = [f.evaluate(Expectation(1), values[: f.arrays.num_axioms]) for f in forests]
    assert_close(batch.evaluate(Expectation(1), values), torch.cat(parts))


@pytest.mark.parametrize("seed", SEEDS[:9])
def test_a_batch_decodes_as_its_forests_do(seed: int) -> None:
    forests = forests_of(case(seed, integer_weights=True))
    batch = Forest.batch(forests)

    def items(tree: Any, element: int) -> list[Any]:
        assert all(label.element == element for label in tree.items)
        return [label.item for label in tree.items]

    def compare(theirs: Any, ours: Any, element: int) -> None:
        if theirs is None:
            assert ours is None
            return
        assert items(ours, element) == theirs.items
        assert ours.log_weight == pytest.approx(theirs.log_weight)

    def gain(label: Any) -> float:
        return float(sum(map(ord, str(label))) % 3 - 1)

    best, lists = batch.argmax(), batch.kbest(40)
    risks = batch.min_risk(lambda label: gain(label.item))  # type: ignore[attr-defined]
    for element, forest in enumerate(forests):
        compare(forest.argmax(), best[element], element)
        compare(forest.min_risk(gain), risks[element], element)
        ours, theirs = lists[element], forest.kbest(40)
        assert len(ours) == len(theirs)
        for a, b in zip(theirs, ours, strict=True):
            compare(a, b, element)
    derivable = [f for f in forests if f.count()]
    samples = Forest.batch(derivable).sample(5, generator=torch.Generator().manual_seed(1))
    for element, (trees, forest) in enumerate(zip(samples, derivable, strict=True)):
        known = [tree.items for tree in forest.kbest(400)]
        assert len(trees) == 5
        assert all(items(tree, element) in known for tree in trees)


def test_batches_of_batches() -> None:
    forests = [case(seed).forest for seed in range(7)]
    nested = Forest.batch([Forest.batch(forests[:2]), forests[2], Forest.batch(forests[3:])])
    flat = Forest.batch(forests)
    assert_close(nested.log_partition(), flat.log_partition())
    assert_close(nested.entropy(), flat.entropy())
    assert_close(nested.expected_counts("left"), flat.expected_counts("left"))
    f = lambda label: 1.0  # noqa: E731
    assert_close(nested.covariance(f, f), flat.covariance(f, f))
    pruned = nested.prune(0.2)
    assert_close(pruned.log_partition(), stacked([f.prune(0.2).log_partition() for f in forests]))
    assert_close(pruned.entropy(), stacked([f.prune(0.2).entropy() for f in forests]))


def test_gradients_of_a_batch_reach_shared_weights() -> None:
    weights = torch.tensor([-0.5, -0.25, -1.0], dtype=torch.float64, requires_grad=True)
    program = Program(
        'goal += b("S", 0, N) * length(N). b(X,I,K) += rule(X,Y,Z) * b(Y,I,J) * b(Z,J,K).'
        "b(X,I,K) += rule(X,W) * word(W,I,K)."
    )
    rows = [("S", "S", "S"), ("S", "a"), ("S", "b")]
    forests = []
    for sentence in ("ab", "abba", "b"):
        words = [(w, i, i + 1) for i, w in enumerate(sentence)]
        facts = {"rule": Facts(rows, weights), "word": words, "length": [(len(sentence),)]}
        forests.append(program.ground(facts))
    scales = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    (together,) = torch.autograd.grad(Forest.batch(forests).log_partition() @ scales, weights)
    apart = [torch.autograd.grad(f.log_partition(), weights)[0] for f in forests]
    assert_close(together, sum(s * g for s, g in zip(scales, apart, strict=True)))
    second = torch.autograd.functional.hessian(
        lambda w: Forest.batch([f.with_weights(rule=w) for f in forests]).log_partition().sum(),
        weights.detach(),
    )
    parts = [
        torch.autograd.functional.hessian(
            lambda w, f=f: f.with_weights(rule=w).log_partition(), weights.detach()
        )
        for f in forests
    ]
    assert_close(second, sum(parts))


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_with_weights(seed: int) -> None:
    this = case(seed)
    rng = this.rng(95)
    new = {n: torch.from_numpy(rng.normal(size=len(w))) for n, w in this.forest.relations.items()}
    chained = torch.cat(list(new.values()))[this.forest.axiom_rows].numpy()
    trees = this.oracle.derivations(int(this.random.goals[0]))
    used = np.array([t.item_counts(this.num_items) for t in trees]).reshape(-1, this.num_items)
    weights = used[:, : this.random.num_axioms] @ chained
    forest = this.forest.with_weights(**new)
    expected = np.logaddexp.reduce(weights) if len(trees) else -np.inf
    assert_close(forest.log_partition(), expected)
    assert forest.count() == len(trees)
    assert forest.arrays is this.forest.arrays
    # One relation alone; the other keeps its weights.
    partly = this.forest.with_weights(left=new["left"])
    assert torch.equal(partly.relations["right"], this.forest.relations["right"])
    again = forest.with_weights(**this.forest.relations)
    assert_close(again.log_partition(), this.forest.log_partition())


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_json_round_trip(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    copy = Forest.from_json(this.forest.to_json())
    assert copy.goals == this.forest.goals
    assert copy.single_goal == this.forest.single_goal
    assert_close(copy.log_partition(), this.forest.log_partition(), rtol=0, atol=0)
    assert copy.count() == this.forest.count()
    for name in this.forest.relations:
        assert_close(copy.expected_counts(name), this.forest.expected_counts(name))
    # What no goal uses is left out when the document is read; the second time nothing changes.
    assert Forest.from_json(copy.to_json()).to_json() == copy.to_json()


def test_json_keeps_labels() -> None:
    builder = ForestBuilder()
    labels = [Item("β", ("S", 0, ("a", (1, "b")))), ("tuple", (1, "x")), 7, 'naïve\n"', 'a"b\\']
    for label in labels:
        builder.axiom(label, -np.inf if label == 7 else 0.1)
    builder.edge(Item("goal"), labels)
    forest = builder.build(goal=Item("goal"))
    copy = Forest.from_json(forest.to_json())
    assert list(copy.labels) == list(forest.labels)
    assert_close(copy.log_partition(), -np.inf)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-3],
        lambda text: "[]",
        lambda text: "3",
        lambda text: text.replace("inout forest 1", "inout forest 9"),
        lambda text: text.replace('"edges"', '"ends"'),
        lambda text: text.replace('"goals": [2]', '"goals": [77]'),
        lambda text: text.replace('"goals": [2]', '"goals": [-1]'),
        lambda text: text.replace("[[2, [0, 1]]]", "[[2, [0, 2]]]"),
        lambda text: text.replace("[[2, [0, 1]]]", "[[0, [1]]]"),
        lambda text: text.replace('"axiom_rows": [0, 1]', '"axiom_rows": [0, 5]'),
        lambda text: text.replace('"axiom_rows": [0, 1]', '"axiom_rows": [0, -1]'),
        lambda text: text.replace('"axiom_rows": [0, 1]', '"axiom_rows": [0, 1, 0, 1]'),
        lambda text: text.replace("-0.5", "NaN"),
        lambda text: text.replace("-0.5", "Infinity"),
        lambda text: text.replace("-0.5", '"heavy"'),
    ],
)
def test_documents_that_are_no_forests(change: Any) -> None:
    builder = ForestBuilder()
    builder.axiom("a", -0.5)
    builder.axiom("b", -0.75)
    builder.edge("S", ["a", "b"])
    document = builder.build(goal="S").to_json()
    assert change(document) != document
    with pytest.raises(FileError):
        Forest.from_json(change(document))


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_graphviz_names_everything(seed: int) -> None:
    this = case(seed)
    text = this.forest.to_graphviz()
    assert text.startswith("digraph")
    assert text.count("{") == text.count("}") == 1
    for label in this.forest.labels:
        assert f'label="{label}"' in text
    assert text.count("shape=point") == this.forest.num_edges
    assert text.count("arrowhead=none") == this.forest.num_edges
    assert text.count("taillabel") == len(this.forest.arrays.tails)
    assert text.count("peripheries=2") == 1


def test_graphviz_escapes_labels() -> None:
    builder = ForestBuilder()
    builder.axiom('say "a\\b"')
    builder.edge("S", ['say "a\\b"'])
    assert r'label="say \"a\\b\""' in builder.build(goal="S").to_graphviz()


@pytest.mark.parametrize("num_goals", GOALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_pictures_of_any_forest(seed: int, num_goals: int) -> None:
    this = case(seed, num_goals)
    text = this.forest.to_text()
    for goal in this.forest.goals:
        assert str(goal) in text
    page = this.forest._repr_html_()
    assert page.count("<svg") == page.count("</svg>") == 1
    assert not re.search(r"\b(nan|inf)\b", re.sub(r"<style>.*?</style>", "", page, flags=re.S))
    assert f"{this.forest.num_items:,} items" in repr(this.forest)


def test_pictures_escape_labels() -> None:
    nasty = "<script>alert('&\"')</script>"
    builder = ForestBuilder()
    builder.axiom(nasty)
    builder.edge("S", [nasty])
    forest = builder.build(goal="S")
    page = forest.to_html()
    assert nasty not in page
    assert "<script" not in page
    assert html.escape("<script>", quote=False) in page
    assert nasty in forest.to_text()
    assert nasty in str(forest.argmax())
