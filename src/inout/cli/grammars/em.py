"""Training of a grammar on a corpus, for `inout em`: reading, checkpoints, reports."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.cli import formats
from inout.cli.files import checkpointed
from inout.cli.formats import json_line, number
from inout.cli.grammars.answers import CHARTS, too_large
from inout.cli.grammars.loading import Line
from inout.cli.messages import note
from inout.grammars import Grammar
from inout.grammars.bracketed import BracketedGrammar
from inout.grammars.formats import Format
from inout.io.files import write_text
from inout.learning.em import EMResult, em
from inout.learning.priors import Additive, Dirichlet, Prior

FORMAT = "inout em 1"
MOST_NOTES = 5
_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)


@dataclass
class Corpus:
    """The sentences to train on, their places in the files, and what was skipped."""

    sentences: list[Any] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    frequencies: list[float] | None = None
    bracketed: bool = False
    empty: int = 0
    long: list[Line] = field(default_factory=list)
    max_words: int = 0
    kind: str = "sentence"


def read_corpus(
    lines: Iterable[Line], *, frequencies: bool, brackets: bool, max_words: int
) -> Corpus:
    """The corpus of these lines; empty lines and sentences with too many words are skipped."""
    counts: list[float] | None = [] if frequencies else None
    corpus = Corpus(frequencies=counts, bracketed=brackets, max_words=max_words)
    for line in lines:
        often, text = frequency(line) if frequencies else (1.0, line.text)
        bare = Line(line.source, line.number, text)
        words, pairs = _bracketed(bare) if brackets else (bare.words, ())
        if not words:
            corpus.empty += 1
        elif len(words) > max_words:
            corpus.long.append(line)
        else:
            corpus.sentences.append((words, pairs) if brackets else words)
            corpus.lines.append(line)
            if corpus.frequencies is not None:
                corpus.frequencies.append(often)
    if not corpus.sentences:
        why = f"; {formats.plural(len(corpus.long), 'line')} above --max-words" * bool(corpus.long)
        raise ArgumentError("CORPUS", f"must contain at least one sentence. Got none{why}")
    return corpus


def frequency(line: Line) -> tuple[float, str]:
    """The count and the sentence of a line COUNT<tab>SENTENCE."""
    if not line.text.strip():
        return 0.0, ""
    first, tab, rest = line.text.partition("\t")
    try:
        often = float(first)
    except ValueError:
        often = math.nan
    if not tab or not math.isfinite(often) or often < 0:
        wanted = "expected a number of at least 0, a tab and a sentence"
        raise line.error(1, f"{wanted}. Got {line.text.rstrip()!r:.60}")
    return often, rest


def _bracketed(line: Line) -> tuple[list[str], tuple[tuple[int, int], ...]]:
    """The words of a line, and its brackets as pairs of positions."""
    words: list[str] = []
    opened: list[int] = []
    pairs = []
    for token in _TOKEN.finditer(line.text):
        if token[0] == "(":
            opened.append(len(words))
        elif token[0] != ")":
            words.append(token[0])
        elif not opened:
            raise line.error(token.start() + 1, "unmatched closing bracket")
        else:
            begin = opened.pop()
            if begin < len(words):
                pairs.append((begin, len(words)))
    if opened:
        left = "1 bracket is" if len(opened) == 1 else f"{len(opened)} brackets are"
        raise line.error(1, f"{left} not closed on this line")
    return words, tuple(dict.fromkeys(pairs))


def train(
    grammar: Grammar,
    corpus: Corpus,
    out: str,
    format: Format,
    *,
    checkpoint: str | None,
    resume: bool,
    seed: int,
    **options: Any,
) -> EMResult[Any]:
    """Train, write the grammar, remove the checkpoint, in this order, so that nothing is lost.

    `options` are those of `inout.em`.
    """
    kept = Path(checkpoint or f"{out}.checkpoint")
    with checkpointed(kept, resume=resume):
        _check_memory(grammar, corpus)
        # Written once before training: fails now if the format cannot express a symbol.
        grammar.to_text(format)
        result = em(
            BracketedGrammar(grammar) if corpus.bracketed else grammar,
            corpus.sentences,
            frequencies=corpus.frequencies,
            generator=torch.Generator().manual_seed(seed),
            checkpoint=kept,
            resume=resume,
            progress=True,
            **options,
        )
        write_text(out, trained_grammar(result).to_text(format))
    return result


def _check_memory(grammar: Grammar, corpus: Corpus) -> None:
    """Refuse sentences whose charts do not fit in memory, before hours are lost."""
    longest = max(len(line.words) for line in corpus.lines)
    numbers = CHARTS * len(grammar.nonterminals) * torch.get_num_threads()
    refused = too_large(longest, numbers)
    if refused is not None:
        way = "a smaller --max-words leaves it out"
        raise ArgumentError("CORPUS", f": a sentence of {refused}; {way}")


def trained_grammar(result: EMResult[Any]) -> Grammar:
    """The trained grammar."""
    model = result.model
    return model.grammar if isinstance(model, BracketedGrammar) else model


def chosen_prior(amount: float | None, alpha: float | None) -> Prior | None:
    """The prior of the options --prior and --alpha."""
    if alpha is not None:
        expect(alpha > 0, "--alpha", "must be above 0", alpha)
        return Dirichlet(alpha)
    if amount is None:
        return None
    expect(amount >= 0, "--prior", "must be at least 0", amount)
    return Additive(amount)


def print_notes(corpus: Corpus, result: EMResult[Any]) -> None:
    """Report skipped sentences on stderr, with examples."""
    if corpus.empty:
        note(f"{formats.plural(corpus.empty, 'empty line')} skipped")
    if corpus.long:
        places = _places(corpus.long)
        many = formats.plural(len(corpus.long), "sentence")
        note(f"{many} of more than {corpus.max_words:,} words skipped: {places}")
    if result.left_out:
        places = _places([corpus.lines[number] for number in result.left_out])
        many = formats.plural(len(result.left_out), corpus.kind)
        note(f"{many} without analysis skipped: {places}")


def _places(lines: Sequence[Line]) -> str:
    more = len(lines) - MOST_NOTES
    shown = ", ".join(line.place for line in lines[:MOST_NOTES])
    return f"{shown} and {more:,} more" if more > 0 else shown


def as_text(corpus: Corpus, result: EMResult[Any], wrote: str) -> str:
    """A summary for a person."""
    end = "converged" if result.converged else "not converged; raise --iterations"
    first, last = result.log_likelihoods[0], result.log_likelihood
    rows = [
        (f"{corpus.kind}s", f"{len(corpus.sentences) - len(result.left_out):,}"),
        ("iterations", f"{result.iterations:,}, {end}"),
        ("log-likelihood", f"{first:.4f} at the start, {last:.4f} at the end"),
    ]
    if result.perplexity is not None:
        rows.append(("perplexity", f"{result.perplexity:.4f} per word"))
    if len(result.runs) > 1:
        which = "the given weights" if result.best == 0 else f"random point {result.best}"
        rows.append(("best start", f"{which}, of {len(result.runs)} starting points"))
    rows.append(("wrote", wrote))
    return "\n".join(f"{name:<15}  {text}" for name, text in rows)


def as_json(out: str, corpus: Corpus, result: EMResult[Any], format: str = FORMAT) -> str:
    """The whole result as one line of JSON."""
    document = {
        "format": format,
        "out": out,
        "sentences": len(corpus.sentences),
        "empty_lines": corpus.empty,
        "too_long": [line.place for line in corpus.long],
        "without_analysis": [corpus.lines[number].place for number in result.left_out],
        "iterations": result.iterations,
        "converged": result.converged,
        "log_likelihoods": [number(value) for value in result.log_likelihoods],
        "objectives": [number(value) for value in result.objectives],
        "perplexity": number(result.perplexity),
        "best_start": result.best,
        "starts": [
            {
                "log_likelihood": number(run.log_likelihoods[-1]),
                "iterations": run.iterations,
                "converged": run.converged,
            }
            for run in result.runs
        ],
    }
    return json_line(document)
