"""Factored grammars and chains on a GPU against the CPU passes in float64.

Their GPU passes are torch code, which is tested on the CPU where there is no GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from inout import HMM, PCFG, LinearChain, RuleFactors, StructuredDistribution, TransitionFactors
from inout.kernels.lowrank.cpu.chain_passes import CpuFactoredChainPasses
from inout.kernels.lowrank.cpu.grammar_passes import CpuFactoredGrammarPasses
from inout.kernels.lowrank.gpu.chain import Potentials, Weights
from inout.kernels.lowrank.gpu.chain_passes import GpuFactoredChainPasses
from inout.kernels.lowrank.gpu.grammar_passes import GpuFactoredGrammarPasses
from inout.kernels.lowrank.gpu.passes import ScaledPasses
from tests.agreement.gpu_device import INTERPRETED
from tests.support import assert_close

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
F32, F64 = torch.float32, torch.float64
KINDS = ["plain", "masked", "steep", "large", "impossible"]
needs_cuda = pytest.mark.skipif(not CUDA, reason="no CUDA device here")


class Numbers:
    """Random log-weights of a kind."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.generator = kind, torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        values = torch.randn(shape, generator=self.generator, dtype=F64)
        values *= {"steep": 8, "large": 1e4}.get(self.kind, 1)
        if self.kind == "masked":
            values[torch.rand(shape, generator=self.generator) < 0.3] = -torch.inf
        return values


def padded(values: Tensor, lengths: Tensor) -> Tensor:
    """NaN beyond the lengths."""
    real = torch.arange(values.shape[1]) < lengths[:, None]
    return values.where(real.reshape(*real.shape, *[1] * (values.ndim - 2)), torch.nan)


def grammar(
    kind: str, own: tuple[int, ...] = (0, 0, 0), *, head: bool = True, seed: int = 0, n: int = 6
) -> list[Tensor]:
    """Root, head, left, right, words and ragged lengths, one word and all among them."""
    b, nt, pt = 4, 3, 2
    rank = 4 if head else nt
    normal = Numbers(kind, seed)
    sizes = [b if x else 1 for x in own]
    factors = [normal(sizes[0], nt, rank) if head else torch.empty(1, 0, 0, dtype=F64)]
    factors += [normal(sizes[1], rank, nt + pt), normal(sizes[2], rank, nt + pt)]
    root, words, lengths = normal(b, nt), normal(b, n, pt), torch.tensor([n, n, 4, 1])
    if kind == "impossible":
        words[0, 3] = -torch.inf
    return [root, *factors, padded(words, lengths), lengths]


def chain(
    kind: str, own: tuple[int, ...] = (0, 0), steps: tuple[int, ...] = (0, 0), seed: int = 0
) -> list[Tensor]:
    """Nodes, source, target and ragged lengths, none and all among them."""
    b, n, s, rank = 5, 7, 5, 3
    normal = Numbers(kind, seed)
    elements, positions = [b if x else 1 for x in own], [n - 1 if x else 1 for x in steps]
    nodes = normal(b, n, s)
    source = normal(elements[0], positions[0], s, rank)
    target = normal(elements[1], positions[1], rank, s)
    lengths = torch.tensor([n, n, 4, 1, 0])
    if kind == "impossible":
        nodes[0, 3] = -torch.inf
    if own == (1, 1) and steps == (1, 1):
        source, target = padded(source, lengths - 1), padded(target, lengths - 1)
    return [padded(nodes, lengths), source, target, lengths]


def on_device(given: list[Tensor], dtype: torch.dtype = F64) -> list[Tensor]:
    return [*(x.to(DEVICE, dtype) for x in given[:-1]), given[-1].to(DEVICE)]


