"""E[L / (S + c)] of additive functions as a sum over tilted distributions, with its gradient.

A node t of the quadrature stands for E[L t^S]: E[L] under the potentials theta + log(t) s, times
Z of these and over Z. Value and gradient are made node by node in the forward pass, so that no
more than one node's graph is alive; only second derivatives make the graph of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from inout.distributions.base import StructuredDistribution
from inout.distributions.derivatives import Potentials
from inout.moments.tilting import differentiable, first_derivatives, leaves, per_element, tilted


@dataclass(frozen=True)
class Ratio:
    """Stands for 1 / (S + c), S the sum of `size`: sum over nodes of weight * exp(S log node).

    Sizes need not be expanded to the potentials' shapes: a node costs less then.
    """

    size: Mapping[str, Tensor]
    log_nodes: Float[Tensor, " q *b"]
    weights: Float[Tensor, " q *b"]

    def tilt(self, potentials: Potentials, node: int) -> Potentials:
        """The potentials of one node's distribution."""
        result = dict(potentials)
        for name, size in self.size.items():
            potential = potentials[name]
            log_node = per_element(self.log_nodes[node], potential).to(potential)
            result[name] = potential + log_node * size.to(potential)
        return result

    def weight(self, node: int, log_ratio: Tensor) -> Tensor:
        """Weight of a node's expectation: its own, times its Z and over ours."""
        return self.weights[node].to(log_ratio) * log_ratio.exp()

    def __len__(self) -> int:
        return len(self.weights)


def expected_ratio(
    d: StructuredDistribution, numerator: Potentials, ratio: Ratio
) -> Float[Tensor, "*b"]:
    """E[L / (S + c)], 0 where no event is possible; differentiable in potentials and numerator.

    For each node log Z and its gradient, and a product with the Hessian if a gradient is wanted.
    """
    potentials = d._expanded()
    like = next(iter(potentials.values()))
    values = {name: x.to(like).contiguous() for name, x in numerator.items()}
    graph = torch.is_grad_enabled()
    wanted = Wanted(graph and differentiable(potentials), graph and differentiable(values))
    result: Tensor = _ExpectedRatio.apply(  # type: ignore[no-untyped-call]
        d, ratio, wanted, tuple(values), *potentials.values(), *values.values()
    )
    return result


def _log_ratio(above: Tensor, below: Tensor) -> Tensor:
    """Difference of two log Z, -inf where either has no events."""
    none = (above == -torch.inf) | (below == -torch.inf)
    finite = torch.where(none, 0.0, above) - torch.where(none, 0.0, below)
    return torch.where(none, -torch.inf, finite)


def _plain(
    d: StructuredDistribution, ratio: Ratio, potentials: Potentials, numerator: Potentials
) -> Float[Tensor, "*b"]:
    """The sum as a graph of torch's, differentiable to any order."""
    log_z = tilted(d, potentials).log_partition()
    result = torch.zeros_like(log_z)
    for node in range(len(ratio)):
        twin = tilted(d, ratio.tilt(potentials, node))
        weight = ratio.weight(node, _log_ratio(twin.log_partition(), log_z))
        result = result + weight * d._total(twin.marginals(), numerator)
    return result


def _with_gradients(
    d: StructuredDistribution,
    ratio: Ratio,
    potentials: Potentials,
    numerator: Potentials,
    wanted: Wanted,
) -> tuple[Float[Tensor, "*b"], Potentials, Potentials]:
    """The sum, and if wanted its gradients by the potentials and by the numerator.

    With W the weight of a node (times Z over Z), N the counts of the parts and E, H its own
    expectation and Hessian, the gradient is sum of W (E[L] E[N] + H l) - value * marginals.
    """
    inputs = leaves(potentials)
    log_z = tilted(d, inputs).log_partition()
    ones = torch.ones_like(log_z)
    marginals = first_derivatives(inputs, log_z, ones, graph=False) if wanted.potentials else {}
    log_z = log_z.detach()
    value = torch.zeros_like(log_z)
    by_potential = {name: torch.zeros_like(m) for name, m in marginals.items()}
    by_numerator = {name: torch.zeros_like(x) for name, x in numerator.items() if wanted.numerator}
    for node in range(len(ratio)):
        with torch.no_grad():
            moved = ratio.tilt(potentials, node)
        inputs = leaves(moved)
        own = tilted(d, inputs).log_partition()
        weight = ratio.weight(node, _log_ratio(own.detach(), log_z)).requires_grad_()
        first = first_derivatives(inputs, own, weight, graph=wanted.potentials)  # W E[N]
        for name, found in by_numerator.items():
            found += first[name].detach()
        if not wanted.potentials:
            value += _dots(first, numerator, like=value)
            continue
        mean, second = _second_derivatives(inputs, weight, first, numerator)  # E[L], W H l
        with torch.no_grad():
            value += weight * mean
            for name, found in by_potential.items():
                found.addcmul_(first[name], per_element(mean, found))
                found += second[name]
    for name, found in by_potential.items():
        found.addcmul_(marginals[name], per_element(value, found), value=-1)
    return value, by_potential, by_numerator


