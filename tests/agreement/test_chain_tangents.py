"""Hessians of chains times directions of every make against autograd through the reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from inout.kernels.autograd import tangents_by
from inout.kernels.chain.cpu.passes import CpuPasses
from inout.kernels.chain.op import log_partition
from inout.kernels.chain.reference import reference_log_partition
from tests.agreement.test_chain_matrices import KINDS, SIZES, potentials
from tests.support import assert_close

# A direction of the transitions' shape, as autograd or a caller may give it.
DIRECTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "full": lambda u: u,
    "nothing": lambda u: u.new_zeros(()).expand(u.shape),
    "constant": lambda u: torch.full_like(u, 0.7),
    "over the batch": lambda u: u[:1].expand(u.shape),
    "over positions": lambda u: u[:, :1].expand(u.shape),
    "transposed": lambda u: u.mT.contiguous().mT,
}


@pytest.mark.few(14)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_directions_of_every_make(
    size: tuple[int, int, int], kind: str, scale: float, dtype: torch.dtype
) -> None:
    emissions, transitions, lengths = potentials(size, kind, scale, dtype)
    generator = torch.Generator().manual_seed(0)
    weights = torch.linspace(-1, 2, size[0], dtype=dtype)
    u_nodes = torch.randn(emissions.shape, generator=generator, dtype=dtype)
    u_pairs = torch.randn(transitions.shape, generator=generator, dtype=dtype)
    passes = CpuPasses(emissions, transitions, lengths)
    passes.gradients(weights)
    # What large potentials lose of their digits, probabilities lose of theirs.
    blur = (1e-10 if dtype == torch.float64 else 1e-5) * max(1.0, scale)
    for make in DIRECTIONS.values():
        directions = (u_nodes, make(u_pairs))
        exact = tangents_by(
            lambda e, t: reference_log_partition(e, t, lengths),
            weights.double(),
            (emissions.double(), transitions.double()),
            tuple(u.double() for u in directions),
        )
        for ours, truth in zip(passes.tangents(weights, directions), exact, strict=True):
            assert_close(ours.double(), truth, rtol=blur, atol=blur * size[1])


def test_both_arithmetics_are_met() -> None:
    """The cases above have elements in scaled arithmetic and in log space, also in one batch."""
    seen = set()
    for size in SIZES:
        for kind in KINDS:
            for scale in (1.0, 30.0, 1e4):
                given = potentials(size, kind, scale, torch.float32)
                passes = CpuPasses(*given)
                passes.gradients(torch.ones(size[0]))
                seen.add(frozenset(torch.from_numpy(passes.fits).isnan().tolist()))
    assert {frozenset({True}), frozenset({False}), frozenset({True, False})} <= seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [0, 1])
def test_losses_of_some_marginals(kind: str, kept: int) -> None:
    """What a loss does not use reaches the kernel as one expanded zero; three derivatives."""
    emissions, transitions, lengths = potentials((3, 4, 2), kind, 1.0, torch.float64)
    leaves = [emissions.requires_grad_(), transitions.requires_grad_()]
    u = torch.randn(leaves[kept].shape, generator=torch.Generator().manual_seed(1)).double()
    found = []
    for log_z in (log_partition, reference_log_partition):
        value = log_z(*leaves, lengths)
        value = torch.where(value == -torch.inf, 0.0, value).sin().sum()
        first = torch.autograd.grad(value, leaves, create_graph=True)
        second = torch.autograd.grad((first[kept] * u).sum(), leaves, create_graph=True)
        third = torch.autograd.grad((second[kept] * u).sum(), leaves)
        found.append([*first, *second, *third])
    for ours, truth in zip(*found, strict=True):
        assert_close(ours, truth)
