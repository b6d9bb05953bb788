"""Several lines over one axis, with names beside them, drawn as SVG: curves of experiments."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from inout._core.errors import ArgumentError

from .curve import ticks
from .geometry import ITEM_SIZE, shown
from .labels import escape, text_width
from .style import SVG_CSS, themes

Points: TypeAlias = Sequence[tuple[float, float]]

_LEFT, _TOP, _WIDTH, _HEIGHT = 70.0, 40.0, 520.0, 330.0  # of the area where the lines are
_BELOW, _NOTE, _KEY, _ROW = 52.0, 12.0, 26.0, 20.0  # axis, letters, sample of a line, its row
_DOTS = 40  # a line of more points has no dots

# Told apart by most who see fewer colours: hues differ, and so does their lightness.
_LIGHT = ("#2b6be0", "#d97700", "#0f8a6d", "#c2255c", "#7a4fd0", "#8a5a2b", "#1490b5", "#5d6b7a")
_DARK = ("#6a9dff", "#ffb53d", "#3ecf9f", "#ff7aa8", "#b79bff", "#d9a577", "#4fd0ea", "#a9b6c4")
_CSS = themes(
    ".io-lines",
    ";".join(f"--io-s{k}:{colour}" for k, colour in enumerate(_LIGHT)),
    ";".join(f"--io-s{k}:{colour}" for k, colour in enumerate(_DARK)),
)


def line_chart(
    series: Mapping[str, Points],
    *,
    title: str,
    across: str,
    up: str,
    across_range: tuple[float, float] | None = None,
    up_range: tuple[float, float] | None = None,
    step: bool = False,
    dashed: Collection[str] = (),
    faint: Mapping[str, Sequence[Points]] | None = None,
) -> str:
    """The lines through the points (x, y) of each series, as an SVG document without scripts.

    The names stand to the right of the lines, in the order of the series. `across` and `up` name
    the axes, whose ranges are those of the points unless told; of what lies outside a range that
    was told nothing is seen. With `step` a value holds until the next point. `dashed` names lines
    to be dashed; `faint` gives thin lines in the colour of a series, such as the single runs
    beside their median. Lines of at most 40 points have dots that tell their values.

    >>> picture = line_chart(
    ...     {"a": [(0, 1), (1, 3)], "b": [(0, 2), (1, 2)]}, title="", across="step", up="size"
    ... )
    >>> picture.count('class="io-dot"'), picture.count('class="io-name"')
    (4, 2)
    """
    runs = dict(faint or {})
    _check(series, runs, dashed)
    every = [*series.values(), *chain.from_iterable(runs.values())]
    frame = _Frame(
        *_span("across_range", across_range, [x for points in every for x, _ in points]),
        *_span("up_range", up_range, [y for points in every for _, y in points], rounded=True),
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
        f'stroke-linejoin="round"{styles[name]}><title>{escape(name)}</title></path>'
        for name, points in series.items()
    ]
    for name, points in series.items():
        if len(points) <= _DOTS:
            lines += _dots(frame, name, points, colours[name], across, up)
    longest = max(text_width(shown(name), _NOTE) for name in series)
    beside = _WIDTH + 16 + _KEY + 8 + longest
    width = math.ceil(_LEFT + max(beside, text_width(title, ITEM_SIZE, bold=True)) + 16)
    height = math.ceil(max(_TOP + _HEIGHT + _BELOW, _TOP + _ROW * len(series) + 16))
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" class="inout-svg io-lines" role="img" '
            f'aria-label="{escape(title)}" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}">',
            f"<style>{SVG_CSS}{_CSS}\n.io-lines text.io-name{{font-size:{_NOTE:g}px;"
            "text-anchor:start}</style>",
            f'<rect class="io-paper" width="{width}" height="{height}"/>',
            f'<text x="{_LEFT:g}" y="18" style="font-weight:600;text-anchor:start">'
            f"{escape(title)}</text>",
            *_axes(frame, across, up),
            # An inner document shows nothing outside its own area, and that needs no names.
            f'<svg class="io-area" x="{_LEFT - 4:g}" y="{_TOP - 4:g}" width="{_WIDTH + 8:g}" '
            f'height="{_HEIGHT + 8:g}" viewBox="{_LEFT - 4:g} {_TOP - 4:g} {_WIDTH + 8:g} '
            f'{_HEIGHT + 8:g}">',
            *lines,
            "</svg>",
            *_names(styles),
            "</svg>",
        ]
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    """The ranges of both axes, and where their values are drawn."""

    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        return _LEFT + _WIDTH * (value - self.left) / (self.right - self.left)

    def y(self, value: float) -> float:
        return _TOP + _HEIGHT * (self.high - value) / (self.high - self.low)


def _check(
    series: Mapping[str, Points], runs: Mapping[str, Sequence[Points]], dashed: Collection[str]
) -> None:
    """Refuse what cannot be drawn."""
    if not series:
        raise ArgumentError("series must have at least one line. Got none")
    for name in [*runs, *dashed]:
        if name not in series:
            raise ArgumentError(f"faint and dashed must name lines of series. Got {name!r}")
    named = [*series.items(), *((name, points) for name in runs for points in runs[name])]
    for name, points in named:
        if not len(points):
            raise ArgumentError(f"every line must have at least one point. Got none for {name!r}")
        for point in points:
            if not all(map(math.isfinite, point)):
                raise ArgumentError(f"points must be finite numbers. Got {point} for {name!r}")


def _span(
    name: str,
    given: tuple[float, float] | None,
    values: Sequence[float],
    rounded: bool = False,
) -> tuple[float, float]:
    """The range of an axis; of the values unless given, and never empty."""
    if given is not None:
        low, high = given
        if not (math.isfinite(high - low) and high > low):
            raise ArgumentError(f"{name} must be two numbers, the smaller first. Got {given}")
        return low, high
    low, high = float(min(values)), float(max(values))
    if not math.isfinite(high - low):
        raise ArgumentError(f"points must not be that far apart. Got {low} and {high}")
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
    """The line as SVG has it; a single point is a short dash."""
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
        f'cy="{frame.y(y):.1f}" r="{radius}"><title>{escape(name)}&#10;{escape(across)} '
        f"{x:,.6g}&#10;{escape(up)} {y:,.6g}</title></circle>"
        for x, y in points
        if frame.left <= x <= frame.right and frame.low <= y <= frame.high
    ]


def _axes(frame: _Frame, across: str, up: str) -> list[str]:
    """Round numbers at both axes with faint lines, and what the axes are."""
    right, bottom, middle = _LEFT + _WIDTH, _TOP + _HEIGHT, _TOP + _HEIGHT / 2
    marks = []
    for value in ticks(frame.low, frame.high):
        y = frame.y(value)
        marks.append(
            f'<path class="io-faint" d="M{_LEFT:g},{y:.1f}H{right:g}" stroke-opacity="0.25"/>'
            f'<text class="io-note" style="text-anchor:end" x="{_LEFT - 8:g}" y="{y:.1f}">'
            f"{_number(value)}</text>"
        )
    for value in ticks(frame.left, frame.right):
        x = frame.x(value)
        marks.append(
            f'<path class="io-faint" d="M{x:.1f},{bottom:g}v4"/>'
            f'<text class="io-note" x="{x:.1f}" y="{bottom + 15:g}">{_number(value)}</text>'
        )
    return [
        *marks,
        f'<path class="io-faint" d="M{_LEFT:g},{bottom:g}H{right:g}"/>',
        f'<text class="io-note" style="font-size:{_NOTE:g}px" x="{(_LEFT + right) / 2:g}" '
        f'y="{bottom + 36:g}">{escape(across)}</text>',
        f'<text class="io-note" style="font-size:{_NOTE:g}px" x="14" y="{middle:g}" '
        f'transform="rotate(-90 14 {middle:g})">{escape(up)}</text>',
    ]


def _number(value: float) -> str:
    return f"{value + 0.0:,.10g}" if abs(value) < 1e7 else f"{value:.6g}"


def _names(styles: Mapping[str, str]) -> list[str]:
    x, marks = _LEFT + _WIDTH + 16, []
    for row, (name, style) in enumerate(styles.items()):
        y = _TOP + 8 + _ROW * row
        marks.append(
            f'<path d="M{x:g},{y:g}h{_KEY:g}" stroke-width="2.2"{style}/>'
            f'<text class="io-name" x="{x + _KEY + 8:g}" y="{y:g}">{escape(shown(name))}</text>'
        )
    return marks
