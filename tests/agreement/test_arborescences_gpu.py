"""Arborescences on a GPU against those on the CPU: log Z and its derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inout import DependencyTree
from inout.kernels.arborescences import op
from inout.kernels.arborescences.gpu.passes import GpuArborescences
from tests.agreement.gpu_device import DEVICE, INTERPRETED, MARKS
from tests.support import assert_close

pytestmark = MARKS

SIZES = [1, 2, 7, 20 if INTERPRETED else 100]
KINDS = ["plain", "masked", "sparse", "peaked", "large", "impossible"]


def lengths(n: int) -> Tensor:
    """Ragged; the last element has no word."""
    return torch.tensor([n, n, 1, max(n - 1, 1), (n + 1) // 2, 0])


def problem(n: int, kind: str) -> Tensor:
    """Scores [6 n+1 n], NaN where there can be no arc."""
    generator = torch.Generator().manual_seed(n)
    scores = torch.randn(6, n + 1, n, generator=generator, dtype=torch.float64)
    if kind in ("masked", "sparse"):
        share = 0.2 if kind == "masked" else 0.7
        hidden = torch.rand(scores.shape, generator=generator) < share
        scores = scores.masked_fill(hidden, -torch.inf)
    if kind == "peaked":  # some elements stay in range, others do not
        scores = scores * torch.tensor([1.0, 5.0, 30.0, 60.0, 300.0, 1.0])[:, None, None]
    if kind == "large":
        scores = scores * 1e4
    if kind == "impossible":
        scores[0, :, n - 1] = -torch.inf
        scores[1, 0] = -torch.inf
    place, sizes = torch.arange(n + 1), lengths(n)[:, None, None]
    real = (place[:, None] != place[1:]) & (place[:, None] <= sizes) & (place[1:] <= sizes)
    return scores.where(real, torch.nan)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", SIZES)
def test_gpu_agrees_with_cpu(n: int, kind: str, single_root: bool) -> None:
    given, sizes = problem(n, kind), lengths(n)
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    truth = given.clone().requires_grad_()
    log_z = op.log_partition(truth, sizes, single_root)
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    (gradient,) = torch.autograd.grad((weights * alive).sum(), truth)
    passes = GpuArborescences(given.to(DEVICE), sizes.to(DEVICE), single_root)
    assert_close(passes.log_z, log_z)
    (found,) = passes.gradients(weights.to(DEVICE))
    # log Z is around a million for the large scores: ten digits of a probability are left.
    assert_close(found, gradient, rtol=1e-8 if kind == "large" else 1e-10, atol=1e-9)


def test_random_scores_stay_in_range() -> None:
    n = 20 if INTERPRETED else 128
    scores = problem(n, "plain")[:2]
    passes = GpuArborescences(scores.to(DEVICE), torch.tensor([n, n]).to(DEVICE), True)
    assert len(passes.odd) == 0


@pytest.mark.parametrize("single_root", [True, False])
def test_tangents_agree_with_the_cpu(single_root: bool) -> None:
    given, sizes = problem(5, "masked").nan_to_num(0.0, neginf=-torch.inf), lengths(5)
    generator = torch.Generator().manual_seed(7)
    along = torch.randn(given.shape, generator=generator, dtype=torch.float64)
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    truth = given.clone().requires_grad_()
    log_z = op.log_partition(truth, sizes, single_root)
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    (first,) = torch.autograd.grad((weights * alive).sum(), truth, create_graph=True)
    (second,) = torch.autograd.grad((first * along).sum(), truth)
    passes = GpuArborescences(given.to(DEVICE), sizes.to(DEVICE), single_root)
    found, _ = passes.tangents(weights.to(DEVICE), (along.to(DEVICE),))
    assert_close(found, second)


@pytest.mark.skipif(INTERPRETED, reason="tensors are on the CPU")
def test_the_distribution_runs_on_the_gpu() -> None:
    generator = torch.Generator().manual_seed(1)
    arcs = torch.randn(3, 6, 6, 2, generator=generator)
    root = torch.randn(3, 6, 2, generator=generator)
    one, other = (
        DependencyTree(arcs.to(d), root.to(d), lengths=[6, 3, 1], projective=False)
        for d in ("cpu", DEVICE)
    )
    assert_close(other.log_partition(), one.log_partition())
    for name, marginal in one.marginals().items():
        assert_close(other.marginals()[name], marginal)
    assert_close(other.entropy(), one.entropy())
    assert_close(other.mode, one.mode)
    assert_close(other.topk(3)[1], one.topk(3)[1])
    assert other.log_prob(other.sample((5,))).shape == (5, 3)
