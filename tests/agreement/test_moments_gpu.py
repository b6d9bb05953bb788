"""Moments, histograms and objectives on a GPU against the CPU, with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from inout import PCFG, LinearChain, SemiMarkov, SpanTree, StructuredDistribution
from inout.moments import expectation_criterion, expected_f_of_event, log_marginals
from tests.support import assert_close

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

F64 = torch.float64
LENGTHS = torch.tensor([5, 2, 3])
FAMILIES = ("chain", "specific", "segments", "spans", "grammar")


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def arguments(family: str) -> list[Tensor]:
    return {
        "chain": [randn(3, 5, 4, seed=1), randn(4, 4, seed=2)],
        "specific": [randn(3, 5, 4, seed=1), randn(3, 4, 4, 4, seed=2)],
        "segments": [randn(3, 5, 3, 2, 2, seed=3)],
        "spans": [randn(3, 5, 5, 3, seed=4)],
        "grammar": [randn(2, seed=5), randn(2, 5, 5, seed=6), randn(3, 5, 3, seed=7)],
    }[family]


def made(family: str, inputs: list[Tensor]) -> StructuredDistribution:
    kinds: dict[str, Any] = {"segments": SemiMarkov, "spans": SpanTree, "grammar": PCFG}
    return kinds.get(family, LinearChain)(*inputs, lengths=LENGTHS.to(inputs[0].device))


@pytest.mark.parametrize("method", ["polynomial", "circle", "taylor"])
@pytest.mark.parametrize("family", FAMILIES)
def test_moments_agree(family: str, method: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        inputs = [x.to(device).requires_grad_() for x in arguments(family)]
        d = made(family, inputs)
        names = list(d.potentials)
        f = {n: randn(*d._part_shapes[n], seed=10).to(device) for n in names}
        g = {names[0]: (2 * randn(*d._part_shapes[names[0]], seed=11)).round().to(device)}
        values = d.moments([f, g], (3, 1), kind="central", method=method).values
        assert values.device.type == device
        slopes = torch.autograd.grad(values.sum(), inputs)
        weighted = d.weighted_marginals(f, 2)
        found.append([values, *slopes, *weighted.values(), d.histogram(g).probabilities])
    for mine, truth in zip(*reversed(found), strict=True):
        assert_close(mine, truth, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("family", ["chain", "specific", "segments"])
def test_objectives_agree(family: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        inputs = [x.to(device).requires_grad_() for x in arguments(family)]
        d = made(family, inputs)
        gold = made(family, arguments(family)).mode.to(device)
        labels = 2 if family == "segments" else 4
        tokens = torch.ones(1, 3, 5, dtype=torch.bool, device=device)
        targets = torch.full((1, labels), 1 / labels, dtype=F64, device=device)
        losses = [
            expected_f_of_event(d, gold).sum(),
            expected_f_of_event(d, gold, method="series").sum(),
            log_marginals(d, gold).sum(),
            expectation_criterion(d, tokens, targets),
            d.entropy().sum(),
        ]
        slopes = [s for loss in losses for s in torch.autograd.grad(loss, inputs)]
        found.append([*losses, *slopes])
    for mine, truth in zip(*reversed(found), strict=True):
        assert_close(mine, truth, rtol=1e-8, atol=1e-8)
