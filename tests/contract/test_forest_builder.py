"""What the builder accepts and refuses, and what every query of a forest refuses."""

from __future__ import annotations

import math
import re
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from inout import ArgumentError, CycleError, Forest, ForestBuilder, ForestError, InoutError, Item
from tests.support import assert_close


def build(
    edges: list[tuple[Any, list[Any]]], goal: Any, axioms: tuple[Any, ...] = ("a", "b")
) -> Forest:
    builder = ForestBuilder()
    for name in axioms:
        builder.axiom(name)
    for head, tails in edges:
        builder.edge(head, tails)
    return builder.build(goal=goal)


# ------------------------------------------------------------------------------- order


def test_edges_come_in_any_order() -> None:
    edges = [("S", ["T", "U"]), ("T", ["U", "a"]), ("U", ["a", "b"]), ("S", ["a"])]
    results = set()
    for order in permutations(edges):
        builder = ForestBuilder()
        for position, (head, tails) in enumerate(order):
            builder.edge(head, tails)
            if position == 1:
                builder.axiom("b", -0.5)
        builder.axiom("a", -0.25)
        forest = builder.build(goal="S")
        levels = [list(forest.labels).index(x) for x in ("U", "T", "S")]
        assert levels == sorted(levels)
        results.add((round(forest.log_partition().item(), 12), forest.num_edges, forest.num_items))
    assert len(results) == 1


def test_items_stand_level_by_level_with_tails_first() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        builder = ForestBuilder()
        builder.axiom(0)
        names = [0]
        edges = []
        for item in range(1, 30):
            for _ in range(int(rng.integers(1, 4))):
                edges.append((item, rng.choice(names, int(rng.integers(0, 4))).tolist()))
            names.append(item)
        for place in rng.permutation(len(edges)):
            builder.edge(*edges[place])
        arrays = builder.build(goal=29).arrays
        level = np.repeat(np.arange(len(arrays.level_offsets) - 1), np.diff(arrays.level_offsets))
        assert len(level) == arrays.num_items
        assert bool((level[: arrays.num_axioms] == 0).all())
        for edge, head in enumerate(arrays.heads):
            tails = arrays.tails[arrays.tail_offsets[edge] : arrays.tail_offsets[edge + 1]]
            assert bool((level[tails] < level[head]).all())
        # No item stands higher than it must.
        for head in range(arrays.num_axioms, arrays.num_items):
            edges_of = range(arrays.edge_offsets[head], arrays.edge_offsets[head + 1])
            below = [
                level[t]
                for e in edges_of
                for t in arrays.tails[arrays.tail_offsets[e] : arrays.tail_offsets[e + 1]]
            ]
            assert level[head] == 1 + max(below, default=0)


def test_edges_of_an_item_keep_their_order() -> None:
    forest = build([("S", ["b"]), ("T", ["a"]), ("S", ["T"]), ("S", ["a", "a"])], "S")
    trees = forest.kbest(5)  # all of weight one: ties come in the order of the edges
    assert [tree.axioms for tree in trees] == [["b"], ["a"], ["a", "a"]]


def test_a_builder_can_be_built_from_again() -> None:
    builder = ForestBuilder()
    builder.axiom("a", 1.0)
    builder.edge("S", ["a"])
    first = builder.build(goal="S")
    builder.edge("S", ["a", "a"])
    second = builder.build(goal="S")
    assert first.count() == 1
    assert second.count() == 2
    assert builder.build(goal="a").count() == 1


def test_several_goals_keep_their_order_and_may_repeat() -> None:
    builder = ForestBuilder()
    builder.axiom("a", 0.5)
    builder.edge("S", ["a", "a"])
    builder.edge("T", ["S", "a"])
    forest = builder.build(goals=["T", "a", "S", "T"])
    assert forest.goals == ["T", "a", "S", "T"]
    assert_close(forest.log_partition(), [1.5, 0.5, 1.0, 1.5])
    assert_close(forest.expected_counts("axioms"), [3.0 + 1 + 2 + 3])
    assert_close(forest.entropy(), [0.0] * 4)
    assert [tree.axioms for tree in forest.argmax()] == [["a"] * n for n in (3, 1, 2, 3)]
    # One goal in a list is still a list.
    assert builder.build(goals=["S"]).log_partition().shape == (1,)


