"""The shipped grammar of English, proper and consistent, has a tree for every shipped sentence."""

from __future__ import annotations

from functools import cache

import pytest

from inout._core.errors import ArgumentError
from inout.grammars import Grammar, Symbol, Terminal, diagnose, library


def count_trees(grammar: Grammar, words: list[str]) -> int:
    """The number of trees, by recursion on spans; unary rules must not make cycles."""
    rules: dict[str, list[tuple[Symbol, ...]]] = {}
    for rule in grammar.rules:
        # Without this the recursion asks every word of the language at every place.
        if all(s.text in words for s in rule.rhs if isinstance(s, Terminal)):
            rules.setdefault(rule.lhs, []).append(rule.rhs)

    @cache
    def of_symbol(symbol: Symbol, start: int, end: int) -> int:
        if isinstance(symbol, Terminal):
            return int(end == start + 1 and words[start] == symbol.text)
        return sum(of_sequence(right, start, end) for right in rules.get(symbol, []))

    @cache
    def of_sequence(symbols: tuple[Symbol, ...], start: int, end: int) -> int:
        first, rest = symbols[0], symbols[1:]
        if not rest:
            return of_symbol(first, start, end)
        total = 0
        for middle in range(start + 1, end - len(rest) + 1):
            left = of_symbol(first, start, middle)
            total += left and left * of_sequence(rest, middle, end)
        return total

    return of_symbol(grammar.start, 0, len(words))


def test_english_is_proper_and_consistent():
    english = library.load("english")
    found = diagnose(english)
    assert (found.undefined, found.unreachable, found.unproductive) == ((), (), ())
    assert (found.improper, found.cycles) == ({}, ())
    assert diagnose(english, tolerance=1e-12).improper == {}
    assert found.consistency.consistent
    assert found.consistency.spectral_radius < 0.8
    assert found.expectations is not None
    assert 6 < found.expectations.length < 12


@pytest.mark.exhaustive
def test_every_sentence_of_the_corpus_has_a_tree():
    english, corpus = library.load("english"), library.sentences("corpus")
    assert len(corpus) >= 400
    assert len(set(map(tuple, corpus))) == len(corpus)
    assert {len(words) for words in corpus} <= set(range(3, 13))
    without = [" ".join(words) for words in corpus if not count_trees(english, words)]
    assert without == []
    assert {word for words in corpus for word in words} >= {*english.terminals}


def test_ambiguous_sentences_are():
    english = library.load("english")
    counts = {" ".join(w): count_trees(english, w) for w in library.sentences("ambiguous")}
    assert min(counts.values()) >= 2
    assert counts["I saw her duck"] == 2
    assert counts["the astronomer saw the star with a telescope"] == 2


def test_what_is_not_there_is_said():
    assert library.names() == ("english",)
    with pytest.raises(ArgumentError, match="no grammar is called 'englsh'; did you mean english"):
        library.load("englsh")
    with pytest.raises(ArgumentError, match="no list of sentences is called 'x'; there are ambig"):
        library.sentences("x")
