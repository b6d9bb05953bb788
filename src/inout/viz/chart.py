"""A chart drawn as a pyramid: a cell for each span, its labels shaded by their posteriors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from . import labels
from .geometry import share
from .labels import escape
from .page import Html

_CSS = """\
.inout .io-chart{border-collapse:separate;border-spacing:3px;margin:.6em auto .6em 0}
.inout .io-chart td{padding:.1em .15em;border:0;text-align:center;vertical-align:bottom;\
min-width:1.6em;line-height:1.25}
.inout .io-chart td.io-span{border:1px solid var(--io-rule);border-radius:5px}
.inout .io-chart .io-label{display:block;position:relative;border-radius:3px;padding:.05em .35em;\
font-size:12px;margin:1px 0}
.inout .io-chart .io-label::before{content:"";position:absolute;inset:0;border-radius:3px;\
background:var(--io-item);opacity:var(--io-share)}
.inout .io-chart .io-label span{position:relative}
.inout .io-chart .io-label small{opacity:.75;position:relative;margin-left:.3em}
.inout .io-chart td.io-word{padding-top:.5em;font-weight:600}
.inout .io-chart .io-more{color:var(--io-soft);font-size:11px}
"""


def chart(
    words: Sequence[str],
    constituents: Mapping[tuple[str, int, int], float],
    log_values: Mapping[tuple[str, int, int], tuple[float, float]] = MappingProxyType({}),
    least: float = 0.005,
    most: int = 4,
) -> Html:
    """The constituents over each span, as an HTML table in the shape of a pyramid.

    A key is a label and its span i..j, j exclusive; its value the expected number of such
    constituents. Those below `least` are left out, and the `most` likely of each span are shown;
    tooltips have all numbers, and the logs of inside and outside values where given. The sentence
    is at the bottom. O(n²) cells.

    >>> table = chart(["she", "sleeps"], {("S", 0, 2): 1.0, ("NP", 0, 1): 1.0, ("VP", 1, 2): 1.0})
    >>> table.count('class="io-label"'), table.count('class="io-word"')
    (3, 2)
    """
    spans: dict[tuple[int, int], list[tuple[float, str]]] = {}
    for (label, i, j), value in constituents.items():
        if value >= least:
            spans.setdefault((i, j), []).append((value, label))
    size = len(words)
    rows = []
    # Rows above the widest constituent would be empty.
    highest = max((j - i for i, j in spans), default=0)
    for width in range(highest, 0, -1):
        # Two columns for each word: each row of cells is shifted by one against the next.
        margin = f'<td colspan="{width - 1}"></td>' if width > 1 else ""
        cells = [
            _cell(words, i, i + width, spans, log_values, most) for i in range(size - width + 1)
        ]
        rows.append(f"<tr>{margin}{''.join(cells)}{margin}</tr>")
    bottom = "".join(f'<td class="io-word" colspan="2">{escape(word)}</td>' for word in words)
    body = "\n".join([*rows, f"<tr>{bottom}</tr>"])
    return Html(
        f'<style>{_CSS}</style>\n<div class="io-scroll"><table class="io-chart">\n{body}\n'
        "</table></div>"
    )


def _cell(
    words: Sequence[str],
    i: int,
    j: int,
    spans: Mapping[tuple[int, int], list[tuple[float, str]]],
    log_values: Mapping[tuple[str, int, int], tuple[float, float]],
    most: int,
) -> str:
    found = sorted(spans.get((i, j), ()), key=lambda pair: (-pair[0], pair[1]))
    if not found:
        return '<td colspan="2"></td>'
    title = "&#10;".join(
        [escape(f"{' '.join(words[i:j])}  [{i}, {j}]")]
        + [
            f"{escape(label)}  {value:.6g}"
            + (f"  ({labels.log_values(*logs)})" if (logs := log_values.get((label, i, j))) else "")
            for value, label in found
        ]
    )
    shown = "".join(
        f'<span class="io-label" style="--io-share:{0.08 + 0.5 * share(value):.2f}">'
        f"<span>{escape(label)}</span><small>{_digits(value)}</small></span>"
        for value, label in found[:most]
    )
    more = len(found) - most
    rest = f'<span class="io-more">+{more}</span>' if more > 0 else ""
    return f'<td class="io-span" colspan="2" title="{title}">{shown}{rest}</td>'


def _digits(value: float) -> str:
    """Two digits; an uncertain value is never shown as 1."""
    text = f"{value:.2f}"
    return "&gt;.99" if text == "1.00" and value < 0.9995 else text.removeprefix("0")
