"""Earley's algorithm against enumeration, against CKY, and on the parse counts of ATIS."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from inout import CycleError, Forest, programs
from tests.oracle.derivations import (
    WORDS,
    Derivation,
    Weights,
    alive,
    compare,
    expected,
    random_words,
)
from tests.seeds import seeds
from tests.support import assert_close

Rule = tuple[str, tuple[str, ...]]  # left side, right side
SYMBOLS = ("S", "A", "B", "C", "U")  # U derives nothing


def shortest_yields(rules: Sequence[Rule]) -> dict[str, float]:
    """The length of the shortest string of every symbol, inf where it derives nothing."""
    lengths: dict[str, float] = {}

    def length(symbol: str) -> float:
        return lengths.get(symbol, math.inf) if symbol in SYMBOLS else 1

    for _ in range(len(SYMBOLS) + 1):
        for left, right in rules:
            lengths[left] = min(length(left), sum(map(length, right)))
    return {s: length(s) for s in (*SYMBOLS, *WORDS)}


def is_cyclic(rules: Sequence[Rule]) -> bool:
    """Whether some symbol can derive itself, the rest of the right sides being empty."""
    shortest = shortest_yields(rules)
    edges = {
        (left, b)
        for left, right in rules
        for place, b in enumerate(right)
        if shortest[b] < math.inf
        and b in SYMBOLS
        and all(shortest[c] == 0 for c in right[:place] + right[place + 1 :])
    }
    for _ in SYMBOLS:
        edges |= {(a, d) for a, b in edges for c, d in edges if b == c}
    return any(a == b for a, b in edges)


def expansions(
    rules: Sequence[Rule], shortest: dict[str, float], symbols: tuple[str, ...], words: tuple
) -> Iterator[Derivation]:
    """All ways to derive the words from a sequence of symbols; rules are named by number."""
    if sum(shortest[s] for s in symbols) > len(words):
        return
    if not symbols:
        if not words:
            yield ()
        return
    first, rest = symbols[0], symbols[1:]
    if first not in SYMBOLS:
        if words[0] == first:
            yield from expansions(rules, shortest, rest, words[1:])
        return
    longest = len(words) - int(sum(shortest[s] for s in rest))
    for cut in range(int(shortest[first]), longest + 1):
        others = list(expansions(rules, shortest, rest, words[cut:]))
        if not others:
            continue
        for number, (left, right) in enumerate(rules):
            if left == first:
                for inside in expansions(rules, shortest, right, words[:cut]):
                    fact = ("rule", (number, left, len(right)))
                    yield from ((fact, *inside, *other) for other in others)


def random_rules(rng: np.random.Generator, *, empty: bool) -> list[Rule]:
    """Rules of up to four symbols, words among them, left-recursive ones included."""
    rules: list[Rule] = [("S", ("S", "S")), ("S", ("S", "a", "B")), ("U", ("A", "U"))]
    for left in SYMBOLS[:-1]:
        rules += [(left, (word,)) for word in WORDS if rng.random() < 0.5]
        for _ in range(int(rng.integers(2, 4))):
            size = int(rng.choice([0, 1, 2, 3, 4] if empty else [1, 2, 3, 4]))
            rules.append((left, tuple(str(s) for s in rng.choice([*SYMBOLS, *WORDS], size))))
    return list(dict.fromkeys(rules))


def ground(
    rules: Sequence[Rule], logs: Sequence[float] | torch.Tensor, start: Weights, words: list
) -> Forest:
    facts = {"start": start, **programs.earley_rules(rules, logs), **programs.sentence(words)}
    return programs.load("earley").ground(facts)


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", seeds(5))
@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 2), (3, 4), (5, 20)])
def test_earley_sums_over_all_trees(size: int, least: int, empty: bool, seed: int):
    rng = np.random.default_rng(seed)
    least = 1 if empty and size == 0 else least
    while True:
        rules, words = random_rules(rng, empty=empty), random_words(rng, size)
        if is_cyclic(rules):
            continue
        logs = [-math.inf if rng.random() < 0.1 else float(rng.normal()) for _ in rules]
        start = {("S",): float(rng.normal()), ("A",): -math.inf, ("B",): 0.5}
        rows = [(r, left, len(right)) for r, (left, right) in enumerate(rules)]
        facts = {"start": start, "rule": dict(zip(rows, logs, strict=True))}
        shortest = shortest_yields(rules)
        trees = [
            (("start", root), *tree)
            for root in start
            for tree in expansions(rules, shortest, root, tuple(words))
        ]
        trees = alive(trees, facts)
        if least <= len(trees) <= 2000:
            break
    leaf = torch.tensor(logs, dtype=torch.float64, requires_grad=True)
    forest = ground(rules, leaf, start, words)
    compare(forest, facts, trees)
    (gradient,) = torch.autograd.grad(forest.log_partition(), leaf)
    assert_close(gradient, expected("rule", facts, trees))


def binarise(rules: Sequence[Rule], logs: Sequence[float]) -> tuple[Weights, list]:
    """Rules in Chomsky normal form, and which of them carries the weight of each given rule."""
    binary: Weights = {}
    carriers = []
    for number, ((left, right), log) in enumerate(zip(rules, logs, strict=True)):
        row: tuple = (left, *right)
        if len(right) > 1:
            binary |= {(f"<{s}>", s): 0.0 for s in right if s not in SYMBOLS}
            symbols = [s if s in SYMBOLS else f"<{s}>" for s in right]
            while len(symbols) > 2:
                rest = f"{number}.{len(symbols)}"
                binary[rest, symbols[-2], symbols[-1]] = 0.0
                symbols[-2:] = [rest]
            row = (left, *symbols)
        binary[row] = log
        carriers.append(row)
    return binary, carriers


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("size", [1, 4, 9])
def test_earley_equals_cky_after_binarisation(size: int, seed: int):
    rng = np.random.default_rng(seed)
    count, words = 0, []
    while count < 1 + 2 * (size > 1):
        rules = random_rules(rng, empty=False)
        rules = [rule for rule in rules if len(rule[1]) > 1 or rule[1][0] not in SYMBOLS]
        logs = [-math.inf if rng.random() < 0.1 else float(rng.normal()) for _ in rules]
        words = random_words(rng, size)
        binary, carriers = binarise(rules, logs)
        given = {"start": [("S",)], "rule": binary, **programs.sentence(words)}
        cky = programs.load("cnf_inside").ground(given)
        count = cky.count()
    forest = ground(rules, logs, {("S",): 0.0}, words)
    assert forest.count() == count
    assert_close(forest.log_partition(), cky.log_partition())
    counts = dict(zip(binary, cky.expected_counts("rule").tolist(), strict=True))
    assert_close(forest.expected_counts("rule"), [counts[row] for row in carriers])


def test_earley_differentiates_twice():
    rules: list[Rule] = [("S", ("S", "S", "S")), ("S", ("S", "S")), ("S", ("a",)), ("S", ("b",))]
    forest = ground(rules, [0.0] * 4, {("S",): 0.0}, ["a", "b", "a", "a"])

    def log_z(logs: torch.Tensor) -> torch.Tensor:
        return forest.with_weights(rule=logs).log_partition()

    logs = torch.tensor([0.3, -0.2, 0.1, 0.4], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_z, logs)
    assert torch.autograd.gradgradcheck(log_z, logs)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([("S", ["A"]), ("A", ["S"]), ("A", ["a"])], ["a"]),
        ([("S", ["S"]), ("S", ["a"])], ["a"]),
        ([("S", ["E", "S"]), ("S", ["a"]), ("E", [])], ["a"]),
        ([("S", ["S", "S"]), ("S", []), ("S", ["a"])], ["a"]),
        ([("S", ["S", "S"]), ("S", [])], []),
    ],
)
def test_infinitely_many_trees_are_a_named_cycle(rules: list, words: list[str]):
    with pytest.raises(CycleError, match=r'constituent\("S",0,'):
        ground(rules, [0.0] * len(rules), {("S",): 0.0}, words)


def test_a_cycle_that_no_parse_uses_is_harmless():
    rules = [("S", ("a", "S")), ("S", ("b",)), ("S", ("X",)), ("X", ("X",)), ("X", ("c",))]
    assert ground(rules, [0.0] * 5, {("S",): 0.0}, ["a", "a", "b"]).count() == 1


def test_earley_predicts_only_what_the_words_before_call_for():
    """A symbol that nothing on the way to its position asks for is never looked at."""
    rules = [("S", ("a", "A")), ("A", ("b",)), ("B", ("b",)), ("B", ("a",))]
    facts = {"start": [("S",)], **programs.earley_rules(rules), **programs.sentence(["a", "b"])}
    seen: list[tuple[int, int]] = []
    programs.load("earley").ground(facts, progress=lambda items, edges: seen.append((items, edges)))
    # Edges: two rules begun, two words read, two constituents, S's dot over A, the goal.
    assert seen[-1][1] == 2 + 2 + 2 + 1 + 1


@pytest.mark.parametrize("words", [["zzz"], ["a", "zzz"], ["a", "a", "zzz", "b"]])
def test_unknown_words_have_no_tree(words: list[str]):
    rules = [("S", ("a", "S")), ("S", ("b",)), ("S", ())]
    forest = ground(rules, [0.0, 0.0, 0.0], {("S",): 0.0}, words)
    assert forest.count() == 0
    assert forest.log_partition().item() == -math.inf
    assert_close(forest.expected_counts("rule"), np.zeros(3))


# ATIS


@pytest.fixture(scope="module")
def atis(data_dir: Path) -> tuple[dict, list[tuple[int, list[str]]]]:
    """The facts of the grammar, and its sentences with their numbers of parses."""
    rules = []
    for line in (data_dir / "grammars" / "atis.cfg").read_text(encoding="utf-8").splitlines():
        if "->" in line and not line.startswith("#"):
            left, right = line.split("->", 1)
            rules += [(left.strip(), option.split()) for option in right.split("|")]
    assert len(rules) == 5517
    sentences = []
    text = (data_dir / "grammars" / "atis_sentences.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            count, words = line.split(":", 1)
            # The grammar's words keep their quotes, as some are spelt like nonterminals.
            sentences.append((int(count), [f'"{word}"' for word in words.split()]))
    assert len(sentences) == 98
    return {"start": [("SIGMA",)], **programs.earley_rules(rules)}, sentences


@pytest.mark.exhaustive
def test_earley_counts_the_parses_of_atis(atis: tuple[dict, list[tuple[int, list[str]]]]):
    grammar, sentences = atis
    chosen = [s for s in sentences if len(s[1]) <= 6] + [max(sentences)]
    assert len(chosen) == 18
    counts = [
        programs.load("earley").ground({**grammar, **programs.sentence(words)}).count()
        for _, words in chosen
    ]
    assert counts == [count for count, _ in chosen]
    assert max(counts) == 36122
