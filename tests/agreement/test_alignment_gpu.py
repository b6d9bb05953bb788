"""Alignments on a GPU against those on the CPU: values, derivatives, all queries."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from inout import CTC, RNNT, Alignment
from inout.distributions import ctc as ctc_module
from inout.distributions import transducer
from inout.distributions.alignment import lattice_of
from inout.kernels.alignment.cpu.passes import CpuPathPasses
from inout.kernels.alignment.gpu.passes import GpuCTCPasses, GpuPathPasses
from inout.kernels.alignment.lattice import Lattice
from tests.agreement.gpu_device import DEVICE, INTERPRETED, MARKS
from tests.support import assert_close

pytestmark = MARKS

F32, F64 = torch.float32, torch.float64
KINDS = ["plain", "masked", "peaked", "large"]
LATTICES: dict[str, Lattice] = {
    "ctc": ctc_module.LATTICE,
    "rnnt": transducer.LATTICE,
    "global": lattice_of("global", False),
    "affine": lattice_of("global", True),
    "local": lattice_of("local", True),
    "monotone": lattice_of("monotone", False),
    "warping": lattice_of("warping", False),
}
# Several blocks of lanes in the large one on a GPU.
SHAPES = [(5, 3)] if INTERPRETED else [(7, 4), (63, 37), (40, 1500)]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scores_of(kind: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Random numbers of a kind in float64."""
    g = seeded(seed)
    x = torch.randn(shape, generator=g, dtype=F64)
    if kind == "masked":
        x = x.masked_fill(torch.rand(shape, generator=g) < 0.1, -torch.inf)
    return x * {"peaked": 30.0, "large": 1e4}.get(kind, 1.0)


def bounds(kind: str, dtype: torch.dtype) -> dict[str, float]:
    """How near numbers must be: scores of 1e4 leave few digits of a probability."""
    if dtype == F64:
        return {"rtol": 1e-8, "atol": 1e-8}
    return {"rtol": 1e-4, "atol": 2e-3 if kind == "large" else 1e-5}


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", LATTICES)
def test_lattices_agree_with_the_cpu(
    family: str, shape: tuple[int, int], kind: str, dtype: torch.dtype
) -> None:
    lattice, (n, m) = LATTICES[family], shape
    sizes = torch.tensor([[n, m], [n - 2, m], [n - 3, 1], [0, 0], [3, 0], [n, 2]])
    planes = []
    for p, plane in enumerate(lattice.planes):
        whole = scores_of(kind, (6, n + plane.more_rows, m + plane.more_columns), p)
        if p == len(lattice.planes) - 1 and p > 1:
            whole = whole[:, :1]
        rows, columns = (torch.arange(size) for size in whole.shape[1:])
        real = (rows < sizes[:, :1] + plane.more_rows)[..., None]
        real = real & (columns < sizes[:, 1:] + plane.more_columns)[:, None]
        shared = whole.shape[1] == 1 or whole.shape[2] == 1
        planes.append((whole if shared else whole.where(real, torch.nan)).to(dtype))
    weights = torch.arange(1.0, 7.0, dtype=dtype)
    truth = CpuPathPasses(lattice, [x.double() for x in planes], sizes, wanted=True)
    found = GpuPathPasses(lattice, [x.to(DEVICE) for x in planes], sizes.to(DEVICE), wanted=True)
    near = bounds(kind, dtype)
    assert_close(found.log_z, truth.log_z, rtol=near["rtol"], atol=1e-5)
    ours, theirs = found.gradients(weights.to(DEVICE)), truth.gradients(weights.double())
    for x, y in zip(ours, theirs, strict=True):
        assert x.dtype == dtype
        assert_close(x.double(), y, **near)
    along = [torch.randn(x.shape, generator=seeded(3), dtype=F64) for x in planes]
    ours = found.tangents(weights.to(DEVICE), tuple(x.to(DEVICE, dtype) for x in along))
    theirs = truth.tangents(weights.double(), tuple(along))
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x.double(), y, rtol=near["rtol"], atol=30 * near["atol"])


