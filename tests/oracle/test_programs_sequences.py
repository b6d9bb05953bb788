"""Programs for sequences and pairs of strings against enumeration of all labellings and paths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest

from inout import programs
from inout.semirings import Max
from tests.oracle.derivations import (
    WORDS,
    Derivation,
    Row,
    check,
    draw_ambiguous,
    random_weights,
    random_words,
    some,
)
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(4)
TAGS = ("A", "B", "C")
Draw = tuple[dict, Iterator[Derivation]]


# hidden Markov models


def backward_paths(facts: dict, words: list[str]) -> Iterator[Derivation]:
    for tags in product(TAGS, repeat=len(words)):
        if not tags:
            continue
        steps = [(a, w, b) for (a, b), w in zip(pairwise(tags), words, strict=False)]
        rows: list[Row] = [*steps, (tags[-1], words[-1])]
        if tags[:1] in facts["start"] and all(row in facts["rule"] for row in rows):
            yield (("start", tags[:1]), *(("rule", row) for row in rows))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 1), (2, 2), (5, 10)])
def test_hmm_backward_sums_over_all_taggings(size: int, least: int, seed: int):
    rows = [*product(TAGS, WORDS, TAGS), *product(TAGS, WORDS), ("X", "a", "X"), ("X", "a")]

    def draw(rng: np.random.Generator) -> Draw:
        words = random_words(rng, size)
        facts = {
            "start": random_weights(rng, [(t,) for t in TAGS]),
            "rule": random_weights(rng, some(rng, rows, 0.8)),
            **programs.sentence(words),
        }
        return facts, backward_paths(facts, words)

    facts, paths = draw_ambiguous(np.random.default_rng(seed), draw, least)
    check(programs.load("hmm_backward"), facts, paths)


def hmm_paths(facts: dict, words: list[str]) -> Iterator[Derivation]:
    for tags in product(TAGS, repeat=len(words)):
        if tags:
            yield (
                ("start", tags[:1]),
                *(("transition", step) for step in pairwise(tags)),
                *(("emission", pair) for pair in zip(tags, words, strict=True)),
                ("stop", tags[-1:]),
            )


def random_hmm(rng: np.random.Generator) -> dict:
    return {
        "start": random_weights(rng, [(t,) for t in TAGS]),
        "transition": random_weights(rng, product(TAGS, TAGS)),
        "emission": random_weights(rng, product(TAGS, WORDS)),
        "stop": random_weights(rng, [(t,) for t in TAGS]),
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 1), (2, 2), (5, 10)])
def test_hmm_sums_over_all_taggings(size: int, least: int, seed: int):
    def draw(rng: np.random.Generator) -> Draw:
        facts, words = random_hmm(rng), random_words(rng, size)
        return {**facts, **programs.sentence(words)}, hmm_paths(facts, words)

    facts, paths = draw_ambiguous(np.random.default_rng(seed), draw, least)
    check(programs.load("hmm"), facts, paths)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_hmm_programs_agree_on_a_long_sentence(seed: int):
    rng = np.random.default_rng(seed)
    facts, words = random_hmm(rng), random_words(rng, 40)
    start, stop = facts["start"], facts["stop"]
    rules = {
        (a, w, b): emit + step
        for (a, w), emit in facts["emission"].items()
        for (c, b), step in facts["transition"].items()
        if a == c
    } | {(a, w): emit + stop[a,] for (a, w), emit in facts["emission"].items()}
    forward = programs.load("hmm").ground({**facts, **programs.sentence(words)})
    backward = programs.load("hmm_backward").ground(
        {"start": start, "rule": rules, **programs.sentence(words)}
    )
    assert forward.count() == backward.count() > 1
    assert_close(forward.log_partition(), backward.log_partition())
    emitted = backward.expected_counts("rule").tolist()
    sums = dict.fromkeys(facts["emission"], 0.0)
    for row, count in zip(rules, emitted, strict=True):
        sums[row[:2]] += count
    assert_close(forward.expected_counts("emission"), list(sums.values()))


@pytest.mark.parametrize("words", [["zzz"], ["a", "zzz", "b"]])
def test_unknown_words_have_no_tagging(words: list[str]):
    rng = np.random.default_rng(0)
    forest = programs.load("hmm").ground({**random_hmm(rng), **programs.sentence(words)})
    assert forest.log_partition().item() == -math.inf
    assert_close(forest.expected_counts("transition"), np.zeros(9))


# linear_chain_crf


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), [(0, 1), (1, 1), (2, 2), (5, 10)])
def test_linear_chain_crf_sums_over_all_labellings(size: int, least: int, seed: int):
    def draw(rng: np.random.Generator) -> Draw:
        steps = [(i, *step) for i in range(1, size) for step in product(TAGS, TAGS)]
        facts = {
            "label": random_weights(rng, [(i, y) for i in range(size) for y in TAGS]),
            "transition": random_weights(rng, steps),
            "length": {(size,): 0.0},
        }
        labellings = (
            (
                *(("label", label) for label in enumerate(labels)),
                *(("transition", (i, *step)) for i, step in enumerate(pairwise(labels), 1)),
                ("length", (size,)),
            )
            for labels in product(TAGS, repeat=size)
        )
        return facts, labellings

    facts, labellings = draw_ambiguous(np.random.default_rng(seed), draw, least)
    check(programs.load("linear_chain_crf"), facts, labellings)


# semi_markov


def compositions(size: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as an ordered sum."""
    if size == 0:
        yield ()
    for first in range(1, size + 1):
        yield from ((first, *rest) for rest in compositions(size - first))


