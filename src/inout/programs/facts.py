"""Helpers that turn sentences, rules and brackets into facts for the programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.deduction import Facts

Rows = list[tuple[str | int, ...]]
Weights = Tensor | Sequence[float] | NDArray[np.float64] | None


def sentence(words: Sequence[str]) -> dict[str, Rows]:
    """The facts word(W,I,I+1) and length(N) of a sentence.

    >>> sentence(["she", "sleeps"])
    {'word': [('she', 0, 1), ('sleeps', 1, 2)], 'length': [(2,)]}
    """
    rows = _positions("words", words)
    return {"word": rows, "length": [(len(rows),)]}


def sentence_pair(source: Sequence[str], target: Sequence[str]) -> dict[str, Rows]:
    """The facts source, target, source_length and target_length of two sentences.

    >>> sentence_pair(["a"], [])["source"]
    [('a', 0, 1)]
    """
    source_rows, target_rows = _positions("source", source), _positions("target", target)
    return {
        "source": source_rows,
        "target": target_rows,
        "source_length": [(len(source_rows),)],
        "target_length": [(len(target_rows),)],
    }


def _positions(name: str, words: Sequence[str]) -> Rows:
    if isinstance(words, str):
        raise ArgumentError(
            name,
            f"must be a sequence of words: use text.split(), or list(text) for characters. "
            f"Got the string {words!r:.60}",
        )
    return [(word, i, i + 1) for i, word in enumerate(words)]


def brackets(spans: Iterable[tuple[int, int]]) -> dict[str, Rows]:
    """The facts bracket(B,L,R) and brackets(M) of the program `partial_brackets`.

    >>> brackets([(0, 2), (3, 5)])
    {'bracket': [(0, 0, 2), (1, 3, 5)], 'brackets': [(2,)]}
    """
    rows: Rows = []
    for number, (left, right) in enumerate(spans):
        if not 0 <= left < right:
            given = f"({left}, {right}) at place {number}"
            raise ArgumentError("spans", f"must have 0 <= left < right. Got {given}")
        rows.append((number, left, right))
    return {"bracket": rows, "brackets": [(len(rows),)]}


def earley_rules(
    rules: Iterable[tuple[str, Sequence[str]]], log_weights: Weights = None
) -> dict[str, Facts]:
    """The facts rule(R,A,N), nonterminal(R,D,B) and terminal(R,D,W) of the program `earley`.

    Each rule is its left side and the sequence of symbols on its right side, which may be empty.
    A symbol that is the left side of no rule is a word; if a word is spelt like a nonterminal,
    rename one of them. Expected counts of "rule" are in the order of the rules.

    >>> facts = earley_rules([("S", ["S", "and", "S"]), ("S", ["x"])], [-1.0, 0.0])
    >>> facts["rule"].rows, facts["nonterminal"].rows, facts["terminal"].rows
    ([(0, 'S', 3), (1, 'S', 1)], [(0, 0, 'S'), (0, 2, 'S')], [(0, 1, 'and'), (1, 0, 'x')])
    """
    rules = list(rules)
    for number, (left, right) in enumerate(rules):
        if isinstance(right, str):
            raise ArgumentError(
                "rules",
                f": the right side of a rule must be a sequence of symbols. "
                f"Got the string {right!r:.60} in rule {number}, of {left!r}",
            )
    nonterminals = {left for left, _ in rules}
    symbols = [(r, d, b) for r, (_, right) in enumerate(rules) for d, b in enumerate(right)]
    heads = [(r, left, len(right)) for r, (left, right) in enumerate(rules)]
    return {
        "rule": Facts(heads, log_weights),
        "nonterminal": Facts([row for row in symbols if row[2] in nonterminals]),
        "terminal": Facts([row for row in symbols if row[2] not in nonterminals]),
    }


def synchronous_rules(
    rules: Iterable[tuple[str, Sequence[str | tuple[str, int]], Sequence[str | tuple[str, int]]]],
    log_weights: Weights = None,
) -> dict[str, Facts]:
    """The facts about rules of the program `synchronous_cfg`.

    Each rule is its left side, its source and its target side. A symbol is a word, or a pair of a
    nonterminal and the number of its link, which stands once on either side. Expected counts of
    "rule" are in the order of the rules.

    >>> facts = synchronous_rules([("X", [("X", 1), "de", ("X", 2)], [("X", 2), "of", ("X", 1)])])
    >>> facts["source_link"].rows, facts["target_link"].rows, facts["target_word"].rows
    ([(0, 0, 'X', 1), (0, 2, 'X', 2)], [(0, 0, 2), (0, 2, 1)], [(0, 1, 'of')])
    """
    rules = list(rules)
    rows: dict[str, Rows] = {
        "rule": [
            (r, left, len(source), len(target)) for r, (left, source, target) in enumerate(rules)
        ]
    }
    for side, which in (("source", 1), ("target", 2)):
        symbols = [(r, d, x) for r, rule in enumerate(rules) for d, x in enumerate(rule[which])]
        rows[f"{side}_word"] = [(r, d, x) for r, d, x in symbols if isinstance(x, str)]
        rows[f"{side}_link"] = [(r, d, *x) for r, d, x in symbols if not isinstance(x, str)]
    for number, (left, source, target) in enumerate(rules):
        links = [sorted(x for x in side if not isinstance(x, str)) for side in (source, target)]
        if links[0] != links[1] or len({link for _, link in links[0]}) < len(links[0]):
            raise ArgumentError(
                "rules",
                f"must have the same links on both sides, each once. "
                f"Got rule {number}, of {left!r}",
            )
    rows["target_link"] = [(r, d, link) for r, d, _, link in rows["target_link"]]
    return {name: Facts(r, log_weights if name == "rule" else None) for name, r in rows.items()}


def elementary_trees(
    trees: Iterable[tuple[Any, ...]], log_weights: Weights = None
) -> dict[str, Facts]:
    """The facts about trees of the program `tree_substitution_grammar`.

    A tree is a tuple of its label and its children. A child is a tree, a word (a string), or a
    slot: a tuple with nothing but a label. Expected counts of "tree" are in the order of the trees.

    >>> facts = elementary_trees([("S", ("NP",), ("VP", "sleeps")), ("NP", "she")], [0.0, -1.0])
    >>> facts["tree"].rows, facts["slot"].rows, facts["leaf"].rows
    ([(0, 'S'), (4, 'NP')], [(1, 'NP')], [(3, 'sleeps'), (5, 'she')])
    """
    rows: dict[str, Rows] = {n: [] for n in ("tree", "first", "next", "last", "leaf", "slot")}
    numbers = count()

    def add(node: Any) -> int:
        number = next(numbers)
        if isinstance(node, str):
            rows["leaf"].append((number, node))
        elif len(node) == 1:
            rows["slot"].append((number, node[0]))
        else:
            children = [add(child) for child in node[1:]]
            rows["first"].append((number, children[0]))
            rows["next"] += pairwise(children)
            rows["last"].append((number, children[-1]))
        return number

    for place, tree in enumerate(trees):
        if isinstance(tree, str) or len(tree) < 2:
            raise ArgumentError(
                "trees",
                f"must be tuples of a label and children. Got {tree!r:.60} at place {place}",
            )
        rows["tree"].append((add(tree), tree[0]))
    return {name: Facts(r, log_weights if name == "tree" else None) for name, r in rows.items()}


def categorial_lexicon(
    entries: Iterable[tuple[str, str]],
    log_weights: Weights = None,
    *,
    start: Sequence[str] = ("S",),
) -> dict[str, Facts]:
    r"""The facts start, lexical, slash and atomic of the program `categorial_grammar`.

    Each entry is a word and a category in Steedman's notation, result first; slashes group from
    the left: S\NP/NP is (S\NP)/NP. Expected counts of "lexical" are in the order of the entries.

    >>> facts = categorial_lexicon([("she", "NP"), ("sleeps", "S\\NP")])
    >>> facts["lexical"].rows, facts["slash"].rows
    ([('she', 'NP'), ('sleeps', 'S\\NP')], [('S\\NP', 'S', '\\', 'NP')])
    """
    known: dict[str, tuple[str, str, str] | None] = {}

    def name(category: str) -> str:
        """The category without needless parentheses; it is added with all its parts."""
        depth, last = 0, -1
        for place, character in enumerate(category):
            depth += (character == "(") - (character == ")")
            last = place if character in "/\\" and depth == 0 else last
        if last > 0:
            left, slash, right = name(category[:last]), category[last], name(category[last + 1 :])
            full = f"{left}{slash}({right})" if known[right] else f"{left}{slash}{right}"
            known[full] = (left, slash, right)
            return full
        if category.startswith("(") and category.endswith(")") and depth == 0:
            return name(category[1:-1])
        if not category or set("()/\\") & set(category):
            raise ArgumentError("entries", f": the category {category!r} makes no sense")
        known[category] = None
        return category

    rows = [(word, name(category)) for word, category in entries]
    roots = [(name(category),) for category in start]
    return {
        "start": Facts(roots),
        "lexical": Facts(rows, log_weights),
        "slash": Facts([(full, *parts) for full, parts in known.items() if parts]),
        "atomic": Facts([(full,) for full, parts in known.items() if not parts]),
    }
