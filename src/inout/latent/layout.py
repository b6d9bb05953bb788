"""`Layout`: the places of a latent-variable grammar's parameters in one vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import expect
from inout.latent.skeleton import Skeleton

MOST_VALUES = 1 << 14  # a single block of more would take terabytes

Numbers = NDArray[np.int64]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """All parameters in one vector: those of roots, of lexical rules, of binary rules.

    Nonterminal a has `sizes[a]` latent values. Its root vector, and the vector of each of its
    lexical rules, have that many numbers; the block of a binary rule a → b c is
    [sizes[a] sizes[b] sizes[c]], the first index that of the parent.

    >>> skeleton = Skeleton.of([("S", "A", "A")], [("A", "x")])
    >>> layout = Layout(skeleton, [2, 3])
    >>> layout.size, layout.block(np.arange(26.0), 0).shape
    (26, (2, 3, 3))
    """

    skeleton: Skeleton
    sizes: Numbers  # [a]

    def __init__(self, skeleton: Skeleton, sizes: int | Sequence[int] | Numbers) -> None:
        count = len(skeleton.nonterminals)
        given = np.asarray(sizes)
        fits = given.dtype.kind in "iu" and given.shape in ((), (count,))
        fits = fits and bool(((given >= 1) & (given <= MOST_VALUES)).all())
        wanted = f"must be an integer from 1 to {MOST_VALUES}, or one for each of the {count}"
        expect(fits, "sizes", f"{wanted} nonterminals", given.tolist())
        object.__setattr__(self, "skeleton", skeleton)
        object.__setattr__(self, "sizes", np.broadcast_to(given, (count,)).copy())

    @cached_property
    def root_offsets(self) -> Numbers:
        """Where the root vectors begin: [a+1]."""
        return _offsets(0, self.sizes)

    @cached_property
    def lexical_offsets(self) -> Numbers:
        """Where the vectors of the lexical rules begin: [l+1]."""
        return _offsets(int(self.root_offsets[-1]), self.sizes[self.skeleton.lexical[:, 0]])

    @cached_property
    def block_offsets(self) -> Numbers:
        """Where the blocks of the binary rules begin: [r+1]."""
        volumes = self.sizes[self.skeleton.binary].prod(axis=1)
        return _offsets(int(self.lexical_offsets[-1]), volumes)

    @property
    def size(self) -> int:
        return int(self.block_offsets[-1])

    def root(self, parameters: Vector, a: int) -> Vector:
        """The view [m_a] of the root vector of a nonterminal."""
        return parameters[self.root_offsets[a] : self.root_offsets[a + 1]]

    def lexical(self, parameters: Vector, rule: int) -> Vector:
        """The view [m_a] of the vector of a lexical rule."""
        return parameters[self.lexical_offsets[rule] : self.lexical_offsets[rule + 1]]

    def block(self, parameters: Vector, rule: int) -> Vector:
        """The view [m_a m_b m_c] of the block of a binary rule."""
        flat = parameters[self.block_offsets[rule] : self.block_offsets[rule + 1]]
        return flat.reshape(self.sizes[self.skeleton.binary[rule]])

    @cached_property
    def distributions(self) -> Numbers:
        """The distribution [p] that each parameter belongs to, where they are probabilities.

        0 is that of roots, over nonterminals and latent values; then comes one for each value of
        each nonterminal, over its rules and the values of their children.
        """
        states = _offsets(1, self.sizes)
        heads = self.skeleton.binary[:, 0]
        inner = self.sizes[self.skeleton.binary[:, 1:]].prod(axis=1)
        rows = _consecutive(states[heads], self.sizes[heads])
        return np.concatenate(
            [
                np.zeros(int(self.root_offsets[-1]), np.int64),
                _consecutive(
                    states[self.skeleton.lexical[:, 0]], self.sizes[self.skeleton.lexical[:, 0]]
                ),
                np.repeat(rows, np.repeat(inner, self.sizes[heads])),
            ]
        )


def _offsets(first: int, sizes: Numbers) -> Numbers:
    return first + np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _consecutive(firsts: Numbers, counts: Numbers) -> Numbers:
    """first, first + 1, …, of each range, one range after the other."""
    offsets = _offsets(0, counts)
    return np.arange(offsets[-1]) + np.repeat(firsts - offsets[:-1], counts)
