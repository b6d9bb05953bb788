"""Sentences parsed one after the other, in order, as they come."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from inout._core.pipeline import in_order
from inout.cli.grammars.loading import Line
from inout.grammars.parser.analyses import Analyses
from inout.grammars.parser.parser import Parser
from inout.grammars.parser.parses import Parse
from inout.grammars.treebank import coarse_label, restore

# Forests of more trees are not drawn.
MOST_TREES = 100
# Charts that a question keeps at once, measured on large grammars.
CHARTS, CHARTS_WITH_POSTERIORS = 4, 12
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Request:
    """What is asked about each sentence."""

    k: int = 1
    samples: int = 0
    seed: int | None = None
    method: str = "viterbi"
    count: bool = False
    picture: bool = False  # constituents, and all trees where they are few
    restore: bool = False
    numbers: bool = True  # latent models: probabilities, and not the best tree alone
    max_words: int | None = None


@dataclass(frozen=True)
class Found:
    """A tree; its probability is 0 where it is the best in some sense, but not the grammar's.

    That of an estimated latent model may be negative, or above 1.
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
    """What is known about one sentence; `reason` says why there is no tree."""

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
    """With a latent model: what gave the tree, see `LatentParse.source`."""


def treebank_label(symbol: str) -> str | None:
    """The label that a symbol of a Markovised grammar stands for; None for a part of a node.

    >>> [treebank_label(symbol) for symbol in ("NP^S", "NP^S|<DT>", "NN")]
    ['NP', None, 'NN']
    """
    label = coarse_label(symbol)
    return None if label.endswith("|<>") else label


def answers(parser: Parser, lines: Iterable[Line], request: Request) -> Iterator[Answer]:
    """The answer to each line, in order, as soon as it is there."""
    given = seeded(lines, request.seed)
    return in_order(partial(_answer, parser, request), given, torch.get_num_threads())


def seeded(lines: Iterable[Line], seed: int | None) -> Iterator[tuple[Line, int]]:
    """Each line with a seed of its own, so that threads do not mix up what is drawn."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    for line in lines:
        yield line, int(torch.randint(2**62, (1,), generator=generator))


def _answer(parser: Parser, request: Request, given: tuple[Line, int]) -> Answer:
    line, seed = given
    words = line.words
    refused = refusal(parser, len(words), request.max_words, posteriors=_posteriors(request))
    if refused is not None:
        return Answer(line, words, reason=refused)
    analyses = parser.given(words)
    parses = _parses(analyses, request)
    first = parses[0]
    if first.tree is None:
        count = 0 if request.count else None
        reason = first.reason or "the grammar has none"
        return Answer(line, words, count=count, unknown=first.unknown, reason=reason)
    drawn: list[Parse] = []
    if request.samples:
        drawn = analyses.sample(request.samples, torch.Generator().manual_seed(seed))
    return Answer(
        line,
        words,
        analyses.log_z,
        [_shown(parse, request) for parse in parses],
        [_shown(parse, request) for parse in drawn],
        analyses.count() if request.count else None,
        _constituents(analyses, request) if request.picture else None,
        _all_trees(analyses, request) if request.picture else (),
        first.unknown,
    )


def _parses(analyses: Analyses, request: Request) -> Sequence[Parse]:
    if request.k == 1:
        return [analyses.parse(request.method, treebank_label if request.restore else None)]
    # A sentence without a tree has no best ones either, but a reason.
    return analyses.kbest(request.k) or [analyses.best()]


def _shown(parse: Parse, request: Request) -> Found:
    tree = restore(parse.tree) if request.restore and parse.tree is not None else parse.tree
    return Found(tree, float(parse.log_weight), float(parse.log_prob))


def _constituents(analyses: Analyses, request: Request) -> dict[tuple[str, int, int], float]:
    found = analyses.marginals().constituents
    if not request.restore:
        return dict(found)
    merged: dict[tuple[str, int, int], float] = {}
    for (symbol, i, j), value in found.items():
        label = treebank_label(symbol)
        if label is not None:
            merged[label, i, j] = merged.get((label, i, j), 0.0) + value
    return merged


def _all_trees(analyses: Analyses, request: Request) -> Sequence[Found]:
    """Every tree, for a drawing of the forest; none where there are too many."""
    size = analyses.count()
    if not size <= MOST_TREES:
        return ()
    return [_shown(parse, request) for parse in analyses.kbest(int(size))]


def _posteriors(request: Request) -> bool:
    return request.picture or request.method != "viterbi"


def refusal(
    parser: Parser, size: int, max_words: int | None, *, posteriors: bool = False
) -> str | None:
    """Why a sentence of this size is not parsed: it is too long, or its chart is too large."""
    if max_words is not None and size > max_words:
        return f"{size:,} words are more than --max-words {max_words:,}"
    charts = CHARTS_WITH_POSTERIORS if posteriors else CHARTS
    return too_large(size, charts * len(parser.form.table.nonterminals))


def too_large(size: int, numbers: int) -> str | None:
    """Why charts with so many numbers in each cell do not fit in memory; None where they do."""
    needed = 8 * numbers * size**2
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed <= 0.8 * memory:
        return None
    return (
        f"{size:,} words would need about {needed / 2**30:,.0f} GiB of memory with this grammar, "
        f"and there are {memory / 2**30:,.0f}"
    )
