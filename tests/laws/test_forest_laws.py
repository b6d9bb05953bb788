"""Laws of forests that hold whatever the forest: cuts, gradients, invariances."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import assume, given, settings

from inout import Forest, ForestBuilder
from tests.seeds import examples
from tests.support import assert_close

EXAMPLES = settings(max_examples=examples(40))

WEIGHTS = st.one_of(
    st.floats(-3, 3), st.sampled_from([-math.inf, 0.0, 1e4, -1e4, 700.0, -745.0, 177.5])
)


class Plan:
    """A forest as a list of edges, to be built in more than one way."""

    def __init__(self, weights: list[float], edges: list[tuple[str, tuple[str, ...]]]) -> None:
        self.weights = {f"a{i}": weight for i, weight in enumerate(weights)}
        self.edges = edges
        self.goal = f"d{max((int(head[1:]) for head, _ in edges), default=0)}"

    def build(
        self,
        order: list[int] | None = None,
        names: dict[str, Any] | None = None,
        extra: list[tuple[Any, tuple[Any, ...]]] | None = None,
        weights: dict[str, float] | None = None,
    ) -> Forest:
        builder = ForestBuilder()
        name = (lambda x: x) if names is None else names.__getitem__
        for place in order if order is not None else range(len(self.edges)):
            head, tails = self.edges[place]
            builder.edge(name(head), [name(t) for t in tails])
        for head, tails in extra or []:
            builder.edge(head, tails)
        for axiom, weight in (weights or self.weights).items():
            builder.axiom(name(axiom), weight)
        return builder.build(goal=name(self.goal))


@st.composite
def plans(draw: st.DrawFn, weights: st.SearchStrategy[float] = WEIGHTS) -> Plan:
    """Edges of item d_k use axioms and items below it, with repetitions."""
    values = draw(st.lists(weights, min_size=1, max_size=5))
    items = [f"a{i}" for i in range(len(values))]
    edges = []
    for k in range(draw(st.integers(1, 6))):
        tails = st.lists(st.sampled_from(items), max_size=4)
        for tail in draw(st.lists(tails, min_size=0 if k else 1, max_size=4)):
            edges.append((f"d{k}", tuple(tail)))
        items.append(f"d{k}")
    return Plan(values, edges)


def by_name(forest: Forest) -> dict[Any, float]:
    return dict(forest.marginals())


@st.composite
def trellises(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """Widths of the columns of a trellis, and enough weights for its arcs."""
    widths = draw(st.lists(st.integers(1, 4), min_size=2, max_size=6))
    arcs = widths[0] + sum(a * b for a, b in pairwise(widths))
    return widths, draw(st.lists(WEIGHTS, min_size=arcs, max_size=arcs))


@EXAMPLES
@given(trellises())
def test_every_cut_of_a_trellis_carries_the_whole_sum(drawn: Any) -> None:
    # Each derivation crosses every column once: Σ inside × outside over a column is Z.
    widths, weights = drawn
    builder = ForestBuilder()
    supply = iter(weights)
    arcs: list[list[Any]] = []
    for column, width in enumerate(widths):
        here = []
        for state in range(width):
            sources = [None] if column == 0 else range(widths[column - 1])
            for source in sources:
                arc = builder.axiom(("arc", column, source, state), next(supply))
                here.append(arc)
                below = [] if source is None else [(column - 1, source)]
                builder.edge((column, state), [*below, arc])
        arcs.append(here)
    for state in range(widths[-1]):
        builder.edge("goal", [(len(widths) - 1, state)])
    forest = builder.build(goal="goal")
    log_z = forest.log_partition()
    counts = by_name(forest)
    for column, width in enumerate(widths):
        states = sum(counts.get((column, state), 0.0) for state in range(width))
        crossings = sum(counts.get(arc, 0.0) for arc in arcs[column])
        expected = 0.0 if log_z == -torch.inf else 1.0
        assert_close(states, expected)
        assert_close(crossings, expected)


@EXAMPLES
@given(plans())
def test_counts_are_conserved_at_every_item(plan: Plan) -> None:
    # An item is used as often as its edges are; a tail as often as the edges that use it, plus
    # once if it is the goal.
    forest = plan.build()
    arrays = forest.arrays
    counts, edges = forest.expected_counts().numpy(), forest.edge_counts().numpy()
    used = np.zeros(forest.num_items)
    used[arrays.goals] += float(forest.log_partition() > -torch.inf)
    np.add.at(used, arrays.tails, np.repeat(edges, np.diff(arrays.tail_offsets)))
    assert_close(counts, used)
    for item in range(arrays.num_axioms, forest.num_items):
        first, last = arrays.edge_offsets[item], arrays.edge_offsets[item + 1]
        assert_close(edges[first:last].sum(), counts[item])


@EXAMPLES
@given(plans(st.floats(-2, 2)))
def test_gradient_is_expected_count_is_finite_difference(plan: Plan) -> None:
    forest = plan.build()
    weights = forest.relations["axioms"].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        forest.with_weights(axioms=weights).log_partition(), weights, materialize_grads=True
    )
    assert_close(forest.expected_counts("axioms"), gradient)
    step = 1e-4
    for row in range(len(weights)):
        moved = []
        for sign in (1, -1):
            other = weights.detach().clone()
            other[row] += sign * step
            moved.append(forest.with_weights(axioms=other).log_partition())
        if moved[0] == -torch.inf:
            difference = 0.0
        else:
            difference = float(moved[0] - moved[1]) / (2 * step)
        assert_close(gradient[row], difference, rtol=1e-4, atol=1e-4)


@EXAMPLES
@given(plans(st.floats(-2, 2)), st.floats(-50, 50))
def test_scaling_where_all_derivations_are_of_one_size(plan: Plan, c: float) -> None:
    # With one axiom in every edge, and one edge for every level: log Z moves by c · size.
    builder = ForestBuilder()
    names = [builder.axiom(name, weight) for name, weight in plan.weights.items()]
    for level in range(4):
        below = [(level - 1)] * 2 if level else []
        for name in names:
            builder.edge(level, [*below, name])
    forest = builder.build(goal=3)
    size = 2**4 - 1
    moved = forest.with_weights(axioms=forest.relations["axioms"] + c)
    assert_close(moved.log_partition(), forest.log_partition() + c * size)
    assert_close(moved.expected_counts(), forest.expected_counts())
    assert_close(moved.entropy(), forest.entropy(), rtol=1e-9, atol=1e-9)


@EXAMPLES
@given(plans(), st.floats(-30, 30))
def test_scaling_bounds_any_forest(plan: Plan, c: float) -> None:
    # log Z is convex in the weights: it lies above each of its tangents.
    forest = plan.build()
    log_z = forest.log_partition()
    assume(bool(log_z > -torch.inf))
    weights = forest.relations["axioms"]
    moved = forest.with_weights(axioms=weights + c)
    slope = forest.expected_counts("axioms").sum()
    room = 1e-9 * (1 + abs(float(log_z)) + abs(c))
    assert float(moved.log_partition()) >= float(log_z + c * slope) - room
    # And the slope grows with c.
    difference = float(moved.expected_counts("axioms").sum() - slope)
    assert difference * (1 if c >= 0 else -1) >= -1e-8


@EXAMPLES
@given(plans(), st.randoms(use_true_random=False))
def test_the_order_of_edges_does_not_matter(plan: Plan, random: Any) -> None:
    order = list(range(len(plan.edges)))
    random.shuffle(order)
    forest, other = plan.build(), plan.build(order)
    assert_same(forest, other, {label: label for label in forest.labels})


@EXAMPLES
@given(plans(), st.randoms(use_true_random=False))
def test_names_do_not_matter(plan: Plan, random: Any) -> None:
    items = [*plan.weights, *(head for head, _ in plan.edges)]
    items += [tail for _, tails in plan.edges for tail in tails]
    items = sorted(set(items))
    codes = list(range(len(items)))
    random.shuffle(codes)
    names = {item: (code, str(code)) for item, code in zip(items, codes, strict=True)}
    assert_same(plan.build(), plan.build(names=names), names)


@EXAMPLES
@given(plans(), st.data())
def test_dead_edges_change_nothing(plan: Plan, data: st.DataObject) -> None:
    forest = plan.build()
    heads = sorted({head for head, _ in plan.edges})
    items = [*plan.weights, *heads]
    extra: list[tuple[Any, tuple[Any, ...]]] = []
    for _ in range(data.draw(st.integers(1, 4))):
        head = data.draw(st.sampled_from([*heads, "aside"]))
        below = [i for i in items if i in plan.weights or int(i[1:]) < _level(head)]
        tails = data.draw(st.lists(st.sampled_from(below), max_size=3))
        # Either nothing derives a tail, or the head is of no use.
        if head != "aside":
            tails.insert(data.draw(st.integers(0, len(tails))), "underivable")
        extra.append((head, tuple(tails)))
    other = plan.build(extra=extra)
    assert_same(forest, other, {label: label for label in forest.labels})
    assert len(other.labels) == len(forest.labels)
    # An axiom of weight zero does the same without being trimmed.
    weights = {**plan.weights, "underivable": -math.inf}
    dead = plan.build(extra=extra, weights=weights)
    assert_close(dead.log_partition(), forest.log_partition())
    counts = by_name(dead)
    assert counts.get("underivable", 0.0) == 0.0
    assert dead.count() == forest.count()


def _level(head: str) -> int:
    return 99 if head == "aside" else int(head[1:])


def assert_same(forest: Forest, other: Forest, names: dict[Any, Any]) -> None:
    """Same answers, item by item, up to names."""
    assert_close(other.log_partition(), forest.log_partition())
    assert_close(other.entropy(), forest.entropy(), rtol=1e-9, atol=1e-7)
    assert other.count() == forest.count()
    left, right = by_name(forest), by_name(other)
    assert {names[label] for label in left} == set(right)
    keys = list(left)
    assert_close(np.array([right[names[k]] for k in keys]), np.array([left[k] for k in keys]))
    assert other.num_edges == forest.num_edges
    weights = [tree.log_weight for tree in forest.kbest(5)]
    assert_close(np.array([tree.log_weight for tree in other.kbest(5)]), np.array(weights))


@EXAMPLES
@given(plans(), plans())
def test_sums_and_products_of_forests(first: Plan, second: Plan) -> None:
    # Z of a choice is the sum, Z of a pair the product, and entropies of pairs add up.
    def joined(edges: list[list[str]]) -> Forest:
        builder = ForestBuilder()
        for tag, plan in (("1", first), ("2", second)):
            for name, weight in plan.weights.items():
                builder.axiom(tag + name, weight)
            for head, tails in plan.edges:
                builder.edge(tag + head, [tag + t for t in tails])
        for tails in edges:
            builder.edge("goal", tails)
        return builder.build(goal="goal")

    goals = ["1" + first.goal, "2" + second.goal]
    parts = [first.build(), second.build()]
    logs = torch.stack([part.log_partition() for part in parts])
    assert_close(joined([[goal] for goal in goals]).log_partition(), torch.logaddexp(*logs))
    both = joined([goals])
    assert_close(both.log_partition(), logs.sum())
    if bool((logs > -torch.inf).all()):
        entropies = sum(part.entropy() for part in parts)
        assert_close(both.entropy(), entropies, rtol=1e-9, atol=1e-7)
        counts = [part.count() for part in parts]
        assert both.count() == counts[0] * counts[1]


@EXAMPLES
@given(plans(), st.floats(0, 1))
def test_pruning_keeps_what_is_likely(plan: Plan, threshold: float) -> None:
    forest = plan.build()
    pruned = forest.prune(threshold)
    before, after = float(forest.log_partition()), float(pruned.log_partition())
    assert after <= before + 1e-9 * (1 + abs(before) if math.isfinite(before) else 1)
    assert pruned.num_edges <= forest.num_edges
    assert pruned.count() <= forest.count()
    # Nothing is lost by a threshold of zero but what has no weight.
    everything = forest.prune(0.0)
    assert_close(everything.log_partition(), forest.log_partition())
    assert everything.count() == forest.count() or _has_underflow(forest)


def _has_underflow(forest: Forest) -> bool:
    """Whether some edge is so unlikely that its posterior may be 0 in floating point."""
    return bool((forest.edge_counts() < 1e-300).any())
