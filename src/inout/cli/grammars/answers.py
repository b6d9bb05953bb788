"""Requests and answers about sentences, for grammars and latent models; what is too long."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inout.cli.grammars.loading import Line

_ROUNDING = 1e-6
# Charts in memory at once for one query, measured on large grammars.
CHARTS, CHARTS_WITH_POSTERIORS = 4, 12


@dataclass(frozen=True)
class Request:
    """What to compute for each sentence."""

    k: int = 1
    samples: int = 0
    method: str = "viterbi"
    count: bool = False
    constituents: bool = False
    picture: bool = False  # all trees if there are few
    restore: bool = False
    numbers: bool = True  # probabilities, not only the best tree
    max_words: int | None = None


@dataclass(frozen=True)
class Found:
    """A tree; its probability is 0 if the grammar does not derive it (as for --method min-risk).

    With a spectral latent model it may be negative, or above 1.
    """

    tree: Any
    log_weight: float
    log_prob: float
    sign: int = 1  # 0: the model gives the sentence, or the tree, no probability

    @property
    def log_probability(self) -> float:
        """`log_prob` without the rounding that would take it above 0."""
        return 0.0 if 0 < self.log_prob < _ROUNDING else self.log_prob


@dataclass(frozen=True)
class Answer:
    """The answer for one sentence; `reason` says why there is no tree."""

    line: Line
    words: Sequence[str]
    log_partition: float = -math.inf
    trees: Sequence[Found] = ()
    samples: Sequence[Found] = ()
    count: float | int | None = None
    constituents: dict[tuple[str, int, int], float] | None = None
    log_values: Mapping[tuple[str, int, int], tuple[float, float]] | None = None
    """Logs of the inside and outside value of each constituent; None where labels are merged."""

    all_trees: Sequence[Found] = ()
    unknown: Sequence[str] = ()
    reason: str | None = None
    # Of the sentence's probability, whose absolute value has the logarithm `log_partition`.
    sign: int = 1
    # For latent models: how the tree was found, see `LatentParse.source`.
    found_by: str | None = None


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
