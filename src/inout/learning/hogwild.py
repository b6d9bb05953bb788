"""`Hogwild`: steps of AdaGrad by several threads that share their weights without locks.

Recht, Ré, Wright & Niu, "Hogwild!: a lock-free approach to parallelizing stochastic gradient
descent" (2011); Steinhardt & Liang, "Reified context models" (2015), appendix B.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from inout._core.checks import at_least
from inout._core.randomness import random_seed
from inout.kernels.lattice.arrays import Vector
from inout.kernels.lattice.gradient import Gradient, truncated
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice, grow_rows
from inout.learning.arguments import checked_number

Found = TypeVar("Found")


@dataclass(frozen=True)
class Hogwild:
    """How steps are taken, by how many threads."""

    step: float
    delta: float
    threads: int = 1
    truncate: float = 0.0  # smaller gradients of edges are rounded, at random
    least: float = 0.0  # n-grams whose gradients are all smaller get no weights

    def __post_init__(self) -> None:
        checked_number("step", self.step, 0, above=True)
        checked_number("delta", self.delta, 0, above=True)
        at_least("threads", self.threads, 1)
        checked_number("truncate", self.truncate, 0)
        checked_number("least", self.least, 0)

    def steps(self, histories: Histories, generator: torch.Generator) -> list[Steps]:
        """The steps of each thread; the generator seeds those that are random."""
        seeds = np.random.SeedSequence(random_seed(generator) if self.truncate else 0)
        return [Steps(self, histories, seed) for seed in seeds.spawn(self.threads)]


class Steps:
    """What one thread does to the weights of histories: its gradient is its own."""

    def __init__(self, how: Hogwild, histories: Histories, seed: np.random.SeedSequence) -> None:
        self.how = how
        self._histories, self._gradient = histories, Gradient(histories)
        self._rng = np.random.default_rng(seed)

    def add(self, lattice: Lattice, slopes: Vector, *, grow: bool = True) -> Vector:
        """Add a gradient in the edges, truncated if wanted, and return it as it was added.

        With `grow`, histories get the weights that they need.
        """
        if self.how.truncate:
            slopes = truncated(slopes, self.how.truncate, self._rng)
        if grow:
            least = 0.0 if self.how.truncate else self.how.least
            grow_rows(self._histories, lattice, slopes, least)
        self._gradient.add(lattice, slopes)
        return slopes

    def take(self) -> None:
        """A step along the gradient that was added."""
        self._gradient.step(self.how.step, self.how.delta)


def shared_out(
    workers: Sequence[Callable[[int], Found]], examples: Iterable[int]
) -> Iterable[Found]:
    """What workers find, each in a thread of its own that takes the next example when it is free.

    A single worker goes through the examples in order, in this thread.
    """
    if len(workers) == 1:
        return map(workers[0], examples)
    left = deque(examples)

    def work(worker: Callable[[int], Found]) -> list[Found]:
        found = []
        try:
            while left:
                try:
                    example = left.popleft()
                except IndexError:  # another thread has taken the last one
                    break
                found.append(worker(example))
        except BaseException:
            left.clear()  # so that the others end
            raise
        return found

    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            return [one for part in pool.map(work, workers) for one in part]
        finally:
            left.clear()
