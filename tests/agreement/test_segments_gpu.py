"""Semi-Markov chains on a GPU against the CPU in float64: values, derivatives, decoding."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from inout import ArgumentError, SemiMarkov
from inout.kernels.limits import SEGMENTS_GPU_LABELS
from inout.kernels.segments import op
from inout.kernels.segments.gpu.passes import GpuPasses
from inout.kernels.segments.reference import reference_log_partition
from tests.agreement.gpu_device import DEVICE, INTERPRETED, MARKS
from tests.support import assert_close

pytestmark = MARKS

# n, w, s: wider than long, one label, one position; the last has several tiles for a step.
SIZES = [(5, 3, 3), (3, 5, 2), (4, 2, 1), (1, 1, 1), (1, 2, 4), (4, 3, 40)]
KINDS = ["plain", "masked", "large", "impossible"]


def lengths(n: int) -> Tensor:
    """Ragged, with full, empty and short elements."""
    return torch.tensor([n, n, 0, 1, max(n - 1, 0), (n + 1) // 2])


def problem(n: int, w: int, s: int, kind: str, dtype: torch.dtype) -> Tensor:
    """Potentials [6 n w s s], NaN in the padding."""
    generator = torch.Generator().manual_seed(1000 * n + 10 * w + s)
    potentials = torch.randn(6, n, w, s, s, generator=generator, dtype=dtype)
    if kind == "masked":
        mask = torch.rand(potentials.shape, generator=generator) < 0.4
        potentials = potentials.masked_fill(mask, -torch.inf)
        potentials[1, :, 0] = -torch.inf  # no segment of width 1: some positions end none
    if kind == "large":
        potentials = potentials * 1e4
    if kind == "impossible":
        potentials[0] = -torch.inf
        potentials[1, n - 1] = -torch.inf
    used = SemiMarkov(torch.zeros(6, n, w, s, s), lengths=lengths(n))._used
    return potentials.where(used, torch.nan)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gpu_agrees_with_cpu(size: tuple[int, int, int], kind: str, dtype: torch.dtype) -> None:
    given, sizes = problem(*size, kind, dtype), lengths(size[0])
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    truth = given.double().requires_grad_()
    log_z = op.log_partition(truth, sizes)
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    (gradient,) = torch.autograd.grad((weights * alive).sum(), truth)
    for keep in (True, False):
        passes = GpuPasses(given.to(DEVICE), sizes.to(DEVICE), keep=keep)
        assert passes.log_z.dtype == torch.float64
        exact = dtype == torch.float64
        # Only exponentials are in float32, so log Z keeps its digits whatever its size.
        assert_close(passes.log_z, log_z, rtol=1e-12, atol=1e-10 if exact else 1e-5)
        (found,) = passes.gradients(weights.to(DEVICE, dtype))
        assert found.dtype == dtype
        assert_close(found, gradient, rtol=1e-9 if exact else 1e-4, atol=1e-10 if exact else 1e-5)
    # Viterbi adds in float64 on both: the same ties, the same answer.
    best, some = GpuPasses(given.to(DEVICE), sizes.to(DEVICE)).best().cpu(), log_z > -torch.inf
    assert_close(best[some], op.best_segments(given, sizes)[some])


def test_mode_without_possible_events() -> None:
    given = problem(4, 3, 2, "impossible", torch.float64)
    found = SemiMarkov(given.to(DEVICE), lengths=lengths(4).to(DEVICE)).mode.cpu()
    assert_close(found, SemiMarkov(given, lengths=lengths(4)).mode)


def test_tangents_agree_with_the_reference() -> None:
    given, sizes = problem(4, 3, 2, "masked", torch.float64), lengths(4)
    given = given.nan_to_num(0.0, neginf=-torch.inf).requires_grad_()
    generator = torch.Generator().manual_seed(7)
    along = torch.randn(given.shape, generator=generator, dtype=torch.float64)
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    log_z = reference_log_partition(given, sizes)
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    (first,) = torch.autograd.grad((weights * alive).sum(), given, create_graph=True)
    (second,) = torch.autograd.grad((first * along).sum(), given)
    passes = GpuPasses(given.to(DEVICE), sizes.to(DEVICE))
    found, expected = passes.tangents(weights.to(DEVICE), (along.to(DEVICE),))
    assert_close(found, second)
    (marginals,) = passes.gradients(torch.ones(6, dtype=torch.float64, device=DEVICE))
    assert_close(expected, (marginals.cpu() * along).flatten(1).sum(1))


@pytest.mark.parametrize("kind", ["plain", "masked"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_samples_follow_the_distribution_and_the_seed(kind: str, dtype: torch.dtype) -> None:
    n, count = 3, 40 if INTERPRETED else 20_000
    given, sizes = problem(n, 2, 2, kind, dtype), lengths(n)
    passes = GpuPasses(given.to(DEVICE), sizes.to(DEVICE))
    labels, possible = passes.sample(count, 2**63 + 5)
    assert_close(possible, op.sample_segments(given, sizes, 1, 0)[1])
    if not INTERPRETED:  # where it takes long
        assert_close(labels, passes.sample(count, 2**63 + 5)[0])
    labels = labels.cpu()
    assert bool((labels[:, torch.arange(n) >= sizes[:, None]] == 0).all())
    for element in range(len(sizes)):
        length = int(sizes[element])
        if length == 0 or not bool(possible[element]):
            continue
        alone = SemiMarkov(given[element, :length].double())
        support = alone.enumerate_support()
        probabilities = alone.log_prob(support).exp()
        drawn = labels[:, element, None, :length] == support
        counts = drawn.all(-1).sum(0)
        assert int(counts.sum()) == count
        assert int(counts[probabilities == 0].sum()) == 0
        # Rare ones are counted together: the statistic wants a few of everything.
        common = probabilities > 5 / count
        rare = ~common & (probabilities > 0)
        wanted = torch.cat([probabilities[common], probabilities[rare].sum()[None]]) * count
        found = torch.cat([counts[common], counts[rare].sum()[None]])
        kept = wanted > 0
        if int(kept.sum()) > 1:
            wanted = wanted[kept] / wanted[kept].sum() * count
            assert chisquare(found[kept].double().numpy(), wanted.numpy()).pvalue > 1e-4


def drawn_by_hand(given: Tensor, length: int, uniform: Tensor) -> list[int]:
    """Labels of one element by inverting running sums: the last one's, then (width, label before).

    `uniform` [n+1]: the number for a segment that ends at t (from 1) is at t - 1, the first at n.
    """
    n, w, s = given.shape[:3]
    alphas = [torch.tensor([0.0] + [-torch.inf] * (s - 1), dtype=torch.float64)]

    def rows(t: int) -> Tensor:
        before = torch.cat([alphas[t - d] for d in range(1, min(w, t) + 1)])[:, None]
        blocks = given[t - 1, : min(w, t)].reshape(-1, s).double()
        return torch.where(before == -torch.inf, before, before + blocks)

    for t in range(1, length + 1):
        alphas.append(rows(t).logsumexp(0))
    labels = [-1] * length + [0] * (n - length)
    if length == 0 or bool((alphas[length] == -torch.inf).all()):
        return labels
    t, label = length, int((alphas[length].softmax(0).cumsum(0) <= uniform[n]).sum())
    while t > 0:
        labels[t - 1] = label
        row = int((rows(t)[:, label].softmax(0).cumsum(0) <= uniform[t - 1]).sum())
        t, label = t - row // s - 1, row % s
    return labels


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_what_the_uniform_numbers_say(kind: str, dtype: torch.dtype) -> None:
    n, count, seed = 4, 8, 11
    given, sizes = problem(n, 3, 2, kind, dtype), lengths(n)
    found, _ = GpuPasses(given.to(DEVICE), sizes.to(DEVICE)).sample(count, seed)
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    uniform = torch.rand(
        (count, 6, n + 1), generator=generator, device=DEVICE, dtype=torch.float64
    ).cpu()
    by_hand = [
        [drawn_by_hand(given[e], int(sizes[e]), uniform[m, e]) for e in range(6)]
        for m in range(count)
    ]
    assert_close(found, torch.tensor(by_hand))


def test_no_positions_and_no_elements() -> None:
    passes = GpuPasses(
        torch.empty(2, 0, 3, 2, 2, device=DEVICE), torch.zeros(2, dtype=torch.long, device=DEVICE)
    )
    assert_close(passes.log_z, torch.zeros(2, dtype=torch.float64))
    assert passes.gradients(torch.ones(2, device=DEVICE))[0].shape == (2, 0, 3, 2, 2)
    assert passes.best().shape == (2, 0)
    none = GpuPasses(
        torch.empty(0, 4, 3, 2, 2, device=DEVICE), torch.zeros(0, dtype=torch.long, device=DEVICE)
    )
    assert none.log_z.shape == (0,)
    assert none.sample(3, 0)[0].shape == (3, 0, 4)


def test_more_labels_than_a_program_holds_are_refused() -> None:
    many = SEGMENTS_GPU_LABELS + 1
    with pytest.raises(ArgumentError, match=f"at most {SEGMENTS_GPU_LABELS} labels"):
        GpuPasses(torch.empty(1, 0, 1, many, many), torch.zeros(1, dtype=torch.long))
