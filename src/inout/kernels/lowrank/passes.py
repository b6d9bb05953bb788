"""Passes in plain torch code: on a GPU, and for what does not fit scaled arithmetic on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from inout.kernels.autograd import tangents_by


class TorchPasses:
    """log Z by a differentiable function of potentials and lengths, and its derivatives.

    The graph is kept for `gradients` if `keep`.
    """

    def __init__(
        self, log_z: Callable[..., Tensor], *given: Tensor, lengths: Tensor, keep: bool = True
    ) -> None:

        def function(*potentials: Tensor) -> Tensor:
            return log_z(*potentials, lengths)

        self.function = function
        with torch.inference_mode(False), torch.set_grad_enabled(keep):
            self.potentials = [x.detach().clone().requires_grad_(keep) for x in given]
            self._log_z = self.function(*self.potentials)

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
        given = weights.detach().to(self._log_z.dtype)
        along = [u.detach().to(x.dtype) for u, x in zip(directions, self.potentials, strict=True)]
        with torch.inference_mode(False):
            return tuple(
                x.detach() for x in tangents_by(self.function, given, self.potentials, along)
            )
