"""A grammar that forgets its dictionary and relearns it by inside-outside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from inout.grammars import Grammar, library
from inout.grammars.parser.parser import Parser
from inout.grammars.table import Rule, Terminal
from inout.grammars.tree import labels_above_words
from inout.learning.em import EMResult, em

SEED = 0
TOLERANCE = 1e-4
MOST_ITERATIONS = 60
HARDLY_EVER = 0.002
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
