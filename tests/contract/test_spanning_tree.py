"""`SpanningTree` in the shared suite, and what only spanning trees can show."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from inout import ArgumentError, SpanningTree
from tests.contract.distribution_suite import F32, F64, Case, DistributionSuite, Event, Part, seeded
from tests.support import assert_close


def spanning_trees(n: int) -> list[Event]:
    """All sets of n - 1 pairs that connect n nodes, by trying every set."""
    pairs = list(combinations(range(n), 2))
    return [s for s in combinations(pairs, n - 1) if n and _connected(s, n)] if n else []


def _connected(pairs: Event, n: int) -> bool:
    group = list(range(n))
    for i, j in pairs:
        group = [group[i] if g == group[j] else g for g in group]
    return len(set(group)) == 1


class TestSpanningTree(DistributionSuite):
    lengths = ((4, 1, 3), (3, 2, 4))
    tiny = (4, 1)
    has_forest = False

    def make(self, case: Case, tier: str | None = None) -> SpanningTree:
        return SpanningTree(**case.arguments, lengths=case.lengths, tier=tier)

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        x = torch.randn(*batch, n, n, generator=generator, dtype=F64).to(dtype)
        return Case({"edges": x}, batch, n, s)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        return dict(case.arguments)

    def events(self, n: int, s: int) -> list[Event]:
        return spanning_trees(n)

    def count(self, n: int, s: int) -> int:
        return n ** (n - 2) if n > 1 else n

    def parts_of(self, event: Event) -> list[Part]:
        return [("edges", pair) for pair in event]

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        nodes = 1 + len(event)
        tree = torch.full((n, n), -1)
        tree[:nodes, :nodes] = 0
        for i, j in event:
            tree[i, j] = 1
        return tree

    def padding(self, case: Case) -> dict[str, Tensor]:
        mask = torch.ones(*case.batch, case.n, case.n, dtype=torch.bool)
        for element in case.elements():
            for j in range(case.length(element)):
                mask[element][:j, j] = False
        return {"edges": mask}

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        length = case.length(element)
        return Case({"edges": case.arguments["edges"][element][:length, :length]}, (), length, 1)

    def loss(self, guess: Event, truth: Event) -> float:
        return float(len(set(truth) - set(guess)))

    def used_places(self, name: str, x: Tensor) -> tuple[int, int]:
        return 1, x.numel() - x.shape[-1] - 1

    def test_wrong_shapes_and_types_are_refused_by_name(self, unchecked):
        x = self.usual(111).arguments["edges"]
        for wrong in (x[..., :-1], x[0, 0, 0]):
            with pytest.raises(ArgumentError, match=r"^edges must be \["):
                SpanningTree(wrong)
        with pytest.raises(ArgumentError, match=r"^edges must be a float tensor"):
            SpanningTree(x.long())

    def test_number_of_events(self):
        for n in range(6):
            assert len(self.events(n, 1)) == self.count(n, 1)
            count = torch.tensor(float(self.count(n, 1)), dtype=F64)
            assert_close(SpanningTree(torch.zeros(n, n, dtype=F64)).log_partition(), count.log())

    def test_dtypes_are_promoted(self):
        """There is one argument only: its dtype is kept."""
        for dtype in (F32, F64):
            assert self.make(self.usual(5, dtype)).log_partition().dtype == dtype


def test_events_that_are_no_trees():
    d = SpanningTree(torch.zeros(4, 4))
    cycle = torch.zeros(4, 4, dtype=torch.long)
    cycle[0, 1] = cycle[1, 2] = cycle[0, 2] = 1
    backwards = d.mode.mT.contiguous()
    for wrong in (cycle, backwards, d.mode + torch.eye(4, dtype=torch.long)):
        with pytest.raises(ArgumentError, match="spanning tree"):
            d.log_prob(wrong)


def test_symmetric_and_triangular_scores_are_the_same():
    x = torch.randn(2, 5, 5, generator=seeded(1), dtype=F64)
    upper = x.triu(1)
    assert torch.equal(
        SpanningTree(upper + upper.mT).log_partition(), SpanningTree(x).log_partition()
    )


def test_effective_resistance():
    """An edge of a circle of n resistors of 1 Ω is in a tree with probability 1 - 1/n."""
    n = 30
    edges = torch.full((n, n), -torch.inf, dtype=F64)
    edges[torch.arange(n - 1), torch.arange(1, n)] = 0.0
    edges[0, n - 1] = 0.0
    d = SpanningTree(edges)
    assert_close(d.log_partition(), torch.tensor(float(n), dtype=F64).log())
    assert_close(d.marginals()["edges"][edges == 0], torch.full((n,), 1 - 1 / n, dtype=F64))
