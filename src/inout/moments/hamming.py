"""The Hamming objective: log-probabilities of an event's parts, each by itself."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.checks import expect_one_of
from inout._core.errors import ArgumentError
from inout.distributions.base import StructuredDistribution
from inout.distributions.chain import LinearChain
from inout.distributions.pcfg import PCFG


def log_marginals(
    d: StructuredDistribution, event: Tensor, potential: str | None = None
) -> Float[Tensor, "*sb"]:
    """Sum of log P(part) over an event's parts, individually; to be maximised.

        sum over t of log P(y_t = gold label of t)

    for a chain. It is the sum, not the mean of equation 32: divide by `d.lengths` for that.
    `event` is [*s *b ...], the result [*s *b]. `potential` names the parts that count: if it is
    not given, `emissions` (labels of a `LinearChain` or `HMM`), `log_potentials` (segments of a
    `SemiMarkov`, each with the label before it; labelled spans of a `SpanTree`) or `preterminals`
    (of a `PCFG`). Parts that an event can use more than once have no probability: transitions
    shared by all positions, and rules, are refused.

    A part of probability 0 gives -inf, and the gradient of the others. Differentiable: the
    gradient (equations 34-41) is one product with the Hessian of log Z, so value and gradient
    cost a small multiple of log Z. Computed in float64, because probabilities may be tiny.

    >>> import torch
    >>> from inout import LinearChain
    >>> chain = LinearChain(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.zeros(2, 2))
    >>> log_marginals(chain, torch.tensor([1, 0]))  # log of 0.7311 * 0.2689
    tensor(-1.6265)

    Kakade, Teh & Roweis, "An alternate objective function for Markovian fields" (2002); Azuma &
    Matsumoto, "A generalization of forward-backward algorithm", section 3.2.
    """
    usual = ("emissions", "log_potentials", "preterminals")
    first = next((name for name in usual if name in d.potentials), "")
    name = first if potential is None else potential
    expect_one_of("potential", name, sorted(d.potentials))
    used = d.parts(event)[name]
    if _is_shared(d, name) or bool((used > 1).any()):
        raise ArgumentError(
            "potential",
            f": an event can use the parts {name!r} more than once, so they have no probability; "
            f"name another potential, or give each position {name} of its own",
        )
    marginals = d._in_double().marginals(name)[name]
    elements = d.batch_shape.numel()
    shape = used.shape[: used.ndim - marginals.ndim + len(d.batch_shape)]
    size = marginals.numel() // max(elements, 1)
    row, part = used.reshape(shape.numel(), size).nonzero().T
    chosen = marginals.reshape(elements, size)[row % max(elements, 1), part]
    never = chosen == 0
    # The log of 0 must not be differentiated: 0 * inf is NaN.
    logs = torch.where(never, -torch.inf, torch.where(never, 1.0, chosen).log())
    total = logs.new_zeros(shape.numel()).index_add(0, row, logs)
    return total.reshape(shape).to(d.potentials[name].dtype)


def _is_shared(d: StructuredDistribution, name: str) -> bool:
    """Whether one entry of a potential is shared by parts at several places."""
    several = d.event_shape[-1] > 2
    chain = isinstance(d, LinearChain) and d.stationary and name == "transitions"
    return several and (chain or (isinstance(d, PCFG) and name == "rules"))
