"""`Markovisation`: how much labels remember of siblings and ancestors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inout._core.errors import ArgumentError


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
        if horizontal is not None and (not isinstance(horizontal, int) or horizontal < 0):
            raise ArgumentError("horizontal", f"must be 0 or more, or None. Got {horizontal!r}")
        if not isinstance(vertical, int) or vertical < 1:
            raise ArgumentError("vertical", f"must be at least 1. Got {vertical!r}")
        if self.direction not in ("right", "left"):
            raise ArgumentError("direction", f"must be 'right' or 'left'. Got {self.direction!r}")
