"""Plots as SVG: lines through points and columns of probabilities, over the same axes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from inout._core.errors import ArgumentError

from .geometry import ITEM_SIZE, shown
from .labels import escape, text_width
from .style import document, themes, tooltip

Points: TypeAlias = Sequence[tuple[float, float]]

_LEFT, _WIDTH = 70.0, 520.0  # of the area where the lines are
_TITLED, _PLAIN = 40.0, 14.0  # room above it
_BELOW, _NOTE, _KEY, _ROW = 52.0, 12.0, 26.0, 20.0  # axis, letters, sample of a line, its row
_DOTS = 64  # a line of more points has no dots

# Distinguishable with colour blindness: hue and lightness both differ.
_LIGHT = ("#2b6be0", "#d97700", "#0f8a6d", "#c2255c", "#7a4fd0", "#8a5a2b", "#1490b5", "#5d6b7a")
_DARK = ("#6a9dff", "#ffb53d", "#3ecf9f", "#ff7aa8", "#b79bff", "#d9a577", "#4fd0ea", "#a9b6c4")
_CSS = (
    themes(
        ".io-plot",
        ";".join(f"--io-s{k}:{colour}" for k, colour in enumerate(_LIGHT)),
        ";".join(f"--io-s{k}:{colour}" for k, colour in enumerate(_DARK)),
    )
    + f"\n.io-plot text.io-name{{font-size:{_NOTE:g}px;text-anchor:start}}"
)


def line_chart(
    series: Mapping[str, Points],
    *,
    across: str,
    up: str,
    title: str = "",
    height: float = 330.0,
    across_range: tuple[float, float] | None = None,
    up_range: tuple[float, float] | None = None,
    step: bool = False,
    dashed: Collection[str] = (),
    faint: Mapping[str, Sequence[Points]] | None = None,
) -> str:
    """The lines through the points (x, y) of each series, as an SVG document without scripts.

    The names are to the right of the lines, in the order of the series; a line named "" has none.
    `across` and `up` name the axes, whose ranges are those of the points by default; points outside
    a given range are not drawn. With `step` a value holds until the next point. `dashed` names
    dashed lines; `faint` gives thin lines in the colour of a series, such as single runs beside
    their median. Lines of at most 64 points have dots with their values.

    >>> picture = line_chart({"a": [(0, 1), (1, 3)], "b": [(0, 2), (1, 2)]}, across="x", up="y")
    >>> picture.count('class="io-dot"'), picture.count('class="io-name"')
    (4, 2)
    """
    runs = dict(faint or {})
    _check(series, runs, dashed)
    every = [*series.values(), *chain.from_iterable(runs.values())]
    frame = _Frame(
        *_span("across_range", across_range, [x for points in every for x, _ in points]),
        *_span("up_range", up_range, [y for points in every for _, y in points], rounded=True),
        top=_TITLED if title else _PLAIN,
        height=height,
    )
    colours = {name: k % len(_LIGHT) for k, name in enumerate(series)}
    # Where colours begin again, dots tell the second line from the first.
    again = set(list(series)[len(_LIGHT) :]) - set(dashed)
    styles = {
        name: f' style="stroke:var(--io-s{colour})"'
        + (' stroke-dasharray="6 4"' if name in dashed else "")
        + (' stroke-dasharray="1 5"' if name in again else "")
        for name, colour in colours.items()
    }
    lines = [
        f'<path class="io-run" d="{_path(frame, points, step)}" stroke-opacity="0.4" '
        f'stroke-width="1" style="stroke:var(--io-s{colours[name]})"/>'
        for name, several in runs.items()
        for points in several
    ]
    lines += [
        f'<path class="io-series" d="{_path(frame, points, step)}" stroke-width="1.8" '
        f'stroke-linejoin="round"{styles[name]}>{tooltip(name)}</path>'
        for name, points in series.items()
    ]
    for name, points in series.items():
        if len(points) <= _DOTS:
            lines += _dots(frame, name, points, colours[name], across, up)
    keys = {
        name: f'<path d="M0,0h{_KEY:g}" stroke-width="2.2"{style}/>'
        for name, style in styles.items()
        if name
    }
    return _drawn(frame, title, [*_axes(frame, across, up), *_clipped(frame, lines)], keys)


@dataclass(frozen=True, slots=True)
class Columns:
    """Probabilities of the values first, first + 1, …, with a name; a mean is marked if given."""

    name: str
    first: int
    probabilities: Sequence[float]
    mean: float | None = None


def histogram(
    several: Sequence[Columns],
    *,
    across: str,
    title: str = "",
    height: float = 212.0,
    actual: int | None = None,
    least: float = 5e-4,
) -> str:
    """Distributions of a whole number, columns side by side, as an SVG document.

    A triangle stands at the mean of each, and the value `actual` is shaded. Values at the ends
    that all give less than `least` are left out.

    >>> picture = histogram([Columns("coins", 0, [0.25, 0.5, 0.25], mean=1.0)], across="heads")
    >>> picture.count('class="io-column"'), picture.count('class="io-mean"')
    (3, 1)
    """
    drawn = [
        value
        for some in several
        for value, p in enumerate(some.probabilities, some.first)
        if p >= least
    ]
    drawn += [] if actual is None else [actual]
    largest = max((p for some in several for p in some.probabilities), default=0.0) or 1.0
    frame = _Frame(
        min(drawn, default=0) - 0.5,
        max(drawn, default=0) + 0.5,
        *_span("up_range", None, [0.0, largest], rounded=True),
        top=_TITLED if title else _PLAIN,
        height=height,
    )
    marks, keys = [], {}
    for k, some in enumerate(several):
        style = f"fill:var(--io-s{k % len(_LIGHT)})"
        marks += _columns(frame, some, style, k, len(several), across)
        keys[some.name] = f'<rect style="{style}" x="{_KEY - 10:g}" y="-5" width="10" height="10"/>'
    shade: list[str] = []
    if actual is not None:
        style = 'style="fill:var(--io-rule)" fill-opacity="0.6"'
        room = f'x="{frame.x(actual - 0.5):.1f}" width="{frame.x(1) - frame.x(0):.1f}"'
        shade = [f'<rect {room} y="{frame.top:g}" height="{height:g}" {style}/>']
        keys[f"actual: {actual}"] = (
            f'<rect {style} x="{_KEY - 10:g}" y="-5" width="10" height="10"/>'
        )
    axes = _axes(frame, across, "probability", whole=True)
    return _drawn(frame, title, [*shade, *axes, *marks], keys)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The ranges of both axes, and where their values are drawn."""

    left: float
    right: float
    low: float
    high: float
    top: float  # of the area on the page, as its height
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, value: float) -> float:
        return _LEFT + _WIDTH * (value - self.left) / (self.right - self.left)

    def y(self, value: float) -> float:
        return self.top + self.height * (self.high - value) / (self.high - self.low)


