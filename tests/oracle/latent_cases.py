"""Latent-variable grammars as dictionaries of fractions: all their trees, and the paper's figures.

Shares no code with the package but for the containers that a case is handed over in.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from nltk.tree import Tree as NltkTree
from numpy.typing import NDArray

from inout.latent.layout import Layout
from inout.latent.skeleton import Skeleton

# ("A", i, i + 1, word) above a word, ("A", i, j, left, right) above others.
Node = tuple[Any, ...]
Constituent = tuple[str, int, int]


@dataclass(eq=False)
class Case:
    """π(a, h), q(a → x | h) and t(a → b c, h₂, h₃ | h₁), by the names of their arguments."""

    sizes: dict[str, int]
    root: dict[tuple[str, int], float]
    lexical: dict[tuple[str, str, int], float]
    blocks: dict[tuple[str, str, str, int, int, int], float]
    exact: dict[tuple[Any, ...], Fraction] = field(init=False)

    def __post_init__(self) -> None:
        all_of: dict[tuple[Any, ...], float] = {**self.root, **self.lexical, **self.blocks}
        self.exact = {key: Fraction(value) for key, value in all_of.items()}

    @cached_property
    def binary_rules(self) -> list[tuple[str, str, str]]:
        return list(dict.fromkeys(key[:3] for key in self.blocks))

    @cached_property
    def lexical_rules(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(key[:2] for key in self.lexical))

    @cached_property
    def layout(self) -> Layout:
        skeleton = Skeleton.of(self.binary_rules, self.lexical_rules)
        return Layout(skeleton, [self.sizes[a] for a in skeleton.nonterminals])

    @cached_property
    def keys(self) -> list[tuple[Any, ...]]:
        """The key of each parameter, in the order that `Layout` documents."""
        skeleton = self.layout.skeleton
        names, words, m = skeleton.nonterminals, skeleton.words, self.sizes
        found: list[tuple[Any, ...]] = [(a, h) for a in names for h in range(m[a])]
        for a, x in skeleton.lexical.tolist():
            found += [(names[a], words[x], h) for h in range(m[names[a]])]
        for rule in skeleton.binary.tolist():
            a, b, c = (names[s] for s in rule)
            found += [(a, b, c, *hs) for hs in product(range(m[a]), range(m[b]), range(m[c]))]
        return found

    @cached_property
    def parameters(self) -> NDArray[np.float64]:
        values: dict[tuple[Any, ...], float] = {**self.root, **self.lexical, **self.blocks}
        return np.array([values[key] for key in self.keys], np.float64)

    def numbers(self, words: Sequence[str]) -> list[int]:
        return [self.layout.skeleton.word_numbers.get(word, -1) for word in words]


def random_case(
    seed: int,
    *,
    symbols: int = 3,
    words: int = 2,
    largest: int = 3,
    zeros: float = 0.0,
    negative: bool = False,
    spread: float = 0.0,
) -> Case:
    """A grammar with random rules; every third symbol or so has one latent value.

    Parameters are up to 10^spread large or small, a share of them zero.
    """
    rng = random.Random(seed)

    def number() -> float:
        if rng.random() < zeros:
            return 0.0
        sign = -1.0 if negative and rng.random() < 0.4 else 1.0
        return sign * rng.uniform(0.1, 1.0) * math.pow(10.0, rng.uniform(-spread, spread))

    names = [chr(ord("A") + s) for s in range(symbols)]
    m = {a: rng.choice([1, *range(1, largest + 1)]) for a in names}
    vocabulary = [chr(ord("x") + w) for w in range(words)]
    binary = [rule for rule in product(names, repeat=3) if rng.random() < 0.4]
    binary += [("A", "A", "A")] if ("A", "A", "A") not in binary else []  # recursion
    entries = [entry for entry in product(names, vocabulary) if rng.random() < 0.5]
    entries += [("A", x) for x in vocabulary if ("A", x) not in entries]
    # "Z" is above no word and no rule's head: rules with such a child apply nowhere.
    m["Z"] = 2
    binary.append(("A", "Z", "A"))
    used = {s for rule in binary for s in rule} | {a for a, _ in entries}
    m = {a: size for a, size in m.items() if a in used}
    return Case(
        m,
        {(a, h): number() for a in m for h in range(m[a])},
        {(a, x, h): number() for a, x in entries for h in range(m[a])},
        {
            (a, b, c, *hs): number()
            for a, b, c in binary
            for hs in product(range(m[a]), range(m[b]), range(m[c]))
        },
    )


def trees(case: Case, words: Sequence[str], i: int = 0, j: int | None = None) -> list[Node]:
    """All skeletal trees of words[i:j], with any symbol on top."""
    j = len(words) if j is None else j
    if j == i + 1:
        return [(a, i, j, x) for a, x in case.lexical_rules if x == words[i]]
    found: list[Node] = []
    for k in range(i + 1, j):
        lefts, rights = trees(case, words, i, k), trees(case, words, k, j)
        for a, b, c in case.binary_rules:
            found += [
                (a, i, j, left, right)
                for left in lefts
                if left[0] == b
                for right in rights
                if right[0] == c
            ]
    return found


def nodes(tree: Node) -> Iterator[Node]:
    yield tree
    for child in tree[3:]:
        if isinstance(child, tuple):
            yield from nodes(child)


def nltk_tree(tree: Node) -> NltkTree:
    return NltkTree(tree[0], [nltk_tree(x) if isinstance(x, tuple) else x for x in tree[3:]])


def derivations(case: Case, tree: Node) -> Iterator[list[tuple[Any, ...]]]:
    """The keys of the parameters of the tree with each choice of all latent values."""
    found = list(nodes(tree))
    places = {id(node): v for v, node in enumerate(found)}
    for values in product(*(range(case.sizes[node[0]]) for node in found)):
        keys: list[tuple[Any, ...]] = [(tree[0], values[0])]
        for v, node in enumerate(found):
            if len(node) == 4:
                keys.append((node[0], node[3], values[v]))
            else:
                left, right = node[3:]
                below = values[places[id(left)]], values[places[id(right)]]
                keys.append((node[0], left[0], right[0], values[v], *below))
        yield keys


def weight(case: Case, keys: list[tuple[Any, ...]]) -> Fraction:
    return math.prod((case.exact[key] for key in keys), start=Fraction(1))


def figure_2(case: Case, tree: Node) -> Fraction:
    """p(r₁ … r_N) by the conventional algorithm."""

    def b(node: Node, h: int) -> Fraction:
        if len(node) == 4:
            return case.exact[node[0], node[3], h]
        left, right = node[3:]
        return sum(
            (
                case.exact[node[0], left[0], right[0], h, h2, h3] * b(left, h2) * b(right, h3)
                for h2 in range(case.sizes[left[0]])
                for h3 in range(case.sizes[right[0]])
            ),
            Fraction(0),
        )

    top = tree[0]
    return sum((b(tree, h) * case.exact[top, h] for h in range(case.sizes[top])), Fraction(0))


Row = list[Fraction]


def tensor(case: Case, a: str, b: str, c: str) -> list[list[Row]]:
    m = case.sizes
    return [
        [[case.exact[a, b, c, i, j, k] for k in range(m[c])] for j in range(m[b])]
        for i in range(m[a])
    ]


def apply(block: list[list[Row]], y1: Row, y2: Row) -> Row:
    """C(y¹, y²)ᵢ = Σ C[i, j, k] y¹ⱼ y²ₖ."""
    return [
        sum(
            (x * p * q for row, p in zip(i, y1, strict=True) for x, q in zip(row, y2, strict=True)),
            Fraction(0),
        )
        for i in block
    ]


def apply_12(block: list[list[Row]], y1: Row, y2: Row) -> Row:
    """C₍₁,₂₎(y¹, y²)ᵢ = Σ C[j, k, i] y¹ⱼ y²ₖ."""
    return [
        sum(
            (block[j][k][i] * y1[j] * y2[k] for j in range(len(y1)) for k in range(len(y2))),
            Fraction(0),
        )
        for i in range(len(block[0][0]))
    ]


def apply_13(block: list[list[Row]], y1: Row, y2: Row) -> Row:
    """C₍₁,₃₎(y¹, y²)ᵢ = Σ C[j, i, k] y¹ⱼ y²ₖ."""
    return [
        sum(
            (block[j][i][k] * y1[j] * y2[k] for j in range(len(y1)) for k in range(len(y2))),
            Fraction(0),
        )
        for i in range(len(block[0]))
    ]


def figure_4(case: Case, tree: Node) -> Fraction:
    """p(r₁ … r_N) by the tensor form."""

    def f(node: Node) -> Row:
        if len(node) == 4:
            return [case.exact[node[0], node[3], h] for h in range(case.sizes[node[0]])]
        left, right = node[3:]
        return apply(tensor(case, node[0], left[0], right[0]), f(left), f(right))

    return sum((x * case.exact[tree[0], h] for h, x in enumerate(f(tree))), Fraction(0))


def figure_3(case: Case, words: Sequence[str]) -> dict[Constituent, Fraction]:
    """μ(a, i, j) by the conventional algorithm, over words i to j-1; p(x) is Σ μ(a, 0, n)."""
    n, m, t = len(words), case.sizes, case.exact
    alpha: dict[tuple[str, int, int, int], Fraction] = defaultdict(Fraction)
    beta: dict[tuple[str, int, int, int], Fraction] = defaultdict(Fraction)
    for i in range(n):
        for a, x in case.lexical_rules:
            for h in range(m[a]):
                if x == words[i]:
                    alpha[a, i, i + 1, h] = t[a, x, h]
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            j = i + width
            for k in range(i + 1, j):
                for key in case.blocks:
                    a, b, c, h1, h2, h3 = key
                    alpha[a, i, j, h1] += t[key] * alpha[b, i, k, h2] * alpha[c, k, j, h3]
    for a in m:
        for h in range(m[a]):
            beta[a, 0, n, h] = t[a, h]
    for width in range(n - 1, 0, -1):
        for i in range(n - width + 1):
            j = i + width
            for key in case.blocks:
                above, left, right, h1, h2, h3 = key
                for k in range(i):
                    beta[right, i, j, h3] += t[key] * beta[above, k, j, h1] * alpha[left, k, i, h2]
                for k in range(j + 1, n + 1):
                    beta[left, i, j, h2] += t[key] * beta[above, i, k, h1] * alpha[right, j, k, h3]
    return {
        (a, i, j): sum((alpha[a, i, j, h] * beta[a, i, j, h] for h in range(m[a])), Fraction(0))
        for a in m
        for i in range(n)
        for j in range(i + 1, n + 1)
    }


def figure_5(case: Case, words: Sequence[str]) -> dict[Constituent, Fraction]:
    """μ(a, i, j) by the tensor form."""
    n, m = len(words), case.sizes
    blocks = {rule: tensor(case, *rule) for rule in case.binary_rules}
    alpha: dict[Constituent, Row] = defaultdict(list)
    beta: dict[Constituent, Row] = defaultdict(list)
    places = [(a, i, j) for a in m for i in range(n) for j in range(i + 1, n + 1)]
    places.sort(key=lambda place: place[2] - place[1])
    for a, i, j in places:
        alpha[a, i, j] = [Fraction(0)] * m[a]
        if j == i + 1 and (a, words[i]) in case.lexical_rules:
            alpha[a, i, j] = [case.exact[a, words[i], h] for h in range(m[a])]
        for k in range(i + 1, j):
            for rule in case.binary_rules:
                if rule[0] == a:
                    y1, y2 = alpha[rule[1], i, k], alpha[rule[2], k, j]
                    made = apply(blocks[rule], y1, y2)
                    alpha[a, i, j] = [x + y for x, y in zip(alpha[a, i, j], made, strict=True)]
    for a, i, j in reversed(places):
        if (i, j) == (0, n):
            beta[a, i, j] = [case.exact[a, h] for h in range(m[a])]
            continue
        found = [Fraction(0)] * m[a]
        for rule in case.binary_rules:
            above, left, right = rule
            if right == a:
                for k in range(i):
                    made = apply_12(blocks[rule], beta[above, k, j], alpha[left, k, i])
                    found = [x + y for x, y in zip(found, made, strict=True)]
            if left == a:
                for k in range(j + 1, n + 1):
                    made = apply_13(blocks[rule], beta[above, i, k], alpha[right, j, k])
                    found = [x + y for x, y in zip(found, made, strict=True)]
        beta[a, i, j] = found
    return {
        place: sum((x * y for x, y in zip(alpha[place], beta[place], strict=True)), Fraction(0))
        for place in places
    }


@dataclass(eq=False)
class Sums:
    """What all derivations of some trees add up to."""

    total: Fraction
    items: dict[Constituent, Fraction]
    edges: dict[tuple[Any, ...], Fraction]  # (a, b, c, i, k, j)
    gradient: dict[tuple[Any, ...], Fraction]  # of the total


def enumerate_sums(case: Case, found: Sequence[Node]) -> Sums:
    """Σ over trees and latent values, of weights and of products of all factors but one."""
    sums = Sums(Fraction(0), defaultdict(Fraction), defaultdict(Fraction), defaultdict(Fraction))
    for tree in found:
        mass = Fraction(0)
        for keys in derivations(case, tree):
            mass += weight(case, keys)
            for x, key in enumerate(keys):
                sums.gradient[key] += weight(case, keys[:x] + keys[x + 1 :])
        sums.total += mass
        for node in nodes(tree):
            sums.items[node[:3]] += mass
            if len(node) == 5:
                left, right = node[3:]
                place = node[0], left[0], right[0], node[1], right[1], node[2]
                sums.edges[place] += mass
    return sums


def log_of(value: Fraction) -> float:
    """log |value|, of numbers that no float can hold too."""
    if value == 0:
        return -math.inf
    value = abs(value)
    shift = value.numerator.bit_length() - value.denominator.bit_length()
    scaled = value / Fraction(2) ** shift
    return math.log(scaled) + shift * math.log(2.0)


def as_float(value: Fraction) -> float:
    """The nearest float; infinity where it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