# ---------------------------------------------------------------------------- trimming


def test_what_no_goal_uses_is_left_out() -> None:
    forest = build([("S", ["a"]), ("above", ["S"]), ("aside", ["b"]), ("aside", ["a", "b"])], "S")
    assert set(forest.labels) == {"S", "a"}
    assert forest.num_edges == 1
    assert_close(forest.expected_counts("axioms"), [1.0, 0.0])


def test_what_cannot_be_derived_is_left_out() -> None:
    forest = build(
        [
            ("S", ["a"]),
            ("S", ["a", "nothing"]),
            ("S", ["T", "b"]),
            ("T", ["U"]),
            ("U", ["nothing", "a"]),
        ],
        "S",
    )
    assert set(forest.labels) == {"S", "a"}
    assert forest.num_edges == 1


def test_items_used_only_beside_underivable_ones_are_left_out() -> None:
    forest = build([("S", ["a"]), ("S", ["T", "nothing"]), ("T", ["b"])], "S")
    assert set(forest.labels) == {"S", "a"}


def test_a_goal_that_cannot_be_derived_stays() -> None:
    for edges in ([("S", ["nothing"])], [("S", ["T", "a"]), ("T", ["nothing"])]):
        forest = build(edges, "S")
        assert list(forest.labels) == ["S"]
        assert forest.num_edges == 0
        assert_close(forest.log_partition(), -math.inf)
    # Also where another goal could have used it.
    builder = ForestBuilder()
    builder.axiom("a")
    builder.edge("S", ["dead"])
    builder.edge("S", ["a"])
    builder.edge("dead", ["nothing"])
    forest = builder.build(goals=["dead", "S"])
    assert forest.goals == ["dead", "S"]
    assert_close(forest.log_partition(), [-math.inf, 0.0])
    assert forest.count() == [0, 1]


def test_axioms_of_weight_zero_are_kept() -> None:
    # Their weight may change later.
    builder = ForestBuilder()
    builder.axiom("a", -math.inf)
    builder.edge("S", ["a"])
    forest = builder.build(goal="S")
    assert forest.count() == 0
    assert forest.with_weights(axioms=torch.zeros(1)).count() == 1


# ----------------------------------------------------------------------------- refusals


def test_a_cycle_is_named_in_order() -> None:
    builder = ForestBuilder()
    builder.axiom("a")
    builder.edge("S", ["a", "T"])
    builder.edge("T", ["U"])
    builder.edge("U", ["a", "V"])
    builder.edge("V", ["T", "a"])
    builder.edge("V", ["a"])
    with pytest.raises(CycleError, match="cycle") as caught:
        builder.build(goal="S")
    items = caught.value.items
    assert sorted(items) == ["T", "U", "V"]
    # Each is derived from the next, and the last from the first.
    uses = {("T", "U"), ("U", "V"), ("V", "T")}
    assert set(zip(items, [*items[1:], items[0]], strict=True)) == uses
    assert " <- ".join([*items, items[0]]) in str(caught.value)
    assert isinstance(caught.value, ForestError)


def test_an_item_that_needs_itself() -> None:
    with pytest.raises(CycleError, match=re.escape('p("x",1) <- p("x",1)')):
        build(
            [("S", [Item("p", ("x", 1))]), (Item("p", ("x", 1)), [Item("p", ("x", 1)), "a"])], "S"
        )


def test_a_long_cycle_does_not_exhaust_the_stack() -> None:
    builder = ForestBuilder()
    for i in range(50_000):
        builder.edge(i, [(i + 1) % 50_000])
    with pytest.raises(CycleError) as caught:
        builder.build(goal=7)
    assert len(caught.value.items) == 50_000


def test_a_cycle_that_no_goal_reaches_is_no_matter() -> None:
    forest = build([("S", ["a"]), ("x", ["y"]), ("y", ["x", "S"])], "S")
    assert forest.count() == 1


