"""Prescher (2001): lemmas and theorem of the paper, on grammars in Chomsky normal form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch

from inout import ArgumentError, Grammar, Parser, em
from inout.grammars import Rule, Terminal
from inout.learning import auxiliary, expected_counts, maximum_likelihood, tree_counts
from tests.oracle.lari_young import categories, counts, inside, lari_young_step, outside
from tests.seeds import seeds
from tests.support import assert_close

CORPUS = [list(words) for words in ("aba", "b", "bbaa", "ca", "abab")]
FREQUENCIES = [2.0, 1.0, 0.5, 3.0, 1.5]  # c is no word: that sentence has no tree


def random_grammar(seed: int) -> Grammar:
    """Three categories, all rules over them and two words; some are impossible."""
    generator = np.random.default_rng(seed)
    names = ["S", "A", "B"]
    rules = [Rule(a, (b, c)) for a in names for b in names for c in names]
    rules += [Rule(a, (Terminal(word),)) for a in names for word in "ab"]
    weights = generator.exponential(size=len(rules)) * (generator.random(len(rules)) > 0.2)
    weights[-6] = 1.0  # S -> a: some sentence has a tree
    totals = Counter()
    for rule, weight in zip(rules, weights, strict=True):
        totals[rule.lhs] += weight
    with np.errstate(divide="ignore"):
        logs = np.log([w / totals[r.lhs] for r, w in zip(rules, weights, strict=True)])
    return Grammar("S", rules, logs)


def probabilities(grammar: Grammar) -> dict[tuple[str, ...], float]:
    """The rules as the transcription has them."""
    rules = [
        (r.lhs, *(x.text if isinstance(x, Terminal) else x for x in r.rhs)) for r in grammar.rules
    ]
    return dict(zip(rules, grammar.log_weights.exp().tolist(), strict=True))


Used = tuple[float, Counter[tuple[str, ...]]]


def all_trees(
    p: Mapping[tuple[str, ...], float], words: list[str], i: int, j: int, category: str
) -> Iterator[Used]:
    """p(x) and f_r(x) of every syntax tree x."""
    for rule, probability in p.items():
        if rule[0] != category or probability == 0:
            continue
        if len(rule) == 2:
            if words[i:j] == [rule[1]]:
                yield probability, Counter([rule])
            continue
        for k in range(i + 1, j):
            for left, used in all_trees(p, words, i, k, rule[1]):
                for right, more in all_trees(p, words, k, j, rule[2]):
                    yield probability * left * right, Counter([rule]) + used + more


@pytest.mark.parametrize("seed", seeds(6))
def test_inside_and_outside_probabilities(seed: int):
    grammar = random_grammar(seed)
    p, parser = probabilities(grammar), Parser(grammar)
    for words in CORPUS:
        e = inside(p, words)
        total = e[1, len(words), "S"]
        assert_close(parser.log_partition(words).exp(), total)
        if total == 0:
            continue
        f = outside(p, e, len(words), "S")
        found = parser.marginals(words)
        places = {name: place for place, name in enumerate(found.labels)}
        for (s, t, category), value in e.items():
            expected = value * f[s, t, category] / total
            if category in places:
                actual = found.constituent_counts[s - 1, t, places[category]]
                assert_close(actual, expected)
            else:
                assert expected == 0


@pytest.mark.parametrize("seed", seeds(6))
def test_lemma_1_category_counts_are_the_sums_of_their_rules_counts(seed: int):
    grammar = random_grammar(seed)
    p, parser = probabilities(grammar), Parser(grammar)
    for words in CORPUS:
        _, of_rules, of_categories = counts(p, words, "S")
        for category, count in of_categories.items():
            assert sum(n for r, n in of_rules.items() if r[0] == category) == pytest.approx(count)
        expected = [of_categories[name] for name in grammar.nonterminals]
        assert_close(parser.category_counts(words), expected)
        marginals = parser.marginals(words)
        summed = dict(
            zip(marginals.labels, marginals.constituent_counts.sum((0, 1)).tolist(), strict=True)
        )
        assert_close([summed.get(name, 0.0) for name in grammar.nonterminals], expected)


@pytest.mark.parametrize("seed", seeds(6))
def test_lemma_2_rule_counts_are_expected_frequencies(seed: int):
    grammar = random_grammar(seed)
    p = probabilities(grammar)
    totals = np.zeros(len(p))
    for words, often in zip(CORPUS, FREQUENCIES, strict=True):
        _, of_rules, _ = counts(p, words, "S")
        trees = list(all_trees(p, words, 0, len(words), "S"))
        z = sum(weight for weight, _ in trees) or 1.0
        expected = [sum(w * used[rule] for w, used in trees) / z for rule in p]
        assert_close(list(of_rules.values()), expected)
        assert_close(Parser(grammar).expected_counts(words), expected)
        totals += often * np.array(expected)
    assert_close(expected_counts(grammar, CORPUS, frequencies=FREQUENCIES), totals)


@pytest.mark.parametrize("seed", seeds(6))
def test_theorem_parts_i_and_iii_every_iteration_is_one_of_lari_and_young(seed: int):
    grammar = random_grammar(seed)
    thetas, likelihoods = [], []
    result = em(
        grammar,
        CORPUS,
        frequencies=FREQUENCIES,
        tolerance=0.0,
        max_iterations=4,
        progress=lambda p: (thetas.append(p.log_weights), likelihoods.append(p.log_likelihood)),
    )
    assert len(thetas) == result.iterations + 1 == len(likelihoods)
    assert torch.equal(thetas[-1], result.model.log_weights)
    p = probabilities(grammar)
    for theta, likelihood in zip(thetas, likelihoods, strict=True):
        assert_close(theta.exp(), list(p.values()))
        p, expected = lari_young_step(p, CORPUS, "S", FREQUENCIES)
        assert likelihood == pytest.approx(expected, rel=1e-12)
    assert sorted(likelihoods) == likelihoods


def test_parameters_are_told_for_every_starting_point_and_are_copies():
    grammar, told = random_grammar(1), []

    def note(progress):
        told.append((progress.run, progress.iteration, progress.log_weights.clone()))
        progress.log_weights.fill_(0.0)  # changes nothing

    generator = torch.Generator().manual_seed(0)
    result = em(grammar, CORPUS, restarts=2, generator=generator, max_iterations=3, progress=note)
    plain = em(
        grammar, CORPUS, restarts=2, generator=torch.Generator().manual_seed(0), max_iterations=3
    )
    assert torch.equal(result.model.log_weights, plain.model.log_weights)
    steps = [(run, step) for run, r in enumerate(result.runs) for step in range(r.iterations + 1)]
    assert [(run, step) for run, step, _ in told] == steps
    for _, _, theta in told:
        assert_close(np.bincount(grammar.distributions, theta.exp().numpy()), np.ones(3))


def enumerated_q(
    p: Mapping[tuple[str, ...], float], other: Mapping[tuple[str, ...], float]
) -> float:
    """Σ p̃(y) Σ p(x|y) log p'(x)."""
    total = 0.0
    for words, often in zip(CORPUS, FREQUENCIES, strict=True):
        trees = list(all_trees(p, words, 0, len(words), "S"))
        z = sum(weight for weight, _ in trees)
        for weight, used in trees:
            logs = [
                times * (math.log(other[rule]) if other[rule] else -math.inf)
                for rule, times in used.items()
            ]
            total += often * weight / z * sum(logs)
    return total


