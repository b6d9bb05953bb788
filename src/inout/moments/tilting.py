"""A distribution under other potentials, for the objectives to differentiate."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import torch
from torch import Tensor

from inout.distributions.base import StructuredDistribution
from inout.distributions.derivatives import Potentials


def tilted(d: StructuredDistribution, potentials: Mapping[str, Tensor]) -> StructuredDistribution:
    """The same events under other potentials, of the same shapes or expanded over the batch."""
    twin = copy(d)
    twin.potentials = dict(potentials)
    return twin


def differentiable(values: Mapping[str, Tensor]) -> bool:
    """Whether one of them requires a gradient."""
    return any(value.requires_grad for value in values.values())


def starts(values: Mapping[str, Tensor]) -> Potentials:
    """The same values for autograd to differentiate by, with their graph if they have one."""
    return {name: x if x.requires_grad else _leaf(x) for name, x in values.items()}


def leaves(values: Mapping[str, Tensor]) -> Potentials:
    """The same values for autograd to differentiate by, without a graph behind them."""
    return {name: _leaf(x) for name, x in values.items()}


def _leaf(x: Tensor) -> Tensor:
    # Inference tensors must be copied to require gradients.
    return (x.clone() if x.is_inference() else x.detach()).requires_grad_()


def first_derivatives(
    inputs: Potentials, log_z: Tensor, weights: Tensor, *, graph: bool
) -> Potentials:
    """Gradient of weights . log Z by each input; weights must be 0 where log Z is -inf."""
    alive = torch.where(log_z == -torch.inf, 0.0, log_z)
    found = torch.autograd.grad(
        alive, list(inputs.values()), weights, create_graph=graph, materialize_grads=True
    )
    return dict(zip(inputs, found, strict=True))


def per_element(x: Tensor, like: Tensor) -> Tensor:
    """Values [*b] with dimensions of size 1 for the rest of `like` [*b ...]."""
    return x.reshape(x.shape + (1,) * (like.ndim - x.ndim))


def without_copies(x: Tensor) -> Tensor:
    """The same values with size 1 in the dimensions that `expand` made."""
    for dim in range(x.ndim):
        if x.shape[dim] > 1 and x.stride(dim) == 0:
            x = x.narrow(dim, 0, 1)
    return x