def segmentations(facts: dict, size: int) -> Iterator[Derivation]:
    for widths in compositions(size):
        ends = np.cumsum(widths).tolist()
        for labels in product(TAGS[:2], repeat=len(widths)):
            chosen = list(zip(labels, widths, strict=True))
            if not labels or any(pair not in facts["width"] for pair in chosen):
                continue
            yield (
                ("start", labels[:1]),
                ("stop", labels[-1:]),
                *(("transition", step) for step in pairwise(labels)),
                *(("width", pair) for pair in chosen),
                *(
                    ("segment", (y, end - width, end))
                    for y, width, end in zip(labels, widths, ends, strict=True)
                ),
            )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 1), (2, 2), (6, 20)])
def test_semi_markov_sums_over_all_segmentations(size: int, least: int, seed: int):
    spans = [(i, k) for k in range(size + 1) for i in range(k)]

    def draw(rng: np.random.Generator) -> Draw:
        labels = [(y,) for y in TAGS[:2]]
        facts = {
            "start": random_weights(rng, labels),
            "transition": random_weights(rng, product(TAGS[:2], TAGS[:2])),
            "stop": random_weights(rng, labels),
            "width": random_weights(rng, product(TAGS[:2], (1, 2, 3))),
            "segment": random_weights(rng, [(y, *span) for y in TAGS[:2] for span in spans]),
            "length": [(size,)],
        }
        return facts, segmentations(facts, size)

    facts, all_segmentations = draw_ambiguous(np.random.default_rng(seed), draw, least)
    check(programs.load("semi_markov"), facts, all_segmentations)


def test_semi_markov_counts_tilings_with_widths_up_to_three():
    for size, tribonacci in enumerate([1, 1, 2, 4, 7, 13, 24, 44, 81]):
        facts = {
            "start": [("x",)],
            "stop": [("x",)],
            "transition": [("x", "x")],
            "width": [("x", w) for w in (-1, 0, 1, 2, 3)],  # widths below 1 do nothing
            "segment": [("x", i, k) for k in range(size + 1) for i in range(size + 1)],
            "length": [(size,)],
        }
        wanted = tribonacci if size else 0
        assert programs.load("semi_markov").ground(facts).count() == wanted


# edit_transducer

STATES = ("p", "q")


def edits(facts: dict, state: str, source: str, target: str) -> Iterator[Derivation]:
    if not source and not target:
        if (state,) in facts["final"]:
            yield (("final", (state,)),)
        return
    a, b = source[:1], target[:1]
    steps: list[tuple[str, Row, str, str]] = []
    if a and b and a == b:
        steps.append(("copy", (a,), source[1:], target[1:]))
    if a and b and a != b:
        steps.append(("substitute", (a, b), source[1:], target[1:]))
    if a:
        steps.append(("delete", (a,), source[1:], target))
    if b:
        steps.append(("insert", (b,), source, target[1:]))
    for name, row, rest, other in steps:
        if row in facts[name]:
            yield from (((name, row), *d) for d in edits(facts, state, rest, other))
        for end in STATES:
            moving = (state, *row, end)
            if moving in facts[name]:
                yield from (((name, moving), *d) for d in edits(facts, end, rest, other))


