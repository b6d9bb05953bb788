"""The Triton kernels of chains against the compiled passes, in real arithmetic and in log space."""

from __future__ import annotations

import pytest
import torch

from inout.kernels.chain.gpu.passes import GpuPasses
from tests.agreement.gpu_device import DEVICE, MARKS
from tests.agreement.test_chain_matrices import KINDS, SIZES, check_passes, potentials

pytestmark = MARKS


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_agrees_with_compiled_passes(
    size: tuple[int, int, int], kind: str, scale: float, dtype: torch.dtype
) -> None:
    check_passes(GpuPasses, potentials(size, kind, scale, dtype), scale, DEVICE)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_values_make_log_z_nan(bad: float) -> None:
    """Wherever they stand, but for the padding."""
    emissions, transitions, _ = potentials((3, 4, 3), "position", 30.0, torch.float32)
    lengths = torch.tensor([4, 3, 1])
    emissions[2, 1:], transitions[2] = bad, bad  # padding
    given = [x.to(DEVICE) for x in (emissions, transitions, lengths)]
    assert not bool(GpuPasses(*given).log_z.isnan().any())
    for t in range(3):
        spoilt = transitions.clone()
        spoilt[0, t, 1, 2] = bad
        log_z = GpuPasses(given[0], spoilt.to(DEVICE), given[2]).log_z
        assert log_z.isnan().tolist() == [True, False, False]
    emissions[1, 2, 0] = bad
    log_z = GpuPasses(emissions.to(DEVICE), *given[1:]).log_z
    assert log_z.isnan().tolist() == [False, True, False]
