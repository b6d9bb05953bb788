"""`RNNT` in the shared suite, its planes from a network's outputs, and pruned windows."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise
from math import comb
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from inout import RNNT, ArgumentError
from inout.kernels.alignment import blocks
from tests.contract.distribution_suite import F32, F64, Case, DistributionSuite, Event, Part, seeded
from tests.contract.misuse_suite import lengths_read, unusual
from tests.support import assert_close


class TestRNNT(DistributionSuite):
    """Up to s labels; fewer in short elements."""

    sizes = (4, 2)
    blank = -1

    def symbols(self, n: int, s: int) -> int:
        """The number of labels of an element of n frames."""
        return min(max(n - 1, 0), s)

    def make(self, case: Case, tier: str | None = None) -> RNNT:
        sizes = torch.tensor([self.symbols(n, case.s) for n in lengths_read(case)]).long()
        sizes = sizes.reshape(case.batch)
        return RNNT(**case.arguments, lengths=case.lengths, target_lengths=sizes, tier=tier)

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        shape = (*batch, n, s + 1)
        return Case(
            {
                name: torch.randn(shape, generator=generator, dtype=F64).to(dtype)
                for name in ("blank", "labels")
            },
            batch, n, s,
        )  # fmt: skip

    def potentials(self, case: Case) -> dict[str, Tensor]:
        return dict(case.arguments)

    def events(self, n: int, s: int) -> list[Event]:
        """The frames of the labels, and last the number of frames."""
        u = self.symbols(n, s)
        return [(*frames, n) for frames in combinations_with_replacement(range(n), u)]

    def count(self, n: int, s: int) -> int:
        u = self.symbols(n, s)
        return comb(n + u - 1, u) if n else 1

    def parts_of(self, event: Event) -> list[Part]:
        *labels, n = event
        parts: list[Part] = [("labels", (t, j)) for j, t in enumerate(labels)]
        return parts + [("blank", (t, sum(x <= t for x in labels))) for t in range(n)]

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        labels = event[:-1]
        return torch.tensor([*labels, *[-1] * (s - len(labels))], dtype=torch.long)

    def padding(self, case: Case) -> dict[str, Tensor]:
        masks = {n: torch.zeros(x.shape, dtype=torch.bool) for n, x in case.arguments.items()}
        for element in case.elements():
            n = case.length(element)
            u = self.symbols(n, case.s)
            for name, mask in masks.items():
                mask[element][n:] = True
                mask[element][:, u + (name == "blank") :] = True
        return masks

    def in_padding(self, d: Any) -> Tensor:
        return torch.arange(d.event_shape[0]) >= d.target_lengths[..., None]

    def loss(self, guess: Event, truth: Event) -> float:
        return sum(g != t for g, t in zip(guess, truth, strict=True))

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        n = case.length(element)
        return Case(
            {
                name: x[element][:n, : self.symbols(n, case.s) + 1]
                for name, x in case.arguments.items()
            },
            (), n, case.s,
        )  # fmt: skip

    def cut_short(self, name: str, x: Tensor) -> Tensor:
        return x[..., :-1, :]

    def used_places(self, name: str, x: Tensor) -> tuple[int, int]:
        return 0, x.numel() - 1 - (name == "labels")


def outputs(seed: int, dtype: Any = F64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Joint outputs [3 6 5 7], targets [3 4], and lengths of both."""
    g = seeded(seed)
    logits = torch.randn(3, 6, 5, 7, generator=g, dtype=F64).to(dtype)
    return (
        logits,
        torch.randint(1, 7, (3, 4), generator=g),
        torch.tensor([6, 3, 5]),
        torch.tensor([4, 0, 3]),
    )


