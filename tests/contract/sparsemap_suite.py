"""What SparseMAP must do: compared with quadratic programs over all events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck

from inout import ArgumentError, PrecisionError
from tests.contract.event_enumeration import F32, F64, Case, Enumeration, random_like, seeded
from tests.oracle.projection import duality_gap, nearest_in_hull
from tests.support import assert_close


class SparsemapSuite:
    """The checks; `make`, `case`, `usual`, `ragged` and `enumeration` are the family's."""

    one_in = 3  # see tests/seeds.py

    make: Any
    case: Any
    usual: Any
    ragged: Any
    enumeration: Any
    padding: Any

    def check_sparsemap(self, case: Case, *names: str) -> None:
        """Weights, events and marginals of all elements."""
        d, oracle = self.make(case), self.enumeration(case)
        found = d.sparsemap(*names)
        m, b = len(found.events), len(oracle.elements)
        assert found.events.shape == (m, *d.batch_shape, *d.event_shape)
        assert found.weights.shape == (m, *d.batch_shape)
        dtype = found.weights.dtype
        assert dtype == next(iter(d.potentials.values())).dtype
        for name, own in found.marginals.items():
            assert own.shape == d.batch_shape + d._part_shapes[name]
        weights = found.weights.detach().double().reshape(m, b)
        marginals = oracle.flat({n: x.detach().double() for n, x in found.marginals.items()})
        for element in range(b):
            used = weights[:, element] > 0
            events = found.events.reshape(m, b, d.event_shape.numel())[:, element]
            chosen = self._numbers(oracle, element, events[used])
            self._check_element(oracle, element, names, chosen, weights[used, element], dtype)
            assert bool((weights[:, element].diff() <= 0).all())
            mean = weights[used, element] @ oracle.counts()[element][chosen]
            assert_close(marginals[element].to(dtype), mean)

    def _numbers(self, oracle: Enumeration, element: int, events: Tensor) -> list[int]:
        all_events = oracle.padded(oracle.events[element]).flatten(1)
        places = {tuple(e): i for i, e in enumerate(all_events.tolist())}
        return [places[tuple(e)] for e in events.tolist()]

    def _check_element(
        self,
        oracle: Enumeration,
        element: int,
        names: tuple[str, ...],
        chosen: list[int],
        weights: Tensor,
        dtype: torch.dtype,
    ) -> None:
        scores = oracle.scores()[element].detach()
        alive = scores > -torch.inf
        if not bool(alive.any()):
            assert not chosen
            return
        assert len(set(chosen)) == len(chosen)
        assert bool(alive[chosen].all()), "an impossible event"
        assert_close(weights.sum().to(dtype), 1.0)
        regularised = oracle.flat(
            {n: torch.ones_like(p) for n, p in oracle.potentials.items() if n in names or not names}
        )[element].bool()
        points = oracle.counts()[element][:, regularised]
        whole = torch.zeros(len(scores), dtype=F64)
        whole[chosen] = weights / weights.sum()
        scale = max(1.0, float(scores[alive].abs().max()))
        own, gains = points[alive].numpy(), scores[alive].numpy()
        tolerance = (1e-5 if dtype == F32 else 1e-10) * scale
        assert duality_gap(own, gains, whole[alive].numpy()) < tolerance
        if names:
            return
        theta = oracle.flat(oracle.potentials)[element, regularised].detach()
        theta = theta.where((points[alive] > 0).any(0), 0.0).numpy()
        nearest = nearest_in_hull(own, theta)
        assert np.abs(whole[alive].numpy() @ own - nearest).max(initial=0.0) < tolerance

    def test_sparsemap(self) -> None:
        self.check_sparsemap(self.ragged(701))
        self.check_sparsemap(self.usual(702, F32, batch=()))
        for n in (0, 1):
            self.check_sparsemap(self.case(seeded(), (2,), n, 2))
        case = self.usual(703, batch=())
        for name in self.make(case).potentials:
            self.check_sparsemap(case, name)

    def test_sparsemap_of_impossible_and_of_huge_potentials(self) -> None:
        g, small = seeded(703), self.case(seeded(704), (3,), 3, 2)
        self.check_sparsemap(small.changed(lambda _, x: 1e4 * x))
        sparse = small.changed(
            lambda _, x: x.masked_fill(torch.rand(x.shape, generator=g) < 0.3, -torch.inf)
        )
        self.check_sparsemap(sparse)
        # Almost in the middle: as many events as there are dimensions.
        self.check_sparsemap(small.changed(lambda _, x: 0.01 * x))
        none = self.ragged(707).changed(lambda _, x: torch.full_like(x, -torch.inf)).leaves()
        found = self.make(none).sparsemap()
        alive = self.make(none).log_partition() > -torch.inf
        assert_close(found.weights.sum(0), alive.double())
        for own in found.marginals.values():
            assert bool((own == 0).all())
        total = sum(x.sum() for x in found.marginals.values()) + found.weights.sum()
        if total.requires_grad:
            for x in grad(total, list(none.arguments.values()), materialize_grads=True):
                assert bool((x == 0).all())

    def test_derivatives_of_sparsemap(self) -> None:
        case = self.case(seeded(708), (2,), 3, 2)
        case = replace(case, lengths=torch.tensor([3, 2])).leaves()
        probe = random_like(self.enumeration(case).potentials, seeded(709))

        def mean(*arguments: Tensor) -> Tensor:
            given = dict(zip(case.arguments, arguments, strict=True))
            d = self.make(replace(case, arguments=given))
            return torch.stack([(x * probe[n]).sum() for n, x in d.sparsemap().marginals.items()])

        assert gradcheck(mean, tuple(case.arguments.values()), fast_mode=True)
        with torch.no_grad():
            plain = self.make(case).sparsemap()
        assert not plain.weights.requires_grad
        assert torch.equal(plain.weights, self.make(case).sparsemap().weights)

    def test_sparsemap_ignores_the_padding(self) -> None:
        case = self.ragged(710)
        masks = self.padding(case)
        results = []
        for garbage in (0.0, torch.nan, torch.inf):
            spoilt = case.changed(lambda n, x, g=garbage: x.masked_fill(masks[n], g)).leaves()
            found = self.make(spoilt).sparsemap()
            total = sum((x * x).sum() for x in found.marginals.values())
            grads = grad(total, list(spoilt.arguments.values()), materialize_grads=True)
            for name, x in zip(spoilt.arguments, grads, strict=True):
                assert bool((x[masks[name]] == 0).all())
            results.append([found.events, found.weights, *found.marginals.values(), *grads])
        for other in results[1:]:
            for x, y in zip(results[0], other, strict=True):
                assert torch.equal(x, y)

    def test_sparsemap_says_when_it_cannot(self) -> None:
        d = self.make(self.usual(711))
        with pytest.raises(
            PrecisionError, match=r"duality gap of .* raise max_iterations or precision"
        ):
            d.sparsemap(max_iterations=1)
        with pytest.raises(ArgumentError, match="no_such_part"):
            d.sparsemap("no_such_part")
        for wrong in ({"precision": 0.0}, {"max_iterations": 0}):
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                d.sparsemap(**wrong)
        name = next(iter(d.potentials))
        assert torch.equal(d.sparsemap(name, name).weights, d.sparsemap(name).weights)
        empty = self.make(self.case(seeded(), (0,), 3, 2)).sparsemap()
        assert empty.weights.shape == (0, 0)
