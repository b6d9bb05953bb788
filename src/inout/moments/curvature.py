"""Products with the Hessian of log Z: covariances of one additive function with every part."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from inout.distributions.base import StructuredDistribution
from inout.distributions.derivatives import Potentials
from inout.moments.tilting import differentiable, starts, tilted


def hessian_vector_product(
    d: StructuredDistribution, direction: Mapping[str, Tensor]
) -> Potentials:
    """Cov[U, N_v] of an additive function U with the count N_v of every part v, by potential.

    That is the Hessian of log Z, element by element, times `direction` u, where U(event) is the
    sum of u over the event's parts; for each potential a tensor [*b ...], as from `marginals`.
    The Hessian of a log-likelihood is its negative. `direction` is given as for `expectation`;
    values at impossible parts, even infinite ones, do not count. Differentiable, in `direction`
    too. One tangent pass besides the marginals, in time and memory a small multiple of theirs.

    >>> import torch
    >>> from inout import LinearChain
    >>> chain = LinearChain(torch.zeros(2, 2), torch.zeros(2, 2))  # two fair coins
    >>> hessian_vector_product(chain, {"emissions": torch.tensor([[1.0, 0.0], [0.0, 0.0]])})
    {'emissions': tensor([[ 0.2500, -0.2500],
            [ 0.0000,  0.0000]]), 'transitions': tensor([[ 0.1250,  0.1250],
            [-0.1250, -0.1250]])}

    Azuma & Matsumoto, "A generalization of forward-backward algorithm", equations 26-28.
    """
    values = d._checked("direction", direction)
    moving = differentiable(d.potentials) or differentiable(values)
    keep = torch.is_grad_enabled() and moving
    with torch.inference_mode(False), torch.enable_grad():
        inputs = starts(d._expanded())
        first = tilted(d, inputs).marginals(*values)
        kept = [name for name in values if first[name].requires_grad]
        if not kept:  # constant: no direction, or one event only
            return {name: torch.zeros_like(p) for name, p in inputs.items()}
        second = torch.autograd.grad(
            [first[name] for name in kept],
            list(inputs.values()),
            [_where_possible(values[name], direction[name], first[name]) for name in kept],
            create_graph=keep,
            materialize_grads=True,
        )
    return dict(zip(inputs, second, strict=True))


def _where_possible(values: Tensor, given: Tensor, marginals: Tensor) -> Tensor:
    """The values, 0 at impossible parts; as they are if all are finite: a copy costs like log Z."""
    if given.numel() > 0 and not given.is_inference():
        low, high = given.detach().aminmax()
        if bool(low > -torch.inf) and bool(high < torch.inf):
            return values.to(marginals)
    return torch.where(marginals == 0, 0.0, values).to(marginals)