def random_edits(rng: np.random.Generator) -> dict:
    letters = [(x,) for x in "ab"]
    pairs = list(product("ab", "ab"))

    def with_states(rows: list[Row]) -> list[Row]:
        moving = [(p, *row, q) for row in rows for p in STATES for q in STATES]
        return [*some(rng, rows, 0.8), *some(rng, moving, 0.4)]

    return {
        "initial": random_weights(rng, [("p",), ("q",)], dead=0.3),
        "final": random_weights(rng, [("p",), ("q",)], dead=0.3),
        "copy": random_weights(rng, with_states(letters)),
        "substitute": random_weights(rng, with_states(pairs)),
        "delete": random_weights(rng, with_states(letters)),
        "insert": random_weights(rng, with_states(letters)),
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("source", "target", "least"),
    [("", "", 1), ("a", "", 1), ("", "ba", 1), ("ab", "b", 3), ("aab", "ba", 20)],
)
def test_edit_transducer_sums_over_all_edits(source: str, target: str, least: int, seed: int):
    def draw(rng: np.random.Generator) -> Draw:
        facts = random_edits(rng)
        paths = (
            (("initial", begin), *path)
            for begin in facts["initial"]
            for path in edits(facts, begin[0], source, target)
        )
        return {**facts, **programs.sentence_pair(list(source), list(target))}, paths

    facts, paths = draw_ambiguous(np.random.default_rng(seed), draw, least)
    check(programs.load("edit_transducer"), facts, paths)


def test_the_best_edit_sequence_has_levenshtein_cost_and_all_are_delannoy_many():
    letters = sorted(set("kittensitting"))
    facts = {
        "initial": [("q",)],
        "final": [("q",)],
        "copy": [(x,) for x in letters],
        "substitute": dict.fromkeys(product(letters, letters), -1.0),
        "delete": {(x,): -1.0 for x in letters},
        "insert": {(x,): -1.0 for x in letters},
        **programs.sentence_pair(list("kitten"), list("sitting")),
    }
    forest = programs.load("edit_transducer").ground(facts)
    assert forest.evaluate(Max()).item() == -3.0
    assert forest.count() == 19825  # the Delannoy number D(6, 7)


def test_a_symbol_without_edits_cannot_be_read():
    facts = {**random_edits(np.random.default_rng(0)), **programs.sentence_pair(["z"], ["a"])}
    assert programs.load("edit_transducer").ground(facts).log_partition().item() == -math.inf


# monotone_alignment


def alignments(facts: dict, source: list[str], target: list[str]) -> Iterator[Derivation]:
    for places in combinations_with_replacement(range(len(source)), len(target)):
        jumps = [(b - a,) for a, b in pairwise((-1, *places, len(source)))]
        pairs = [(source[i], word) for i, word in zip(places, target, strict=True)]
        used = (*(("jump", jump) for jump in jumps), *(("translate", pair) for pair in pairs))
        if all(row in facts[name] for name, row in used):
            yield used


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("n", "m", "least"), [(0, 0, 1), (0, 1, 0), (1, 0, 1), (1, 1, 1), (2, 3, 2), (5, 4, 20)]
)
def test_monotone_alignment_sums_over_all_alignments(n: int, m: int, least: int, seed: int):
    def draw(rng: np.random.Generator) -> Draw:
        source, target = random_words(rng, n), random_words(rng, m)
        facts = {
            "translate": random_weights(rng, some(rng, product(WORDS, WORDS), 0.9), dead=0.1),
            "jump": random_weights(rng, [(d,) for d in (-1, 0, 1, 2, 3, 4)], dead=0.1),
            **programs.sentence_pair(source, target),
        }
        return facts, alignments(facts, source, target)

    facts, all_alignments = draw_ambiguous(np.random.default_rng(seed), draw, least)
    check(programs.load("monotone_alignment"), facts, all_alignments)


def test_monotone_alignments_are_multisets_of_source_words():
    facts = {
        "translate": [("a", "a")],
        "jump": [(d,) for d in range(10)],
        **programs.sentence_pair(["a"] * 6, ["a"] * 4),
    }
    assert programs.load("monotone_alignment").ground(facts).count() == math.comb(6 + 4 - 1, 4)
