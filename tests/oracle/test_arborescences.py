"""The kernels of arborescences against every vector of heads, and determinants of many digits."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout.kernels.arborescences import op
from inout.kernels.arborescences.reference import reference_log_partition
from tests.oracle.arborescences import arborescences, exact
from tests.seeds import seeds
from tests.support import assert_close

F64 = torch.float64
KINDS = ("mild", "forbidden", "huge", "mixed")


def table(kind: str, *shape: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=g, dtype=F64)
    if kind == "forbidden":
        return x.masked_fill(torch.rand(shape, generator=g) < 0.4, -torch.inf)
    if kind == "huge":
        return 1e4 * x
    if kind == "mixed":
        levels = torch.tensor([1e4, -1e4, 0.0, 90.0, -200.0, -torch.inf], dtype=F64)
        return ((levels[torch.randint(6, shape, generator=g)] + x) * 256).round() / 256
    return x


def tree_scores(scores: Tensor, n: int, single: bool) -> tuple[list[tuple[int, ...]], Tensor]:
    trees = arborescences(n, single)
    rows = [scores[torch.tensor(t), torch.arange(n)].sum() for t in trees]
    return trees, torch.stack(rows)


def second_order(log_z: Tensor, x: Tensor, u: Tensor) -> list[Tensor]:
    alive = torch.where(log_z == -torch.inf, 0.0, log_z).sum()
    (first,) = grad(alive, x, create_graph=True)
    along = (first * u).sum()
    second = grad(along, x)[0] if along.requires_grad else torch.zeros_like(x)  # one tree only
    return [log_z, first, second]


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("n", [3, 4, 5, 6])
@pytest.mark.few(2)
def test_cycles_within_cycles_with_forbidden_arcs(n, single):
    """The head of word k is k + 1, or k - 1 by an arc of -290: e^290 for each cycle that ends."""
    scores = torch.full((1, n + 1, n), -torch.inf, dtype=F64)
    scores[0, 0] = 0.0
    for k in range(1, n):
        scores[0, k, k], scores[0, k + 1, k - 1] = -290.0, 0.0
    scores[0, n - 1, n - 1] = 0.0
    x, u = scores.requires_grad_(), table("mild", 1, n + 1, n, seed=3)
    _, flat = tree_scores(x[0], n, single)
    truth = second_order(flat.logsumexp(0), x, u)
    ours = second_order(op.log_partition(x, torch.tensor([n]), single), x, u)
    assert_close(ours[0][0], truth[0])
    for found, wanted in zip(ours[1:], truth[1:], strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_log_z_and_its_derivatives(kind, single):
    for seed, n in product(seeds(8), (1, 2, 3, 4)):
        scores = table(kind, 1, n + 1, n, seed=10 * seed + n)
        u, lengths = table("mild", 1, n + 1, n, seed=99), torch.tensor([n])
        _, flat = tree_scores(scores[0], n, single)
        if not bool((flat > -torch.inf).any()):
            for log_z in (op.log_partition, reference_log_partition):
                assert log_z(scores, lengths, single) == -torch.inf
            continue
        p = flat.softmax(0)
        uses = torch.zeros(len(p), n + 1, n, dtype=F64)
        for row, heads in enumerate(arborescences(n, single)):
            uses[row, torch.tensor(heads), torch.arange(n)] = 1
        along = (uses * u).sum((1, 2))
        covariance = ((p * (along - (p * along).sum()))[:, None, None] * uses).sum(0)
        truth = [flat.logsumexp(0)[None], (p[:, None, None] * uses).sum(0)[None], covariance[None]]
        for log_z in (op.log_partition, reference_log_partition):
            x = scores.clone().requires_grad_()
            found = second_order(log_z(x, lengths, single), x, u)
            for ours, other in zip(found, truth, strict=True):
                assert_close(ours, other)


@pytest.mark.parametrize("single", [True, False])
def test_weights_from_1e_minus_300_to_1e300(single):
    """Cycles that outweigh all ways to the root by any factor cost no digits."""
    for seed in seeds(2):
        n, g = 4, torch.Generator().manual_seed(seed)
        scores = (torch.rand(1, n + 1, n, generator=g, dtype=F64) * 2 - 1) * 300 * math.log(10)
        log_z, chances = exact(scores[0].tolist(), single, 1400)
        x = scores.requires_grad_()
        ours = op.log_partition(x, torch.tensor([n]), single)
        assert abs(float(ours.detach()) - log_z) < 1e-14 * abs(log_z)
        (first,) = grad(ours.sum(), x)
        truth = torch.tensor([[float(p) for p in row] for row in chances], dtype=F64)
        assert_close(first[0], truth, atol=1e-12)
        assert bool((first >= 0).all())
        assert bool((first <= 1).all())


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("weak", [0.0, -30.0, -250.0, -1000.0])
def test_a_weak_root_costs_no_digits(single, weak):
    """The Laplacian is singular but for the root: its condition number is exp(-weak)."""
    n = 6
    scores = table("mild", 1, n + 1, n, seed=5)
    scores[:, 0] += weak
    log_z, chances = exact(scores[0].tolist(), single, 700)
    x = scores.requires_grad_()
    ours = op.log_partition(x, torch.tensor([n]), single)
    assert abs(float(ours.detach()) - log_z) < 1e-13 * max(1, abs(log_z))
    (first,) = grad(ours.sum(), x)
    truth = torch.tensor([[float(p) for p in row] for row in chances], dtype=F64)
    assert_close(first[0], truth, atol=2e-13)


@pytest.mark.parametrize("single", [True, False])
def test_an_arc_that_underflows_beside_forbidden_ones(single):
    """The only way to the root is 1e4 below a circle, in columns with forbidden arcs."""
    scores = torch.full((1, 5, 4), -torch.inf, dtype=F64)
    for head, word in ((1, 1), (2, 0), (1, 2), (2, 2), (3, 3), (4, 2)):
        scores[0, head, word] = 0.0
    scores[0, 0] = torch.tensor([-1e4, -1e4, -torch.inf, -1e4])
    truth = tree_scores(scores[0], 4, single)[1].logsumexp(0)
    assert_close(op.log_partition(scores, torch.tensor([4]), single)[0], truth)


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_best_and_k_best(kind, single):
    for seed, n in product(seeds(8), (1, 2, 3, 4)):
        s, k, lengths = 2, 9, torch.tensor([n])
        potentials = table(kind, 1, n + 1, n, s, seed=10 * seed + n)
        trees, flat = tree_scores(potentials[0].amax(-1), n, single)
        best = tuple(op.best_heads(potentials.amax(-1), lengths, single)[0].tolist())
        if flat.max() == -torch.inf:
            assert best == (-1,) * n
        else:
            assert_close(flat[trees.index(best)], flat.max())
        heads, labels, scores = op.k_best_arcs(potentials, lengths, single, k)
        truth = sorted(
            (
                sum(
                    float(potentials[0, h, d, a])
                    for d, (h, a) in enumerate(zip(t, names, strict=True))
                )
                for t in trees
                for names in product(range(s), repeat=n)
            ),
            reverse=True,
        )
        truth = [x for x in truth if x > -math.inf][:k]
        assert_close(scores[: len(truth), 0], torch.tensor(truth, dtype=F64))
        assert bool((scores[len(truth) :] == -torch.inf).all())
        found = torch.cat([heads, labels], -1)[: len(truth), 0]
        assert len({tuple(row) for row in found.tolist()}) == len(truth)
        for row, score in zip(found, truth, strict=True):
            own = potentials[0, row[:n], torch.arange(n), row[n:]].sum()
            assert_close(own, torch.tensor(score, dtype=F64))


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "weak root"])
@pytest.mark.few(4)
def test_samples(kind, single):
    count = 20_000
    for seed, n in product(seeds(3), (2, 4)):
        scores = table(kind, 1, n + 1, n, seed=10 * seed + n)
        if kind == "weak root":
            scores[:, 0] -= 40
        trees, flat = tree_scores(scores[0], n, single)
        drawn = op.sample_heads(scores, torch.tensor([n]), single, count, seed)[:, 0]
        if flat.max() == -torch.inf:
            assert bool((drawn == -1).all())
            continue
        p, places = flat.softmax(0), {tree: i for i, tree in enumerate(trees)}
        seen = torch.zeros(len(trees), dtype=F64)
        for heads in drawn.tolist():
            seen[places[tuple(heads)]] += 1
        assert bool((seen[p == 0] == 0).all())
        common = p * count >= 5
        off = (seen - p * count)[common].pow(2) / (p * count)[common]
        freedom = int(common.sum())
        assert float(off.sum()) < freedom + 6 * math.sqrt(2 * freedom) + 6
