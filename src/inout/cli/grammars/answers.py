"""Requests and answers about sentences, for grammars and latent models alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inout.cli.grammars.loading import Line

_ROUNDING = 1e-6


@dataclass(frozen=True)
class Request:
    """What to compute for each sentence."""

    k: int = 1
    samples: int = 0
    seed: int | None = None
    method: str = "viterbi"
    count: bool = False
    picture: bool = False  # constituents, and all trees if there are few
    restore: bool = False
    numbers: bool = True  # for latent models: probabilities, not only the best tree
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
    all_trees: Sequence[Found] = ()
    unknown: Sequence[str] = ()
    reason: str | None = None
    sign: int = 1
    """Of the sentence's probability, whose absolute value has the logarithm `log_partition`."""

    found_by: str | None = None
    """For latent models: how the tree was found, see `LatentParse.source`."""
