"""Random small grammars, and the meaning of trees, symbols and sums spelled out naively."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from hypothesis import strategies as st

from inout.grammars import Grammar, Rule, Terminal

NONTERMINALS = ["S", "A", "B", "C"]
SYMBOLS = [*NONTERMINALS, Terminal("a"), Terminal("S")]


HUGE = 1e60  # where sums that grow without end are cut off
Row = tuple[str, tuple[object, ...], float]


def rows(most_weight: float = 1.5) -> st.SearchStrategy[list[Row]]:
    """Up to eight rules of up to three symbols: useless symbols, cycles and empty rules happen.

    The grammar is made by `build`, in the test: the type checker draws random numbers, which
    hypothesis forbids while it draws.
    """
    row = st.tuples(
        st.sampled_from(NONTERMINALS),
        st.lists(st.sampled_from(SYMBOLS), max_size=3).map(tuple),
        # Eighths: no grammar that is critical but for rounding, whose sums nobody could tell.
        st.integers(0, int(8 * most_weight)).map(lambda n: n / 8),
    )
    return st.lists(row, min_size=1, max_size=8, unique_by=lambda r: r[:2])


def rows_with_trees(most_weight: float, most_rows: int = 6) -> st.SearchStrategy[list[Row]]:
    """Rules as `rows` draws them, after three that give trees to S, A and B."""
    base: list[Row] = [(name, (Terminal("b"),), 0.25) for name in ("S", "A", "B")]
    return rows(most_weight).map(lambda drawn: base + drawn[:most_rows])


def build(rows: list[Row]) -> Grammar:
    rules = [Rule(lhs, rhs) for lhs, rhs, _ in rows]  # type: ignore[arg-type]
    return Grammar("S", rules, [math.log(w) if w > 1e-300 else -math.inf for _, _, w in rows])


def weighted(grammar: Grammar) -> list[tuple[str, tuple[object, ...], float]]:
    pairs = zip(grammar.rules, grammar.log_weights.tolist(), strict=True)
    return [(rule.lhs, rule.rhs, math.exp(weight)) for rule, weight in pairs]


def naive_productive(grammar: Grammar) -> set[str]:
    found: set[str] = set()
    for _ in grammar.nonterminals:
        for rule in grammar.rules:
            if all(isinstance(s, Terminal) or s in found for s in rule.rhs):
                found.add(rule.lhs)
    return found


def naive_nullable(grammar: Grammar) -> set[str]:
    found: set[str] = set()
    for _ in grammar.nonterminals:
        found |= {rule.lhs for rule in grammar.rules if all(s in found for s in rule.rhs)}
    return found


def naive_reachable(grammar: Grammar, rules: list[Rule]) -> set[str]:
    found = {grammar.start}
    for _ in grammar.nonterminals:
        for rule in rules:
            if rule.lhs in found:
                found |= {s for s in rule.rhs if isinstance(s, str)}
    return found


def naive_useful(grammar: Grammar) -> list[int]:
    productive = naive_productive(grammar)
    good = [
        rule
        for rule in grammar.rules
        if all(isinstance(s, Terminal) or s in productive for s in (rule.lhs, *rule.rhs))
    ]
    reached = naive_reachable(grammar, good)
    keep = {rule for rule in good if rule.lhs in reached}
    return [n for n, rule in enumerate(grammar.rules) if rule in keep]


def naive_self_deriving(grammar: Grammar) -> set[str]:
    """The nonterminals A with A ⇒⁺ A by useful rules, by closing a relation."""
    empty = naive_nullable(grammar)
    pairs = set()
    for number in naive_useful(grammar):
        rule = grammar.rules[number]
        for i, symbol in enumerate(rule.rhs):
            others = rule.rhs[:i] + rule.rhs[i + 1 :]
            if isinstance(symbol, str) and all(s in empty for s in others):
                pairs.add((rule.lhs, symbol))
    for _ in grammar.nonterminals:
        pairs |= {(a, d) for a, b in pairs for c, d in pairs if b == c}
    return {a for a, b in pairs if a == b}


def iterate_sums(grammar: Grammar, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Σ w, Σ w·length and Σ w·log w over the trees of each nonterminal of depth up to `rounds`."""
    rules = weighted(grammar)
    sums = dict.fromkeys(grammar.nonterminals, (0.0, 0.0, 0.0))
    for _ in range(rounds):
        new = dict.fromkeys(grammar.nonterminals, (0.0, 0.0, 0.0))
        for lhs, rhs, weight in rules:
            if weight == 0:
                continue
            total, length, logs = weight, 0.0, weight * math.log(weight)
            for symbol in rhs:
                t, n, h = sums[symbol] if isinstance(symbol, str) else (1.0, 1.0, 0.0)
                total, length, logs = total * t, length * t + total * n, logs * t + total * h
            before = new[lhs]
            new[lhs] = (
                min(before[0] + total, HUGE),
                min(before[1] + length, HUGE),
                max(min(before[2] + logs, HUGE), -HUGE),
            )
        if new == sums:
            return new
        sums = new
    return sums


Tree = tuple[str, tuple[object, ...]]


def enumerate_trees(
    grammar: Grammar, symbol: object, depth: int, rules: list[tuple[str, tuple[object, ...], float]]
) -> Iterator[tuple[float, object]]:
    """Weight and shape of every tree of a symbol of at most this depth."""
    if isinstance(symbol, Terminal):
        yield 1.0, symbol
    elif depth:
        for lhs, rhs, weight in rules:
            if lhs == symbol:
                below = [list(enumerate_trees(grammar, s, depth - 1, rules)) for s in rhs]
                for children in itertools.product(*below):
                    yield (
                        weight * math.prod(w for w, _ in children),
                        (lhs, tuple(t for _, t in children)),
                    )
