"""Labels made safe to print and measured, in terminal cells and in pixels."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from html import escape as _escape
from math import isfinite

# Characters that XML forbids, that move a terminal's cursor, or that reverse the text around them.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)

# Advance widths of Helvetica (and of its metric twins Arial and Liberation Sans), 1/1000 em.
_HELVETICA = {
    character: width / 1000
    for width, characters in {
        191: "'",
        222: "ijl",
        260: "|",
        278: " !,./:;I[\\]ft",
        333: "()-`r",
        334: "{}",
        355: '"',
        389: "*",
        469: "^",
        500: "Jckszvxy",
        556: "#$0123456789?L_abdeghnopqu",
        584: "+<=>~",
        611: "FTZ",
        667: "&ABEKPSVXY",
        722: "CDHNRUw",
        778: "GOQ",
        833: "Mm",
        889: "%",
        944: "W",
        1015: "@",
    }.items()
    for character in characters
}


def clean(text: str) -> str:
    """Text with control characters made visible, safe for terminals and for XML.

    >>> clean("a\\nb")
    'a␊b'
    """
    return _UNSAFE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def escape(text: str) -> str:
    """Text cleaned and escaped for HTML and XML, in content and in quoted attributes.

    >>> escape('<a & "b">')
    '&lt;a &amp; &quot;b&quot;&gt;'
    """
    return _escape(clean(text), quote=True)


def log_values(inside: float, outside: float) -> str:
    """The logs of the inside and the outside value of an item, for a tooltip."""
    texts = (f"{x:.6g}" if isfinite(x) else "−∞" for x in (inside, outside))
    return "log inside {}, log outside {}".format(*texts)


def shorten(text: str, limit: int) -> str:
    """Text of at most `limit` characters, truncated with an ellipsis.

    >>> shorten("telescope", 5)
    'tele…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cells(text: str) -> int:
    """Number of terminal cells the text fills: 2 for wide characters, 0 for combining marks.

    >>> cells("été"), cells("語")
    (3, 2)
    """
    if text.isascii():
        return len(text)
    return sum(_cell(character) for character in text)


def pad(text: str, width: int, align: str = "l") -> str:
    """Text filled up with spaces to `width` cells, at the left ("l"), right ("r") or centre ("c").

    >>> pad("ab", 4, "r")
    '  ab'
    """
    free = max(width - cells(text), 0)
    before = {"l": 0, "r": free, "c": free // 2}[align]
    return " " * before + text + " " * (free - before)


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Estimated width in pixels of the text set in the drawing font at `size` pixels."""
    # Bold faces run wider; the further 3 % cover fonts that replace Helvetica.
    return sum(map(_em, text)) * size * (1.10 if bold else 1.03)


@lru_cache(maxsize=4096)
def _cell(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@lru_cache(maxsize=4096)
def _em(character: str) -> float:
    known = _HELVETICA.get(character)
    if known is not None:
        return known
    category = unicodedata.category(character)
    if category in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.3 if category == "So" else 1.0
    base = unicodedata.normalize("NFD", character)[0]
    if base in _HELVETICA:
        return _HELVETICA[base]
    return {"Ll": 0.62, "Lu": 0.8, "Nd": 0.6}.get(category, 1.0)
