"""Random numbers: the caller's generator, or torch's default one, and seeds drawn from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.errors import ArgumentError


def checked_generator(generator: Any) -> torch.Generator:
    """The generator itself, or torch's default one for None."""
    if generator is None:
        return torch.default_generator
    if not isinstance(generator, torch.Generator):
        raise ArgumentError(
            "generator", f"must be a torch.Generator or None. Got {generator!r:.80}"
        )
    return generator


def own_generator(generator: Any) -> torch.Generator:
    """The caller's generator, or a new one seeded by torch's default generator."""
    if generator is None:
        return torch.Generator().manual_seed(random_seed())
    return checked_generator(generator)


def drawn(draw: Any, generator: torch.Generator | None, *shape: int) -> NDArray[np.float64]:
    """Numbers that `torch.rand` or `torch.randn` draws, as an array."""
    source = checked_generator(generator)
    found = draw(shape, generator=source, dtype=torch.float64, device=source.device)
    return np.asarray(found.cpu().numpy())


def random_seed(generator: torch.Generator | None = None, *, bits: int = 64) -> int:
    """A non-negative integer of up to 64 random bits.

    One draw seeds all samples of a call; each has its own stream, so they are the same on any
    number of threads.
    """
    source = checked_generator(generator)
    drawn = torch.randint(-(2**63), 2**63 - 1, (), generator=source, device=source.device)
    seed: int = int(drawn) % 2**bits
    return seed
