"""`CTC` in the shared suite, and beside torch's own loss."""

from __future__ import annotations

from itertools import groupby, pairwise, product
from math import comb
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.nn.functional import ctc_loss

from inout import CTC, ArgumentError
from tests.contract.distribution_suite import F32, F64, Case, DistributionSuite, Event, Part, seeded
from tests.contract.misuse_suite import lengths_read, unusual
from tests.support import assert_close


def spelt(event: Event) -> tuple[int, ...]:
    """What a sequence of frames spells."""
    return tuple(label for label, _ in groupby(event) if label != 0)


class TestCTC(DistributionSuite):
    """s labels besides the blank, which is 0; each length has a target of its own."""

    sizes = (4, 2)
    blank = -1

    def target_of(self, n: int, s: int) -> tuple[int, ...]:
        """The target of an element of n frames."""
        return tuple(1 + k % s for k in range(n // 2))

    def targets(self, case: Case) -> tuple[Tensor, Tensor]:
        """Targets and their lengths, -1 in the padding."""
        rows = [self.target_of(n, case.s) for n in lengths_read(case)]
        most = len(self.target_of(case.n, case.s))
        table = torch.full((len(rows), most), -1)
        for row, own in zip(table, rows, strict=True):
            row[: len(own)] = torch.tensor(own)
        sizes = torch.tensor([len(own) for own in rows], dtype=torch.long)
        return table.reshape(*case.batch, most), sizes.reshape(case.batch)

    def make(self, case: Case, tier: str | None = None) -> CTC:
        targets, sizes = self.targets(case)
        return CTC(**case.arguments, targets=targets, lengths=case.lengths, target_lengths=sizes,
                   tier=tier)  # fmt: skip

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        table = torch.randn(*batch, n, s + 1, generator=generator, dtype=F64).to(dtype)
        return Case({"log_probs": table}, batch, n, s)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        return dict(case.arguments)

    def events(self, n: int, s: int) -> list[Event]:
        return [e for e in product(range(s + 1), repeat=n) if spelt(e) == self.target_of(n, s)]

    def count(self, n: int, s: int) -> int:
        target = self.target_of(n, s)
        repeated = sum(x == y for x, y in pairwise(target))
        return comb(n + len(target) - repeated, 2 * len(target))

    def parts_of(self, event: Event) -> list[Part]:
        return [("log_probs", (t, label)) for t, label in enumerate(event)]

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        return torch.tensor([*event, *[-1] * (n - len(event))], dtype=torch.long)

    def padding(self, case: Case) -> dict[str, Tensor]:
        mask = torch.zeros(case.arguments["log_probs"].shape, dtype=torch.bool)
        for element in case.elements():
            mask[element][case.length(element) :] = True
        return {"log_probs": mask}

    def loss(self, guess: Event, truth: Event) -> float:
        return sum(g != t for g, t in zip(guess, truth, strict=True))

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        length = case.length(element)
        return Case(
            {"log_probs": case.arguments["log_probs"][element][:length]}, (), length, case.s
        )

    def test_dtypes_are_promoted(self):
        """There is one argument only: its dtype is kept."""
        for dtype in (F32, F64):
            assert self.make(self.usual(5, dtype)).log_partition().dtype == dtype

    def cut_short(self, name: str, x: Tensor) -> Tensor:
        return x[..., 0]


class _Repeated(TestCTC):
    """Labels that need a blank between them, and one that never occurs."""

    def target_of(self, n: int, s: int) -> tuple[int, ...]:
        return tuple(1 + k // 2 % s for k in range((n + 1) // 2))


@pytest.mark.parametrize("tier", ["cpu", "reference"])
def test_repeated_labels(tier):
    family = _Repeated()
    for n in (3, 5, 7):
        family.check(family.case(seeded(n), (2,), n, 2), tier)
        assert len(family.events(n, 2)) == family.count(n, 2) > 0
    d = family.make(family.case(seeded(1), (3,), 7, 2))
    support = d.enumerate_support()
    assert len(support) == family.count(7, 2)
    assert_close(d.log_prob(support).logsumexp(0), torch.zeros(3, dtype=F64))


def batch(seed: int, dtype: Any = F64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-softmax outputs [7 30 12] and targets that fit them, with lengths."""
    g = seeded(seed)
    outputs = torch.randn(7, 30, 12, generator=g, dtype=F64).log_softmax(-1).to(dtype)
    targets = torch.randint(1, 4, (7, 9), generator=g)
    return (outputs, targets, torch.tensor([30, 19, 30, 25, 18, 22, 28]),
            torch.tensor([9, 9, 0, 4, 7, 1, 8]))  # fmt: skip


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
def test_the_loss_and_its_gradient_are_those_of_torch(dtype):
    outputs, targets, lengths, sizes = batch(1, dtype)
    ours, theirs = (outputs.clone().requires_grad_() for _ in range(2))
    loss = -CTC(ours, targets, lengths, sizes).log_partition()
    truth = ctc_loss(theirs.transpose(0, 1), targets, lengths, sizes, reduction="none")
    assert_close(loss, truth)
    # torch's gradient is right for the logits alone: it adds the softmax of its input.
    pairs = []
    for x, value in ((ours, loss), (theirs, truth)):
        (found,) = grad(value.sum(), x)
        pairs.append(found - x.detach().exp() * found.sum(-1, keepdim=True))
    assert_close(pairs[0], pairs[1], atol=1e-10 if dtype == F64 else 1e-4)


def test_a_blank_elsewhere_is_a_permutation():
    outputs, targets, lengths, sizes = batch(2)
    order = [*range(1, 12), 0]
    moved = CTC(outputs[..., order], targets - 1, lengths, sizes, blank=11)
    plain = CTC(outputs, targets, lengths, sizes)
    assert_close(moved.log_partition(), plain.log_partition())
    events = plain.mode
    assert torch.equal(
        moved.mode, torch.where(events > 0, events - 1, events.where(events < 0, 11))
    )


def test_a_target_that_does_not_fit_has_no_event():
    outputs = torch.zeros(3, 3, 4).requires_grad_()
    targets = torch.tensor([[1, 1, 2], [1, 2, 3], [1, 1, 1]])
    ctc = CTC(outputs, targets)
    log_z = ctc.log_partition()
    assert log_z.tolist() == [-torch.inf, 0.0, -torch.inf]
    (found,) = grad(log_z.exp().sum(), outputs)
    assert bool((found[[0, 2]] == 0).all())
    assert ctc.mode.tolist() == [[-1, -1, -1], [1, 2, 3], [-1, -1, -1]]


def test_targets_without_a_frame_have_probability_0():
    """There is nothing to write of an event, and yet it is none; without targets it is one."""
    d = CTC(torch.zeros(3, 2, 3), torch.tensor([[1], [1], [1]]), [0, 0, 2], [1, 0, 1])
    assert_close(d.log_prob(d.mode).exp(), torch.tensor([0.0, 1.0, 1 / 3]))
    assert d.parts(d.mode)["log_probs"].sum((1, 2)).tolist() == [0.0, 0.0, 2.0]
    assert d.support.check(d.mode).tolist() == [False, True, True]


def test_targets_that_make_no_sense_are_refused(unchecked):
    outputs = torch.zeros(2, 4, 3)
    for targets, message in (
        (torch.tensor([[1, 0], [1, 2]]), "the blank, 0, among"),
        (torch.tensor([[1, 3], [1, 2]]), r"0\.\.2"),
        (torch.tensor([1, 2]), r"\[2, u\]"),
        (torch.tensor([[1.0], [1.0]]), "integers"),
    ):
        with pytest.raises(ArgumentError, match=rf"^targets must .*{message}"):
            CTC(outputs, targets)
    with pytest.raises(ArgumentError, match=r"^target_lengths must be"):
        CTC(outputs, torch.tensor([[1], [1]]), target_lengths=[1, 2])
    with pytest.raises(ArgumentError, match=r"^blank must be in 0\.\.2"):
        CTC(outputs, torch.tensor([[1], [1]]), blank=3)
    good = CTC(outputs, torch.tensor([[1, 2], [1, 1]]))
    with pytest.raises(ArgumentError, match="labels of frames that spell the target"):
        good.log_prob(torch.tensor([[1, 1, 2, 2], [1, 1, 1, 1]]))
    with pytest.raises(ArgumentError, match="the same targets"):
        good.enumerate_support()


def test_targets_that_are_not_dense_are_refused(unchecked):
    outputs, targets, lengths, sizes = batch(3)
    for name, x in (("targets", targets), ("target_lengths", sizes)):
        good = {"targets": targets, "lengths": lengths, "target_lengths": sizes}
        for kind, (wrong, hint) in unusual(x).items():
            with pytest.raises(ArgumentError, match=rf"^{name} must be .* {kind} one.*{hint}"):
                CTC(outputs, **(good | {name: wrong}))
