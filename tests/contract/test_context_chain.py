"""`ContextChain` in the shared suite, and what only chains of contexts can show."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence

from inout import ArgumentError
from inout.contexts import ContextChain
from tests.contract.distribution_suite import F32, F64, Case, DistributionSuite, Event, Part, seeded
from tests.support import assert_close

NAME = "log_potentials"
CONTEXTS = 3


def following(position: int, context: int, label: int) -> int:
    """The context after a label: the same for all elements, but irregular."""
    return (context + 2 * label + position + context * label) % CONTEXTS


def successors(n: int, s: int) -> Tensor:
    """The table [n c s] of `following`, with nonsense for the last position."""
    table = torch.full((n, CONTEXTS, s), -7)
    for t, c, y in product(range(n - 1), range(CONTEXTS), range(s)):
        table[t, c, y] = following(t, c, y)
    return table


class TestContextChain(DistributionSuite):
    def make(self, case: Case, tier: str | None = None) -> ContextChain:
        table = successors(case.n, case.s)
        return ContextChain(**case.arguments, successors=table, lengths=case.lengths, tier=tier)

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        x = torch.randn(*batch, n, CONTEXTS, s, generator=generator, dtype=F64).to(dtype)
        return Case({NAME: x}, batch, n, s)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        return dict(case.arguments)

    def events(self, n: int, s: int) -> list[Event]:
        return list(product(range(s), repeat=n))

    def count(self, n: int, s: int) -> int:
        return s**n

    def parts_of(self, event: Event) -> list[Part]:
        parts: list[Part] = []
        context = 0
        for t, label in enumerate(event):
            parts.append((NAME, (t, context, label)))
            context = following(t, context, label)
        return parts

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        return torch.tensor([*event, *[-1] * (n - len(event))], dtype=torch.long)

    def padding(self, case: Case) -> dict[str, Tensor]:
        mask = torch.ones(case.arguments[NAME].shape, dtype=torch.bool)
        for element in case.elements():
            for event in self.events(case.length(element), case.s):
                for _, place in self.parts_of(event):
                    mask[element][place] = False
        return {NAME: mask}

    def loss(self, guess: Event, truth: Event) -> float:
        return sum(g != t for g, t in zip(guess, truth, strict=True))

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        length = case.length(element)
        return Case({NAME: case.arguments[NAME][element][:length]}, (), length, case.s)

    def test_dtypes_are_promoted(self):
        """There is one argument only: its dtype is kept."""
        for dtype in (F32, F64):
            assert self.make(self.usual(5, dtype)).log_partition().dtype == dtype


def irregular(n: int) -> list[int]:
    """An order of n positions: from the back, every other one first."""
    return [*range(n - 1, -1, -2), *range(n - 2, -1, -2)]


class TestReorderedChain(TestContextChain):
    """The same with positions in another order, of each element's own length."""

    variant = True  # see tests/seeds.py
    one_in = 2

    test_wrong_lengths_are_refused = None  # type: ignore[assignment]  # they have no order
    test_lengths_that_are_not_dense_are_refused = None  # type: ignore[assignment]  # nor have they

    def make(self, case: Case, tier: str | None = None) -> ContextChain:
        lengths = torch.as_tensor(case.n if case.lengths is None else case.lengths)
        orders = [
            [*irregular(length), *[99] * (case.n - length)]
            for length in lengths.long().reshape(-1).tolist()
        ]
        order = torch.tensor(orders, dtype=torch.long).reshape(*lengths.shape, case.n)
        return ContextChain(
            **case.arguments,
            successors=successors(case.n, case.s),
            lengths=case.lengths,
            ordering=order,
            tier=tier,
        )

    def parts_of(self, event: Event) -> list[Part]:
        return super().parts_of(tuple(event[i] for i in irregular(len(event))))


def test_divergences_need_the_same_ordering():
    x, table = torch.zeros(3, 2, 2), torch.zeros(3, 2, 2, dtype=torch.long)
    chains = [ContextChain(x, table, ordering=o) for o in (None, torch.arange(3))]
    assert kl_divergence(*chains) == 0
    with pytest.raises(ArgumentError, match="same ordering"):
        kl_divergence(chains[0], ContextChain(x, table, ordering=torch.tensor([2, 1, 0])))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("ordering", [[0, 1, 1], [1, 2, 3], [0, 1]])
def test_an_ordering_has_each_position_once(ordering: list[int]):
    x, table = torch.zeros(3, 2, 2), torch.zeros(3, 2, 2, dtype=torch.long)
    with pytest.raises(ArgumentError, match="ordering must"):
        ContextChain(x, table, ordering=torch.tensor(ordering))


