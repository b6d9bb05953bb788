"""What every dense distribution gives under torch.func and forward-mode differentiation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from inout import InoutError
from tests.contract.event_enumeration import Case, random_like, seeded
from tests.support import assert_close

Arguments = dict[str, Tensor]


def _total(function: Callable[[Arguments], Tensor]) -> Callable[[Arguments], Tensor]:
    return lambda arguments: function(arguments).sum()


class TransformsSuite:
    """The checks; `make`, `usual`, `ragged` and `enumeration` are the family's."""

    one_in = 4  # see tests/seeds.py

    make: Any
    usual: Any
    ragged: Any
    enumeration: Any
    seen: Any

    def _log_z(self, case: Case) -> Callable[[Arguments], Tensor]:
        """log Z as a function of the arguments."""

        def function(arguments: Arguments) -> Tensor:
            return self.make(replace(case, arguments=arguments)).log_partition()

        return function

    def _oracle(self, case: Case) -> Callable[[Arguments], Tensor]:
        """The same, summed over all events."""

        def function(arguments: Arguments) -> Tensor:
            log_z: Tensor = self.enumeration(replace(case, arguments=arguments)).log_z()
            return log_z

        return function

    def _several(self, seed: int) -> tuple[Case, Arguments]:
        """A case without a batch, and arguments [3 ...] for three of them."""
        case = self.usual(seed, batch=())
        more = [random_like(case.arguments, seeded(seed + i)) for i in range(3)]
        return case, {name: torch.stack([x[name] for x in more]) for name in case.arguments}

    def test_gradients_by_torch_func(self) -> None:
        for case in (self.usual(301), self.ragged(302)):
            found, truth = (
                grad(_total(f))(case.arguments) for f in (self._log_z(case), self._oracle(case))
            )
            for name, gradient in truth.items():
                assert_close(found[name], gradient)

    def test_forward_mode(self) -> None:
        for case in (self.usual(303), self.ragged(304)):
            along = random_like(case.arguments, seeded(1))
            log_z, truth = self._log_z(case), self._oracle(case)
            expected = jvp(truth, (case.arguments,), (along,))[1]
            assert_close(jvp(log_z, (case.arguments,), (along,))[1], expected)
            with forward_ad.dual_level():
                dual = {n: forward_ad.make_dual(x, along[n]) for n, x in case.arguments.items()}
                assert_close(forward_ad.unpack_dual(log_z(dual)).tangent, expected)

    def test_forward_mode_through_gradients(self) -> None:
        case = self.ragged(305)
        along = random_like(case.arguments, seeded(2))
        found, truth = (
            jvp(grad(_total(f)), (case.arguments,), (along,))[1]
            for f in (self._log_z(case), self._oracle(case))
        )
        for name, expected in truth.items():
            assert_close(found[name], expected)

    def test_jacobians_and_hessians(self) -> None:
        case = self.ragged(306)
        log_z, truth = self._log_z(case), jacrev(self._oracle(case))(case.arguments)
        for jacobian in (jacrev, jacfwd):
            found = jacobian(log_z)(case.arguments)
            for name, expected in truth.items():
                assert_close(found[name], expected)
        case = self.usual(307, batch=())
        log_z, oracle = self._log_z(case), self._oracle(case)
        truth = jacrev(jacrev(oracle))(case.arguments)
        for second in (hessian(log_z), jacrev(jacrev(log_z))):
            found = second(case.arguments)
            for name, row in truth.items():
                for other, expected in row.items():
                    assert_close(found[name][other], expected)

    def test_vmap_is_a_batch(self) -> None:
        case, several = self._several(308)
        found = vmap(self._log_z(case))(several)
        rows = [{name: x[i] for name, x in several.items()} for i in range(3)]
        assert_close(found, torch.stack([self._oracle(case)(row) for row in rows]))

    def test_gradients_of_each_sample(self) -> None:
        case, several = self._several(309)
        truth = [
            grad(self._oracle(case))({name: x[i] for name, x in several.items()}) for i in range(3)
        ]
        for found in (
            vmap(grad(self._log_z(case)))(several),
            grad(_total(vmap(self._log_z(case))))(several),
        ):
            for name in several:
                assert_close(found[name], torch.stack([x[name] for x in truth]))

    def test_gradients_of_each_sample_by_shared_arguments(self) -> None:
        """All but the first argument are shared: each sample has its own gradient of them."""
        case, several = self._several(310)
        moving = next(iter(several))
        shared = {name: x for name, x in case.arguments.items() if name != moving}

        def by_sample(f: Callable[[Arguments], Tensor]) -> Callable[[Tensor, Arguments], Any]:
            return grad(lambda x, rest: f({moving: x} | rest), argnums=(0, 1))

        found = vmap(by_sample(self._log_z(case)), in_dims=(0, None))(several[moving], shared)
        for i in range(3):
            truth = by_sample(self._oracle(case))(several[moving][i], shared)
            assert_close(found[0][i], truth[0])
            for name in shared:
                assert_close(found[1][name][i], truth[1][name])

    def test_losses_of_each_sample(self) -> None:
        case, several = self._several(311)
        events = torch.stack([self.make(case).sample(generator=seeded(i)) for i in range(3)])

        def loss(arguments: Arguments, event: Tensor) -> Tensor:
            found: Tensor = self.make(replace(case, arguments=arguments)).log_prob(event)
            return found

        rows = [{name: x[i] for name, x in several.items()} for i in range(3)]
        truth = [grad(loss)(row, event) for row, event in zip(rows, events, strict=True)]
        found = vmap(grad(loss))(several, events)
        for name in several:
            assert_close(found[name], torch.stack([x[name] for x in truth]))

    def test_marginals_and_entropy_under_vmap(self) -> None:
        case, several = self._several(312)
        rows = [{name: x[i] for name, x in several.items()} for i in range(3)]
        made = [self.make(replace(case, arguments=row)) for row in rows]

        def marginals(arguments: Arguments) -> Arguments:
            found: Arguments = self.make(replace(case, arguments=arguments)).marginals()
            return found

        def entropy(arguments: Arguments) -> Tensor:
            found: Tensor = self.make(replace(case, arguments=arguments)).entropy()
            return found

        found = vmap(marginals)(several)
        for name in found:
            assert_close(found[name], torch.stack([d.marginals()[name] for d in made]))
        assert_close(vmap(entropy)(several), torch.stack([d.entropy() for d in made]))

    def test_expectations_in_forward_mode(self) -> None:
        """Also of one potential, in whose expectation the others are constants."""
        case = self.ragged(313)
        along = random_like(case.arguments, seeded(3))
        f = random_like(self.enumeration(case).potentials, seeded(4))

        def ours(arguments: Arguments) -> dict[str, Tensor]:
            d = self.make(replace(case, arguments=arguments))
            found: dict[str, Tensor] = d.marginals() | {"entropy": d.entropy()}
            return found | {f"mean of {name}": d.expectation({name: f[name]}) for name in f}

        def potentials(arguments: Arguments) -> Arguments:
            made: Arguments = self.enumeration(replace(case, arguments=arguments)).potentials
            return made

        # Along U, marginals move by covariances with U, and the entropy by one with -score.
        oracle = self.enumeration(case)
        u = jvp(potentials, (case.arguments,), (along,))[1]
        truth = oracle.hessian_times(u) | {"entropy": self.seen(case).slope_of_entropy(u)}
        truth |= {f"mean of {name}": oracle.covariance({name: f[name]}, u) for name in f}
        found = jvp(ours, (case.arguments,), (along,))[1]
        with forward_ad.dual_level():
            dual = {n: forward_ad.make_dual(x, along[n]) for n, x in case.arguments.items()}
            values = {name: forward_ad.unpack_dual(x) for name, x in ours(dual).items()}
        for name, expected in truth.items():
            assert_close(found[name], expected)
            assert_close(values[name].tangent, expected)
            assert not values[name].primal.requires_grad

    def test_covariances_under_vmap(self) -> None:
        case, several = self._several(314)
        f, g = (random_like(self.enumeration(case).potentials, seeded(i)) for i in (5, 6))

        def covariance(arguments: Arguments, f: Arguments) -> Tensor:
            found: Tensor = self.make(replace(case, arguments=arguments)).covariance(f, g)
            return found

        rows = [{name: x[i] for name, x in several.items()} for i in range(3)]
        truth = [self.enumeration(replace(case, arguments=row)).covariance(f, g) for row in rows]
        assert_close(vmap(covariance, in_dims=(0, None))(several, f), torch.stack(truth))
        scaled = {name: torch.stack([x, -2 * x]) for name, x in f.items()}
        truth = [
            self.enumeration(case).covariance({n: x[i] for n, x in scaled.items()}, g)
            for i in (0, 1)
        ]
        assert_close(
            vmap(covariance, in_dims=(None, 0))(case.arguments, scaled), torch.stack(truth)
        )

    def test_moments_refuse_transforms(self) -> None:
        case, several = self._several(315)
        f = random_like(self.enumeration(case).potentials, seeded(7))

        def moments(arguments: Arguments) -> Tensor:
            found: Tensor = self.make(replace(case, arguments=arguments)).moments(f, 2).values
            return found

        with pytest.raises(InoutError, match=r"moments go through neither torch\.func"):
            vmap(moments)(several)
        with forward_ad.dual_level():
            dual = {n: forward_ad.make_dual(x, x) for n, x in case.arguments.items()}
            with pytest.raises(InoutError, match=r"forward mode; use torch\.autograd"):
                moments(dual)
