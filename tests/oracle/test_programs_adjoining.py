"""Tree-adjoining grammars against enumeration of all derivations, and on aⁿbⁿcⁿdⁿ."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
import pytest

from inout import CycleError, programs
from tests.oracle.derivations import (
    Derivation,
    Weights,
    alive,
    check,
    random_weights,
    random_words,
    some,
)
from tests.seeds import seeds
from tests.support import assert_close


@dataclass(frozen=True)
class Node:
    """A node of an elementary tree; a leaf is a word, empty, a slot or the foot."""

    name: str
    label: str
    children: tuple[Node, ...] = ()
    kind: str = "inner"

    def below(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.below()


@dataclass(frozen=True)
class TreeGrammar:
    """Elementary trees, and their facts."""

    initial: list[Node]
    auxiliary: list[Node]
    facts: dict

    def spellings(self, max_words: int) -> dict[tuple[str, ...], list[Derivation]]:
        """All derivations of all sentences of at most so many words, by sentence."""
        found: dict[tuple[str, ...], list[Derivation]] = defaultdict(list)
        for start in self.facts["start"]:
            for words, _, facts, _ in self.substitute(start[0], max_words):
                found[words].append((("start", start), *facts))
        return found

    def substitute(self, label: str, budget: int) -> Iterator[Piece]:
        for tree in self.initial:
            yield from self.use("initial", tree, label, budget)

    def use(self, relation: str, tree: Node, label: str, budget: int) -> Iterator[Piece]:
        """A tree with all that is put into it; its own words are paid for at once."""
        fact = (relation, (tree.name, label))
        cost = sum(node.kind == "leaf" for node in tree.below())
        if fact[1] in self.facts[relation] and cost <= budget:
            for left, right, facts, used in self.whole(tree, budget - cost):
                yield left, right, (fact, *facts), used + cost

    def whole(self, node: Node, budget: int) -> Iterator[Piece]:
        """What is below a node, with or without an adjunction at it."""
        if (node.name,) in self.facts["skip"]:
            for left, right, facts, used in self.part(node, budget):
                yield left, right, (("skip", (node.name,)), *facts), used
        for row in self.facts["adjoin"]:
            if row[0] != node.name:
                continue
            for tree in self.auxiliary:
                for a, d, outer, spent in self.use("auxiliary", tree, row[1], budget):
                    for b, c, inner, used in self.part(node, budget - spent):
                        facts = (("adjoin", row), *outer, *inner)
                        if c is None:
                            yield a + b + d, None, facts, spent + used
                        else:
                            yield a + b, c + d, facts, spent + used

    def part(self, node: Node, budget: int) -> Iterator[Piece]:
        """What is below a node, as words to the left and, if the foot is there, to the right."""
        if node.kind == "leaf":
            yield (node.label,), None, (("leaf", (node.name, node.label)),), 0
        elif node.kind == "empty":
            yield (), None, (("empty", (node.name,)),), 0
        elif node.kind == "foot":
            yield (), (), (), 0
        elif node.kind == "slot":
            for words, _, facts, used in self.substitute(node.label, budget):
                yield words, None, (("slot", (node.name, node.label)), *facts), used
        elif len(node.children) == 1:
            yield from self.whole(node.children[0], budget)
        else:
            first, second = node.children
            for a, b, one, used in self.whole(first, budget):
                for c, d, other, more in self.whole(second, budget - used):
                    if b is not None:
                        yield a, b + c, one + other, used + more
                    elif d is not None:
                        yield a + c, d, one + other, used + more
                    else:
                        yield a + c, None, one + other, used + more


Piece = tuple[tuple[str, ...], tuple[str, ...] | None, Derivation, int]


def structure(trees: list[Node]) -> dict:
    """The unweighted facts of elementary trees, and the rows of weighted leaves."""
    nodes = [node for tree in trees for node in tree.below()]
    return {
        "child": [(n.name, n.children[0].name) for n in nodes if len(n.children) == 1],
        "children": [
            (n.name, *(c.name for c in n.children)) for n in nodes if len(n.children) == 2
        ],
        "leaf": [(n.name, n.label) for n in nodes if n.kind == "leaf"],
        "empty": [(n.name,) for n in nodes if n.kind == "empty"],
        "slot": [(n.name, n.label) for n in nodes if n.kind == "slot"],
        "foot": [(n.name, n.label) for n in nodes if n.kind == "foot"],
    }


def random_tree(rng: np.random.Generator, name: str, root: str, foot: bool) -> Node:
    """A tree of a few nodes with at least one word, with or without a foot."""
    kinds = ["leaf", *(str(k) for k in rng.choice(["leaf", "empty", "slot"], int(rng.integers(2))))]
    leaves = [*kinds, "foot"] if foot else kinds
    leaves = [leaves[int(i)] for i in rng.permutation(len(leaves))]
    count = iter(range(100))

    def build(kinds: list[str], label: str) -> Node:
        number = f"{name}.{next(count)}"
        if len(kinds) == 1 and number != f"{name}.0":
            kind = kinds[0]
            label = {"leaf": str(rng.choice(["a", "b"])), "foot": root}.get(kind, label)
            return Node(number, label, (), kind)
        if len(kinds) == 1 or rng.random() < 0.2:
            return Node(number, label, (build(kinds, str(rng.choice(["S", "A"]))),))
        cut = int(rng.integers(1, len(kinds)))
        return Node(number, label, (build(kinds[:cut], "S"), build(kinds[cut:], "A")))

    return build(leaves, root)


def random_tree_grammar(rng: np.random.Generator) -> TreeGrammar:
    initial = [random_tree(rng, f"i{i}", "SA"[i % 2], foot=False) for i in range(3)]
    auxiliary = [random_tree(rng, f"x{i}", "SA"[i % 2], foot=True) for i in range(3)]
    rows = structure([*initial, *auxiliary])
    nodes = [node for tree in [*initial, *auxiliary] for node in tree.below()]
    facts = {
        **rows,
        **{name: random_weights(rng, rows[name], dead=0.05) for name in ("leaf", "empty", "slot")},
        "start": random_weights(rng, [("S",), ("A",)], dead=0.1),
        "initial": random_weights(rng, [(t.name, t.label) for t in initial], dead=0.1),
        "auxiliary": random_weights(rng, [(t.name, t.label) for t in auxiliary], dead=0.1),
        # One without either kind of row can never be finished, one without skip must be adjoined.
        "skip": random_weights(rng, some(rng, [(n.name,) for n in nodes], 0.95), dead=0.05),
        "adjoin": random_weights(rng, some(rng, [(n.name, n.label) for n in nodes], 0.4), dead=0.1),
    }
    return TreeGrammar(initial, auxiliary, facts)


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.few(1)
def test_tree_adjoining_sums_over_all_derivations(seed: int):
    rng = np.random.default_rng(seed)
    most, sentences = 0, []
    while not 20 <= most <= 1500:
        grammar = random_tree_grammar(rng)
        found = grammar.spellings(4)
        ambiguity = {w: len(alive(d, grammar.facts)) for w, d in found.items()}
        sentences = sorted(ambiguity, key=lambda w: (-ambiguity[w], w))
        most = ambiguity[sentences[0]] if sentences else 0
    absent = [tuple(random_words(rng, int(rng.integers(5)))) for _ in range(3)]
    for words in [*sentences[:4], *sentences[-2:], *absent]:
        facts = {**grammar.facts, **programs.sentence(words)}
        check(programs.load("tree_adjoining_grammar"), facts, found.get(words, []))


def counting_language(weights: Weights) -> dict:
    """The grammar of aⁿbⁿcⁿdⁿ: S(ε), and S(a S(b S* c) d) adjoined to the S in its middle."""
    leaves = {w: Node(w, w, (), "leaf") for w in "abcd"}
    foot = Node("foot", "S", (), "foot")
    inner = Node("bSc", "S", (Node("bS", "-", (leaves["b"], foot)), leaves["c"]))
    auxiliary = Node("x", "S", (Node("aS", "-", (leaves["a"], inner)), leaves["d"]))
    initial = Node("i", "S", (Node("e", "", (), "empty"),))
    nodes = [*initial.below(), *auxiliary.below()]
    return {
        **structure([initial, auxiliary]),
        "start": [("S",)],
        "initial": {("i", "S"): weights["initial",]},
        "auxiliary": {("x", "S"): weights["auxiliary",]},
        "skip": {(n.name,): weights["skip",] if n in (initial, inner) else 0.0 for n in nodes},
        "adjoin": [("i", "S"), ("bSc", "S")],
    }


@pytest.mark.parametrize("n", range(5))
def test_tree_adjoining_derives_equal_numbers_of_four_letters_once(n: int):
    weights = {("initial",): -0.25, ("auxiliary",): -1.5, ("skip",): -0.125}
    words = ["a"] * n + ["b"] * n + ["c"] * n + ["d"] * n
    facts = {**counting_language(weights), **programs.sentence(words)}
    forest = programs.load("tree_adjoining_grammar").ground(facts)
    assert forest.count() == 1
    # Nothing is adjoined at exactly one node: the innermost.
    assert_close(forest.log_partition(), -0.25 - 1.5 * n - 0.125)
    assert_close(forest.expected_counts("auxiliary"), [float(n)])


@pytest.mark.exhaustive
def test_tree_adjoining_rejects_all_other_strings():
    grammar = counting_language({("initial",): 0.0, ("auxiliary",): 0.0, ("skip",): 0.0})
    rng = np.random.default_rng(0)
    strings = [s for n in range(1, 4) for s in product("abcd", repeat=n)]
    strings += [s for s in permutations("abcd") if s != tuple("abcd")]
    strings += [tuple(rng.permutation(list("aabbccdd")).tolist()) for _ in range(10)]
    strings += [tuple("aabbccd"), tuple("aabbbccdd"), tuple("aabbcddd"), tuple("abcdabcd")]
    program = programs.load("tree_adjoining_grammar")
    for words in strings:
        forest = program.ground({**grammar, **programs.sentence(words)})
        assert forest.count() == 0, words
        assert forest.log_partition().item() == -math.inf


def test_auxiliary_trees_without_words_can_be_adjoined_for_ever():
    tree = Node("x", "S", (Node("y", "S", (), "foot"),))
    word = Node("i", "S", (Node("w", "a", (), "leaf"),))
    facts = {
        **structure([tree, word]),
        "start": [("S",)],
        "initial": [("i", "S")],
        "auxiliary": [("x", "S")],
        "skip": [("x",), ("y",), ("i",), ("w",)],
        "adjoin": [("i", "S"), ("x", "S")],
        **programs.sentence(["a"]),
    }
    with pytest.raises(CycleError):
        programs.load("tree_adjoining_grammar").ground(facts)
    facts["adjoin"] = [("i", "S")]
    assert programs.load("tree_adjoining_grammar").ground(facts).count() == 2
