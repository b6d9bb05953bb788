"""Boxes on the drawing plane, and the label sizes that all drawings share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from .labels import clean, shorten, text_width

MARGIN = 16.0
LABEL_LIMIT = 40
ITEM_SIZE, AXIOM_SIZE, NOTE_SIZE = 14.0, 11.5, 10.5
FONT_SIZE: dict[str, float] = {"item": ITEM_SIZE, "axiom": AXIOM_SIZE}
BOX_HEIGHT: dict[str, float] = {"item": 28.0, "axiom": 21.0}


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its left upper corner and its size; y grows downwards."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        """The x of its vertical axis."""
        return self.x + self.width / 2

    @property
    def right(self) -> float:
        """The x of its right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The y of its lower side."""
        return self.y + self.height


def shown(label: str) -> str:
    """The label as it is drawn: cleaned, and shortened if it is very long."""
    return shorten(clean(label), LABEL_LIMIT)


@lru_cache(maxsize=4096)
def box_size(label: str, kind: str, note: str = "") -> tuple[float, float]:
    """Width and height of the box for a label and, below it, a note if there is one."""
    size = FONT_SIZE[kind]
    width = text_width(shown(label), size, bold=kind == "item")
    height = BOX_HEIGHT[kind]
    if note:
        width = max(width, text_width(shown(note), NOTE_SIZE))
        height += 12.0
    return max(width + size * 1.15, height * 0.9), height


def share(weight: float | None) -> float:
    """How strongly to draw a weight: clipped to 0..1, and 0.4 if it is unknown.

    >>> share(0.3), share(2.0), share(None)
    (0.3, 1.0, 0.4)
    """
    if weight is None:
        return 0.4
    return min(max(float(weight), 0.0), 1.0) if not math.isnan(weight) else 0.0
