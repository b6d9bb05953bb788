"""The awkward forests: empty, deep, of huge and tiny weights, in single precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from inout import Forest, ForestBuilder, ForestError, Program
from inout.semirings import Counting, Log
from tests.oracle.forest_cases import SEEDS, case, random_values, with_gradient
from tests.support import assert_close

TIERS = ["cpu", "gpu", "reference"]
GENERATOR = torch.Generator()


def weighted(edges: list[tuple[str, list[str]]], goal: str, **weights: float) -> Forest:
    """A small forest; `weights` are its axioms."""
    builder = ForestBuilder()
    for head, tails in edges:
        builder.edge(head, tails)
    for name, weight in weights.items():
        builder.axiom(name, weight)
    return builder.build(goal=goal)


# ------------------------------------------------------------------- nothing to derive


DEAD = -math.inf
NO_DERIVATION = {
    "no edge": lambda: weighted([("S", ["missing"])], "S"),  # trimmed away
    "no weight": lambda: weighted([("S", ["a", "b"])], "S", a=0.5, b=DEAD),
    "deeper": lambda: weighted(
        [("S", ["T", "a"]), ("T", ["b"]), ("T", ["b", "b"])], "S", a=1.0, b=DEAD
    ),
    "axiom": lambda: weighted([], "a", a=DEAD),
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", NO_DERIVATION)
def test_no_derivation_at_all(name: str, tier: Any) -> None:
    forest, leaves = with_gradient(NO_DERIVATION[name]().with_tier(tier))
    assert_close(forest.log_partition(), -math.inf)
    assert_close(forest.expected_counts(), np.zeros(forest.num_items))
    for order in range(1, 4):
        value = forest.log_partition()
        for _ in range(order):
            gradients = torch.autograd.grad(
                value, list(leaves.values()), create_graph=True, materialize_grads=True
            )
            value = sum((g.sum() for g in gradients), torch.zeros(()))
            if not value.requires_grad:
                break
        for gradient in gradients:
            assert_close(gradient, np.zeros(len(gradient)))
    assert_close(forest.entropy(), -math.inf)
    ones = torch.ones(forest.num_items, dtype=torch.float64)
    assert_close(forest.expectation(ones), 0.0)
    assert_close(forest.covariance(ones, ones), 0.0)
    assert_close(forest.expected_product(ones, ones), 0.0)
    assert_close(forest.local_probabilities(), np.zeros(forest.num_edges))
    assert_close(forest.edge_counts(), np.zeros(forest.num_edges))
    assert forest.count() == 0
    assert forest.argmax() is None
    assert forest.min_risk() is None
    assert forest.min_risk(ones) is None
    assert len(forest.kbest(5)) == 0
    assert list(forest.derivations()) == []
    assert len(forest.sample(0, generator=GENERATOR)) == 0
    with pytest.raises(ForestError, match="no derivation to sample"):
        forest.sample(1, generator=GENERATOR)
    assert forest.prune(0.0).count() == 0
    assert Forest.batch([forest, forest]).count() == [0, 0]
    assert forest.to_text()
    assert "<svg" in forest.to_html()


def test_a_program_without_goals() -> None:
    forest = Program("goal(X) += fact(X).").ground({"fact": []})
    assert forest.goals == []
    nothing = torch.zeros(0, dtype=torch.float64)
    for answer in (
        forest.log_partition(),
        forest.entropy(),
        forest.expectation(nothing),
        forest.covariance(nothing, nothing),
        forest.expected_product(nothing, nothing),
        forest.expected_counts("fact"),
    ):
        assert_close(answer, nothing)
    assert forest.count() == forest.argmax() == forest.kbest(2) == forest.min_risk() == []
    assert forest.sample(2, generator=GENERATOR) == []
    assert Forest.from_json(forest.to_json()).goals == []
    assert forest.to_text()
    assert forest.to_html()
    assert forest.to_graphviz()
    assert forest.prune(0.5).goals == []


# ------------------------------------------------------------------- one axiom, no tails


@pytest.mark.parametrize("tier", TIERS)
def test_an_axiom_as_the_goal(tier: Any) -> None:
    forest, leaves = with_gradient(weighted([], "a", a=-0.75).with_tier(tier))
    assert_close(forest.log_partition(), -0.75)
    (gradient,) = torch.autograd.grad(forest.log_partition(), leaves["axioms"])
    assert_close(gradient, [1.0])
    assert_close(forest.expected_counts("axioms"), [1.0])
    assert_close(forest.entropy(), 0.0)
    assert forest.count() == 1
    best = forest.argmax()
    assert best.items == best.axioms == ["a"]
    assert best.log_weight == -0.75
    assert str(best) == "a"
    assert forest.min_risk() == best
    assert list(forest.kbest(3)) == list(forest.derivations()) == [best]
    samples = forest.sample(4, generator=GENERATOR)
    assert list(samples) == [best] * 4
    assert_close(samples.log_weights, [-0.75] * 4)
    assert_close(forest.log_prob(best), 0.0)
    assert forest.prune(1.0).count() == 1


def test_edges_without_tails_weigh_one() -> None:
    forest = weighted([("S", []), ("S", ["T", "T"]), ("T", []), ("T", [])], "S")
    assert_close(forest.log_partition(), math.log(5))
    assert forest.count() == 5
    assert_close(forest.expected_counts(), [8 / 5, 1.0])  # T, then S
    assert forest.argmax().axioms == []
    assert len(forest.sample(10, generator=GENERATOR)) == 10
    assert Forest.from_json(forest.to_json()).count() == 5


def test_duplicate_edges_count_twice() -> None:
    forest = weighted([("S", ["a"]), ("S", ["b"]), ("S", ["a"])], "S", a=0.0, b=0.0)
    assert_close(forest.log_partition(), math.log(3))
    assert_close(forest.expected_counts("axioms"), [2 / 3, 1 / 3])
    trees = forest.kbest(10)
    assert [tree.axioms for tree in trees] == [["a"], ["b"], ["a"]]
    assert len(set(trees)) == 3


def test_an_item_twice_in_one_edge() -> None:
    forest, leaves = with_gradient(
        weighted([("S", ["T", "T"]), ("T", ["a"]), ("T", ["b"])], "S", a=0.5, b=-0.5)
    )
    a, b = math.exp(0.5), math.exp(-0.5)
    assert_close(forest.log_partition(), 2 * math.log(a + b))
    assert_close(forest.expected_counts("axioms"), [2 * a / (a + b), 2 * b / (a + b)])
    assert forest.count() == 4
    assert forest.marginals()["T"] == pytest.approx(2)
    assert [tree.axioms for tree in forest.kbest(9)] == [
        ["a", "a"],
        ["a", "b"],
        ["b", "a"],
        ["b", "b"],
    ]
    p = a / (a + b)
    assert_close(forest.covariance(lambda x: x == "a", lambda x: x == "a"), 2 * p * (1 - p))
    assert_close(forest.entropy(), -2 * (p * math.log(p) + (1 - p) * math.log(1 - p)))
    hessian = torch.autograd.functional.hessian(
        lambda w: forest.with_weights(axioms=w).log_partition(), leaves["axioms"].detach()
    )
    assert_close(hessian, 2 * p * (1 - p) * np.array([[1.0, -1.0], [-1.0, 1.0]]))


def test_none_asked_for_and_more_than_there_are() -> None:
    forest = weighted([("S", ["a"]), ("S", ["b"])], "S", a=0.0, b=1.0)
    assert len(forest.kbest(0)) == 0
    assert len(forest.sample(0, generator=GENERATOR)) == 0
    assert [tree.axioms for tree in forest.kbest(10**6)] == [["b"], ["a"]]
    assert list(forest.kbest(1)[0:0]) == []
    with pytest.raises(IndexError):
        forest.kbest(5)[2]
    assert forest.kbest(5)[-1].axioms == ["a"]


# ------------------------------------------------------------------------- magnitudes


@pytest.mark.few(20)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("shift", [1e4, -1e4, 700.0, -745.2, 88.7, -177.44567822334599, 1e6, -3e5])
@pytest.mark.parametrize("seed", [1, 2, 5, 8])
def test_shifted_weights(seed: int, shift: float, tier: Any) -> None:
    # Every axiom's weight grows by a factor: log Z and all else follow from the enumeration.
    this = case(seed)
    (goal,) = this.goals
    num_axioms = this.random.num_axioms
    sizes = goal.counts[:, :num_axioms].sum(1)
    moved = goal.log_weights + shift * sizes
    log_z = np.logaddexp.reduce(moved)
    probabilities = np.exp(moved - log_z)
    weights = {n: w + shift for n, w in this.forest.relations.items()}
    forest, leaves = with_gradient(this.forest.with_tier(tier).with_weights(**weights))
    # What the weights themselves lose to rounding when they are shifted.
    lost = np.spacing(abs(shift)) * (1 + sizes.max())
    assert_close(forest.log_partition(), log_z, rtol=1e-14, atol=lost + 1e-12)
    counts = probabilities @ goal.counts
    assert_close(forest.expected_counts(), counts, rtol=10 * lost + 1e-12, atol=10 * lost + 1e-12)
    tolerance = {"rtol": 1e3 * lost + 1e-10, "atol": 1e3 * lost + 1e-10}
    assert_close(forest.entropy(), -(probabilities * (moved - log_z)).sum(), **tolerance)
    f = random_values(this, 3)
    x = goal.counts @ f.numpy()
    variance = (probabilities * x**2).sum() - (probabilities @ x) ** 2
    assert_close(forest.covariance(f, f), variance, **tolerance)
    heaviest = moved == moved.max()
    if heaviest.sum() == 1:
        best = [tree for tree, chosen in zip(goal.trees, heaviest, strict=True) if chosen]
        assert tuple(forest.argmax().edges) == best[0].edges


MIXTURES = [
    [1e4, 1e4, 1e4 + 1],
    [1e4, -1e4, 0.0],
    [-1e4, -1e4 - 0.5, -1e4],
    [1e4, 1e4 - 36.0, 1e4 - 37.0],
    [0.0, -744.0, -746.0],
    [177.0, -177.0, 178.0],
    [88.0, 89.0, -89.0],
    [-math.inf, -1e4, -math.inf],
    [1e4, -math.inf, 1e4],
    [1e15, 1e15, -1e15],
    [-1e30, 0.0, 0.5],
    [-1e300, 0.0, -1e30],
    [3e38, 1.0, -3e38],
]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("weights", MIXTURES)
def test_mixtures_within_one_sum(weights: list[float], order: int, tier: Any) -> None:
    if tier == "reference" and 1e15 in weights:
        pytest.skip("the reference adds logarithms, and those of this size are rounded to 1/8")
    # S = a + b + c + a·b·c, in both orders: the running sum meets small terms after large ones.
    builder = ForestBuilder()
    for name, weight in zip("abc", weights, strict=True):
        builder.axiom(name, weight)
    terms = [["a"], ["b"], ["c"], ["a", "b", "c"]][::order]
    for term in terms:
        builder.edge("S", term)
    forest, leaves = with_gradient(builder.build(goal="S").with_tier(tier))
    logs = np.array([sum(weights["abc".index(x)] for x in term) for term in terms])
    highest = logs.max()
    # The differences are exact where the logs themselves are rounded coarsely.
    shares = np.exp(logs - highest) / np.exp(logs - highest).sum()
    log_z = highest + np.log(np.exp(logs - highest).sum())
    assert_close(forest.log_partition(), log_z, rtol=1e-14)
    expected = [sum(s for s, t in zip(shares, terms, strict=True) if x in t) for x in "abc"]
    (gradient,) = torch.autograd.grad(forest.log_partition(), leaves["axioms"])
    assert_close(gradient, np.array(expected))
    assert_close(forest.local_probabilities(), shares)
    entropy = -sum(s * math.log(s) for s in shares if s)
    assert_close(forest.entropy(), entropy, atol=1e-9 + 4 * np.spacing(abs(log_z)))


@pytest.mark.parametrize("tier", TIERS)
def test_long_products_of_extreme_weights(tier: Any) -> None:
    # The product of all tails of one edge runs far out of range and back.
    rng = np.random.default_rng(0)
    for signs in (rng.choice([-1, 1], 60), np.repeat([1, -1], 30), np.repeat([-1, 1], 30)):
        builder = ForestBuilder()
        names = [builder.axiom(i, 300.0 * float(s)) for i, s in enumerate(signs)]
        builder.edge("S", names)
        builder.edge("S", names[::-1])
        forest = builder.build(goal="S").with_tier(tier)
        assert_close(forest.log_partition(), 300.0 * signs.sum() + math.log(2))
        assert_close(forest.local_probabilities(), [0.5, 0.5])
        assert_close(forest.expected_counts("axioms"), np.ones(60))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("weight", [80.0, -80.0, 88.0, -89.0, 0.1])
def test_repeated_squaring(weight: float, tier: Any) -> None:
    # Values grow (or shrink) doubly exponentially, one factor of ordinary size at a time.
    builder = ForestBuilder()
    builder.axiom("a", weight)
    builder.edge(0, ["a"])
    for level in range(14):
        builder.edge(level + 1, [level, level])
    forest = builder.build(goal=14).with_tier(tier)
    assert_close(forest.log_partition(), weight * 2**14)
    assert_close(forest.expected_counts("axioms"), [float(2**14)])
    assert_close(forest.entropy(), 0.0, atol=1e-8)
    assert_close(forest.covariance(lambda x: 1.0, lambda x: 1.0), 0.0, atol=1e-6)


@pytest.mark.parametrize("tier", TIERS)
def test_a_single_path_among_dead_ends(tier: Any) -> None:
    builder = ForestBuilder()
    builder.axiom("live", -2e4)
    builder.axiom("dead", -math.inf)
    for level in range(50):
        below = [level - 1] if level else []
        for k in range(5):
            builder.edge(level, [*below, "dead" if k != level % 5 else "live"])
        builder.edge(("dead end", level), [*below, "dead"])
        builder.edge(level, [*below, ("dead end", level)])
    forest, leaves = with_gradient(builder.build(goal=49).with_tier(tier))
    assert_close(forest.log_partition(), -2e4 * 50)
    assert forest.count() == 1
    assert_close(forest.entropy(), 0.0)
    (gradient,) = torch.autograd.grad(forest.log_partition(), leaves["axioms"])
    assert_close(gradient, [50.0, 0.0])
    shares = forest.local_probabilities()
    assert set(shares.round(decimals=12).tolist()) == {0.0, 1.0}
    assert len(forest.kbest(10)) == 1
    assert list(forest.sample(3, generator=GENERATOR)) == [forest.argmax()] * 3
    assert forest.prune(0.9).num_edges == 50
    variance = forest.covariance(lambda x: 1.0, lambda x: 1.0)
    assert_close(variance, 0.0)


def test_mass_is_never_lost_silently() -> None:
    # Many tiny terms beside a large one: each alone is below half a unit in the last place.
    builder = ForestBuilder()
    builder.axiom("large", 0.0)
    builder.axiom("tiny", -30.0)
    builder.edge("S", ["large"])
    for _ in range(100_000):
        builder.edge("S", ["tiny"])
    forest = builder.build(goal="S")
    assert_close(forest.log_partition(), math.log1p(1e5 * math.exp(-30)), rtol=1e-3)
    assert_close(forest.expected_counts("axioms")[1], 1e5 * math.exp(-30), rtol=1e-8, atol=0)


# ------------------------------------------------------------------- single precision


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("shift", [0.0, 5e3])
@pytest.mark.parametrize("seed", SEEDS)
def test_float32(seed: int, shift: float, tier: Any) -> None:
    # Against the enumeration in float64 of the very weights that float32 can hold.
    this = case(seed)
    (goal,) = this.goals
    weights = {n: (w + shift).float() for n, w in this.forest.relations.items()}
    chained = torch.cat(list(weights.values())).double().numpy()[this.forest.axiom_rows.numpy()]
    # No derivation that is left uses an axiom of weight zero.
    finite = np.where(chained == -np.inf, 0, chained)
    logs = goal.counts[:, : this.random.num_axioms] @ finite
    log_z = np.logaddexp.reduce(logs) if goal.trees else -np.inf
    p = np.exp(logs - log_z)
    if tier == "reference" and shift:
        return  # the plain code sums in the dtype it is given
    forest, leaves = with_gradient(this.forest.with_tier(tier).with_weights(**weights))
    f = random_values(this, 4)
    x = goal.counts @ f.numpy()
    centred = x - p @ x
    answers: list[tuple[Callable[[], torch.Tensor], Any]] = [
        (forest.log_partition, log_z),
        (forest.expected_counts, p @ goal.counts),
        (forest.entropy, -(p * (logs - log_z)).sum() if goal.trees else -np.inf),
        (lambda: forest.expectation(f), p @ x),
        (lambda: forest.covariance(f, f), p @ centred**2),
        (forest.edge_counts, p @ goal.edge_counts),
    ]
    for query, expected in answers:
        answer = query()
        assert answer.dtype == torch.float32
        assert_close(answer, np.asarray(expected))
    assert forest.local_probabilities().dtype == torch.float32
    gradients = torch.autograd.grad(
        forest.log_partition(), list(leaves.values()), materialize_grads=True
    )
    for name, gradient in zip(leaves, gradients, strict=True):
        assert gradient.dtype == torch.float32
        assert_close(gradient, this.relation_counts(name, p @ goal.counts))


def test_half_precision_is_computed_in_float32() -> None:
    forest = weighted([("S", ["a"]), ("S", ["a", "a"])], "S", a=0.5)
    half = torch.tensor([0.5], dtype=torch.float16, requires_grad=True)
    value = forest.with_weights(axioms=half).log_partition()
    assert value.dtype == torch.float32
    value.backward()
    assert half.grad.dtype == torch.float16


# ------------------------------------------------------------------------------ depth

DEPTH = 100_000


def chain(depth: int) -> Forest:
    """A chain of choices between a and b; the number of a's is binomial."""
    builder = ForestBuilder()
    builder.axiom("a", -0.5)
    builder.axiom("b", -1.0)
    for level in range(depth):
        below = [level - 1] if level else []
        builder.edge(level, [*below, "a"])
        builder.edge(level, ["b", *below])
    return builder.build(goal=depth - 1)


