"""The parts of workloads that decide what is right: nothing here is timed, nothing needs data."""

from __future__ import annotations

import itertools
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from nltk.tree import Tree

from benchmarks import registry
from benchmarks.contexts_align.words import distance
from benchmarks.em import corpora
from benchmarks.registry import WORKLOADS
from benchmarks.rna.folding import Accuracy, most_accurate
from benchmarks.rna.pfold import Tables, pairs_of_brackets, pairs_of_tree
from benchmarks.rna.plain import value
from inout.grammars import diagnose
from tests.oracle.lari_young import lari_young_step

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name",
    [*("parser", "em", "rna", "moments"), *("contexts-ocr", "contexts-align", "contexts-decipher")],
)
def test_workloads_have_their_stages(name, monkeypatch):
    # The threads of this process are not for a workload to choose.
    monkeypatch.setattr(registry, "THREAD_VARIABLES", ())
    stages = WORKLOADS[name].load()
    assert all(map(callable, (stages.prepare, stages.check, stages.measure)))


def nested(pairs):
    places = [place for pair in pairs for place in pair]
    crossing = any(i < k < j < m for (i, j), (k, m) in itertools.permutations(pairs, 2))
    return len(set(places)) == len(places) and not crossing


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
def test_structures_of_least_risk(gamma):
    random = np.random.default_rng(int(gamma * 10))
    n = 6
    # Of any numbers, not only of probabilities.
    posteriors = np.triu(random.random((n, n)), 1) / 3
    single = 1 - posteriors.sum(0) - posteriors.sum(1)

    def gain(pairs):
        paired = {place for pair in pairs for place in pair}
        alone = sum(single[i] for i in range(n) if i not in paired)
        return alone + 2 * gamma * sum(posteriors[pair] for pair in pairs)

    every = list(itertools.combinations(range(n), 2))
    sets = (c for size in range(n // 2 + 1) for c in itertools.combinations(every, size))
    best = max(gain(pairs) for pairs in sets if nested(pairs))
    found = most_accurate(posteriors, gamma)
    assert nested(found)
    assert gain(found) == pytest.approx(best, abs=1e-12)


def test_pairs_of_a_tree_and_of_brackets():
    stem = Tree("F", ["G", Tree("F", [Tree("L", ["A"]), Tree("S", [Tree("L", ["A"])])]), "C"])
    tree = Tree("S", [Tree("L", ["A"]), Tree("S", [Tree("L", ["C", stem, "G"])])])
    assert pairs_of_tree(tree) == {(1, 6), (2, 5)} == pairs_of_brackets(".((..))")
    assert pairs_of_brackets("([)]") == {(0, 2)}


def test_sensitivity_and_ppv():
    gold = [{(0, 5), (1, 4)}, {(0, 3)}]
    accuracy = Accuracy.of(gold, [{(0, 5)}, {(0, 3), (1, 2)}])
    assert accuracy.sensitivity == pytest.approx(2 / 3)
    assert accuracy.ppv == pytest.approx(2 / 3)
    assert accuracy.mean_sensitivity == accuracy.mean_ppv == pytest.approx(3 / 4)
    assert Accuracy.of(gold, [set(), set()]).ppv == 0


@pytest.mark.parametrize(
    ("a", "b", "edits"),
    [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)],
)
def test_distances_of_spellings(a, b, edits):
    assert distance(a, b) == distance(b, a) == edits


@pytest.mark.parametrize("size", [1000, 8000])
def test_random_grammars_are_proper_and_consistent(size):
    grammar = corpora.random_grammar(size)
    assert len(grammar) == size + corpora.SYMBOLS * corpora.TAGS
    found = diagnose(grammar)
    assert found.consistency.proper
    assert found.consistency.consistent


def test_inside_outside_by_hand():
    """One symbol, S -> S S | a: a sentence of n words has n − 1 branchings, whatever the tree."""
    old = {("S", "S", "S"): 0.3, ("S", "a"): 0.7}
    new, log_likelihood = lari_young_step(old, [["a"] * 4, ["a"] * 2], "S")
    assert new == pytest.approx({("S", "S", "S"): 4 / 10, ("S", "a"): 6 / 10})
    catalan = 5 * 0.3**3 * 0.7**4 * 0.3 * 0.7**2
    assert math.isclose(log_likelihood, math.log(catalan))


def test_the_example_folds_rna(capsys):
    example = runpy.run_path(str(ROOT / "examples" / "rna_folding.py"))
    hairpin = "GGGGCAAAAGCCCC"
    example["main"](hairpin)
    first, _, sequence, structure, *_ = capsys.readouterr().out.splitlines()
    assert sequence == hairpin
    assert structure.split()[0] == "(((((....)))))"
    rules = {
        "S -> L S": 0.868534, "S -> L": 0.131466, "L -> d F d": 0.105397, "L -> s": 0.894603,
        "F -> d F d": 0.78764, "F -> L S": 0.21236,
    }  # fmt: skip
    tables = Tables(rules, example["SINGLE"], example["PAIR"])
    assert first.split()[-1] == f"{math.log(value(tables, hairpin)):.2f}"
