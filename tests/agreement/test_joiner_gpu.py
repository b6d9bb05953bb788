"""Planes of a transducer by the Triton kernels against a log-softmax in float64."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import grad

from inout.kernels.alignment import additive, joiner
from tests.agreement.gpu_device import DEVICE, INTERPRETED, MARKS
from tests.agreement.joint_outputs import KINDS, joint_outputs, sums
from tests.oracle.joiner import planes, weighted
from tests.support import assert_close

pytestmark = MARKS

F64, F32, HALF = torch.float64, torch.float32, torch.bfloat16
# Some rows for each program; more symbols than a program holds at a time.
SHAPES = [(2, 4, 3, 1), (2, 5, 3, 37), (1, 2, 3, 1500)]
if not INTERPRETED:
    SHAPES += [(3, 60, 31, 257), (2, 40, 20, 5000)]


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """The kernels also where the interpreter has them on the CPU."""
    from inout.kernels.alignment.gpu import joiner as on_gpu

    monkeypatch.setattr(joiner, "_kernels", lambda _: on_gpu)


@pytest.mark.parametrize("dtype", [F64, F32, HALF], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_planes_and_gradient(shape, kind, dtype):
    """NaN in the padding is not read; the gradient there is exactly 0; the same each time."""
    logits, labels, weights = joint_outputs(*shape, kind, dtype)
    blank = shape[-1] - 1
    truth = logits.double().requires_grad_()
    expected = planes(truth, labels, blank)
    (wanted,) = grad(weighted(expected, weights), truth)
    results = []
    for _ in range(2):
        mine = logits.to(DEVICE).requires_grad_()
        found = joiner.from_logits(mine, labels.to(DEVICE), blank)
        results.append([*found, *grad(weighted(found, weights), mine)])
    for x, y in zip(*results, strict=True):
        assert torch.equal(x, y)
    *found, first = results[0]
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == (F64 if dtype == F64 else F32)
        assert_close(x, y, rtol=None if dtype == F64 else 1e-6)
    assert first.dtype == dtype
    bounds = {"rtol": 1e-2, "atol": 1e-3} if dtype == HALF else {}
    assert_close(joiner.wide(first), wanted.where(labels[..., None] >= 0, 0.0), **bounds)
    assert bool((first.cpu()[labels < 0] == 0).all())


def test_second_derivatives():
    logits, labels, weights = joint_outputs(2, 3, 3, 37, "masked", F64)
    found = []
    for way, device in ((joiner.from_logits, DEVICE), (planes, "cpu")):
        leaf = logits.to(device).requires_grad_()
        (first,) = grad(weighted(way(leaf, labels.to(device), 0), weights), leaf, create_graph=True)
        real = labels.to(device)[..., None] >= 0
        (second,) = grad((first * first.detach().cos()).where(real, 0.0).sum(), leaf)
        found.append([x.where(real, 0.0) for x in (first, second)])
    for x, y in zip(*found, strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("v", [1, 9, 40, 1500])
def test_sums(v, scale, dtype, monkeypatch):
    """On a GPU as by torch in float64; the same each time, although labels occur twice."""
    from inout.kernels.alignment.gpu import additive as on_gpu

    t, w = (70, 21) if v < 1500 or not INTERPRETED else (3, 2)
    encoder, predictor, labels, weights = sums(2, t, w, v, scale, dead=v > 1)
    labels = labels.clamp(max=v - 1)
    parts = [x.to(dtype) for x in (encoder, predictor)]
    leaves = [x.double().requires_grad_() for x in parts]
    expected = additive.from_sum(*leaves, labels, v - 1)
    truth = [*expected, *grad(weighted(expected, weights), leaves)]
    monkeypatch.setattr(additive, "_kernels", lambda _: on_gpu)
    results = []
    for _ in range(2):
        leaves = [x.to(DEVICE).requires_grad_() for x in parts]
        found = additive.from_sum(*leaves, labels.to(DEVICE), v - 1)
        results.append([*found, *grad(weighted(found, weights), leaves)])
    for wanted, x, y in zip(truth, *results, strict=True):
        assert torch.equal(x, y)
        assert x.dtype == dtype
        # Sums of float32 numbers around `scale` have lost digits before any exp.
        assert_close(x, wanted, atol=1e-9 if dtype == F64 else 2e-5 + 4e-7 * scale)


def test_labels_of_cells():
    from inout.kernels.alignment.gpu import joiner as on_gpu

    targets = torch.randint(1, 9, (4, 7))
    sizes = torch.tensor([5, 0, 3, 1]), torch.tensor([7, 2, 1, 4])
    found = on_gpu.labels_of(*(x.to(DEVICE) for x in (targets, *sizes)), 5)
    assert_close(found, joiner.labels_of(targets, *sizes, 5))
    expected = [
        [[int(targets[b, j]) if i < n and j < m else -1 for j in range(7)] for i in range(5)]
        for b, (n, m) in enumerate(zip(*(x.tolist() for x in sizes), strict=True))
    ]
    assert_close(found, torch.tensor(expected))
