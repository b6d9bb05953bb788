"""Inside and outside values of labels over spans, against fixed points of the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from inout import Grammar, Parser
from inout.grammars import Lattice, Pruning
from inout.grammars.parser.analyses import Analyses
from tests.oracle.chart_cases import random_grammar, ways_of
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(8)
SENTENCES = ["a", "ab", "aab", "abba"]


def values_of(
    grammar: Grammar,
    words: list[str],
    allowed: set[tuple[int, int]] | None = None,
    scores: np.ndarray | None = None,
) -> tuple[dict, dict]:
    """Inside values by iteration, and outside values as derivatives of the last, by iteration."""
    items, ways = ways_of(grammar, words, allowed)
    if scores is not None:
        ways = [
            (r, (a, i, j), inner, w * (math.exp(scores[i, j - 1, r]) if j > i else 1.0))
            for r, (a, i, j), inner, w in ways
        ]
    inside = dict.fromkeys(items, 0.0)
    for _ in range(400):
        new = dict.fromkeys(items, 0.0)
        for _, head, inner, weight in ways:
            new[head] += weight * math.prod(inside[x] for x in inner)
        inside = new
    outside = dict.fromkeys(items, 0.0)
    for _ in range(400):
        new = dict.fromkeys(items, 0.0)
        new["S", 0, len(words)] = 1.0
        for _, head, inner, weight in ways:
            for place, x in enumerate(inner):
                others = (inside[y] for k, y in enumerate(inner) if k != place)
                new[x] += weight * outside[head] * math.prod(others)
        outside = new
    return inside, outside


def squares(values: dict, labels: tuple[str, ...], n: int) -> np.ndarray:
    """[n n+1 labels], 0 for what is no span."""
    return np.array(
        [
            [[values.get((a, i, j), 0.0) if j > i else 0.0 for a in labels] for j in range(n + 1)]
            for i in range(n)
        ]
    ).reshape(n, n + 1, len(labels))


def check(given: Analyses, wanted: tuple[dict, dict] | None) -> None:
    """By definition, and by the expected numbers of the compiled passes."""
    labels, n = given.marginals().labels, given.problem.n
    if wanted is not None:
        inside, outside = (squares(x, labels, n) for x in wanted)
        with np.errstate(divide="ignore"):
            assert_close(given.inside(), np.log(inside), rtol=1e-10, atol=1e-10)
            assert_close(given.outside(), np.log(outside), rtol=1e-10, atol=1e-10)
    if given.log_z > -np.inf:
        counts = (given.inside() + given.outside() - given.log_z).exp()
        found = given.marginals()
        assert_close(counts, found.constituent_counts, rtol=1e-9)
        logs = {
            (a, i, j): (given.inside()[i, j, k].item(), given.outside()[i, j, k].item())
            for k, a in enumerate(labels)
            for i, j in np.argwhere(found.constituent_counts[:, :, k] > 0).tolist()
        }
        assert found.log_values.keys() == logs.keys()
        names = list(logs)
        assert_close([found.log_values[x] for x in names], [logs[x] for x in names])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.few(1)
def test_values_are_fixed_points(seed: int) -> None:
    grammar = random_grammar(np.random.default_rng(seed))
    for sentence in [*SENTENCES, "abca"]:  # no tree has a c, but something surrounds it
        check(Parser(grammar).given(list(sentence)), values_of(grammar, list(sentence)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.few(1)
def test_brackets_and_scores(seed: int) -> None:
    rng = np.random.default_rng(seed)
    grammar, words = random_grammar(rng), list("abab")
    # No constituent crosses words 1 to 2 or 0 to 2.
    allowed = {(i, j) for i in range(4) for j in range(i + 1, 5)} - {(0, 2), (2, 4), (1, 4)}
    bracketed = Parser(grammar).given(words, brackets=[(1, 3), (0, 3)])
    check(bracketed, values_of(grammar, words, allowed))
    scores = rng.normal(size=(4, 4, len(grammar))) - 1.0
    scored = Parser(grammar).given(words, rule_scores=torch.from_numpy(scores))
    check(scored, values_of(grammar, words, None, scores))


@pytest.mark.parametrize("seed", SEEDS[:4])
@pytest.mark.few(1)
def test_derivatives_of_both_orders(seed: int) -> None:
    grammar = random_grammar(np.random.default_rng(seed), rules=9)
    weights = grammar.log_weights.clone().requires_grad_()

    def values(logs: torch.Tensor) -> torch.Tensor:
        given = Parser(grammar.with_log_weights(logs)).given(["a", "b"])
        found = torch.stack([given.inside(), given.outside()])
        return found[found > -torch.inf]

    assert torch.autograd.gradcheck(values, weights)
    if seed == SEEDS[0]:
        assert torch.autograd.gradgradcheck(values, weights)


def test_values_that_underflow_are_exact() -> None:
    """Every tree over w words has 2w - 1 rules, so a factor for all rules has a known power."""
    text = "S -> S S [0.25] | A S [0.2] | 'a' [0.3]\nA -> S A [0.1] | 'a' [0.5] | 'b' [0.5]"
    grammar, words = Grammar.from_text(text), list("aabaab")
    plain = Parser(grammar)
    n, labels = len(words), len(plain.marginals(words).labels)
    widths = torch.arange(n + 1) - torch.arange(n)[:, None]
    rules = (2 * widths - 1)[:, :, None].expand(-1, -1, labels)
    for shift in (-1e4, 1e4):
        moved = Parser(grammar.with_log_weights(grammar.log_weights + shift))
        check(moved.given(words), None)
        assert_close(moved.inside(words), plain.inside(words) + shift * rules, rtol=1e-14)
        around = shift * (2 * n - 1 - rules)
        assert_close(moved.outside(words), plain.outside(words) + around, rtol=1e-14)


def test_the_forest_agrees() -> None:
    text = "S -> NP VP\nNP -> D N [0.7] | NP PP [0.3]\nVP -> V NP [0.6] | VP PP [0.4]\n"
    text += "PP -> P NP\nD -> 'the'\nN -> 'dog' [0.5] | 'park' [0.5]\nV -> 'saw'\nP -> 'in'"
    parser, words = (
        Parser(Grammar.from_text(text)),
        ["the", "dog", "saw", "the", "dog", "in", "the", "park"],
    )
    forest, names = parser.forest(words), parser.marginals(words).labels
    inside, outside = parser.inside(words), parser.outside(words)
    for item, own, around in zip(forest.labels, forest.inside(), forest.outside(), strict=True):
        if item.relation == "c":
            label, i, j = item.arguments
            assert_close(inside[i, j, names.index(label)], own)
            assert_close(outside[i, j, names.index(label)], around)


def test_lattices_pruning_beams_and_no_words() -> None:
    grammar = Grammar.from_text("S -> S S [0.25] | 'a' [0.3] | 'b' [0.1]")
    parser = Parser(grammar)
    lattice = Lattice([(0, 1, "a", -0.5), (1, 2, "b"), (0, 2, "b", -1.0)])
    ends = parser.inside(lattice)[0, 2, 0], parser.outside(lattice)[0, 1, 0]
    assert_close(ends[0], parser.log_partition(lattice))
    assert_close(ends[1].exp(), 0.25 * 0.1)
    words = ["a", "b", "a"]
    for given in (
        parser.given(words, beam=0.5),
        parser.given(words, pruning=Pruning(parser, 0.45)),
    ):
        counts = (given.inside() + given.outside() - given.log_z).exp()
        assert_close(counts, given.marginals().constituent_counts)
    assert parser.inside([]).shape == parser.outside([]).shape == (0, 1, 1)
