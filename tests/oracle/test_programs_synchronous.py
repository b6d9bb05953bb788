"""Synchronous grammars against enumeration of the source's derivations and their targets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from inout import ArgumentError, CycleError, programs
from tests.oracle.derivations import (
    Derivation,
    Weights,
    check,
    draw_ambiguous,
    random_weights,
    random_words,
)
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(3)
Symbol = str | tuple[str, int]
SyncRule = tuple[str, tuple[Symbol, ...], tuple[Symbol, ...]]
Words = tuple[str, ...]


def translations(
    rules: Sequence[SyncRule], symbol: str, source: Words
) -> Iterator[tuple[tuple[int, ...], Words]]:
    """(numbers of the rules used, target words) of every derivation of the source words."""
    for number, (left, side, target) in enumerate(rules):
        if left != symbol:
            continue
        for used, outputs in read_side(rules, side, source):
            words: list[str] = []
            for s in target:
                words += [s] if isinstance(s, str) else outputs[s[1]]
            yield (number, *used), tuple(words)


def read_side(
    rules: Sequence[SyncRule], side: tuple[Symbol, ...], source: Words
) -> Iterator[tuple[tuple[int, ...], dict[int, Words]]]:
    if not side:
        if not source:
            yield (), {}
        return
    first, rest = side[0], side[1:]
    if isinstance(first, str):
        if source[:1] == (first,):
            yield from read_side(rules, rest, source[1:])
        return
    shortest = len(rest)  # no constituent of the random grammars is empty
    for cut in range(1, len(source) - shortest + 1):
        rests = list(read_side(rules, rest, source[cut:]))
        if rests:
            for used, words in translations(rules, first[0], source[:cut]):
                for more, outputs in rests:
                    yield (*used, *more), {first[1]: words, **outputs}


def random_rules(rng: np.random.Generator) -> list[SyncRule]:
    """Rules of up to three nonterminals; with one or none both sides have a word."""
    rules: list[SyncRule] = [(x, (w,), (v,)) for x in "SA" for w, v in product("ab", repeat=2)]
    rules = [rule for rule in rules if rng.random() < 0.6]
    for _ in range(8):
        rank = int(rng.choice([0, 1, 2, 2, 2, 3]))
        links: list[Symbol] = [(str(rng.choice(["S", "A"])), i) for i in range(rank)]
        sides = []
        for _ in range(2):
            side = [links[i] for i in rng.permutation(rank)]
            least = 1 if rank < 2 else 0
            for _ in range(int(rng.integers(least, 2 + least))):
                side.insert(int(rng.integers(len(side) + 1)), str(rng.choice(["a", "b"])))
            sides.append(tuple(side))
        rules.append((str(rng.choice(["S", "A"])), sides[0], sides[1]))
    return rules


def given(rules: Sequence[SyncRule], weights: Weights, start: Weights) -> dict[str, Any]:
    """All facts about rules, the weighted ones as dicts."""
    facts: dict[str, Any] = {n: f.rows for n, f in programs.synchronous_rules(rules).items()}
    return {
        **facts,
        "rule": dict(zip(facts["rule"], weights.values(), strict=True)),
        "start": start,
    }


def open_side(side: str, words: str = "ab") -> dict[str, Any]:
    return {side: [(w, 0, 0) for w in words], f"{side}_length": [(0,)]}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("open_sides", [(), ("target",), ("source",)])
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 1), (2, 2), (4, 10)])
@pytest.mark.few(10)
def test_synchronous_grammars_sum_over_all_derivations(
    size: int, least: int, open_sides: tuple[str, ...], seed: int
):
    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        rules = random_rules(rng)
        weights = random_weights(rng, [(i,) for i in range(len(rules))])
        facts = given(rules, weights, random_weights(rng, [("S",), ("A",)], dead=0.2))
        source = tuple(w for w in random_words(rng, 9) if w != "c")[:size]
        found = [(x, used, target) for x in "SA" for used, target in translations(rules, x, source)]
        target: Words = ()
        if found:
            target = found[int(rng.integers(len(found)))][2]
        # The source is open in the same problem seen from the other side.
        sides = {**programs.sentence_pair(source, target)}
        if open_sides == ("source",):
            turned = [(x, t, s) for x, s, t in rules]
            facts = given(turned, weights, facts["start"])
            sides = {**programs.sentence_pair(target, source)}
        for side in open_sides:
            sides.update(open_side(side))
        keys = list(facts["rule"])
        derivations = (
            (("start", (x,)), *(("rule", keys[i]) for i in used))
            for x, used, words in found
            if open_sides or words == target
        )
        return {**facts, **sides}, derivations

    least = 0 if size == 0 else min(least, 2) if not open_sides else least
    facts, derivations = draw_ambiguous(np.random.default_rng(seed), draw, least)
    forest = check(programs.load("synchronous_cfg"), facts, derivations)
    if forest.count():
        best = max(math.fsum(facts[n][r] for n, r in d) for d in derivations)
        assert_close(forest.argmax().log_weight, best)


@pytest.mark.exhaustive
def test_permutations_of_four_have_rules():
    """Also the two that inversion transduction grammars lack; nothing else is derived."""
    links = [("X", i) for i in range(4)]
    words = tuple("abcd")
    for order in ((0, 1, 2, 3), (1, 3, 0, 2), (2, 0, 3, 1)):
        rules = [("S", links, [links[i] for i in order]), *(("X", [w], [w]) for w in words)]
        facts = {**programs.synchronous_rules(rules), "start": [("S",)]}
        for other in permutations(range(4)):
            pair = programs.sentence_pair(words, [words[i] for i in other])
            count = programs.load("synchronous_cfg").ground({**facts, **pair}).count()
            assert count == (order == other)


def test_a_binary_synchronous_grammar_is_an_inversion_transduction_grammar():
    rng = np.random.default_rng(0)
    triples = list(product("XY", repeat=3))
    itg: dict[str, Any] = {
        "start": [("X",)],
        "straight": random_weights(rng, triples),
        "inverted": random_weights(rng, triples),
        "pair": random_weights(rng, product("XY", "ab", "ab")),
        "source_only": {},
        "target_only": {},
    }
    rules: list[SyncRule] = []
    for name, order in (("straight", (0, 1)), ("inverted", (1, 0))):
        for x, *children in itg[name]:
            links = [(child, i) for i, child in enumerate(children)]
            rules.append((x, tuple(links), tuple(links[i] for i in order)))
    rules += [(x, (a,), (b,)) for x, a, b in itg["pair"]]
    weights = [*itg["straight"].values(), *itg["inverted"].values(), *itg["pair"].values()]
    facts = {**programs.synchronous_rules(rules, weights), "start": [("X",)]}
    sides = programs.sentence_pair(list("abab"), list("baab"))
    one = programs.load("inversion_transduction_grammar").ground({**itg, **sides})
    other = programs.load("synchronous_cfg").ground({**facts, **sides})
    assert one.count() == other.count() > 10
    assert_close(one.log_partition(), other.log_partition())


def test_words_for_nothing_without_end_are_a_cycle():
    rules = [("S", [("S", 1)], [("S", 1), "b"]), ("S", ["a"], ["a"])]
    facts = {**programs.synchronous_rules(rules), "start": [("S",)]}
    program = programs.load("synchronous_cfg")
    pair = programs.sentence_pair(["a"], ["a", "b", "b"])
    assert program.ground({**facts, **pair}).count() == 1
    with pytest.raises(CycleError):
        program.ground({**facts, **pair, **open_side("target")})


def test_links_must_agree():
    for source, target in [([("X", 1)], []), ([("X", 1)], [("Y", 1)]), ([("X", 1)] * 2,) * 2]:
        with pytest.raises(ArgumentError, match=r"same links on both sides.*rule 0, of 'S'"):
            programs.synchronous_rules([("S", source, target)])
