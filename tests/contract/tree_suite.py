"""What the suites of distributions over binary trees share: all labelled trees, by recursion."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import ArgumentError, ForestError
from tests.contract.distribution_suite import F64, Case, DistributionSuite, Event, seeded
from tests.support import assert_close


def catalan(n: int) -> int:
    return comb(2 * n, n) // (n + 1)


def trees(i: int, j: int, inner: range, leaves: range) -> list[Event]:
    """All labelled trees over i..j as their spans (i, j, label) in preorder."""
    if i == j:
        return [((i, i, label),) for label in leaves]
    below = [
        left + right
        for k in range(i, j)
        for left, right in product(trees(i, k, inner, leaves), trees(k + 1, j, inner, leaves))
    ]
    return [((i, j, label), *rest) for label in inner for rest in below]


class TreeSuite(DistributionSuite):
    """A tree is its spans in preorder; the library writes their labels in a table [n n]."""

    sizes = (4, 2)
    blank = -1

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        table = torch.full((n, n), -1)
        for i, j, label in event:
            table[i, j] = label
        return table

    def loss(self, guess: Event, truth: Event) -> float:
        return len(set(truth) - set(guess))

    def test_number_of_events(self):
        for n in range(5):
            for s in (1, 2, 3):
                count = self.count(n, s)
                assert len(self.events(n, s)) == count
                case = self.case(seeded(), (), n, s)
                case = case.changed(lambda _, x: torch.zeros_like(x))
                log_count = torch.tensor(float(count), dtype=F64).log()
                assert_close(self.make(case).log_partition(), log_count)

    def one_too_few(self, case: Case) -> dict[str, Tensor]:
        """Arguments of a wrong shape, by name."""
        raise NotImplementedError

    def test_wrong_shapes_and_types_are_refused_by_name(self, unchecked):
        case = self.usual(111)
        for name, wrong in self.one_too_few(case).items():
            with pytest.raises(ArgumentError, match=r"must (be|have shape) \["):
                self.make(replace(case, arguments=case.arguments | {name: wrong}))
        for name, x in case.arguments.items():
            with pytest.raises(ArgumentError, match=rf"^{name} must be a float tensor"):
                self.make(replace(case, arguments=case.arguments | {name: x.long()}))

    def test_threads_do_not_change_the_numbers(self, any_threads):
        case = self.case(seeded(38), (8,), 14, 8).leaves()
        found = []
        for threads in (1, 2, 7):
            any_threads(threads)
            d = self.make(case)
            log_z = d.log_partition()
            first = grad(log_z.sum(), case.arguments.values(), create_graph=True)
            total = sum((x * x).sum() for x in first)
            second = grad(total, case.arguments.values())
            found.append([log_z, *first, *second, d.mode, *d.topk(3)])
        for others in found[1:]:
            for x, y in zip(found[0], others, strict=True):
                assert torch.equal(x, y)

    def test_elements_without_trees_beside_others(self):
        """Lengths below the shortest tree: log Z is -inf, and everything else is as if absent."""
        case = replace(self.usual(120), lengths=torch.tensor([[4, 0, 3], [0, 2, 4]])).leaves()
        self.check(case)
        self.check(case, "reference")
        d = self.make(case)
        dead = case.lengths == 0
        assert torch.equal(d.log_partition() == -torch.inf, dead)
        assert bool((d.mode[dead] == -1).all())
        assert bool((d.min_risk()[dead] == -1).all())
        assert bool((d.log_prob(d.mode)[dead] == -torch.inf).all())
        with pytest.raises(ForestError, match="no possible tree"):
            d.sample((2,), generator=seeded())

    def test_what_is_no_tree_is_refused(self):
        d = self.make(self.usual(121, batch=()))
        tree = d.mode
        extra, missing, shifted = tree.clone(), tree.clone(), tree.clone()
        row, column = (tree.triu() + (1 - torch.ones_like(tree).triu()) == -1).nonzero()[0]
        extra[row, column] = 0
        missing[0, 3] = -1
        shifted[1, 0] = 0
        for wrong in (extra, missing, shifted, torch.zeros_like(tree)):
            with pytest.raises(ArgumentError, match="binary tree"):
                d.log_prob(wrong)
            with pytest.raises(ArgumentError, match="binary tree"):
                d.parts(wrong)

    def test_enumerate_support_refuses_what_it_cannot_do(self):
        with pytest.raises(ArgumentError, match="one length"):
            self.make(self.ragged()).enumerate_support()
        with pytest.raises(ArgumentError, match="at most 1000000"):
            self.make(self.case(seeded(), (), 20, 2)).enumerate_support()

    def test_large_against_the_reference(self):
        """Sizes at which nothing can be enumerated, with masks, in both dtypes."""
        g = seeded(122)
        lengths = torch.tensor([11, 2, 7])
        case = replace(self.case(g, (3,), 11, 5), lengths=lengths)
        case = case.changed(
            lambda _, x: x.masked_fill(torch.rand(x.shape, generator=g) < 0.3, -torch.inf)
        ).leaves()
        inputs = list(case.arguments.values())
        u = [torch.randn(x.shape, generator=g, dtype=F64) for x in inputs]
        found = []
        for tier in ("cpu", "reference"):
            log_z = self.make(case, tier).log_partition()
            alive = torch.where(log_z == -torch.inf, 0.0, log_z)
            first = grad(alive.sum(), inputs, create_graph=True)
            second = grad(sum((x * y).sum() for x, y in zip(first, u, strict=True)), inputs)
            found.append([log_z, *first, *second])
        assert bool((found[0][0] > -torch.inf).any())
        for x, y in zip(*found, strict=True):
            assert_close(x, y)
        single = case.changed(lambda _, x: x.detach().float()).leaves()
        log_z = self.make(single).log_partition()
        assert_close(log_z, found[1][0])
        alive = torch.where(log_z == -torch.inf, 0.0, log_z)
        for x, y in zip(
            grad(alive.sum(), single.arguments.values()), found[1][1 : 1 + len(u)], strict=True
        ):
            assert_close(x, y)
