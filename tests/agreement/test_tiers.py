"""The evaluators agree: compiled, level by level (also on a GPU), and the plain reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inout import Facts, Forest, ForestBuilder, Program
from inout.kernels.forest import op
from tests import seeds
from tests.oracle.forest_cases import case, library_forest
from tests.oracle.random_forests import random_forest
from tests.support import assert_close

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
# Where a tier runs: each is compared with the compiled code on the CPU in float64.
PLACES = [
    pytest.param("gpu", "cpu", id="level by level on the CPU"),
    pytest.param("reference", "cpu", id="reference on the CPU"),
    pytest.param("gpu", "cuda", id="level by level on CUDA", marks=NO_CUDA),
    pytest.param("reference", "cuda", id="reference on CUDA", marks=NO_CUDA),
    pytest.param(None, "cuda", id="default on CUDA", marks=NO_CUDA),
]
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]


def wide_forest(seed: int, num_goals: int = 1) -> Forest:
    """Larger than can be enumerated: some hundred items, arities up to five."""
    random = random_forest(
        seed,
        num_axioms=30,
        num_levels=8,
        level_width=16,
        max_edges=9,
        max_arity=5,
        num_goals=num_goals,
        derived_weights=False,
        zeros=0.05,
        empty_items=0.05,
        max_derivations=10**400,
    )
    return library_forest(random, np.random.default_rng(seed))


def grammar_forest(length: int) -> Forest:
    """An ambiguous grammar: many more edges than items."""
    rng = np.random.default_rng(length)
    symbols = [f"N{i}" for i in range(6)]
    rules = [(a, b, c) for a in symbols for b in symbols for c in symbols if rng.random() < 0.3]
    rules += [(a, "w") for a in symbols[:4]]
    weights = torch.from_numpy(rng.normal(size=len(rules)))
    program = Program(
        'goal += b("N0", 0, N) * length(N). b(X,I,K) += rule(X,Y,Z) * b(Y,I,J) * b(Z,J,K).'
        "b(X,I,K) += rule(X,W) * word(W,I,K)."
    )
    words = [("w", i, i + 1) for i in range(length)]
    facts = {"rule": Facts(rules, weights), "word": words, "length": [(length,)]}
    return program.ground(facts)


FORESTS: dict[str, Callable[[], Forest]] = {
    **{f"small {seed}": (lambda seed=seed: case(seed).forest) for seed in range(6)},
    **{f"goals {seed}": (lambda seed=seed: case(seed, 3).forest) for seed in range(4)},
    **{f"wide {seed}": (lambda seed=seed: wide_forest(seed)) for seed in range(4)},
    "wide with goals": lambda: wide_forest(7, 5),
    "grammar": lambda: grammar_forest(7),
    "batch": lambda: Forest.batch([case(seed).forest for seed in range(8)]),
}
# Of those with numbers, the first two by default.
NAMES = [name for name in FORESTS if seeds.exhaustive or name[-1] not in "2345"]


def moved(forest: Forest, device: str, dtype: torch.dtype = torch.float64) -> Forest:
    """The forest with leaf weights on a device."""
    weights = {
        name: w.detach().to(device=device, dtype=dtype, copy=True).requires_grad_()
        for name, w in forest.relations.items()
    }
    return forest.with_weights(**weights)


def leaves(forest: Forest) -> list[Tensor]:
    return list(forest.relations.values())


def numbers(size: int, seed: int, device: str = "cpu") -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=size)).to(device)


def derivatives(forest: Forest, orders: int) -> list[Tensor]:
    """log Z, its gradient, and repeated derivatives along fixed directions."""
    inputs = leaves(forest)
    device = str(inputs[0].device)
    log_z = forest.log_partition()
    value = (torch.where(log_z == -torch.inf, 0.0, log_z) * 1.0).sum()
    results = [log_z]
    for order in range(orders):
        gradients = torch.autograd.grad(value, inputs, create_graph=True, materialize_grads=True)
        flat = torch.cat(gradients)
        results.append(flat)
        value = flat @ numbers(len(flat), order, device).to(flat)
        if not value.requires_grad:  # constant to the reference
            results += [torch.zeros_like(flat)] * (orders - 1 - order)
            break
    return results


@pytest.mark.parametrize(("tier", "device"), PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_derivatives(name: str, tier: Any, device: str) -> None:
    forest = FORESTS[name]()
    expected = derivatives(moved(forest, "cpu").with_tier("cpu"), 3)
    actual = derivatives(moved(forest, device).with_tier(tier), 3)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.device.type == device
        scale = max(1.0, float(theirs.detach().abs().nan_to_num(posinf=0).max()))
        assert_close(ours, theirs, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize(("tier", "device"), PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_queries(name: str, tier: Any, device: str) -> None:
    forest = FORESTS[name]()
    f, g = numbers(forest.num_items, 1), numbers(forest.num_items, 2)

    def answers(where: str, chosen: Any) -> list[Tensor]:
        this = moved(forest, where).with_tier(chosen)
        u, v = f.to(where), g.to(where)
        return [
            this.expected_counts(),
            *(this.expected_counts(relation) for relation in this.relations),
            this.local_probabilities(),
            this.edge_counts(),
            this.entropy(),
            this.expectation(u),
            this.covariance(u, v),
            this.expected_product(u, v),
            op.edge_probabilities(this.arrays, this.item_weights, chosen),
        ]

    for ours, theirs in zip(answers(device, tier), answers("cpu", "cpu"), strict=True):
        assert ours.device.type == device
        scale = max(
            1.0, float(theirs.detach().abs().nan_to_num(posinf=0).max()) if theirs.numel() else 0
        )
        assert_close(ours, theirs, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["small 1", "goals 2", "wide 1", "batch"])
def test_decoding_does_not_depend_on_the_place_of_the_weights(name: str, device: str) -> None:
    forest = FORESTS[name]()
    here, there = moved(forest, "cpu"), moved(forest, device).with_tier("gpu")
    one, other = here.kbest(20), there.kbest(20)
    for a, b in [(one, other)] if here.single_goal else zip(one, other, strict=True):
        assert [tree.edges.tolist() for tree in a] == [tree.edges.tolist() for tree in b]
    assert here.count() == there.count()
    assert_close(there.prune(0.1).log_partition(), here.prune(0.1).log_partition())
    risks = [x if isinstance(x, list) else [x] for x in (here.min_risk(), there.min_risk())]
    for a, b in zip(*risks, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.edges.tolist() == b.edges.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_samples_do_not_depend_on_the_place_of_the_weights(device: str) -> None:
    # The tiers' probabilities differ in their last bits; with these weights no choice is close.
    forest = case(2).forest
    draws = []
    for where, tier in (("cpu", "cpu"), (device, "gpu")):
        generator = torch.Generator().manual_seed(5)
        trees = moved(forest, where).with_tier(tier).sample(50, generator=generator)  # type: ignore[arg-type]
        draws.append([tree.edges.tolist() for tree in trees])
    assert draws[0] == draws[1]


@pytest.mark.parametrize(("tier", "device"), PLACES)
@pytest.mark.parametrize("name", ["small 2", "wide 2", "grammar"])
def test_single_precision(name: str, tier: Any, device: str) -> None:
    forest = FORESTS[name]()
    weights = {n: w.float() for n, w in forest.relations.items()}
    forest = forest.with_weights(**weights)
    exact = moved(forest, "cpu").with_tier("cpu")
    rough = moved(forest, device, torch.float32).with_tier(tier)
    for ours, theirs in zip(derivatives(rough, 2), derivatives(exact, 2), strict=True):
        assert ours.dtype == torch.float32
        scale = max(1.0, float(theirs.detach().abs().nan_to_num(posinf=0).max()))
        assert_close(ours, theirs, atol=1e-4 * scale)


@pytest.mark.parametrize("tier", ["cpu", "gpu"])
def test_results_do_not_depend_on_earlier_calls(tier: Any) -> None:
    forest = moved(wide_forest(3), "cpu").with_tier(tier)
    first = [x.detach().clone() for x in derivatives(forest, 2)]
    other = moved(wide_forest(4), "cpu").with_tier(tier)
    derivatives(other, 2)
    for a, b in zip(derivatives(forest, 2), first, strict=True):
        assert torch.equal(a.detach(), b)


@NO_CUDA
def test_mixed_devices_are_refused() -> None:
    builder = ForestBuilder()
    builder.axiom("a", relation="left")
    builder.axiom("b", relation="right")
    builder.edge("S", ["a", "b"])
    forest = builder.build(goal="S")
    with pytest.raises(ValueError, match="one device"):
        forest.with_weights(left=torch.zeros(1, device="cuda"))


@NO_CUDA
def test_the_whole_way_on_cuda() -> None:
    weights = torch.tensor([-0.5, -0.25], device="cuda", requires_grad=True)
    rows = [("S", "S", "S"), ("S", "a")]
    program = Program(
        'goal += b("S", 0, 4). b(X,I,K) += rule(X,Y,Z) * b(Y,I,J) * b(Z,J,K).'
        "b(X,I,K) += rule(X,W) * word(W,I,K)."
    )
    facts = {"rule": Facts(rows, weights), "word": [("a", i, i + 1) for i in range(4)]}
    forest = program.ground(facts)
    assert forest.log_partition().device.type == "cuda"
    forest.log_partition().backward()
    assert_close(weights.grad, [3.0, 4.0])
    batch = Forest.batch([forest, forest])
    assert_close(batch.log_partition(), [forest.log_partition().item()] * 2)
    assert_close(batch.entropy(), [forest.entropy().item()] * 2)
    assert batch.count() == [5, 5]
    assert Forest.from_json(forest.to_json()).count() == 5
    assert forest.to_text()
    assert forest.to_html()
    assert forest.argmax() is not None
    assert len(forest.sample(3, generator=torch.Generator().manual_seed(1))) == 3
    assert forest.prune(0.2).count() > 0
