"""Random latent grammars with labels of a treebank, and what parsing them must give, enumerated."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from nltk.tree import Tree

from inout.grammars.words import Vocabulary
from inout.latent import LPCFG, LatentGrammar, LatentParser, Layout
from tests.oracle.latent_cases import Case, Node, nodes, trees

NAMES = ("S", "S+VP", "VP", "NP", "NP|<>", "NP+NN", "NN", "NP+S+NP")
METHODS = ("goodman", "min_risk", "max_rule")
Constituents = Counter[tuple[str, int, int]]


def treebank_case(seed: int, *, negative: bool = False, zeros: float = 0.0) -> Case:
    """Random rules over symbols such as treebanks give; each may stand above words and others."""
    rng = random.Random(seed)

    def number() -> float:
        if rng.random() < zeros:
            return 0.0
        return rng.uniform(0.1, 1.0) ** 3 * (-1 if negative and rng.random() < 0.4 else 1)

    binary = rng.sample(list(product(NAMES, repeat=3)), 60)
    entries = [entry for entry in product(NAMES, "xy") if rng.random() < 0.6]
    entries = entries or [("NN", "x")]
    used = sorted({s for rule in binary for s in rule} | {a for a, _ in entries})
    m = {a: rng.choice([1, 1, 2]) for a in used}
    return Case(
        m,
        {(a, h): number() if rng.random() < 0.6 else 0.0 for a in used for h in range(m[a])},
        {(a, x, h): number() for a, x in entries for h in range(m[a])},
        {
            (a, b, c, *hs): number()
            for a, b, c in binary
            for hs in product(range(m[a]), range(m[b]), range(m[c]))
        },
    )


def skeletal_case(case: Case, seed: int) -> Case:
    """The rules of a case with one value each and weights of their own."""
    rng = random.Random(seed)
    return Case(
        dict.fromkeys(case.sizes, 1),
        {(a, 0): rng.uniform(0.1, 1.0) for a in case.sizes},
        {(a, x, 0): rng.uniform(0.1, 1.0) for a, x in case.lexical_rules},
        {(a, b, c, 0, 0, 0): rng.uniform(0.1, 1.0) for a, b, c in case.binary_rules},
    )


def grammar_of(case: Case, coarse: Case) -> LatentGrammar:
    skeleton = case.layout.skeleton
    model = LPCFG(case.layout, case.parameters)
    values: dict[tuple[Any, ...], float] = {**coarse.root, **coarse.lexical, **coarse.blocks}
    names, words = skeleton.nonterminals, skeleton.words
    keys: list[tuple[Any, ...]] = [(a, 0) for a in names]
    keys += [(names[a], words[x], 0) for a, x in skeleton.lexical.tolist()]
    keys += [(*(names[s] for s in rule), 0, 0, 0) for rule in skeleton.binary.tolist()]
    parameters = np.array([values[key] for key in keys])
    skeletal = LPCFG(Layout(skeleton, 1), parameters)
    return LatentGrammar(model, skeletal, Vocabulary.from_terminals(words))


def parser_of(case: Case, threshold: float | None = None, seed: int = 0) -> LatentParser:
    return LatentParser(grammar_of(case, skeletal_case(case, seed)), threshold=threshold)


class Truth:
    """All trees of a sentence with their shares of the mass, some of them perhaps negative."""

    def __init__(self, case: Case, words: Sequence[str], found: list[Node] | None = None) -> None:
        self.trees = trees(case, words) if found is None else found
        self._vectors: dict[int, list[Fraction]] = {}
        self.weights = [self._weight(case, tree) for tree in self.trees]
        self.total = sum(self.weights, Fraction(0))
        self.items: dict[tuple[str, int, int], Fraction] = defaultdict(Fraction)
        self.rules: dict[tuple[Any, ...], Fraction] = defaultdict(Fraction)
        self.at_least: dict[tuple[str, int, int, int], Fraction] = defaultdict(Fraction)
        for tree, weight in zip(self.trees, self.weights, strict=True):
            for node in nodes(tree):
                self.items[node[:3]] += weight
                self.rules[rule_of(node)] += weight
            for constituent, count in constituents_of(tree).items():
                for k in range(count):
                    self.at_least[(*constituent, k)] += weight

    def _weight(self, case: Case, tree: Node) -> Fraction:
        vector, a = self._vector(case, tree), tree[0]
        return sum((x * case.exact[a, h] for h, x in enumerate(vector)), Fraction(0))

    def _vector(self, case: Case, node: Node) -> list[Fraction]:
        """The sum over all latent values below a node, for each of its own; trees share nodes."""
        if id(node) not in self._vectors:
            a, values = node[0], range(case.sizes[node[0]])
            if len(node) == 4:
                made = [case.exact[a, node[3], h] for h in values]
            else:
                (left, right), made = node[3:], [Fraction(0) for _ in values]
                ones, others = self._vector(case, left), self._vector(case, right)
                for h in values:
                    for (i, p), (j, q) in product(enumerate(ones), enumerate(others)):
                        made[h] += case.exact[a, left[0], right[0], h, i, j] * p * q
            self._vectors[id(node)] = made
        return self._vectors[id(node)]

    def score(self, tree: Node, method: str) -> float:
        """What the method wants to be large; -inf where it excludes the tree."""

        def share(mass: Fraction) -> float:
            return float(mass / self.total)

        if not share(self.items[tree[:3]]) > 0:
            return -math.inf
        if method == "goodman":
            return sum(share(self.items[node[:3]]) for node in nodes(tree))
        if method == "min_risk":
            return sum(
                share(self.at_least[(*constituent, k)]) - 0.5
                for constituent, count in constituents_of(tree).items()
                for k in range(count)
            )
        posteriors = [share(self.rules[rule_of(node)]) for node in nodes(tree)]
        return sum(map(math.log, posteriors)) if min(posteriors) > 0 else -math.inf

    def best(self, method: str) -> float:
        return max((self.score(tree, method) for tree in self.trees), default=-math.inf)


def rule_of(node: Node) -> tuple[Any, ...]:
    if len(node) == 4:
        return node
    left, right = node[3:]
    return (*node[:3], left[0], right[0], right[1])


def constituents_of(tree: Node) -> Constituents:
    found: Constituents = Counter()
    for label, i, j, *below in nodes(tree):
        if "|<" not in label:
            parts = label.split("+")
            found.update((part, i, j) for part in (parts[:-1] if len(below) == 1 else parts))
    return found


def as_node(tree: Tree, start: int = 0) -> Node:
    if isinstance(tree[0], str):
        return (tree.label(), start, start + 1, tree[0])
    left = as_node(tree[0], start)
    right = as_node(tree[1], left[2])
    return (tree.label(), start, right[2], left, right)
