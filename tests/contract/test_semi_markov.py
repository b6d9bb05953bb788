"""SemiMarkov against enumeration, its forest, its reference, and (at width 1) LinearChain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inout._core.errors import ArgumentError, ForestError
from inout.distributions.chain import LinearChain
from inout.distributions.semi_markov import SemiMarkov
from inout.kernels.segments.cpu.passes import CpuPasses
from tests.contract import distribution_suite
from tests.contract.distribution_suite import Case, DistributionSuite, Event, Part
from tests.seeds import seeds
from tests.support import assert_close

NAME = "log_potentials"
# (n, w, s): a single position, one width, one label, wider than the sequence, ordinary.
SIZES = [(1, 1, 1), (1, 3, 2), (4, 1, 2), (4, 4, 1), (2, 5, 2), (4, 2, 2), (5, 3, 2), (3, 2, 3)]
TIERS = ["cpu", "reference"]
DTYPES = [torch.float32, torch.float64]


# ------------------------------------------------------------------ the oracle


def segmentations(length: int, w: int, s: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """All lists of parts (end, width - 1, previous label, label)."""
    for cuts in product([False, True], repeat=max(length - 1, 0)):
        ends = [k for k, cut in enumerate(cuts) if cut] + ([length - 1] if length else [])
        starts = [0, *(end + 1 for end in ends)][: len(ends)]
        widths = [end - start + 1 for start, end in zip(starts, ends, strict=True)]
        if any(width > w for width in widths):
            continue
        for labels in product(range(s), repeat=len(ends)):
            before = [0, *labels][: len(ends)]
            yield [
                (end, width - 1, i, j)
                for end, width, i, j in zip(ends, widths, before, labels, strict=True)
            ]


class Enumeration:
    """All segmentations of one element with their probabilities, in float64."""

    def __init__(self, potentials: Tensor, length: int) -> None:
        n, w, s, _ = potentials.shape
        table = potentials.detach().double().numpy()
        self.parts = list(segmentations(length, w, s))
        self.scores = np.array([math.fsum(table[part] for part in parts) for parts in self.parts])
        top = self.scores.max()
        self.possible = top > -np.inf
        weights = np.exp(self.scores - (top if self.possible else 0.0))
        self.log_z = top + math.log(weights.sum()) if self.possible else -np.inf
        self.p = weights / weights.sum() if self.possible else weights
        self.indicators = np.zeros((len(self.parts), n, w, s, s))
        self.events = np.full((len(self.parts), n), -1)
        for k, parts in enumerate(self.parts):
            for end, width, i, j in parts:
                self.indicators[k, end, width, i, j] = 1
                self.events[k, end] = j

    def mean(self) -> np.ndarray:
        return np.einsum("k,k...->...", self.p, self.indicators)

    def hessian_times(self, u: np.ndarray) -> np.ndarray:
        flat = self.indicators.reshape(len(self.p), -1)
        totals = flat @ u.reshape(-1)
        centred = totals - self.p @ totals
        return ((self.p * centred) @ flat).reshape(u.shape)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def derivatives(
    potentials: Tensor, lengths: Tensor | None, u: Tensor, tier: str
) -> tuple[Tensor, Tensor, Tensor]:
    """log Z, its gradient, its Hessian times u."""
    x = potentials.detach().clone().requires_grad_()
    log_z = SemiMarkov(x, lengths, tier=tier).log_partition()
    finite = torch.where(log_z == -torch.inf, 0.0, log_z)
    (gradient,) = torch.autograd.grad(finite.sum(), x, create_graph=True)
    (product_,) = torch.autograd.grad(gradient, x, u, materialize_grads=True)
    return log_z.detach(), gradient.detach(), product_


def check(
    potentials: Tensor, lengths: list[int] | None = None, tier: str = "cpu", seed: int = 9
) -> None:
    """log Z, gradient and Hessian-vector product of a batch [b n w s s] against enumeration."""
    b, n = potentials.shape[:2]
    given = None if lengths is None else torch.tensor(lengths)
    u = randn(*potentials.shape, seed=seed, dtype=potentials.dtype)
    actual = derivatives(potentials, given, u, tier)
    truth = [Enumeration(potentials[k], n if lengths is None else lengths[k]) for k in range(b)]
    expected = (
        np.array([e.log_z for e in truth]),
        np.stack([e.mean() for e in truth]),
        np.stack([e.hessian_times(u[k].double().numpy()) for k, e in enumerate(truth)]),
    )
    for x, y in zip(actual, expected, strict=True):
        assert x.dtype == potentials.dtype
        assert_close(x, torch.from_numpy(y))


# ------------------------------------------------------------ the shared suite


class UnequalParts(distribution_suite.Enumeration):
    """The suite's oracle for events with different numbers of parts: `nothing` counts nothing."""

    suite: SegmentSuite

    def _place(self, part: Part) -> int:
        return self.size if part == self.suite.nothing else super()._place(part)

    def flat(self, values: dict[str, Tensor]) -> Tensor:
        return torch.nn.functional.pad(super().flat(values), (0, 1))

    def counts(self) -> list[Tensor]:
        self.size += 1
        counts = super().counts()
        self.size -= 1
        return [torch.nn.functional.pad(c[:, :-1], (0, 1)) for c in counts]


