"""Rules of weight 0 stand in no tree: counts against enumeration, and cycles that do not matter."""

from __future__ import annotations

import math
import random
import time
from functools import cache

import pytest
import torch

from inout import Grammar, Parser
from inout.grammars import Terminal
from inout.grammars.parser import ways
from inout.grammars.parser.sentences import Arc, Lattice
from tests.seeds import seeds

Rules = list[tuple[str, tuple[str, ...], float]]  # words in lower case


def number_of_trees(rules: Rules, words: tuple[str, ...]) -> int:
    """Trees of S by recursion over right sides, for grammars without empty rules and cycles."""

    @cache
    def trees(symbol: str, i: int, j: int) -> int:
        if symbol.islower():
            return int(j == i + 1 and words[i] == symbol)
        return sum(sequences(side, i, j) for head, side, p in rules if head == symbol and p > 0)

    @cache
    def sequences(side: tuple[str, ...], i: int, j: int) -> int:
        if len(side) == 1:
            return trees(side[0], i, j)
        ends = range(i + 1, j - len(side) + 2)
        return sum(trees(side[0], i, k) * sequences(side[1:], k, j) for k in ends)

    return trees("S", 0, len(words))


def random_rules(seed: int) -> Rules:
    """Chains of unary rules lead down the alphabet, so they have no cycle."""
    draw = random.Random(seed)
    symbols = ["S", "T", "U", "V"]
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for n, head in enumerate(symbols):
        for word in "ab":
            if draw.random() < 0.6:
                found[head, (word,)] = 1.0
        for below in symbols[n + 1 :]:
            if draw.random() < 0.6:
                found[head, (below,)] = 1.0
        for _ in range(3):
            side = tuple(draw.choice([*symbols, "a"]) for _ in range(draw.choice([2, 2, 3])))
            found[head, side] = 1.0
    return [(*rule, 0.0 if draw.random() < 0.3 else 0.5) for rule in found]


def grammar_of(rules: Rules) -> Grammar:
    lines = [
        f"{head} -> {' '.join(repr(x) if x.islower() else x for x in side)} [{p}]"
        for head, side, p in rules
    ]
    return Grammar.from_text("\n".join(lines))


def test_counts_leave_out_rules_of_weight_0():
    for seed in seeds(20):
        rules = random_rules(seed)
        if all(head != "S" for head, _, _ in rules):
            continue
        parser = Parser(grammar_of(rules))
        for words in ("a", "ab", "aab", "abab", "aaaaa"):
            expected = number_of_trees(rules, tuple(words))
            assert parser.count(list(words)) == expected, (rules, words)
            assert (parser.log_partition(list(words)) > -math.inf) == (expected > 0)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        # A cycle, broken by a rule of weight 0; a second one that is whole.
        ("S -> A [1]\nA -> A [0] | 'a' [1] | B [0.5]\nB -> A [0] | 'a' [1]", {"a": 2}),
        ("S -> A [1] | S [0.5]\nA -> A [0] | 'a' [1]", {"a": math.inf}),
        ("S -> A [1]\nA -> B [0] | 'a' [1]\nB -> B [0.5] | 'b' [1]", {"a": 1, "b": 0}),
        # Empty trees of weight 0, below a rule that may lose a symbol, and on a cycle.
        ("S -> A B [1]\nA -> [0] | 'a' [1]\nB -> 'b' [1] | [1]", {"b": 0, "a b": 1, "a": 1}),
        ("S -> A S [0.5] | 'b' [1]\nA -> [0] | 'a' [1]", {"b": 1, "a b": 1}),
        ("S -> A S [0.5] | 'b' [1]\nA -> [0.5] | 'a' [1]", {"b": math.inf}),
        ("S -> [0] | 'a' [1]", {"": 0, "a": 1}),
        ("S -> S S [0] | 'a' [1]", {"a": 1, "a a": 0}),
    ],
)
def test_counts_with_cycles_and_empty_rules(text, counts):
    parser = Parser(Grammar.from_text(text))
    assert {words: parser.count(words.split()) for words in counts} == counts


def test_counts_leave_out_what_scores_and_arcs_forbid():
    grammar = Grammar.from_text("S -> S S [0.4] | 'a' [0.6]")
    parser, words = Parser(grammar), ["a"] * 4
    scores = torch.zeros(4, 4, 2, dtype=torch.float64)
    scores[0, 2, 0] = -math.inf  # nothing over the first three words: 2 of 5 trees
    given = parser.given(words, rule_scores=scores)
    assert given.count() == 3
    scores[2, 2, 1] = -math.inf
    assert parser.given(words, rule_scores=scores).count() == 0
    arcs = [Arc(0, 1, "a"), Arc(1, 2, "a"), Arc(0, 2, "a", -math.inf)]
    assert parser.count(Lattice(arcs)) == 1


def test_what_depends_on_the_grammar_is_counted_once(monkeypatch):
    """A second sentence needs a pass and no more: not the chains of all symbols again."""
    parser = Parser(Grammar.from_text("S -> S S [0.4] | A [0.3] | 'a' [0.2]\nA -> 'a' [1]"))
    assert parser.count(["a"]) == 2
    monkeypatch.delattr(ways, "strong_components")
    assert parser.count(["a", "a"]) == 4


# -------------------------------------------------- cycles that stand in no tree


@pytest.mark.parametrize(
    "text",
    [
        "S -> 'a' [1]\nA -> A [2] | 'b' [1]",  # not reached
        "S -> 'a' [1] | A [0.5]\nA -> A [2]",  # no words
        "S -> 'a' [1] | A [0]\nA -> A [2] | 'b' [1]",  # reached by weight 0 alone
        "S -> 'a' [1] | B [1]\nB -> A C [1]\nA -> A [2] | 'b' [1]\nC -> C [3]",  # beside no words
    ],
)
def test_unary_rules_are_removed_where_a_divergent_cycle_stands_in_no_tree(text):
    plain = Grammar.from_text(text).without_unary_rules().grammar
    assert all(len(rule.rhs) != 1 or isinstance(rule.rhs[0], Terminal) for rule in plain.rules)
    parser = Parser(plain)
    assert abs(float(parser.log_partition(["a"]))) < 1e-12
    assert parser.log_partition(["b"]) == -math.inf
    assert abs(float(Parser(Grammar.from_text(text)).log_partition(["a"]))) < 1e-12


def test_counting_costs_as_much_as_a_few_passes():
    """Not the chains again; process time, and far above the noise: it was 15 times log Z."""
    rules = [f"A{i} -> A{i + 1} [0.5] | A{i} A{i} [0.2] | 'a' [0.1]" for i in range(120)]
    parser = Parser(Grammar.from_text("\n".join([*rules, "A120 -> 'a' [1]"])))
    words = ["a"] * 3

    def cost(query, times):
        query(words)
        start = time.process_time()
        for _ in range(times):
            query(words)
        return time.process_time() - start

    assert cost(parser.count, 5) < 8 * cost(parser.log_partition, 5)