def check(kinds: tuple[Any, Any], given: list[Tensor], dtype: torch.dtype, rtol: float) -> None:
    """log Z, gradients and second derivatives in `dtype` are those of the CPU for these numbers."""
    gpu, cpu = kinds
    rounded = [*(x.to(dtype).double() for x in given[:-1]), given[-1]]
    found, expected = gpu(*on_device(given, dtype)), cpu(*rounded)
    assert_close(found.log_z, expected.log_z, rtol=rtol, atol=rtol)
    weights = torch.arange(1.0, 1 + len(given[-1]), dtype=F64)
    ours, theirs = found.gradients(weights.to(DEVICE, dtype)), expected.gradients(weights)
    for own, other in zip(ours, theirs, strict=True):
        assert own.dtype == dtype
        assert_close(own.double(), other, rtol=rtol, atol=rtol)
    if hasattr(found, "span_marginals"):
        assert_close(found.span_marginals(), expected.span_marginals(), rtol=rtol, atol=rtol)


GRAMMARS = GpuFactoredGrammarPasses, CpuFactoredGrammarPasses
CHAINS = GpuFactoredChainPasses, CpuFactoredChainPasses


@pytest.mark.few(24)
@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize("head", [True, False], ids=["head", "no head"])
@pytest.mark.parametrize("own", [(0, 0, 0), (1, 1, 1), (0, 1, 0), (1, 0, 0)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_grammars(kind: str, own: tuple[int, ...], head: bool, dtype: torch.dtype) -> None:
    check(GRAMMARS, grammar(kind, own, head=head), dtype, 1e-9 if dtype == F64 else 3e-4)


@pytest.mark.few(24)
@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize("steps", [(0, 0), (1, 1), (0, 1)], ids=str)
@pytest.mark.parametrize("own", [(0, 0), (1, 1), (0, 1)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_chains(
    kind: str, own: tuple[int, ...], steps: tuple[int, ...], dtype: torch.dtype
) -> None:
    check(CHAINS, chain(kind, own, steps), dtype, 1e-9 if dtype == F64 else 3e-4)


@pytest.mark.parametrize("n", [2, 3, 12])
def test_lengths_of_grammars(n: int) -> None:
    given = grammar("plain", n=max(n, 4))
    given[-2], given[-1] = given[-2][:, :n], given[-1].clamp(max=n)
    check(GRAMMARS, given, F64, 1e-9)


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("steps", [(0, 0), (1, 1)], ids=str)
def test_lengths_of_chains(n: int, steps: tuple[int, ...]) -> None:
    nodes, source, target, lengths = chain("plain", steps=steps)
    if steps[0]:
        source, target = (x[:, : max(n - 1, 0)] for x in (source, target))
    check(CHAINS, [nodes[:, :n], source, target, lengths.clamp(max=n)], F64, 1e-9)


@pytest.mark.parametrize("kinds", [GRAMMARS, CHAINS], ids=["grammar", "chain"])
@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
def test_which_elements_need_more_range(kinds: tuple[Any, Any], dtype: torch.dtype) -> None:
    make: Any = grammar if kinds is GRAMMARS else chain
    for kind in ("plain", "masked", "impossible"):
        passes = kinds[0](*on_device(make(kind), dtype))
        assert passes.fallback is None, kind
    passes = kinds[0](*on_device(make("large"), dtype))
    assert isinstance(passes.fallback, ScaledPasses) == (dtype == F32)


@pytest.mark.parametrize("own", [0, 1], ids=["shared", "own"])
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind: str, own: int) -> None:
    grammars, chains = grammar(kind, (own,) * 3), chain(kind, (own,) * 2, (own,) * 2)
    for (gpu, cpu), given in ((GRAMMARS, grammars), (CHAINS, chains)):
        weights = torch.arange(1.0, 1 + len(given[-1]), dtype=F64)
        along = [torch.linspace(-1, 1, x.numel()).double().reshape(x.shape) for x in given[:-1]]
        expected = cpu(*given).tangents(weights, tuple(along))
        there = weights.to(DEVICE), tuple(x.to(DEVICE) for x in along)
        for x, y in zip(gpu(*on_device(given)).tangents(*there), expected, strict=True):
            assert_close(x, y, rtol=1e-8, atol=1e-8)


@pytest.mark.skipif(not (CUDA or INTERPRETED), reason="no CUDA device and no interpreter here")
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(3, 5, 300, 17), (20, 4, 70, 33), (40, 3, 130, 70)], ids=str)
def test_kernels_for_large_factors(
    size: tuple[int, int, int, int], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    b, n, s, rank = size
    normal = Numbers(kind, 1)
    nodes, source, target = normal(b, n, s), normal(1, 1, s, rank), normal(1, 1, rank, s)
    if kind == "impossible":
        nodes[0, 2] = -torch.inf
    lengths = torch.tensor([n, 1, n - 1, *[n] * (b - 3)])
    given = [padded(nodes, lengths), source, target, lengths]
    monkeypatch.setattr(Weights, "large", property(lambda self: self.nodes.dtype == F32))
    check(CHAINS, given, F32, 3e-4)
    found = GpuFactoredChainPasses(*on_device(given, F32), keep=False)
    assert_close(found.log_z, GpuFactoredChainPasses(*on_device(given, F32)).log_z)


@needs_cuda
def test_large_factors() -> None:
    normal, lengths = Numbers("plain", 2), torch.tensor([6, 4])
    given = [normal(2, 6, 5000), normal(1, 1, 5000, 300), normal(1, 1, 300, 5000), lengths]
    weights = Weights(Potentials(*on_device(given, F32)[:3]))
    assert weights.large
    check(CHAINS, given, F32, 1e-4)


def test_chains_without_gradients() -> None:
    for kind in KINDS:
        given = chain(kind)
        for dtype, rtol in ((F64, 1e-9), (F32, 1e-4)):
            found = GpuFactoredChainPasses(*on_device(given, dtype), keep=False)
            rounded = [*(x.to(dtype).double() for x in given[:-1]), given[-1]]
            expected = CpuFactoredChainPasses(*rounded)
            assert_close(found.log_z, expected.log_z, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("kinds", [GRAMMARS, CHAINS], ids=["grammar", "chain"])
def test_gradients_are_the_same_every_time(kinds: tuple[Any, Any]) -> None:
    """From the second time on they are recorded on a GPU; others are computed in between."""
    make: Any = grammar if kinds is GRAMMARS else chain
    weights = torch.ones(4 if kinds is GRAMMARS else 5, device=DEVICE)
    results = []
    for seed in (1, 2, 1, 2, 1):
        passes = kinds[0](*on_device(make("plain", seed=seed), F32))
        results.append([passes.log_z, *passes.gradients(weights)])
    for others in (results[2], results[4]):
        for x, y in zip(results[0], others, strict=True):
            assert torch.equal(x, y)
    for x, y in zip(results[1], results[3], strict=True):
        assert torch.equal(x, y)


def distributions(kind: str = "plain") -> dict[str, list[Tensor]]:
    """Small ones of each class, of which all events can be enumerated."""
    normal = Numbers(kind, 3)
    return {
        "grammar": [normal(2), normal(2, 3), normal(3, 4), normal(3, 4), normal(2, 4, 2)],
        "chain": [normal(2, 4, 3), normal(3, 2), normal(2, 3), normal(3), normal(3)],
        "hmm": [normal(3), normal(3, 2), normal(2, 3), normal(3, 5)],
    }


def made(name: str, given: list[Tensor]) -> StructuredDistribution:
    device = given[0].device
    if name == "grammar":
        root, head, left, right, words = given
        return PCFG(root, RuleFactors(head, left, right), words, torch.tensor([4, 3]).to(device))
    if name == "chain":
        emissions, source, target, start, end = given
        lengths = torch.tensor([4, 2]).to(device)
        return LinearChain(emissions, TransitionFactors(source, target), start, end, lengths)
    initial, source, target, emission = given
    seen = torch.tensor([[0, 4, 2, 2], [1, 1, 3, 0]]).to(device)
    return HMM(initial, TransitionFactors(source, target), emission, seen)


@pytest.mark.parametrize("kind", ["plain", "masked", "large"])
@pytest.mark.parametrize("kinds", [GRAMMARS, CHAINS], ids=["grammar", "chain"])
def test_samples_follow_the_distribution_and_the_seed(kinds: tuple[Any, Any], kind: str) -> None:
    name = "grammar" if kinds is GRAMMARS else "chain"
    for seed in range(10):  # until there are events
        given = distributions(kind)[name] if seed == 0 else _again(name, kind, seed)
        if kind != "masked" or bool((made(name, given).log_partition() > -torch.inf).all()):
            break
    d = made(name, given)[0]
    passes = kinds[0](*(x.to(DEVICE) for x in d._flat(d.potentials)))  # type: ignore[attr-defined]
    count = 20_000
    samples = passes.sample(count, 7)
    assert torch.equal(samples, passes.sample(count, 7))
    assert not torch.equal(samples, passes.sample(count, 8)) or kind == "large"
    events = d.enumerate_support()
    same = (samples.cpu()[:, 0].flatten(1)[:, None] == events.flatten(1)[None]).all(-1)
    assert bool((same.sum(1) == 1).all())
    expected = count * d.log_prob(events).exp()
    rare = expected < 5
    merged = torch.cat([expected[~rare], expected[rare].sum()[None]])
    found = same.sum(0).double()
    assert bool((found[expected == 0] == 0).all())
    found = torch.cat([found[~rare], found[rare].sum()[None]])
    statistic = float(((found - merged) ** 2 / merged.clamp(min=1)).sum())
    freedom = max(len(merged) - 1, 1)
    # Five standard deviations of a chi-square variable.
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def _again(name: str, kind: str, seed: int) -> list[Tensor]:
    normal = Numbers(kind, 100 + seed)
    return [normal(*x.shape) for x in distributions()[name]]


def test_samples_of_ragged_batches_are_possible() -> None:
    for kind in ("plain", "masked", "impossible", "large"):
        given = grammar(kind, (1, 1, 1))
        trees = GpuFactoredGrammarPasses(*on_device(given, F32)).sample(3, 1).cpu()
        root, head, left, right, words, lengths = given
        d = PCFG(root, RuleFactors(head, left, right), words, lengths)
        some = d.log_partition() > -torch.inf
        assert bool((d.log_prob(trees)[:, some] > -torch.inf).all()), kind
        assert bool((trees[:, ~some] == -1).all())
        given = chain(kind, (1, 1), (1, 1))
        labels = GpuFactoredChainPasses(*on_device(given, F32)).sample(3, 1).cpu()
        nodes, source, target, lengths = given
        c = LinearChain(nodes, TransitionFactors(source, target), lengths=lengths)
        some = c.log_partition() > -torch.inf
        assert bool((c.log_prob(labels.clamp(min=0))[:, some] > -torch.inf).all()), kind
        assert bool((labels[:, ~some] == -1).all())


@needs_cuda
@pytest.mark.parametrize("name", ["grammar", "chain", "hmm"])
def test_all_queries_agree(name: str) -> None:
    answers = []
    for device in ("cpu", "cuda"):
        given = [x.to(device).requires_grad_() for x in distributions()[name]]
        d = made(name, given)
        log_z = d.log_partition()
        first = torch.autograd.grad(log_z.sum(), given, create_graph=True)
        squared = sum(((x - 0.3) ** 2).sum() for x in first)
        assert isinstance(squared, Tensor)
        second = torch.autograd.grad(squared, given)
        potentials = list(d.potentials)
        shapes = d._part_shapes  # type: ignore[attr-defined]
        f = {n: Numbers("plain", 5)(*shapes[n]).to(device) for n in potentials}
        best, scores = d.topk(3)
        mode = d.mode
        found = [log_z, *first, *second, *d.marginals().values(), d.expectation(f)]
        found += [d.covariance(f, f), d.entropy(), mode, d.log_prob(mode), best, scores]
        found += [d.min_risk(), d.log_prob(d.min_risk()), d.moments([f], (2,)).values]
        found += [*d.parts(mode).values()]
        generator = torch.Generator().manual_seed(1)
        drawn = d.sample((5,), generator=generator)
        assert drawn.device.type == device
        assert bool((d.log_prob(drawn) > -torch.inf).all())
        answers.append(found)
    for x, y in zip(*answers, strict=True):
        assert y.device.type == "cuda"
        assert_close(y.double(), x.double(), rtol=1e-8, atol=1e-8)