@pytest.fixture(scope="module")
def deep() -> Forest:
    return chain(DEPTH)


def test_deep_sums(deep: Forest) -> None:
    forest, leaves = with_gradient(deep)
    p = 1 / (1 + math.exp(-0.5))
    log_z = DEPTH * np.logaddexp(-0.5, -1.0)
    assert_close(forest.log_partition(), log_z)
    (gradient,) = torch.autograd.grad(forest.log_partition(), leaves["axioms"])
    assert_close(gradient, [DEPTH * p, DEPTH * (1 - p)])
    f = torch.tensor([label == "a" for label in deep.labels]).double()
    assert_close(deep.covariance(f, f), DEPTH * p * (1 - p))
    assert_close(deep.entropy(), -DEPTH * (p * math.log(p) + (1 - p) * math.log(1 - p)))
    assert deep.prune(0.3).num_edges == 2 * DEPTH
    assert deep.prune(0.5).num_edges == DEPTH


def test_deep_derivations(deep: Forest) -> None:
    a = list(deep.labels[:2]).index("a")
    best = deep.argmax()
    assert best.log_weight == -0.5 * DEPTH
    items = [item for item, _ in best.walk()]
    assert len(items) == 2 * DEPTH
    assert items.count(a) == DEPTH
    assert [tree.log_weight for tree in deep.kbest(3)] == pytest.approx(
        [-0.5 * DEPTH, -0.5 * DEPTH - 0.5, -0.5 * DEPTH - 0.5]
    )
    (sample,) = deep.sample(1, generator=torch.Generator().manual_seed(0))
    share = [item for item, _ in sample.walk()].count(a) / DEPTH
    assert share == pytest.approx(1 / (1 + math.exp(-0.5)), abs=0.01)
    assert len(deep.min_risk().edges) == DEPTH
    assert repr(best)
    assert hash(best) == hash(deep.argmax())


