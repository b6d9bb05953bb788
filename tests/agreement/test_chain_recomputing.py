"""Chains that keep little memory and compute the rest again: the same numbers."""

from __future__ import annotations

import pytest
import torch

from inout import ArgumentError
from inout.distributions import HMM, LinearChain
from inout.kernels.chain.cpu.passes import CpuPasses
from inout.kernels.chain.cpu.recomputed import RecomputingPasses
from inout.kernels.chain.reference import reference_log_partition
from tests.seeds import seeds
from tests.support import assert_close

KINDS = ["stationary", "expanded", "shared", "specific"]


def draw(seed: int, kind: str, dtype: torch.dtype):
    """Chains of uneven lengths, also 0, with some labels and pairs masked, of any range."""
    generator = torch.Generator().manual_seed(seed)
    b, n, s = (int(torch.randint(1, most, (), generator=generator)) for most in (5, 14, 5))
    spread = [1.0, 1.0, 50.0, 3000.0][seed % 4]

    def normal(*shape: int) -> torch.Tensor:
        values = torch.randn(shape, generator=generator, dtype=dtype) * spread
        masked = torch.rand(shape, generator=generator) < 0.1 * (seed % 3)
        return values.masked_fill(masked, -torch.inf)

    shapes = {"specific": (b, n - 1), "shared": (1, n - 1)}
    transitions = normal(*shapes.get(kind, (1, 1)), s, s)
    if kind == "expanded":
        transitions = transitions.expand(b, 1, s, s)
    lengths = torch.randint(0, n + 1, (b,), generator=generator)
    every = int(torch.randint(1, n + 2, (), generator=generator))
    weights = torch.randn(b, generator=generator, dtype=dtype)
    return (normal(b, n, s), transitions, lengths), every, weights


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("seed", seeds(60, few=12))
def test_passes_agree(seed, dtype, kind):
    given, every, weights = draw(seed, kind, dtype)
    plain, ours = CpuPasses(*given), RecomputingPasses(*given, every=every)
    exact = dtype == torch.float64
    assert_close(ours.log_z, plain.log_z, rtol=1e-12 if exact else 1e-5, atol=1e-12)
    tolerance = 1e-10 if exact else 1e-4
    for found, expected in zip(ours.gradients(weights), plain.gradients(weights), strict=True):
        assert found.dtype == expected.dtype
        assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("seed", seeds(8))
def test_derivatives_are_those_of_the_reference(seed):
    (emissions, transitions, lengths), _, _ = draw(4 * seed, "stationary", torch.float64)

    def derivatives(log_partition):
        e, t = emissions.clone().requires_grad_(), transitions.clone().requires_grad_()
        log_z = log_partition(e, t)
        log_z = log_z.where(log_z > -torch.inf, 0.0).sum()
        options = {"materialize_grads": True}  # a single position has no transitions
        first = torch.autograd.grad(log_z, (e, t), create_graph=True, **options)
        total = sum((x.nan_to_num(0.0) ** 2).sum() for x in first)
        return log_z, *first, *torch.autograd.grad(total, (e, t), **options)

    found = derivatives(
        lambda e, t: LinearChain(e, t[0, 0], lengths=lengths, memory="sqrt").log_partition()
    )
    expected = derivatives(lambda e, t: reference_log_partition(e, t, lengths))
    for x, y in zip(found, expected, strict=True):
        assert_close(x, y, rtol=1e-10, atol=1e-10)


def test_a_label_that_seems_impossible_at_the_end_of_a_block_may_win_later():
    """Its alpha underflows to 0 there, but all other labels end in the next block."""
    emissions = torch.zeros(1, 8, 2)
    emissions[0, 3, 1] = -300.0  # nothing in float32 beside the other label
    emissions[0, 6, 0] = -torch.inf
    transitions = torch.full((2, 2), -torch.inf).fill_diagonal_(0.0)
    emissions.requires_grad_()
    chain = LinearChain(emissions, transitions, memory="sqrt")
    assert chain.log_partition().item() == -300.0
    assert_close(chain.marginals()["emissions"][..., 1], torch.ones(1, 8))


def test_a_budget_in_bytes():
    emissions = torch.zeros(1, 10_000, 4, requires_grad=True)
    transitions = torch.zeros(4, 4)
    for memory, recomputes in ((10**6, False), (10**5, True)):
        log_z = LinearChain(emissions, transitions, memory=memory).log_partition()
        evaluation = log_z.grad_fn.evaluation
        found = isinstance(evaluation.passes(None, ()), RecomputingPasses)
        assert found == recomputes
    with pytest.raises(ArgumentError, match="at least 14400 bytes"):
        LinearChain(emissions, transitions, memory=1000).log_partition()
    for bad in (0, -1, True, "little"):
        with pytest.raises(ArgumentError, match="memory"):
            LinearChain(emissions, transitions, memory=bad)


def test_hidden_markov_models_take_it_too():
    generator = torch.Generator().manual_seed(0)
    logs = [torch.rand(shape, generator=generator).log() for shape in ((3,), (3, 3), (3, 4))]
    seen = torch.randint(0, 4, (2, 50), generator=generator)
    found = []
    for memory in (None, "sqrt"):
        given = [x.clone().requires_grad_() for x in logs]
        HMM(*given, seen, memory=memory).log_partition().sum().backward()
        found.append([x.grad for x in given])
    for x, y in zip(*found, strict=True):
        assert_close(x, y, rtol=1e-4, atol=1e-4)
