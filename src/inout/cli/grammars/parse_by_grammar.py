"""Sentences parsed by a grammar, lazily and in order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from inout.cli.grammars.answers import Answer, Found, Request, refusal
from inout.cli.grammars.loading import Line
from inout.grammars.parser.analyses import Analyses, Parse
from inout.grammars.parser.marginals import Marginals
from inout.grammars.parser.parser import Parser
from inout.grammars.tree import PlainTree
from inout.grammars.treebank.annotation import original_label, restore

# Larger forests are not drawn.
MOST_TREES = 100


def answer(parser: Parser, request: Request, line: Line, seed: int) -> Answer:
    """The answer to one line; `seed` is that of its samples."""
    words = line.words
    size = len(parser.form.table.nonterminals)
    posteriors = request.constituents or request.method != "viterbi"
    refused = refusal(size, len(words), request.max_words, posteriors=posteriors)
    if refused is not None:
        return Answer(line, words, reason=refused)
    analyses = parser.given(words)
    parses = _parses(analyses, request)
    first = parses[0]
    if first.plain_tree is None:
        count = 0 if request.count else None
        reason = first.reason or "the grammar has none"
        return Answer(line, words, count=count, unknown=first.unknown, reason=reason)
    if not request.numbers:
        found = Found(_tree(first, request), -math.inf, -math.inf)
        return Answer(line, words, trees=[found], unknown=first.unknown)
    drawn: list[Parse] = []
    if request.samples:
        drawn = analyses.sample(request.samples, torch.Generator().manual_seed(seed))
    constituents, log_values = None, None
    if request.constituents:
        marginals = analyses.marginals()
        constituents = _constituents(marginals, request)
        log_values = None if request.restore else marginals.log_values
    return Answer(
        line,
        words,
        analyses.log_z,
        [_shown(parse, request) for parse in parses],
        [_shown(parse, request) for parse in drawn],
        analyses.count() if request.count else None,
        constituents,
        log_values,
        _all_trees(analyses, request) if request.picture else (),
        first.unknown,
    )


def _parses(analyses: Analyses, request: Request) -> Sequence[Parse]:
    if request.k == 1:
        return [analyses.parse(request.method, original_label if request.restore else None)]
    # A sentence without a tree has a reason instead of best trees.
    return analyses.kbest(request.k) or [analyses.best()]


def _shown(parse: Parse, request: Request) -> Found:
    return Found(_tree(parse, request), float(parse.log_weight), float(parse.log_prob))


def _tree(parse: Parse, request: Request) -> PlainTree | None:
    tree = parse.plain_tree
    return restore(tree) if request.restore and tree is not None else tree


def _constituents(marginals: Marginals, request: Request) -> dict[tuple[str, int, int], float]:
    found = marginals.constituents
    if not request.restore:
        return dict(found)
    merged: dict[tuple[str, int, int], float] = {}
    for (symbol, i, j), value in found.items():
        label = original_label(symbol)
        if label is not None:
            merged[label, i, j] = merged.get((label, i, j), 0.0) + value
    return merged


def _all_trees(analyses: Analyses, request: Request) -> Sequence[Found]:
    """Every tree, for a drawing of the forest; none if there are too many."""
    size = analyses.count()
    if not size <= MOST_TREES:
        return ()
    return [_shown(parse, request) for parse in analyses.kbest(int(size))]
