"""Tables of probabilities as shaded cells: who is aligned with whom."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from inout._core.errors import ArgumentError

from .geometry import ITEM_SIZE, MARGIN, shown
from .labels import escape, text_width
from .style import document, tooltip

_CELL, _LETTERS, _TITLED = 24.0, 13.0, 34.0


def heat_map(
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    marked: Collection[tuple[int, int]] = (),
    title: str = "",
) -> str:
    """A cell for each row and column, darker where values from 0 to 1 are larger, as SVG.

    `marked` cells have a frame: those of the best alignment, say. Numbers are in tooltips.

    >>> picture = heat_map([[0.9, 0.1], [0.0, 1.0]], ["a", "b"], ["A", "B"], marked=[(0, 0)])
    >>> picture.count('class="io-cell"'), picture.count('class="io-marked"')
    (4, 1)
    """
    if len(values) != len(rows) or any(len(row) != len(columns) for row in values):
        raise ArgumentError("values", f"must be [{len(rows)} {len(columns)}] for these names")
    if not all(0 <= value <= 1 + 1e-6 for row in values for value in row):
        raise ArgumentError("values", "must be from 0 to 1")
    room = max((text_width(shown(name), _LETTERS) for name in rows), default=0.0) + MARGIN
    wide = max([_CELL, *(text_width(shown(name), _LETTERS) + 8 for name in columns)])
    left, top = MARGIN + room, (_TITLED if title else MARGIN) + _CELL
    pieces = []
    if title:
        pieces.append(
            f'<text x="{MARGIN:g}" y="20" style="font-weight:600;text-anchor:start">'
            f"{escape(title)}</text>"
        )
    for j, name in enumerate(columns):
        pieces.append(_name(left + (j + 0.5) * wide, top - _CELL / 2, name, "middle"))
    for i, name in enumerate(rows):
        y = top + i * _CELL
        pieces.append(_name(left - 8, y + _CELL / 2, name, "end"))
        for j, other in enumerate(columns):
            value = min(float(values[i][j]), 1.0)
            about = tooltip(f"{name}, {other}: {value:.4f}")
            box = f'x="{left + j * wide:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{_CELL:g}"'
            pieces.append(
                f'<rect class="io-cell" {box} fill-opacity="{value:.3f}" stroke-opacity="0.3" '
                f'style="fill:var(--io-item);stroke:var(--io-soft)">{about}</rect>'
            )
    for i, j in sorted(marked):
        inside = f'x="{left + j * wide + 2:.1f}" y="{top + i * _CELL + 2:.1f}"'
        size = f'width="{wide - 4:.1f}" height="{_CELL - 4:g}"'
        pieces.append(
            f'<rect class="io-marked" {inside} {size} rx="4" fill="none" '
            'style="stroke:var(--io-axiom)" stroke-width="2.5"/>'
        )
    width = max(left + len(columns) * wide, text_width(title, ITEM_SIZE, bold=True)) + 2 * MARGIN
    return document(round(width), round(top + len(rows) * _CELL + MARGIN), pieces, name=title)


def _name(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" dominant-baseline="central" '
        f'style="font-size:{_LETTERS:g}px;text-anchor:{anchor}">{escape(shown(text))}</text>'
    )
