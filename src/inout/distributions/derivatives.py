"""`Derivatives`: log Z, and the answers that are its derivatives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.checks import expect_shape
from inout._core.errors import ArgumentError
from inout._core.tracing import is_in_torch_func, is_transformed, untraced, without_graph
from inout.distributions.arguments import broadcasts, refuse_non_tensors
from inout.distributions.batches import Batched
from inout.distributions.operators import IN_GRAPH

Potentials = dict[str, Tensor]


@partial(untraced, instead=IN_GRAPH)
class Derivatives(Batched):
    """A distribution whose log Z is a differentiable function of its potentials.

    Marginals and expectations are its first derivatives, covariances its second ones.
    """

    @abstractmethod
    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        """log Z under other potentials of the same shapes, or expanded over the batch."""

    def log_partition(self) -> Float[Tensor, "*b"]:
        """log Z, -inf if no event is possible; differentiable to any order."""
        return self._log_partition(self.potentials)

    def _expanded(self) -> Potentials:
        """Potentials with one copy (a view) for each batch element."""
        return {
            name: potential.expand(self.batch_shape + self._part_shapes[name])
            for name, potential in self.potentials.items()
        }

    def _first_order(
        self, keep: bool, names: Collection[str] = ()
    ) -> tuple[Potentials, Potentials]:
        """Expanded potentials, and the gradient of log Z in each; of all, or of the named ones.

        The others are not expanded, so that shared potentials are not differentiated per element.
        """
        asked = {n: p for n, p in self._expanded().items() if not names or n in names}
        potentials = {
            name: p if p.requires_grad and not p.is_inference() else _alias(p)
            for name, p in (self.potentials | asked).items()
        }
        if is_in_torch_func(*potentials.values()):
            return asked, torch.func.grad(self._total_log_partition)(asked, potentials)
        inputs = {name: potentials[name].requires_grad_() for name in asked}
        total = self._total_log_partition(inputs, potentials)
        return inputs, _gradients(total, inputs, keep)

    def _total_log_partition(self, asked: Potentials, others: Potentials) -> Float[Tensor, ""]:
        """The sum of log Z over the elements that have any event."""
        log_z = self._log_partition(others | asked)
        return torch.where(log_z == -torch.inf, 0.0, log_z).sum()

    def _total_expected(self, asked: Potentials, f: Potentials) -> Float[Tensor, ""]:
        """The sum of E[F] over the elements."""
        first = torch.func.grad(self._total_log_partition)(asked, {})
        return self._total(first, f).sum()

    def marginals(self, *names: str) -> Potentials:
        """Expected number of uses of every part, element by element: the gradient of log Z.

        A tensor [*b ...] for each potential, by default all of them; if a potential is shared by
        positions, the sum over them. Differentiable. Costs a small multiple of log Z, less without
        potentials that the batch shares.
        """
        self.refuse_unknown("marginals", names)
        keep = torch.is_grad_enabled() and self._differentiable(self.potentials)
        with torch.inference_mode(False), torch.enable_grad():
            return self._first_order(keep, names)[1]

    @staticmethod
    def _differentiable(values: Mapping[str, Tensor]) -> bool:
        return any(value.requires_grad for value in values.values())

    def expectation(self, f: Mapping[str, Tensor]) -> Float[Tensor, "*b"]:
        """E[F] of the additive function F(event) = sum of f over the event's parts.

        `f` maps names of potentials to values of their shapes, or shapes that expand to them;
        missing potentials count 0. Differentiable. Costs a small multiple of log Z.
        """
        values = self._checked("f", f)
        return self._total(self.marginals(*values), values)

    def covariance(self, f: Mapping[str, Tensor], g: Mapping[str, Tensor]) -> Float[Tensor, "*b"]:
        """Cov[F, G] of two additive functions: a second derivative of log Z.

        One Hessian-vector product, so it costs a small multiple of log Z. Differentiable.
        """
        left, right = self._checked("f", f), self._checked("g", g)
        moving = self._differentiable(self.potentials) or self._differentiable(left)
        keep = torch.is_grad_enabled() and moving
        with torch.inference_mode(False), torch.enable_grad():
            if is_in_torch_func(*self.potentials.values(), *left.values(), *right.values()):
                return self._total(
                    torch.func.grad(self._total_expected)(self._expanded(), left), right
                )
            inputs, first = self._first_order(True)
            expected = self._total(first, left).sum()
            if not expected.requires_grad:  # constant: f is empty, or there is one event only
                return self._total(first, {}).detach()
            return self._total(_gradients(expected, inputs, keep), right)

    def refuse_unknown(self, argument: str, names: Iterable[str]) -> None:
        """Raise unless all of these are names of potentials."""
        if unknown := sorted(set(names) - set(self.potentials)):
            known = sorted(self.potentials)
            raise ArgumentError(argument, f"names unknown potentials {unknown}; there are {known}")

    def _checked(self, argument: str, f: Mapping[str, Tensor]) -> Potentials:
        """An additive function with all its values expanded to [*b ...]."""
        self.refuse_unknown(argument, f)
        for name, values in f.items():
            refuse_non_tensors(**{f"{argument}[{name!r}]": values})
            wanted = self.batch_shape + self._part_shapes[name]
            if not broadcasts(values.shape, wanted):
                expect_shape(f"{argument}[{name!r}]", values, wanted)
        return {
            name: values.expand(self.batch_shape + self._part_shapes[name])
            for name, values in f.items()
        }

    def _total(self, weights: Potentials, values: Potentials) -> Float[Tensor, "*b"]:
        """Sum over parts of weights * values, with 0 * -inf = 0."""
        total = next(iter(weights.values())).new_zeros(self.batch_shape)
        for name, value in values.items():
            weight = weights[name]
            terms = weight * torch.where(weight == 0, 0.0, value)
            total = total + terms.flatten(len(self.batch_shape)).sum(-1)
        return total


def _alias(x: Tensor) -> Tensor:
    """The same values, apart from the caller's; inference tensors are copied.

    Not by `detach`, which would drop the tangent of forward mode.
    """
    return x.clone() if x.is_inference() else x.view_as(x)


def _gradients(total: Tensor, inputs: Potentials, keep: bool) -> Potentials:
    """Gradients of a total, with their tangents in forward mode; a graph only if it is kept."""
    # torch drops the tangents of gradients without a graph.
    forward = is_transformed(total)
    found = torch.autograd.grad(
        total, list(inputs.values()), create_graph=keep or forward, materialize_grads=True
    )
    own = found if keep or not forward else map(without_graph, found)
    return dict(zip(inputs, own, strict=True))
