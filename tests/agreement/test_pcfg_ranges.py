"""Grammars whose weights span many orders of magnitude, against the reference in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout.distributions.pcfg import PCFG
from inout.kernels.autograd import tangents_by
from inout.kernels.pcfg.cpu.passes import CpuGrammarPasses, LogSpacePasses
from inout.kernels.pcfg.reference import reference_grammar_log_partition
from tests.support import assert_close

INF = torch.inf
F32, F64 = torch.float32, torch.float64
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])

Potentials = tuple[Tensor, Tensor, Tensor, Tensor]


def passes_of(given: Potentials) -> CpuGrammarPasses:
    return CpuGrammarPasses(*given)


def check_first(given: Potentials) -> None:
    """log Z and its gradients are those of the reference for the same numbers."""
    *potentials, lengths = given
    found, weights = passes_of(given), torch.arange(1.0, 1 + len(lengths)).to(given[0])
    exact = [x.double().requires_grad_() for x in potentials]
    log_z = reference_grammar_log_partition(*exact, lengths)
    some = weights.double() @ log_z.where(log_z > -INF, 0.0)
    dtype = given[0].dtype
    assert_close(found.log_z.to(dtype), log_z)
    for own, other in zip(found.gradients(weights), grad(some, exact), strict=True):
        assert own.dtype == dtype
        assert_close(own, other)


def check_second(given: Potentials) -> None:
    """The Hessian times a direction is that of the reference."""
    *potentials, lengths = given
    weights = torch.arange(1.0, 1 + len(lengths)).to(given[0])
    along = tuple(torch.linspace(-1, 1, x.numel()).to(x).reshape(x.shape) for x in potentials)
    exact = tangents_by(
        lambda *x: reference_grammar_log_partition(*x, lengths),
        weights.double(),
        [x.double() for x in potentials],
        [x.double() for x in along],
    )
    for own, other in zip(passes_of(given).tangents(weights, along), exact, strict=True):
        assert_close(own.to(given[0].dtype), other)


def check_spans(given: Potentials) -> None:
    """The marginals of nonterminals over spans are those of the explicit forest."""
    *potentials, lengths = given
    root, rules, words = (x.double() for x in potentials)
    found = passes_of(given).span_marginals()
    for e, length in enumerate(lengths.tolist()):
        alone = PCFG(root[e], rules[e if len(rules) > 1 else 0], words[e, :length])
        masses = torch.zeros_like(found[e])
        if alone.log_partition() > -INF:
            forest = alone.forest()
            counts = forest.expected_counts().tolist()
            for label, count in zip(forest.labels, counts, strict=True):
                if label.relation == "beta":
                    masses[label.arguments[1:]] = count
        assert_close(found[e].to(given[0].dtype), masses)


def check(given: Potentials) -> None:
    check_first(given)
    check_second(given)
    check_spans(given)


def random_grammar(
    seed: int, size: tuple[int, int, int], dtype: torch.dtype, *, batch: int = 3, own: bool = False
) -> Potentials:
    n, nt, pt = size
    g = torch.Generator().manual_seed(seed)
    shapes = ((batch, nt), (batch if own else 1, nt, nt + pt, nt + pt), (batch, n, pt))
    root, rules, words = (torch.randn(x, generator=g).to(dtype) for x in shapes)
    lengths = torch.tensor([n, max(n // 2, 2), n - 1])[:batch]
    return root, rules, words, lengths


def sparse(given: Potentials, never: float, density: float, seed: int = 0) -> Potentials:
    """All but a part of the potentials are `never`."""
    g = torch.Generator().manual_seed(seed)
    root, rules, words = (
        x.masked_fill(torch.rand(x.shape, generator=g) >= density, never) for x in given[:3]
    )
    return root, rules, words, given[3]


def one_tree(depth: float, dtype: torch.dtype) -> Potentials:
    """The one tree S(T(P(v w) w) w), with two rules `depth` nats below the others.

    X and Y would be better there but are impossible, for want of a rule for X: their outside
    values are exp(depth) and exp(2 depth) times those of anything in the tree.
    """
    P, X, T, Y, S, v, w = range(7)
    rules = torch.full((1, 5, 7, 7), -INF, dtype=dtype)
    for head, left, right, score in (
        (P, v, w, 0), (T, P, w, -depth), (T, X, w, 0), (Y, X, w, 0), (S, Y, w, 0), (S, T, w, -depth)
    ):  # fmt: skip
        rules[0, head, left, right] = score
    root = torch.full((1, 5), -INF, dtype=dtype)
    root[0, S] = 0
    words = torch.tensor([[[0, -INF], [-INF, 0], [-INF, 0], [-INF, 0]]], dtype=dtype)
    return root, rules, words, torch.tensor([4])


DEPTHS = pytest.mark.parametrize(
    ("depth", "dtype"),
    [(30.0, F32), (46.0, F32), (60.0, F32), (60.0, F64), (400.0, F64), (600.0, F64)],
    ids=str,
)


class TestImpossibleSymbolsWithInfiniteOutsideValues:
    @DEPTHS
    def test_they_are_done_in_scaled_arithmetic(self, depth, dtype):
        assert len(passes_of(one_tree(depth, dtype)).bad) == 0

    @DEPTHS
    def test_gradients(self, depth, dtype):
        check_first(one_tree(depth, dtype))

    @DEPTHS
    def test_second_derivatives(self, depth, dtype):
        check_second(one_tree(depth, dtype))

    @DEPTHS
    def test_span_marginals(self, depth, dtype):
        check_spans(one_tree(depth, dtype))

    @DEPTHS
    def test_entropy(self, depth, dtype):
        root, rules, words, _ = (
            x.requires_grad_(x.is_floating_point()) for x in one_tree(depth, dtype)
        )
        entropy = PCFG(root, rules[0], words).entropy()
        assert_close(entropy, torch.zeros(1), atol=1e-4)
        for gradient in grad(entropy.sum(), (root, rules, words)):
            assert_close(gradient, torch.zeros_like(gradient), atol=1e-3)


@pytest.mark.few(6)
@DTYPES
@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("never", [-INF, -1e4, -1e3, -100.0, -40.0])
def test_sparse_grammars(never, own, dtype):
    for seed, density in enumerate((0.1, 0.2, 0.4, 0.7)):
        check(sparse(random_grammar(seed, (6, 4, 3), dtype, own=own), never, density, seed))


@pytest.mark.few(4)
@DTYPES
@pytest.mark.parametrize("scale", [3.0, 10.0, 30.0, 100.0, 1e3, 1e4])
def test_steep_grammars(scale, dtype):
    for seed in range(4):
        root, rules, words, lengths = random_grammar(seed, (6, 3, 3), dtype, own=seed % 2 == 0)
        check((scale * root, scale * rules, scale * words, lengths))


@DTYPES
@pytest.mark.parametrize("never", [-INF, -1e4, -1e3, -100.0])
def test_ordinary_sparse_grammars_stay_in_scaled_arithmetic(never, dtype):
    for seed, density in enumerate((0.1, 0.3, 0.6)):
        given = sparse(random_grammar(seed, (20, 10, 20), dtype), never, density, seed)
        found = passes_of(given)
        if density == 0.1:
            assert bool(found.chart.low.any()) == (dtype == F32 or never < -700)
        assert len(found.bad) == 0
        exact = LogSpacePasses(*(x.double() for x in given[:3]), given[3])
        assert_close(found.log_z.to(dtype), exact.log_z)
        weights = torch.ones(3, dtype=dtype)
        for own, other in zip(found.gradients(weights), exact.gradients(weights), strict=True):
            assert_close(own, other)


def deep_survivor(depth: float, dtype: torch.dtype) -> Potentials:
    """Of two nonterminals over two words only the one `depth` below the other leads to a tree."""
    given = random_grammar(1, (5, 2, 2), dtype, batch=2)
    root, rules, words, lengths = given
    rules[0, 0, 2:, 2:] += depth
    rules[0, 1, 0, :] = rules[0, 1, :, 0] = -INF
    root[:, 0] = -INF
    return root, rules, words, lengths


@DTYPES
@pytest.mark.parametrize("depth", [20.0, 60.0, 100.0, 300.0, 700.0, 1e4])
def test_the_only_tree_may_be_far_below_the_rest(depth, dtype):
    given = deep_survivor(depth, dtype)
    check(given)
    found = passes_of(given)
    if depth > (60 if dtype == F32 else 600):
        assert found.bad.tolist() == [0, 1]
    kinds = []
    level: CpuGrammarPasses | LogSpacePasses | None = found
    while level is not None:
        kinds.append(type(level))
        level = level.fallback if isinstance(level, CpuGrammarPasses) else None
    if depth > 600:
        assert kinds == [CpuGrammarPasses] * (2 if dtype == F32 else 1) + [LogSpacePasses]


def two_ways(depth: float, gap: float, dtype: torch.dtype) -> Potentials:
    """Two trees over three words, one with A -> v v, one with B -> v v, `depth` nats below A's.

    The roots make up for it: the tree with B, all of which is lost where exp(-depth) is less than
    tiny, has exp(gap) times the weight of the other.
    """
    A, B, S, T, v = range(5)
    rules = torch.full((1, 4, 5, 5), -INF, dtype=dtype)
    rules[0, A, v, v], rules[0, B, v, v] = 0, -depth
    rules[0, S, A, v], rules[0, T, B, v] = -depth - gap, 0
    root = torch.full((1, 4), -INF, dtype=dtype)
    root[0, S] = root[0, T] = 0
    return root, rules, torch.zeros(1, 3, 1, dtype=dtype), torch.tensor([3])


@pytest.mark.few(1)
@pytest.mark.parametrize(("depth", "dtype"), [(70.0, F32), (650.0, F64)], ids=str)
def test_what_is_lost_must_not_matter(depth, dtype):
    """Elements are kept only where less is lost than the dtype can show."""
    kept = []
    for gap in np.arange(-depth, depth / 2, depth / 50).tolist():
        given = two_ways(depth, gap, dtype)
        found = passes_of(given)
        assert bool(found.chart.low[0])
        assert found.chart.betas[0, 0, 1, 1] == 0  # B is lost
        kept.append(len(found.bad) == 0)
        if kept[-1]:
            assert gap < -18 if dtype == F32 else gap < -36
        check_first(given)
        check_second(given)
        check_spans(given)
    # Once the lost tree is heavy enough to matter, it stays so.
    assert kept == sorted(kept, reverse=True)
    assert any(kept)
    assert not all(kept)


@DTYPES
@pytest.mark.parametrize("never", [-INF, -1e4, -200.0])
def test_elements_without_a_tree(never, dtype):
    """All the rules that could make the root symbol are impossible; the rest is sparse."""
    root, rules, words, lengths = sparse(random_grammar(3, (7, 3, 3), dtype), never, 0.3)
    rules[0, 0] = -INF
    root[:2, 1:] = -INF
    root[:, 0] = 0
    given = root, rules, words, lengths
    found = passes_of(given)
    assert found.log_z[:2].tolist() == [-INF, -INF]
    assert not {0, 1} & set(found.bad.tolist())
    check(given)
    assert bool((found.sample(3, 0)[:, :2] == -1).all())


@DTYPES
def test_a_batch_of_elements_of_all_kinds(dtype):
    """Ordinary, without a tree, with a tree that only log space can tell; shared rules."""
    root, rules, words, lengths = random_grammar(4, (6, 3, 2), dtype, batch=3)
    rules[0, :, :, :] = rules[0].masked_fill(rules[0] < -0.5, -1e4)
    rules[0, 2] = -1e4
    words[1, 1] = -INF
    root[2] = torch.tensor([-INF, -INF, 0.0])
    given = root, rules, words, lengths
    check(given)
    found = passes_of(given)
    assert found.log_z[1] == -INF
    assert found.bad.tolist() == [2]