def _drawn(frame: _Frame, title: str, marks: Sequence[str], keys: Mapping[str, str]) -> str:
    """The document: title, marks, and the legend on the right."""
    x = _LEFT + _WIDTH + 16
    names = [
        f'<g transform="translate({x:g} {frame.top + 8 + _ROW * row:g})">{key}</g>'
        f'<text class="io-name" x="{x + _KEY + 8:g}" y="{frame.top + 8 + _ROW * row:g}">'
        f"{escape(shown(name))}</text>"
        for row, (name, key) in enumerate(keys.items())
    ]
    longest = max((text_width(shown(name), _NOTE) + _KEY + 24 for name in keys), default=0.0)
    width = _LEFT + max(_WIDTH + longest, text_width(title, ITEM_SIZE, bold=True)) + 16
    height = max(frame.bottom + _BELOW, frame.top + _ROW * len(keys) + 16)
    heading = (
        f'<text x="{_LEFT:g}" y="18" style="font-weight:600;text-anchor:start">'
        f"{escape(title)}</text>"
    )
    pieces = [*[heading] * bool(title), *marks, *names]
    return document(math.ceil(width), math.ceil(height), pieces, _CSS, "io-plot", title)


def _clipped(frame: _Frame, lines: Sequence[str]) -> list[str]:
    """The lines, clipped to the plot by an inner SVG element, which needs no id."""
    box = (_LEFT - 4, frame.top - 4, _WIDTH + 8, frame.height + 8)
    x, y, width, height = (f"{number:g}" for number in box)
    return [
        f'<svg class="io-area" x="{x}" y="{y}" width="{width}" height="{height}" '
        f'viewBox="{x} {y} {width} {height}">',
        *lines,
        "</svg>",
    ]


def _check(
    series: Mapping[str, Points], runs: Mapping[str, Sequence[Points]], dashed: Collection[str]
) -> None:
    """Refuse what cannot be drawn."""
    if not series:
        raise ArgumentError("series", "must have at least one line. Got none")
    for name in [*runs, *dashed]:
        if name not in series:
            raise ArgumentError(None, f"faint and dashed must name lines of series. Got {name!r}")
    named = [*series.items(), *((name, points) for name in runs for points in runs[name])]
    for name, points in named:
        if not len(points):
            raise ArgumentError("series", f": a line must have points. Got none for {name!r}")
        for point in points:
            if not all(map(math.isfinite, point)):
                given = f"{point} for {name!r}"
                raise ArgumentError("series", f": points must be finite numbers. Got {given}")


