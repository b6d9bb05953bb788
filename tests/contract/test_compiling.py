"""`torch.compile` around losses: the numbers of eager code, nothing to read, few compilations."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

import inout
from inout.contexts import ContextChain
from tests.support import assert_close

LENGTHS = [3, 2, 3]


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[-2]))


def linear_chain(x: Tensor) -> inout.LinearChain:
    return inout.LinearChain(x, x[0, :2, :2].exp(), start=x[0, 0], lengths=LENGTHS)


def hmm(x: Tensor) -> inout.HMM:
    symbols = torch.zeros(x.shape[:2], dtype=torch.long)
    return inout.HMM(x[0, 0], x[0, :2], x[1, :2].T, symbols, LENGTHS)


def semi_markov(x: Tensor) -> inout.SemiMarkov:
    return inout.SemiMarkov(x[:, :, None, None] + x[..., None, :, None], LENGTHS)


def span_tree(x: Tensor) -> inout.SpanTree:
    return inout.SpanTree(x[:, :, None] + x[:, None].exp(), LENGTHS)


def pcfg(x: Tensor) -> inout.PCFG:
    return inout.PCFG(x[0, 0, :1], x[None, 0, 0, 0] * torch.ones(1, 3, 3), x, LENGTHS)


def dependency_tree(x: Tensor) -> inout.DependencyTree:
    return inout.DependencyTree(x[..., :1] + x[..., 1:].mT, x[..., 0], LENGTHS)


def context_chain(x: Tensor) -> ContextChain:
    table = torch.zeros(x.shape[1], 1, 2, dtype=torch.long)
    return ContextChain(x[:, :, None], table, LENGTHS)


FAMILIES: list[Callable[[Tensor], inout.StructuredDistribution]] = [
    linear_chain, hmm, semi_markov, span_tree, pcfg, dependency_tree, context_chain
]  # fmt: skip


@pytest.mark.few(2)  # each compiles for seconds, and all take the same path
@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_losses(make, caplog):
    def loss(x: Tensor, event: Tensor) -> Tensor:
        d = make(2 * x)
        return (d.log_prob(event) - 0.5 * d.entropy()).sum() * 3 - d.log_partition().mean()

    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager")
    compilations = torch._dynamo.utils.counters["frames"]
    # What torch itself says about its own work is hidden by torch, unless warnings are errors.
    with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for size in (4, 4, 5, 6, 7, 8, 9, 10):
            x = draw(3, size, 2).requires_grad_()
            event = make(2 * x).mode
            expected, found = loss(x, event), compiled(x, event)
            assert torch.equal(found, expected)
            assert_close(grad(found, x)[0], grad(expected, x)[0])
            if size == 6:  # the sizes are known to vary by now
                before = compilations["ok"]
    assert compilations["ok"] == before
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [str(warning.message) for warning in said]
