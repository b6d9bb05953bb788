"""`refined`: contexts in several passes, more of them where much mass sits in coarse ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import at_least
from inout._core.errors import ArgumentError
from inout.contexts.exactness import Exactness, exactness
from inout.kernels.lattice.op import Lattice

Sizes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Refined:
    """What several passes of selection found."""

    lattice: Lattice
    exactness: Exactness
    sizes: Sizes  # [c]: how many contexts each column could have in the last pass
    passes: int


def refined(
    select: Callable[[Sizes], Lattice],
    columns: int,
    memory: int | None,
    *,
    size: int = 4,
    most: int = 256,
    tolerance: float = 0.01,
    passes: int = 8,
) -> Refined:
    """Select contexts in several passes, each doubling those of uncertain columns.

    `select(sizes)` selects sizes[c] contexts for column c; `memory` is its limit. The first pass
    has `size` everywhere. A column is uncertain if coarse contexts, which forget something that
    `memory` could hold, have more than `tolerance` of the mass. It ends when there is none, when
    all of them have `most` contexts, or after `passes`. Returns the last lattice.

    Proposed by Steinhardt & Liang (2015), section 9.
    """
    at_least("size", size, 1)
    at_least("most", most, size)
    at_least("passes", passes, 1)
    if not 0 <= tolerance < 1:
        raise ArgumentError("tolerance", f"must be from 0 up to 1. Got {tolerance}")
    sizes = np.full(columns, size, np.int64)
    done = 0
    while True:
        lattice = select(sizes)
        found = exactness(lattice, memory)
        done += 1
        grown = np.where(found.coarse_mass > tolerance, np.minimum(2 * sizes, most), sizes)
        if done == passes or (grown == sizes).all():
            return Refined(lattice, found, sizes, done)
        sizes = grown
