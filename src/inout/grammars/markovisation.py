"""`Markovisation`: how much labels remember of siblings and ancestors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inout._core.checks import expect


@dataclass(frozen=True)
class Markovisation:
    """How much context goes into the labels of trees (Klein & Manning 2003, section 2).

    Nodes with more than two children are binarised, and the new nodes remember the last
    `horizontal` siblings (None: all, which is equivalent to the original rules). Every phrase
    remembers `vertical - 1` ancestors, and with `tags` so do part-of-speech tags. Direction
    "right" nests the remaining children on the right, so that siblings on the left are remembered;
    "left" is its mirror image. With `binary` False long rules stay and only ancestors are added.

    >>> Markovisation(horizontal=1)
    Markovisation(horizontal=1, vertical=2, direction='right', tags=False, binary=True)
    """

    horizontal: int | None = 2
    vertical: int = 2
    direction: Literal["right", "left"] = "right"
    tags: bool = False
    binary: bool = True

    def __post_init__(self) -> None:
        horizontal, vertical = self.horizontal, self.vertical
        some = horizontal is None or (isinstance(horizontal, int) and horizontal >= 0)
        expect(some, "horizontal", "must be 0 or more, or None", horizontal)
        good = isinstance(vertical, int) and vertical >= 1
        expect(good, "vertical", "must be at least 1", vertical)
        known = self.direction in ("right", "left")
        expect(known, "direction", "must be 'right' or 'left'", self.direction)
