"""Whole HTML pages and notebook fragments with tables, figures and text, and no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import svg
from .geometry import share
from .labels import escape
from .model import TreeNode
from .style import HTML_CSS, PAGE_CSS
from .text import Cell, column_alignment, format_cell


class Html(str):
    """Text that is HTML already; the helpers here return it, and tables do not escape it."""

    __slots__ = ()


def html(title: str, sections: Iterable[tuple[str, str]], lead: str = "") -> str:
    """A whole self-contained page: title, an optional lead sentence, and headed sections.

    A section is a heading (plain text) and a body (HTML). The page loads nothing.

    >>> page = html("A < B", [("Numbers", paragraph("1 & 2"))])
    >>> "<h1>A &lt; B</h1>" in page and "<p>1 &amp; 2</p>" in page
    True
    """
    body = "\n".join(
        f"<section>\n<h2>{escape(heading)}</h2>\n{content}\n</section>"
        for heading, content in sections
    )
    intro = f'<p class="io-lead">{escape(lead)}</p>\n' if lead else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{HTML_CSS}{PAGE_CSS}</style>\n</head>\n"
        f'<body class="inout">\n<main>\n<h1>{escape(title)}</h1>\n{intro}{body}\n</main>\n'
        f"</body>\n</html>\n"
    )


def fragment(*bodies: str) -> Html:
    """Pieces of HTML for a notebook (`_repr_html_`), with styles that stay inside.

    >>> fragment(paragraph("hi")).startswith('<div class="inout"><style>')
    True
    """
    content = "\n".join(bodies)
    return Html(f'<div class="inout"><style>\n{HTML_CSS}</style>\n{content}\n</div>')


def paragraph(text: str) -> Html:
    """A paragraph of plain text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return Html(f"<p>{escape(text)}</p>")


def table(
    rows: Sequence[Sequence[Cell]],
    headers: Sequence[str],
    align: str | None = None,
    bars: Sequence[int] = (),
    full: float = 1.0,
) -> Html:
    """An HTML table; columns named in `bars` show a small bar beside each probability.

    Alignment and number format are those of `text.table`. A bar is full at the value `full`.

    >>> "0.250" in table([["NP", 0.25]], ["item", "p"], bars=[1])
    True
    """
    align = column_alignment(rows, headers, align)
    head = "".join(
        f'<th class="io-{a}">{escape(header)}</th>'
        for header, a in zip(headers, align, strict=True)
    )
    lines = [
        "".join(
            f'<td class="io-{a}">{_cell(cell, column in bars, full)}</td>'
            for column, (cell, a) in enumerate(zip(row, align, strict=True))
        )
        for row in rows
    ]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return Html(
        f'<div class="io-scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def named_values(pairs: Sequence[tuple[str, Cell]]) -> Html:
    """A table of one row: values under their names."""
    return table([[value for _, value in pairs]], [name for name, _ in pairs], "l" * len(pairs))


def tree(node: TreeNode, baseline: bool = False, most: int = 600) -> str:
    """A tree as SVG, or a remark if it has more than `most` nodes."""
    nodes, stack = 0, [node]
    while stack:
        nodes += 1
        stack.extend(stack.pop().children)
    if nodes > most:
        return paragraph(f"{nodes:,} nodes: too many to draw")
    return svg.tree(node, baseline)


def figures(pictures: Iterable[tuple[str, str]]) -> Html:
    """Pictures side by side, as far as they fit; each is its SVG and a caption (plain text).

    >>> figures([("<svg></svg>", "one & two")]).count("<figure>")
    1
    """
    parts = []
    for picture, caption in pictures:
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        parts.append(f"<figure>{picture}{below}</figure>\n")
    return Html(f'<div class="io-figures">\n{"".join(parts)}</div>')


def _cell(cell: Cell, with_bar: bool, full: float) -> str:
    if isinstance(cell, Html):
        return cell
    text = escape(format_cell(cell))
    if not with_bar or not isinstance(cell, int | float):
        return text
    fill = f'<span class="io-fill" style="width:{100 * share(cell / full):.1f}%"></span>'
    return f'<span class="io-track">{fill}</span>{text}'