@pytest.mark.parametrize("seed", seeds(4))
def test_q_is_the_likelihood_of_all_trees_and_the_m_step_maximises_it(seed: int):
    grammar, other = random_grammar(seed), random_grammar(seed + 100)
    q = auxiliary(grammar, other, CORPUS, frequencies=FREQUENCIES)
    assert_close(q, enumerated_q(probabilities(grammar), probabilities(other)))
    uses = expected_counts(grammar, CORPUS, frequencies=FREQUENCIES)
    best = maximum_likelihood(grammar, uses)
    step = em(grammar, CORPUS, frequencies=FREQUENCIES, max_iterations=1, tolerance=0.0)
    assert_close(best.log_weights.exp(), step.model.log_weights.exp())
    highest = auxiliary(grammar, best, CORPUS, frequencies=FREQUENCIES)
    generator = np.random.default_rng(seed)
    own = best.log_weights.exp().numpy()
    for size in (1e-6, 1e-3, 0.3, 1.0):  # nowhere near it is higher, nor far from it
        mixed = (1 - size) * own + size * generator.exponential(size=len(own))
        sums = np.bincount(grammar.distributions, mixed)
        moved = np.log(mixed / sums[grammar.distributions])
        assert auxiliary(grammar, moved, CORPUS, frequencies=FREQUENCIES) < highest
    # What Q gains the likelihood gains at least.
    before = auxiliary(grammar, grammar, CORPUS, frequencies=FREQUENCIES)
    gained = step.log_likelihoods[1] - step.log_likelihoods[0]
    assert gained >= float(highest - before) - 1e-12


