"""Parses compared with a treebank, for `inout eval`."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Any

from inout._core.errors import ArgumentError
from inout.cli.formats import json_line, plural
from inout.grammars.treebank import Parseval, Scores, read_parses, read_trees, score
from inout.grammars.treebank.cleaning import ROOTS

FORMAT = "inout eval 1"
MOST_ERRORS = 5
_STANDARD_INPUT = "/dev/stdin"


def options(*, punctuation: bool, root: bool, functions: bool, skip_failures: bool) -> Parseval:
    """The scoring options, from the flags of the command."""
    changed: dict[str, Any] = {"functions": functions, "count_failures": not skip_failures}
    if punctuation:
        changed["punctuation"] = ()
    if root:
        # Whatever a treebank calls it; `induce` calls it TOP.
        changed |= {"roots": (), "equal": {**Parseval().equal, **dict.fromkeys(ROOTS, "TOP")}}
    return Parseval(**changed)


def evaluate(gold: str, parses: str, counted: Parseval, untagged: bool) -> Scores:
    """The scores of the trees in one file against those in another."""
    files = [_STANDARD_INPUT if name == "-" else name for name in (gold, parses)]
    trees = read_trees(files[0], untagged=untagged, plain=True)
    scores = score(trees, read_parses(files[1], untagged=untagged, plain=True), counted)
    if not scores.num_sentences:
        raise ArgumentError("GOLD", f"must contain at least one tree. Got none in {gold}")
    return scores


def notes(scores: Scores) -> list[str]:
    """Messages about parses that could not be compared."""
    wrong = (
        f"sentence {number}: {sentence.message}"
        for number, sentence in enumerate(scores.sentences, 1)
        if sentence.status == "error"
    )
    shown = list(islice(wrong, MOST_ERRORS))
    more = scores.num_errors - len(shown)
    if more:
        shown.append(f"{plural(more, 'more sentence')} like this")
    if scores.num_errors:
        left_out = plural(scores.num_errors, "sentence")
        shown.append(f"{left_out} skipped, as evalb does: the words differ from the gold tree's")
    return shown


def as_json(gold: str, parses: str, scores: Scores, cutoff: int, width: int) -> str:
    """All scores, those by length, and the counts of every sentence, as one line of JSON."""
    document = {
        "format": FORMAT,
        "gold": gold,
        "parses": parses,
        "all": scores.to_dict(),
        "cutoff": cutoff,
        "up_to_cutoff": scores.up_to(cutoff).to_dict(),
        "by_length": [
            {"from": first, "to": last, **group.to_dict()}
            for (first, last), group in scores.by_length(width).items()
        ],
        "sentences": [asdict(sentence) for sentence in scores.sentences],
    }
    return json_line(document)
