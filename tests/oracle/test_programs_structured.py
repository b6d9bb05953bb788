"""The structured language model against a parser that tries every action."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest

from inout import Program, programs
from tests.oracle.derivations import Derivation, check, draw_ambiguous, random_weights, some
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(3)
Head = tuple[str, str]  # label, word
BOTTOM: Head = ("<s>", "<s>")
LABELS, WORDS = ("X", "Y"), ("a", "b")
HEADS: list[Head] = [*product(LABELS, WORDS)]
CONTEXTS = [(BOTTOM, BOTTOM), *((BOTTOM, h) for h in HEADS), *product(HEADS, repeat=2)]


def sequences(
    facts: dict, words: Sequence[str], stack: tuple[Head, ...] = (BOTTOM, BOTTOM), end: str = "</s>"
) -> Iterator[Derivation]:
    """All sequences of actions that read the words, then `end` if there is one."""
    below, top = stack[-2:]
    context = (*below, *top)
    if ("stop", context) in facts["all"]:
        stop = ("stop", context)
        if words:
            word, rest = words[0], words[1:]
            predict = ("predict", (*context, word))
            for name, row in facts["tags"]:
                if row[:3] == (below[0], top[0], word) and predict in facts["all"]:
                    pushed = (*stack, (row[3], word))
                    for others in sequences(facts, rest, pushed, end):
                        yield (stop, predict, (name, row), *others)
        elif not end:
            yield (stop,)
        elif ("predict", (*context, end)) in facts["all"]:
            yield stop, ("predict", (*context, end))
    for label in LABELS:
        if top != BOTTOM and ("unary", (*context, label)) in facts["all"]:
            for others in sequences(facts, words, (*stack[:-1], (label, top[1])), end):
                yield (("unary", (*context, label)), *others)
        if below != BOTTOM:
            for name, word in (("join_left", below[1]), ("join_right", top[1])):
                if (name, (*context, label)) in facts["all"]:
                    for others in sequences(facts, words, (*stack[:-2], (label, word)), end):
                        yield ((name, (*context, label)), *others)


def random_facts(rng: np.random.Generator, share: float) -> dict:
    contexts = [(*below, *top) for below, top in CONTEXTS]
    joined = [(*below, *top, c) for below, top in product(HEADS, repeat=2) for c in LABELS]
    renamed = [(*c, "Y") for c in contexts if c[2] == "X"]  # no way back, so no cycles
    labels = ["<s>", *LABELS]
    rows = {
        "stop": contexts,
        "predict": [(*c, w) for c in contexts for w in (*WORDS, "</s>")],
        "tag": list(product(labels, labels, WORDS, LABELS)),
        "join_left": joined,
        "join_right": joined,
        "unary": renamed,
    }
    kept = {"stop": 0.95, "predict": 0.95, "tag": 0.8, "unary": 0.3}
    return {n: random_weights(rng, some(rng, r, kept.get(n, share)), 0.05) for n, r in rows.items()}


def indexed(facts: dict) -> dict:
    return {
        "all": {(name, row) for name in facts for row in facts[name]},
        "tags": [("tag", row) for row in facts["tag"]],
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("size", "least", "share"), [(0, 1, 0.5), (1, 1, 0.5), (2, 4, 0.5), (3, 20, 0.4), (4, 50, 0.3)]
)
@pytest.mark.few(6)
def test_structured_language_model_sums_over_all_sequences(
    size: int, least: int, share: float, seed: int
):
    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        facts = random_facts(rng, share)
        words = [str(w) for w in rng.choice(WORDS, size)]
        return {**facts, **programs.sentence(words)}, sequences(indexed(facts), words)

    facts, found = draw_ambiguous(np.random.default_rng(seed), draw, least, most=10_000)
    forest = check(programs.load("structured_language_model"), facts, found)
    best = max(math.fsum(facts[n][r] for n, r in d) for d in found)
    assert_close(forest.argmax().log_weight, best)


def normalised(rng: np.random.Generator) -> dict:
    """Random probabilities that sum to one where they should."""
    facts = random_facts(rng, 1.0)
    facts["unary"] = {}
    choices: dict[tuple, list[tuple[str, tuple]]] = {}
    for name in ("stop", "join_left", "join_right"):
        for row in facts[name]:
            choices.setdefault(("action", *row[:4]), []).append((name, row))
    for below, top in CONTEXTS:
        context = (*below, *top)
        choices.setdefault(("action", *context), [])
        choices["word", *context] = [("predict", (*context, w)) for w in (*WORDS, "</s>")]
        if ("stop", context) not in choices["action", *context]:
            choices["action", *context].append(("stop", context))
    labels = ["<s>", *LABELS]
    for a, b, w in product(labels, labels, WORDS):
        choices["tag", a, b, w] = [("tag", (a, b, w, t)) for t in LABELS]
    result: dict = {name: {} for name in facts}
    for options in choices.values():
        shares = rng.dirichlet(np.ones(len(options)))
        for (name, row), p in zip(options, shares, strict=True):
            result[name][row] = math.log(p)
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_prefixes_are_the_sum_of_their_continuations(seed: int):
    facts = normalised(np.random.default_rng(seed))
    text = programs.text("structured_language_model")
    whole, prefix = Program(text), Program(text, goal="prefix")

    def weight(program: Program, words: list[str]) -> float:
        log_z = program.ground({**facts, **programs.sentence(words)}).log_partition()
        return float(log_z.reshape(-1)[-1].exp())

    assert_close(weight(prefix, []), 1.0)
    for words in ([], ["a"], ["b", "a"], ["a", "b", "b"]):
        ways = weight(whole, words) + sum(weight(prefix, [*words, w]) for w in WORDS)
        assert_close(weight(prefix, words), ways)
        found = sequences(indexed(facts), words, end="")
        assert_close(
            weight(prefix, words),
            math.fsum(math.exp(math.fsum(facts[n][r] for n, r in d)) for d in found),
        )
