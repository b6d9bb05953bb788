"""Colours and CSS of drawings and pages, light and dark, all scoped to inout's own classes."""

from __future__ import annotations

from collections.abc import Sequence

from .labels import escape

FONT = '"Helvetica Neue",Helvetica,Arial,"Liberation Sans",sans-serif'

_LIGHT = (
    "--io-paper:#ffffff;--io-ink:#17212b;--io-soft:#5d6b7a;--io-rule:#dbe1e8;"
    "--io-item:#2b6be0;--io-axiom:#e08a00;--io-line:#3d5878;--io-hot:#d6336c"
)
_DARK = (
    "--io-paper:#14181e;--io-ink:#e8edf3;--io-soft:#9ba9b8;--io-rule:#323b46;"
    "--io-item:#5f97ff;--io-axiom:#ffb53d;--io-line:#a3bad6;--io-hot:#ff7aa8"
)


def themes(scope: str, light: str = _LIGHT, dark: str = _DARK) -> str:
    """Colours for a class: what the system prefers, unless the page around it says otherwise."""
    light_pages = ('[data-jp-theme-light="true"]', ".vscode-light", '[data-theme="light"]')
    dark_pages = ('[data-jp-theme-light="false"]', ".vscode-dark", '[data-theme="dark"]')
    return "\n".join(
        (
            f"{scope}{{{light}}}",
            f"@media (prefers-color-scheme:dark){{{scope}{{{dark}}}}}",
            ",".join(f"{page} {scope}" for page in light_pages) + f"{{{light}}}",
            ",".join(f"{page} {scope}" for page in dark_pages) + f"{{{dark}}}",
        )
    )


SVG_CSS = f"""\
{themes(".inout-svg")}
.inout-svg{{color-scheme:light dark}}
.inout-svg text{{font-family:{FONT};font-size:14px;fill:var(--io-ink);text-anchor:middle;\
dominant-baseline:central}}
.inout-svg .io-paper{{fill:var(--io-paper)}}
.inout-svg .io-item rect{{fill:var(--io-item);stroke:var(--io-item);stroke-width:1.2}}
.inout-svg .io-item text{{font-weight:500}}
.inout-svg .io-goal rect{{stroke-width:2.4}}
.inout-svg .io-goal text{{font-weight:700}}
.inout-svg .io-axiom rect{{fill:var(--io-axiom);stroke:none}}
.inout-svg .io-faint{{stroke:var(--io-soft)}}
.inout-svg .io-axiom text{{font-size:11.5px}}
.inout-svg .io-more rect{{stroke-dasharray:4 3}}
.inout-svg .io-under{{fill:var(--io-paper)!important;stroke:none!important}}
.inout-svg path{{fill:none;stroke:var(--io-line);stroke-linecap:round}}
.inout-svg .io-dot{{fill:var(--io-line)}}
.inout-svg .io-dot.io-bare{{fill:var(--io-paper);stroke:var(--io-line);stroke-width:1.2}}
.inout-svg text.io-number{{font-size:10.5px;fill:var(--io-soft);text-anchor:start;\
stroke:var(--io-paper);stroke-width:3px;paint-order:stroke}}
.inout-svg text.io-note{{font-size:10.5px;fill:var(--io-soft)}}
.inout-svg text.io-caption{{font-size:12px;fill:var(--io-soft);text-anchor:start}}
.inout-svg .io-edge:hover path{{stroke:var(--io-hot);stroke-opacity:1}}
.inout-svg .io-edge:hover .io-dot{{fill:var(--io-hot)}}
.inout-svg .io-edge:hover text{{fill:var(--io-hot)}}
"""


def document(
    width: float,
    height: float,
    pieces: Sequence[str],
    css: str = "",
    kind: str = "",
    name: str = "",
) -> str:
    """The pieces of a drawing as an SVG document, on paper of that size."""
    size = f'width="{width:g}" height="{height:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{f"inout-svg {kind}".strip()}" '
            + 'role="img" '
            + (f'aria-label="{escape(name)}" ' if name else "")
            + f'{size} viewBox="0 0 {width:g} {height:g}">',
            f"<style>{SVG_CSS}{css}</style>",
            f'<rect class="io-paper" {size}/>',
            *pieces,
            "</svg>",
        ]
    )


def tooltip(*lines: str) -> str:
    """The lines that are not empty as the title of an SVG element."""
    return f"<title>{'&#10;'.join(escape(line) for line in lines if line)}</title>"


HTML_CSS = f"""\
{themes(".inout")}
.inout{{font:15px/1.5 {FONT};color:var(--io-ink);background:var(--io-paper)}}
.inout h1{{font-size:1.75em;line-height:1.2;margin:0 0 .3em;font-weight:650}}
.inout h2{{font-size:1.2em;margin:2.2em 0 .6em;padding-bottom:.25em;font-weight:650;\
border-bottom:1px solid var(--io-rule)}}
.inout p{{margin:.5em 0;max-width:46em}}
.inout .io-lead,.inout figcaption{{color:var(--io-soft)}}
.inout .io-scroll{{overflow-x:auto}}
.inout table{{border-collapse:collapse;font-size:14px;margin:.6em 0;\
font-variant-numeric:tabular-nums}}
.inout th,.inout td{{padding:.3em .8em;border:0;border-bottom:1px solid var(--io-rule);\
background:none;color:inherit;white-space:nowrap}}
.inout th{{font-weight:600;color:var(--io-soft);border-bottom-width:2px}}
.inout .io-l{{text-align:left}}
.inout .io-r{{text-align:right}}
.inout .io-c{{text-align:center}}
.inout .io-track{{display:inline-block;width:5em;height:.55em;margin-right:.7em;\
border-radius:.3em;overflow:hidden;background:var(--io-rule);vertical-align:.08em}}
.inout .io-fill{{display:block;height:100%;background:var(--io-item)}}
.inout .io-figures{{display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start;margin:.8em 0}}
.inout figure{{margin:0;max-width:100%;min-width:0;overflow-x:auto}}
.inout figcaption{{font-size:13px;margin-top:.3em}}
.inout svg{{display:block}}
"""

PAGE_CSS = """\
html{color-scheme:light dark}
body.inout{margin:0}
.inout main{max-width:1120px;margin:0 auto;padding:2.5em 1.5em 4em}
@media print{.inout section{break-inside:avoid}}
"""