def test_axioms_are_declared_once_and_never_derived() -> None:
    builder = ForestBuilder()
    builder.axiom("a")
    with pytest.raises(ForestError, match="axiom a is declared twice"):
        builder.axiom("a", 2.0)
    with pytest.raises(ForestError, match="declared twice"):
        builder.axiom("a", relation="another")
    builder.edge("a", ["b"])
    builder.edge("S", ["a"])
    with pytest.raises(ForestError, match="a is an axiom and cannot also be derived"):
        builder.build(goal="S")


def test_goals_must_be_known() -> None:
    builder = ForestBuilder()
    builder.axiom("a")
    builder.edge("S", ["a"])
    with pytest.raises(ForestError, match="goal R is neither an axiom nor the head of an edge"):
        builder.build(goal="R")
    with pytest.raises(ForestError, match="goal R is neither"):
        builder.build(goals=["S", "R"])
    with pytest.raises(ForestError, match="goal= or goals="):
        builder.build()
    with pytest.raises(ForestError, match="goal= or goals="):
        builder.build(goal="S", goals=["S"])
    with pytest.raises(ForestError, match="at least one goal"):
        builder.build(goals=[])
    with pytest.raises(ForestError, match="is neither"):
        ForestBuilder().build(goal="S")


def test_a_string_is_no_list_of_tails() -> None:
    with pytest.raises(ForestError, match=r"must be a list of labels\. Got the string 'NP'"):
        ForestBuilder().edge("S", "NP")


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_must_be_numbers(weight: float) -> None:
    builder = ForestBuilder()
    builder.axiom("a", 1.0, relation="rule")
    builder.axiom("b", weight, relation="rule")
    builder.edge("S", ["a", "b"])
    message = rf"log_weights of 'rule' must be finite or -inf\. Got {weight} at row 1"
    with pytest.raises(ArgumentError, match=message):
        builder.build(goal="S")
    good = builder.build(goal="S", log_weights={"rule": torch.tensor([0.5, -math.inf])})
    with pytest.raises(ArgumentError, match=r"rule must be finite or -inf\. Got .* at row 0"):
        good.with_weights(rule=torch.tensor([weight, 0.0]))


def test_weights_must_fit_their_relation() -> None:
    builder = ForestBuilder()
    builder.axiom("a")
    builder.edge("S", ["a"])
    with pytest.raises(ForestError, match=r"relations without axioms: \['rule'\]"):
        builder.build(goal="S", log_weights={"rule": torch.zeros(1)})
    with pytest.raises(ArgumentError, match=r"'axioms' must have shape \[1\]. Got \[2\]"):
        builder.build(goal="S", log_weights={"axioms": torch.zeros(2)})
    with pytest.raises(ArgumentError, match=r"must be a float tensor\. Got torch\.int64"):
        builder.build(goal="S", log_weights={"axioms": torch.zeros(1, dtype=torch.int64)})
    forest = builder.build(goal="S")
    with pytest.raises(ArgumentError, match=r"axioms must have shape \[1\]. Got \[1, 1\]"):
        forest.with_weights(axioms=torch.zeros(1, 1))
    with pytest.raises(ArgumentError, match="no facts are called 'rule'; this forest has axioms"):
        forest.with_weights(rule=torch.zeros(1))


# -------------------------------------------------------------- arguments of the queries

