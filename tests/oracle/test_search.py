"""Best-first search: the k best derivations of the whole forest, from a part of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inout import ArgumentError, Facts, Item, Program
from inout.deduction.agenda import coarser, outside_bounds
from tests.seeds import seeds
from tests.support import assert_close

CKY = Program(
    'goal += beta("S", 0, N) * length(N).\n'
    "beta(X,I,K) += rule(X,Y,Z) * beta(Y,I,J) * beta(Z,J,K).\n"
    "beta(X,I,K) += rule(X,W) * word(W,I,K)."
)


def problem(seed: int, size: int = 7, share: float = 0.5):
    """A random grammar whose rules weigh at most 1, and words."""
    rng = np.random.default_rng(seed)
    symbols, letters = ["S", "A", "B", "C"], ["a", "b"]
    rows = [(x, y, z) for x in symbols for y in symbols for z in symbols]
    rows += [(x, w) for x in symbols for w in letters]
    rules = {row: -float(rng.exponential(3.0)) for row in rows if rng.random() < share}
    rules[("S", "S", "S")] = rules[("S", "a")] = rules[("S", "b")] = -2.0
    words = [(letters[rng.integers(2)], i, i + 1) for i in range(size)]
    return {"rule": rules, "word": words, "length": [(size,)]}


def coarse_rule(item: Item) -> Item:
    """All symbols but S as one."""
    if item.relation != "rule":
        return item
    symbols = {"A": "X", "B": "X", "C": "X"}
    return Item("rule", tuple(symbols.get(x, x) for x in item.arguments))


def coarse_item(item: Item) -> Item:
    if item.relation != "beta":
        return item
    name, *span = item.arguments
    return Item("beta", (name if name == "S" else "X", *span))


def heuristic_of(facts):
    return outside_bounds(CKY.ground(coarser(facts, coarse_rule)), coarse_item)


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("informed", [False, True], ids=["Knuth", "A*"])
@pytest.mark.parametrize("seed", seeds(12, few=4))
def test_the_k_best_are_those_of_the_whole_forest(seed, informed, k):
    facts = problem(seed)
    whole = CKY.ground(facts)
    found = CKY.search(facts, k, heuristic=heuristic_of(facts) if informed else None)
    expected = [tree.log_weight for tree in whole.kbest(k)]
    assert found.finished
    assert_close([t.log_weight for t in found.forest.kbest(k)], expected, rtol=1e-12, atol=0.0)
    assert found.forest.num_edges <= whole.num_edges
    assert found.forest.log_partition() <= whole.log_partition() + 1e-12
    # Whatever weighs more than the bound is in it.
    heavy = [t.log_weight for t in whole.kbest(200) if t.log_weight > found.bound + 1e-9]
    same = [t.log_weight for t in found.forest.kbest(200)][: len(heavy)]
    assert_close(same, heavy, rtol=1e-12, atol=0.0)


def test_a_heuristic_saves_most_of_the_work():
    """Symbols in five copies: rules that mix copies weigh less. The coarser grammar has one."""
    rng = np.random.default_rng(0)
    coarse = {("S", y, z): -float(rng.exponential(2.0)) for y in "SA" for z in "SA"}
    coarse |= {("A", y, z): -float(rng.exponential(2.0)) for y in "SA" for z in "SA"}
    words = {(x, w): -float(rng.exponential(2.0)) for x in "SA" for w in "ab"}
    copies = range(5)
    rules = {
        (f"{x}{i}", f"{y}{j}", f"{z}{k}"): weight - 2.0 * (abs(i - j) + abs(i - k)) - 0.1 * i
        for (x, y, z), weight in coarse.items()
        for i in copies
        for j in copies
        for k in copies
    }
    rules |= {(f"{x}{i}", w): weight for (x, w), weight in words.items() for i in copies}
    program = Program(CKY.text.replace('"S"', '"S0"'))
    n = 12
    facts = {"rule": rules, "word": [("ab"[i % 2], i, i + 1) for i in range(n)], "length": [(n,)]}

    def merged(item: Item) -> Item:
        names = (x[0] if isinstance(x, str) else x for x in item.arguments)
        return Item(item.relation, tuple(names))

    heuristic = outside_bounds(CKY.ground(coarser(facts, merged)), merged)
    whole, informed = program.ground(facts), program.search(facts, heuristic=heuristic)
    assert informed.finished
    assert informed.forest.argmax().log_weight == pytest.approx(whole.argmax().log_weight)
    assert informed.forest.num_edges < 0.1 * whole.num_edges


@pytest.mark.parametrize("seed", seeds(6))
def test_early_stopping_gives_a_lower_bound_of_the_mass_and_its_gradient(seed):
    facts = problem(seed, size=4)
    rules = list(facts["rule"])
    weights = torch.tensor([*facts["rule"].values()], dtype=torch.float64, requires_grad=True)
    facts["rule"] = Facts(rules, weights)
    whole, masses = CKY.ground(facts).log_partition().item(), []
    for most in (0, 16, 20, 30, 10_000):
        found = CKY.search(facts, k=10**6, max_items=most)
        masses.append(found.forest.log_partition().item())
        if masses[-1] > -np.inf:
            (gradient,) = torch.autograd.grad(found.forest.log_partition(), weights)
            assert_close(gradient, found.forest.expected_counts("rule"), rtol=1e-12, atol=1e-12)
    assert masses == sorted(masses)
    assert not CKY.search(facts, k=10**6, max_items=16).finished
    assert masses[-1] == pytest.approx(whole, rel=1e-12)
    assert found.finished
    assert found.bound == -np.inf


def test_without_a_derivation():
    found = CKY.search(problem(0) | {"length": [(99,)]})
    assert found.finished
    assert found.bound == -np.inf
    assert found.forest.argmax() is None


def test_conditions_see_all_that_is_derived():
    """A cheap derivation needs to know of an item that is itself expensive."""
    program = Program("goal += cheap * ?dear. goal += fair. dear += a(X) * b(X).")
    facts = {"cheap": {(): -0.5}, "fair": {(): -1.0}, "a": {1: -5.0}, "b": {1: -7.0}}
    found = program.search(facts)
    assert found.forest.argmax().log_weight == program.ground(facts).argmax().log_weight == -0.5


@pytest.mark.parametrize("seed", seeds(5))
def test_a_deep_derivation_that_improves_a_value_late(seed):
    """Items are taken in batches: values found first may have to be corrected."""
    rng = np.random.default_rng(seed)
    program = Program(
        "goal += reach(N) * last(N). reach(0) += start. reach(J) += reach(I) * arc(I,J)."
    )
    n = 60
    arcs = {
        (i, j): -float(rng.exponential((j - i) ** 1.5)) for i in range(n) for j in range(i + 1, n)
    }
    facts = {"arc": arcs, "start": {(): 0.0}, "last": [(n - 1,)]}
    for k in (1, 7):
        found, whole = program.search(facts, k), program.ground(facts)
        expected = [tree.log_weight for tree in whole.kbest(k)]
        assert_close([t.log_weight for t in found.forest.kbest(k)], expected, rtol=1e-12, atol=0.0)


def test_bad_arguments():
    facts = problem(0)
    with pytest.raises(ArgumentError, match="weights of at most 1"):
        CKY.search(facts | {"rule": {("S", "a"): 0.1}})
    with pytest.raises(ArgumentError, match="k"):
        CKY.search(facts, 0)
    with pytest.raises(ArgumentError, match="goal"):
        Program("p(X) += f(X).", goal="p").search({"f": [(1,)]})
