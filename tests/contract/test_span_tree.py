"""`SpanTree` in the shared suite, and what only trees of spans can show."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inout.distributions.span_tree import SpanTree
from tests.contract.distribution_suite import F32, F64, Case, Event, Part, seeded
from tests.contract.tree_suite import TreeSuite, catalan, trees
from tests.support import assert_close

NAME = "log_potentials"


class TestSpanTree(TreeSuite):
    lengths = ((4, 1, 3), (3, 2, 4))

    def make(self, case: Case, tier: str | None = None) -> SpanTree:
        return SpanTree(**case.arguments, lengths=case.lengths, tier=tier)

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        x = torch.randn(*batch, n, n, s, generator=generator, dtype=F64).to(dtype)
        return Case({NAME: x}, batch, n, s)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        return dict(case.arguments)

    def events(self, n: int, s: int) -> list[Event]:
        return trees(0, n - 1, range(s), range(s)) if n else []

    def count(self, n: int, s: int) -> int:
        return catalan(n - 1) * s ** (2 * n - 1) if n else 0

    def parts_of(self, event: Event) -> list[Part]:
        return [(NAME, span) for span in event]

    def padding(self, case: Case) -> dict[str, Tensor]:
        mask = torch.ones(*case.batch, case.n, case.n, case.s, dtype=torch.bool)
        for element in case.elements():
            for i in range(case.length(element)):
                mask[element][i, i : case.length(element)] = False
        return {NAME: mask}

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        length = case.length(element)
        return Case({NAME: case.arguments[NAME][element][:length, :length]}, (), length, case.s)

    def test_dtypes_are_promoted(self):
        """There is one argument only: its dtype is kept."""
        for dtype in (F32, F64):
            assert self.make(self.usual(5, dtype)).log_partition().dtype == dtype

    def one_too_few(self, case: Case) -> dict[str, Tensor]:
        return {NAME: case.arguments[NAME][..., :-1, :]}


def test_labels_of_the_forest():
    names = {label.relation for label in SpanTree(torch.zeros(2, 3, 3, 2)).forest().labels}
    assert names == {NAME, "label", "beta", "goal"}


def test_one_span_must_be_there():
    """All trees have the spans of one word and the whole, whatever their potentials."""
    x = torch.randn(5, 5, 3, generator=seeded(1), dtype=F64)
    spans = SpanTree(x).marginals()[NAME].sum(-1)
    assert_close(spans.diagonal(), torch.ones(5, dtype=F64))
    assert_close(spans[0, 4], torch.ones((), dtype=F64))
    assert_close(spans.sum(), torch.tensor(9.0, dtype=F64))


def test_a_deep_chart_of_extreme_scores():
    """The scores of wide spans differ by far more than any float can hold."""
    x = 1e4 * torch.randn(40, 40, 2, generator=seeded(2), dtype=F64)
    x.requires_grad_()
    found = []
    for tier in ("cpu", "reference"):
        d = SpanTree(x, tier=tier)
        found.append([d.log_partition(), d.marginals()[NAME]])
    for ours, truth in zip(*found, strict=True):
        assert_close(ours, truth, atol=1e-8)