class SegmentSuite(DistributionSuite):
    """Facts of segmentations with segments of at most `w` positions."""

    w: int
    # There is one potential, so there are no dtypes to promote.
    test_dtypes_are_promoted = None

    @property
    def nothing(self) -> Part:
        """A part that starts before the sequence: padding, which fills up lists of parts."""
        return NAME, (0, self.w - 1, 0, 0) if self.w > 1 else (-1,)

    @pytest.fixture(autouse=True)
    def _unequal_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(distribution_suite, "Enumeration", UnequalParts)

    def make(self, case: Case, tier: str | None = None) -> SemiMarkov:
        return SemiMarkov(case.arguments[NAME], case.lengths, tier=tier)

    def case(
        self,
        generator: torch.Generator,
        batch: tuple[int, ...],
        n: int,
        s: int,
        dtype: Any = torch.float64,
    ) -> Case:
        shape = (*batch, n, self.w, s, s)
        x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        return Case({NAME: x}, batch, n, s)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        return dict(case.arguments)

    def events(self, n: int, s: int) -> list[Event]:
        events = []
        for parts in segmentations(n, self.w, s):
            event = [-1] * n
            for end, _, _, j in parts:
                event[end] = j
            events.append(tuple(event))
        return events

    def count(self, n: int, s: int) -> int:
        # Compositions of n into k parts of at most w, by inclusion and exclusion.
        return (
            1
            if n == 0
            else sum(
                (-1) ** m * math.comb(k, m) * math.comb(n - self.w * m - 1, k - 1) * s**k
                for k in range(1, n + 1)
                for m in range((n - 1) // self.w + 1)
            )
        )

    def parts_of(self, event: Event) -> list[Part]:
        parts: list[Part] = []
        start, before = 0, 0
        for end, label in enumerate(event):
            if label >= 0:
                parts.append((NAME, (end, end - start, before, label)))
                start, before = end + 1, label
        return parts + [self.nothing] * (len(event) - len(parts))

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        return torch.tensor([*event, *[-1] * (n - len(event))], dtype=torch.long)

    def padding(self, case: Case) -> dict[str, Tensor]:
        lengths = [case.length(element) for element in case.elements()]
        mask = padding(lengths, case.n, self.w, case.s)
        return {NAME: mask.reshape(case.arguments[NAME].shape)}

    def loss(self, guess: Event, truth: Event) -> float:
        def segments(event: Event) -> set[tuple[int, int, int]]:
            parts = (index for part, index in self.parts_of(event) if index != self.nothing[1])
            return {(end, width, label) for end, width, _, label in parts}

        return -len(segments(guess) & segments(truth))

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        length = case.length(element)
        return Case({NAME: case.arguments[NAME][element][:length]}, (), length, case.s)

    def test_wrong_shapes_and_types_are_refused_by_name(self, unchecked: None) -> None:
        """More dimensions are a larger batch here, so only the last ones can be wrong."""
        x = self.usual(111).arguments[NAME]
        for wrong in (x[..., :-1], x[..., :-1, :], x[0, 0, 0, 0]):
            with pytest.raises(ArgumentError, match=r"^log_potentials must be \["):
                SemiMarkov(wrong)


class TestSemiMarkov(SegmentSuite):
    w = 3


class TestSemiMarkovOfWidthOne(SegmentSuite):
    variant = True  # see tests/seeds.py
    one_in = 2
    w = 1


# ----------------------------------------------------- values and derivatives


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("size", SIZES)
def test_log_z_and_derivatives_against_enumeration(
    size: tuple[int, int, int], tier: str, dtype: torch.dtype
) -> None:
    n, w, s = size
    check(randn(2, n, w, s, s, dtype=dtype), tier=tier)


def test_third_derivative_against_the_reference() -> None:
    x = randn(2, 4, 3, 2, 2)
    u, v = randn(*x.shape, seed=1), randn(*x.shape, seed=2)
    results = []
    for tier in TIERS:
        y = x.clone().requires_grad_()
        log_z = SemiMarkov(y, torch.tensor([4, 3]), tier=tier).log_partition()
        (first,) = torch.autograd.grad((log_z * log_z).sum(), y, create_graph=True)
        (second,) = torch.autograd.grad(first, y, u, create_graph=True)
        (third,) = torch.autograd.grad(second, y, v, create_graph=True)
        (fourth,) = torch.autograd.grad(third.pow(2).sum(), y)
        results.append((third, fourth))
    for ours, reference in zip(*results, strict=True):
        assert_close(ours, reference)


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_against_reference_at_awkward_sizes(dtype: torch.dtype) -> None:
    x = randn(3, 63, 7, 17, 17, dtype=dtype)
    u, lengths = randn(*x.shape, seed=1, dtype=dtype), torch.tensor([63, 17, 40])
    ours = derivatives(x, lengths, u, "cpu")
    truth = derivatives(x.double(), lengths, u.double(), "reference")
    for actual, expected in zip(ours, truth, strict=True):
        assert_close(actual, expected)


def test_marginals_are_differentiable_and_shaped() -> None:
    x = randn(2, 3, 4, 2, 2, 2).requires_grad_()
    d = SemiMarkov(x, torch.tensor([[4, 0, 1], [3, 2, 4]]))
    assert d.batch_shape == (2, 3)
    assert d.event_shape == (4,)
    marginals = d.marginals()[NAME]
    assert marginals.shape == x.shape
    (second,) = torch.autograd.grad(marginals.pow(2).sum(), x)
    for place in product(range(2), range(3)):
        e = Enumeration(x[place], int(d.lengths[place]))
        assert_close(marginals[place], torch.from_numpy(e.mean()))
        assert_close(second[place], torch.from_numpy(e.hessian_times(2 * e.mean())))


# -------------------------------------------------------------------- queries


@pytest.mark.parametrize("size", SIZES)
def test_mode_topk_min_risk_against_enumeration(size: tuple[int, int, int]) -> None:
    n, w, s = size
    x = randn(3, n, w, s, s, seed=3)
    lengths = [n, max(n - 1, 0), n]
    d = SemiMarkov(x, torch.tensor(lengths))
    k = 7
    events, log_probs = d.topk(k)
    mode, safest = d.mode, d.min_risk()
    for element, length in enumerate(lengths):
        e = Enumeration(x[element], length)
        order = np.argsort(-e.scores)[:k]
        found = len(order)
        assert_close(events[:found, element], torch.from_numpy(e.events[order]))
        assert_close(log_probs[:found, element], torch.from_numpy(np.log(e.p[order])))
        assert bool((log_probs[found:, element] == -torch.inf).all())
        assert_close(mode[element], torch.from_numpy(e.events[order[0]]))
        segments = e.indicators.sum(-2).reshape(len(e.p), -1)  # whatever the label before
        gains = segments @ (e.p @ segments)
        assert_close(safest[element], torch.from_numpy(e.events[gains.argmax()]))
    # What fills up the rest is still an event that can be asked about.
    assert d.log_prob(events).shape == (k, 3)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_forest(batch: tuple[int, ...]) -> None:
    x = randn(*batch, 5, 3, 2, 2)
    lengths = torch.full(batch, 5)
    if batch:
        lengths[1] = 3
        x[1, 3:] = torch.nan
    x[..., 2, 1, 0, 1] = -torch.inf
    x.requires_grad_()
    d = SemiMarkov(x, lengths)
    forest = d.forest()
    assert_close(forest.log_partition(), d.log_partition().detach())
    (expected,) = torch.autograd.grad(d.log_partition().sum(), x)
    (actual,) = torch.autograd.grad(forest.log_partition().sum(), x)
    assert_close(actual, expected)
    if not batch:
        counts = forest.expected_counts(NAME)
        assert_close(counts.reshape(x.shape), d.marginals()[NAME].detach())
        assert forest.count() == int((Enumeration(x, 5).scores > -np.inf).sum())


@pytest.mark.exhaustive
def test_width_one_is_a_linear_chain() -> None:
    emissions, transitions = randn(3, 6, 4), randn(3, 5, 4, 4, seed=1)
    lengths = torch.tensor([6, 1, 4])
    x = torch.full((3, 6, 1, 4, 4), torch.nan, dtype=torch.float64)
    x[:, 0, 0, 0] = emissions[:, 0]
    x[:, 1:, 0] = transitions + emissions[:, 1:, None, :]
    ours, chain = SemiMarkov(x, lengths), LinearChain(emissions, transitions, lengths=lengths)
    assert_close(ours.log_partition(), chain.log_partition())
    assert_close(ours.entropy(), chain.entropy())
    assert_close(ours.marginals()[NAME][:, 1:, 0], chain.marginals()["transitions"])
    assert_close(ours.mode, chain.mode)
    assert_close(ours.topk(5)[0], chain.topk(5)[0])
    assert_close(ours.topk(5)[1], chain.topk(5)[1])


# ------------------------------------------------------------------- extremes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("seed", seeds(5))
def test_masks(seed: int, tier: str, dtype: torch.dtype) -> None:
    x = randn(3, 5, 3, 2, 2, seed=seed, dtype=dtype)
    x[randn(*x.shape, seed=seed + 100) > 0.2] = -torch.inf
    check(x, [5, 4, 2], tier)


@pytest.mark.parametrize("tier", TIERS)
def test_positions_where_no_segment_can_end(tier: str) -> None:
    x = randn(2, 6, 3, 2, 2)
    x[:, [0, 2, 3]] = -torch.inf
    check(x, tier=tier)


@pytest.mark.parametrize("tier", TIERS)
def test_nothing_is_possible(tier: str) -> None:
    x = torch.full((2, 4, 2, 2, 2), -torch.inf)
    x[1] = 0.0
    check(x, tier=tier)
    d = SemiMarkov(x, tier=tier)
    assert d.mode.shape == (2, 4)
    events, log_probs = d.topk(3)
    assert bool((log_probs[:, 0] == -torch.inf).all())
    assert bool(log_probs[:, 1].isfinite().all())
    assert_close(d.marginals()[NAME][0], torch.zeros(4, 2, 2, 2))
    with pytest.raises(ForestError, match="no possible segmentation"):
        d.sample((2,), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tier", TIERS)
def test_a_single_surviving_path(tier: str, dtype: torch.dtype) -> None:
    x = torch.full((1, 6, 3, 2, 2), -torch.inf, dtype=dtype)
    parts = [(1, 1, 0, 1), (2, 0, 1, 0), (5, 2, 0, 1)]
    for k, part in enumerate(parts):
        x[0][part] = (-1e4, 3.0, 1e4)[k]
    # Dead ends: good starts that lead nowhere, and a good end that nothing leads to.
    x[0, 0, 0, 0, 0], x[0, 5, 0, 0, 0] = 1e4, 1e4
    check(x, tier=tier)
    d = SemiMarkov(x, tier=tier)
    event = torch.tensor([[-1, 1, 0, -1, -1, 1]])
    assert_close(d.mode, event)
    assert_close(d.min_risk(), event)
    assert_close(d.sample(generator=torch.Generator().manual_seed(0)), event)
    assert_close(d.log_prob(event), torch.zeros(1, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [30.0, 300.0, 1e4])
def test_huge_potentials(scale: float, dtype: torch.dtype) -> None:
    x = scale * randn(4, 5, 3, 2, 2, seed=2, dtype=dtype)
    x[2] = scale * x[2].sign()
    x[3] = x[3].abs()
    check(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_potentials_that_nearly_tie(dtype: torch.dtype) -> None:
    # 12345.6 for each position covered: the sums are large, what decides between them is small,
    # and the offsets of the widths are no numbers of float32.
    x = randn(3, 6, 3, 2, 2, dtype=dtype)
    x += 12345.6 * torch.arange(1, 4)[:, None, None]
    check(x)
    assert not np.isnan(CpuPasses(x, torch.tensor([6, 6, 6])).fits).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_scales_that_differ_between_widths(dtype: torch.dtype) -> None:
    # Steps of width 1 are cheap and long ones dear, by far more than the dtype's range, and the
    # labels of width 1 die out in the end: only log space sees the survivors.
    x = randn(2, 6, 3, 2, 2, dtype=dtype)
    x[:, :, 0] += 2000.0
    x[0, :5, 1:] -= 2000.0
    x[0, 5, 0] = -torch.inf
    x[1, :, 0, :, 0] -= 900.0
    check(x)
    passes = CpuPasses(x, torch.tensor([6, 6]))
    assert bool(np.isnan(passes.fits).any())
    assert_close(SemiMarkov(x).log_partition(), SemiMarkov(x.double()).log_partition())


@pytest.mark.parametrize("dtype", DTYPES)
def test_tempting_potentials_of_impossible_labels(dtype: torch.dtype) -> None:
    # Label 1 can never be reached, but what would follow it has huge potentials.
    x = randn(1, 6, 3, 2, 2, dtype=dtype)
    x[..., 1] = -torch.inf
    for bonus in (50.0, 1e4):
        tempting = x.clone()
        tempting[..., 1, :] += bonus
        check(tempting)


def test_ordinary_potentials_do_not_need_log_space() -> None:
    x = 3 * randn(4, 40, 6, 5, 5, dtype=torch.float32)
    x[1, :, :, :, 0] = -torch.inf
    passes = CpuPasses(x, torch.tensor([40, 40, 0, 1]))
    assert not np.isnan(passes.fits).any()


@pytest.mark.parametrize("tier", TIERS)
def test_no_positions(tier: str) -> None:
    x = torch.zeros(2, 0, 3, 2, 2, requires_grad=True)
    d = SemiMarkov(x, tier=tier)
    assert_close(d.log_partition(), torch.zeros(2))
    (gradient,) = torch.autograd.grad(d.log_partition().sum(), x, create_graph=True)
    assert gradient.shape == x.shape
    assert d.mode.shape == (2, 0)
    assert_close(d.log_prob(d.mode), torch.zeros(2))
    assert_close(d.topk(2)[1], torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]))
    assert d.sample((3,), generator=torch.Generator().manual_seed(0)).shape == (3, 2, 0)
    assert d.min_risk().shape == (2, 0)
    assert d.enumerate_support().shape == (1, 2, 0)
    assert_close(d.entropy(), torch.zeros(2))
    assert_close(d.forest().log_partition(), torch.zeros(2))


# ------------------------------------------------------------ padding, layout


def padding(lengths: list[int], n: int, w: int, s: int) -> Tensor:
    """Which potentials [b n w s s] no segmentation can use."""
    used = torch.zeros(len(lengths), n, w, s, s, dtype=torch.bool)
    for k, length in enumerate(lengths):
        for parts in segmentations(length, w, s):
            for part in parts:
                used[k][part] = True
    return ~used


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, 1e30])
def test_padding_changes_nothing(tier: str, garbage: float) -> None:
    lengths = [4, 1, 0, 3]
    x = randn(4, 4, 3, 2, 2)
    pad = padding(lengths, 4, 3, 2)
    dirty = x.masked_fill(pad, garbage)
    u = randn(*x.shape, seed=1)
    given = torch.tensor(lengths)
    clean_results = derivatives(x, given, u, tier)
    dirty_results = derivatives(dirty, given, u.masked_fill(pad, 1e3), tier)
    for clean, other in zip(clean_results, dirty_results, strict=True):
        assert torch.equal(clean, other)
    assert bool((dirty_results[1][pad] == 0).all())
    assert bool((dirty_results[2][pad] == 0).all())
    clean_d, dirty_d = SemiMarkov(x, given, tier=tier), SemiMarkov(dirty, given, tier=tier)
    queries = [
        lambda d: d.mode,
        lambda d: d.topk(4)[0],
        lambda d: d.topk(4)[1],
        lambda d: d.min_risk(),
        lambda d: d.sample((50,), generator=torch.Generator().manual_seed(0)),
        lambda d: d.entropy(),
        lambda d: d.log_prob(clean_d.mode),
        lambda d: d.forest().log_partition(),
    ]
    for query in queries:
        assert torch.equal(query(clean_d), query(dirty_d))
    # Neither does what stands beyond the length of an event.
    event = clean_d.mode.masked_fill(~clean_d._real, 77)
    assert torch.equal(clean_d.log_prob(event), clean_d.log_prob(clean_d.mode))