def plain(logits: Tensor, targets: Tensor, *sizes: Tensor) -> Tensor:
    """log Z by log_softmax of all outputs."""
    scores = logits.log_softmax(-1)
    ids = torch.nn.functional.pad(targets, (0, 1))[:, None, :, None]
    labels = scores.gather(-1, ids.expand(*scores.shape[:-1], 1))[..., 0]
    return RNNT(scores[..., 0], labels, *sizes, tier="reference").log_partition()


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
def test_planes_from_logits(dtype, monkeypatch):
    """In blocks, whatever stands in the padding; with the gradient."""
    monkeypatch.setattr(blocks, "JOINER_BLOCK", 40)
    logits, targets, *sizes = outputs(1, dtype)
    mine, truth = (logits.clone().requires_grad_() for _ in range(2))
    log_z, expected = (
        RNNT.from_logits(mine, targets, *sizes).log_partition(),
        plain(truth, targets, *sizes),
    )
    assert_close(log_z, expected)
    weights = torch.tensor([1.0, -2.0, 0.5])
    (wanted,) = grad((expected * weights).sum(), truth)
    assert_close(grad((log_z * weights).sum(), mine)[0], wanted)
    spoilt = logits.clone()
    spoilt[1, 3:], spoilt[2, :, 4:] = torch.nan, torch.nan
    spoilt.requires_grad_()
    log_z = RNNT.from_logits(spoilt, targets, *sizes).log_partition()
    assert_close(grad((log_z * weights).sum(), spoilt)[0], wanted)


def test_planes_have_second_derivatives():
    logits, targets, *sizes = outputs(2)
    small = logits[:2, :3, :3, :4].clone().requires_grad_()
    small_targets = targets[:2, :2].clamp(max=3)

    def joint(x: Tensor) -> Tensor:
        return RNNT.from_logits(x, small_targets).log_partition()

    assert gradcheck(joint, small)
    assert gradgradcheck(joint, small)
    encoder = torch.randn(2, 3, 4, dtype=F64, generator=seeded(3)).requires_grad_()
    predictor = torch.randn(2, 3, 4, dtype=F64, generator=seeded(4)).requires_grad_()

    def added(x: Tensor, y: Tensor) -> Tensor:
        return RNNT.from_joiner(x, y, small_targets).log_partition()

    assert gradcheck(added, (encoder, predictor))
    assert gradgradcheck(added, (encoder, predictor))


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("scale", [1.0, 100.0, 3000.0])
def test_planes_from_an_additive_joiner(scale, dtype):
    """Also where the labels that an encoder and a predictor prefer are not the same."""
    g = seeded(5)
    _, targets, *sizes = outputs(5)
    parts = [scale * torch.randn(3, n, 7, generator=g, dtype=F64) for n in (6, 5)]
    parts[0][0, 0, 3:] = -torch.inf
    mine = [x.to(dtype).requires_grad_() for x in parts]
    truth = [x.detach().double().requires_grad_() for x in mine]
    log_z = RNNT.from_joiner(*mine, targets, *sizes).log_partition()
    expected = plain(truth[0][:, :, None] + truth[1][:, None], targets, *sizes)
    assert_close(log_z, expected)
    alive = [torch.where(x == -torch.inf, 0.0, x).sum() for x in (log_z, expected)]
    for x, y in zip(grad(alive[0], mine), grad(alive[1], truth), strict=True):
        assert_close(x, y, atol=1e-9 if dtype == F64 else 2e-3)


def test_padding_of_a_joiner_may_be_nan():
    g = seeded(6)
    _, targets, *sizes = outputs(6)
    encoder, predictor = (torch.randn(3, n, 7, generator=g, dtype=F64) for n in (6, 5))
    spoilt = [encoder.clone(), predictor.clone()]
    spoilt[0][1, 3:], spoilt[1][1, 1:], spoilt[1][2, 4:] = torch.nan, torch.nan, torch.nan
    found = []
    for parts in ([encoder, predictor], spoilt):
        leaves = [x.requires_grad_() for x in parts]
        log_z = RNNT.from_joiner(*leaves, targets, *sizes).log_partition()
        found.append([log_z, *grad(log_z.sum(), leaves)])
    for x, y in zip(*found, strict=True):
        assert torch.equal(x, y)


