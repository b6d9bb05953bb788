"""Projective dependency trees on a GPU against those on the CPU: values, gradients, decoding."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from inout import DependencyTree
from inout.kernels.dependencies import op
from inout.kernels.dependencies.gpu.passes import GpuDependencyPasses
from inout.kernels.dependencies.reference import reference_log_partition
from tests.agreement.gpu_device import DEVICE, INTERPRETED, MARKS
from tests.support import assert_close

pytestmark = MARKS

# The last has several tiles of splits, and on a GPU of starts, for a width.
SIZES = [1, 2, 6, 20 if INTERPRETED else 70]
KINDS = ["plain", "masked", "peaked", "large", "impossible", "tied"]


def lengths(n: int) -> Tensor:
    """Ragged, at least 1."""
    return torch.tensor([n, n, 1, max(n - 1, 1), (n + 1) // 2])


def problem(n: int, kind: str) -> Tensor:
    """Scores [5 n+1 n], NaN where there can be no arc."""
    generator = torch.Generator().manual_seed(n)
    scores = torch.randn(5, n + 1, n, generator=generator, dtype=torch.float64)
    if kind == "masked":
        hidden = torch.rand(scores.shape, generator=generator) < 0.2
        scores = scores.masked_fill(hidden, -torch.inf)
    if kind == "peaked":  # some sentences stay in range, others do not
        scores = scores * torch.tensor([1.0, 5.0, 30.0, 60.0, 300.0])[:, None, None]
    if kind == "large":
        scores = scores * 1e4
    if kind == "impossible":
        scores[0, :, n - 1] = -torch.inf
        scores[1, 0] = -torch.inf
    if kind == "tied":
        scores = scores.sign()
    place = torch.arange(n + 1)
    real = (place[:, None] != place[1:]) & (place[:, None] <= lengths(n)[:, None, None])
    return scores.where(real & (place[1:] <= lengths(n)[:, None, None]), torch.nan)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", SIZES)
def test_gpu_agrees_with_cpu(n: int, kind: str, single_root: bool) -> None:
    given, sizes = problem(n, kind), lengths(n)
    weights = torch.arange(1.0, 6.0, dtype=torch.float64)
    truth = given.clone().requires_grad_()
    log_z = op.log_partition(truth, sizes, single_root)
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    (gradient,) = torch.autograd.grad((weights * alive).sum(), truth)
    passes = GpuDependencyPasses(given.to(DEVICE), sizes.to(DEVICE), single_root)
    assert_close(passes.log_z, log_z)
    for _ in range(2):  # the second time some charts are in log space
        (found,) = passes.gradients(weights.to(DEVICE))
        # log Z is around a million for the large scores: ten digits of a probability are left.
        assert_close(found, gradient, rtol=1e-8 if kind == "large" else 1e-10, atol=1e-9)
    # Trees of the same score may differ.
    best, wanted = passes.best().cpu(), op.best_heads(given, sizes, single_root)
    assert_close(best < 0, wanted < 0)
    assert_close(total(given, best), total(given, wanted))


def total(scores: Tensor, heads: Tensor) -> Tensor:
    """The sum of the scores of the arcs of each tree."""
    own = scores.gather(1, heads.clamp(min=0)[:, None])[:, 0]
    return own.where(heads >= 0, 0.0).sum(1)


def test_one_large_problem_of_random_scores_stays_in_range() -> None:
    n = 20 if INTERPRETED else 128
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(2, n + 1, n, generator=generator, dtype=torch.float64)
    passes = GpuDependencyPasses(scores.to(DEVICE), torch.tensor([n, n]).to(DEVICE), True)
    passes.gradients(torch.ones(2, dtype=torch.float64, device=DEVICE))
    assert not bool(passes._inside.flags.any())


def test_float32_scores_give_float32_gradients() -> None:
    given, sizes = problem(5, "plain").float(), lengths(5)
    passes = GpuDependencyPasses(given.to(DEVICE), sizes.to(DEVICE), True)
    assert_close(passes.log_z, op.log_partition(given.double(), sizes, True))
    (found,) = passes.gradients(torch.ones(5, device=DEVICE))
    assert found.dtype == torch.float32


def test_tangents_agree_with_the_reference() -> None:
    sizes = lengths(4)
    given = problem(4, "masked").nan_to_num(0.0, neginf=-torch.inf).requires_grad_()
    generator = torch.Generator().manual_seed(7)
    along = torch.randn(given.shape, generator=generator, dtype=torch.float64)
    weights = torch.arange(1.0, 6.0, dtype=torch.float64)
    log_z = reference_log_partition(given, sizes, True)
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    (first,) = torch.autograd.grad((weights * alive).sum(), given, create_graph=True)
    (second,) = torch.autograd.grad((first * along).sum(), given)
    passes = GpuDependencyPasses(given.to(DEVICE), sizes.to(DEVICE), True)
    found, expected = passes.tangents(weights.to(DEVICE), (along.to(DEVICE),))
    assert_close(found, second)
    (marginals,) = passes.gradients(torch.ones(5, dtype=torch.float64, device=DEVICE))
    assert_close(expected, (marginals.cpu() * along).flatten(1).sum(1))


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("kind", ["plain", "masked", "impossible"])
def test_samples_follow_the_distribution_and_the_seed(kind: str, single_root: bool) -> None:
    n, count = 3, 40 if INTERPRETED else 20_000
    sizes, scores = lengths(n), problem(n, kind).nan_to_num(-torch.inf, neginf=-torch.inf)
    passes = GpuDependencyPasses(scores.to(DEVICE), sizes.to(DEVICE), single_root)
    heads = passes.sample(count, 2**63 + 5)
    assert_close(heads, passes.sample(count, 2**63 + 5))
    for element, length in enumerate(sizes.tolist()):
        own = scores[element, : length + 1, :length]
        alone = DependencyTree(own[1:], own[0], single_root=single_root)
        drawn = heads.cpu()[:, element]
        assert bool((drawn[:, length:] == -1).all())
        drawn = drawn[:, :length]
        if float(alone.log_partition()) == -torch.inf:
            assert bool((drawn == -1).all())
            continue
        support = alone.enumerate_support()
        probabilities = alone.log_prob(support).exp()
        counts = (drawn[:, None] == support).all(-1).sum(0)
        assert int(counts.sum()) == count
        assert int(counts[probabilities == 0].sum()) == 0
        common = probabilities * count > 5
        if int(common.sum()) > 1:
            wanted = probabilities[common] / probabilities[common].sum() * counts[common].sum()
            assert chisquare(counts[common].double().numpy(), wanted.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("single_root", [True, False])
def test_a_large_tree_is_sampled_whole(single_root: bool) -> None:
    n = 24 if INTERPRETED else 100
    scores, sizes = torch.zeros(1, n + 1, n, dtype=torch.float64), torch.tensor([n])
    passes = GpuDependencyPasses(scores.to(DEVICE), sizes.to(DEVICE), single_root)
    heads = passes.sample(2, 1).cpu()[:, 0]
    assert not bool((op.faults(heads, sizes.expand(2)) & (7 if single_root else 5)).any())
    assert not torch.equal(heads[0], heads[1])


@pytest.mark.skipif(INTERPRETED, reason="tensors are on the CPU")
def test_the_distribution_runs_on_the_gpu() -> None:
    generator = torch.Generator().manual_seed(1)
    arcs, root = (
        torch.randn(3, 6, 6, 2, generator=generator),
        torch.randn(3, 6, 2, generator=generator),
    )
    one, other = (
        DependencyTree(arcs.to(d), root.to(d), lengths=[6, 3, 1]) for d in ("cpu", DEVICE)
    )
    assert_close(other.log_partition(), one.log_partition())
    for name, marginal in one.marginals().items():
        assert_close(other.marginals()[name], marginal)
    assert_close(other.entropy(), one.entropy())
    assert_close(other.mode, one.mode)
    assert_close(other.topk(3)[1], one.topk(3)[1])
    assert other.log_prob(other.sample((5,))).shape == (5, 3)