GENERATOR = torch.Generator()
REFUSED = [
    (lambda f: f.kbest(-1), "k must be an integer of at least 0. Got -1"),
    (lambda f: f.kbest(True), "k must be an integer of at least 0. Got True"),
    (lambda f: f.kbest(2.0), "k must be an integer of at least 0. Got 2.0"),
    (lambda f: f.sample(-3, generator=GENERATOR), "n must be an integer of at least 0. Got -3"),
    (lambda f: f.sample(True, generator=GENERATOR), "n must be an integer of at least 0. Got True"),
    (lambda f: f.sample(1.5, generator=GENERATOR), "n must be an integer of at least 0. Got 1.5"),
    (lambda f: f.prune(2), r"threshold must be a probability in \[0, 1\]. Got 2"),
    (lambda f: f.prune(-0.1), r"threshold must be a probability in \[0, 1\]. Got -0.1"),
    (lambda f: f.prune(math.nan), r"threshold must be a probability in \[0, 1\]. Got nan"),
    (lambda f: f.with_tier("tpu"), "tier must be .* Got 'tpu'"),
    (lambda f: f.expected_counts("rule"), "no facts are called 'rule'; this forest has axioms"),
    (lambda f: f.expectation(torch.zeros(2)), r"one value per item, \[4\]. Got \[2\]"),
    (lambda f: f.expectation(torch.zeros(4, 1)), r"one value per item, \[4\]. Got \[4, 1\]"),
    (lambda f: f.expectation({"axioms": [1.0]}), r"one value per fact, \[2\]. Got \[1\]"),
    (lambda f: f.expectation({"rule": [1.0]}), r"relations that have no facts: \['rule'\]"),
    (lambda f: f.expectation(3.0), "f must be a tensor, a mapping of relations or a function"),
    (lambda f: f.expectation({"axioms": ["x", "y"]}), r"f\['axioms'\] must be numbers"),
    (lambda f: f.expectation(lambda label: label), "what f gives must be numbers"),
    (lambda f: f.covariance(torch.zeros(2), torch.zeros(4)), "one value per item"),
    (lambda f: f.covariance(torch.zeros(4), torch.zeros(2)), "one value per item"),
    (lambda f: f.expected_product(torch.zeros(4), {"x": []}), "relations that have no facts"),
    (lambda f: f.min_risk(torch.zeros(7)), "one value per item"),
    (lambda f: f.min_risk({"rule": []}), "relations that have no facts"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_queries_refuse_bad_arguments(place: int) -> None:
    query, message = REFUSED[place]
    forest = build([("S", ["a", "T"]), ("T", ["b"])], "S")
    assert forest.num_items == 4
    with pytest.raises(ArgumentError, match=message):
        query(forest)


def test_all_refusals_have_one_root() -> None:
    assert issubclass(ArgumentError, InoutError)
    assert issubclass(ForestError, InoutError)
    assert issubclass(CycleError, ForestError)
    assert issubclass(ArgumentError, ValueError)


def test_queries_that_make_no_sense() -> None:
    builder = ForestBuilder()
    builder.axiom("a")
    builder.edge("S", ["a"])
    many, one = builder.build(goals=["S", "a"]), builder.build(goal="S")
    with pytest.raises(ForestError, match="one goal; use kbest"):
        many.derivations()
    with pytest.raises(ForestError, match="only forests with one goal each"):
        Forest.batch([one, many])
    with pytest.raises(ForestError, match="at least one forest"):
        Forest.batch([])
    with pytest.raises(ForestError, match="belongs to another forest"):
        one.log_prob(builder.build(goal="S").argmax())
    # New weights are no other forest.
    assert_close(one.with_weights(axioms=torch.ones(1)).log_prob(one.argmax()), 0.0)


def test_queries_change_nothing() -> None:
    builder = ForestBuilder()
    for name, weight in (("a", 0.5), ("b", -1.0)):
        builder.axiom(name, weight)
        builder.edge("S", [name])
    weights = torch.tensor([0.5, -1.0], dtype=torch.float64)
    forest = builder.build(goal="S", log_weights={"axioms": weights})
    arrays = [np.array(x) for x in vars(forest.arrays).values()]
    f = torch.ones(forest.num_items, dtype=torch.float64)
    forest.log_partition()
    forest.covariance(f, f)
    forest.prune(0.5)
    forest.kbest(3)
    forest.sample(3, generator=GENERATOR)
    Forest.batch([forest, forest])
    assert not weights.requires_grad
    assert not f.requires_grad
    assert weights.tolist() == [0.5, -1.0]
    for before, after in zip(arrays, vars(forest.arrays).values(), strict=False):
        assert np.array_equal(before, after)
    with pytest.raises(AttributeError):
        forest.tier = "gpu"  # type: ignore[misc]
