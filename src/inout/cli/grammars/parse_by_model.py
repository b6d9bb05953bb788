"""Sentences parsed by a latent model, with the same kind of answers as for grammars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from inout._core.errors import ChartTooLargeError
from inout.cli.grammars.answers import Answer, Found, Request, refusal
from inout.cli.grammars.loading import Line
from inout.latent.decoding.analyses import LatentAnalyses
from inout.latent.decoding.best_trees import treebank_constituents
from inout.latent.decoding.parser import LatentParser
from inout.latent.grammar import LatentGrammar
from inout.latent.treebank import treebank_tree, with_words


def answer(parser: LatentParser, request: Request, line: Line, seed: int) -> Answer:
    """The answer to one line; `seed` is that of its samples."""
    words = line.words
    size = len(parser.coarse.parser.form.table.nonterminals)
    refused = refusal(size, len(words), request.max_words, posteriors=True)
    if refused is not None:
        return Answer(line, words, reason=refused, sign=0, found_by="none")
    method: Any = request.method
    try:
        parse, analyses = parser.parse_and_analyses(words, method)
    except ChartTooLargeError as error:
        return Answer(line, words, reason=error.message, sign=0, found_by="none")
    tree = parse.tree
    if tree is None:
        reason = _reason(parser.grammar, words)
        return Answer(
            line, words, unknown=parse.unknown, reason=reason, sign=0, found_by=parse.source
        )
    if not request.numbers or parse.source == "steps":
        found = Found(tree, -math.inf, -math.inf, sign=0)
        return Answer(
            line, words, trees=[found], unknown=parse.unknown, sign=0, found_by=parse.source
        )
    drawn: list[Any] = []
    if request.samples:
        drawn = analyses.sample(request.samples, torch.Generator().manual_seed(seed))
    best, *samples = _found(analyses, [parse.skeletal_tree, *drawn])
    return Answer(
        line,
        words,
        analyses.log_partition,
        [best],
        samples,
        constituents=_constituents(analyses) if request.constituents else None,
        unknown=parse.unknown,
        sign=analyses.sign,
        found_by=parse.source,
    )


def _reason(grammar: LatentGrammar, words: Sequence[str]) -> str:
    if not words:
        return "the sentence has no words"
    known = zip(words, grammar.vocabulary.replace(words), strict=True)
    numbers = grammar.model.skeleton.word_numbers
    missing = [word for word, replaced in known if replaced not in numbers]
    if missing:
        return f"the model does not know {', '.join(missing)}"
    return "the rules of the model derive none"


def _found(analyses: LatentAnalyses, trees: Sequence[Any]) -> list[Found]:
    """Skeletal trees with their probabilities given the sentence, summed over latent values."""
    known = [with_words(tree, analyses.known) for tree in trees]
    logs, signs = analyses.model.tree_log_probs(known)
    found = []
    for tree, log_weight, sign in zip(trees, logs.tolist(), signs.tolist(), strict=True):
        ratio = int(sign) * analyses.sign  # 0 if either is
        log_prob = log_weight - analyses.log_partition if ratio else -math.inf
        found.append(Found(treebank_tree(tree), log_weight, log_prob, ratio))
    return found


def _constituents(analyses: LatentAnalyses) -> dict[tuple[str, int, int], float]:
    """The posteriors of the treebank's labels, including tags."""
    merged: dict[tuple[str, int, int], float] = {}
    if analyses.sign == 0:
        return merged
    for (symbol, i, j), value in analyses.posteriors.items():
        for label in treebank_constituents(symbol, False):
            merged[label, i, j] = merged.get((label, i, j), 0.0) + value
    return merged
