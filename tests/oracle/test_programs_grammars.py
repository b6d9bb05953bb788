"""Programs for grammars with binary rules against enumeration of all trees in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import pytest
import torch

from inout import CycleError, programs
from tests.oracle.derivations import (
    WORDS,
    Derivation,
    Row,
    Weights,
    check,
    cnf_trees,
    draw_ambiguous,
    log_sum,
    random_cnf,
    random_weights,
    random_words,
    some,
    weigh,
)
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(3)
# Number of words, and how many trees a random grammar must at least give them.
SIZES = [(0, 0), (1, 1), (2, 2), (3, 3), (5, 20)]


def rooted_trees(facts: dict, words: Sequence[str]) -> Iterator[tuple[Derivation, frozenset]]:
    for root in facts["start"]:
        for tree, spans in cnf_trees(facts["rule"], words, root[0]):
            yield (("start", root), *tree), spans


def random_parses(size: int) -> Callable[[np.random.Generator], tuple[dict, Iterator[Derivation]]]:
    """A way to draw a grammar, a sentence and its trees."""

    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        grammar, words = random_cnf(rng), random_words(rng, size)
        trees = (tree for tree, _ in rooted_trees(grammar, words))
        return {**grammar, **programs.sentence(words)}, trees

    return draw


# cnf_inside


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), SIZES)
def test_cnf_inside_sums_over_all_trees(size: int, least: int, seed: int):
    rng = np.random.default_rng(seed)
    facts, trees = draw_ambiguous(rng, random_parses(size), least)
    check(programs.load("cnf_inside"), facts, trees)


def test_cnf_inside_counts_binary_trees():
    rules = {("S", "S", "S"): math.log(0.5), ("S", "a"): 0.0}
    for n, catalan in enumerate([1, 1, 2, 5, 14, 42, 132, 429], start=1):
        facts = {"start": [("S",)], "rule": rules, **programs.sentence(["a"] * n)}
        forest = programs.load("cnf_inside").ground(facts)
        assert forest.count() == catalan
        assert_close(forest.log_partition(), math.log(catalan) + (n - 1) * math.log(0.5))


@pytest.mark.parametrize("name", ["cnf_inside", "shift_reduce"])
@pytest.mark.parametrize("words", [[], ["zzz"], ["a", "zzz"], ["zzz", "a", "b"]])
def test_no_tree_for_unknown_words_and_none_for_no_words(name: str, words: list[str]):
    facts = {**random_cnf(np.random.default_rng(0), share=1.0), **programs.sentence(words)}
    forest = check(programs.load(name), facts, [])
    assert forest.log_partition().item() == -math.inf
    assert forest.argmax() is None


# cky_unary

ORDERED = ("S", "A", "B", "C")  # unary rules lead only to later symbols


def unary_trees(facts: dict, words: tuple[str, ...], symbol: str) -> Iterator[Derivation]:
    for row in facts["lexical"]:
        if row == (symbol, *words):
            yield (("lexical", row),)
    for row in facts["rule"]:
        if row[0] == symbol and len(row) == 2:
            for tree in unary_trees(facts, words, row[1]):
                yield (("rule", row), *tree)
        if row[0] == symbol and len(row) == 3:
            for cut in range(1, len(words)):
                rights = list(unary_trees(facts, words[cut:], row[2]))
                for left in unary_trees(facts, words[:cut], row[1]):
                    yield from ((("rule", row), *left, *right) for right in rights)


def random_unary_grammar(rng: np.random.Generator) -> dict[str, Weights]:
    """Binary, acyclic unary and lexical rules."""
    unary = [(x, y) for i, x in enumerate(ORDERED) for y in ORDERED[i + 1 :]]
    binary = [("S", "A", "S"), *product(ORDERED, repeat=3)]
    return {
        "start": random_weights(rng, [("S",), ("B",)]),
        "rule": random_weights(rng, dict.fromkeys(some(rng, unary, 0.7) + some(rng, binary, 0.12))),
        "lexical": random_weights(rng, some(rng, list(product(ORDERED, WORDS)), 0.5)),
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 2), (2, 5), (4, 20)])
def test_cky_unary_sums_over_all_trees(size: int, least: int, seed: int):
    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        grammar, words = random_unary_grammar(rng), tuple(random_words(rng, size))
        trees = (
            (("start", root), *tree)
            for root in grammar["start"]
            for tree in unary_trees(grammar, words, root[0])
        )
        return {**grammar, **programs.sentence(words)}, trees

    facts, trees = draw_ambiguous(np.random.default_rng(seed), draw, least)
    check(programs.load("cky_unary"), facts, trees)


def test_cky_unary_names_a_cycle_but_only_one_that_a_parse_can_use():
    facts = {
        "start": [("S",)],
        "rule": {("S", "A"): -1.0, ("A", "S"): -1.0, ("U", "V"): 0.0, ("V", "U"): 0.0},
        "lexical": {("S", "a"): 0.0, ("U", "a"): 0.0},
        **programs.sentence(["a"]),
    }
    with pytest.raises(CycleError, match=r'beta\("S",0,1\)'):
        programs.load("cky_unary").ground(facts)
    facts["rule"][("A", "S")] = -math.inf
    assert programs.load("cky_unary").ground(facts).count() == 1


# crf_cfg


def anchored_trees(facts: dict, symbol: str, i: int, k: int) -> Iterator[Derivation]:
    if (symbol, i, k) in facts["lexical"]:
        yield (("lexical", (symbol, i, k)),)
    for row in facts["binary"]:
        if row[0] == symbol and (row[3], row[5]) == (i, k):
            rights = list(anchored_trees(facts, row[2], row[4], k))
            for left in anchored_trees(facts, row[1], i, row[4]):
                yield from ((("binary", row), *left, *right) for right in rights)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_crf_cfg_sums_over_all_trees(size: int, seed: int):
    rng = np.random.default_rng([seed, size])
    spans = [(i, j, k) for k in range(size + 1) for j in range(k) for i in range(j)]
    anchored = [(*rule, *span) for rule in product("SA", repeat=3) for span in spans]
    facts = {
        "start": random_weights(rng, [("S",), ("A",)]),
        "binary": random_weights(rng, some(rng, anchored, 0.6)),
        "lexical": random_weights(rng, [(x, i, i + 1) for x in "SA" for i in range(size)]),
        "length": [(size,)],
    }
    trees = [
        (("start", root), *tree)
        for root in facts["start"]
        for tree in anchored_trees(facts, root[0], 0, size)
    ]
    check(programs.load("crf_cfg"), facts, trees)


# lattice_parsing


def paths(arcs: Weights, state: int, ends: Weights) -> Iterator[Derivation]:
    if (state,) in ends:
        yield (("final", (state,)),)
    for row in arcs:
        if row[1] == state:
            yield from ((("arc", row), *rest) for rest in paths(arcs, row[2], ends))


def lattice_trees(facts: dict) -> Iterator[Derivation]:
    for begin in facts["initial"]:
        for path in paths(facts["arc"], begin[0], facts["final"]):
            words = [row[0] for name, row in path if name == "arc"]
            for tree, _ in rooted_trees(facts, words):
                yield (("initial", begin), *path, *tree)


@pytest.mark.parametrize("seed", seeds(4))
def test_lattice_parsing_sums_over_all_trees_of_all_paths(seed: int):
    arcs = [(w, p, q) for w in (*WORDS, "zzz") for q in range(5) for p in range(q)]

    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        facts = {
            **random_cnf(rng),
            "arc": random_weights(rng, some(rng, arcs, 0.4)),
            "initial": random_weights(rng, [(0,), (1,)], dead=0.3),
            "final": random_weights(rng, [(3,), (4,)], dead=0.3),
        }
        return facts, lattice_trees(facts)

    facts, trees = draw_ambiguous(np.random.default_rng(seed), draw, least=30)
    check(programs.load("lattice_parsing"), facts, trees)


@pytest.mark.parametrize(("size", "least"), SIZES)
def test_a_lattice_with_one_path_is_a_sentence(size: int, least: int):
    rng = np.random.default_rng(size)
    facts, _ = draw_ambiguous(rng, random_parses(size), least)
    words = [word for word, _, _ in facts["word"]]
    numbers = [int(x) for x in rng.permutation(100)[: size + 1]]  # names of states do not matter
    lattice = {
        "start": facts["start"],
        "rule": facts["rule"],
        "arc": [(w, numbers[i], numbers[i + 1]) for i, w in enumerate(words)],
        "initial": [(numbers[0],)],
        "final": [(numbers[-1],)],
    }
    sentence = programs.load("cnf_inside").ground(facts)
    forest = programs.load("lattice_parsing").ground(lattice)
    assert forest.count() == sentence.count()
    assert_close(forest.log_partition(), sentence.log_partition())
    assert_close(forest.expected_counts("rule"), sentence.expected_counts("rule"))


def test_a_cyclic_lattice_is_refused():
    facts = {
        "start": [("S",)],
        "rule": {("S", "S", "S"): 0.0, ("S", "a"): 0.0},
        "arc": [("a", 0, 0), ("a", 0, 1)],
        "initial": [(0,)],
        "final": [(1,)],
    }
    with pytest.raises(CycleError):
        programs.load("lattice_parsing").ground(facts)


# partial_brackets


def crosses(a: tuple[int, int], b: tuple[int, int]) -> bool:
    inside_a, inside_b = set(range(*a)), set(range(*b))
    return bool(inside_a & inside_b) and not (inside_a <= inside_b or inside_b <= inside_a)


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), SIZES)
@pytest.mark.parametrize("num_brackets", [0, 1, 3])
def test_partial_brackets_sums_over_trees_that_cross_none(
    num_brackets: int, size: int, least: int, seed: int
):
    spans = [(i, k) for k in range(size + 2) for i in range(k)]  # one may reach past the end

    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        grammar, words = random_cnf(rng), random_words(rng, size)
        given = [spans[int(i)] for i in rng.integers(len(spans), size=num_brackets)]
        trees = (
            tree
            for tree, constituents in rooted_trees(grammar, words)
            if not any(crosses(c, bracket) for c in constituents for bracket in given)
        )
        return {**grammar, **programs.sentence(words), **programs.brackets(given)}, trees

    facts, trees = draw_ambiguous(np.random.default_rng(seed), draw, min(least, 5))
    check(programs.load("partial_brackets"), facts, trees)


def test_brackets_around_every_constituent_leave_one_tree_shape():
    rules = {("S", "S", "S"): 0.0, ("S", "a"): 0.0}
    given = [(0, 7), (0, 3), (1, 3), (3, 7), (4, 7), (5, 7)]
    sentence = programs.sentence(["a"] * 7)
    facts = {"start": [("S",)], "rule": rules, **sentence, **programs.brackets(given)}
    forest = programs.load("partial_brackets").ground(facts)
    assert forest.count() == 1


# shift_reduce


def beam_search(facts: dict, words: list[str], width: int) -> list[Derivation]:
    """The derivations that a beam over whole automaton states leaves, action by action."""
    layer: dict[tuple[tuple[str, ...], int], list[Derivation]] = {((), 0): [()]}
    finished: list[Derivation] = []
    while layer:

        def heaviness(state: Row) -> float:
            return log_sum(weigh(d, facts) for d in layer[state])  # noqa: B023

        kept = {s: layer[s] for s in sorted(layer, key=heaviness, reverse=True)[:width]}
        layer = {}
        for (stack, place), derivations in kept.items():
            if place == len(words) and len(stack) == 1 and stack in facts["start"]:
                finished += [(*d, ("start", stack)) for d in derivations]
            for row, weight in facts["rule"].items():
                if weight == -math.inf:
                    continue
                if len(row) == 2 and words[place : place + 1] == [row[1]]:
                    state = ((*stack, row[0]), place + 1)
                elif len(row) == 3 and stack[-2:] == row[1:]:
                    state = ((*stack[:-2], row[0]), place)
                else:
                    continue
                layer.setdefault(state, []).extend((*d, ("rule", row)) for d in derivations)
    return finished


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), SIZES)
@pytest.mark.parametrize("beam", [None, {"state": 10_000}])
def test_shift_reduce_equals_cnf_inside(beam: dict | None, size: int, least: int, seed: int):
    rng = np.random.default_rng(seed)
    facts, trees = draw_ambiguous(rng, random_parses(size), least)
    check(programs.load("shift_reduce"), facts, trees, beam=beam)


@pytest.mark.parametrize("width", [1, 2, 5, 20])
@pytest.mark.parametrize("seed", seeds(5))
def test_a_beam_keeps_what_beam_search_keeps(seed: int, width: int):
    least = {1: 1, 2: 1, 5: 2, 20: 10}[width]

    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        facts, words = random_cnf(rng, share=0.5), random_words(rng, 5)
        return {**facts, **programs.sentence(words)}, iter(beam_search(facts, words, width))

    facts, kept = draw_ambiguous(np.random.default_rng(seed), draw, least)
    # Gradients too: those of the pruned forest.
    forest = check(programs.load("shift_reduce"), facts, kept, beam={"state": width})
    exact = programs.load("cnf_inside").ground(facts)
    assert forest.log_partition() <= exact.log_partition()
    assert width > 2 or forest.count() < exact.count()


def test_log_z_grows_with_the_beam_where_states_do_not_compete_over_time():
    """One tree shape, symbols that differ only in weight: the best B stacks stay the best."""
    symbols = [f"X{i}" for i in range(8)]
    rules = {("S", "F", x): 0.0 for x in symbols} | {("F", "a"): 0.0}
    rules |= {(x, "b"): -float(i) for i, x in enumerate(symbols)}
    facts = {"start": [("S",)], "rule": rules, **programs.sentence(["a", "b"])}
    logs = [
        programs.load("shift_reduce").ground(facts, beam={"state": b}).log_partition()
        for b in range(1, 10)
    ]
    weights = torch.exp(-torch.arange(8.0, dtype=torch.float64))
    want = weights.cumsum(0).log()
    assert_close(torch.stack(logs), torch.cat([want, want[-1:]]))
