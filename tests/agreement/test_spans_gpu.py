"""Span trees on a GPU against those on the CPU: values, derivatives, decoding, samples."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from inout import SpanTree
from inout.kernels.spans import op
from inout.kernels.spans.gpu.passes import GpuTreePasses
from inout.kernels.spans.reference import reference_tree_log_partition
from tests.agreement.gpu_device import DEVICE, INTERPRETED, MARKS
from tests.support import assert_close

pytestmark = MARKS

# The last has several tiles of splits, and on a GPU of starts, for a width.
SIZES = [1, 2, 6, 40 if INTERPRETED else 70]
KINDS = ["plain", "masked", "large", "impossible", "tied"]


def lengths(n: int) -> Tensor:
    """Ragged, at least 1."""
    return torch.tensor([n, n, 1, max(n - 1, 1), (n + 1) // 2])


def problem(n: int, s: int, kind: str) -> Tensor:
    """Potentials [5 n n s], NaN where there can be no span."""
    generator = torch.Generator().manual_seed(10 * n + s)
    potentials = torch.randn(5, n, n, s, generator=generator, dtype=torch.float64)
    if kind == "masked":
        potentials = potentials.masked_fill(
            torch.rand(potentials.shape, generator=generator) < 0.2, -torch.inf
        )
    if kind == "large":
        potentials = potentials * 1e4
    if kind == "impossible":
        potentials[0, 0, n - 1] = -torch.inf
        potentials[1, n // 2, n // 2] = -torch.inf
    if kind == "tied":
        potentials = potentials.sign()
    spans = SpanTree(torch.zeros(5, n, n, 1), lengths=lengths(n))._spans[..., None]
    return potentials.where(spans, torch.nan)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", SIZES)
def test_gpu_agrees_with_cpu(n: int, kind: str) -> None:
    given, sizes = problem(n, 1, kind)[..., 0], lengths(n)
    weights = torch.arange(1.0, 6.0, dtype=torch.float64)
    truth = given.clone().requires_grad_()
    log_z = op.tree_log_partition(truth, sizes)
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    (gradient,) = torch.autograd.grad((weights * alive).sum(), truth)
    passes = GpuTreePasses(given.to(DEVICE), sizes.to(DEVICE))
    assert_close(passes.log_z, log_z)
    (found,) = passes.gradients(weights.to(DEVICE))
    # log Z is around a million for the large scores: ten digits of a probability are left.
    assert_close(found, gradient, rtol=1e-8 if kind == "large" else 1e-10, atol=1e-10)
    # The same additions in the same order on both: the same ties, the same answer.
    assert_close(passes.best(), op.best_tree(given, sizes))


def test_float32_scores_give_float32_gradients() -> None:
    given, sizes = problem(5, 1, "plain")[..., 0].float(), lengths(5)
    passes = GpuTreePasses(given.to(DEVICE), sizes.to(DEVICE))
    assert_close(passes.log_z, op.tree_log_partition(given.double(), sizes))
    (found,) = passes.gradients(torch.ones(5, device=DEVICE))
    assert found.dtype == torch.float32
    truth = given.double().requires_grad_()
    (gradient,) = torch.autograd.grad(op.tree_log_partition(truth, sizes).sum(), truth)
    assert_close(found, gradient)


def test_tangents_agree_with_the_reference() -> None:
    given, sizes = problem(5, 1, "masked")[..., 0].nan_to_num(0.0, neginf=-torch.inf), lengths(5)
    given.requires_grad_()
    generator = torch.Generator().manual_seed(7)
    along = torch.randn(given.shape, generator=generator, dtype=torch.float64)
    weights = torch.arange(1.0, 6.0, dtype=torch.float64)
    log_z = reference_tree_log_partition(given, sizes)
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    (first,) = torch.autograd.grad((weights * alive).sum(), given, create_graph=True)
    (second,) = torch.autograd.grad((first * along).sum(), given)
    passes = GpuTreePasses(given.to(DEVICE), sizes.to(DEVICE))
    found, expected = passes.tangents(weights.to(DEVICE), (along.to(DEVICE),))
    assert_close(found, second)
    (marginals,) = passes.gradients(torch.ones(5, dtype=torch.float64, device=DEVICE))
    assert_close(expected, (marginals.cpu() * along).flatten(1).sum(1))


@pytest.mark.parametrize("kind", ["plain", "masked", "impossible"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_samples_follow_the_distribution_and_the_seed(kind: str, dtype: torch.dtype) -> None:
    n, s, count = 3, 2, 40 if INTERPRETED else 20_000
    sizes = lengths(n)
    potentials = problem(n, s, kind).nan_to_num(-torch.inf, neginf=-torch.inf).to(dtype)
    scores = potentials.double().logsumexp(-1)
    passes = GpuTreePasses(scores.to(DEVICE), sizes.to(DEVICE))
    trees = passes.sample(potentials.to(DEVICE), count, 2**63 + 5)
    if not INTERPRETED:  # where it takes long
        assert_close(trees, passes.sample(potentials.to(DEVICE), count, 2**63 + 5))
    trees = trees.cpu()
    for element in range(len(sizes)):
        length = int(sizes[element])
        alone = SpanTree(potentials[element, :length, :length].double())
        drawn = trees[:, element, :length, :length]
        assert int((trees[:, element] >= 0).sum()) == int((drawn >= 0).sum())
        if float(alone.log_partition()) == -torch.inf:
            assert bool((drawn == -1).all())
            continue
        support = alone.enumerate_support()
        probabilities = alone.log_prob(support).exp()
        counts = (drawn[:, None] == support).flatten(2).all(-1).sum(0)
        assert int(counts.sum()) == count
        assert int(counts[probabilities == 0].sum()) == 0
        # Rare trees are counted together: the statistic wants a few of everything.
        common = probabilities > 5 / count
        rare = ~common & (probabilities > 0)
        wanted = torch.cat([probabilities[common], probabilities[rare].sum()[None]]) * count
        found = torch.cat([counts[common], counts[rare].sum()[None]])
        kept = wanted > 0
        if int(kept.sum()) > 1:
            wanted = wanted[kept] / wanted[kept].sum() * count
            assert chisquare(found[kept].double().numpy(), wanted.numpy()).pvalue > 1e-4


def drawn_by_hand(potentials: Tensor, uniform: Tensor) -> Tensor:
    """One labelled tree [n n] over potentials [n n s], by inverting running sums.

    Spans in preorder use the rows of `uniform` [2n 2]: for the label, and for the split.
    """
    n = len(potentials)
    scores, chart, splits = potentials.logsumexp(-1), {}, {}
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            below = [chart[i, k] + chart[k + 1, j] for k in range(i, j)] or [torch.tensor(0.0)]
            splits[i, j] = torch.stack(below)
            chart[i, j] = scores[i, j] + splits[i, j].double().logsumexp(0)
    labels = torch.full((n, n), -1)
    waiting, turn = [(0, n - 1)] if float(chart[0, n - 1]) > -torch.inf else [], 0
    while waiting:
        i, j = waiting.pop()
        labels[i, j] = (potentials[i, j].softmax(0).cumsum(0) <= uniform[turn, 0]).sum()
        if i < j:
            k = i + int((splits[i, j].softmax(0).cumsum(0) <= uniform[turn, 1]).sum())
            waiting += [(k + 1, j), (i, k)]
        turn += 1
    return labels


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_what_the_uniform_numbers_say(kind: str) -> None:
    n, s, count, seed = 5, 3, 4, 11
    sizes = lengths(n)
    potentials = problem(n, s, kind).nan_to_num(-torch.inf, neginf=-torch.inf)
    passes = GpuTreePasses(potentials.logsumexp(-1).to(DEVICE), sizes.to(DEVICE))
    found = passes.sample(potentials.to(DEVICE), count, seed).cpu()
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    uniform = torch.rand(
        (count, 5, 2 * n, 2), generator=generator, device=DEVICE, dtype=torch.float64
    ).cpu()
    for m in range(count):
        for e in range(5):
            length = int(sizes[e])
            by_hand = torch.full((n, n), -1)
            by_hand[:length, :length] = drawn_by_hand(
                potentials[e, :length, :length], uniform[m, e]
            )
            assert_close(found[m, e], by_hand)


def test_a_large_tree_is_sampled_whole() -> None:
    n = 40
    potentials = torch.zeros(1, n, n, 3, dtype=torch.float64)
    sizes = torch.tensor([n])
    passes = GpuTreePasses(potentials.logsumexp(-1).to(DEVICE), sizes.to(DEVICE))
    trees = passes.sample(potentials.to(DEVICE), 2, 1).cpu()
    _, good = op.splits_of(trees[:, 0] >= 0, sizes.expand(2))
    assert bool(good.all())
    assert not torch.equal(trees[0], trees[1])
