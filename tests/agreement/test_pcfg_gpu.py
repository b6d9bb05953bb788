"""Grammars on a GPU against the CPU passes in float64: values, derivatives, trees, samples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inout.distributions import PCFG
from inout.kernels.pcfg.cpu.passes import CpuGrammarPasses
from inout.kernels.pcfg.gpu.passes import GpuGrammarPasses
from tests.agreement.gpu_device import DEVICE, INTERPRETED, MARKS
from tests.support import assert_close

pytestmark = MARKS

# (words, nonterminals, preterminals): all widths that are special, and more symbols than a tile.
SIZES = [(2, 1, 1), (3, 2, 1), (5, 3, 4)] + ([] if INTERPRETED else [(18, 70, 33), (11, 5, 130)])
KINDS = ["plain", "masked", "steep", "large", "impossible"]

Potentials = tuple[Tensor, Tensor, Tensor, Tensor]


def potentials(
    size: tuple[int, int, int], kind: str = "plain", shared: bool = True, *, batch: int = 4
) -> Potentials:
    """Root, rules, words and ragged lengths (one word and all among them); NaN in the padding."""
    n, nt, pt = size
    s = nt + pt
    generator = torch.Generator().manual_seed(n + 10 * nt + 100 * pt + 1000 * shared)

    def normal(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        values *= {"steep": 8, "large": 1e4}.get(kind, 1)
        if kind == "masked":
            values[torch.rand(shape, generator=generator) < 0.4] = -torch.inf
        return values

    root, rules = normal(batch, nt), normal(1 if shared else batch, nt, s, s)
    words = normal(batch, n, pt)
    if kind == "impossible":
        words[0, n // 2] = -torch.inf
    lengths = torch.tensor([n, n, (n + 2) // 2, 1])[:batch]
    real = torch.arange(n) < lengths[:, None]
    return root, rules, words.where(real[..., None], torch.nan), lengths


def gpu_passes(given: Potentials, dtype: torch.dtype = torch.float64) -> GpuGrammarPasses:
    root, rules, words = (x.to(DEVICE, dtype) for x in given[:3])
    return GpuGrammarPasses(root, rules, words, given[3].to(DEVICE))


def check_derivatives(given: Potentials, dtype: torch.dtype, rtol: float) -> None:
    """log Z, gradients and span marginals in `dtype` are those of the CPU for the same numbers."""
    rounded = (*(x.to(dtype).double() for x in given[:3]), given[3])
    found, expected = gpu_passes(given, dtype), CpuGrammarPasses(*rounded)
    assert_close(found.log_z, expected.log_z, rtol=rtol, atol=rtol)
    weights = torch.arange(1.0, 1 + len(given[3]), dtype=torch.float64)
    gradients = zip(
        found.gradients(weights.to(DEVICE, dtype)), expected.gradients(weights), strict=True
    )
    for own, other in gradients:
        assert own.dtype == dtype
        assert_close(own.double(), other, rtol=rtol, atol=rtol)
    assert_close(found.span_marginals(), expected.span_marginals(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size: tuple[int, int, int], shared: bool, dtype: torch.dtype) -> None:
    check_derivatives(
        potentials(size, shared=shared), dtype, 1e-10 if dtype == torch.float64 else 1e-4
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_ranges(kind: str, shared: bool, dtype: torch.dtype) -> None:
    given = potentials((6, 3, 2), kind, shared)
    check_derivatives(given, dtype, 1e-9 if dtype == torch.float64 else 3e-4)


def test_symbols_that_are_impossible_need_no_fallback() -> None:
    assert len(gpu_passes(potentials((6, 3, 2), "masked"))._bad) == 0
    assert len(gpu_passes(potentials((6, 3, 2), "large"))._bad) > 0


def test_gradients_are_the_same_every_time() -> None:
    given = potentials((6, 3, 2) if INTERPRETED else (30, 33, 20))
    weights = torch.ones(4, device=DEVICE)
    first = gpu_passes(given, torch.float32).gradients(weights)
    second = gpu_passes(given, torch.float32).gradients(weights)
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device here")
def test_products_are_exact_when_the_user_allows_tf32() -> None:
    given = potentials((20, 64, 40))
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        check_derivatives(given, torch.float32, 1e-4)
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


@pytest.mark.parametrize("kind", ["plain", "large", "impossible"])
def test_second_derivatives(kind: str) -> None:
    given = potentials((5, 2, 2), kind)
    weights = torch.arange(1.0, 5.0, dtype=torch.float64)
    along = tuple(torch.linspace(-1, 1, x.numel()).double().reshape(x.shape) for x in given[:3])
    expected = CpuGrammarPasses(*given).tangents(weights, along)
    found = gpu_passes(given).tangents(weights.to(DEVICE), tuple(x.to(DEVICE) for x in along))
    for own, other in zip(found, expected, strict=True):
        assert_close(own, other)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("kind", KINDS)
def test_best_trees_have_the_best_score(kind: str, shared: bool) -> None:
    given = potentials((6, 3, 2), kind, shared)
    distribution = PCFG(*given)
    best = gpu_passes(given).best().cpu()
    assert_close(distribution.log_prob(best), distribution.log_prob(distribution.mode))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_samples_follow_the_distribution_and_the_seed(shared: bool) -> None:
    given = potentials((4, 2, 1), shared=shared, batch=1)
    passes = gpu_passes(given)
    count = 150 if INTERPRETED else 20_000
    samples = passes.sample(count, 7)
    assert torch.equal(samples, passes.sample(count, 7))
    distribution = PCFG(*given)
    trees = distribution.enumerate_support()  # 40 of them
    same = (samples.cpu()[:, None, 0] == trees[None, :, 0]).flatten(2).all(-1)
    assert bool((same.sum(1) == 1).all())
    expected = count * distribution.log_prob(trees)[:, 0].exp()
    rare = expected < 5
    merge = torch.cat([expected[~rare], expected[rare].sum()[None]])
    found = same.sum(0).double()
    found = torch.cat([found[~rare], found[rare].sum()[None]])
    statistic = ((found - merge) ** 2 / merge.clamp(min=1)).sum().item()
    freedom = len(merge) - 1
    # Five standard deviations of a chi-square variable.
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("kind", ["masked", "large", "impossible"])
def test_samples_are_possible_trees(kind: str) -> None:
    given = potentials((6, 3, 2), kind, shared=False)
    passes = gpu_passes(given)
    samples = passes.sample(3, 1).cpu()
    some = (passes.log_z > -torch.inf).cpu()
    assert bool((PCFG(*given).log_prob(samples)[:, some] > -torch.inf).all())
    assert bool((samples[:, ~some] == -1).all())
