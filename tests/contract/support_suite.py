"""What is in the support of every dense distribution, against enumeration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from inout import ArgumentError, StructuredDistribution
from tests.contract.event_enumeration import Enumeration, seeded

Known = list[set[tuple[int, ...]]]


def enumerated(oracle: Enumeration) -> Known:
    """All events of each element, flat."""
    return [{tuple(e) for e in oracle.padded(x).flatten(1).tolist()} for x in oracle.events]


def corrupted(good: Tensor, d: StructuredDistribution) -> Iterator[Tensor]:
    """Events with some of their entries changed, or exchanged."""
    g = seeded(526)
    yield good
    yield good.flip(-1)
    for chance in (0.03, 0.5):
        hit = torch.rand(good.shape, generator=g) < chance
        for noise in (torch.randint(-2, int(good.max()) + 3, good.shape, generator=g), 2**63 - 1):
            yield torch.where(hit, noise, good)
        yield torch.where(hit, -(2**63), good)
    flat = good.flatten(-len(d.event_shape))
    for _ in range(3):  # two places exchanged: all the values are in range
        pair = torch.rand(flat.shape, generator=g).argsort(-1)[..., :2]
        yield flat.scatter(-1, pair, flat.gather(-1, pair.flip(-1))).reshape(good.shape)


class SupportSuite:
    """The checks; `make`, `usual`, `ragged` and `enumeration` are the family's."""

    one_in = 3  # see tests/seeds.py

    make: Any
    case: Any
    usual: Any
    ragged: Any
    enumeration: Any
    in_padding: Any
    sizes: tuple[int, int]

    def test_support_is_what_is_enumerated(self) -> None:
        for case in (self.usual(520), self.ragged(521), self.usual(522, batch=())):
            d, oracle = self.make(case), self.enumeration(case)
            events = oracle.padded(oracle.events[-1])
            own = d if not case.batch else d[(-1,) * len(case.batch)]
            assert bool(own.support.check(events).all())
            everywhere = events.reshape(-1, *(1,) * len(case.batch), *d.event_shape)
            everywhere = everywhere.expand(-1, *case.batch, *d.event_shape)
            assert torch.equal(
                d.support.check(everywhere), self.members(enumerated(oracle), d, everywhere)
            )
        assert own.support.is_discrete
        assert own.support.event_dim == len(d.event_shape)
        assert d.event_name in repr(d.support)

    def members(self, known: Known, d: StructuredDistribution, events: Tensor) -> Tensor:
        """Which events [m *b ...] are among those enumerated for their element."""
        padding = self.in_padding(d).reshape(len(known), -1)
        flat = events.reshape(len(events), len(known), -1).masked_fill(padding, -1)
        columns = [[tuple(e) in own for e in flat[:, b].tolist()] for b, own in enumerate(known)]
        return torch.tensor(columns).T.reshape(events.shape[: 1 + len(d.batch_shape)])

    def test_corrupted_events_are_outside_unless_they_are_events(self) -> None:
        n = self.sizes[0]
        empty = replace(self.usual(524), lengths=torch.tensor([[n, 0, 1], [n - 1, n, 0]]))
        for case in (self.usual(523), empty):
            d, known = self.make(case), enumerated(self.enumeration(case))
            whole = self.make(replace(case, lengths=None))
            for events in corrupted(whole.sample((150,), generator=seeded(525)), d):
                assert torch.equal(d.support.check(events), self.members(known, d, events))

    def test_padding_of_an_event_may_be_anything_in_the_support(self) -> None:
        case = self.ragged(526)
        d, oracle = self.make(case), self.enumeration(case)
        padding = self.in_padding(d)
        firsts = [oracle.padded(e)[:1] if e else oracle.padded([])[:0] for e in oracle.events]
        blank = torch.full((1, *d.event_shape), -1)
        event = torch.cat([e if len(e) else blank for e in firsts]).reshape(padding.shape)
        some = torch.tensor([len(e) > 0 for e in oracle.events]).reshape(case.batch)
        for garbage in (-1, 0, 1, 99, -(2**63), 2**63 - 1):
            assert torch.equal(d.support.check(event.masked_fill(padding, garbage)), some)

    def test_support_has_events_of_probability_zero(self) -> None:
        case = self.usual(527).changed(lambda _, x: torch.full_like(x, -torch.inf))
        d = self.make(case)
        assert bool(d.support.check(d.enumerate_support()).all())

    def test_support_of_what_is_no_event(self, unchecked: None) -> None:
        d = self.make(self.usual(528))
        event = d.mode
        for wrong in (event.double(), event > 0, event.to(torch.complex64)):
            assert not bool(d.support.check(wrong).any())
        for small in (torch.int8, torch.uint8, torch.int32):
            held = event.to(small)  # -1 in uint8 is 255, which is no label
            found, log_probs = d.support.check(held), d.log_prob(event)
            assert found.shape == log_probs.shape
            assert torch.equal(found, d.support.check(held.long()))
        one = event[0, 0]
        assert d.support.check(one).shape == (2, 3)
        assert d.support.check(event[None, None]).shape == (1, 1, 2, 3)
        for wrong in (event[..., :-1], event[:, :2]):
            with pytest.raises(ArgumentError, match=r"^value must be integers"):
                d.support.check(wrong)
        with pytest.raises(ArgumentError, match=r"^value must be a tensor"):
            d.support.check(event.tolist())
