"""Alignments in linear space: what is accepted is right, and what may be wrong is not accepted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from inout import CTC, RNNT, Alignment
from inout.distributions.paths import PathDistribution
from inout.kernels.alignment.cpu import decode, linear, monotone
from inout.kernels.alignment.cpu.passes import CpuPathPasses, CpuPaths, CpuShares
from inout.kernels.limits import ALIGNMENT_FACTOR, ALIGNMENT_NODE, ALIGNMENT_SLACK, ALIGNMENT_WEIGHT
from tests.contract.event_enumeration import F32, F64, seeded
from tests.seeds import seeds
from tests.support import assert_close

INF = torch.inf
NODE, WEIGHT, FACTOR = (
    -math.log(ALIGNMENT_NODE),
    -math.log(ALIGNMENT_WEIGHT),
    -ALIGNMENT_FACTOR * math.log(2),
)


def of(d: PathDistribution) -> CpuPaths:
    return CpuPaths(d.lattice, d._weights(d.potentials), d._flat_sizes)


def linear_space(d: PathDistribution, wanted: bool = True) -> tuple[Tensor, tuple[Tensor, ...]]:
    """log Z, NaN where it is not sure, and counts."""
    paths = of(d)
    log_z, counts = np.empty(paths.size), tuple(np.zeros_like(x) for x in paths.grid.planes)
    slack = ALIGNMENT_SLACK.of(paths.dtype)
    linear.solve(paths.grid, 0, paths.size, slack, wanted, log_z, counts)
    return torch.from_numpy(log_z), paths._tensors(counts)


def with_shares(d: PathDistribution) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The same in float64 and with an exponent for each node."""
    planes = [x.double() for x in d._weights(d.potentials)]
    exact = CpuShares(d.lattice, planes, d._flat_sizes, wanted=True)
    return exact.log_z, exact.gradients(torch.ones(len(planes[0])))


def accepted(d: PathDistribution) -> bool:
    """Whether linear space is sure of it; then it is right, and else the passes are."""
    (log_z, counts), (truth, uses) = linear_space(d), with_shares(d)
    alone, _ = linear_space(d, wanted=False)
    assert bool(alone.isnan().any()) == bool(log_z.isnan().any())
    sure = not bool(log_z.isnan().any())
    passes = CpuPathPasses(d.lattice, d._weights(d.potentials), d._flat_sizes, wanted=True)
    found = [(passes.log_z, passes.gradients(torch.ones(len(log_z))))]
    found += [(log_z, counts), (alone, ())] if sure else []
    for own, others in found:
        assert_close(own, truth, atol=1e-8)
        for x, y in zip(others, uses, strict=False):
            assert_close(x.double(), y, atol=1e-6 if x.dtype == F32 else 1e-9)
    return sure


def forced(depth: list[float]) -> Alignment:
    """Row k must go to column k, although it would rather stay, by so many nats."""
    n = 1 + len(depth)
    match = torch.full((1, n, n), -INF, dtype=F64)
    match[0, :, 0] = 0
    for k, value in enumerate(depth, 1):
        match[0, k, k] = -value
    return Alignment(match, mode="monotone")


@pytest.mark.parametrize("dtype", [F32, F64])
def test_a_weight_at_its_limit(dtype):
    for off, good in ((-0.1, True), (0.1, False)):
        d = forced([WEIGHT + off])
        assert accepted(Alignment(d.potentials["match"].to(dtype), mode="monotone")) == good


def test_a_node_at_its_limit():
    part = NODE / 4
    for off, good in ((-0.1, True), (0.1, False)):
        assert accepted(forced([part, part, part, part + off])) == good


def two_routes(deep: float, other: float, dtype: torch.dtype) -> RNNT:
    """The label is emitted at once, at -deep, or a frame later, at -other."""
    blank = torch.zeros(1, 2, 2, dtype=dtype)
    labels = torch.tensor([[[-deep], [-other]]], dtype=dtype)
    return RNNT(blank, labels)


