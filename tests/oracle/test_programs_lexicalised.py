"""Lexicalised grammars against all trees, and the hook trick that folding finds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from inout import Program, programs
from tests.oracle.derivations import (
    Derivation,
    check,
    draw_ambiguous,
    random_weights,
    random_words,
    some,
)
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(3)

# Eisner & Satta (1999), figure 2, by hand.
HOOKS = Program("""
    goal            += start(X,V) * ?word(V,H,_) * phrase(X,H,0,N) * length(N).
    phrase(X,I,I,K) += lexical(X,V) * word(V,I,K).
    left(X,Y,Z,H,D)  += head_left(X,Y,Z,V,W) * ?word(V,H,_) * ?word(W,D,_).
    right(X,Y,Z,H,D) += head_right(X,Y,Z,V,W) * ?word(V,H,_) * ?word(W,D,_).
    hook(X,Y,H,J,K) += left(X,Y,Z,H,D) * phrase(Z,D,J,K), H < J.
    kooh(X,Z,H,I,J) += right(X,Y,Z,H,D) * phrase(Y,D,I,J), H >= J.
    phrase(X,H,I,K) += phrase(Y,H,I,J) * hook(X,Y,H,J,K).
    phrase(X,H,I,K) += kooh(X,Z,H,I,J) * phrase(Z,H,J,K).
""")


def lexicalised_trees(facts: dict, words: tuple[str, ...]) -> Iterator[tuple[str, str, Derivation]]:
    """(symbol, head word, facts used) of every tree over the words."""
    if len(words) == 1:
        for row in facts["lexical"]:
            if row[1] == words[0]:
                yield row[0], words[0], (("lexical", row),)
    for cut in range(1, len(words)):
        rights = list(lexicalised_trees(facts, words[cut:]))
        for y, v, left in lexicalised_trees(facts, words[:cut]):
            for z, w, right in rights:
                for name, head, other in (("head_left", v, w), ("head_right", w, v)):
                    for row in facts[name]:
                        if row[1:] == (y, z, head, other):
                            yield row[0], head, ((name, row), *left, *right)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "least"), [(0, 0), (1, 1), (2, 1), (3, 4), (4, 10)])
def test_lexicalised_grammars_sum_over_all_trees(size: int, least: int, seed: int):
    def draw(rng: np.random.Generator) -> tuple[dict, Iterator[Derivation]]:
        words = tuple(random_words(rng, size))
        binary = [(*xyz, *vw) for xyz in product("SA", repeat=3) for vw in product("abc", repeat=2)]
        facts = {
            "start": random_weights(rng, product("SA", "abc")),
            "lexical": random_weights(rng, some(rng, product("SA", "abc"), 0.8)),
            "head_left": random_weights(rng, some(rng, binary, 0.3)),
            "head_right": random_weights(rng, some(rng, binary, 0.3)),
        }
        trees = (
            (("start", (x, v)), *tree)
            for x, v, tree in lexicalised_trees(facts, words)
            if (x, v) in facts["start"]
        )
        return {**facts, **programs.sentence(words)}, trees

    facts, trees = draw_ambiguous(np.random.default_rng(seed), draw, least)
    for form in (programs.load("lexicalised_cfg"), HOOKS):
        forest = check(form, facts, trees)
        if trees and forest.count():
            best = max(math.fsum(facts[n][r] for n, r in tree) for tree in trees)
            assert_close(forest.argmax().log_weight, best)


def size_of(program: Program, n: int) -> int:
    """The edges for a sentence of n different words, every two of which may be joined."""
    words = [f"w{i}" for i in range(n)]
    pairs = [("S", "S", "S", v, w) for v in words for w in words]
    facts = {
        "start": [("S", w) for w in words],
        "lexical": [("S", w) for w in words],
        "head_left": pairs,
        "head_right": pairs,
        **programs.sentence(words),
    }
    return program.ground(facts).num_edges


@pytest.mark.parametrize(("form", "degree"), [("written", 5), ("folded", 4), ("hooks", 4)])
def test_folding_finds_the_hook_trick(form: str, degree: int):
    """The edges are a polynomial of the length: of degree 5 as written, of degree 4 folded."""
    program = programs.load("lexicalised_cfg")
    program = {"written": program, "folded": program.folded(), "hooks": HOOKS}[form]
    edges = np.array([size_of(program, n) for n in range(2, 12)])
    assert np.all(np.diff(edges, degree) == np.diff(edges, degree)[0])
    assert np.diff(edges, degree)[0] > 0
    slope = math.log2(size_of(program, 32) / size_of(program, 16))
    assert degree - 0.3 < slope < degree, slope
