"""A grammar that forgets its dictionary and relearns it by inside-outside: the work, the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.text import Text

from inout.cli import formats
from inout.cli.paper import Paper
from inout.grammars import Grammar, library
from inout.grammars.parser.parser import Parser
from inout.grammars.table import Rule, Terminal
from inout.grammars.tree import labels_above_words
from inout.learning.em import EMResult, em
from inout.viz.text import columns

SEED = 0
TOLERANCE = 1e-4
MOST_ITERATIONS = 60
HARDLY_EVER = 0.002
_INDENT = 3
CLASSES = ("Det", "Noun", "Adj", "Pron", "P", "Vt", "Vi", "Ving", "Modal")


@dataclass(frozen=True)
class Lesson:
    """The result of learning; shares are of words with the right part of speech."""

    corpus: Sequence[Sequence[str]]
    start: Grammar
    result: EMResult[Grammar]
    right_before: float
    right_after: float

    @property
    def perplexities(self) -> tuple[float, float]:
        """Per word, at the start and at the end."""
        words = sum(map(len, self.corpus))
        ends = (self.result.log_likelihoods[0], self.result.log_likelihood)
        first, last = (math.exp(-log_likelihood / words) for log_likelihood in ends)
        return first, last


def learn(english: Grammar) -> Lesson:
    """Train the grammar without its dictionary on the library's corpus, with a bar."""
    corpus = library.sentences("corpus")
    start = forgetful(english, torch.Generator().manual_seed(SEED))
    result = em(start, corpus, tolerance=TOLERANCE, max_iterations=MOST_ITERATIONS, progress=True)
    gold = _parts_of_speech(english, corpus)
    before, after = (
        sum(a == b for a, b in zip(gold, _parts_of_speech(grammar, corpus), strict=True))
        / len(gold)
        for grammar in (start, result.model)
    )
    return Lesson(corpus, start, result, before, after)


def forgetful(grammar: Grammar, generator: torch.Generator) -> Grammar:
    """The grammar with a random dictionary: each part of speech may be any word.

    The other rules are unchanged, and so is how often a part of speech is a word at all.

    >>> grammar = Grammar.from_text("S -> A B [1]\\nA -> 'a' [0.5] | A A [0.5]\\nB -> 'b' [1]")
    >>> forgotten = forgetful(grammar, torch.Generator().manual_seed(0))
    >>> [str(rule) for rule in forgotten.rules]
    ['S -> A B', 'A -> A A', "A -> 'a'", "A -> 'b'", "B -> 'a'", "B -> 'b'"]
    >>> round(forgotten.log_weights[2:4].exp().sum().item(), 4)
    0.5
    """
    rules, log_weights = [], []
    amounts: dict[str, float] = {}
    for rule, log_weight in zip(grammar.rules, grammar.log_weights.tolist(), strict=True):
        if rule.is_lexical:
            amounts[rule.lhs] = amounts.get(rule.lhs, 0.0) + math.exp(log_weight)
        else:
            rules.append(rule)
            log_weights.append(log_weight)
    words = [Terminal(word) for word in grammar.terminals]
    for name, amount in amounts.items():
        drawn = torch.empty(len(words), dtype=torch.float64).exponential_(generator=generator)
        rules += [Rule(name, (word,)) for word in words]
        log_weights += (drawn * (amount / drawn.sum())).log().tolist()
    return Grammar(grammar.start, rules, torch.tensor(log_weights, dtype=torch.float64))


def likely_words(grammar: Grammar, name: str, most: int) -> list[str]:
    """The likeliest words of a part of speech, without very rare ones."""
    found = []
    for number in grammar.rules_by_left_side[name].tolist():
        match grammar.rules[number].rhs:
            case (Terminal(text=word),):
                # Rounded, so that equally likely words are in the same order on every machine.
                found.append((round(-float(grammar.log_weights[number]), 6), word))
    least = -math.log(HARDLY_EVER)
    return [word for surprise, word in sorted(found)[:most] if surprise < least]


def _parts_of_speech(grammar: Grammar, corpus: Sequence[Sequence[str]]) -> list[str]:
    """The label above each word of the corpus, in the best trees."""
    parses = Parser(grammar).parse_all(corpus)
    return [
        label
        for parse in parses
        if parse.plain_tree is not None
        for label in labels_above_words(parse.plain_tree)
    ]


def print_task(paper: Paper) -> None:
    """Say what is about to happen, before the work."""
    paper.heading("Learning", "the grammar forgets its dictionary")
    paper.sentence(
        "Every part of speech may now be any word, with random probabilities. Inside-outside "
        "reads a corpus of plain sentences, without trees. Each iteration takes the gradient of "
        "the log-likelihood, which is the expected count of each rule, and normalises it.",
        indent=_INDENT,
    )


def print_lesson(paper: Paper, lesson: Lesson) -> None:
    """Print the curve, numbers before and after, and the words of some parts of speech."""
    result = lesson.result
    paper.heading("The likelihood rises", "log-likelihood of the corpus")
    _print_curve(paper, result.log_likelihoods)
    paper.line()
    first, last = lesson.perplexities
    size = formats.plural(len(lesson.corpus), "sentence")
    paper.line(f"{'':{_INDENT}}{'corpus':<17}{size}, read {result.iterations} times")
    rows = [
        ("perplexity", f"{first:.1f}", f"{last:.1f}", "a word"),
        ("parts of speech", f"{lesson.right_before:.0%}", f"{lesson.right_after:.0%}", "right"),
    ]
    for name, before, after, unit in rows:
        numbers = Text.assemble(f"{before} → ", (after, "bold"), f" {unit}")
        paper.line(Text.assemble(" " * _INDENT, f"{name:<17}", numbers))
    paper.heading("What it learned", "the likeliest words of some parts of speech")
    room = paper.width - _INDENT - 12
    paper.table(
        ["", "at random", "learned"],
        [
            (
                name,
                Text(_fitting(likely_words(lesson.start, name, 9), room * 2 // 5), style="dim"),
                _fitting(likely_words(lesson.result.model, name, 9), room * 3 // 5),
            )
            for name in CLASSES
        ],
        "lll",
        indent=_INDENT,
    )


def _print_curve(paper: Paper, values: tuple[float, ...]) -> None:
    marks = [f"{value:,.0f}" for value in (values[-1], values[0])]
    margin = max(map(len, marks))
    drawn = columns(values, paper.width - _INDENT - margin - 2)
    for row, line in enumerate(drawn):
        mark = marks[0] if row == 0 else marks[1] if row == len(drawn) - 1 else ""
        paper.line(Text.assemble(" " * _INDENT, (f"{mark:>{margin}} │", "dim"), (line, "blue")))


def _fitting(words: list[str], room: int) -> str:
    """As many of the words as there is room for.

    >>> _fitting(["saw", "likes", "opened"], 10)
    'saw likes'
    """
    text = ""
    for word in words:
        if len(text) + 1 + len(word) > room and text:
            break
        text += f" {word}" if text else word
    return text