def test_windows():
    """Wide ones change nothing; narrow ones keep the best paths, and only those in windows."""
    logits, targets, *sizes = outputs(7)
    whole = RNNT.from_logits(logits, targets, *sizes)
    for size in (2, 3, 5):
        starts = whole.windows(size)
        assert starts.shape == (3, 6)
        for b, (t, u) in enumerate(zip(*(x.tolist() for x in sizes), strict=True)):
            own = starts[b, :t].tolist()
            assert own[0] == 0
            assert own[-1] == max(u + 1 - size, 0)
            assert all(0 <= y - x < size for x, y in pairwise(own))
        inside = starts[..., None] + torch.arange(size)
        narrow = logits.gather(2, inside[..., None].expand(*inside.shape, 7))
        pruned = RNNT.from_logits(narrow, targets, *sizes, starts=starts)
        keep = torch.zeros(3, 6, 5, dtype=torch.bool).scatter(-1, inside, True)
        blank, labels = (
            torch.where(keep, whole.potentials[name], -torch.inf) for name in ("blank", "labels")
        )
        masked = RNNT(blank, labels, *sizes)
        assert_close(pruned.log_partition(), masked.log_partition())
        assert bool((pruned.log_partition() <= whole.log_partition() + 1e-12).all())
        assert bool((pruned.log_partition() > -torch.inf).all())
    assert_close(pruned.log_partition(), whole.log_partition())
    hidden = torch.randn(3, 5, 2, generator=seeded(8))
    rows = RNNT.in_windows(hidden, starts, 5)
    assert torch.equal(rows, hidden[:, None].expand(-1, 6, -1, -1))
    with pytest.raises(ArgumentError, match=r"^size is too small"):
        whole.windows(1)


def test_windows_of_no_frames():
    starts, none = torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 2, dtype=torch.long) + 1
    for targets, truth in ((none[:, :0], 0.0), (none, -torch.inf)):
        d = RNNT.from_logits(torch.zeros(2, 0, 1, 3), targets, starts=starts)
        assert d.log_partition().tolist() == [truth, truth]


def test_arguments_that_make_no_sense_are_refused(unchecked):
    logits, targets, *sizes = outputs(9)
    with pytest.raises(ArgumentError, match=r"^targets must not have the blank"):
        RNNT.from_logits(logits, torch.zeros_like(targets))
    with pytest.raises(ArgumentError, match=r"^logits must be \[\*b t 4 v\]"):
        RNNT.from_logits(logits, targets[:, :3])
    with pytest.raises(ArgumentError, match=r"^predictor must have shape \[3, 5, 7\]"):
        RNNT.from_joiner(logits[:, :, 0], logits[:, 0, :3], targets)
    with pytest.raises(ArgumentError, match=r"^starts must be in 0\.\.3"):
        RNNT.from_logits(logits[:, :, :2], targets, starts=torch.full((3, 6), 4))
    d = RNNT.from_logits(logits, targets, *sizes)
    for wrong in ([2, 1, 3, 4], [0, 0, 0, 6], [-1, 0, 0, 0]):
        with pytest.raises(ArgumentError, match="frames in order"):
            d.log_prob(torch.tensor([wrong] * 3))


def test_tensors_that_are_not_dense_are_refused(unchecked):
    logits, targets, *sizes = outputs(10)
    starts = torch.zeros(3, 6, dtype=torch.long)
    joint = {"logits": logits, "targets": targets, "starts": starts, "target_lengths": sizes[1]}
    added = {"encoder": logits[:, :, 0], "predictor": logits[:, 0], "targets": targets,
             "target_lengths": sizes[1]}  # fmt: skip
    for make, good in ((RNNT.from_logits, joint), (RNNT.from_joiner, added)):
        make(**good)
        for name, x in good.items():
            for kind, (wrong, hint) in unusual(x).items():
                with pytest.raises(ArgumentError, match=rf"^{name} must be .* {kind} one.*{hint}"):
                    make(**(good | {name: wrong}))
