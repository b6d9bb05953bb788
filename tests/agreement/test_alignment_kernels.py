"""Alignments by the compiled kernels and by plain torch code, at sizes that fill vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import CTC, RNNT, Alignment
from tests.contract.event_enumeration import F32, F64, seeded
from tests.support import assert_close

Made = Callable[..., Any]
N, M = 63, 37
ROWS, COLUMNS = torch.tensor([63, 40, 38, 51]), torch.tensor([37, 21, 37, 1])


def ctc(scores: Tensor, tier: str) -> CTC:
    targets = torch.randint(1, 9, (4, M), generator=seeded(1))
    return CTC(scores[..., :9], targets, ROWS, COLUMNS.clamp(max=20), tier=tier)


def rnnt(scores: Tensor, tier: str) -> RNNT:
    return RNNT(scores, scores.flip(-1), ROWS, COLUMNS, tier=tier)


def aligned(mode: str, gap: str = "linear") -> Made:
    def make(scores: Tensor, tier: str) -> Alignment:
        gaps = {"delete": scores[..., :, 0], "insert": scores[..., :, 1:]}
        gaps["insert"] = torch.nn.functional.pad(gaps["insert"], (0, 0, 1, 0), value=-1.0)
        if gap == "affine":
            gaps |= {"delete_extend": scores[..., :, 1], "insert_extend": scores[0, 0, :1]}
        given = gaps if mode in ("global", "local") else {}
        match = scores[..., :M]
        return Alignment(match, **given, lengths=ROWS, target_lengths=COLUMNS, gap=gap, mode=mode,
                         tier=tier)  # fmt: skip

    return make


FAMILIES: dict[str, Made] = {
    "ctc": ctc,
    "rnnt": rnnt,
    "global": aligned("global"),
    "affine": aligned("global", "affine"),
    "local": aligned("local", "affine"),
    "monotone": aligned("monotone"),
    "warping": aligned("warping"),
}


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.few(3)
def test_values_and_two_derivatives(family, dtype):
    """With impossible parts, and scores that are thousands of nats apart."""
    g = seeded(2)
    scores = 30 * torch.randn(4, N, M + 1, generator=g, dtype=F64)
    scores = scores.masked_fill(torch.rand(scores.shape, generator=g) < 0.05, -torch.inf).to(dtype)
    along = torch.randn(scores.shape, generator=g, dtype=F64)
    found = []
    for tier, kind in (("cpu", dtype), ("reference", F64)):
        leaf = scores.detach().to(kind).requires_grad_()
        log_z = FAMILIES[family](leaf, tier).log_partition()
        alive = torch.where(log_z == -torch.inf, 0.0, log_z)
        (first,) = grad(alive.sum(), leaf, create_graph=True)
        (second,) = grad((first * along.to(first)).sum(), leaf)
        found.append((log_z, first, second))
    assert bool((found[1][0] > -torch.inf).any())
    for ours, truth in zip(*found, strict=True):
        assert_close(ours, truth, atol=1e-3 if dtype == F32 else 1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding(family):
    """The mode is the first of the k best; samples are events, and as likely as they are drawn."""
    scores = torch.randn(4, N, M + 1, generator=seeded(3), dtype=F64)
    d = FAMILIES[family](scores, "cpu")
    some = d.log_partition() > -torch.inf
    best, log_probs = d.topk(3)
    assert torch.equal(best[0], d.mode)
    assert bool((log_probs[:-1] >= log_probs[1:])[:, some].all())
    if bool(some.all()):
        drawn = d.sample((400,), generator=seeded(4))
        score = d.log_prob(drawn)
        assert bool(score.isfinite().all())
        # E[-log p] is the entropy.
        error = score.std(0) / 20
        assert bool(((score.mean(0) + d.entropy()).abs() < 5 * error + 1e-9).all())
