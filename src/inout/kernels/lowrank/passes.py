"""Passes in plain torch code, for what does not fit scaled arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from inout.kernels.autograd import tangents_by

LogZ = Callable[..., Tensor]  # of potentials and lengths


def tangents_of(
    log_z: LogZ,
    potentials: Sequence[Tensor],
    lengths: Tensor,
    weights: Tensor,
    directions: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Hessian of weights . log Z times the directions, and E[U], by differentiating twice."""

    def function(*own: Tensor) -> Tensor:
        return log_z(*own, lengths)

    along = [u.detach().to(x.dtype) for u, x in zip(directions, potentials, strict=True)]
    given = weights.detach().to(potentials[0].dtype)
    with torch.inference_mode(False):
        # Tensors made in inference mode cannot be differentiated.
        own = [x.detach().clone() if x.is_inference() else x.detach() for x in potentials]
        return tuple(x.detach() for x in tangents_by(function, given, own, along))


class TorchPasses:
    """log Z by a differentiable function of potentials and lengths, and its derivatives.

    The graph is kept for `gradients` if `keep`.
    """

    def __init__(self, log_z: LogZ, *given: Tensor, lengths: Tensor, keep: bool = True) -> None:
        self.function, self.lengths = log_z, lengths
        with torch.inference_mode(False), torch.set_grad_enabled(keep):
            self.potentials = [x.detach().clone().requires_grad_(keep) for x in given]
            self._log_z = log_z(*self.potentials, lengths)

    @property
    def log_z(self) -> Tensor:
        """log Z in float64."""
        return self._log_z.detach().double()

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradients by the potentials."""
        with torch.inference_mode(False), torch.enable_grad():
            alive = torch.where(self._log_z == -torch.inf, 0.0, self._log_z)
            return torch.autograd.grad(
                alive,
                self.potentials,
                weights.detach().to(alive.dtype),
                retain_graph=True,
                materialize_grads=True,
            )

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian times the directions, and E[U]."""
        return tangents_of(self.function, self.potentials, self.lengths, weights, directions)
