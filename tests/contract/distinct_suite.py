"""What sampling without replacement must do: compared with the Plackett-Luce distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import ArgumentError
from tests.contract.event_enumeration import F32, F64, Case, seeded
from tests.contract.frequencies import surprise
from tests.oracle.plackett_luce import ordered_subsets
from tests.seeds import seeds
from tests.support import assert_close

# Of a test that is right, one in a million fails; the seeds are fixed, so it never does.
FALSE_ALARM = 1e-6


class DistinctSuite:
    """The checks; `make`, `case`, `usual`, `ragged` and `seen` are the family's."""

    one_in = 3  # see tests/seeds.py

    make: Any
    case: Any
    usual: Any
    ragged: Any
    count_seen: Any
    cut: Any
    seen: Any
    in_padding: Any
    padding: Any
    blank: int
    tiny = (2, 2)  # n and s of a model with a handful of events

    def _numbered(self, case: Case, events: Tensor) -> list[list[list[int]]]:
        """The numbers of events [k *b ...] among all of their element: [b][k], -1 for none."""
        oracle = self.seen(case)
        k = len(events)
        flat = events.reshape(k, len(oracle.elements), -1)
        numbered = []
        for b, own in enumerate(oracle.events):
            places = {tuple(e.reshape(-1).tolist()): i for i, e in enumerate(oracle.padded(own))}
            numbered.append([places.get(tuple(e), -1) for e in flat[:, b].tolist()])
        return numbered

    def check_distinct(self, case: Case, k: int, dtype: Any = F64) -> None:
        """All that is not random: different events, their log-probabilities, keys in order."""
        case = case.leaves()
        d, oracle = self.make(case), self.seen(case)
        found = d.sample_without_replacement(k, generator=seeded(9))
        assert found.log_probs.dtype == found.keys.dtype == found.threshold.dtype == dtype
        assert found.events.shape == (k, *d.batch_shape, *d.event_shape)
        assert found.keys.shape == found.log_probs.shape == (k, *d.batch_shape)
        keys, log_probs = found.keys.reshape(k, -1), found.log_probs.reshape(k, -1)
        weights = found.weights().detach().reshape(k, -1)
        for b, numbers in enumerate(self._numbered(case, found.events)):
            scores = oracle.scores()[b].detach()
            alive = int((scores > -torch.inf).sum())
            drawn = min(k, alive)
            assert -1 not in numbers[:drawn]
            assert len(set(numbers[:drawn])) == drawn
            expected = (scores - scores.logsumexp(0))[numbers[:drawn]]
            scale = max(1.0, float(scores[scores > -torch.inf].abs().max())) if alive else 1.0
            tolerance = (1e-4 if dtype == F32 else 1e-10) * scale
            assert_close(log_probs[:drawn, b], expected, atol=tolerance)
            assert bool((keys[:drawn, b].diff() <= 0).all())
            threshold = float(found.threshold.reshape(-1)[b])
            assert (threshold > -torch.inf) == (alive > k)
            assert drawn == 0 or float(keys[drawn - 1, b]) >= threshold
            for rest in (keys[drawn:, b], log_probs[drawn:, b]):
                assert bool((rest == -torch.inf).all())
            assert bool((weights[drawn:, b] == 0).all())
            if alive <= k and alive:
                assert_close(weights[:, b].sum(), 1.0, atol=tolerance)
                assert_close(weights[:drawn, b], expected.exp(), atol=tolerance)
            real = ~self.in_padding(d).reshape(len(oracle.elements), -1)[b]
            rest = found.events.reshape(k, len(oracle.elements), -1)[drawn:, b]
            assert bool((rest[:, real] == self.blank).all())
            assert bool((rest[:, ~real] == -1).all())
        kept = found.log_probs > -torch.inf
        again = d.log_prob(found.events)
        inputs = list(case.arguments.values())
        ours = grad(found.log_probs[kept].sum(), inputs, retain_graph=True, materialize_grads=True)
        theirs = grad(again[kept].sum(), inputs, materialize_grads=True)
        for x, y in zip(ours, theirs, strict=True):
            assert_close(x, y)

    @pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
    def test_distinct_samples(self, dtype: Any) -> None:
        for case in (self.ragged(601, dtype), self.usual(602, dtype, batch=())):
            self.check_distinct(case, 5, dtype)
        self.check_distinct(self.case(seeded(603), (2,), 2, 2, dtype), 20, dtype)
        for n in (0, 1):
            self.check_distinct(self.case(seeded(604), (2,), n, 2, dtype), 3, dtype)

    def test_distinct_samples_of_impossible_and_of_huge_potentials(self) -> None:
        small = self.case(seeded(605), (3,), 3, 2)
        everything = self.count_seen(3, 2) + 2
        for seed in seeds(2, few=1):
            g = seeded(610 + seed)
            huge = small.changed(lambda _, x, g=g: (1e4 * torch.randn(x.shape, generator=g)).to(x))
            self.check_distinct(huge, everything)
            sparse = small.changed(
                lambda _, x, g=g: x.masked_fill(torch.rand(x.shape, generator=g) < 0.3, -torch.inf)
            )
            self.check_distinct(sparse, everything)
            self.check_distinct(sparse, 2)
        none = self.ragged(606).changed(lambda _, x: torch.full_like(x, -torch.inf))
        self.check_distinct(none, 2)

    @pytest.mark.few(1)
    @pytest.mark.parametrize("k", [2, 3])
    def test_distinct_samples_have_the_frequencies_of_sequential_sampling(self, k: int) -> None:
        """Ordered subsets of a tiny model, each of many equal elements being a sample."""
        many = 1000
        copies, one = self._copies(many)
        d = self.make(copies)
        oracle = self.seen(one)
        expected = ordered_subsets(oracle.probabilities()[0], k)
        found = d.sample_without_replacement(k, generator=seeded(620))
        truth = oracle.padded(oracle.events[0])
        places = {tuple(e.reshape(-1).tolist()): i for i, e in enumerate(truth)}
        observed = dict.fromkeys(expected, 0)
        drawn = found.events.reshape(k, many, -1)[: len(next(iter(expected)))]
        for subset in drawn.transpose(0, 1).tolist():
            observed[tuple(places[tuple(e)] for e in subset)] += 1
        counts = torch.tensor(list(observed.values()), dtype=F64)
        meant = many * torch.tensor(list(expected.values()), dtype=F64)
        assert surprise(counts, meant) > FALSE_ALARM
        # The highest key is a Gumbel variable of location 0: exp(-key) has mean and variance 1.
        exponential = (-found.keys[0]).exp()
        assert abs(float(exponential.mean()) - 1) < 5 / many**0.5
        # Weighted sums estimate expectations without bias.
        p = oracle.probabilities()[0]
        f = torch.linspace(-1, 1, len(p), dtype=F64)
        values = torch.tensor(
            [[f[places.get(tuple(e), 0)] for e in row] for row in drawn.tolist()], dtype=F64
        )
        estimates = (found.weights()[: len(values)] * values).sum(0)
        error = estimates.mean() - (p * f).sum()
        assert abs(float(error)) < 5 * float(estimates.std()) / many**0.5 + 1e-12

    def _copies(self, many: int) -> tuple[Case, Case]:
        """A batch of so many equal elements of a tiny model, and one of them."""
        single = self.case(seeded(630), (), *self.tiny)
        wide = self.case(seeded(630), (many,), *self.tiny)

        def first(given: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
            """Arguments that all elements share stay as they are."""
            return {
                n: x[:1].expand(x.shape) if x.ndim > own[n].ndim else x for n, x in given.items()
            }

        arguments = first(wide.arguments, single.arguments)
        wide = replace(wide, arguments=arguments, others=first(wide.others, single.others))
        return wide, self.cut(wide, (0,))

    def test_distinct_samples_are_a_prefix_of_more(self) -> None:
        d = self.make(self.ragged(640))
        whole = d.sample_without_replacement(9, generator=seeded(641))
        for k in (1, 4):
            found = d.sample_without_replacement(k, generator=seeded(641))
            assert torch.equal(found.events, whole.events[:k])
            assert torch.equal(found.keys, whole.keys[:k])
            assert torch.equal(found.threshold, whole.keys[k])
        other = d.sample_without_replacement(9, generator=seeded(642))
        assert not torch.equal(other.keys, whole.keys)

    def test_distinct_samples_do_not_depend_on_threads(
        self, any_threads: Callable[[int], None]
    ) -> None:
        d = self.make(self.usual(643))
        found = []
        for threads in (1, 2, 7):
            any_threads(threads)
            found.append(d.sample_without_replacement(6, generator=seeded(644)))
        for other in found[1:]:
            for x, y in zip(found[0], other, strict=True):
                assert torch.equal(x, y)

    def test_distinct_samples_ignore_the_padding(self) -> None:
        case = self.ragged(645)
        masks = self.padding(case)
        found = [
            self.make(
                case.changed(lambda n, x, g=garbage: x.masked_fill(masks[n], g))
            ).sample_without_replacement(4, generator=seeded(646))
            for garbage in (0.0, torch.nan, torch.inf)
        ]
        for other in found[1:]:
            for x, y in zip(found[0], other, strict=True):
                assert torch.equal(x, y)

    def test_distinct_samples_need_a_number(self) -> None:
        with pytest.raises(ArgumentError, match="k must be"):
            self.make(self.usual(647)).sample_without_replacement(0)
