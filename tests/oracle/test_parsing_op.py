"""log Z of sparse grammars as a torch function, and its reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from inout.kernels.sparse.op import Foresight, log_partition
from inout.kernels.sparse.reference import LogWeights, reference_log_partition
from tests.oracle.parsing_cases import (
    Case,
    Entries,
    random_case,
    with_anchors,
    with_arcs,
    with_mask,
)
from tests.seeds import seeds
from tests.support import assert_close

SMALL = Case(
    2, [(0, 0, 1), (1, 0, 0), (0, 1, 1)], [(0, 1)], [0.1, -0.3, 0.2], [-0.4],
    [[[(0, 0.1), (1, -0.2)] for _ in range(3)], [[(1, 0.3)]]],
)  # fmt: skip


def variant(case: Case, seed: int, features: str, spread: float = 2.0) -> Case:
    """The case with arcs, a mask (of whole spans), weights of spans, as the letters a m w s say."""
    if "a" in features:
        case = with_arcs(case, seed, spread)
    if "m" in features or "w" in features:
        case = with_mask(case, seed, "w" in features)
    return with_anchors(case, seed, "bu", spread) if "s" in features else case


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("features", ["", "a", "m", "w", "s", "ams"])
@pytest.mark.parametrize("beam", [0.0, 0.2])
def test_agrees_with_the_reference(seed: int, features: str, beam: float) -> None:
    case = random_case(seed)
    case = replace(case, sentences=[x for x in case.sentences if len(x) < 4])
    case = variant(case, seed, features)
    given = case.weights()
    leaves = [torch.tensor(x, requires_grad=True) for x in given]
    twins = [torch.tensor(x, requires_grad=True) for x in given]
    log_z = log_partition(*case.arrays(), *leaves, beam)
    slow = reference_log_partition(*case.arrays(), LogWeights(*twins), beam)
    assert_close(log_z, slow)
    ours, theirs = (
        torch.autograd.grad(torch.where(x > -torch.inf, x, 0.0).sum(), xs, materialize_grads=True)
        for x, xs in ((log_z, leaves), (slow, twins))
    )
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("features", ["", "a", "ms"])
def test_second_derivatives(features: str) -> None:
    case = variant(SMALL, 1, features)
    arrays = case.arrays()
    # Impossible rules have no derivative that a small step could find.
    leaves = [torch.tensor(x).clamp(min=-2.0).requires_grad_() for x in case.weights()]
    assert log_partition(*arrays, *leaves).isfinite().any()

    def function(*values: torch.Tensor) -> torch.Tensor:
        log_z = log_partition(*arrays, *values)
        return torch.where(log_z > -torch.inf, log_z, 0.0)

    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


def test_no_words_at_all() -> None:
    empty: list[list[Entries]] = [[], []]
    case = with_anchors(replace(SMALL, sentences=empty), 0)
    leaves = [torch.tensor(x, requires_grad=True) for x in case.weights()]
    log_z = log_partition(*case.arrays(), *leaves)
    assert (log_z == -torch.inf).all()
    gradients = torch.autograd.grad(log_z.sum(), leaves)
    assert [x.shape for x in gradients] == [x.shape for x in leaves]


def test_foresight_changes_nothing() -> None:
    """Right or wrong about the factors, with sentences without a tree, once and again."""
    case = random_case(3)
    foresight = Foresight(len(case.sentences))
    factors = torch.linspace(0.5, 2.0, len(case.sentences), dtype=torch.float64)
    for weights in (torch.ones_like(factors), factors, factors, torch.ones_like(factors)):
        found = []
        for used in (foresight, None):
            leaves = [torch.tensor(x, requires_grad=True) for x in case.weights()]
            log_z = log_partition(*case.arrays(), *leaves, foresight=used)
            found.append([log_z, *torch.autograd.grad(log_z, leaves, weights)])
        for ours, theirs in zip(*found, strict=True):
            assert torch.equal(ours, theirs)
        assert torch.equal(torch.from_numpy(foresight.factors), weights)
