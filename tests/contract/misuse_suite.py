"""What every dense distribution does with bad arguments, and with good ones used in odd ways."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.masked import masked_tensor

from inout import ArgumentError, InoutError
from tests.contract.event_enumeration import Case, seeded
from tests.support import assert_close


def unusual(x: Tensor) -> dict[str, tuple[Tensor, str]]:
    """A tensor as others that do not hold one plain value for each place, and a hint for each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some of them are prototypes, or deprecated
        found = {
            "sparse": (x.to_sparse(), r"to_dense\(\)"),
            "meta": (x.to("meta"), "no values"),
            "masked": (masked_tensor(x, torch.ones_like(x, dtype=torch.bool)), r"to_tensor\("),
        }
        if x.ndim > 1:
            nested = torch.nested.nested_tensor(list(x))
            found["nested"] = nested, r"to_padded_tensor.*lengths"
        if x.is_floating_point():
            codes = torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8)
            found["quantised"] = codes, r"dequantize\(\)"
        return found


def lengths_read(case: Case) -> list[int]:
    """The length of each element, between 0 and n; n if they are wrong, and are to be refused."""
    given = case.n if case.lengths is None else case.lengths
    try:
        if isinstance(given, Tensor) and type(given) is not Tensor:
            raise TypeError("not dense")
        own = torch.as_tensor(given).expand(case.batch).flatten().tolist()
        return [min(max(int(n), 0), case.n) for n in own]
    except (TypeError, ValueError, RuntimeError):
        return [case.n] * len(list(case.elements()))


