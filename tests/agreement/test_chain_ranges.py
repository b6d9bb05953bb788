"""Chains whose potentials range over hundreds and thousands of nats: compiled against reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inout.distributions import LinearChain
from inout.kernels.chain.cpu.passes import CpuPasses
from tests.seeds import seeds
from tests.support import assert_close


def draw(seed: int, n: int, s: int, stationary: bool, spread: float, dtype: torch.dtype):
    """Potentials of standard deviation `spread`, some masked; exact in both dtypes."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * spread
        values = (values * 64).round() / 64
        masked = torch.rand(shape, generator=generator) < 0.1 * (seed % 4)
        return values.masked_fill(masked, -torch.inf).to(dtype)

    return normal(3, n, s), normal(s, s) if stationary else normal(3, n - 1, s, s)


@pytest.mark.parametrize("stationary", [True, False], ids=["stationary", "specific"])
@pytest.mark.parametrize(
    ("dtype", "spreads"),
    [(torch.float64, [1, 30, 150, 300, 1000, 5000]), (torch.float32, [1, 5, 20, 40, 100, 500])],
    ids=["float64", "float32"],
)
def test_any_range(stationary: bool, dtype: torch.dtype, spreads: list[float]) -> None:
    in_log_space = set()
    for seed in seeds(3, few=2):
        for n, s in [(1, 3), (5, 2), (16, 7)]:
            for spread in spreads:
                given = draw(seed, n, s, stationary, spread, dtype)
                ours = LinearChain(*given)
                truth = LinearChain(*(x.double() for x in given), tier="reference")
                expected = truth.log_partition()
                rtol = 1e-10 if dtype == torch.float64 else 1e-4
                assert_close(ours.log_partition().double(), expected, rtol=rtol, atol=rtol)
                # A probability is as exact as differences of scores are in this dtype.
                blur = torch.finfo(dtype).eps * n * spread * 10 + rtol
                for name, value in truth.marginals().items():
                    atol = blur * (n if stationary and name == "transitions" else 1)
                    assert_close(ours.marginals()[name].double(), value, atol=atol, rtol=blur)
                passes = CpuPasses(*ours._flat(ours.potentials))
                passes.gradients(torch.ones(3, dtype=dtype))
                in_log_space |= set(torch.from_numpy(passes.fits).isnan().tolist())
    assert in_log_space == {True, False}, "both ways to compute must have been used"


@pytest.mark.parametrize(("stationary", "n"), [(True, 12), (False, 25)])
def test_losses_that_underflow_on_their_way(stationary: bool, n: int) -> None:
    """One element in a hundred loses its best labelling unless lost losses are counted too."""
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(100, n, 20, generator=generator, dtype=torch.float64) * 200
    shape = (20, 20) if stationary else (100, n - 1, 20, 20)
    transitions = torch.randn(shape, generator=generator, dtype=torch.float64) * 200
    truth = LinearChain(emissions, transitions, tier="reference")
    assert_close(LinearChain(emissions, transitions).log_partition(), truth.log_partition())
