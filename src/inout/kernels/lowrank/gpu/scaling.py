"""Numbers relative to the largest of a group, and draws from such weights; in torch code."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def relative(values: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """(exp(values - top), top in float64), the largest over some dimensions; 0 if all are -inf.

    Scales are constants to forward mode, here and below.
    """
    top = values.detach().amax(dims, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)
    return (values - top).exp(), top.squeeze(dims).double()


def settle(values: Float[Tensor, "*b k"]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows whose largest is in [0.5, 1), the exponents of two taken out, and the factors 2^-those.

    Exact. A row of zeros has the exponent -inf, and so has one of subnormal numbers.
    """
    top = values.detach().amax(-1, keepdim=True)
    mantissa, exponent = torch.frexp(top)
    some = top >= torch.finfo(values.dtype).tiny
    factor = torch.where(some, mantissa / top, 0.0)
    return values * factor, torch.where(some, exponent.double(), -torch.inf)[..., 0], factor


def draw(weights: Float[Tensor, "*b k"], uniform: Float[Tensor, "*b"]) -> Int[Tensor, "*b"]:
    """A place in each row by its weights, given numbers in [0, 1); any place if all are 0."""
    sums = weights.cumsum(-1, dtype=torch.float64)
    target = uniform.double()[..., None] * sums[..., -1:]
    # A weight of zero leaves the running sum as it is, and so is never reached first.
    place = (sums <= target).sum(-1).clamp(max=weights.shape[-1] - 1)
    # But a parallel sum may be rounded otherwise from one place to the next.
    found = weights.gather(-1, place[..., None])[..., 0] > 0
    return torch.where(found, place, weights.argmax(-1))
