"""What every dense distribution does as one of torch's: indexing, expanding, moving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import Categorical, Independent, MixtureSameFamily

from inout import ArgumentError, NotDifferentiableError, StructuredDistribution
from tests.contract.event_enumeration import F32, F64, Enumeration, random_like, seeded
from tests.support import assert_close

INDICES: list[Any] = [
    1,
    -1,
    slice(1),
    slice(None, None, 2),
    (1, 2),
    (slice(None), 0),
    (..., 0),
    (..., slice(0, 2)),
    (0, ...),
    ...,
    (),
    None,
    (None, ..., None, 1),
    [1, 0, 1],
    [],
    [True, False],
    np.array([0, 1]),
    torch.tensor([1, 0]),
    (torch.tensor([1, 0, 0]), torch.tensor([2, 0, 2])),
    (torch.tensor([True, False]),),
    torch.tensor([[True, False, True], [False, True, True]]),
    torch.zeros(2, 3, dtype=torch.bool),
]


def on_batch(index: Any, x: Tensor, dims: int = 2) -> Tensor:
    """x[index] for an index of the first dimensions only, which are the batch."""
    flat = torch.arange(x.shape[:dims].numel()).reshape(x.shape[:dims])
    chosen = flat[torch.tensor(index).long() if isinstance(index, list) and not index else index]
    return x.flatten(0, dims - 1)[chosen.reshape(-1)].reshape(chosen.shape + x.shape[dims:])


class BatchesSuite:
    """The checks; `make`, `usual`, `ragged` and `case` are the family's (`DistributionSuite`)."""

    one_in = 3  # see tests/seeds.py

    make: Any
    case: Any
    usual: Any
    ragged: Any
    enumeration: Any
    in_padding: Any
    sizes: tuple[int, int]

    def check_as_chosen(
        self, oracle: Enumeration, d: StructuredDistribution, choose: Callable[[Tensor], Tensor]
    ) -> None:
        """Values and two derivatives against enumeration, where `choose` takes [*b ...] along."""
        inputs = list(oracle.case.arguments.values())
        truth, found = choose(oracle.log_z()), d.log_partition()
        assert d.batch_shape == truth.shape
        assert_close(found, truth)
        weights = torch.randn(truth.shape, generator=seeded(7), dtype=F64)
        for name, expected in oracle.marginals().items():
            assert_close(d.marginals()[name], choose(expected))
        u = random_like(dict(enumerate(inputs)), seeded(8))  # type: ignore[arg-type]
        values = []
        for log_z in (found, truth):
            alive = torch.where(log_z == -torch.inf, 0.0, log_z)
            total = (alive.sin() * weights).sum()
            first = grad(total, inputs, create_graph=True, materialize_grads=True)
            along = sum((g * v).sum() for g, v in zip(first, u.values(), strict=True))
            along = along + 0 * sum(x.sum() for x in inputs)
            second = grad(along, inputs, materialize_grads=True, retain_graph=True)
            values.append([*first, *second])
        for mine, expected in zip(*values, strict=True):
            assert_close(mine, expected)

    def check_events(
        self,
        d: StructuredDistribution,
        whole: StructuredDistribution,
        choose: Callable[..., Tensor],
    ) -> None:
        """Decoding and scoring are those of the elements that were chosen."""
        assert torch.equal(d.mode, choose(whole.mode))
        assert torch.equal(d.min_risk(), choose(whole.min_risk()))
        events, scores = whole.topk(3)
        own_events, own_scores = d.topk(3)
        for k in range(3):
            assert torch.equal(own_events[k], choose(events[k]))
            assert_close(own_scores[k], choose(scores[k]))
            assert_close(d.log_prob(own_events)[k], own_scores[k])
        assert_close(d.entropy(), choose(whole.entropy()))
        drawn = d.sample((2,), generator=seeded())
        assert drawn.shape == (2, *d.batch_shape, *d.event_shape)
        assert bool(d.support.check(drawn).all())

    def test_indexing(self) -> None:
        case = self.ragged(501).leaves()
        whole, oracle = self.make(case), self.enumeration(case)
        log_z, modes = oracle.log_z(), whole.mode
        for index in INDICES:
            d = whole[index]
            assert_close(d.log_partition(), on_batch(index, log_z))
            assert torch.equal(d.mode, on_batch(index, modes))
        for index in (1, (..., 0), case.lengths > 1):
            self.check_as_chosen(oracle, whole[index], lambda x, i=index: on_batch(i, x))

    def test_events_of_some_elements(self) -> None:
        case = self.ragged(502)
        case = replace(case, lengths=case.lengths.clamp(min=2))  # shorter ones have no trees
        whole = self.make(case)
        for index in ((..., 1), [1, 0, 1]):
            self.check_events(whole[index], whole, lambda x, i=index: on_batch(i, x))

    def test_an_index_that_does_not_fit(self, unchecked: None) -> None:
        d = self.make(self.usual(503))
        mask = torch.ones(2, 4, dtype=torch.bool)
        for wrong in (
            2,
            -3,
            (0, 3),
            (0, 0, 0),
            (..., 0, 0, 0),
            mask,
            "one",
            "",
            1.5,
            [7],
            [slice(1)],
        ):
            with pytest.raises(ArgumentError, match=r"^index must fit the batch shape \[2, 3\]"):
                d[wrong]
        alone = d[0, 0]
        for wrong in (0, slice(1), (..., 0), [0]):
            with pytest.raises(ArgumentError, match=r"^index: there is no batch to index"):
                alone[wrong]
        with pytest.raises(ArgumentError, match="without a batch"):
            iter(alone)

    def test_iterating(self) -> None:
        d = self.make(self.usual(504))
        rows = list(d)
        assert [row.batch_shape for row in rows] == [(3,), (3,)]
        assert_close(torch.stack([row.log_partition() for row in rows]), d.log_partition())

    @pytest.mark.parametrize(
        ("batch", "shape"),
        [((), (2, 2)), ((3,), (1, 3)), ((2, 1), (2, 3)), ((2,), (0, 2))],
        ids=str,
    )
    def test_expanding(self, batch: tuple[int, ...], shape: tuple[int, ...]) -> None:
        case = self.usual(505, batch=batch).leaves()
        whole, oracle = self.make(case), self.enumeration(case)

        def choose(x: Tensor) -> Tensor:
            return x.expand(*shape, *x.shape[len(batch) :])

        d = whole.expand(shape)
        self.check_as_chosen(oracle, d, choose)
        if batch in ((), (2,)):
            self.check_events(d, whole, choose)
        assert d.expand(torch.Size(shape)).batch_shape == shape
        for name, potential in d.potentials.items():
            before = whole.potentials[name]
            assert potential.untyped_storage().data_ptr() == before.untyped_storage().data_ptr()
            if name in d._shareable:
                assert potential is before or before.ndim > len(d._part_shapes[name])

    def test_expanded_elements_are_sampled_independently(self) -> None:
        case = self.usual(506, batch=()).changed(lambda _, x: 0 * x)
        d = self.make(case).expand((64,))
        assert len(d.sample(generator=seeded()).unique(dim=0)) > 1

    def test_a_shape_to_which_it_does_not_expand(self, unchecked: None) -> None:
        d = self.make(self.usual(507))
        for wrong in ((3,), (2, 4), (3, 3), (2, 3, 1), (), (-1, 3)):
            with pytest.raises(ArgumentError, match=r"to which \[2, 3\] expands. Got"):
                d.expand(wrong)
        for wrong in (3, "abc", (2.0, 3.0), None):
            with pytest.raises(ArgumentError, match=r"^batch_shape must be sizes"):
                d.expand(wrong)

    def test_other_dtypes(self) -> None:
        case = self.ragged(508, F32).leaves()
        d = self.make(case).to(F64)
        assert d.log_partition().dtype == F64
        oracle = self.enumeration(case)
        assert_close(d.log_partition(), oracle.log_z())
        assert all(x.dtype == F64 for x in d.marginals().values())
        log_z = d.log_partition()
        inputs = list(case.arguments.values())
        for mine, truth in zip(
            grad(log_z[0, 0], inputs), grad(oracle.log_z()[0, 0], inputs), strict=True
        ):
            assert_close(mine, truth)
        again = d.to("cpu", dtype=F32)
        assert torch.equal(again.log_partition(), self.make(case).log_partition())
        half = d.to(torch.float16)
        rounded = case.changed(lambda _, x: x.half())
        assert torch.equal(half.log_partition(), self.make(rounded).log_partition())

    def test_where_a_distribution_cannot_go(self, unchecked: None) -> None:
        d = self.make(self.usual(509))
        for wrong in (torch.long, torch.complex64, torch.bool):
            with pytest.raises(ArgumentError, match=r"^dtype must be one of floats"):
                d.to(wrong)
        with pytest.raises(ArgumentError, match=r"^device must be one that computes"):
            d.to("meta")
        for place in ("nowhere", "cuda:99", 3.5):
            with pytest.raises(ArgumentError, match=r"^device must be a device of this machine"):
                d.to(device=place)
        large = self.make(self.usual(509).changed(lambda _, x: x * 1e200))
        with pytest.raises(ArgumentError, match=r"^dtype must have room"):
            large.to(F32)

    def test_detaching(self) -> None:
        case = self.ragged(510).leaves()
        whole = self.make(case)
        d = whole.detach()
        assert not d.log_partition().requires_grad
        assert not any(x.requires_grad for x in d.marginals().values())
        assert torch.equal(d.log_partition(), whole.log_partition())
        assert whole.log_partition().requires_grad
        for name, potential in d.potentials.items():
            assert potential.data_ptr() == whole.potentials[name].data_ptr()

    def test_options_are_kept(self) -> None:
        d = self.make(self.usual(511), "reference")
        for other in (d[0], d.expand((2, 2, 3)), d.to(F32), d.detach()):
            assert other.tier == "reference"
            lasting = {n: v for n, v in vars(d).items() if isinstance(v, bool | int | str)}
            assert {n: v for n, v in vars(other).items() if n in lasting} == lasting

    def test_the_original_is_not_changed(self) -> None:
        d = self.make(self.ragged(512))
        before = vars(d) | {"potentials": dict(d.potentials)}
        _ = d[0], d.expand((2, 2, 3)), d.to(F32), d.detach()
        for name, value in vars(d).items():
            assert value is before[name] or value == before[name]

    def test_wrapped_by_torch(self) -> None:
        """`Independent` and `MixtureSameFamily` need nothing but what every distribution has."""
        case = self.usual(513, batch=(2, 3))
        d = self.make(case)
        events = d.sample((4,), generator=seeded())
        rows = Independent(d, 1)
        assert_close(rows.log_prob(events), d.log_prob(events).sum(-1))
        assert rows.sample().shape == (2, 3, *d.event_shape)
        assert bool(rows.support.check(events).all())
        shares = Categorical(logits=torch.randn(2, 3, generator=seeded(1), dtype=F64))
        mixture = MixtureSameFamily(shares, d, validate_args=True)
        event = events[:, :, 0]
        expected = d.log_prob(event[:, :, None].expand_as(events)) + shares.logits
        assert_close(mixture.log_prob(event), expected.logsumexp(-1))
        assert mixture.sample((5,)).shape == (5, 2, *d.event_shape)
        assert not mixture.has_rsample

    def test_samples_have_no_derivative(self) -> None:
        d = self.make(self.usual(514).leaves())
        assert not d.has_rsample
        for call in (d.rsample, lambda: d.rsample((3,)), lambda: Independent(d, 1).rsample()):
            with pytest.raises(
                NotDifferentiableError, match=r"discrete.*marginals.*score-function"
            ):
                call()
        with pytest.raises(NotImplementedError):
            d.rsample()

    def test_scores_of_topk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Differentiable, and log Z is not computed."""
        case = self.ragged(515).leaves()
        d, inputs = self.make(case), list(case.arguments.values())
        events, log_probs = d.topk(4)
        log_z = d.log_partition()
        wanted = torch.where(log_probs == -torch.inf, -torch.inf, log_probs + log_z)
        monkeypatch.setattr(type(d), "_log_partition", lambda *_: pytest.fail("log Z is computed"))
        found, scores = d.topk(4, normalised=False)
        monkeypatch.undo()
        assert torch.equal(found, events)
        assert_close(scores, wanted)
        kept = scores > -torch.inf
        ours = grad(scores[kept].sum(), inputs, retain_graph=True)
        truth = grad(wanted[kept].sum(), inputs)
        for x, y in zip(ours, truth, strict=True):
            assert_close(x, y)