@dataclass(frozen=True)
class Wanted:
    """The inputs to differentiate with respect to."""

    potentials: bool
    numerator: bool


def _dots(weights: Potentials, values: Potentials, *, like: Tensor) -> Float[Tensor, "*b"]:
    """Sum over the parts of weights * values, both finite."""
    total = torch.zeros_like(like)
    for name, x in values.items():
        total += torch.linalg.vecdot(weights[name].flatten(like.ndim), x.flatten(like.ndim))
    return total


def _second_derivatives(
    inputs: Potentials, weight: Tensor, first: Potentials, direction: Potentials
) -> tuple[Float[Tensor, "*b"], Potentials]:
    """E[L], and the Hessian times the direction l, from the gradient W E[N] with its graph."""
    if not direction:
        return torch.zeros_like(weight), {n: torch.zeros_like(x) for n, x in inputs.items()}
    mean, *found = torch.autograd.grad(
        [first[name] for name in direction],
        [weight, *inputs.values()],
        list(direction.values()),
        materialize_grads=True,
    )
    return mean, dict(zip(inputs, found, strict=True))


class _ExpectedRatio(torch.autograd.Function):
    """(potentials, numerator) -> E[L / (S + c)] [*b], its gradient made on the way."""

    @staticmethod
    def forward(
        ctx: Any,
        d: StructuredDistribution,
        ratio: Ratio,
        wanted: Wanted,
        names: tuple[str, ...],
        *tensors: Tensor,
    ) -> Tensor:
        ctx.d, ctx.ratio, ctx.names = d, ratio, names
        potentials, numerator = _split(d, names, tensors)
        with torch.inference_mode(False), torch.enable_grad():
            value, *gradients = _with_gradients(d, ratio, potentials, numerator, wanted)
        ctx.save_for_backward(*tensors)
        ctx.own = [
            found.get(name)
            for found, names in zip(gradients, (potentials, numerator), strict=True)
            for name in names
        ]
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors, outer = ctx.saved_tensors, gradients[0]
        if not torch.is_grad_enabled():
            own = (None if x is None else x * per_element(outer, x) for x in ctx.own)
            return None, None, None, None, *own
        # There may be second derivatives. Aliases: if one input depends on another, the caller's
        # graph handles it.
        inputs = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in tensors]
        value = _plain(ctx.d, ctx.ratio, *_split(ctx.d, ctx.names, inputs))
        results = torch.autograd.grad(
            value, inputs, outer, create_graph=True, materialize_grads=True
        )
        return None, None, None, None, *results


def _split(
    d: StructuredDistribution, names: tuple[str, ...], tensors: Any
) -> tuple[Potentials, Potentials]:
    """Potentials and numerator from the arguments of the function."""
    count = len(d.potentials)
    return (
        dict(zip(d.potentials, tensors[:count], strict=True)),
        dict(zip(names, tensors[count:], strict=True)),
    )


def probability_of_none(
    d: StructuredDistribution, size: Mapping[str, Tensor]
) -> Float[Tensor, "*b"]:
    """P(S = 0), S the sum of `size`: that none of the counted parts is used; one log Z more."""
    potentials = d._expanded()
    without = {
        name: torch.where(size[name] > 0, -torch.inf, p) if name in size else p
        for name, p in potentials.items()
    }
    return _log_ratio(tilted(d, without).log_partition(), d.log_partition()).exp()
