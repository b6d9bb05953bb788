"""`HMM`: distributions over the hidden states of observed sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.distributions import arguments
from inout.distributions.chain import LinearChain
from inout.distributions.factors import TransitionFactors
from inout.kernels.recomputing import Memory


class StationaryChain(LinearChain):
    """A chain whose `transitions` [s s] or [*b s s] are the same at all positions."""

    family = "StationaryChain"
    _always_stationary = True


class HMM(StationaryChain):
    """Hidden states of observed sequences: p(states | observations).

    `initial` [s], `transition` [s s] (from, to) and `emission` [s v] are log-probabilities (or any
    log-weights), `observations` [*b n] symbols in 0..v-1. The batch shares these tables, or an
    element has its own: [*b s], [*b s s], [*b s v], or sizes 1 for batch dimensions that share.
    `log_partition` is the log-likelihood of each sequence, and its gradients in the three are the
    expected counts that EM needs. As a `LinearChain` its potentials are `start`, `transitions` and
    the `emissions` of what was observed. O(b n s²) time, or O(b n s r) with `TransitionFactors` as
    `transition`, see `FactoredHMM`.

    >>> import torch
    >>> stay, switch = torch.tensor([0.9, 0.1]).log()
    >>> transition = torch.stack([torch.stack([stay, switch]), torch.stack([switch, stay])])
    >>> emission = torch.tensor([[0.5, 0.5], [0.0, 1.0]]).log().requires_grad_()
    >>> hmm = HMM(torch.tensor([0.5, 0.5]).log(), transition, emission, torch.tensor([1, 0]))
    >>> hmm.log_partition().exp()
    tensor(0.1375, grad_fn=<ExpBackward0>)
    >>> torch.autograd.grad(hmm.log_partition(), emission)[0]  # expected emissions
    tensor([[1.0000, 0.8182],
            [0.0000, 0.1818]])

    Rabiner, "A tutorial on hidden Markov models" (1989), section III.
    """

    _further_tensors: ClassVar = {"initial": 1, "transition": 2, "emission": 2, "observations": 1}
    _shareable = LinearChain._shareable | {"initial", "transition", "emission"}
    family = "StationaryChain"  # in graphs: potentials alone make no HMM

    def __init__(
        self,
        initial: Float[Tensor, "*#b s"],
        transition: Float[Tensor, "*#b s s"] | TransitionFactors,
        emission: Float[Tensor, "*#b s v"],
        observations: Int[Tensor, "*b n"],
        lengths: arguments.Lengths | None = None,
        *,
        tier: str | None = None,
        memory: Memory = None,
    ) -> None:
        arguments.refuse_non_tensors(initial=initial, emission=emission, observations=observations)
        if observations.ndim < 1 or not arguments.is_integer(observations):
            raise ArgumentError(
                "observations",
                f"must be integers [*b n]. Got {observations.dtype} {list(observations.shape)}",
            )
        batch_shape, n = observations.shape[:-1], observations.shape[-1]
        if emission.ndim < 2 or 0 in emission.shape[-2:]:
            raise ArgumentError(
                "emission", f"must be [s v] or [*b s v]. Got {list(emission.shape)}"
            )
        s, v = emission.shape[-2:]
        _expect_table("emission", emission, batch_shape, (s, v))
        _expect_table("initial", initial, batch_shape, (s,))
        self._check_transition(transition, batch_shape, s)
        arguments.refuse_bad_values("initial", initial)
        arguments.refuse_bad_values("emission", emission)
        lengths = arguments.checked_lengths(lengths, batch_shape, n, observations.device)
        inside = torch.arange(n, device=lengths.device) < lengths[..., None]
        symbols = arguments.checked_range(
            "observations", observations.where(inside, 0).long(), 0, v
        )
        self.initial, self.transition, self.emission = initial, transition, emission
        self.observations = observations
        emissions = _observed(emission, symbols)
        super().__init__(emissions, transition, initial, None, lengths, tier=tier, memory=memory)

    def _check_transition(self, transition: Any, batch_shape: torch.Size, s: int) -> None:
        arguments.refuse_non_tensors(transition=transition)
        _expect_table("transition", transition, batch_shape, (s, s))
        arguments.refuse_bad_values("transition", transition)


def _expect_table(name: str, table: Tensor, batch: torch.Size, own: Sequence[int]) -> None:
    """Raise unless a table has the shape for one element, or one that expands to [*b *own]."""
    wanted = [*batch, *own]
    good = list(table.shape[-len(own) :]) == [*own] and arguments.broadcasts(table.shape, wanted)
    shapes = f"{[*own]} or {wanted}" if batch else f"{[*own]}"
    expect(good, name, f"must have shape {shapes}", list(table.shape))


def _observed(
    emission: Float[Tensor, "*#b s v"], symbols: Int[Tensor, "*b n"]
) -> Float[Tensor, "*b n s"]:
    """The column of each symbol."""
    if emission.ndim == 2:
        table = emission.T.contiguous()
        # Torch cannot differentiate the embedding of no symbols twice.
        return torch.nn.functional.embedding(symbols, table) if symbols.numel() else table[symbols]
    *batch_shape, n = symbols.shape
    table = emission.mT.expand(*batch_shape, *emission.shape[:-3:-1])
    return table.gather(-2, symbols[..., None].expand(*batch_shape, n, emission.shape[-2]))
