"""The block kernel against its reference in torch, and the laws of expected numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.autograd import grad

from inout.kernels.latent.arrays import BlockGraph
from inout.kernels.latent.op import BlockPasses, Sweeps
from inout.kernels.latent.reference import log_partitions
from inout.kernels.limits import LATENT_NOTHING
from inout.latent.graphs import Chart, block_rules, chart_of_sentence, graph_of_trees
from inout.latent.layout import Layout
from inout.latent.skeleton import Skeleton
from inout.latent.trees import SkeletalTrees
from tests.seeds import seeds
from tests.support import assert_close

Vector = NDArray[np.float64]
SKELETON = Skeleton.of(
    [("S", "A", "S"), ("S", "S", "S"), ("S", "A", "B"), ("B", "S", "A"), ("A", "B", "A")],
    [("A", "x"), ("A", "y"), ("B", "y"), ("S", "x")],
)


def random_layout(rng: np.random.Generator, largest: int = 5) -> Layout:
    return Layout(SKELETON, rng.integers(1, largest + 1, len(SKELETON.nonterminals)))


def random_chart(seed: int, n: int, sign: float = 0.0) -> tuple[Layout, Chart, Vector]:
    """A chart of n words; parameters from `sign` to 1."""
    rng = np.random.default_rng(seed)
    layout = random_layout(rng)
    words = [0, *rng.integers(0, 2, n - 1).tolist()] if n else []
    return layout, chart_of_sentence(layout, words), rng.uniform(sign, 1.0, layout.size)


def side_by_side(graphs: list[BlockGraph]) -> BlockGraph:
    """Several graphs as one."""
    items = np.cumsum([0, *(len(graph.symbols) for graph in graphs)])
    edges = np.cumsum([0, *(len(graph.lefts) for graph in graphs)])
    owners = np.cumsum([0, *(graph.num_owners for graph in graphs)])

    def joined(name: str, shifts: Any = None) -> Any:
        parts = [getattr(graph, name) for graph in graphs]
        if shifts is not None:
            parts = [(x + shift).astype(x.dtype) for x, shift in zip(parts, shifts, strict=False)]
        return np.concatenate(parts)

    ends = [graph.ends[1:] + shift for graph, shift in zip(graphs, edges, strict=False)]
    return BlockGraph(
        joined("symbols"), joined("leaves", items), joined("leaf_offsets"),
        joined("heads", items), joined("rules"), np.concatenate([[0], *ends]),
        joined("lefts", items), joined("rights", items), joined("roots", items),
        joined("root_offsets"), joined("owners", owners), int(owners[-1]),
    )  # fmt: skip


def check(layout: Layout, graph: BlockGraph, parameters: Vector) -> None:
    """log |Z| and weighted gradients of the kernel, of the wide one and of the reference."""
    rules = block_rules(layout)
    passes = BlockPasses(rules, graph, parameters)
    own = torch.tensor(parameters, requires_grad=True)
    expected = log_partitions(rules, graph, own)
    assert_close(passes.log_partitions, expected)
    weights = np.linspace(-1.0, 1.5, graph.num_owners)
    some = expected > -torch.inf
    objective = (torch.tensor(weights) * expected.where(some, 0.0)).sum()
    (exact,) = grad(objective, own, allow_unused=True) if some.any() else (torch.zeros_like(own),)
    found = np.zeros(layout.size)
    passes.add_gradient(weights, found)
    assert_close(found, exact, rtol=1e-8, atol=1e-8)
    wide = Sweeps(rules, graph, parameters, np.ones(graph.num_owners, np.bool_))
    mantissas, powers = wide.partitions
    with np.errstate(divide="ignore"):
        assert_close(np.log(np.abs(mantissas)) + powers * np.log(2), expected)
    again = np.zeros(layout.size)
    outs = wide.outside(weights).outs
    wide.add_ends(weights, outs, again)
    wide.add_groups(np.arange(len(graph.heads)), outs, again)
    assert_close(again, exact, rtol=1e-8, atol=1e-8)
    found = wide.outside(np.ones(graph.num_owners), expected=True)
    assert_close(found.items, passes.expected_items, rtol=1e-8, atol=1e-8)
    assert_close(found.edges, passes.expected_edges, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("sign", [0.0, -0.5])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.few(3)
def test_charts(n: int, sign: float) -> None:
    for seed in range(3):
        layout, chart, parameters = random_chart(seed, n, sign)
        check(layout, chart.graph, parameters)


@pytest.mark.parametrize("seed", seeds(8))
def test_zeros_have_derivatives(seed: int) -> None:
    layout, chart, parameters = random_chart(seed, 5, -0.5)
    rng = np.random.default_rng(seed)
    lexical = int(rng.integers(0, 4))
    layout.lexical(parameters, lexical)[:] = 0.0  # a whole vector
    layout.block(parameters, int(rng.integers(0, 5)))[:] = 0.0  # a whole block
    parameters[rng.random(layout.size) < 0.2] = 0.0
    check(layout, chart.graph, parameters)


def test_several_sentences_in_one_graph() -> None:
    rng = np.random.default_rng(5)
    layout = random_layout(rng)
    sentences = [[0, 1, 0], [1], [-1, 0], [0, 0, 1, 1, 0], [], [0]]
    graphs = [chart_of_sentence(layout, words).graph for words in sentences]
    parameters = rng.normal(size=layout.size)
    graph = side_by_side(graphs)
    check(layout, graph, parameters)
    alone = [BlockPasses(block_rules(layout), g, parameters).log_partitions[0] for g in graphs]
    assert_close(BlockPasses(block_rules(layout), graph, parameters).log_partitions, alone)


def test_the_largest_entry_of_a_vector_is_from_a_half_to_one() -> None:
    layout, chart, parameters = random_chart(3, 7, -0.5)
    passes = BlockPasses(block_rules(layout), chart.graph, parameters)
    starts, values, exponents = passes.narrow.inside.values
    tops = np.maximum.reduceat(np.abs(values), starts[:-1])
    made = exponents > LATENT_NOTHING
    assert made.any()
    assert ((tops[made] >= 0.5) & (tops[made] < 1.0)).all()
    assert not tops[~made].any()


def test_no_graph_at_all() -> None:
    layout = Layout(SKELETON, 2)
    graph = graph_of_trees(layout, SkeletalTrees.of([], SKELETON))
    passes = BlockPasses(block_rules(layout), graph, np.ones(layout.size))
    assert passes.log_partitions.shape == (0,)
    assert log_partitions(block_rules(layout), graph, torch.ones(layout.size)).shape == (0,)
    assert len(passes.expected_items) == 0


def test_the_reference_has_second_derivatives() -> None:
    rng = np.random.default_rng(0)
    layout = Layout(SKELETON, [2, 1, 2])
    graph = chart_of_sentence(layout, [0, 1, 0]).graph
    own = torch.tensor(rng.uniform(0.2, 1.0, layout.size), requires_grad=True)

    def log_z(parameters: torch.Tensor) -> torch.Tensor:
        return log_partitions(block_rules(layout), graph, parameters)

    assert torch.autograd.gradcheck(log_z, own)
    assert torch.autograd.gradgradcheck(log_z, own)


@pytest.mark.parametrize("size", [1e-250, 1e250])
def test_the_reference_of_a_long_tree(size: float) -> None:
    layout = Layout(SKELETON, 3)
    graph = chart_of_sentence(layout, [0] * 12).graph
    parameters = size * np.random.default_rng(1).random(layout.size)
    own = torch.tensor(parameters, requires_grad=True)
    found = log_partitions(block_rules(layout), graph, own)
    passes = BlockPasses(block_rules(layout), graph, parameters)
    assert_close(passes.log_partitions, found)
    (gradient,) = grad(found.sum(), own)
    assert_close((gradient * own).sum(), 12.0 + 11 + 1)  # as many factors as every tree has


def test_nothing_has_zero_gradient_of_every_order() -> None:
    layout = Layout(SKELETON, 2)
    chart = chart_of_sentence(layout, [0, 1])
    parameters = np.random.default_rng(0).random(layout.size)
    parameters[: layout.root_offsets[-1]] = 0.0
    own = torch.tensor(parameters, requires_grad=True)
    found = log_partitions(block_rules(layout), chart.graph, own)
    assert found.tolist() == [-torch.inf]
    (first,) = grad(found.sum(), own, create_graph=True)
    assert not first.any()
    gradient = np.zeros(layout.size)
    passes = BlockPasses(block_rules(layout), chart.graph, parameters)
    passes.add_gradient(np.ones(1), gradient)
    assert not gradient.any()
    assert not passes.expected_items.any()


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_expected_numbers_add_up(seed: int, n: int) -> None:
    layout, chart, parameters = random_chart(seed, n)
    passes = BlockPasses(block_rules(layout), chart.graph, parameters)
    graph, items, edges = chart.graph, passes.expected_items, passes.expected_edges
    if passes.log_partitions[0] == -np.inf:
        assert not items.any()
        return
    assert_close(items[graph.roots].sum(), 1.0)
    leaves = graph.leaves
    at = np.bincount(chart.spans[leaves, 0], items[leaves], minlength=n)
    assert_close(at, np.ones(n))  # every word has one tag
    assert_close(items.sum(), 2.0 * n - 1)
    assert_close(edges.sum(), n - 1.0)
    # What goes into an item comes out of it: as a head, or as a child or root.
    heads = np.repeat(graph.heads, np.diff(graph.ends))
    made = np.bincount(heads, edges, minlength=len(items)).astype(float)
    made[leaves] += items[leaves]
    assert_close(made, items)
    used = np.bincount(graph.lefts, edges, minlength=len(items)).astype(float)
    used += np.bincount(graph.rights, edges, minlength=len(items))
    used[graph.roots] += items[graph.roots]
    assert_close(used, items)
    # Parameters times derivatives are expected numbers of rules.
    found = np.zeros(layout.size)
    passes.add_gradient(np.ones(1), found)
    masses = found * parameters
    assert_close(masses[: layout.root_offsets[-1]].sum(), 1.0)
    first, last = layout.lexical_offsets[[0, -1]]
    assert_close(masses[first:last].sum(), float(n))
    assert_close(masses[last:].sum(), n - 1.0)


def in_basis(layout: Layout, parameters: Vector, bases: list[Vector]) -> Vector:
    """C(y¹, y²) = T(y¹ Gᵇ, y² Gᶜ) (Gᵃ)⁻¹, c∞ = q (Gᵃ)⁻¹, c¹ = Gᵃ π: theorem 1."""
    made = parameters.copy()
    inverses = [np.linalg.inv(basis) for basis in bases]
    for a, basis in enumerate(bases):
        layout.root(made, a)[:] = basis @ layout.root(parameters, a)
    for rule, (a, _) in enumerate(layout.skeleton.lexical.tolist()):
        layout.lexical(made, rule)[:] = layout.lexical(parameters, rule) @ inverses[a]
    for rule, (a, b, c) in enumerate(layout.skeleton.binary.tolist()):
        block = layout.block(parameters, rule)
        layout.block(made, rule)[:] = np.einsum(
            "ijk,lj,mk,in->nlm", block, bases[b], bases[c], inverses[a]
        )
    return made


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_a_change_of_basis_changes_nothing(seed: int, n: int) -> None:
    layout, chart, parameters = random_chart(seed, n)
    rng = np.random.default_rng(seed)
    bases = []
    for m in layout.sizes.tolist():
        rotation = np.linalg.qr(rng.normal(size=(m, m)))[0]
        bases.append(rotation * rng.choice([-2.0, 0.5, 1.0, 3.0], m))
    rules = block_rules(layout)
    passes = BlockPasses(rules, chart.graph, parameters)
    other = BlockPasses(rules, chart.graph, in_basis(layout, parameters, bases))
    assert_close(other.log_partitions, passes.log_partitions, atol=1e-8)
    assert (np.sign(other.partitions[0]) == np.sign(passes.partitions[0])).all()
    assert_close(other.expected_items, passes.expected_items, atol=1e-7)
    assert_close(other.expected_edges, passes.expected_edges, atol=1e-7)


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_the_order_of_items_and_groups_does_not_matter(seed: int, n: int) -> None:
    layout, chart, parameters = random_chart(seed, n, sign=-0.3)
    graph, rng = chart.graph, np.random.default_rng(seed)
    renamed = rng.permutation(len(graph.symbols)).astype(np.int32)  # new number of each item
    # Items in another order in which children come first: spans of one width in any order.
    groups: dict[int, list[int]] = {}
    for g, head in enumerate(graph.heads.tolist()):
        groups.setdefault(head, []).append(g)
    widths = chart.spans[:, 1] - chart.spans[:, 0]
    heads = sorted(groups, key=lambda head: (widths[head], rng.random()))
    order = [g for head in heads for g in rng.permutation(groups[head]).tolist()]
    edges = [np.arange(graph.ends[g], graph.ends[g + 1])[::-1] for g in order]
    flat = np.concatenate([np.empty(0, np.int64), *edges]).astype(np.int64)
    symbols = np.empty_like(graph.symbols)
    symbols[renamed] = graph.symbols
    other = replace(
        graph,
        symbols=symbols,
        leaves=renamed[graph.leaves],
        heads=renamed[graph.heads[order]],
        rules=graph.rules[order],
        ends=np.cumsum([0, *map(len, edges)]),
        lefts=renamed[graph.lefts[flat]],
        rights=renamed[graph.rights[flat]],
        roots=renamed[graph.roots],
    )
    rules = block_rules(layout)
    passes, found = BlockPasses(rules, graph, parameters), BlockPasses(rules, other, parameters)
    if abs(passes.expected_items).max(initial=0.0) > 1e4:
        return  # terms cancel so much that their order shows
    assert_close(found.log_partitions, passes.log_partitions, atol=1e-8)
    assert_close(found.expected_items[renamed], passes.expected_items, atol=1e-7, rtol=1e-7)
    assert_close(found.expected_edges, passes.expected_edges[flat], atol=1e-7, rtol=1e-7)
    first, second = np.zeros(layout.size), np.zeros(layout.size)
    passes.add_gradient(np.ones(1), first)
    found.add_gradient(np.ones(1), second)
    assert_close(first, second, atol=1e-6, rtol=1e-7)
