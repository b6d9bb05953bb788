"""log Z and marginals of linear chains as torch functions, differentiable to any order.

Forward, first and second derivative are passes of the tier (`passes.py`); third and higher
derivatives use the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.chain.decoding import cpu as decoding
from inout.kernels.chain.passes import Passes, passes_for
from inout.kernels.chain.reference import reference_tangents
from inout.kernels.threads import over_batch


def _like(gradient: Tensor, transitions: Tensor) -> Tensor:
    """Gradients of each element's pairs, added up where the elements share their transitions."""
    return gradient.sum(0, keepdim=True) if len(transitions) < len(gradient) else gradient


class _LogPartition(torch.autograd.Function):
    """(emissions [b n s], transitions [bt nt s s]) -> log Z [b]."""

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
        ctx.passes = passes_for(emissions, transitions, lengths)
        ctx.save_for_backward(emissions, transitions, lengths)
        log_z: Tensor = ctx.passes.log_z
        return log_z.to(emissions.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        emissions, transitions, lengths = ctx.saved_tensors
        nodes, pairs = _apply(_Gradient, emissions, transitions, gradients[0], lengths, ctx.passes)
        return nodes, pairs, None


class _Gradient(torch.autograd.Function):
    """(emissions, transitions, g [b]) -> gradients of g . log Z."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        transitions: Tensor,
        gradient: Tensor,
        lengths: Tensor,
        passes: Passes,
    ) -> tuple[Tensor, Tensor]:
        ctx.passes = passes
        ctx.save_for_backward(emissions, transitions, gradient, lengths)
        nodes, pairs = passes.gradients(gradient)
        return nodes, _like(pairs, transitions)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        emissions, transitions, gradient, lengths = ctx.saved_tensors
        results = _apply(
            _Tangent, emissions, transitions, gradient, *gradients, lengths, ctx.passes
        )
        return (*results, None, None)


class _Tangent(torch.autograd.Function):
    """(emissions, transitions, g, u) -> (Hessian of g . log Z times u, E[U] of each element)."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        transitions: Tensor,
        gradient: Tensor,
        u_nodes: Tensor,
        u_pairs: Tensor,
        lengths: Tensor,
        passes: Passes,
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(emissions, transitions, gradient, u_nodes, u_pairs, lengths)
        nodes, pairs, expected = passes.tangents(gradient, u_nodes, u_pairs)
        return nodes, _like(pairs, transitions), expected.to(gradient.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *given, lengths = ctx.saved_tensors
        higher = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases: what flows where one input depends on another is the caller's graph's task.
            inputs = [
                x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in given
            ]
            emissions, transitions, gradient, u_nodes, u_pairs = inputs
            outputs = reference_tangents(
                emissions, transitions, gradient, u_nodes, u_pairs, lengths
            )
            results = torch.autograd.grad(
                outputs, inputs, gradients, create_graph=higher, materialize_grads=True
            )
        return (*results, None, None)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`, which torch leaves untyped."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def log_partition(
    emissions: Float[Tensor, "b n s"],
    transitions: Float[Tensor, "bt nt s s"],
    lengths: Int[Tensor, " b"],
) -> Float[Tensor, " b"]:
    """log Z of each chain; bt is 1 or b, nt is 1 (stationary) or n - 1. 0 for the empty chain.

    O(b n s²) time; O(b n s) memory besides the potentials and their gradients.
    """
    result: Tensor = _apply(_LogPartition, emissions, transitions, lengths)
    return result


def best_labels(
    emissions: Float[Tensor, "b n s"],
    transitions: Float[Tensor, "bt nt s s"],
    lengths: Int[Tensor, " b"],
) -> Int[Tensor, "b n"]:
    """The labels with the highest score (Viterbi); O(b n s²)."""
    return passes_for(emissions, transitions, lengths).best()


def k_best_labels(
    emissions: Float[Tensor, "b n s"],
    transitions: Float[Tensor, "bt nt s s"],
    lengths: Int[Tensor, " b"],
    k: int,
) -> tuple[Int[Tensor, "k b n"], Float[Tensor, "k b"]]:
    """The k labellings with the highest scores, and those scores (-inf where there are fewer)."""
    given = [x.detach().cpu().contiguous().numpy() for x in (emissions, transitions, lengths)]
    b, n, s = emissions.shape
    labels, scores = np.empty((k, b, n), np.int64), np.empty((k, b))

    def part(lo: int, hi: int) -> None:
        decoding.kbest(given[0], given[1], given[2], lo, hi, k, labels, scores)

    over_batch(part, b, k * b * n * s * s)
    device = emissions.device
    return torch.from_numpy(labels).to(device), torch.from_numpy(scores).to(device)


def sample_labels(
    emissions: Float[Tensor, "b n s"],
    transitions: Float[Tensor, "bt nt s s"],
    lengths: Int[Tensor, " b"],
    count: int,
    seed: int,
) -> Int[Tensor, "m b n"]:
    """`count` independent labellings of each chain; -1 in all places where none is possible."""
    return passes_for(emissions, transitions, lengths).sample(count, seed)
