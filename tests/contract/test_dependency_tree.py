"""`DependencyTree` in the shared suite, and what only dependency trees can show."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import ArgumentError, DependencyTree, ForestError, StructuredDistribution
from tests.contract.distribution_suite import F64, Case, DistributionSuite, Event, Part, seeded
from tests.support import assert_close


def is_tree(heads: tuple[int, ...]) -> bool:
    """Whether every word reaches the root by its heads."""
    for word in range(1, len(heads) + 1):
        for _ in heads:
            word = heads[word - 1] if word else 0
        if word:
            return False
    return True


def crosses(heads: tuple[int, ...]) -> bool:
    arcs = [(min(h, d), max(h, d)) for d, h in enumerate(heads, 1)]
    return any(a < c < b < e for a, b in arcs for c, e in arcs)


def trees(n: int, projective: bool, single_root: bool) -> list[tuple[int, ...]]:
    """The heads of all trees, by going through all heads."""
    return [
        heads
        for heads in product(range(n + 1), repeat=n)
        if is_tree(heads)
        and not (projective and crosses(heads))
        and not (single_root and heads.count(0) != 1)
        and n > 0
    ]


class DependencySuite(DistributionSuite):
    """An event is the pairs (head, label) of the words."""

    blank = -1
    sizes, tiny = (4, 2), (3, 1)
    lengths = ((4, 1, 3), (3, 2, 4))
    labelled, single_root, projective, siblings = True, True, True, False
    counts = (0, 1, 2, 7, 30, 143)

    def make(self, case: Case, tier: str | None = None) -> DependencyTree:
        return DependencyTree(
            **case.arguments,
            lengths=case.lengths,
            projective=self.projective,
            single_root=self.single_root,
            labelled=self.labelled,
            tier=tier,
        )

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        labels = (s,) if self.labelled else ()

        def drawn(*shape: int) -> Tensor:
            return torch.randn(*batch, *shape, generator=generator, dtype=F64).to(dtype)

        arguments = {"arcs": drawn(n, n, *labels), "root": drawn(n, *labels)}
        if self.siblings:
            arguments["siblings"] = drawn(n, n, n)
        return Case(arguments, batch, n, s if self.labelled else 1)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        return dict(case.arguments)

    def events(self, n: int, s: int) -> list[Event]:
        labels = range(s) if self.labelled else range(1)
        return [
            tuple(zip(heads, chosen, strict=True))
            for heads in trees(n, self.projective, self.single_root)
            for chosen in product(labels, repeat=n)
        ]

    def count(self, n: int, s: int) -> int:
        return self.counts[n] * (s**n if self.labelled else 1)

    def parts_of(self, event: Event) -> list[Part]:
        parts: list[Part] = []
        heads = [head for head, _ in event]
        for d, (h, label) in enumerate(event, 1):
            last = (label,) if self.labelled else ()
            parts.append(("arcs", (h - 1, d - 1, *last)) if h else ("root", (d - 1, *last)))
            inner = [k for k in range(min(h, d) + 1, max(h, d)) if heads[k - 1] == h]
            if self.siblings and inner and h > 0:
                nearest = min(inner, key=lambda k: abs(k - d))
                parts.append(("siblings", (h - 1, d - 1, nearest - 1)))
        return parts

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        table = torch.full((n, 2), -1)
        for d, pair in enumerate(event):
            table[d] = torch.tensor(pair)
        return table if self.labelled else table[:, 0]

    def in_padding(self, d: StructuredDistribution) -> Tensor:
        beyond = torch.arange(d.event_shape[0]) >= d.lengths[..., None]
        return beyond.reshape(*beyond.shape, *[1] * self.labelled).expand(
            d.batch_shape + d.event_shape
        )

    def _corner(self, d: StructuredDistribution, length: int) -> tuple[slice, ...]:
        return (slice(length), slice(2)) if self.labelled else (slice(length),)

    def used_places(self, name: str, x: Tensor) -> tuple[int, int]:
        if name == "root":
            return 0, x.numel() - 1
        n, s = x.shape[-2], 1
        if name == "siblings":
            place = torch.tensor(0 * n * n + 2 * n + 1), torch.tensor(1 * n * n + 3 * n + 2)
            return int(place[0]), int(place[1])
        if self.labelled:
            n, s = x.shape[-2:]
        return s, x.numel() - 1 - s

    def padding(self, case: Case) -> dict[str, Tensor]:
        masks = {}
        for name, x in case.arguments.items():
            mask = torch.ones(x.shape, dtype=torch.bool)
            for element in case.elements():
                real = range(case.length(element))
                for i, j in product(real, repeat=2):
                    if name == "root":
                        mask[element][i] = False
                    elif name == "arcs" and i != j:
                        mask[element][i, j] = False
                    elif name == "siblings":
                        mask[element][i, j, min(i, j) + 1 : max(i, j)] = False
            masks[name] = mask
        return masks

    def loss(self, guess: Event, truth: Event) -> float:
        return sum(x != y for x, y in zip(guess, truth, strict=True))

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        length = case.length(element)
        own = {
            name: x[element][(slice(length),) * (3 if name == "siblings" else 1 + (name == "arcs"))]
            for name, x in case.arguments.items()
        }
        return Case(own, (), length, case.s)

    def test_number_of_events(self):
        for n in range(5):
            for s in (1, 2, 3):
                count = self.count(n, s)
                assert len(self.events(n, s)) == count
                case = self.case(seeded(), (), n, s)
                case = case.changed(lambda _, x: torch.zeros_like(x))
                log_count = torch.tensor(float(count), dtype=F64).log()
                assert_close(self.make(case).log_partition(), log_count)

    def test_threads_do_not_change_the_numbers(self, any_threads):
        case = self.case(seeded(38), (8,), 14, 4).leaves()
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
        wrong = [(2, 1, 0, 3), (0, 2, 1, 1), (0, 1, -1, 1), (0, 1, 2, 5), (3, 4, 1, 2)]
        wrong += [(0, 1, 0, 3)] if self.single_root else []
        wrong += [(3, 4, 0, 3), (0, 4, 1, 1)] if self.projective else []
        for heads in wrong:
            event = torch.tensor(heads)
            event = torch.stack([event, torch.zeros(4).long()], -1) if self.labelled else event
            with pytest.raises(ArgumentError, match=r"heads must|heads must form"):
                d.log_prob(event)
            with pytest.raises(ArgumentError, match="heads must"):
                d.parts(event)
        if self.labelled:
            event = d.mode.clone()
            event[2, 1] = -1
            with pytest.raises(ArgumentError, match="heads must"):
                d.log_prob(event)

    def test_enumerate_support_refuses_what_it_cannot_do(self):
        with pytest.raises(ArgumentError, match="one length"):
            self.make(self.ragged()).enumerate_support()
        with pytest.raises(ArgumentError, match="at most 1000000"):
            self.make(self.case(seeded(), (), 20, 2)).enumerate_support()

    def test_large_against_the_reference(self):
        """Sizes at which nothing can be enumerated, with masks, in both dtypes, at any scale."""
        for scale in (1.0, 20.0, 1000.0):
            g = seeded(122)
            lengths = torch.tensor([13, 2, 9])
            case = replace(self.case(g, (3,), 13, 3), lengths=lengths)
            case = case.changed(
                lambda _, x, g=g, scale=scale: (scale * x).masked_fill(
                    torch.rand(x.shape, generator=g) < 0.1, -torch.inf
                )
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
                assert_close(x, y, atol=1e-9)


class TestLabelled(DependencySuite):
    tiny = (2, 2)


@pytest.mark.exhaustive
class TestUnlabelled(DependencySuite):
    variant = True  # see tests/seeds.py
    labelled = False


@pytest.mark.exhaustive
class TestSeveralRoots(DependencySuite):
    variant = True  # see tests/seeds.py
    labelled, single_root = False, False
    counts = (0, 1, 3, 12, 55, 273)


@pytest.mark.exhaustive
class TestSiblings(DependencySuite):
    variant = True  # see tests/seeds.py
    labelled, siblings = False, True


class TestSiblingsOfSeveralRoots(DependencySuite):
    one_in = 2
    labelled, single_root, siblings = False, False, True
    counts = (0, 1, 3, 12, 55, 273)


class TestCrossing(DependencySuite):
    """Non-projective trees with one root word."""

    labelled, projective, has_forest = False, False, False
    counts = (0, 1, 2, 9, 64, 625)


@pytest.mark.exhaustive
class TestCrossingOfSeveralRoots(TestCrossing):
    variant = True  # see tests/seeds.py
    single_root = False
    counts = (0, 1, 3, 16, 125, 1296)


@pytest.mark.exhaustive
class TestCrossingLabelled(TestCrossing):
    variant = True  # see tests/seeds.py
    labelled = True


@pytest.mark.parametrize("suite", [TestCrossingOfSeveralRoots(), TestCrossingLabelled()])
def test_crossing_trees_of_other_kinds(suite):
    for case in (suite.ragged(130), suite.ragged(131, torch.float32)):
        suite.check(case)
    case = suite.ragged(132)
    d, f = suite.make(case), {"arcs": case.arguments["arcs"] * 2}
    ways = [d.moments(f, 3, method=method).values for method in ("polynomial", "taylor")]
    assert_close(ways[0], ways[1], rtol=1e-8, atol=1e-8)
    suite.check_distinct(suite.ragged(133), 5)
    suite.test_distinct_samples_have_the_frequencies_of_sequential_sampling(2)


def test_a_circle_that_outweighs_all_ways_to_the_root():
    """Where torch.slogdet has no digit left, marginals are exact."""
    arcs = torch.full((2, 2), 40.0, dtype=F64).requires_grad_()
    root = torch.tensor([-40.0, -41.0], dtype=F64, requires_grad=True)
    d = DependencyTree(arcs, root, projective=False, single_root=False)
    chances = torch.tensor([0.0, -1.0], dtype=F64).softmax(0)
    assert_close(d.marginals()["root"], chances, rtol=1e-14, atol=0)
    assert_close(d.log_partition(), 40 - 40 + torch.tensor([0.0, -1.0], dtype=F64).logsumexp(0))


@pytest.mark.parametrize("tier", ["cpu", "reference"])
@pytest.mark.parametrize("projective", [True, False])
def test_no_nan_from_the_padding_of_an_element_without_words(projective, tier):
    g, found = seeded(), []
    arcs, root = torch.randn(2, 3, 3, generator=g), torch.randn(2, 3, generator=g)
    for padding in (0.0, torch.nan):
        arcs[0], root[0] = padding, padding
        inputs = [arcs.clone().requires_grad_(), root.clone().requires_grad_()]
        log_z = DependencyTree(*inputs, [0, 3], projective, tier=tier).log_partition()
        results = [log_z]
        for _ in range(3):  # third derivatives are those of the reference
            total = sum((x[1] ** 2).sum() for x in results[-len(inputs) :])
            results += grad(total, inputs, create_graph=True)
        found.append(results)
    assert found[0][0][0] == -torch.inf
    for x, y in zip(*found, strict=True):
        assert_close(x, y)
        assert bool((x[0] == 0).all() or x is found[0][0])