def test_padded_element_equals_the_shorter_problem() -> None:
    x = randn(2, 6, 3, 3, 3)
    long = SemiMarkov(x, torch.tensor([6, 4]))
    short = SemiMarkov(x[1, :4])
    assert_close(long.log_partition()[1], short.log_partition())
    assert_close(long.marginals()[NAME][1, :4], short.marginals()[NAME])
    assert_close(long.mode[1, :4], short.mode)
    assert_close(long.topk(9)[0][:, 1, :4], short.topk(9)[0])


def test_potentials_are_not_changed() -> None:
    x = randn(2, 5, 3, 2, 2)
    before = x.clone()
    d = SemiMarkov(x)
    d.log_partition(), d.marginals(), d.mode, d.min_risk(), d.topk(2)
    assert torch.equal(x, before)
    assert not x.requires_grad


# --------------------------------------------------------------------- errors


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_bad_values_are_refused_by_name(value: float) -> None:
    x = randn(2, 4, 2, 2, 2)
    x[1, 3, 1, 1, 0] = value
    with pytest.raises(
        ArgumentError, match=r"log_potentials must be finite or -inf.*\[1, 3, 1, 1, 0\]"
    ):
        SemiMarkov(x)
    SemiMarkov(x, torch.tensor([4, 3]))  # there it is padding


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(3, 2, 2),), r"log_potentials must be \[\*b n w s s\]"),
        ((torch.zeros(3, 2, 2, 3),), r"log_potentials must be \[\*b n w s s\]"),
        ((torch.zeros(3, 2, 2, 2, dtype=torch.long),), "must be a float tensor"),
        ((torch.zeros(3, 0, 2, 2),), "at least one width"),
        ((torch.zeros(3, 2, 0, 0),), "at least one width and one label"),
        ((torch.zeros(2, 3, 2, 2, 2), torch.tensor([3])), r"lengths must be integers \[2\]"),
        ((torch.zeros(2, 3, 2, 2, 2), torch.tensor([3.0, 1.0])), "lengths must be integers"),
        ((torch.zeros(2, 3, 2, 2, 2), torch.tensor([3, 4])), r"lengths must be in 0\.\.3"),
        ((torch.zeros(2, 3, 2, 2, 2), torch.tensor([3, -1])), r"lengths must be in 0\.\.3"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        SemiMarkov(*arguments)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("event", "message"),
    [
        ([0, 0, 0], "events must be integers"),
        ([0.0, 0.0, 0.0, 0.0], "events must be integers"),
        ([0, 2, 0, 0], r"events must be in -1\.\.1"),
        ([0, -2, 0, 0], r"events must be in -1\.\.1"),
        ([0, 0, 0, -1], "a label at the last position"),
        ([0, -1, -1, 0], "at most 2 wide. Got 3"),
        ([-1, -1, -1, -1], "a label at the last position"),
    ],
)
def test_events_outside_the_support_are_refused(event: list[float], message: str) -> None:
    d = SemiMarkov(torch.zeros(4, 2, 2, 2))
    for query in (d.log_prob, d.parts):
        with pytest.raises(ArgumentError, match=message):
            query(torch.tensor(event))


def test_enumerate_support_refuses_what_it_cannot_list() -> None:
    with pytest.raises(ArgumentError, match="one length"):
        SemiMarkov(torch.zeros(2, 3, 2, 2, 2), torch.tensor([3, 2])).enumerate_support()
    with pytest.raises(ArgumentError, match="at most 10000000"):
        SemiMarkov(torch.zeros(40, 2, 2, 2)).enumerate_support()
    with pytest.raises(ArgumentError, match="k must be"):
        SemiMarkov(torch.zeros(3, 2, 2, 2)).topk(0)


def test_enumerate_support_over_a_batch() -> None:
    d = SemiMarkov(randn(2, 3, 3, 2, 2, 2))
    events = d.enumerate_support()
    unexpanded = d.enumerate_support(expand=False)
    assert torch.equal(d.log_prob(events), d.log_prob(unexpanded))
    assert torch.equal(d.parts(events)[NAME], d.parts(unexpanded)[NAME])
    assert events.shape[1:] == (2, 3, 3)
    assert_close(d.log_prob(events).logsumexp(0).exp(), torch.ones(2, 3, dtype=torch.float64))
    assert d.enumerate_support(expand=False).shape == (len(events), 1, 1, 3)
