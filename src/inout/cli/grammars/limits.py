"""Which sentences are too long to parse, by --max-words or by the machine's memory."""

from __future__ import annotations

import os

# Charts in memory at once for one query, measured on large grammars.
CHARTS, CHARTS_WITH_POSTERIORS = 4, 12


def refusal(
    nonterminals: int, size: int, max_words: int | None, *, posteriors: bool = False
) -> str | None:
    """Why a sentence of this length is not parsed: too long, or its chart is too large."""
    if max_words is not None and size > max_words:
        return f"{size:,} words are more than --max-words {max_words:,}"
    charts = CHARTS_WITH_POSTERIORS if posteriors else CHARTS
    return too_large(size, charts * nonterminals)


def too_large(size: int, numbers: int) -> str | None:
    """Why charts with this many numbers per cell do not fit in memory; None if they do."""
    needed = 8 * numbers * size**2
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed <= 0.8 * memory:
        return None
    return (
        f"{size:,} words would need about {needed / 2**30:,.0f} GiB of memory with this grammar; "
        f"this machine has {memory / 2**30:,.0f}"
    )
