"""Probabilities of whole numbers, drawn as columns side by side in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .labels import escape, text_width
from .style import SVG_CSS

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 624, 40, 252  # of the area where the columns are
_COLOURS = ("--io-item", "--io-axiom", "--io-hot", "--io-line")
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Columns:
    """Probabilities of the values first, first + 1, …, with a name; a mean is marked if given."""

    name: str
    first: int
    probabilities: Sequence[float]
    mean: float | None = None


def histogram(
    several: Sequence[Columns], across: str, actual: int | None = None, least: float = 5e-4
) -> str:
    """Distributions of a whole number as an SVG document, at most four of them.

    A triangle stands at the mean of each, `actual` is a value to point out. Values at the ends
    that all give less than `least` are left out.

    >>> picture = histogram([Columns("coins", 0, [0.25, 0.5, 0.25], mean=1.0)], "heads")
    >>> picture.count('class="io-column"'), picture.count('class="io-mean"')
    (3, 1)
    """
    low, high = _range(several, actual, least)
    step = (_RIGHT - _LEFT) / (high - low + 1)
    top = max((max(some.probabilities, default=0.0) for some in several), default=0.0) or 1.0
    scale = (_BOTTOM - _TOP) / top
    marks = []
    for level in _levels(top):
        y = _BOTTOM - level * scale
        marks.append(
            f'<path class="io-faint" d="M{_LEFT},{y:.1f}H{_RIGHT}" stroke-opacity="0.3"/>'
            f'<text class="io-note" style="text-anchor:end" x="{_LEFT - 8}" y="{y:.1f}">'
            f"{level:g}</text>"
        )
    every = max(1, -(-(high - low + 1) // 25))  # numbers below the columns must not touch
    marks += [
        _note(_LEFT + (value - low + 0.5) * step, _BOTTOM + 22, str(value))
        for value in range(low, high + 1, every)
    ]
    if actual is not None:
        x = _LEFT + (actual - low) * step
        marks.insert(
            0,
            f'<rect x="{x:.1f}" y="{_TOP - 8}" width="{step:.1f}" height="{_BOTTOM - _TOP + 8}" '
            f'style="fill:var(--io-rule)" fill-opacity="0.6"><title>actual: {actual}</title></rect>',
        )
    share = 0.8 * step / max(len(several), 1)
    for number, some in enumerate(several):
        colour = f"fill:var({_COLOURS[number % len(_COLOURS)]})"
        for value, p in enumerate(some.probabilities, some.first):
            if low <= value <= high:
                x = _LEFT + (value - low + 0.1) * step + number * share
                marks.append(
                    f'<rect class="io-column" style="{colour}" x="{x:.1f}" '
                    f'y="{_BOTTOM - p * scale:.1f}" width="{0.94 * share:.1f}" '
                    f'height="{p * scale:.1f}"><title>{escape(some.name)}&#10;{escape(across)} '
                    f"{value}: {p:.4f}</title></rect>"
                )
        if some.mean is not None:
            x = _LEFT + (some.mean - low + 0.5) * step
            marks.append(
                f'<path class="io-mean" style="{colour};stroke:none" d="M{x:.1f},{_BOTTOM + 2}'
                f'l-5,9h10z"><title>{escape(some.name)}&#10;mean {some.mean:.3f}</title></path>'
            )
    marks.append(f'<path d="M{_LEFT},{_BOTTOM}H{_RIGHT}" stroke-width="1"/>')
    marks += _legend([some.name for some in several], actual)
    marks.append(_note((_LEFT + _RIGHT) / 2, _HEIGHT - 8, across))
    middle = (_TOP + _BOTTOM) / 2
    marks.append(_note(14, middle, "probability", f' transform="rotate(-90 14 {middle:g})"'))
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


def _range(several: Sequence[Columns], actual: int | None, least: float) -> tuple[int, int]:
    """The first and the last value that is drawn."""
    values = [
        value
        for some in several
        for value, p in enumerate(some.probabilities, some.first)
        if p >= least
    ]
    values += [] if actual is None else [actual]
    return min(values, default=0), max(values, default=0)


def _levels(top: float) -> list[float]:
    """Round probabilities from 0 up to the largest, at most seven."""
    step = next((step for step in _STEPS if top / step <= 6), _STEPS[-1])
    return [round(k * step, 2) for k in range(int(top / step + 1e-9) + 1)]


def _legend(names: Sequence[str], actual: int | None) -> list[str]:
    """A square and a name for each distribution, in a line at the top."""
    entries = [(f"var({_COLOURS[i % len(_COLOURS)]})", name) for i, name in enumerate(names)]
    entries += [] if actual is None else [("var(--io-rule)", f"actual: {actual}")]
    pieces, x = [], float(_LEFT)
    for colour, name in entries:
        pieces.append(
            f'<rect style="fill:{colour}" x="{x:.1f}" y="11" width="10" height="10"/>'
            f'<text class="io-note" style="text-anchor:start" x="{x + 15:.1f}" y="16.5">'
            f"{escape(name)}</text>"
        )
        x += 15 + text_width(name, 10.5) + 22
    return pieces


def _note(x: float, y: float, text: str, turned: str = "") -> str:
    return f'<text class="io-note" x="{x:.1f}" y="{y:.1f}"{turned}>{escape(text)}</text>'
