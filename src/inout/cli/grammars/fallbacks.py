"""Notes on trees that a latent model found by a fallback."""

from __future__ import annotations

from collections import Counter

# By `LatentParse.source`.
ABOUT = {
    "negative": "found by its posteriors anyway, which are ratios",
    "wider": "found with less pruning: the first chart had no tree with positive posteriors",
    "unpruned": "found without pruning: pruned charts had no tree with positive posteriors",
    "skeletal": "found by the skeletal rules: the model had no tree with positive posteriors",
}
_COUNTED = {
    "negative": "the model's probability was negative (posteriors used anyway)",
    "wider": "parsed with less pruning",
    "unpruned": "parsed without pruning",
    "skeletal": "parsed by the skeletal rules alone",
}


def notes(found_by: Counter[str | None], sentences: int) -> list[str]:
    """How often each fallback was used.

    >>> notes(Counter(latent=297, negative=2, skeletal=1), 300)[1]
    '1 of 300 sentences: parsed by the skeletal rules alone'
    """
    of = f"of {sentences:,} sentence{'' if sentences == 1 else 's'}"
    return [f"{found_by[by]:,} {of}: {text}" for by, text in _COUNTED.items() if found_by[by]]
