"""Chains by matrix products (the way of a GPU with many labels) against the compiled passes.

The products are torch code, so they run here on the CPU.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inout.kernels.chain.cpu.passes import CpuPasses
from inout.kernels.chain.gpu.matrix import MatrixPasses
from inout.kernels.chain.gpu.passes import GpuPasses
from tests.support import assert_close

SIZES = [(4, 2, 3), (5, 7, 3), (3, 6, 1), (3, 9, 17), (1, 5, 4)]
KINDS = ("shared", "expanded", "own", "position")


def potentials(
    size: tuple[int, int, int], kind: str, scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Emissions, transitions with a third of them impossible at scale 1, ragged lengths."""
    b, n, s = size
    generator = torch.Generator().manual_seed(b * n * s)
    shape = {"own": (b, 1, s, s), "position": (b, n - 1, s, s)}.get(kind, (1, 1, s, s))
    emissions = scale * torch.randn(b, n, s, generator=generator, dtype=dtype)
    transitions = scale * torch.randn(shape, generator=generator, dtype=dtype)
    if scale == 1:
        mask = torch.rand(shape, generator=generator) < 0.3
        transitions = transitions.masked_fill(mask, -torch.inf)
    if kind == "expanded":
        transitions = transitions.expand(b, 1, s, s)
    lengths = torch.randint(0, n + 1, (b,), generator=generator)
    lengths[0] = n
    return emissions, transitions, lengths


def check_passes(
    passes_of: type[MatrixPasses | GpuPasses],
    given: tuple[Tensor, Tensor, Tensor],
    scale: float,
    device: str = "cpu",
) -> None:
    """log Z with and without what derivatives need, gradients and best labels."""
    emissions, transitions, lengths = given
    dtype = emissions.dtype
    weights = torch.linspace(-1, 2, len(lengths), dtype=dtype)
    exact = CpuPasses(emissions.double(), transitions.double(), lengths)
    there = [x.to(device) for x in given]
    passes = passes_of(*there)
    rtol = 1e-10 if dtype == torch.float64 else 1e-5
    assert_close(passes.log_z.cpu(), exact.log_z, rtol=rtol, atol=rtol)
    alone = passes_of(*there, keep=False)
    assert_close(alone.log_z.cpu(), exact.log_z, rtol=rtol, atol=rtol)
    # What large potentials lose of their digits, probabilities lose of theirs.
    loss = rtol * max(1.0, scale)
    found = passes.gradients(weights.to(device))
    for ours, wanted in zip(found, exact.gradients(weights.double()), strict=True):
        assert_close(ours.cpu().double(), wanted, rtol=loss, atol=loss)
    possible = exact.log_z > -torch.inf
    assert torch.equal(passes.best().cpu()[possible], exact.best()[possible])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.few(10)
def test_agrees_with_compiled_passes(
    size: tuple[int, int, int], kind: str, scale: float, dtype: torch.dtype
) -> None:
    check_passes(MatrixPasses, potentials(size, kind, scale, dtype), scale)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_follow_the_marginals(kind: str) -> None:
    emissions, transitions, lengths = potentials((3, 4, 3), kind, 1.0, torch.float64)
    passes = MatrixPasses(emissions, transitions, lengths)
    count = 40_000
    labels = passes.sample(count, 7)
    assert torch.equal(labels, passes.sample(count, 7))
    marginals = passes.gradients(torch.ones(3, dtype=torch.float64))[0]
    real = marginals.sum(-1, keepdim=True) > 0.5
    frequencies = torch.nn.functional.one_hot(labels, 3).double().mean(0) * real
    assert bool(((frequencies - marginals).abs() < 5 * 0.5 / count**0.5).all())


def test_what_underflows_and_matters_is_done_elsewhere() -> None:
    """The only way leads through a label whose weight float32 cannot hold beside the others."""
    emissions = torch.zeros(2, 3, 2)
    transitions = torch.tensor([[0.0, -200.0], [-torch.inf, 0.0]])[None, None]
    emissions[0, 0, 1] = emissions[0, 2, 0] = -torch.inf
    passes = MatrixPasses(emissions, transitions, torch.tensor([3, 3]))
    exact = CpuPasses(emissions.double(), transitions.double(), torch.tensor([3, 3]))
    assert passes._unfit.tolist() == [0]
    assert_close(passes.log_z, exact.log_z, rtol=1e-6)
    weights = torch.ones(2)
    for ours, wanted in zip(passes.gradients(weights), exact.gradients(weights), strict=True):
        assert_close(ours.double(), wanted, rtol=1e-6, atol=1e-6)
    assert set(passes.sample(50, 1)[:, 0, 2].tolist()) == {1}
