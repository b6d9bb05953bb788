"""What every dense distribution must do: one suite, checked against enumeration, family by family.

A family subclasses `DistributionSuite` and supplies its facts: how many events there are, how
random arguments look, which parts an event has. The oracle (`event_enumeration`) sums over all
events in float64 and shares no code with the library.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.distributions import kl_divergence

from inout import ArgumentError, ForestError, StructuredDistribution
from tests.contract.batches_suite import BatchesSuite
from tests.contract.distinct_suite import DistinctSuite
from tests.contract.event_enumeration import F32 as F32
from tests.contract.event_enumeration import F64 as F64
from tests.contract.event_enumeration import Case as Case
from tests.contract.event_enumeration import Enumeration as Enumeration
from tests.contract.event_enumeration import Event as Event
from tests.contract.event_enumeration import Part as Part
from tests.contract.event_enumeration import SeenEnumeration as SeenEnumeration
from tests.contract.event_enumeration import random_like as random_like
from tests.contract.event_enumeration import seeded as seeded
from tests.contract.frequencies import surprise
from tests.contract.misuse_suite import MisuseSuite
from tests.contract.moments_suite import MomentsSuite
from tests.contract.sparsemap_suite import SparsemapSuite
from tests.contract.support_suite import SupportSuite
from tests.contract.transforms_suite import TransformsSuite
from tests.support import assert_close


class DistributionSuite(
    BatchesSuite,
    SupportSuite,
    DistinctSuite,
    SparsemapSuite,
    MisuseSuite,
    MomentsSuite,
    TransformsSuite,
    ABC,
):
    """The checks. `Test…` subclasses say what the family is."""

    sizes = (4, 3)  # n and s of the usual case
    lengths = ((4, 1, 0), (3, 2, 4))  # of the ragged case
    blank = 0  # what stands where there is no event
    has_forest = True  # there is an inside algorithm

    @abstractmethod
    def make(self, case: Case, tier: str | None = None) -> StructuredDistribution:
        """The distribution of a case."""

    @abstractmethod
    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        """Random arguments without lengths; potentials are of the order of 1."""

    @abstractmethod
    def potentials(self, case: Case) -> dict[str, Tensor]:
        """The potentials [*b ...] of a case by name, differentiable in its arguments."""

    @abstractmethod
    def events(self, n: int, s: int) -> list[Event]:
        """All events of an element of length n."""

    @abstractmethod
    def count(self, n: int, s: int) -> int:
        """How many events there are, in closed form."""

    @abstractmethod
    def parts_of(self, event: Event) -> list[Part]:
        """The parts of an event."""

    @abstractmethod
    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        """The event as the library writes it, in an element of padded length n."""

    @abstractmethod
    def padding(self, case: Case) -> dict[str, Tensor]:
        """Which entries of each argument are never used, given the lengths."""

    @abstractmethod
    def loss(self, guess: Event, truth: Event) -> float:
        """The loss that `min_risk` minimises."""

    def enumeration(self, case: Case) -> Enumeration:
        return Enumeration(self, case)

    def seen(self, case: Case) -> Enumeration:
        """The oracle for questions about events, if there is more to them than is written."""
        return self.enumeration(case)

    def count_seen(self, n: int, s: int) -> int:
        """How many events there are as they are written."""
        return self.count(n, s)

    def usual(self, seed: int = 0, dtype: Any = F64, batch: tuple[int, ...] = (2, 3)) -> Case:
        return self.case(seeded(seed), batch, *self.sizes, dtype)

    def ragged(self, seed: int = 0, dtype: Any = F64) -> Case:
        lengths = torch.tensor(self.lengths)
        return replace(self.usual(seed, dtype), lengths=lengths)

    def cases(self, dtype: Any = F64) -> Iterator[Case]:
        yield self.usual(1, dtype)
        yield self.ragged(2, dtype)
        yield self.usual(3, dtype, batch=())

    def check(
        self, case: Case, tier: str | None = None, seed: int = 0, atol: float | None = None
    ) -> None:
        """Values, gradients, second derivatives and decodings of a case against enumeration."""
        case = case.leaves()
        d, oracle = self.make(case, tier), Enumeration(self, case)
        g = seeded(seed)
        log_z = d.log_partition()
        assert_close(log_z, oracle.log_z())
        marginals, expected = d.marginals(), oracle.marginals()
        assert marginals.keys() == expected.keys()
        for name in expected:
            assert_close(marginals[name], expected[name], atol=atol)
        # The gradient in the arguments: that in the potentials, carried on by the chain rule.
        weights = torch.randn(case.batch, generator=g, dtype=F64)
        alive = torch.where(log_z == -torch.inf, 0.0, log_z)
        ours = grad((alive * weights.to(alive)).sum(), case.arguments.values(), create_graph=True)
        scaled = {n: _per_element(weights, m) for n, m in expected.items()}
        truth = self._pulled_back(oracle, case, scaled)
        for name, mine in zip(case.arguments, ours, strict=True):
            assert_close(mine, truth[name], atol=atol)
        # A product with the Hessian: covariances with an additive function of the potentials.
        u = random_like(oracle.potentials, g)
        carried = sum((marginals[n] * u[n].to(m)).sum() for n, m in marginals.items())
        if not carried.requires_grad:  # the reference knows that nothing depends on anything
            carried = carried + 0 * alive.sum()
        ours = grad(carried, case.arguments.values(), materialize_grads=True)
        truth = self._pulled_back(oracle, case, oracle.hessian_times(u))
        for name, mine in zip(case.arguments, ours, strict=True):
            assert_close(mine, truth[name], atol=atol)
        self.check_decoding(case, d, self.seen(case))

    def _pulled_back(
        self, oracle: Enumeration, case: Case, cotangents: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """The vector-Jacobian product of arguments -> potentials."""
        kept = [n for n in oracle.potentials if oracle.potentials[n].requires_grad]
        found = grad(
            [oracle.potentials[n] for n in kept],
            list(case.arguments.values()),
            [cotangents[n] for n in kept],
            materialize_grads=True,
            retain_graph=True,
        )
        return dict(zip(case.arguments, found, strict=True))

    def check_decoding(self, case: Case, d: StructuredDistribution, oracle: Enumeration) -> None:
        k = 5
        events, log_probs = d.topk(k)
        flat_events = events.reshape(k, len(oracle.elements), *events.shape[1 + len(case.batch) :])
        flat_probs = log_probs.detach().reshape(k, -1)
        modes = d.mode.reshape(len(oracle.elements), *d.mode.shape[len(case.batch) :])
        for b, scores in enumerate(oracle.scores()):
            scores = scores.detach()
            order = scores.sort(descending=True).values
            order = order[order > -torch.inf][:k]
            found = int((flat_probs[:, b] > -torch.inf).sum())
            assert found == len(order)
            all_events = oracle.padded(oracle.events[b])
            chosen = []
            for rank in range(found):
                equal = (all_events == flat_events[rank, b]).flatten(1).all(1).nonzero()[:, 0]
                assert len(equal) == 1, "k-best gave something that is no event"
                chosen.append(int(equal[0]))
            assert len(set(chosen)) == found, "k-best gave an event twice"
            assert_close(scores[chosen].to(flat_probs.dtype), order)
            if found:
                log_z = scores.logsumexp(0)
                # Differences of large float32 numbers: the scores' own rounding remains.
                scale = max(1.0, float(order.abs().max()))
                tolerance = 1e-4 if flat_probs.dtype == F32 else 1e-10
                assert_close(flat_probs[:found, b], order - log_z, atol=tolerance * scale)
                place = (all_events == modes[b]).flatten(1).all(1).nonzero()[:, 0]
                assert len(place) == 1, "the mode is no event"
                assert_close(scores[place].to(flat_probs.dtype), order[:1], atol=tolerance * scale)
                if found > 1 and order[0] - order[1] > 10 * tolerance * scale:  # no tie
                    assert torch.equal(modes[b], flat_events[0, b])
            length = case.length(oracle.elements[b])
            assert bool(
                (flat_events[found:, b][(..., *self._corner(d, length))] == self.blank).all()
            )

    def _corner(self, d: StructuredDistribution, length: int) -> tuple[slice, ...]:
        """The part of an event that is not padding."""
        return (slice(length),) * len(d.event_shape)

    def in_padding(self, d: StructuredDistribution) -> Tensor:
        """Which entries [*b ...] of an event are beyond the length of its element."""
        outside = torch.zeros(d.batch_shape + d.event_shape, dtype=torch.bool)
        for element in product(*map(range, d.batch_shape)):
            for dim in range(len(d.event_shape)):
                outside[element].movedim(dim, 0)[int(d.lengths[element]) :] = True
        return outside

    @pytest.mark.one_in(3)
    def test_decoded_events_have_minus_1_in_the_padding(self):
        for case in (self.ragged(140), self.ragged(141, F32)):
            case = replace(case, lengths=case.lengths.clamp(min=2))  # shorter ones have no trees
            d = self.make(case)
            padding = self.in_padding(d)
            assert bool(padding.any())
            drawn = d.sample((5,), generator=seeded(142))
            for events in (d.mode, d.topk(4)[0], d.min_risk(), drawn):
                assert bool((events[padding.expand(events.shape)] == -1).all())

    def test_what_stands_in_the_padding_of_an_event_does_not_matter(self):
        case = self.ragged(143).leaves()
        case = replace(case, lengths=case.lengths.clamp(min=2))
        d = self.make(case)
        padding, inputs = self.in_padding(d), list(case.arguments.values())
        for events in (d.mode, d.sample((3,), generator=seeded(144))):
            log_probs, parts = d.log_prob(events), d.parts(events)
            grads = self._gradient(d, events, inputs)
            for garbage in (0, 1, 99, -2, -(2**63), 2**63 - 1):
                spoilt = events.masked_fill(padding, garbage)
                assert torch.equal(d.log_prob(spoilt), log_probs)
                for name, counts in d.parts(spoilt).items():
                    assert torch.equal(counts, parts[name])
                for x, y in zip(self._gradient(d, spoilt, inputs), grads, strict=True):
                    assert torch.equal(x, y)

    def _gradient(
        self, d: StructuredDistribution, event: Tensor, inputs: list[Tensor]
    ) -> tuple[Tensor, ...]:
        """That of the log-probability; potentials of some families share a graph."""
        return grad(d.log_prob(event).sum(), inputs, retain_graph=True)

    def test_enumerate_support_of_elements_shorter_than_the_padding(self):
        n, s = self.sizes
        case = replace(self.usual(145), lengths=torch.full((2, 3), n - 1))
        d, oracle = self.make(case), self.seen(case)
        support = d.enumerate_support()
        assert len(support) == self.count_seen(n - 1, s)
        assert bool((support[:, self.in_padding(d)] == -1).all())
        truth = oracle.padded(oracle.events[0])
        found = {tuple(e.reshape(-1).tolist()) for e in support[:, 1, 2]}
        assert found == {tuple(e.reshape(-1).tolist()) for e in truth}
        assert_close(d.log_prob(support).logsumexp(0), torch.zeros(2, 3, dtype=F64))

    def test_number_of_events(self):
        for n in range(5):
            for s in (1, 2, 3):
                assert len(self.events(n, s)) == self.count(n, s)
                case = self.case(seeded(), (), n, s)
                case = case.changed(lambda _, x: torch.zeros_like(x))
                assert_close(self.make(case).log_partition(), math.log(self.count(n, s)))

    @pytest.mark.parametrize("tier", ["cpu", "reference"])
    @pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
    def test_enumeration(self, dtype, tier):
        for case in self.cases(dtype):
            self.check(case, tier)

    def test_half_precision_is_computed_in_float32(self):
        for dtype in (torch.bfloat16, torch.float16):
            case = self.ragged(4).changed(lambda _, x, d=dtype: x.to(d)).leaves()
            d = self.make(case)
            assert d.log_partition().dtype == F32
            assert_close(d.log_partition(), Enumeration(self, case).log_z())
            grads = grad(d.log_partition().sum(), case.arguments.values())
            assert all(g.dtype == dtype for g in grads)

    def test_dtypes_are_promoted(self):
        case = self.usual(5)
        first = next(iter(case.arguments))
        mixed = case.changed(lambda n, x: x.float() if n == first else x)
        assert self.make(mixed).log_partition().dtype == F64
        self_log_z = self.make(mixed.changed(lambda _, x: x.double())).log_partition()
        assert_close(self.make(mixed).log_partition(), self_log_z)

    @pytest.mark.parametrize("tier", ["cpu", "reference"])
    @pytest.mark.one_in(2)
    def test_derivatives_by_finite_differences(self, tier):
        case = self.ragged(6).leaves()

        def log_z(*arguments: Tensor) -> Tensor:
            given = dict(zip(case.arguments, arguments, strict=True))
            return self.make(replace(case, arguments=given), tier).log_partition()

        inputs = tuple(case.arguments.values())
        assert gradcheck(log_z, inputs, fast_mode=True)
        assert gradgradcheck(log_z, inputs, fast_mode=True)
        small = replace(case, lengths=None)
        small = self.case(seeded(7), (), 2, 2).leaves()

        def small_log_z(*arguments: Tensor) -> Tensor:
            given = dict(zip(small.arguments, arguments, strict=True))
            return self.make(replace(small, arguments=given), tier).log_partition()

        inputs = tuple(small.arguments.values())
        assert gradcheck(small_log_z, inputs)
        assert gradgradcheck(small_log_z, inputs)

    @pytest.mark.one_in(3)
    def test_third_derivatives(self):
        case = self.ragged(8).leaves()
        inputs = list(case.arguments.values())
        u = [torch.randn(x.shape, generator=seeded(9), dtype=F64) for x in inputs]
        found = []
        for log_z in (
            self.make(case).log_partition(),
            self.make(case, "reference").log_partition(),
            Enumeration(self, case).log_z(),
        ):
            value = log_z.sin().sum()  # so that the weights of the elements move as well
            orders = []
            for _ in range(3):
                last = grad(value, inputs, create_graph=True, materialize_grads=True)
                value = sum((x * y).sum() for x, y in zip(last, u, strict=True))
                orders.append(last)
            found.append(orders)
        for cpu, reference, truth in zip(*found, strict=True):
            for x, y, z in zip(cpu, reference, truth, strict=True):
                assert_close(x, z)
                assert_close(y, z)

    def test_marginals_are_differentiable(self):
        case = self.ragged(10).leaves()
        u = random_like(Enumeration(self, case).potentials, seeded(11))

        def expected(*arguments: Tensor) -> Tensor:
            given = dict(zip(case.arguments, arguments, strict=True))
            marginals = self.make(replace(case, arguments=given)).marginals()
            return torch.stack([(m * u[n]).sum() for n, m in marginals.items()])

        assert gradcheck(expected, tuple(case.arguments.values()), fast_mode=True)
        with torch.no_grad():
            plain = self.make(case).marginals()
        assert not any(m.requires_grad for m in plain.values())
        for name, m in self.make(case).marginals().items():
            assert torch.equal(m, plain[name])

    @pytest.mark.parametrize("tier", ["cpu", "reference"])
    @pytest.mark.one_in(3)
    def test_marginals_of_some_parts(self, tier):
        for case in self.cases():
            case = case.leaves()
            d, oracle = self.make(case, tier), Enumeration(self, case)
            expected, u = oracle.marginals(), random_like(oracle.potentials, seeded(14))
            for name in expected:
                found = d.marginals(name)
                assert list(found) == [name]
                assert_close(found[name], expected[name])
                ours = grad(
                    (found[name] * u[name]).sum(), case.arguments.values(),
                    materialize_grads=True, retain_graph=True,
                )  # fmt: skip
                others = {n: torch.zeros_like(x) for n, x in u.items()}
                second = oracle.hessian_times(others | {name: u[name]})
                truth = self._pulled_back(oracle, case, second)
                for argument, mine in zip(case.arguments, ours, strict=True):
                    assert_close(mine, truth[argument])
            with pytest.raises(ArgumentError, match="no_such_part"):
                d.marginals("no_such_part")

    @pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
    @pytest.mark.one_in(2)
    def test_entropy_and_divergences(self, dtype):
        for p_case, q_case in zip(self.cases(dtype), self.cases(dtype), strict=True):
            p_case = p_case.leaves()
            q_case = q_case.changed(lambda _, x: 0.5 * x.flip(-1)).leaves()
            q_case = replace(q_case, others=p_case.others)
            p, q = self.make(p_case), self.make(q_case)
            ours, theirs = self.seen(p_case), self.seen(q_case)
            probabilities = [x.softmax(0) for x in ours.scores()]
            p_logs = [x.log_softmax(0) for x in ours.scores()]
            q_logs = [x.log_softmax(0) for x in theirs.scores()]

            def mean(
                values: list[Tensor], oracle: Enumeration = ours, weights: Any = probabilities
            ) -> Tensor:
                return oracle.shaped([(w * v).sum() for w, v in zip(weights, values, strict=True)])

            kl = [x - y for x, y in zip(p_logs, q_logs, strict=True)]
            inputs = [*p_case.arguments.values(), *q_case.arguments.values()]
            for mine, truth in (
                (p.entropy(), -mean(p_logs)),
                (p.cross_entropy(q), -mean(q_logs)),
                (kl_divergence(p, q), mean(kl)),
            ):
                assert mine.dtype == dtype
                assert_close(mine, truth)
                grads = grad(mine.sum(), inputs, materialize_grads=True, retain_graph=True)
                for x, y in zip(
                    grads, grad(truth.sum(), inputs, materialize_grads=True, retain_graph=True),
                    strict=True,
                ):  # fmt: skip
                    assert_close(x, y)

    def test_entropy_of_large_scores_in_float32(self):
        case = self.usual(12, F32).changed(lambda _, x: x + 1000)
        scores = self.seen(case).scores()
        truth = torch.stack([-(x.softmax(0) * x.log_softmax(0)).sum() for x in scores])
        assert_close(self.make(case).entropy().reshape(-1), truth)

    def test_divergences_need_the_same_events(self):
        p = self.make(self.usual(13))
        with pytest.raises(ArgumentError, match="lengths"):
            p.cross_entropy(self.make(self.ragged(13)))
        with pytest.raises(ArgumentError, match="one family and shape"):
            kl_divergence(p, self.make(self.case(seeded(), (2, 3), 3, 3)))

    def test_divergence_is_infinite_where_q_lacks_an_event(self):
        case = self.usual(14, batch=())
        event = self.events(*self.sizes)[0]
        dead = self._without_part(case, event)
        p, q = self.make(case), self.make(dead)
        assert kl_divergence(p, q) == torch.inf
        assert torch.isfinite(kl_divergence(q, p))
        none = self.make(case.changed(lambda _, x: torch.full_like(x, -torch.inf)))
        assert kl_divergence(p, none) == torch.inf
        assert p.cross_entropy(none) == torch.inf
        assert kl_divergence(none, p) == 0
        assert kl_divergence(none, none) == 0

    def _without_part(self, case: Case, event: Event) -> Case:
        """The case with one part of an event made impossible."""
        leaves = case.leaves()
        oracle = Enumeration(self, leaves)
        one = {n: torch.zeros_like(p) for n, p in oracle.potentials.items()}
        name, index = self.parts_of(event)[0]
        one[name][index] = 1.0
        touched = self._pulled_back(oracle, leaves, one)
        return case.changed(lambda n, x: x.masked_fill(touched[n] != 0, -torch.inf))

    def test_expectation_and_covariance(self):
        for case in self.cases():
            case = case.leaves()
            d, oracle = self.make(case), Enumeration(self, case)
            f = random_like(oracle.potentials, seeded(15))
            g = random_like(oracle.potentials, seeded(16))
            one = {next(iter(f)): next(iter(f.values()))}
            assert_close(d.expectation(f), oracle.mean(f))
            assert_close(d.expectation(one), oracle.mean(one))
            assert_close(d.covariance(f, g), oracle.covariance(f, g))
            assert_close(d.covariance(one, g), oracle.covariance(one, g))
            assert_close(d.covariance(f, {}), torch.zeros(case.batch))
            assert_close(d.covariance({}, f), torch.zeros(case.batch))
            # A function that depends on the potentials themselves is a constant to the derivative.
            score = oracle.potentials
            assert_close(d.covariance(d.potentials, d.potentials), oracle.covariance(score, score))
        name = next(iter(d.potentials))
        with pytest.raises(ArgumentError, match="nonsense"):
            d.expectation({"nonsense": torch.zeros(1)})
        with pytest.raises(ArgumentError, match=rf"g\['{name}'\] must have shape"):
            d.covariance({}, {name: torch.zeros(7, 7, 7, 7, 7)})

    def test_covariance_is_differentiable(self):
        case = self.ragged(17).leaves()
        f = random_like(Enumeration(self, case).potentials, seeded(18))

        def covariance(*arguments: Tensor) -> Tensor:
            given = dict(zip(case.arguments, arguments, strict=True))
            return self.make(replace(case, arguments=given)).covariance(f, f)

        assert gradcheck(covariance, tuple(case.arguments.values()), fast_mode=True)
        # And in the functions, also where the potentials are constants.
        constant = case.changed(lambda _, x: x.detach())
        moving = {name: x.requires_grad_() for name, x in f.items()}
        d, oracle = self.make(constant), Enumeration(self, constant)
        g = random_like(oracle.potentials, seeded(19))
        for ours, truth in (
            (d.covariance(moving, g), oracle.covariance(moving, g)),
            (d.covariance(g, moving), oracle.covariance(g, moving)),
            (d.expectation(moving), oracle.mean(moving)),
        ):
            grads = grad(truth.sum(), list(moving.values()), materialize_grads=True)
            mine = grad(ours.sum(), list(moving.values()), materialize_grads=True)
            for x, y in zip(mine, grads, strict=True):
                assert_close(x, y)
        assert not any(m.requires_grad for m in d.marginals().values())

    def test_log_prob_is_normalised_and_adds_up_the_parts(self):
        for case in (self.usual(19), self.usual(20, batch=())):
            case = case.leaves()
            d, oracle = self.make(case), Enumeration(self, case)
            events = oracle.padded(oracle.events[0])
            support = d.enumerate_support()
            assert support.shape == (len(events), *case.batch, *d.event_shape)
            first = support.reshape(len(events), len(oracle.elements), *d.event_shape)
            assert {tuple(e.reshape(-1).tolist()) for e in first[:, -1]} == {
                tuple(e.reshape(-1).tolist()) for e in events
            }
            log_probs = d.log_prob(support)
            assert torch.equal(log_probs, d.log_prob(d.enumerate_support(expand=False)))
            assert_close(log_probs.logsumexp(0), torch.zeros(case.batch, dtype=F64))
            parts = d.parts(support)
            score = sum(
                (c * oracle.potentials[n]).flatten(1 + len(case.batch)).sum(-1)
                for n, c in parts.items()
            )
            assert_close(log_probs, score - oracle.log_z())
            p = log_probs.exp()
            for name, m in d.marginals().items():
                weight = p.reshape(p.shape + (1,) * (m.ndim - len(case.batch)))
                assert_close((weight * parts[name]).sum(0), m)
            ours = grad(log_probs[0].sum(), case.arguments.values())
            truth = grad((score - oracle.log_z())[0].sum(), case.arguments.values())
            for x, y in zip(ours, truth, strict=True):
                assert_close(x, y)

    def test_log_prob_of_ragged_events(self):
        case = self.ragged(21)
        d, oracle = self.make(case), self.seen(case)
        g = torch.Generator().manual_seed(22)
        chosen = [int(torch.randint(len(e), (), generator=g)) for e in oracle.events]
        event = oracle.padded([e[i] for e, i in zip(oracle.events, chosen, strict=True)])
        event = event.reshape(case.batch + event.shape[1:])
        scores = [x[i] for x, i in zip(oracle.scores(), chosen, strict=True)]
        assert_close(d.log_prob(event), oracle.shaped(scores) - oracle.log_z())
        flat = oracle.flat(d.parts(event))
        for b, i in enumerate(chosen):
            assert_close(flat[b], oracle.counts()[b][i])

    def test_topk_log_probabilities_are_differentiable(self):
        case = self.ragged(23).leaves()
        events, log_probs = self.make(case).topk(3)
        again = self.make(case).log_prob(events)
        kept = log_probs > -torch.inf
        ours = grad(log_probs[kept].sum(), case.arguments.values())
        for x, y in zip(ours, grad(again[kept].sum(), case.arguments.values()), strict=True):
            assert_close(x, y)

    def test_topk_of_more_than_there_are(self):
        case = self.case(seeded(24), (2,), 3, 2)
        count = self.count_seen(3, 2)
        events, log_probs = self.make(case).topk(count + 3)
        assert_close(log_probs[:count].logsumexp(0), torch.zeros(2, dtype=F64))
        assert bool((log_probs[:-1] >= log_probs[1:]).all())
        assert bool((log_probs[count:] == -torch.inf).all())
        assert bool((events[count:] == self.blank).all())  # all elements have the full length
        with pytest.raises(ArgumentError, match="k must be"):
            self.make(case).topk(0)

    @pytest.mark.one_in(3)
    def test_min_risk(self):
        for case in (self.usual(25), self.ragged(26)):
            d, oracle = self.make(case), self.seen(case)
            guesses = d.min_risk().reshape(len(oracle.elements), *d.event_shape)
            losses: dict[int, Tensor] = {}  # of all pairs of events, by their length
            for b, p in enumerate(oracle.probabilities()):
                events, n = oracle.events[b], case.length(oracle.elements[b])
                if n not in losses:
                    pairs = [[self.loss(g, t) for t in events] for g in events]
                    losses[n] = torch.tensor(pairs, dtype=F64).reshape(len(events), len(events))
                best = oracle.padded([events[int((losses[n] @ p).argmin())]])[0]
                assert torch.equal(guesses[b], best)

    @pytest.mark.one_in(3)
    def test_samples_have_the_right_frequencies(self):
        for case in (self.ragged(27), self.ragged(28, F32), self.usual(29, batch=())):
            d, oracle = self.make(case), self.seen(case)
            samples = d.sample((60, 100), generator=seeded(30))
            assert samples.shape == (60, 100, *case.batch, *d.event_shape)
            drawn = samples.reshape(6000, len(oracle.elements), -1)
            for b, p in enumerate(oracle.probabilities()):
                places = {
                    tuple(e.reshape(-1).tolist()): i
                    for i, e in enumerate(oracle.padded(oracle.events[b]))
                }
                observed = torch.zeros(len(p), dtype=F64)
                for event in drawn[:, b].tolist():
                    observed[places[tuple(event)]] += 1
                assert surprise(observed, p * 6000) > 1e-6

    def test_samples_of_two_elements_are_independent(self):
        case = self.case(seeded(31), (), *self.sizes)
        twice = case.changed(lambda _, x: x)
        first = self.make(twice).sample((2000,), generator=seeded(32))
        second = self.make(twice).sample((2000,), generator=seeded(33))
        assert not torch.equal(first, second)
        repeated = self.make(self.usual(34)).sample((500,), generator=seeded(35))
        flat = repeated.reshape(500, 6, -1)
        assert not any(torch.equal(flat[:, 0], flat[:, b]) for b in range(1, 6))

    @pytest.mark.one_in(3)
    def test_the_seed_decides_the_samples_whatever_the_threads(self, any_threads):
        d = self.make(self.usual(36))
        found = []
        for threads in (1, 2, 7):
            any_threads(threads)
            found.append(d.sample((5000,), generator=seeded(37)))
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])
        generator = seeded(37)
        assert torch.equal(d.sample((5000,), generator=generator), found[0])
        assert not torch.equal(d.sample((5000,), generator=generator), found[0])

    @pytest.mark.one_in(3)
    def test_threads_do_not_change_the_numbers(self, any_threads):
        case = self.case(seeded(38), (8,), 40, 40).leaves()
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

    def test_forest_is_the_same_distribution(self):
        if not self.has_forest:
            d = self.make(self.usual())
            for query in (d.forest, d.inside, d.outside):
                with pytest.raises(ForestError, match="log_partition, marginals, topk or sample"):
                    query()
            return
        for case in self.cases():
            case = case.leaves()
            d, oracle = self.make(case), Enumeration(self, case)
            forest = d.forest()
            log_z = forest.log_partition()
            assert_close(log_z.reshape(case.batch), oracle.log_z())
            counts = forest.count()
            found = list(counts) if case.batch else [counts]
            assert found == [len(e) for e in oracle.events]
            ours = grad(d.log_partition().sum(), case.arguments.values(), retain_graph=True)
            theirs = grad(log_z.sum(), case.arguments.values(), retain_graph=True)
            for x, y in zip(ours, theirs, strict=True):
                assert_close(x, y)
            for name, m in d.marginals().items():
                assert_close(forest.expected_counts(name).reshape(m.shape), m)

    def test_repr_names_the_family(self):
        assert type(self.make(self.usual())).__name__ in repr(self.make(self.usual()))

    @pytest.mark.parametrize("n", [0, 1, 2])
    @pytest.mark.parametrize("s", [1, 2])
    @pytest.mark.one_in(3)
    def test_small_sizes(self, n, s):
        for batch in ((), (3,), (0,)):
            case = self.case(seeded(40), batch, n, s)
            if batch == (0,):
                d = self.make(case.leaves())
                assert d.log_partition().shape == (0,)
                assert d.mode.shape == (0, *d.event_shape)
                assert d.entropy().shape == (0,)
                assert d.sample((2,), generator=seeded()).shape == (2, 0, *d.event_shape)
            else:
                self.check(case)
                self.check(case, "reference")
                if self.count(n, s):
                    drawn = self.make(case).sample((3,), generator=seeded())
                    assert bool((self.make(case).log_prob(drawn) > -torch.inf).all())

    @pytest.mark.parametrize("tier", ["cpu", "reference"])
    @pytest.mark.parametrize("n", [4, 2])
    @pytest.mark.one_in(3)
    def test_padding_changes_nothing(self, tier, n):
        lengths = torch.tensor(self.lengths).clamp(max=n)
        case = replace(self.case(seeded(41), (2, 3), n, 3), lengths=lengths)
        case = case.leaves()
        masks = self.padding(case)
        assert any(bool(m.any()) for m in masks.values())
        found = []
        for garbage in (0.0, torch.nan, torch.inf, -torch.inf, 1e30):
            spoilt = case.changed(lambda n, x, g=garbage: x.detach().masked_fill(masks[n], g))
            spoilt = spoilt.leaves()
            d = self.make(spoilt, tier)
            inputs = list(spoilt.arguments.values())
            log_z = d.log_partition()
            u = [torch.randn(x.shape, generator=seeded(42), dtype=F64) for x in inputs]
            results = [log_z]
            value = log_z.sin().sum()
            for _ in range(3):
                last = grad(value, inputs, create_graph=True, materialize_grads=True)
                value = sum((x * y).sum() for x, y in zip(last, u, strict=True))
                for name, x in zip(spoilt.arguments, last, strict=True):
                    assert bool((x[masks[name]] == 0).all()), f"gradient in the padding of {name}"
                results += last
            results += [d.mode, *d.topk(3), d.entropy(), d.min_risk()]
            results += [d.sample((20,), generator=seeded(43)), *d.marginals().values()]
            results += [*grad(d.entropy().sum(), inputs, materialize_grads=True)]
            results += [d.log_prob(d.mode)]
            results += [d.forest().log_partition()] if self.has_forest else []
            found.append(results)
        for others in found[1:]:
            for x, y in zip(found[0], others, strict=True):
                assert torch.equal(x, y)

    def test_padding_gives_the_numbers_of_the_smaller_problem(self):
        case = self.ragged(44)
        whole = self.make(case).log_partition()
        for element in case.elements():
            small = self.cut(case, element)
            assert torch.equal(self.make(small).log_partition(), whole[element])

    @abstractmethod
    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        """One element alone, without its padding."""

    @pytest.mark.one_in(3)
    def test_layout_of_the_inputs_does_not_matter(self):
        case = self.ragged(45)
        plain = self.make(case)
        strided = case.changed(_strided)
        assert not all(x.is_contiguous() for x in strided.arguments.values())
        assert torch.equal(self.make(strided).log_partition(), plain.log_partition())
        for name, m in self.make(strided).marginals().items():
            assert torch.equal(m, plain.marginals()[name])
        # Expanded: one element for all, and one row for all.
        wide = self.usual(46).changed(lambda _, x: x[(0,) * (x.ndim - 1)].expand(x.shape))
        self.check(wide)
        copied = wide.changed(lambda _, x: x.contiguous())
        assert torch.equal(self.make(wide).log_partition(), self.make(copied).log_partition())

    @pytest.mark.one_in(3)
    def test_lengths_of_any_integer_type(self):
        case = self.ragged(47)
        for several in (case.lengths.tolist(), tuple(map(tuple, case.lengths.tolist()))):
            listed = self.make(replace(case, lengths=several))
            assert torch.equal(listed.log_partition(), self.make(case).log_partition())
        short = replace(case, lengths=case.lengths.to(torch.int32))
        assert torch.equal(self.make(short).log_partition(), self.make(case).log_partition())

    @pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
    @pytest.mark.one_in(2)
    def test_impossible_parts(self, dtype):
        for seed in range(6):
            case = self.ragged(50 + seed, dtype)
            g = seeded(60 + seed)
            self.check(
                case.changed(
                    lambda _, x, g=g: x.masked_fill(
                        torch.rand(x.shape, generator=g) < 0.4, -torch.inf
                    )
                )
            )

    @pytest.mark.parametrize("tier", ["cpu", "reference"])
    @pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
    @pytest.mark.one_in(3)
    def test_nothing_is_possible(self, dtype, tier):
        case = self.ragged(70, dtype).changed(lambda _, x: torch.full_like(x, -torch.inf)).leaves()
        d = self.make(case, tier)
        log_z = d.log_partition()
        empty = case.lengths == 0
        assert_close(log_z, Enumeration(self, case).log_z().detach())
        inputs = list(case.arguments.values())
        u = [torch.ones_like(x) for x in inputs]
        value = log_z.sum()
        for _ in range(3):
            last = grad(value, inputs, create_graph=True, materialize_grads=True)
            assert all(bool((x == 0).all()) for x in last)
            value = sum((x * y).sum() for x, y in zip(last, u, strict=True))
            if not value.requires_grad:
                break
        for m in d.marginals().values():
            assert bool((m == 0).all())
        nothing = torch.where(self.in_padding(d), -1, self.blank)
        assert torch.equal(d.mode, nothing)
        assert torch.equal(d.min_risk(), nothing)
        assert torch.equal(d.topk(2)[1][0] == -torch.inf, log_z == -torch.inf)
        assert torch.equal(d.log_prob(d.mode) == -torch.inf, log_z == -torch.inf)
        assert not bool(d.entropy().isnan().any())
        assert_close(d.covariance(d.potentials, d.potentials), torch.zeros_like(log_z))
        if bool((~empty & (log_z == -torch.inf)).any()):
            with pytest.raises(ForestError, match="no possible"):
                d.sample((2,), generator=seeded())

    @pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
    @pytest.mark.one_in(3)
    def test_huge_potentials_and_mixtures(self, dtype):
        levels = torch.tensor([1e4, -1e4, 0.0, 90.0, -200.0, -torch.inf])
        for seed in range(5):
            g = seeded(80 + seed)

            def huge(_: str, x: Tensor, g: torch.Generator = g) -> Tensor:
                return 1e4 * torch.randn(x.shape, generator=g).to(x)

            def mixed(_: str, x: Tensor, g: torch.Generator = g) -> Tensor:
                level = levels[torch.randint(len(levels), x.shape, generator=g)].to(x)
                # Multiples of 1/256 below 2**16 add up exactly in float32.
                return ((level + x) * 256).round() / 256

            self.check(self.ragged(90 + seed, dtype).changed(huge))
            self.check(self.ragged(90 + seed, dtype).changed(mixed))
            self.check(self.ragged(90 + seed, dtype).changed(mixed), "reference")

    @pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
    @pytest.mark.one_in(3)
    def test_a_single_survivor(self, dtype):
        """All parts but those of one event are impossible: everything follows from that event."""
        case = self.usual(100, dtype, batch=()).leaves()
        oracle = Enumeration(self, case)
        for place in (0, len(oracle.events[0]) // 2, len(oracle.events[0]) - 1):
            used = {n: torch.zeros_like(p) for n, p in oracle.potentials.items()}
            for name, index in self.parts_of(oracle.events[0][place]):
                used[name][index] = 1.0
            touched = self._pulled_back(oracle, case, used)
            alone = case.changed(
                lambda n, x, t=touched: (50 * x.detach()).masked_fill(t[n] == 0, -torch.inf)
            )
            self.check(alone)
            only = oracle.padded([oracle.events[0][place]])[0]
            if int((torch.stack(self.seen(alone).scores()) > -torch.inf).sum()) == 1:
                d = self.make(alone)
                assert torch.equal(d.mode, only)
                assert torch.equal(d.sample((), generator=seeded()), only)

    @pytest.fixture
    def any_threads(self) -> Iterator[Callable[[int], None]]:
        before = torch.get_num_threads()
        yield torch.set_num_threads
        torch.set_num_threads(before)


def _per_element(weights: Tensor, values: Tensor) -> Tensor:
    return weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim)) * values


def _strided(_: str, x: Tensor) -> Tensor:
    """The same values at every second place of a transposed memory."""
    room = torch.full((*reversed(x.shape), 2), torch.nan, dtype=x.dtype)[..., 0]
    view = room.permute(tuple(reversed(range(x.ndim))))
    view.copy_(x)
    return view
