"""The whole distribution of an integer-valued function, from roots of unity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.series.generating import Generating
from inout.series.lanes import Points

MOST_VALUES = 2**20
_AT_ONCE = 512  # points evaluated together: their number decides the memory


@dataclass(frozen=True, eq=False)
class Histogram:
    """Probabilities [*b m] of the values first, first + 1, …, of an additive function."""

    first: int
    probabilities: Float[Tensor, "*b m"]

    @property
    def values(self) -> Int[Tensor, " m"]:
        """The values [m] that the probabilities belong to."""
        count = self.probabilities.shape[-1]
        return torch.arange(self.first, self.first + count, device=self.probabilities.device)

    def __getitem__(self, value: int) -> Float[Tensor, "*b"]:
        """P(F = value), 0 outside of the range."""
        place = value - self.first
        if not 0 <= place < self.probabilities.shape[-1]:
            return torch.zeros_like(self.probabilities[..., 0])
        return self.probabilities[..., place]


def histogram(generating: Generating, lowest: int, highest: int) -> Float[Tensor, "b m"]:
    """P(F = lowest), …, P(F = highest) of one integer-valued function; differentiable.

    E[exp(z F)] at the m-th roots of unity is the Fourier transform of the probabilities. All
    weights keep their absolute values there, so the error is that of adding up probabilities:
    some 1e-16 times the number of parts of an event, whatever the weights. O(m) evaluations.
    """
    count = highest - lowest + 1
    if count > MOST_VALUES:
        advice = "divide it by a common factor, or use moments(f, 2)"
        given = f"Got {lowest} to {highest}; {advice}"
        raise ArgumentError("f", f"must have at most {MOST_VALUES:,} values. {given}")
    units = torch.ones_like(generating.magnitudes)
    if not units.numel():
        return units.new_zeros(0, count)
    angles = torch.arange(count // 2 + 1, dtype=torch.float64, device=units.device)
    angles = angles * (-2 * math.pi / count)  # the values at conjugate points are conjugate
    values = []
    for some in torch.split(angles, _AT_ONCE):
        points = Points(torch.complex(torch.zeros_like(some), some)[None])
        x, centres = generating(points, units)
        values.append((x * points.exponential(centres - lowest))[1:])
    found: Tensor = torch.fft.irfft(torch.cat(values), n=count, dim=0)
    return found.clamp(min=0.0).movedim(0, -1)