def ctc_problem(kind: str, v: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Scores, targets with repeated labels, both lengths, and the blank."""
    t, u = (9, 5) if INTERPRETED else (70, 41)
    scores = scores_of(kind, (8, t, v), seed)
    blank = v // 2
    targets = torch.randint(0, v - 1, (8, u), generator=seeded(seed + 1))
    targets = targets + (targets >= blank)
    lengths = torch.tensor([t, t, t - 2, 1, 0, t - 1, 0, 2])
    counts = torch.tensor([u, 2, 0, 1, 0, u - 2, 1, 1])
    frame = torch.arange(t)[:, None]
    return scores.where(frame < lengths[:, None, None], torch.nan), targets, lengths, counts, blank


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("v", [2, 5, 300])
def test_ctc_agrees_with_the_cpu(v: int, kind: str, dtype: torch.dtype) -> None:
    scores, targets, lengths, counts, blank = ctc_problem(kind, v)
    scores = scores.to(dtype)
    weights = torch.arange(1.0, 9.0, dtype=F64)
    leaf = scores.double().requires_grad_()
    log_z = CTC(leaf, targets, lengths, counts, blank).log_partition()
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    (truth,) = torch.autograd.grad((weights * alive).sum(), leaf)
    given = torch.cat([lengths[:, None], counts[:, None], targets], 1).to(DEVICE)
    # Scores as [t b v], which a network may give.
    turned = scores.transpose(0, 1).contiguous().transpose(0, 1).to(DEVICE)
    planes_of = partial(ctc_module._weights_of, blank=blank)
    passes = GpuCTCPasses(ctc_module.LATTICE, turned, given, blank, planes_of, wanted=True)
    near = bounds(kind, dtype)
    assert_close(passes.log_z, log_z, rtol=near["rtol"], atol=1e-5)
    (found,) = passes.gradients(weights.to(DEVICE))
    assert_close(found.double(), truth, **near)
    (again,) = passes.gradients(weights.to(DEVICE))
    assert torch.equal(found, again)
    assert_close(
        GpuCTCPasses(ctc_module.LATTICE, turned, given, blank, planes_of, wanted=False).log_z,
        passes.log_z,
    )


@pytest.mark.parametrize("kind", ["masked", "large"])
def test_long_targets_take_the_way_of_all_alignments(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, targets, lengths, counts, blank = ctc_problem(kind, 5)
    given = torch.cat([lengths[:, None], counts[:, None], targets], 1).to(DEVICE)
    planes_of = partial(ctc_module._weights_of, blank=blank)
    weights = torch.arange(1.0, 9.0, dtype=F64, device=DEVICE)
    found = []
    for most in (4096, 1):
        monkeypatch.setattr("inout.kernels.alignment.gpu.passes.CTC_GPU_LANES", most)
        own = scores.to(DEVICE)
        passes = GpuCTCPasses(ctc_module.LATTICE, own, given, blank, planes_of, wanted=True)
        assert (passes.paths is None) == (most == 4096)
        found.append((passes.log_z, *passes.gradients(weights)))
    for short, long in zip(*found, strict=True):
        assert_close(long, short, rtol=1e-8, atol=1e-8)


def ctc(scores: Tensor, **options: Any) -> CTC:
    targets = torch.tensor([[1, 1, 2], [2, 1, 0], [1, 0, 0]], device=scores.device)
    return CTC(scores[..., :3], targets, [6, 5, 3], [3, 2, 0], **options)


def rnnt(scores: Tensor, **options: Any) -> RNNT:
    return RNNT(scores[..., :4], scores.flip(-1)[..., :4], [6, 5, 3], [3, 2, 0], **options)


def affine(scores: Tensor, **options: Any) -> Alignment:
    gaps = {"delete": scores[..., 0], "insert": scores[0, 0, 0].detach()}
    gaps |= {"delete_extend": scores[..., :4], "insert_extend": scores[:, 0, :3]}
    given: dict[str, Any] = {**gaps, **options}
    return Alignment(scores[..., :3], lengths=[6, 5, 3], target_lengths=[3, 2, 0], gap="affine",
                     **given)  # fmt: skip


def local(scores: Tensor, **options: Any) -> Alignment:
    return affine(scores, mode="local", **options)


def monotone(scores: Tensor, **options: Any) -> Alignment:
    sizes: dict[str, Any] = {"lengths": [6, 5, 3], "target_lengths": [3, 2, 1]}
    return Alignment(scores[..., :3], mode="monotone", **sizes, **options)


def warping(scores: Tensor, **options: Any) -> Alignment:
    return Alignment.dtw(-scores[..., :3], 0.5, [6, 5, 3], [3, 2, 1], **options)  # costs


FAMILIES = {f.__name__: f for f in (ctc, rnnt, affine, local, monotone, warping)}


@pytest.mark.skipif(INTERPRETED, reason="tensors are on the CPU")
@pytest.mark.parametrize("family", FAMILIES)
def test_all_queries_on_the_gpu(family: str) -> None:
    make = FAMILIES[family]
    scores = scores_of("plain", (3, 6, 5), 5)
    here, there = make(scores), make(scores.to(DEVICE))
    assert there.tier == "gpu"
    assert_close(there.log_partition(), here.log_partition())
    for name, marginal in here.marginals().items():
        assert_close(there.marginals()[name], marginal)
    assert_close(there.entropy(), here.entropy())
    f = {
        name: torch.rand(p.shape, generator=seeded(1), dtype=F64)
        for name, p in here.potentials.items()
    }
    g = {name: x.to(DEVICE) for name, x in f.items()}
    assert_close(there.expectation(g), here.expectation(f))
    assert_close(there.covariance(g, g), here.covariance(f, f))
    assert_close(there.moments(g, 2).values, here.moments(f, 2).values)
    assert_close(there.mode, here.mode)
    assert_close(there.min_risk(), here.min_risk())
    assert_close(there.topk(3)[1], here.topk(3)[1])
    assert_close(there.log_prob(there.mode), here.log_prob(here.mode))
    drawn = there.sample((5,), generator=seeded(3))
    assert_close(drawn, here.sample((5,), generator=seeded(3)))
    for name, parts in here.parts(here.mode).items():
        assert_close(there.parts(there.mode)[name], parts)
    one, other = (d.sample_without_replacement(3, generator=seeded(4)) for d in (here, there))
    assert_close(other.events, one.events)
    assert_close(there.inside()["goal"], here.inside()["goal"])
    assert_close(there[1:].log_partition(), here[1:].log_partition())
    assert_close(there.to("cpu").log_partition(), here.log_partition())
    assert_close(make(scores.to(DEVICE), tier="reference").log_partition(), here.log_partition())


@pytest.mark.skipif(INTERPRETED, reason="tensors are on the CPU")
@pytest.mark.parametrize("kind", ["plain", "masked", "large"])
@pytest.mark.parametrize("family", FAMILIES)
def test_two_derivatives_on_the_gpu(family: str, kind: str) -> None:
    scores = scores_of(kind, (3, 6, 5), 7)
    along = torch.randn(scores.shape, generator=seeded(8), dtype=F64)
    found = []
    for device in ("cpu", DEVICE):
        leaf = scores.to(device).requires_grad_()
        log_z = FAMILIES[family](leaf).log_partition()
        alive = torch.where(log_z == -torch.inf, 0.0, log_z)
        (first,) = torch.autograd.grad(alive.sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad((first * along.to(device)).sum(), leaf)
        found.append((log_z, first, second))
    for ours, truth in zip(found[1], found[0], strict=True):
        assert_close(ours, truth, rtol=1e-7, atol=1e-7)


@pytest.mark.skipif(INTERPRETED, reason="tensors are on the CPU")
@pytest.mark.parametrize("family", FAMILIES)
def test_batches_by_vmap(family: str) -> None:
    make = FAMILIES[family]
    many = scores_of("plain", (2, 3, 6, 5), 9).to(DEVICE)
    found = torch.func.vmap(torch.func.grad(lambda x: make(x).log_partition().sum()))(many)
    for own, wanted in zip(found, many, strict=True):
        leaf = wanted.clone().requires_grad_()
        assert_close(own, torch.autograd.grad(make(leaf).log_partition().sum(), leaf)[0])