def test_a_move_at_its_limit():
    for off, good in ((-1.0, True), (1.0, False)):  # a factor is a power of two
        assert accepted(two_routes(FACTOR + off, INF, F64)) == good


@pytest.mark.parametrize("dtype", [F32, F64])
def test_a_share_at_its_limit(dtype):
    slack = -math.log(ALIGNMENT_SLACK.of(torch.empty((), dtype=dtype)))
    for off, good in ((-1.0, True), (1.0, False)):
        d = two_routes(300.0, FACTOR - slack + off, dtype)
        assert accepted(d) == good


@pytest.mark.parametrize("exponent", [1023, 1024, 1025, 3072, 5120])
def test_nothing_comes_from_a_dead_step(exponent):
    """The first step of a warping path is to both: a step over one of them is dead."""
    match = torch.zeros(1, 3, 3, dtype=F64)
    match[0, 0, 0] = -exponent * math.log(2)
    d = Alignment(match, mode="warping")
    assert accepted(d)
    assert_close(d.log_partition(), match[:, 0, 0] + math.log(13))


@pytest.mark.parametrize("kind", ["ctc", "rnnt", "warping", "global", "local"])
@pytest.mark.parametrize("spread", [1.0, 20.0, 200.0, 1e4])
@pytest.mark.few(6)
def test_what_is_accepted_is_right(kind, spread):
    """Elements of all kinds: accepted or not, results agree with exponents for each node."""
    for seed in seeds(5):
        g = seeded(seed)
        scores = spread * torch.randn(6, 17, 18, generator=g, dtype=F64)
        scores = scores.masked_fill(torch.rand(scores.shape, generator=g) < 0.1, -INF)
        rows = torch.tensor([17, 16, 1, 0, 9, 17])
        columns = torch.tensor([17, 15, 1, 0, 0, 5])
        if kind == "ctc":
            targets = torch.randint(1, 4, (6, 17), generator=g)
            d: PathDistribution = CTC(scores, targets, rows, columns.clamp(max=6))
        elif kind == "rnnt":
            d = RNNT(scores, scores.flip(1), rows, columns)
        elif kind == "warping":
            d = Alignment(scores[..., :17], lengths=rows, target_lengths=columns, mode=kind)
        else:
            gaps = scores[:, :, 0], scores[:, 0, :17]
            d = Alignment(scores[..., :17], *gaps, rows, columns, mode=kind)
        sure = accepted(d)
        assert sure or spread > 1


def test_gradients_are_the_same_when_asked_for_twice():
    match = torch.randn(2, 9, 5, generator=seeded(0), dtype=F64).requires_grad_()
    log_z = Alignment(match, mode="warping").log_partition()
    (first,) = torch.autograd.grad(log_z.sum(), match, retain_graph=True)
    (second,) = torch.autograd.grad(3 * log_z[0], match)
    assert torch.equal(3 * first[0], second[0])
    assert not bool(second[1].any())


@pytest.mark.parametrize("dtype", [F32, F64])
def test_monotonic_search_is_the_usual_one(dtype):
    """Ties, impossible matches, no path, no rows, no columns, one element after another."""
    g = seeded(5)
    for rows, columns in ((9, 4), (30, 17), (1, 1), (3, 2)):
        match = torch.randint(0, 2, (40, rows, columns), generator=g).to(dtype)
        match = match.masked_fill(torch.rand(match.shape, generator=g) < 0.1, -INF)
        n = torch.randint(0, rows + 1, (40,), generator=g)
        m = torch.randint(0, columns + 1, (40,), generator=g)
        for b in range(40):  # what is padding must not be read
            match[b, n[b] :], match[b, :, m[b] :] = math.nan, math.nan
        paths = of(Alignment(match, lengths=n, target_lengths=m, mode="monotone"))
        found = [np.full((40, paths.steps), -1) for _ in range(2)]
        decode.viterbi(paths.wide, 0, 40, paths.cells, found[0])
        monotone.search(paths.grid.planes[0], columns, paths.sizes, 0, 40, found[1])
        assert np.array_equal(*found)
        assert torch.equal(paths.best(), torch.from_numpy(found[0]))
