"""`exactness`: the mass in contexts as fine as memory allows; `refined`: more of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import at_least, expect
from inout.kernels.lattice.op import Lattice

Vector = NDArray[np.float64]
Sizes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Exactness:
    """The mass in coarse contexts, which forget something that `memory` could hold.

    A path without them has the same weight as in the model with unlimited contexts, provided that
    features see no more than `memory` holds. So the sum over these paths, `log_partition`, is at
    most log Z of that model.
    """

    # Of each example: that no label follows a coarse context [b]; 0 where nothing is possible.
    probability: Vector
    log_partition: Vector  # log of the sum over the paths without coarse contexts: [b]
    # Of each column: the probability of its coarse contexts, if something follows them: [c].
    coarse_mass: Vector
    # Of each example: the expected number of labels that follow a coarse context: [b].
    expected_coarse: Vector


def exactness(lattice: Lattice, memory: int | None) -> Exactness:
    """How much of the mass of a lattice is in contexts that are coarser than they need be.

    A context is coarse if it neither remembers everything nor the last `memory` symbols, the
    bound that the lattice was selected with (None: there is none). Costs one forward and one
    backward pass over the lattice.

    >>> import numpy as np
    >>> from inout.kernels.lattice.arrays import Columns, Streams
    >>> from inout.kernels.lattice.histories import Histories
    >>> from inout.kernels.lattice.selection import select
    >>> histories = Histories(Streams.labels(2, [0]))
    >>> lattice = select(Columns.chains([3], 2), histories, np.zeros((3, 2)), sizes=1)
    >>> found = exactness(lattice, None)  # the first label is kept if it is 0; then ⋆ or 00
    >>> found.probability, found.coarse_mass
    (array([0.25]), array([0.  , 0.5 , 0.75, 0.  ]))
    """
    coarse = coarse_contexts(lattice, memory)
    scores = np.where(coarse[lattice.edge_sources], -np.inf, lattice.scores)
    fine = lattice.rescored(scores).log_partition
    log_z = lattice.log_partition
    possible = log_z > -np.inf
    shares = np.exp(np.minimum(fine - np.where(possible, log_z, 0.0), 0.0))
    mass = np.where(coarse, lattice.mass, 0.0)
    mass[lattice.ends] = 0.0
    by_column = _sums(mass, lattice.node_offsets)
    return Exactness(
        probability=np.where(possible, shares, 0.0),
        log_partition=fine,
        coarse_mass=by_column,
        expected_coarse=_sums(by_column, lattice.columns.firsts),
    )


def coarse_contexts(lattice: Lattice, memory: int | None) -> NDArray[np.bool_]:
    """Whether a context forgets more than this limit requires: [v]."""
    short = ~lattice.is_anchored
    if memory is not None:
        short &= lattice.lens < at_least("memory", memory, 1)
    return np.asarray(short, np.bool_)


def _sums(values: Vector, offsets: NDArray[np.int64]) -> Vector:
    """Sums of consecutive parts, which may be empty."""
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    sums = np.bincount(owners, weights=values, minlength=len(offsets) - 1)
    return np.asarray(sums, np.float64)  # of no values at all, numpy makes integers


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
    expect(0 <= tolerance < 1, "tolerance", "must be from 0 up to 1", tolerance)
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
