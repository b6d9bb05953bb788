"""A number that changes step by step, drawn as a curve: with characters, and as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .labels import escape
from .style import SVG_CSS

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 624, 14, 216  # of the area where the curve is


def columns(values: Sequence[float], width: int = 60, height: int = 6) -> list[str]:
    """The lines of a drawing with one column for each value, the lowest value at the bottom.

    Of more values than `width` some are shown, evenly, with the first and the last.

    >>> print(*columns([0.0, 1.0, 3.0, 4.0], height=2), sep="\\n")
      ▄█
    ▁▅██
    """
    shown = _thinned(values, width)
    low, high = min(shown), max(shown)
    # The lowest value has a mark as well, so that no step looks as if it were missing.
    full = 8 * height - 1
    levels = [1 + round(full * (value - low) / ((high - low) or 1.0)) for value in shown]
    return [
        "".join(_EIGHTHS[min(max(level - 8 * row, 0), 8)] for level in levels).rstrip()
        for row in reversed(range(height))
    ]


def curve(values: Sequence[float], across: str, up: str) -> str:
    """The values over 0, 1, 2, … as an SVG document, with the names of both axes.

    >>> curve([1.0, 2.0, 4.0], "step", "size").count('class="io-dot"')
    3
    """
    low, high = min(values), max(values)
    places = [_place(step, value, values) for step, value in enumerate(values)]
    marks = []
    for value in ticks(low, high):
        _, y = _place(0, value, values)
        marks.append(
            f'<path class="io-faint" d="M{_LEFT},{y:.1f}H{_RIGHT}" stroke-opacity="0.3"/>'
            f'<text class="io-note" style="text-anchor:end" x="{_LEFT - 8}" y="{y:.1f}">'
            f"{value:,.10g}</text>"
        )
    for step in ticks(0, len(values) - 1):
        if step == int(step):
            x, _ = places[int(step)]
            marks.append(_note(x, _BOTTOM + 15, f"{step:g}"))
    middle = (_TOP + _BOTTOM) / 2
    marks.append(_note((_LEFT + _RIGHT) / 2, _HEIGHT - 10, across))
    marks.append(_note(14, middle, up, f' transform="rotate(-90 14 {middle:g})"'))
    line = "L".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks.append(f'<path d="M{line}" style="stroke:var(--io-item)" stroke-width="2"/>')
    marks += [
        f'<circle class="io-dot" style="fill:var(--io-item)" cx="{x:.1f}" cy="{y:.1f}" r="2.6">'
        f"<title>{escape(across)} {step}&#10;{escape(up)} {values[step]:,.4f}</title></circle>"
        for step, (x, y) in enumerate(places)
    ]
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" class="inout-svg" role="img" '
            f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
            f"<style>{SVG_CSS}</style>",
            f'<rect class="io-paper" width="{_WIDTH}" height="{_HEIGHT}"/>',
            *marks,
            "</svg>",
        ]
    )


def _place(step: int, value: float, values: Sequence[float]) -> tuple[float, float]:
    """Where a value of some step is drawn."""
    low, high = min(values), max(values)
    x = _LEFT + (_RIGHT - _LEFT) * step / max(len(values) - 1, 1)
    return x, _TOP + (_BOTTOM - _TOP) * (high - value) / ((high - low) or 1.0)


def _note(x: float, y: float, text: str, turned: str = "") -> str:
    return f'<text class="io-note" x="{x:.1f}" y="{y:.1f}"{turned}>{escape(text)}</text>'


def _thinned(values: Sequence[float], most: int) -> list[float]:
    last = len(values) - 1
    if last < most:
        return list(values)
    return [values[round(last * column / max(most - 1, 1))] for column in range(most)]


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two, three to eight of them; one where there is nothing between.

    >>> ticks(-9.7, -3.2), ticks(0, 32)
    ([-9.0, -8.0, -7.0, -6.0, -5.0, -4.0], [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0])
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = max(power * m for m in (1, 2, 5) if power * m <= (high - low) / 4)
    # Ends that are round themselves count, though division may just miss them.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]
