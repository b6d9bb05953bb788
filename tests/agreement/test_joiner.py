"""Planes of a transducer from joint outputs, and from sums, against a log-softmax in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout.kernels.alignment import additive, blocks, joiner
from inout.nn import RNNTLoss
from tests.agreement.joint_outputs import KINDS, joint_outputs, sums
from tests.oracle.joiner import planes, weighted
from tests.support import assert_close

F64, F32 = torch.float64, torch.float32
HALF = torch.float16


@pytest.mark.parametrize("dtype", [F64, F32, HALF], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_planes_from_logits_in_blocks(kind, dtype, monkeypatch):
    """And the gradient, with blocks that end in the middle; NaN in the padding is not read."""
    monkeypatch.setattr(blocks, "JOINER_BLOCK", 100)
    logits, labels, weights = joint_outputs(2, 4, 3, 9, kind, dtype)
    mine, truth = (x.clone().requires_grad_() for x in (logits, logits.double()))
    found, expected = joiner.from_logits(mine, labels, 8), planes(truth, labels, 8)
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == (F64 if dtype == F64 else F32)
        assert_close(x, y, rtol=None if dtype == F64 else 1e-6)
    (first,), (wanted,) = (
        grad(weighted(x, weights), leaf) for x, leaf in ((found, mine), (expected, truth))
    )
    assert first.dtype == dtype
    assert_close(joiner.wide(first), wanted.where(labels[..., None] >= 0, 0.0), **_bounds(dtype))
    assert bool((first[labels < 0] == 0).all())


def test_third_derivatives():
    logits, labels, weights = joint_outputs(1, 2, 2, 4, "plain", F64)
    some = logits.nan_to_num(0.0)
    found = []
    for way in (joiner.from_logits, planes):
        leaf = some.clone().requires_grad_()
        both = way(leaf, labels, 0)
        score = weighted(both, weights) + (both[0] * both[1]).sum()
        (first,) = grad(score, leaf, create_graph=True)
        (second,) = grad((first * leaf.detach().cos()).sum(), leaf, create_graph=True)
        found.append([first, second, *grad((second * leaf.detach().sin()).sum(), leaf)])
    for x, y in zip(*found, strict=True):
        assert_close(x, y)


def _bounds(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 2e-3, "atol": 1e-3} if dtype == HALF else {}


@pytest.mark.parametrize("kind", ["plain", "masked", "dead"])
def test_second_derivatives(kind, monkeypatch):
    """In blocks, by the logits and by the planes' gradients; NaN in the padding stays there."""
    monkeypatch.setattr(blocks, "JOINER_BLOCK", 20)
    logits, labels, weights = joint_outputs(2, 3, 3, 5, kind, F64)
    along = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1), dtype=F64)
    found = []
    for way in (joiner.from_logits, planes):
        leaf = logits.clone().requires_grad_()
        given = [x.clone().requires_grad_() for x in weights]
        (first,) = grad(weighted(way(leaf, labels, 0), given), leaf, create_graph=True)
        real = labels[..., None] >= 0
        second, *rest = grad((first * along).where(real, 0.0).sum(), (leaf, *given))
        found.append([first.where(real, 0.0), second.where(real, 0.0), *rest])
        if way is joiner.from_logits:
            assert bool(first.isfinite().all())
            assert bool(second.isfinite().all())
    for x, y in zip(*found, strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("dead", [False, True], ids=["", "dead"])
def test_planes_from_sums(scale, dtype, dead, monkeypatch):
    """Labels that occur twice; rows where an encoder and a predictor prefer different symbols."""
    monkeypatch.setattr(additive, "JOINER_BLOCK", 100)
    encoder, predictor, labels, weights = sums(2, 6, 5, 9, scale, dead)
    parts = [x.to(dtype) for x in (encoder, predictor)]
    found = []
    for way, kind in ((additive.from_sum, dtype), (_by_logits, F64)):
        leaves = [x.to(kind).requires_grad_() for x in parts]
        both = way(*leaves, labels, 8)
        found.append([*both, *grad(weighted(both, weights), leaves)])
    for x, y in zip(*found, strict=True):
        # Sums of float32 numbers around `scale` have lost digits before any exp.
        assert_close(x, y, atol=1e-10 if dtype == F64 else 4e-7 * scale)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_second_derivatives_of_sums(scale):
    encoder, predictor, labels, weights = sums(2, 4, 3, 5, scale, dead=scale > 1)
    found = []
    for way in (additive.from_sum, _by_logits):
        leaves = [x.clone().requires_grad_() for x in (encoder, predictor)]
        first = grad(weighted(way(*leaves, labels, 0), weights), leaves, create_graph=True)
        along = sum((x * x.detach().cos()).sum() for x in first)
        found.append([*first, *grad(along, leaves)])
    for x, y in zip(*found, strict=True):
        assert_close(x, y, atol=1e-9)


def test_one_part_may_depend_on_the_other():
    encoder, _, labels, weights = sums(2, 3, 3, 5, 1.0, dead=False)
    found = []
    for way in (additive.from_sum, _by_logits):
        leaf = encoder.clone().requires_grad_()
        both = way(leaf, leaf.sin(), labels, 0)
        score = weighted(both, weights) + (both[0] * both[1]).sum()
        (first,) = grad(score, leaf, create_graph=True)
        found.append([first, *grad(first.square().sum(), leaf)])
    for x, y in zip(*found, strict=True):
        assert_close(x, y)


def test_products_are_as_precise_as_the_sums():
    """Whatever autocast makes of the products around them."""
    encoder, predictor, labels, weights = sums(2, 6, 5, 9, 1.0, dead=False)
    found = []
    for enabled in (False, True):
        leaves = [x.float().requires_grad_() for x in (encoder, predictor)]
        with torch.autocast("cpu", enabled=enabled):
            both = additive.from_sum(*leaves, labels, 0)
        found.append([*both, *grad(weighted(both, weights), leaves)])
    for x, y in zip(*found, strict=True):
        assert torch.equal(x, y)


def test_only_one_part_may_need_a_gradient():
    encoder, predictor, labels, weights = sums(2, 4, 3, 5, 1.0, dead=False)
    leaf = predictor.clone().requires_grad_()
    (first,) = grad(weighted(additive.from_sum(encoder, leaf, labels, 0), weights), leaf)
    (again,) = grad(
        weighted(additive.from_sum(encoder, leaf, labels, 0), weights), leaf, create_graph=True
    )
    assert_close(first, again)


def _by_logits(encoder: Tensor, predictor: Tensor, labels: Tensor, blank: int):
    logits = encoder[:, :, None] + predictor[:, None]
    return planes(logits, labels[:, None].expand(logits.shape[:-1]), blank)


def test_lost_digits_inside_transforms():
    """No symbol is likely for both: exact sums also where torch.func hides the values."""
    encoder, predictor = torch.zeros(2, 3, 4, dtype=F64), torch.zeros(2, 3, 4, dtype=F64)
    encoder[0, :, 1], predictor[0, :, 2], predictor[0, :, 1] = 2000.0, 2000.0, -2000.0
    loss, targets = RNNTLoss(blank=0, reduction="sum"), torch.tensor([2, 3])

    def own(e: Tensor, p: Tensor) -> Tensor:
        return loss.additive(e[None], p[None], targets[None])

    def whole(e: Tensor, p: Tensor) -> Tensor:
        return loss((e[:, None] + p[None])[None], targets[None])

    wanted = torch.stack([whole(e, p) for e, p in zip(encoder, predictor, strict=True)])
    assert_close(torch.func.vmap(own)(encoder, predictor), wanted)
    found, gradients = (torch.func.grad(f, (0, 1))(encoder[0], predictor[0]) for f in (own, whole))
    for x, y in zip(found, gradients, strict=True):
        assert_close(x, y)
