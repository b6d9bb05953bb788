"""The peer: semi-naive joins of the CNF program written by hand as polars data frames."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from benchmarks.deduction.grammar import Parsing

ITEM = ["x", "i", "k"]


@dataclass(frozen=True)
class Tables:
    """The facts, symbols and words as numbers."""

    rules: pl.DataFrame  # rule, x, y, z
    preterminals: pl.DataFrame  # rule, x, i, k: one for each word and its rule


def tables(parsing: Parsing) -> Tables:
    """The facts as data frames."""
    symbols = {s for rule in parsing.binary for s in rule} | {a for a, _ in parsing.lexical}
    number = {symbol: i for i, symbol in enumerate(sorted(symbols))}
    binary = [[number[s] for s in rule] for rule in parsing.binary]
    words = [
        [len(binary) + place, number[head], i, i + 1]
        for i, word in enumerate(parsing.words)
        for place, (head, other) in enumerate(parsing.lexical)
        if other == word
    ]
    rules = pl.DataFrame(binary, schema=["x", "y", "z"], orient="row")
    return Tables(
        rules.with_row_index("rule"), pl.DataFrame(words, schema=["rule", *ITEM], orient="row")
    )


def count_edges(given: Tables) -> int:
    """Number of edges that the rules give, useful or not.

    Only the joins and the distinct items: items are not numbered, edges not ordered, and there
    is no forest at the end.
    """
    edges = [given.preterminals]
    old = given.preterminals.select(ITEM).clear()
    new = given.preterminals.select(ITEM).unique()
    while len(new):
        everything = pl.concat([old, new])
        fresh = pl.concat([_combine(given, new, everything), _combine(given, old, new)])
        edges.append(fresh)
        old = everything
        new = fresh.select(ITEM).unique().join(everything, on=ITEM, how="anti")
    return sum(map(len, edges))


def _combine(given: Tables, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """beta(X,I,K) += rule(X,Y,Z) * beta(Y,I,J) * beta(Z,J,K), the factors being these."""
    lefts = left.rename({"x": "y", "k": "j"})
    rights = right.rename({"x": "z", "i": "j"})
    return given.rules.join(lefts, on="y").join(rights, on=["z", "j"])
