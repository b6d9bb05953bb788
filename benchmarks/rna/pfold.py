"""The Pfold grammar of RNA structures (Knudsen & Hein 1999, 2003), and what its trees mean.

S -> L S | L,  L -> x F y | x,  F -> x F y | L S: x and y are bases, x F y a pair of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from nltk.tree import Tree
from numpy.typing import NDArray

from benchmarks.data import data_file
from inout import Grammar
from inout.grammars import Marginals, Rule, Terminal

Pairs = set[tuple[int, int]]
BASES = "ACGU"
ANY = "N"  # a base that nobody knows


@dataclass(frozen=True)
class Tables:
    """Probabilities of the rules, of single bases and of pairs; of an unknown base their sums."""

    rules: Mapping[str, float]
    single: Mapping[str, float]
    pair: Mapping[str, float]


def tables() -> Tables:
    """The published numbers."""
    text = data_file("rna/scfg_parameters.json").read_text(encoding="utf-8")
    found = json.loads(text)["pfold"]
    meant = {base: base for base in BASES} | {ANY: BASES}
    single = {x: sum(found["unpaired"][a] for a in meant[x]) for x in meant}
    pair = {
        x + y: sum(found["pair"][a + b] for a in meant[x] for b in meant[y])
        for x in meant
        for y in meant
    }
    return Tables(found["rules"], single, pair)


def grammar(given: Tables) -> Grammar:
    """The grammar, whose words are bases."""
    weights = {
        Rule("S", ("L", "S")): given.rules["S -> L S"],
        Rule("S", ("L",)): given.rules["S -> L"],
        Rule("F", ("L", "S")): given.rules["F -> L S"],
    }
    for x, p in given.single.items():
        weights[Rule("L", (Terminal(x),))] = given.rules["L -> s"] * p
    for both, p in given.pair.items():
        first, last = Terminal(both[0]), Terminal(both[1])
        for head in "LF":
            weights[Rule(head, (first, "F", last))] = given.rules[f"{head} -> d F d"] * p
    return Grammar("S", list(weights), np.log(list(weights.values())))


def pairs_of_brackets(text: str) -> Pairs:
    """The nested pairs of a dot-bracket text; other brackets cross them and are left out."""
    found, waiting = set(), []
    for place, mark in enumerate(text):
        if mark == "(":
            waiting.append(place)
        elif mark == ")":
            found.add((waiting.pop(), place))
    return found


def pairs_of_tree(tree: Tree) -> Pairs:
    """The pairs of a parse."""
    found: Pairs = set()
    place = 0
    opened: list[int] = []
    # Each rule x F y is met before its first base; the marker after it is its last.
    agenda: list[Tree | str | None] = [tree]
    while agenda:
        node = agenda.pop()
        if isinstance(node, Tree):
            if len(node) == 3:
                opened.append(place)
                agenda += [None, node[1]]
                place += 1
            else:
                agenda.extend(reversed(node))
            continue
        if node is None:
            found.add((opened.pop(), place))
        place += 1
    return found


def pair_posteriors(pfold: Grammar, marginals: Marginals, n: int) -> NDArray[np.float64]:
    """How likely bases i < j are a pair [n n]: the anchored rules x F y, added up."""
    rules, starts, ends, values = marginals.anchored_rules
    pairs = pfold.rules.arities[rules] == 3
    found = np.zeros((n, n))
    np.add.at(found, (starts[pairs], ends[pairs] - 1), values[pairs])
    return found
