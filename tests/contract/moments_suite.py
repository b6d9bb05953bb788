"""What every dense distribution says of moments and histograms, against enumeration."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from inout import ArgumentError
from tests.contract.event_enumeration import F32, F64, random_like, seeded
from tests.support import assert_close

METHODS = ("polynomial", "circle", "taylor")


def _moments(p: Tensor, sums: list[Tensor], orders: tuple[int, ...]) -> Tensor:
    """E[F₁^n₁ ⋯ F_K^n_K] for all powers up to `orders`, of events with probabilities p."""
    table = p
    for x, order in zip(sums, orders, strict=True):
        powers = torch.stack([x**n for n in range(1 + order)], -1)
        table = table[..., None] * powers.reshape(len(p), *[1] * (table.ndim - 1), -1)
    return table.sum(0)


class MomentsSuite:
    """The checks; `make`, `usual` and `ragged` are the family's (`DistributionSuite`)."""

    one_in = 4  # see tests/seeds.py

    make: Any
    usual: Any
    ragged: Any
    enumeration: Any
    _pulled_back: Any

    def sums(self, oracle: Any, f: dict[str, Tensor]) -> list[Tensor]:
        """F of every event, for each element; complex if f is."""
        real = oracle.scores({n: x.real for n, x in f.items()})
        if not any(x.is_complex() for x in f.values()):
            return list(real)
        imaginary = oracle.scores({n: (x + 0j).imag for n, x in f.items()})
        return [torch.complex(x, y) for x, y in zip(real, imaginary, strict=True)]

    def check_moments(
        self, case: Any, functions: list[Any], orders: tuple[int, ...], tolerance: float = 1e-9
    ) -> None:
        """All kinds by all methods, relative to the absolute moments."""
        d, oracle = self.make(case), self.enumeration(case)
        chances = oracle.probabilities()
        sums = [self.sums(oracle, f) for f in functions]
        means = [[(p * x).sum() for p, x in zip(chances, of_f, strict=True)] for of_f in sums]
        about = [
            [x - mean for x, mean in zip(*pair, strict=True)]
            for pair in zip(sums, means, strict=True)
        ]
        for kind, values in (("raw", sums), ("central", about)):
            truth, scale = (
                torch.stack(
                    [_moments(p, of_b, orders) for p, *of_b in zip(chances, *v, strict=True)]
                )
                for v in (values, [[x.abs() for x in of_f] for of_f in values])
            )
            for method in METHODS:
                found = d.moments(functions, orders, kind=kind, method=method)
                assert found.values.shape == (*case.batch, *(1 + n for n in orders))
                assert found.error.shape == found.values.shape
                off = (found.values.reshape(truth.shape) - truth).abs() / (scale + 1e-6)
                assert float(off.max()) < tolerance, (kind, method, float(off.max()))

    def test_moments_of_one_function(self) -> None:
        for case in (self.ragged(202), self.usual(203, batch=())):
            f = random_like(self.enumeration(case).potentials, seeded(1))
            self.check_moments(case, [f], (8,))

    def test_moments_of_three_functions(self) -> None:
        case = self.ragged(204)
        potentials = self.enumeration(case).potentials
        functions = [random_like(potentials, seeded(i)) for i in (1, 2, 3)]
        functions[1] = dict(list(functions[1].items())[:1])  # one that leaves out a potential
        self.check_moments(case, functions, (1, 3, 1))

    def test_moments_of_complex_functions(self) -> None:
        case = self.ragged(205)
        potentials = self.enumeration(case).potentials
        one, other, third = (random_like(potentials, seeded(i)) for i in (4, 5, 6))
        f = {n: torch.complex(one[n], other[n]) for n in one}
        self.check_moments(case, [f], (8,))
        self.check_moments(case, [f, third], (4, 3))

    def test_cumulants_by_every_method(self) -> None:
        case = self.ragged(206)
        d = self.make(case)
        potentials = self.enumeration(case).potentials
        f, g = (random_like(potentials, seeded(i)) for i in (7, 8))
        central = d.moments([f, g], (4, 2), kind="central")
        ways = [d.moments([f, g], (4, 2), kind="cumulants", method=m).values for m in METHODS]
        for way in ways[1:]:
            assert_close(way, ways[0], rtol=1e-8, atol=1e-8)
        found = d.moments([f, g], (4, 2), kind="cumulants")
        some = d.log_partition() > -torch.inf
        assert_close(found[1, 0], d.expectation(f))
        assert_close(found[1, 1], d.covariance(f, g))
        assert_close(found[3, 0], central[3, 0], rtol=1e-9, atol=1e-9)
        fourth = central[4, 0] - 3 * central[2, 0] ** 2
        assert_close(found[4, 0], torch.where(some, fourth, 0.0), rtol=1e-9, atol=1e-8)

    def test_moments_under_hard_constraints(self) -> None:
        """Impossible parts, elements without events, and functions that are -inf there."""
        case = self.usual(207)
        generator = seeded(9)
        case = case.changed(
            lambda _, x: torch.where(
                torch.rand(x.shape, generator=generator, dtype=F64) < 0.3, -torch.inf, x
            )
        )
        oracle = self.enumeration(case)
        f = random_like(oracle.potentials, seeded(10))
        self.check_moments(case, [f], (6,))
        dead = case.changed(lambda _, x: torch.full_like(x, -torch.inf))
        made = self.make(dead.leaves())
        found = made.moments(f, 3).values
        some = made.log_partition() > -torch.inf  # of local alignments the empty one
        assert torch.equal(found[..., 0], some.to(found))
        assert not bool(found[..., 1:].any())
        f = {n: torch.where(oracle.potentials[n] == -torch.inf, -torch.inf, f[n]) for n in f}
        assert bool(self.make(case).moments(f, 3).values.isfinite().all())

    def test_sparse_functions_are_functions(self) -> None:
        case = self.ragged(220)
        d = self.make(case)
        f = random_like(self.enumeration(case).potentials, seeded(24))
        f = {n: x * (x > 1) for n, x in f.items()}
        sparse = d.moments({n: x.to_sparse() for n, x in f.items()}, 3)
        assert_close(sparse.values, d.moments(f, 3).values)

    def test_padding_of_functions_never_counts(self) -> None:
        case = self.ragged(208)
        d = self.make(case)
        f = random_like(self.enumeration(case).potentials, seeded(11))
        used = d.marginals()
        odd = {n: torch.where(used[n] == 0, math.nan, x) for n, x in f.items()}
        assert_close(d.moments(odd, 5).values, d.moments(f, 5).values)

    def test_moments_of_single_precision_are_those_of_its_numbers(self) -> None:
        case = self.ragged(209, F32)
        wide = case.changed(lambda _, x: x.double())
        f = random_like(self.enumeration(wide).potentials, seeded(12))
        ours = self.make(case).moments(f, 4).values
        assert ours.dtype == F64
        assert_close(ours, self.make(wide).moments(f, 4).values, rtol=1e-9, atol=1e-9)

    def test_derivatives_of_moments(self) -> None:
        """In potentials: Cov[F^n, N_v]; in the function: n E[F^(n-1) N_v]."""
        case = self.ragged(210).leaves()
        d, oracle = self.make(case), self.enumeration(case)
        f = random_like(oracle.potentials, seeded(13))
        f = {n: x.requires_grad_() for n, x in f.items()}
        raw = d.moments(f, 3)[3]
        ours = grad(raw.sum(), [*case.arguments.values(), *f.values()])
        sums = self.sums(oracle, {n: x.detach() for n, x in f.items()})
        pairs = list(zip(oracle.probabilities(), sums, oracle.counts(), strict=True))
        slopes = torch.stack([(p * (x**3 - (p * x**3).sum())) @ c for p, x, c in pairs])
        truth = self._pulled_back(oracle, case, oracle.unflat(slopes))
        for name, mine in zip(case.arguments, ours, strict=False):
            assert_close(mine, truth[name], rtol=1e-8, atol=1e-8)
        inner = oracle.unflat(torch.stack([3 * (p * x**2) @ c for p, x, c in pairs]))
        for name, mine in zip(f, ours[len(case.arguments) :], strict=True):
            assert_close(mine, inner[name], rtol=1e-8, atol=1e-8)

    @pytest.mark.parametrize("method", METHODS)
    def test_moments_pass_gradcheck(self, method: str) -> None:
        case = self.usual(211, batch=()).leaves()
        names = list(case.arguments)
        f = random_like(self.enumeration(case).potentials, seeded(14))

        def central(*arguments: Tensor) -> Tensor:
            again = replace(case, arguments=dict(zip(names, arguments, strict=True)))
            return self.make(again).moments(f, 3, kind="central", method=method).values

        arguments = tuple(case.arguments.values())
        assert gradcheck(central, arguments, fast_mode=True)
        if method == "polynomial":
            assert gradgradcheck(central, arguments, fast_mode=True, atol=1e-4)

    def test_weighted_marginals(self) -> None:
        """Theorem 2: equal to enumeration, and to the forward form with one function more."""
        case = self.ragged(212)
        d, oracle = self.make(case), self.enumeration(case)
        f, g, h = (random_like(oracle.potentials, seeded(i)) for i in (15, 16, 17))
        found = d.weighted_marginals([f, g], (3, 1))
        sums = zip(self.sums(oracle, f), self.sums(oracle, g), strict=True)
        triples = zip(oracle.probabilities(), sums, oracle.counts(), strict=True)
        truth = oracle.unflat(torch.stack([(p * x**3 * y) @ c for p, (x, y), c in triples]))
        for name in truth:
            assert_close(found[name], truth[name], rtol=1e-9, atol=1e-9)
        forward = d.moments([f, g, h], (3, 1, 1))[3, 1, 1]
        batch = len(case.batch)
        total = sum((found[n] * h[n]).flatten(batch).sum(-1) for n in found)
        assert_close(total, forward, rtol=1e-9, atol=1e-9)
        i = {n: torch.complex(f[n], g[n]) for n in f}
        twice = d.weighted_marginals(i, 2)
        squares = zip(oracle.probabilities(), self.sums(oracle, i), oracle.counts(), strict=True)
        truth = torch.stack([(p * x**2) @ (c + 0j) for p, x, c in squares])
        for name, whole in oracle.unflat(truth).items():
            assert_close(twice[name], whole, rtol=1e-9, atol=1e-9)

    def test_weighted_marginals_about_the_mean_are_differentiable(self) -> None:
        case = self.usual(213, batch=()).leaves()
        names = list(case.arguments)
        f, u = (random_like(self.enumeration(case).potentials, seeded(i)) for i in (18, 19))

        def weighted(*arguments: Tensor) -> Tensor:
            again = replace(case, arguments=dict(zip(names, arguments, strict=True)))
            found = self.make(again).weighted_marginals(f, 2)
            return sum((found[n] * u[n]).sum() for n in found)  # type: ignore[return-value]

        assert gradcheck(weighted, tuple(case.arguments.values()), fast_mode=True)
        d, oracle = self.make(case), self.enumeration(case)
        found = d.weighted_marginals(f, 2, kind="central")
        ((p, x, c),) = zip(
            oracle.probabilities(), self.sums(oracle, f), oracle.counts(), strict=True
        )
        truth = oracle.unflat(((p * (x - (p * x).sum()) ** 2) @ c)[None])
        for name in truth:
            assert_close(found[name], truth[name].reshape(found[name].shape), rtol=1e-9, atol=1e-9)

    def test_theorem_4_weighted_marginals_on_circles(self) -> None:
        """By circles in all or some of the functions: equal to enumeration, with gradients."""
        case = self.ragged(223)
        d, oracle = self.make(case), self.enumeration(case)
        f, g, h = (random_like(oracle.potentials, seeded(i)) for i in (30, 31, 32))
        sums = list(zip(self.sums(oracle, f), self.sums(oracle, g), strict=True))
        found = oracle.probabilities(), sums, oracle.counts()
        for kind in ("raw", "central"):
            rows = []
            for p, (x, y), c in zip(*found, strict=True):
                off = ((p * x).sum(), (p * y).sum()) if kind == "central" else (0.0, 0.0)
                rows.append((p * (x - off[0]) ** 4 * (y - off[1]) ** 2) @ c)
            truth = oracle.unflat(torch.stack(rows))
            for method in ("circle", ("circle", "polynomial"), ("polynomial", "circle")):
                here = d.weighted_marginals([f, g], (4, 2), kind=kind, method=method)
                for name in truth:
                    scale = float(truth[name].abs().max())
                    assert_close(here[name], truth[name], rtol=1e-8, atol=1e-8 * scale)
        mixed = d.moments([f, g, h], (5, 1, 2), method=("polynomial", "circle", "polynomial"))
        plain = d.moments([f, g, h], (5, 1, 2), method="polynomial")
        assert mixed.method == "polynomial, circle, polynomial"
        assert_close(mixed.values, plain.values, rtol=1e-8, atol=1e-8)
        assert float(mixed.error.max()) < 1e-8
        for method in (("circle",), ("circle", "taylor"), "taylor"):
            with pytest.raises(ArgumentError, match="method"):
                d.weighted_marginals([f, g], (1, 1), method=method)

    def test_signed_and_complex_weights(self) -> None:
        """Σ Φ F^n with φ = exp(potential) · factor, over all events, by every method."""
        case = self.ragged(224)
        d, oracle = self.make(case), self.enumeration(case)
        f, g, turn, grow = (random_like(oracle.potentials, seeded(i)) for i in (33, 34, 35, 36))
        grow = {n: 0.3 * x for n, x in grow.items()}
        name = list(turn)[-1]
        turn, grow = {name: turn[name]}, {name: grow[name]}
        signs = {name: torch.where(turn[name] > 0, 1.0, -1.0).double()}
        for factors in (signs, {name: torch.polar(grow[name].exp(), 3 * turn[name])}):
            angles = {name: torch.angle(factors[name])}
            logs = {name: factors[name].abs().log()}
            whole, rows, counted = [], [], []
            every = oracle.scores(angles), oracle.scores(logs), self.sums(oracle, f)
            more = self.sums(oracle, g), oracle.probabilities(), oracle.counts()
            for angle, log, x, y, p, c in zip(*every, *more, strict=True):
                size = p * log.exp()
                phi = torch.polar(size, angle) / (size.sum() if size.any() else 1.0)
                rows.append(_moments(phi, [x + 0j, y + 0j], (4, 2)))
                counted.append((phi * x**4 * y**2) @ (c + 0j))
                whole.append(size.sum().log())
            truth = torch.stack(rows)
            weighted = oracle.unflat(torch.stack(counted))
            ways = ("auto", "polynomial", "circle", ("circle", "polynomial"))
            for method in ways:
                found = d.moments([f, g], (4, 2), factors=factors, method=method)
                assert found.values.is_complex() == (factors is not signs)
                ours = found.values.reshape(truth.shape) + 0j
                assert_close(ours, truth, rtol=1e-8, atol=1e-8 * float(truth.abs().max()))
                parts = d.weighted_marginals([f, g], (4, 2), factors=factors, method=method)
                for n, x in weighted.items():
                    scale = 1e-8 * float(x.abs().max())
                    assert_close(parts[n] + 0j, x, rtol=1e-8, atol=scale)
            shift = (found.log_partition - d.log_partition()).reshape(-1)
            some = torch.stack(whole) > -torch.inf
            assert_close(shift[some], torch.stack(whole)[some])
        with pytest.raises(ArgumentError, match="kind"):
            d.moments(f, 2, factors=signs, kind="central")
        with pytest.raises(ArgumentError, match="method"):
            d.moments(f, 2, factors=signs, method="taylor")
        with pytest.raises(ArgumentError, match="factors"):
            d.moments(f, 2, factors={"nothing": signs[name]})

    def test_many_sparse_functions_at_once(self) -> None:
        case = self.ragged(214)
        d, oracle = self.make(case), self.enumeration(case)
        potentials = oracle.potentials
        f = random_like(potentials, seeded(20))
        generator = seeded(21)
        others = {}
        for name, p in potentials.items():
            shape = (5, *p.shape[len(case.batch) :])
            kept = torch.rand(shape, generator=generator, dtype=F64) < 0.2
            others[name] = torch.randn(shape, generator=generator, dtype=F64) * kept
        found = d.expected_products(f, 3, {n: x.to_sparse() for n, x in others.items()})
        assert found.shape == (*case.batch, 5)
        assert_close(found, d.expected_products(f, 3, others))
        for j in range(5):
            g = {n: x[j] for n, x in others.items()}
            assert_close(found[..., j], d.moments([f, g], (3, 1))[3, 1], rtol=1e-9, atol=1e-9)
        with pytest.raises(ArgumentError, match="others"):
            d.expected_products(f, 3, {"nothing": torch.zeros(5, 2)})

    def test_histogram(self) -> None:
        for case in (self.usual(215), self.ragged(216), self.usual(217, batch=())):
            d, oracle = self.make(case), self.enumeration(case)
            f = random_like(oracle.potentials, seeded(22))
            f = {n: (2 * x).round() for n, x in f.items()}
            found = d.histogram(f)
            flat = found.probabilities.reshape(len(oracle.elements), -1)
            chances, sums = oracle.probabilities(), self.sums(oracle, f)
            for b, (p, x) in enumerate(zip(chances, sums, strict=True)):
                truth = torch.stack([(p * (x == v)).sum() for v in found.values.tolist()])
                assert_close(flat[b], truth, rtol=0, atol=1e-13)
                assert abs(float(flat[b].sum()) - float(p.sum())) < 1e-12
            sums = torch.cat([x[p > 0] for p, x in zip(chances, sums, strict=True)])
            assert found.first == int(sums.min())
            assert int(found.values[-1]) == int(sums.max())
            assert not bool(found[int(sums.max()) + 1].any())
            assert_close(found[found.first], found.probabilities[..., 0])

    def test_histograms_have_gradients(self) -> None:
        case = self.usual(218, batch=()).leaves()
        names = list(case.arguments)
        f = random_like(self.enumeration(case).potentials, seeded(23))
        f = {n: x.round() for n, x in f.items()}

        def probabilities(*arguments: Tensor) -> Tensor:
            again = replace(case, arguments=dict(zip(names, arguments, strict=True)))
            return self.make(again).histogram(f).probabilities  # type: ignore[no-any-return]

        assert gradcheck(probabilities, tuple(case.arguments.values()), fast_mode=True)

    def test_batches_of_nothing(self) -> None:
        d = self.make(self.usual(221, batch=(0,)))
        f = {n: torch.ones(shape, dtype=F64) for n, shape in d._part_shapes.items()}
        for method in ("auto", "circle"):
            assert d.moments(f, 2, method=method).values.shape == (0, 3)
        assert d.histogram(f).probabilities.shape[0] == 0
        for name, x in d.weighted_marginals(f, 1).items():
            assert x.shape == (0, *d._part_shapes[name])

    def test_elements_on_which_a_function_is_constant(self) -> None:
        """Beside others, at every order: there is nothing to measure digits by."""
        case = self.ragged(222).leaves()
        d = self.make(case)
        f = {n: torch.full(s, 7.0, dtype=F64) for n, s in d._part_shapes.items()}
        for order in (1, 2, 12):
            values = self.make(case).moments(f, order, kind="central").values
            assert bool(values.isfinite().all())
            slopes = grad(values.sum(), list(case.arguments.values()))
            assert all(bool(x.isfinite().all()) for x in slopes)
        assert set(d.weighted_marginals(f, 1)) == set(d.potentials)

    def test_functions_that_make_no_sense_are_refused(self) -> None:
        d = self.make(self.usual(219))
        name = next(iter(d.potentials))
        some = torch.zeros(d._part_shapes[name])
        for functions, orders, message in (
            ({"nothing": some}, 2, "nothing"),
            ({name: torch.zeros(7, 7, 7, 7, 7, 7)}, 2, "shape"),
            ({name: torch.full_like(some, math.nan)}, 2, "finite"),
            ([{name: some}], (2, 2), "one order for each"),
            ([{name: some}], (-1,), "whole numbers"),
        ):
            with pytest.raises(ArgumentError, match=message):
                d.moments(functions, orders)
        for wrong in ({"kind": "mean"}, {"method": "magic"}, {"precision": 0.0}):
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                d.moments({name: some}, 2, **wrong)
        with pytest.raises(ArgumentError, match="whole numbers"):
            d.histogram({name: some + 0.5})
