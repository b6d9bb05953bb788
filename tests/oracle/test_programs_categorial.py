"""Categorial grammars against all derivations, combined by hand on nested tuples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

import numpy as np
import pytest

from inout import ArgumentError, programs
from tests.oracle.derivations import Derivation, check, draw_ambiguous, random_weights, random_words
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(3)
Category = Any  # an atom, or (result, slash, argument)


def spelt(category: Category) -> str:
    if isinstance(category, str):
        return category
    result, slash, argument = category
    inner = spelt(argument)
    return f"{spelt(result)}{slash}{inner if isinstance(argument, str) else f'({inner})'}"


def composed(core: Category, outside: Category, other: Category) -> Iterator[tuple[Category, Any]]:
    """`other` with `core` in it replaced by `outside`: (result, (first slash, degree))."""
    arguments: list[tuple[str, Category]] = []
    while not isinstance(other, str):
        other, slash, argument = other
        arguments.insert(0, (slash, argument))
        if other == core:
            result = outside
            for pair in arguments:
                result = (result, *pair)
            yield result, (arguments[0][0], len(arguments))


def combinations(left: Category, right: Category) -> Iterator[tuple[Category, tuple]]:
    """(result, fact used) of every combination of two neighbours."""
    for slash, functor, other in (("/", left, right), ("\\", right, left)):
        if isinstance(functor, str) or functor[1] != slash:
            continue
        if functor[2] == other:
            yield functor[0], ("apply", (slash,))
        for result, kind in composed(functor[2], functor[0], other):
            yield result, ("compose", (slash, *kind))


def derivations(
    facts: dict, lexicon: dict[tuple[str, str], Category], words: Sequence[str]
) -> Iterator[tuple[Category, Derivation]]:
    if len(words) == 1:
        for row, category in lexicon.items():
            if row[0] == words[0]:
                yield category, (("lexical", row),)
    for cut in range(1, len(words)):
        rights = list(derivations(facts, lexicon, words[cut:]))
        for one, left in derivations(facts, lexicon, words[:cut]):
            for other, right in rights:
                for result, (name, row) in combinations(one, other):
                    if row in facts[name]:
                        yield result, ((name, row), *left, *right)


def random_category(rng: np.random.Generator, depth: int) -> Category:
    if depth == 0 or rng.random() < 0.35:
        return str(rng.choice(["S", "N"]))
    slash = str(rng.choice(["/", "\\"]))
    return (
        random_category(rng, depth - 1),
        slash,
        random_category(rng, depth - 2 if depth > 1 else 0),
    )


SLASHES = [("/",), ("\\",)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("degree", [0, 1, 3])
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 1), (3, 2), (4, 6), (5, 8)])
@pytest.mark.few(10)
def test_categorial_grammars_sum_over_all_derivations(
    size: int, least: int, degree: int, seed: int
):
    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        words = random_words(rng, size)
        entries = {}
        for word in "abc":
            for _ in range(6):
                category = random_category(rng, 3 if degree > 1 else 2)
                entries[word, spelt(category)] = category
        given = programs.categorial_lexicon(entries, start=["S", "S/N"])
        degrees = range(1, degree + 1)
        facts = {
            "lexical": random_weights(rng, given["lexical"].rows),
            "start": random_weights(rng, given["start"].rows, dead=0.2),
            "apply": random_weights(rng, SLASHES, dead=0.05),
            "compose": random_weights(rng, product("/\\", "/\\", degrees), dead=0.1),
            "slash": given["slash"].rows,
            "atomic": given["atomic"].rows,
        }
        found = (
            (("start", (spelt(category),)), *used)
            for category, used in derivations(facts, entries, words)
            if spelt(category) in ("S", "S/N")
        )
        return {**facts, **programs.sentence(words)}, found

    wanted = 0

    def deep(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        """With a composition of several arguments, where the degree and the size allow it."""
        for _ in range(1000):
            facts, found = draw(rng)
            some = list(islice(found, 6000))
            degrees = [row[2] for d in some for name, row in d if name == "compose"]
            if max(degrees, default=0) >= wanted:
                break
        return facts, iter(some)

    if size > 3:
        least, wanted = (least, min(degree, 2)) if degree else (2, 0)
    facts, found = draw_ambiguous(np.random.default_rng(seed), deep, least)
    forest = check(programs.load("categorial_grammar"), facts, found)
    if forest.count():
        best = max(math.fsum(facts[n][r] for n, r in d) for d in found)
        assert_close(forest.argmax().log_weight, best)


def ground(entries: list[tuple[str, str]], words: str, degree: int, crossed: bool = True) -> Any:
    compose = [
        (s, t, d)
        for s, t in product("/\\", repeat=2)
        for d in range(1, degree + 1)
        if crossed or s == t
    ]
    facts = {"apply": SLASHES, "compose": compose, **programs.categorial_lexicon(entries)}
    return programs.load("categorial_grammar").ground({**facts, **programs.sentence(words.split())})


def test_an_ab_grammar_is_a_context_free_grammar():
    entries = [("a", "S/S"), ("a", "N"), ("b", "S\\N"), ("b", "S\\S"), ("b", "S\\N/N"), ("a", "S")]
    rules = [("S", w) for w, c in entries if c == "S"]
    rules += [(c, w) for w, c in entries if c != "S"]
    rules += [("S", "S/S", "S"), ("S", "N", "S\\N"), ("S", "S", "S\\S"), ("S\\N", "S\\N/N", "N")]
    for words in ("a b", "a b a b", "a a b b", "a a b a b b"):
        cfg = {"rule": rules, "start": [("S",)], **programs.sentence(words.split())}
        wanted = programs.load("cnf_inside").ground(cfg).count()
        assert ground(entries, words, 0).count() == wanted > 0


def test_composition_makes_crossing_dependencies():
    """{a^n b^n c^n}-like order (Steedman): verbs after all their objects, in the objects' order."""
    entries = [("jan", "N"), ("piet", "N"), ("marie", "N")]
    entries += [("zag", "S\\N\\N/V"), ("helpen", "V\\N/V"), ("zwemmen", "V")]
    words = "jan piet marie zag helpen zwemmen"
    assert ground(entries, words, 0).count() == 0
    assert ground(entries, words, 2, crossed=False).count() == 0
    assert ground(entries, words, 2).count() > 0
    assert ground(entries, words.replace("piet ", ""), 2).count() == 0


def test_two_ways_to_read_the_same_string_of_functors():
    # S/A A/B B: application twice, or composition first.
    entries = [("a", "S/A"), ("b", "A/B"), ("c", "B")]
    assert ground(entries, "a b c", 0).count() == 1
    assert ground(entries, "a b c", 1).count() == 2


def test_categories_are_read_in_steedmans_notation():
    facts = programs.categorial_lexicon([("saw", "((S\\NP)/(NP))"), ("x", "S/(S\\NP)")])
    assert facts["lexical"].rows == [("saw", "S\\NP/NP"), ("x", "S/(S\\NP)")]
    assert set(facts["slash"].rows) == {
        ("S\\NP", "S", "\\", "NP"),
        ("S\\NP/NP", "S\\NP", "/", "NP"),
        ("S/(S\\NP)", "S", "/", "S\\NP"),
    }
    assert facts["atomic"].rows == [("S",), ("NP",)]
    for wrong in ("", "S/", "/NP", "(S", "S)", "S/(NP", "()"):
        with pytest.raises(ArgumentError, match="makes no sense"):
            programs.categorial_lexicon([("w", wrong)])
