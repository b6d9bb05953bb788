"""Chains on a GPU against chains on the CPU in float64: values, derivatives, decoding, samples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inout.distributions import LinearChain
from tests.support import assert_close

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

# The last has more labels than a Triton program holds: matrix products.
SIZES = [(7, 5), (12, 20), (3, 1), (1, 4), (9, 100), (5, 150)]
KINDS = ["plain", "masked", "large", "impossible"]


def potentials(n: int, s: int, stationary: bool, kind: str, dtype: torch.dtype) -> list[Tensor]:
    """Emissions, transitions, start, end; NaN in the padding."""
    generator = torch.Generator().manual_seed(n * s)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    emissions, transitions = (
        normal(2, 3, n, s),
        normal(*((s, s) if stationary else (2, 3, n - 1, s, s))),
    )
    if kind == "masked":
        mask = torch.rand(transitions.shape, generator=generator) < 0.3
        transitions = transitions.masked_fill(mask, -torch.inf)
    if kind == "large":
        emissions, transitions = 300 * emissions, 300 * transitions
    if kind == "impossible":
        emissions[0, 0] = -torch.inf
    real = torch.arange(n) < lengths(n)[..., None]
    return [emissions.where(real[..., None], torch.nan), transitions, normal(s), normal(2, 3, s)]


def lengths(n: int) -> Tensor:
    """Ragged, with an empty and a full element."""
    return torch.tensor([[n, 0, 1], [n, max(n - 1, 0), (n + 1) // 2]])


def answers(given: list[Tensor], n: int, device: str) -> dict[str, Tensor]:
    inputs = [x.to(device).requires_grad_() for x in given]
    chain = LinearChain(*inputs, lengths=lengths(n).to(device))
    log_z = chain.log_partition()
    weights = torch.arange(1.0, 7.0, device=device).reshape(2, 3)
    total = (torch.where(log_z == -torch.inf, 0.0, log_z) * weights).sum()
    first = torch.autograd.grad(total, inputs, create_graph=True)
    along = [torch.linspace(-1, 1, x.numel(), device=device).reshape(x.shape).to(x) for x in first]
    dot = sum((x * u).sum() for x, u in zip(first, along, strict=True))
    second = torch.autograd.grad(dot, inputs)
    results = {"log Z": log_z, "entropy": chain.entropy(), "best": chain.log_prob(chain.mode)}
    names = ["emissions", "transitions", "start", "end"]
    results |= {f"gradient {k}": v for k, v in zip(names, first, strict=True)}
    results |= {f"Hessian {k}": v for k, v in zip(names, second, strict=True)}
    return {name: value.detach().cpu().double() for name, value in results.items()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("stationary", [True, False], ids=["stationary", "specific"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gpu_agrees_with_cpu(
    size: tuple[int, int], kind: str, stationary: bool, dtype: torch.dtype
) -> None:
    given = potentials(*size, stationary, kind, dtype)
    expected = answers([x.double() for x in given], size[0], "cpu")
    found = answers(given, size[0], "cuda")
    # Potentials of a few hundred leave float32 four digits of a probability.
    rtol = 1e-9 if dtype == torch.float64 else 3e-3 if kind == "large" else 3e-4
    # Entropies and log-probabilities are differences of numbers of the size of log Z.
    size_of_log_z = (
        1 + expected["log Z"].where(expected["log Z"].isfinite(), 0.0).abs().max().item()
    )
    for name, value in expected.items():
        absolute = rtol * (size_of_log_z if name in ("log Z", "entropy", "best") else 1)
        assert_close(found[name], value, rtol=rtol, atol=absolute)


def test_samples_follow_the_marginals_and_the_seed() -> None:
    generator = torch.Generator().manual_seed(3)
    emissions = torch.randn(2, 4, 3, generator=generator).cuda()
    transitions = torch.randn(2, 3, 3, 3, generator=generator).cuda()
    chain = LinearChain(emissions, transitions, lengths=torch.tensor([4, 2]).cuda())
    count = 200_000
    labels = chain.sample((count,), generator=torch.Generator().manual_seed(0))
    again = chain.sample((count,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(labels, again)
    marginals = chain.marginals()["emissions"].double()
    # In padding, -1 is no label, and marginals are 0.
    frequencies = (labels[..., None] == torch.arange(3).cuda()).double().mean(0)
    # Five standard deviations of a frequency.
    assert bool(((frequencies - marginals).abs() < 5 * 0.5 / count**0.5).all())