def _span(
    name: str, given: tuple[float, float] | None, values: Sequence[float], rounded: bool = False
) -> tuple[float, float]:
    """The range of an axis: by default that of the values, and never empty."""
    if given is not None:
        low, high = given
        if not (math.isfinite(high - low) and high > low):
            raise ArgumentError(name, f"must be two numbers, the smaller first. Got {given}")
        return low, high
    low, high = float(min(values)), float(max(values))
    if not math.isfinite(high - low):
        raise ArgumentError("series", f": points must not be that far apart. Got {low} and {high}")
    size = max(abs(low), abs(high))
    if high - low <= 1e-9 * size or high - low < 1e-300:
        # Equal values: a line in the middle.
        around = size / 10 or 1.0
        return low - around, high + around
    if rounded:
        # Ends at round numbers, so that no line runs along the border without a number.
        first, second, *_ = ticks(low, high)
        each = second - first
        low, high = math.floor(low / each) * each, math.ceil(high / each) * each
    return low, high


def _path(frame: _Frame, points: Points, step: bool) -> str:
    """The line as an SVG path; a single point is a short dash."""
    places: list[str] = []
    last = None
    for x, y in points:
        place = (f"{frame.x(x):.1f}", f"{frame.y(y):.1f}")
        # Ten thousand points make no larger picture than a screen can show.
        if place == last:
            continue
        if last is None:
            places.append(f"M{place[0]},{place[1]}")
        else:
            places.append(f"H{place[0]}V{place[1]}" if step else f"L{place[0]},{place[1]}")
        last = place
    return "".join(places) + ("h0.1" if len(places) == 1 else "")


def _dots(frame: _Frame, name: str, points: Points, colour: int, across: str, up: str) -> list[str]:
    radius = 2.4 if len(points) <= _DOTS // 2 else 1.8
    return [
        f'<circle class="io-dot" style="fill:var(--io-s{colour})" cx="{frame.x(x):.1f}" '
        f'cy="{frame.y(y):.1f}" r="{radius}">'
        f"{tooltip(name, f'{across} {x:,.6g}', f'{up} {y:,.6g}')}</circle>"
        for x, y in points
        if frame.left <= x <= frame.right and frame.low <= y <= frame.high
    ]


def _columns(
    frame: _Frame, some: Columns, style: str, k: int, count: int, across: str
) -> list[str]:
    """The columns of the k-th distribution out of `count`, and its mean below them."""
    share, marks = 0.8 / count, []
    each = frame.x(1) - frame.x(0)
    for value, p in enumerate(some.probabilities, some.first):
        if frame.left < value < frame.right:
            y = frame.y(p)
            marks.append(
                f'<rect class="io-column" style="{style}" '
                f'x="{frame.x(value - 0.4 + k * share):.1f}" y="{y:.1f}" '
                f'width="{0.94 * share * each:.1f}" height="{frame.bottom - y:.1f}">'
                f"{tooltip(some.name, f'{across} {value}: {p:.4f}')}</rect>"
            )
    if some.mean is not None:
        marks.append(
            f'<path class="io-mean" style="{style};stroke:none" '
            f'd="M{frame.x(some.mean):.1f},{frame.bottom + 2:g}l-4.5,8h9z">'
            f"{tooltip(some.name, f'mean {some.mean:.3f}')}</path>"
        )
    return marks


def _axes(frame: _Frame, across: str, up: str, whole: bool = False) -> list[str]:
    """Ticks at round numbers with faint grid lines, and the names of the axes."""
    right, bottom, middle = _LEFT + _WIDTH, frame.bottom, frame.top + frame.height / 2
    marks = []
    for value in ticks(frame.low, frame.high):
        y = frame.y(value)
        marks.append(
            f'<path class="io-faint" d="M{_LEFT:g},{y:.1f}H{right:g}" stroke-opacity="0.25"/>'
            f'<text class="io-note" style="text-anchor:end" x="{_LEFT - 8:g}" y="{y:.1f}">'
            f"{_number(value)}</text>"
        )
    for value in ticks(frame.left, frame.right):
        if whole and value != round(value):
            continue
        x = frame.x(value)
        marks.append(
            f'<path class="io-faint" d="M{x:.1f},{bottom:g}v4"/>'
            f'<text class="io-note" x="{x:.1f}" y="{bottom + 18:g}">{_number(value)}</text>'
        )
    return [
        *marks,
        f'<path class="io-faint" d="M{_LEFT:g},{bottom:g}H{right:g}"/>',
        f'<text class="io-note" style="font-size:{_NOTE:g}px" x="{(_LEFT + right) / 2:g}" '
        f'y="{bottom + 38:g}">{escape(across)}</text>',
        f'<text class="io-note" style="font-size:{_NOTE:g}px" x="14" y="{middle:g}" '
        f'transform="rotate(-90 14 {middle:g})">{escape(up)}</text>',
    ]


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two, three to eight of them; one if the range is empty.

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


def _number(value: float) -> str:
    return f"{value + 0.0:,.10g}" if abs(value) < 1e7 else f"{value:.6g}"