def test_the_gradient_of_q_at_theta_is_that_of_the_likelihood():
    grammar = random_grammar(2)
    theta = grammar.log_weights.clone().requires_grad_()
    auxiliary(grammar, theta, CORPUS).backward()
    likelihood = grammar.likelihood(CORPUS[:3])
    again = grammar.log_weights.clone().requires_grad_()
    likelihood(again).sum().backward()
    whole = grammar.likelihood([CORPUS[4]])
    whole(again).sum().backward()  # CORPUS[3] has no tree
    assert_close(theta.grad, again.grad.nan_to_num())


@pytest.mark.parametrize("seed", seeds(4))
def test_figure_4_a_step_of_em_is_the_estimate_of_the_current_corpus(seed: int):
    grammar = random_grammar(seed)
    parser, trees, shares = Parser(grammar), [], []
    corpus = [list(words) for words in ("aba", "b", "ca", "ab")]
    for words, often in zip(corpus, FREQUENCIES[:4], strict=True):
        for parse in parser.kbest(words, 10_000):  # all trees
            trees.append(parse.plain_tree)
            shares.append(often * math.exp(parse.log_prob))
    found = tree_counts(grammar, trees, frequencies=shares)
    assert_close(found, expected_counts(grammar, corpus, frequencies=FREQUENCIES[:4]))
    step = em(grammar, corpus, frequencies=FREQUENCIES[:4], max_iterations=1, tolerance=0.0)
    estimate = maximum_likelihood(grammar, found)
    assert_close(estimate.log_weights.exp(), step.model.log_weights.exp())


def test_an_estimate_revives_zeros_keeps_what_is_unused_and_refuses_what_is_wrong():
    grammar = Grammar.from_text("S -> A [1.0] | 'b' [1e-300]\nA -> A A [0.3] | 'UNK' [0.7]")
    zero = grammar.with_log_weights([0.0, -math.inf, math.log(0.3), math.log(0.7)])
    assert_close(
        maximum_likelihood(zero, [1.0, 3.0, 0, 0]).log_weights.exp(), [0.25, 0.75, 0.3, 0.7]
    )
    parse = Parser(grammar).parse(["walks"])
    assert_close(tree_counts(grammar, [parse.tree, parse.plain_tree], frequencies=[1, 0.5]),
                 [1.5, 0, 0, 1.5])  # fmt: skip
    assert auxiliary(grammar, zero, [["b"]]) == -math.inf
    assert auxiliary(zero, grammar, [["b"]]) == 0  # no analysis
    with pytest.raises(ArgumentError, match="counts must be finite"):
        maximum_likelihood(grammar, [1.0, -1.0, 0, 0])
    with pytest.raises(ArgumentError, match="trees must be derived by the grammar"):
        tree_counts(grammar, [parse.tree[0]])
    with pytest.raises(ArgumentError, match="other"):
        auxiliary(grammar, [0.0], [["b"]])


