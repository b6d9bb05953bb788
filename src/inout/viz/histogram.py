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
    frame = _Frame(*_range(several, actual, least), _top(several))
    marks = [*_actual(frame, actual), *_axes(frame, across)]
    for number, some in enumerate(several):
        marks += _columns(frame, some, number, len(several), across)
    marks.append(f'<path d="M{_LEFT},{_BOTTOM}H{_RIGHT}" stroke-width="1"/>')
    marks += _legend([some.name for some in several], actual)
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


@dataclass(frozen=True, slots=True)
class _Frame:
    """The values low..high side by side, probabilities from 0 to `top` upwards."""

    low: int
    high: int
    top: float

    @property
    def step(self) -> float:
        """Width of the room for one value."""
        return (_RIGHT - _LEFT) / (self.high - self.low + 1)

    def x(self, value: float) -> float:
        """Where the room of a value starts."""
        return _LEFT + (value - self.low) * self.step

    def height(self, probability: float) -> float:
        """Height of a column."""
        return probability / self.top * (_BOTTOM - _TOP)


def _actual(frame: _Frame, actual: int | None) -> list[str]:
    """A shade behind the value to point out."""
    if actual is None:
        return []
    return [
        f'<rect x="{frame.x(actual):.1f}" y="{_TOP - 8}" width="{frame.step:.1f}" '
        f'height="{_BOTTOM - _TOP + 8}" style="fill:var(--io-rule)" fill-opacity="0.6">'
        f"<title>actual: {actual}</title></rect>"
    ]


def _axes(frame: _Frame, across: str) -> list[str]:
    """Lines and numbers for probabilities, numbers for values, and what both are."""
    marks = []
    for level in _levels(frame.top):
        y = _BOTTOM - frame.height(level)
        marks.append(
            f'<path class="io-faint" d="M{_LEFT},{y:.1f}H{_RIGHT}" stroke-opacity="0.3"/>'
            f'<text class="io-note" style="text-anchor:end" x="{_LEFT - 8}" y="{y:.1f}">'
            f"{level:g}</text>"
        )
    every = -(-(frame.high - frame.low + 1) // 25)  # numbers must not touch
    marks += [
        _note(frame.x(value + 0.5), _BOTTOM + 22, str(value))
        for value in range(frame.low, frame.high + 1, every)
    ]
    middle = (_TOP + _BOTTOM) / 2
    marks.append(_note((_LEFT + _RIGHT) / 2, _HEIGHT - 8, across))
    marks.append(_note(14, middle, "probability", f' transform="rotate(-90 14 {middle:g})"'))
    return marks


def _columns(frame: _Frame, some: Columns, number: int, count: int, across: str) -> list[str]:
    """The columns of one distribution out of `count`, and its mean below them."""
    style = f"fill:var({_COLOURS[number % len(_COLOURS)]})"
    width = 0.8 / count
    marks = []
    for value, p in enumerate(some.probabilities, some.first):
        if frame.low <= value <= frame.high:
            height = frame.height(p)
            marks.append(
                f'<rect class="io-column" style="{style}" '
                f'x="{frame.x(value + 0.1 + number * width):.1f}" y="{_BOTTOM - height:.1f}" '
                f'width="{0.94 * width * frame.step:.1f}" height="{height:.1f}">'
                f"<title>{escape(some.name)}&#10;{escape(across)} {value}: {p:.4f}</title></rect>"
            )
    if some.mean is not None:
        marks.append(
            f'<path class="io-mean" style="{style};stroke:none" '
            f'd="M{frame.x(some.mean + 0.5):.1f},{_BOTTOM + 2}l-5,9h10z">'
            f"<title>{escape(some.name)}&#10;mean {some.mean:.3f}</title></path>"
        )
    return marks


def _top(several: Sequence[Columns]) -> float:
    """The largest probability."""
    return max((p for some in several for p in some.probabilities), default=0.0) or 1.0


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