def test_contexts_of_reordered_positions():
    """Masses and contexts of events are those of positions."""
    x = torch.randn(4, 3, 2, generator=seeded(3), dtype=F64)
    table = torch.randint(3, (4, 3, 2), generator=seeded(4))
    order = [2, 0, 3, 1]
    d = ContextChain(x, table, ordering=torch.tensor(order))
    mass = torch.zeros(4, 3, dtype=F64)
    marginals = torch.zeros(4, 2, dtype=F64)
    for event in d.enumerate_support():
        context, numbers = 0, [0] * 4
        for step, i in enumerate(order):
            numbers[i] = context
            context = int(table[step, context, event[i]])
        assert d.contexts_of(event).tolist() == numbers
        for i in range(4):
            mass[i, numbers[i]] += d.log_prob(event).exp()
            marginals[i, event[i]] += d.log_prob(event).exp()
    assert_close(d.context_mass(), mass)
    assert_close(d.label_marginals(), marginals)


def test_successors_of_each_element_are_its_own():
    x = torch.randn(2, 3, 2, 2, generator=seeded(1), dtype=F64)
    table = torch.randint(2, (2, 3, 2, 2), generator=seeded(2))
    both = ContextChain(x, table)
    for element in range(2):
        alone = ContextChain(x[element], table[element])
        assert_close(both.log_partition()[element], alone.log_partition())
        assert_close(both.marginals()[NAME][element], alone.marginals()[NAME])
        assert_close(both.topk(8)[0][:, element], alone.topk(8)[0])
    events = both.enumerate_support()
    assert torch.equal(both.contexts_of(events)[..., 0], torch.zeros_like(events[..., 0]))
    first = table[:, 0, 0]
    chosen = torch.stack([first[b][events[:, b, 0]] for b in range(2)], 1)
    assert torch.equal(both.contexts_of(events)[..., 1], chosen)


def test_masses_and_lengths_of_contexts():
    x = torch.randn(2, 5, 3, 2, generator=seeded(3), dtype=F64)
    table = torch.randint(3, (5, 3, 2), generator=seeded(4))
    d = ContextChain(x, table, torch.tensor([5, 2]))
    mass = d.context_mass()
    assert_close(mass.sum(-1), d._real.double())
    assert_close(d.label_marginals().sum(-1), d._real.double())
    support = ContextChain(x[0], table).enumerate_support()
    alone = ContextChain(x[0], table)
    p = alone.log_prob(support).exp()
    used = torch.nn.functional.one_hot(alone.contexts_of(support), 3).double()
    assert_close(mass[0], torch.einsum("m,mnc->nc", p, used))
    sizes = torch.rand(5, 3, generator=seeded(5), dtype=F64)
    expected = (mass * sizes).sum((-1, -2)) / torch.tensor([5, 2])
    assert_close(d.mean_context_length(sizes), expected)
    with pytest.raises(ArgumentError, match="sizes must be"):
        d.mean_context_length(torch.zeros(4, 4, 4))


def test_labels_of_the_forest():
    chain = ContextChain(torch.zeros(2, 3, 2, 2), torch.zeros(3, 2, 2, dtype=torch.long))
    names = {label.relation for label in chain.forest().labels}
    assert names == {NAME, "alpha", "goal"}


def test_divergences_need_the_same_successors():
    x, table = torch.zeros(3, 2, 2), torch.zeros(3, 2, 2, dtype=torch.long)
    other = table.clone()
    other[1, 0, 1] = 1
    with pytest.raises(ArgumentError, match="same successors"):
        kl_divergence(ContextChain(x, table), ContextChain(x, other))
    table[0, 1] = 1  # what is never reached does not matter
    assert kl_divergence(ContextChain(x, table), ContextChain(x, 0 * table)) == 0


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("x", "table", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(3, 2).long(), r"log_potentials must be \[\*b n c s\]"),
        (torch.zeros(3, 0, 2), torch.zeros(3, 0, 2).long(), "at least one context"),
        (torch.zeros(3, 2, 2), torch.zeros(3, 2, 3).long(), r"successors must be \[3, 2, 2\]"),
        (torch.zeros(3, 2, 2), torch.zeros(3, 2, 2), r"successors must be \[3, 2, 2\]"),
        (torch.zeros(3, 2, 2), torch.full((3, 2, 2), 2), r"successors must be in 0\.\.1"),
        (torch.zeros(3, 2, 2), torch.full((3, 2, 2), -1), r"successors must be in 0\.\.1"),
    ],
)
def test_bad_arguments_are_refused(x: Tensor, table: Tensor, message: str):
    with pytest.raises(ArgumentError, match=message):
        ContextChain(x, table)


def test_successors_are_not_shared_with_the_caller():
    x = torch.randn(3, 2, 2, generator=seeded(6), dtype=F64)
    table = torch.zeros(3, 2, 2, dtype=torch.long)
    d = ContextChain(x, table)
    expected = d.log_prob(d.enumerate_support())
    table.fill_(1)
    assert torch.equal(d.log_prob(d.enumerate_support()), expected)