class MisuseSuite:
    """The checks; `make`, `usual` and `ragged` are the family's (`DistributionSuite`)."""

    one_in = 3  # see tests/seeds.py

    make: Any
    case: Any
    usual: Any
    ragged: Any
    padding: Any
    sizes: tuple[int, int]

    def used_places(self, name: str, x: Tensor) -> tuple[int, int]:
        """The first and the last place of an argument that counts."""
        return 0, x.numel() - 1

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_bad_values_are_refused_by_name(self, value, unchecked):
        """At the latest by the first query, whichever it is."""
        queries = (
            lambda d: d.log_partition(),
            lambda d: d.marginals(),
            lambda d: d.mode,
            lambda d: d.topk(2),
            lambda d: d.sample((2,), generator=seeded()),
            lambda d: d.entropy(),
        )
        case = self.usual(110)
        for name, x in case.arguments.items():
            for place in self.used_places(name, x):
                spoilt = x.clone()
                spoilt.view(-1)[place] = value
                for query in queries:
                    with pytest.raises(ArgumentError, match=rf"^{name} must be finite or -inf"):
                        query(self.make(replace(case, arguments=case.arguments | {name: spoilt})))

    def test_wrong_shapes_and_types_are_refused_by_name(self, unchecked):
        case = self.usual(111)
        for name, x in case.arguments.items():
            for wrong in (self.cut_short(name, x), x[..., None, None].expand(*x.shape, 2, 2)):
                with pytest.raises(ArgumentError, match=r"must (be|have shape) \["):
                    self.make(replace(case, arguments=case.arguments | {name: wrong}))
            with pytest.raises(ArgumentError, match=rf"^{name} must be a float tensor"):
                self.make(replace(case, arguments=case.arguments | {name: x.long()}))

    def cut_short(self, name: str, x: Tensor) -> Tensor:
        """An argument with one row too few to fit the others."""
        return x[..., :-1]

    def test_wrong_lengths_are_refused(self, unchecked):
        case = self.usual(112)
        n = self.sizes[0]
        for wrong in (
            torch.full((2, 3), n + 1),
            torch.full((2, 3), -1),
            torch.full((2,), n),
            torch.full((2, 3), float(n)),
            torch.full((2, 3), True),
            [[n, n, n], [n, n + 1, n]],
            [[n, n, n], [n, n]],
            [[float(n)] * 3] * 2,
            [["4"] * 3] * 2,
            [n] * 6,
            np.full((2, 3), n),
            "lengths",
        ):
            with pytest.raises(ArgumentError, match=r"^lengths must be"):
                self.make(replace(case, lengths=wrong))

    def test_lengths_that_are_not_dense_are_refused(self, unchecked):
        case = self.ragged(126)
        for kind, (wrong, hint) in unusual(case.lengths).items():
            with pytest.raises(ArgumentError, match=rf"^lengths must be .* {kind} one.*{hint}"):
                self.make(replace(case, lengths=wrong))

    def test_wrong_tier_is_refused(self):
        with pytest.raises(ArgumentError, match=r"^tier must be"):
            self.make(self.usual(), "abacus")

    def test_wrong_events_are_refused(self, unchecked):
        d = self.make(self.usual(113))
        event = d.mode
        for wrong in (event[..., :-1], event.double(), event[0, 0].new_full(event.shape, 99)):
            with pytest.raises(ArgumentError):
                d.log_prob(wrong)

    def test_what_is_no_tensor_is_refused_by_name(self, unchecked):
        case = self.usual(122)
        for name, x in case.arguments.items():
            for wrong in (x.numpy(), x.tolist(), 1.0):
                with pytest.raises(ArgumentError, match=rf"^{name} must be a tensor.*as_tensor"):
                    self.make(replace(case, arguments=case.arguments | {name: wrong}))
        d = self.make(case)
        name = next(iter(d.potentials))
        with pytest.raises(ArgumentError, match=r"must be a tensor"):
            d.log_prob(d.mode.numpy())
        with pytest.raises(ArgumentError, match=rf"^f\['{name}'\] must be a tensor"):
            d.expectation({name: d.potentials[name].numpy()})

    def test_tensors_that_are_not_dense_are_refused_by_name(self, unchecked):
        """With a hint at what makes them dense."""
        case = self.ragged(125)
        for name, x in (case.arguments | case.others).items():
            for kind, (wrong, hint) in unusual(x).items():
                spoilt = replace(
                    case,
                    arguments={n: wrong if n == name else y for n, y in case.arguments.items()},
                    others={n: wrong if n == name else y for n, y in case.others.items()},
                )
                with pytest.raises(ArgumentError, match=rf"^{name} must be .* {kind} one.*{hint}"):
                    self.make(spoilt)
        d = self.make(case)
        for kind, (wrong, hint) in unusual(d.mode).items():
            for query in (d.log_prob, d.parts, d.support.check):
                with pytest.raises(ArgumentError, match=rf"must be .* {kind} one.*{hint}"):
                    query(wrong)

    def test_sampling_without_a_generator_uses_that_of_torch(self, unchecked):
        d = self.make(self.usual())
        state = torch.get_rng_state()
        try:
            torch.set_rng_state(seeded(123).get_state())
            found = d.sample((20,)), d.sample((20,))
        finally:
            torch.set_rng_state(state)
        own = seeded(123)
        for events in found:
            assert torch.equal(events, d.sample((20,), generator=own))
        assert not torch.equal(*found)
        with pytest.raises(ArgumentError, match=r"^generator must be a torch\.Generator"):
            d.sample((2,), generator=7)

    def test_tracing_is_refused(self):
        """It would make log Z of one input a constant."""
        case = self.usual(124)

        def traced(*arguments: Tensor) -> Tensor:
            given = dict(zip(case.arguments, arguments, strict=True))
            return self.make(replace(case, arguments=given)).log_partition()

        d = self.make(case)
        inputs = tuple(case.arguments.values())
        for function in (traced, lambda *_: d.log_partition(), lambda *_: d.mode):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that torch.jit.trace is deprecated
                with pytest.raises(InoutError, match=r"torch\.jit\.trace cannot record"):
                    torch.jit.trace(function, inputs)

    @pytest.mark.parametrize("tier", ["cpu", "reference"])
    def test_no_tier_takes_bad_values(self, tier):
        case = self.usual(114)
        for name, x in case.arguments.items():
            spoilt = x.clone()
            spoilt.view(-1)[self.used_places(name, x)[0]] = math.nan
            with pytest.raises(ArgumentError, match=f"^{name} must be finite"):
                self.make(
                    replace(case, arguments=case.arguments | {name: spoilt}), tier
                ).log_partition()
            with pytest.raises(ArgumentError, match=f"^{name} must be finite"):
                self.make(replace(case, arguments=case.arguments | {name: spoilt})).forest()

    def test_potentials_changed_before_the_backward_pass(self):
        """Either the gradient is that of the old potentials, or torch refuses."""
        for name in self.usual(115).arguments:
            case = self.usual(115).leaves()
            x = case.arguments[name]
            (wanted,) = grad(self.make(case).log_partition().sum(), x)
            log_z = self.make(case).log_partition().sum()
            with torch.no_grad():
                x.mul_(3)
            found, refusal = None, ""
            try:
                (found,) = grad(log_z, x)
            except RuntimeError as error:
                refusal = str(error)
            if found is None:
                assert "modified by an inplace operation" in refusal
            else:
                assert_close(found, wanted)

    def test_a_second_backward_pass_must_be_announced(self):
        case = self.usual(116).leaves()
        inputs = list(case.arguments.values())
        log_z = self.make(case).log_partition().sum()
        first = grad(log_z, inputs, retain_graph=True)
        for x, y in zip(first, grad(log_z, inputs), strict=True):
            assert torch.equal(x, y)
        with pytest.raises(RuntimeError, match="second time"):
            grad(log_z, inputs)

    def test_lengths_changed_after_construction_do_not_matter(self):
        case = self.ragged(117).leaves()
        expected = self.make(case).log_partition()
        lengths = case.lengths.clone()
        d = self.make(replace(case, lengths=lengths))
        lengths.fill_(10**6)
        assert torch.equal(d.log_partition(), expected)

    def test_inference_mode(self):
        case = self.usual(118)
        plain = self.make(case)
        expected = [*plain.marginals().values(), plain.entropy()]
        with torch.inference_mode():
            d = self.make(case.changed(lambda _, x: x.clone()))
            found = [*d.marginals().values(), d.entropy()]
            alone = [d.marginals(name)[name] for name in d.potentials]
            d.covariance(d.potentials, d.potentials)
            again = d.expand((2, *d.batch_shape))[0].marginals()
        for x, y in zip(again.values(), expected[:-1], strict=True):
            assert_close(x, y.detach())
        for x, y in zip([*found, *alone], [*expected, *expected[:-1]], strict=True):
            assert_close(x, y.detach())

    def test_an_infinite_weight_of_nothing_has_gradient_0(self):
        case = self.usual(119).changed(lambda _, x: torch.full_like(x, -torch.inf)).leaves()
        inputs = list(case.arguments.values())
        for x in grad(self.make(case).log_partition().pow(2).sum(), inputs):
            assert bool((x == 0).all())

    def test_a_batch_of_nothing(self):
        case = self.case(seeded(120), (0,), *self.sizes)
        d = self.make(case)
        assert d.log_partition().shape == (0,)
        assert d.covariance(d.potentials, d.potentials).shape == (0,)
        assert d.mode.shape[0] == 0

    def test_padding_of_an_empty_element_may_be_nan(self):
        """Also for the gradients that all elements share."""
        n = self.sizes[0]
        lengths = torch.tensor([[n, 0, 1], [n - 1, n, 0]])
        case = replace(self.usual(121), lengths=lengths).leaves()
        expected = grad(self.total(case), list(case.arguments.values()))
        masks = self.padding(case)
        spoilt = case.changed(lambda name, x: x.detach().masked_fill(masks[name], torch.nan))
        spoilt = spoilt.leaves()
        found = grad(self.total(spoilt), list(spoilt.arguments.values()))
        for x, y in zip(found, expected, strict=True):
            assert torch.equal(x, y)

    def total(self, case: Any) -> Tensor:
        """The sum of log Z where it is finite."""
        log_z = self.make(case).log_partition()
        return torch.where(log_z == -torch.inf, 0.0, log_z).sum()
