"""Sentences under grammars of any shape, by definitions: fixed points and enumeration of trees.

Cycles and empty rules make infinitely many trees. Their sums are limits: here they are iterated,
so many rounds that nothing changes. Nothing is shared with the library but `Grammar`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from inout.grammars import Grammar, Rule, Terminal

Derivation = tuple[int, ...]
ROUNDS = 200


def random_grammar(
    rng: np.random.Generator,
    *,
    empty: bool = True,
    unary: bool = True,
    most_weight: float = 0.35,
    rules: int = 11,
) -> Grammar:
    """Three nonterminals, two terminals, rules of up to three symbols; S has every sentence."""
    names, words = ["S", "A", "B"], [Terminal("a"), Terminal("b")]
    found: dict[Rule, float] = {}
    for rule in (
        Rule("S", (words[0],)), Rule("S", (words[1],)), Rule("S", ("S", "A")),
        Rule("A", (words[0],)), Rule("A", ("B",) if unary else (words[1],)), Rule("B", (words[1],)),
    ):  # fmt: skip
        found[rule] = float(rng.uniform(0.1, most_weight))
    while len(found) < rules:
        arity = int(rng.choice([0, 1, 2, 3], p=[0.2, 0.35, 0.3, 0.15]))
        if (arity == 0 and not empty) or (arity == 1 and not unary):
            continue
        pool: list[str | Terminal] = [*names, *words]
        right = tuple(pool[int(rng.integers(len(pool)))] for _ in range(arity))
        weight = float(rng.uniform(0.05, most_weight))
        found[Rule(names[int(rng.integers(3))], right)] = weight
    return Grammar("S", list(found), [math.log(w) for w in found.values()])


def rows(grammar: Grammar) -> list[tuple[str, tuple[object, ...], float]]:
    weights = grammar.log_weights.exp().tolist()
    return [(r.lhs, r.rhs, w) for r, w in zip(grammar.rules, weights, strict=True)]


def splits(i: int, j: int, parts: int) -> Iterator[tuple[int, ...]]:
    """The ways to cut i..j into so many spans, empty ones too."""
    if parts == 0:
        if i == j:
            yield (i,)
        return
    for inner in itertools.combinations_with_replacement(range(i, j + 1), parts - 1):
        yield (i, *inner, j)


Item = tuple[str, int, int]
Way = tuple[int, Item, list[Item], float]


def ways_of(
    grammar: Grammar, words: list[str], allowed: set[tuple[int, int]] | None = None
) -> tuple[list[Item], list[Way]]:
    """All items (symbol, start, end), and all ways to make one by one rule from others."""
    n = len(words)
    spans = [(i, j) for i in range(n + 1) for j in range(i, n + 1)]
    if allowed is not None:
        spans = [(i, j) for i, j in spans if i == j or (i, j) in allowed]
    items = [(a, i, j) for a in grammar.nonterminals for i, j in spans]
    known, ways = set(items), []
    for number, (lhs, rhs, weight) in enumerate(rows(grammar)):
        for i, j in spans:
            for cut in splits(i, j, len(rhs)):
                parts = list(zip(rhs, cut, cut[1:], strict=False))
                fits = all(
                    q == p + 1 and words[p] == s.text
                    for s, p, q in parts
                    if isinstance(s, Terminal)
                )
                inner = [(s, p, q) for s, p, q in parts if isinstance(s, str)]
                if fits and known.issuperset(inner):
                    ways.append((number, (lhs, i, j), inner, weight))
    return items, ways


def fixed_point(
    grammar: Grammar, words: list[str], allowed: set[tuple[int, int]] | None = None
) -> tuple[float, np.ndarray]:
    """(Z, Σ over trees of weight · uses of each rule [r])."""
    names, named = ways_of(grammar, words, allowed)
    items = {item: k for k, item in enumerate(names)}
    ways = [
        (number, items[head], [items[x] for x in inner], weight)
        for number, head, inner, weight in named
    ]
    values, counts = np.zeros(len(items)), np.zeros((len(items), len(grammar)))
    for _ in range(ROUNDS):
        new, new_counts = np.zeros_like(values), np.zeros_like(counts)
        for number, head, inner, weight in ways:
            below = [values[x] for x in inner]
            product = weight * math.prod(below)
            if product == 0.0:
                continue
            new[head] += product
            new_counts[head, number] += product
            for x, value in zip(inner, below, strict=True):
                new_counts[head] += product / value * counts[x]
        settled = np.allclose(new, values, rtol=1e-15, atol=0.0)
        settled = settled and np.allclose(new_counts, counts, rtol=1e-15, atol=0.0)
        values, counts = new, new_counts
        if settled:
            break
    root = items["S", 0, len(words)]
    return float(values[root]), counts[root]


def tree_count(grammar: Grammar, words: list[str]) -> float:
    """The number of trees: what is still growing after as many rounds as there are items is inf."""
    items, ways = ways_of(grammar, words)
    values = dict.fromkeys(items, 0)
    root = ("S", 0, len(words))
    before = 0
    for attempt in range(3 * len(items)):
        new = dict.fromkeys(items, 0)
        for _, head, inner, _ in ways:
            new[head] = min(new[head] + math.prod(values[x] for x in inner), 10**40)
        if attempt == len(items):
            before = values[root]
        values = new
    return values[root] if values[root] == before < 10**40 else math.inf


def derivations(grammar: Grammar, words: list[str], least: float) -> dict[Derivation, float]:
    """All leftmost derivations of the sentence of at least this weight; rules weigh less than 1."""
    rules = rows(grammar)
    by_head: dict[str, list[int]] = {}
    for number, (lhs, _, _) in enumerate(rules):
        by_head.setdefault(lhs, []).append(number)
    found: dict[Derivation, float] = {}
    agenda: list[tuple[tuple[object, ...], int, Derivation, float]] = [(("S",), 0, (), 1.0)]
    while agenda:
        rest, place, used, weight = agenda.pop()
        while rest and isinstance(rest[0], Terminal):
            if place == len(words) or words[place] != rest[0].text:
                break
            rest, place = rest[1:], place + 1
        else:
            if not rest:
                if place == len(words):
                    found[used] = weight
                continue
            for number in by_head.get(str(rest[0]), []):
                _, rhs, own = rules[number]
                if weight * own >= least:
                    agenda.append(((*rhs, *rest[1:]), place, (*used, number), weight * own))
    return found


def tree_spans(
    grammar: Grammar, rules: tuple[int, ...], words: list[str]
) -> list[tuple[int, int, int]]:
    """(rule, start, end) of every node, by recursion."""
    numbers, place = iter(rules), 0
    found = []

    def grow(symbol: object) -> None:
        nonlocal place
        if not isinstance(symbol, str):
            place += 1
            return
        rule, start = next(numbers), place
        for child in grammar.rules[rule].rhs:
            grow(child)
        found.append((rule, start, place))

    grow("S")
    assert place == len(words)
    return found