@pytest.mark.exhaustive
def test_deep_documents() -> None:
    # Ten times as deep as Python may recurse; the checks of annotations make this slow.
    deep = chain(10_000)
    best = deep.argmax()
    tree = best.tree()
    assert tree.label == "9999"
    del tree  # taking a long chain of objects apart must not recurse either
    assert str(best).count("\n") == 2 * 10_000 - 1
    assert best.axioms == ["a"] * 10_000
    copy = Forest.from_json(deep.to_json())
    assert_close(copy.log_partition(), deep.log_partition())
    assert deep.to_graphviz().count("shape=point") == 20_000
    assert "9999" in deep.to_text()
    assert "<svg" in deep.to_html()
    batch = Forest.batch([deep, copy])
    assert_close(batch.log_partition(), [deep.log_partition().item()] * 2)


@pytest.mark.exhaustive
def test_depth_level_by_level() -> None:
    # The general evaluators take longer for each level.
    builder = ForestBuilder()
    builder.axiom("a")
    for level in range(1500):
        below = [level - 1] if level else []
        builder.edge(level, [*below, "a"])
        builder.edge(level, ["a", *below])
    forest, leaves = with_gradient(builder.build(goal=1499))
    for tier in ("gpu", "reference"):
        value = forest.with_tier(tier).log_partition()  # type: ignore[arg-type]
        assert_close(value, 1500 * math.log(2))
        (gradient,) = torch.autograd.grad(value, leaves["axioms"])
        assert_close(gradient, [1500.0])
    assert forest.count() == 2**1500
    assert forest.evaluate(Counting()) == [2**1500]
    assert_close(forest.evaluate(Log()), [1500 * math.log(2)])
