"""Semi-Markov chains that keep little memory and make the rest again: the same numbers."""

from __future__ import annotations

import pytest
import torch

from inout import ArgumentError, SemiMarkov
from inout.kernels.segments.cpu.passes import CpuPasses
from inout.kernels.segments.cpu.recomputed import RecomputingPasses
from inout.kernels.segments.op import recomputing
from tests.seeds import seeds
from tests.support import assert_close


def draw(seed: int, dtype: torch.dtype):
    """Uneven lengths, also 0, with some segments masked, of any range."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (5, 20, 6, 4)
    b, n, w, s = (int(torch.randint(1, most, (), generator=generator)) for most in sizes)
    spread = [1.0, 1.0, 50.0, 1e4][seed % 4]
    potentials = torch.randn((b, n, w, s, s), generator=generator, dtype=dtype) * spread
    masked = torch.rand(potentials.shape, generator=generator) < 0.3 * (seed % 3)
    lengths = torch.randint(0, n + 1, (b,), generator=generator)
    every = int(torch.randint(1, n + 2, (), generator=generator))
    weights = torch.randn(b, generator=generator, dtype=dtype)
    direction = torch.randn(potentials.shape, generator=generator, dtype=dtype)
    return potentials.masked_fill(masked, -torch.inf), lengths, every, weights, direction


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("seed", seeds(100, few=40))
@pytest.mark.few(2)
def test_passes_are_the_same_to_the_last_digit(seed, dtype):
    potentials, lengths, every, weights, direction = draw(seed, dtype)
    plain = CpuPasses(potentials, lengths)
    ours = RecomputingPasses(potentials, lengths, every=every)
    assert torch.equal(ours.log_z, plain.log_z)
    assert torch.equal(ours.gradients(weights)[0], plain.gradients(weights)[0])
    both = (x.tangents(weights, (direction,)) for x in (ours, plain))
    for found, expected in zip(*both, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("tier", [None, "reference"])
def test_derivatives_of_the_distribution(tier):
    potentials, lengths, _, _, _ = draw(4, torch.float64)
    found = []
    for memory in (None, "sqrt"):
        own = potentials.clone().requires_grad_()
        chain = SemiMarkov(own, lengths, memory=memory, tier=tier)
        (first,) = torch.autograd.grad(chain.log_partition().sum(), own, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), own, create_graph=True)
        found.append((first, second, *torch.autograd.grad((second**2).sum(), own)))
        found[-1] += (chain.entropy(),)
    for x, y in zip(*found, strict=True):
        assert_close(x, y, rtol=1e-12, atol=1e-12)


def test_a_budget_in_bytes():
    potentials = torch.zeros(1, 10_000, 4, 1, 1, requires_grad=True)
    for memory, recomputes in ((10**6, False), (10**5, True)):
        found = recomputing(potentials, torch.tensor([10_000]), memory)
        assert (found is not None) == recomputes
        SemiMarkov(potentials, memory=memory).log_partition()
    with pytest.raises(ArgumentError, match="at least 13008 bytes"):
        SemiMarkov(potentials, memory=1000).log_partition()
    for bad in (0, -1, True, "little"):
        with pytest.raises(ArgumentError, match="memory"):
            SemiMarkov(potentials, memory=bad)