@pytest.mark.parametrize("seed", seeds(4))
def test_theorem_part_ii_limits_are_stationary(seed: int):
    """Along the simplex the likelihood of all trees has no slope where EM ends."""
    text = "S -> A B | B S | 'a'\nA -> A A | 'a' | 'b'\nB -> S A | 'b' | 'a'"
    generator = torch.Generator().manual_seed(seed)
    grammar = Grammar.from_text(text)
    drawn = torch.empty(len(grammar), dtype=torch.float64).exponential_(generator=generator)
    corpus = [list(words) for words in ("ab", "aba", "ba", "a", "bb", "baab")]
    start = grammar.with_log_weights(drawn.log())
    result = em(start, corpus, tolerance=0.0, max_iterations=2000)
    p = probabilities(result.model)
    again = em(result.model, corpus, tolerance=0.0, max_iterations=1)
    assert_close(again.model.log_weights.exp(), list(p.values()), atol=1e-7)

    def log_likelihood(values: Mapping[tuple[str, ...], float]) -> float:
        sums = [inside(values, words)[1, len(words), "S"] for words in corpus]
        return sum(map(math.log, sums))

    small = 1e-4
    assert log_likelihood(p) == pytest.approx(result.log_likelihood, rel=1e-10)
    for category in categories(p):
        support = [rule for rule in p if rule[0] == category and p[rule] > 0.01]
        for one in support[1:]:  # move mass from the first rule to another, and back
            moved = [
                log_likelihood({**p, one: p[one] + d, support[0]: p[support[0]] - d})
                for d in (small, -small)
            ]
            assert abs(moved[0] - moved[1]) / (2 * small) < 1e-5
            assert max(moved) < log_likelihood(p)  # here, a maximum


def total_probability(p: Mapping[tuple[str, ...], float]) -> float:
    """Σ p(y) over all sentences: the least fixed point, by iterating from 0."""
    z = dict.fromkeys(categories(p), 0.0)
    for _ in range(20_000):
        new = dict.fromkeys(z, 0.0)
        for rule, probability in p.items():
            new[rule[0]] += probability * (z[rule[1]] * z[rule[2]] if len(rule) == 3 else 1.0)
        z = new
    return z["S"]


@pytest.mark.parametrize("seed", seeds(5))
def test_grammars_of_em_are_consistent(seed: int):
    """Chi (1999): after any step of EM, whatever it starts from; Booth & Thompson's condition."""
    grammar = random_grammar(seed)
    binary = [len(rule.rhs) == 2 for rule in grammar.rules]
    heavy = np.where(binary, 5.0, 0.0) + grammar.numpy_log_weights  # trees that never end
    start = em(grammar.with_log_weights(heavy), CORPUS, max_iterations=0).model
    assert total_probability(probabilities(start)) < 0.9
    thetas: list[torch.Tensor] = []
    em(
        start,
        CORPUS,
        max_iterations=5,
        tolerance=0,
        progress=lambda p: thetas.append(p.log_weights),
    )
    for theta in thetas[1:]:
        p = probabilities(grammar.with_log_weights(theta))
        assert total_probability(p) == pytest.approx(1.0, abs=1e-9)
        used = reached(p)
        matrix = np.zeros((len(used), len(used)))
        for rule, probability in p.items():
            for child in rule[1:] if len(rule) == 3 and rule[0] in used and probability else ():
                matrix[used.index(rule[0]), used.index(child)] += probability
        assert np.abs(np.linalg.eigvals(matrix)).max() < 1


def reached(p: Mapping[tuple[str, ...], float]) -> list[str]:
    """The categories of trees of S."""
    found = ["S"]
    for category in found:
        for rule, probability in p.items():
            if rule[0] == category and len(rule) == 3 and probability:
                found += [child for child in rule[1:] if child not in found]
    return found
