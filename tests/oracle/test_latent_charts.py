"""Charts and trees of latent-variable grammars against all trees and the figures of the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import inout
from inout.kernels.latent.op import BlockPasses
from inout.latent.graphs import Chart, block_rules, chart_of_sentence, graph_of_trees
from inout.latent.layout import Layout
from inout.latent.skeleton import Skeleton
from inout.latent.trees import SkeletalTrees
from tests.oracle.latent_cases import (
    Case,
    Sums,
    as_float,
    derivations,
    enumerate_sums,
    figure_2,
    figure_3,
    figure_4,
    figure_5,
    log_of,
    nltk_tree,
    nodes,
    random_case,
    trees,
    weight,
)
from tests.seeds import seeds
from tests.support import assert_close

SENTENCES = ["x", "xy", "yyx", "xyx"]
KINDS: list[dict[str, Any]] = [
    {},
    {"negative": True},
    {"zeros": 0.4},
    {"zeros": 0.3, "negative": True},
    {"spread": 200.0},
    {"spread": 200.0, "negative": True},
    {"spread": 200.0, "zeros": 0.4},
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind) or "plain")


def passes_of(case: Case, words: Sequence[str], allowed: Any = None) -> tuple[Chart, BlockPasses]:
    chart = chart_of_sentence(case.layout, case.numbers(words), allowed)
    return chart, BlockPasses(block_rules(case.layout), chart.graph, case.parameters)


def check_partition(passes: BlockPasses, expected: Sequence[Fraction]) -> None:
    mantissas, powers = passes.partitions
    assert np.sign(mantissas).tolist() == [(x > 0) - (x < 0) for x in expected]
    logs = [log_of(x) for x in expected]
    assert_close(passes.log_partitions, logs)
    some = mantissas != 0
    assert_close(np.log(abs(mantissas[some])) + powers[some] * math.log(2), np.array(logs)[some])


def check_close(found: Any, given: Sequence[float]) -> None:
    """Sums of terms of both signs lose digits, and derivatives may be out of range."""
    expected = np.asarray(given, np.float64)
    in_range = (abs(expected) < 1e290) & (abs(expected) > 1e-290)
    assert np.isfinite(found[in_range]).all()
    assert not np.isnan(found).any()
    assert_close(found[in_range], expected[in_range], rtol=1e-8, atol=1e-9)
    assert (abs(found[abs(expected) <= 1e-290]) < 1e-9).all()
    assert (abs(found[abs(expected) >= 1e290]) > 1e280).all()


def check_chart(case: Case, chart: Chart, passes: BlockPasses, sums: Sums) -> None:
    graph, names = chart.graph, case.layout.skeleton.nonterminals
    check_partition(passes, [sums.total])
    total = sums.total or Fraction(1)
    places = [
        (names[a], i, j)
        for a, (i, j) in zip(graph.symbols.tolist(), chart.spans.tolist(), strict=True)
    ]
    assert len(set(places)) == len(places)
    assert set(sums.items) <= set(places)
    nothing = sums.total == 0
    items = [Fraction(0) if nothing else sums.items.get(x, Fraction(0)) / total for x in places]
    check_close(passes.expected_items, [as_float(x) for x in items])
    edges, rows = [], []
    for g, head in enumerate(graph.heads.tolist()):
        for e in range(graph.ends[g], graph.ends[g + 1]):
            left, right = places[graph.lefts[e]], places[graph.rights[e]]
            above = places[head]
            assert left[2] == right[1]
            assert (above[1], above[2]) == (left[1], right[2])
            rows.append((above[0], left[0], right[0], above[1], right[1], above[2]))
            mass = Fraction(0) if nothing else sums.edges.get(rows[-1], Fraction(0)) / total
            edges.append(as_float(mass))
    assert len(set(rows)) == len(rows)
    assert set(sums.edges) <= set(rows)
    check_close(passes.expected_edges, edges)
    found = np.zeros(case.layout.size)
    passes.add_gradient(np.array([0.75]), found)
    gradient = [
        Fraction(0) if nothing else Fraction(3, 4) * sums.gradient.get(key, Fraction(0)) / total
        for key in case.keys
    ]
    check_close(found, [as_float(x) for x in gradient])


@kinds
@pytest.mark.parametrize("seed", seeds(6))
def test_agrees_with_all_trees_and_latent_values(seed: int, kind: dict[str, Any]) -> None:
    case = random_case(seed, symbols=2, largest=2, **kind)
    for words in SENTENCES:
        chart, passes = passes_of(case, words)
        check_chart(case, chart, passes, enumerate_sums(case, trees(case, words)))


@kinds
@pytest.mark.parametrize("seed", seeds(10, 14))
def test_agrees_with_the_figures(seed: int, kind: dict[str, Any]) -> None:
    case = random_case(seed, **kind)
    for words in ["x", "yx", "xyx", "xyyx"][: 3 if "spread" in kind else 4]:
        marginals = figure_3(case, words)
        assert marginals == figure_5(case, words)
        total = sum((x for (_, i, j), x in marginals.items() if j - i == len(words)), Fraction(0))
        chart, passes = passes_of(case, words)
        check_partition(passes, [total])
        if total == 0:
            assert not passes.expected_items.any()
            continue
        names, found = case.layout.skeleton.nonterminals, {}
        rows = zip(chart.graph.symbols, chart.spans.tolist(), passes.expected_items, strict=True)
        for a, (i, j), value in rows:
            found[names[a], i, j] = value
        missing = {place for place, x in marginals.items() if x != 0} - set(found)
        assert not missing
        check_close(np.array(list(found.values())), [as_float(marginals[x] / total) for x in found])


@kinds
@pytest.mark.parametrize("seed", seeds(4))
def test_probabilities_of_trees(seed: int, kind: dict[str, Any]) -> None:
    case = random_case(seed, symbols=2, largest=2, **kind)
    found = [tree for words in SENTENCES for tree in trees(case, words)][:60]
    exact = [figure_2(case, tree) for tree in found]
    assert exact == [figure_4(case, tree) for tree in found]
    assert exact == [
        sum((weight(case, keys) for keys in derivations(case, tree)), Fraction(0)) for tree in found
    ]
    made = SkeletalTrees.of([nltk_tree(tree) for tree in found], case.layout.skeleton)
    graph = graph_of_trees(case.layout, made)
    passes = BlockPasses(block_rules(case.layout), graph, case.parameters)
    check_partition(passes, exact)
    here = np.array([x != 0 for x in exact])
    assert_close(passes.expected_items, here[made.trees].astype(float), rtol=1e-8)
    weights = np.linspace(0.5, 2.0, len(found))  # infinite derivatives may not cancel
    gradient = np.zeros(case.layout.size)
    passes.add_gradient(weights, gradient)
    expected = [Fraction(0)] * len(case.keys)
    for tree, own, factor in zip(found, exact, weights.tolist(), strict=True):
        sums = enumerate_sums(case, [tree])
        for x, key in enumerate(case.keys):
            if own != 0:
                expected[x] += Fraction(factor) * sums.gradient.get(key, Fraction(0)) / own
    check_close(gradient, [as_float(x) for x in expected])


@kinds
@pytest.mark.parametrize("seed", seeds(20, 24))
def test_a_mask_leaves_the_smaller_set_of_trees(seed: int, kind: dict[str, Any]) -> None:
    case = random_case(seed, symbols=2, largest=2, **kind)
    rng = np.random.default_rng(seed)
    numbers = case.layout.skeleton.nonterminal_numbers
    for words in ["x", "yyx", "xyx"]:
        n = len(words)
        allowed = rng.random((n, n + 1, len(numbers))) < 0.7
        left = [
            tree
            for tree in trees(case, words)
            if all(allowed[node[1], node[2], numbers[node[0]]] for node in nodes(tree))
        ]
        chart, passes = passes_of(case, words, allowed)
        for a, (i, j) in zip(chart.graph.symbols, chart.spans, strict=True):
            assert allowed[i, j, a]
        check_chart(case, chart, passes, enumerate_sums(case, left))


def test_everything_allowed_is_no_mask() -> None:
    case = random_case(3)
    words = "xyxxy"
    chart, passes = passes_of(case, words)
    other, same = passes_of(case, words, np.ones((5, 6, len(case.sizes)), np.bool_))
    for name in ("symbols", "heads", "rules", "ends", "lefts", "rights", "roots"):
        assert getattr(chart.graph, name).tolist() == getattr(other.graph, name).tolist()
    assert passes.expected_items.tolist() == same.expected_items.tolist()


@pytest.mark.parametrize("words", ["q", "xqx", "qx", "xq"])
def test_a_sentence_with_an_unknown_word_has_no_tree(words: str) -> None:
    case = random_case(0)
    _, passes = passes_of(case, words)
    assert passes.log_partitions.tolist() == [-math.inf]
    assert not passes.expected_items.any()
    found = np.zeros(case.layout.size)
    passes.add_gradient(np.ones(1), found)
    assert not found.any()


def test_an_empty_sentence_has_no_tree() -> None:
    _, passes = passes_of(random_case(0), "")
    assert passes.log_partitions.tolist() == [-math.inf]
    assert len(passes.expected_items) == 0


def one_symbol(root: Sequence[float], words: Mapping[str, Sequence[float]], block: Any) -> Case:
    m = len(root)
    return Case(
        {"A": m},
        {("A", h): root[h] for h in range(m)},
        {("A", x, h): row[h] for x, row in words.items() for h in range(m)},
        {("A", "A", "A", *hs): float(block[hs]) for hs in np.ndindex(m, m, m)},
    )


def copying(m: int) -> Any:
    """Children with the latent value of their parent."""
    block = np.zeros((m, m, m))
    block[range(m), range(m), range(m)] = 1.0
    return block


@pytest.mark.parametrize("n", [2, 3, 5, 12])
@pytest.mark.parametrize("tiny", [1e-100, 1e-300, 5e-324])
def test_an_entry_far_below_the_others_counts_where_these_are_dropped(n: int, tiny: float) -> None:
    # The value 1 is tinyⁿ times less likely than 0, but only 1 may be at the root.
    case = one_symbol([0.0, 1.0], {"x": [1.0, tiny]}, copying(2))
    _, passes = passes_of(case, "x" * n)
    catalan = math.comb(2 * n - 2, n - 1) // n
    check_partition(passes, [catalan * Fraction(tiny) ** n])
    assert_close(passes.expected_items[:n], np.ones(n))
    found = np.zeros(case.layout.size)
    passes.add_gradient(np.ones(1), found)
    assert_close(found[1], 1.0)
    assert_close(found[3] * tiny if tiny > 1e-307 else n, n)


def test_a_loss_shows_although_something_is_left() -> None:
    # Over x x: 1, 1e-400 and 1e-290. Then the first is dropped, and the third becomes much less
    # than the second is: alone it would look like an answer.
    words = {"x": [1.0, 1e-200, 1e-145], "y": [0.0, 1.0, 1.0], "z": [1.0, 1.0, 1e-200]}
    case = one_symbol([1.0, 1.0, 1.0], words, copying(3))
    tree: Any = ("A", 0, 2, ("A", 0, 1, "x"), ("A", 1, 2, "x"))
    for i, word in enumerate("yz", 2):
        tree = ("A", 0, i + 1, tree, ("A", i, i + 1, word))
    made = SkeletalTrees.of([nltk_tree(tree)], case.layout.skeleton)
    graph = graph_of_trees(case.layout, made)
    passes = BlockPasses(block_rules(case.layout), graph, case.parameters)
    assert passes.is_wide.all()
    check_partition(passes, [figure_2(case, tree)])
    found = np.zeros(case.layout.size)
    passes.add_gradient(np.ones(1), found)
    sums = enumerate_sums(case, [tree])
    check_close(found, [as_float(sums.gradient[key] / sums.total) for key in case.keys])


def test_the_halves_of_a_sentence_want_different_values() -> None:
    n = 10
    words = {"x": [1.0, 1e-80], "y": [1e-80, 1.0]}
    case = one_symbol([1.0, 3.0], words, copying(2))
    made = SkeletalTrees.of([balanced("x" * n + "y" * n)], case.layout.skeleton)
    graph = graph_of_trees(case.layout, made)
    passes = BlockPasses(block_rules(case.layout), graph, case.parameters)
    check_partition(passes, [4 * Fraction(1e-80) ** n])
    assert_close(passes.expected_items, np.ones(len(made.labels)))
    found = np.zeros(case.layout.size)
    passes.add_gradient(np.ones(1), found)
    assert_close(found[:2], [0.25, 0.25])


def test_entries_far_apart_need_no_help_where_the_large_ones_count() -> None:
    case = one_symbol([1.0, 1.0], {"x": [1.0, 1e-300]}, copying(2))
    _, passes = passes_of(case, "xxxxxxxx")
    check_partition(passes, [Fraction(429) * (1 + Fraction(1e-300) ** 8)])
    assert not passes.is_wide.any()


def test_only_trees_that_need_it_are_taken_apart() -> None:
    case = one_symbol([0.0, 1.0], {"x": [1.0, 1e-200], "y": [0.5, 0.25]}, copying(2))
    words = ["yyy", "xxxxx", "y", "xyxx", "yyyy"]
    made = SkeletalTrees.of([balanced(x) for x in words], case.layout.skeleton)
    graph = graph_of_trees(case.layout, made)
    passes = BlockPasses(block_rules(case.layout), graph, case.parameters)
    powers = {"x": Fraction(1e-200), "y": Fraction(1, 4)}
    check_partition(
        passes, [math.prod((powers[x] for x in word), start=Fraction(1)) for word in words]
    )
    assert passes.is_wide.tolist() == [False, True, False, True, False]
    assert_close(passes.expected_items, np.ones(len(made.labels)))
    assert_close(passes.expected_edges, np.ones(len(graph.lefts)))
    weights, found = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.zeros(case.layout.size)
    passes.add_gradient(weights, found)
    places = {key: x for x, key in enumerate(case.keys)}
    assert_close(found[places["A", 1]], weights.sum())
    assert_close(found[places["A", "y", 1]] / 4, 3.0 + 3 + 4 + 20)
    assert_close(found[places["A", "x", 1]] * 1e-200, 10.0 + 12)
    assert_close(found[places["A", "A", "A", 1, 1, 1]], 2.0 + 8 + 12 + 15)


def test_a_zero_that_is_none() -> None:
    # Z = 1e-400 · (1e+250)², where each vector has entries that are farther apart than floats go.
    block = np.zeros((2, 2, 2))
    block[1, 1, 1] = 1e-150
    case = one_symbol([0.0, 1e-250], {"x": [1e250, 1e-250]}, block)
    _, passes = passes_of(case, "xx")
    check_partition(passes, [Fraction(1e-250) ** 3 * Fraction(1e-150)])


def balanced(words: str) -> Any:
    def build(i: int, j: int) -> Any:
        if j == i + 1:
            return ("A", i, j, words[i])
        k = (i + j) // 2
        return ("A", i, j, build(i, k), build(k, j))

    return nltk_tree(build(0, len(words)))


@pytest.mark.parametrize("size", [1e-310, 1e-300, 1e-200, 1e200, 1e300, 1.7e308])
@pytest.mark.parametrize("m", [1, 3])
def test_parameters_of_any_size(size: float, m: int) -> None:
    rng = np.random.default_rng(m)
    plain = one_symbol(rng.random(m).tolist(), {"x": rng.random(m).tolist()}, rng.random((m, m, m)))
    scaled = one_symbol(*(_times(size, part) for part in _parts(plain, m)))
    _, passes = passes_of(scaled, "xxxxxx")
    total = figure_3(scaled, "xxxxxx")["A", 0, 6]
    check_partition(passes, [total])
    _, same = passes_of(plain, "xxxxxx")
    rtol = 1e-10 if size > 1e-307 else 1e-2  # denormal parameters have few digits themselves
    assert_close(passes.expected_items, same.expected_items, rtol=rtol)
    assert not passes.is_wide.any()


def _parts(case: Case, m: int) -> tuple[Any, Any, Any]:
    block = np.reshape(list(case.blocks.values()), (m, m, m))
    return list(case.root.values()), {"x": list(case.lexical.values())}, block


def _times(size: float, part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _times(size, row) for key, row in part.items()}
    return (size * np.asarray(part)).tolist() if isinstance(part, list) else size * part


def test_a_long_sentence_with_one_latent_value_is_that_of_the_parser() -> None:
    rules = "A -> A A [0.2] | A B [0.1] | 'x' [0.3] | 'y' [0.4]\nB -> B A [0.5] | 'y' [0.5]"
    grammar = inout.Grammar.from_text(rules)
    case = Case(
        {"A": 1, "B": 1},
        {("A", 0): 1.0, ("B", 0): 0.0},
        {("A", "x", 0): 0.3, ("A", "y", 0): 0.4, ("B", "y", 0): 0.5},
        {
            ("A", "A", "A", 0, 0, 0): 0.2,
            ("A", "A", "B", 0, 0, 0): 0.1,
            ("B", "B", "A", 0, 0, 0): 0.5,
        },
    )
    words = ["xy"[x] for x in np.random.default_rng(1).integers(0, 2, 300)]
    _, passes = passes_of(case, words)
    assert passes.log_partitions[0] < -250
    assert_close(passes.log_partitions[0], float(inout.Parser(grammar).log_partition(words)))


@pytest.mark.parametrize("m", [1, 2])
def test_a_long_sentence_against_a_loop_with_logarithms(m: int) -> None:
    """Right-branching only: 300 words of 1e-200 each."""
    rng = np.random.default_rng(m)
    sizes = {"S": m, "T": m}
    case = Case(
        sizes,
        {(a, h): float(rng.random()) for a in sizes for h in range(m)},
        {("T", "x", h): float(rng.random()) * 1e-200 for h in range(m)}
        | {("S", "x", h): float(rng.random()) for h in range(m)},
        {("S", "T", "S", *hs): float(rng.random()) for hs in np.ndindex(m, m, m)},
    )
    vector, log = [case.lexical["S", "x", h] for h in range(m)], 0.0
    for _ in range(299):
        vector = [
            sum(
                case.blocks["S", "T", "S", i, j, k] * case.lexical["T", "x", j] * vector[k]
                for j in range(m)
                for k in range(m)
            )
            for i in range(m)
        ]
        log += math.log(max(vector))
        vector = [x / max(vector) for x in vector]
    log += math.log(sum(case.root["S", h] * vector[h] for h in range(m)))
    _, passes = passes_of(case, "x" * 300)
    assert_close(passes.log_partitions, [log])
    assert_close(passes.expected_items[passes.graph.roots], [1.0])


def test_a_negative_and_a_vanishing_sum() -> None:
    case = one_symbol([1.0], {"x": [1.0], "y": [-2.0]}, np.ones((1, 1, 1)))
    _, passes = passes_of(case, "xyx")
    check_partition(passes, [Fraction(-4)])
    assert_close(passes.expected_items[:3], np.ones(3))
    # Two trees over different symbols whose weights cancel.
    sizes = {"S": 1, "A": 1, "B": 1}
    case = Case(
        sizes,
        {("S", 0): 1.0, ("A", 0): 0.0, ("B", 0): 0.0},
        {("A", "x", 0): 1.0, ("B", "x", 0): 1.0},
        {("S", "A", "B", 0, 0, 0): 1.0, ("S", "B", "A", 0, 0, 0): -1.0},
    )
    _, passes = passes_of(case, "xx")
    check_partition(passes, [Fraction(0)])
    assert not passes.expected_items.any()
    found = np.zeros(case.layout.size)
    passes.add_gradient(np.ones(1), found)
    assert not found.any()


def test_a_dead_rule_of_large_weight_hides_nothing() -> None:
    # Both rules make S over the words. The left child of one has a large vector that its block
    # then drops, the other's are small: what is dropped must not set the scale.
    sizes = {"S": 1, "A": 2, "B": 1}
    case = Case(
        sizes,
        {("S", 0): 1.0, ("A", 0): 0.0, ("A", 1): 0.0, ("B", 0): 0.0},
        {("A", "x", 0): 1e300, ("A", "x", 1): 0.0, ("B", "x", 0): 1e-300},
        {("S", "A", "A", 0, *hs): float(hs == (1, 1)) for hs in np.ndindex(2, 2)}
        | {("S", "B", "B", 0, 0, 0): 1.0},
    )
    chart, passes = passes_of(case, "xx")
    check_partition(passes, [Fraction(1e-300) ** 2])
    by_place = dict(zip(chart.graph.symbols.tolist(), passes.expected_items, strict=True))
    assert_close(by_place[case.layout.skeleton.nonterminal_numbers["B"]], 1.0)


def test_what_is_zero_has_a_derivative() -> None:
    # A → x is zero, so the tree with A weighs nothing; more of A → x would change that.
    case = one_symbol([1.0], {"x": [0.0], "y": [2.0]}, np.full((1, 1, 1), 3.0))
    sizes = {**case.sizes, "B": 1}
    case = Case(
        sizes,
        {("A", 0): 1.0, ("B", 0): 1.0},
        {("A", "x", 0): 0.0, ("A", "y", 0): 2.0, ("B", "x", 0): 5.0},
        {("A", "A", "A", 0, 0, 0): 3.0, ("A", "B", "A", 0, 0, 0): 7.0},
    )
    chart, passes = passes_of(case, "xy")
    check_chart(case, chart, passes, enumerate_sums(case, trees(case, "xy")))


def test_layouts_and_skeletons_of_rules_in_any_order() -> None:
    skeleton = Skeleton.of([("B", "A", "B"), ("A", "B", "B")], [("C", "x"), ("A", "x")])
    layout = Layout(skeleton, [1, 2, 3])
    assert skeleton.nonterminals == ("B", "A", "C")
    assert layout.size == 6 + (2 + 3) + (1 * 2 * 1 + 2 * 1 * 1)
