"""Prefixes and surprisals against enumeration, an automaton iterated in plain arrays, and laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from inout import ArgumentError, Facts, Parser, programs
from inout.grammars import Grammar, Lattice, Terminal, library
from inout.grammars.diagnostics import log_partition_functions
from inout.kernels.sparse import prefix as op
from tests.oracle import grammar_cases as cases
from tests.seeds import examples, seeds
from tests.support import assert_close

INF = math.inf


def in_log_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op, "SPARSE_LOG_GROWTH", -1.0)


def all_prefixes(words: Sequence[str], longest: int) -> Iterator[list[str]]:
    for n in range(longest + 1):
        yield from map(list, itertools.product(words, repeat=n))


def probabilities(parser: Parser, words: list[str]) -> tuple[list[float], float]:
    """P(prefix) of 0 to n words and P(sentence), by the public methods."""
    begins = parser.prefix_log_probs(words)
    surprisals = parser.surprisals(words, end=True)
    assert_close(surprisals[:-1], parser.surprisals(words))
    # The surprisals are all there is to it.
    assert_close(-surprisals[:-1].cumsum(0), begins[1:])
    return begins.exp().tolist(), float((-surprisals.sum()).exp())


# Finite languages: all trees


def leaves(tree: object) -> tuple[str, ...]:
    if isinstance(tree, Terminal):
        return (tree.text,)
    assert isinstance(tree, tuple)
    return tuple(word for child in tree[1] for word in leaves(child))


FINITE = [
    "S -> A B [0.5] | 'a' [0.25] | B A 'b'\nA -> 'a' [0.5] | B B [0.5]\nB -> 'b' | 'a' [0.5]",
    "S -> A A A A [0.5] | [0.5]\nA -> 'a' [0.5] | [0.25] | B [0.25]\nB -> A2 'b' | \nA2 -> | 'a'",
    "S -> 'a' 'b' 'a' [3] | A 'b' [2] | A [4] | X [9]\nA -> 'a' | 'a' 'b' [0.5] | U A\nU -> U 'a'",
]


@pytest.mark.few(1)
@pytest.mark.parametrize("text", FINITE)
@pytest.mark.parametrize("logs", [False, True])
def test_finite_languages(text: str, logs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if logs:
        in_log_space(monkeypatch)
    grammar = Grammar.from_text(text)
    trees = list(cases.enumerate_trees(grammar, "S", 6, cases.weighted(grammar)))
    assert len(trees) == len(list(cases.enumerate_trees(grammar, "S", 7, cases.weighted(grammar))))
    language = [(weight, list(leaves(tree))) for weight, tree in trees]
    total = sum(weight for weight, _ in language)
    parser = Parser(grammar)
    for words in all_prefixes(["a", "b", "never"], 4):
        begins, sentence = probabilities(parser, words)
        for n, found in enumerate(begins):
            expected = sum(weight for weight, other in language if other[:n] == words[:n])
            assert_close(found, expected / total)
        assert_close(sentence, sum(weight for weight, other in language if other == words) / total)


# Any language: the grammar read by an automaton that stops caring after the prefix


def read_by_automaton(
    rules: list[tuple[str, tuple[object, ...], float]], words: list[str], rounds: int
) -> dict[str, np.ndarray] | None:
    """Weights of all trees of each symbol that lead from state to state: [n+2 n+2].

    State i < n reads word i alone, state n any word, n+1 all that come after. Plain iteration of
    the equations, None where it does not settle.
    """
    n = len(words)
    values: dict[object, np.ndarray] = {}
    for lhs, rhs, _ in rules:
        values[lhs] = np.zeros((n + 2, n + 2))
        for symbol in rhs:
            moves = np.zeros((n + 2, n + 2))
            moves[n, n + 1] = moves[n + 1, n + 1] = 1
            for i, word in enumerate(words):
                moves[i, i + 1] = float(symbol == Terminal(word))
            values[symbol] = moves if isinstance(symbol, Terminal) else np.zeros((n + 2, n + 2))
    for _ in range(rounds):
        new = {x: v if isinstance(x, Terminal) else np.zeros_like(v) for x, v in values.items()}
        for lhs, rhs, weight in rules:
            product = weight * np.eye(n + 2)
            for symbol in rhs:
                product = product @ values[symbol]
            new[lhs] += product
        if max(v.max() for v in new.values()) > 1e6:
            return None
        done = all((new[x] - values[x] <= 1e-15 * new[x]).all() for x in values)
        values = new
        if done:
            return {x: v for x, v in values.items() if isinstance(x, str)}
    return None


def check_by_automaton(grammar: Grammar, sentences: list[list[str]], rounds: int = 3000) -> bool:
    """Whether the sums have settled, so that something was checked."""
    rules, parser = cases.weighted(grammar), Parser(grammar)
    for words in sentences:
        values = read_by_automaton(rules, words, rounds)
        if values is None:
            return False
        n, table = len(words), values[grammar.start]
        total = table[n + 1, n + 1]
        begins, sentence = probabilities(parser, words)
        assert_close(sentence, table[0, n] / total, rtol=1e-9, atol=1e-13)
        assert_close(begins[-1], table[0, n:].sum() / total, rtol=1e-9, atol=1e-13)
    return True


SENTENCES = [[], ["b"], ["a"], ["b", "b"], ["a", "b", "S", "b"], ["b", "b", "b", "b"], ["b", "c"]]


@given(cases.rows_with_trees(0.5))
@settings(max_examples=examples(60))
def test_random_grammars(rows: list[cases.Row]) -> None:
    assume(check_by_automaton(cases.build(rows), SENTENCES, 400))


@given(cases.rows_with_trees(0.5))
@settings(max_examples=examples(30))
def test_random_grammars_in_log_space(rows: list[cases.Row]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        in_log_space(patch)
        assume(check_by_automaton(cases.build(rows), SENTENCES, 400))


INFINITE = [
    "S -> S S [0.3] | 'a' [0.4] | 'b' [0.3]",
    "S -> S S [0.6] | 'a' [0.3] | 'b' [0.1]",  # not all trees are finite
    "S -> S 'a' [0.6] | 'b' S S 'a' [0.1] | A [0.3]\nA -> B [0.5] | 'a' [0.5]\nB -> A | S [0.1]",
    "S -> A S A [0.25] | 'b' [0.5] | [0.25]\nA -> A B [0.5] | 'a' [0.5]\nB -> 'b' [0.5] | [0.5]",
    "S -> S [0.5] | A [0.5]\nA -> S S [0.2] | S A [0.1] | 'a' [0.4] | 'b' [0.3] | X\nX -> X 'b'",
    "S -> S S [0.04] | S S S [0.004] | 'a' [2.5] | 'b' [0.5] | [0.125]",  # no probabilities
]


@pytest.mark.few(5)
@pytest.mark.parametrize("text", INFINITE)
@pytest.mark.parametrize("logs", [False, True])
def test_infinite_languages(text: str, logs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if logs:
        in_log_space(monkeypatch)
    grammar = Grammar.from_text(text)
    sentences = [*all_prefixes(["a", "b"], 3), ["a"] * 9, ["b", "zzz", "a"]]
    assert check_by_automaton(grammar, sentences)


def test_sums_of_symbols_in_no_tree_may_be_infinite() -> None:
    parser = Parser(Grammar.from_text("S -> X [0] | S 'b' [0.5] | 'a' [0.5]\nX -> X | 'a' | S"))
    other = Parser(Grammar.from_text("S -> S 'b' [0.5] | 'a' [0.5]"))
    for words in all_prefixes(["a", "b"], 3):
        assert_close(parser.surprisals(words, end=True), other.surprisals(words, end=True))


@pytest.mark.parametrize("seed", seeds(4))
def test_the_same_by_deduction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols, words = ["S", "A", "B"], ["a", "b"]
    rows = [r for r in itertools.product(symbols, repeat=3) if rng.random() < 0.6]
    rows += [("S", "S", "A"), *itertools.product(symbols, words)]
    weights = dict.fromkeys(rows, 0.0) | {r: math.log(rng.uniform(0.05, 0.15)) for r in rows}
    text = "\n".join(f"{math.exp(w):.17g}\t{' '.join(r)}" for r, w in weights.items())
    parser = Parser(Grammar.from_text(text, "lines"))
    rule = Facts.of(weights)
    closure = programs.left_corner_closure(rule)
    program = programs.load("prefix_probability")

    def log_weight(prefix: list[str]) -> torch.Tensor:
        facts = {"start": {("S",): 0.0}, "rule": rule, **closure, **programs.sentence(prefix)}
        return program.ground(facts).log_partition()

    sentence = ["a", "b", "b", "a", "a", "b"]
    expected = torch.stack([log_weight(sentence[:n]) - log_weight([]) for n in range(7)])
    assert_close(parser.prefix_log_probs(sentence), expected)


# Laws


@pytest.mark.few(5)
@pytest.mark.parametrize("text", [*FINITE, *INFINITE])
def test_a_prefix_ends_or_goes_on(text: str) -> None:
    grammar = Grammar.from_text(text)
    parser = Parser(grammar)
    for words in all_prefixes(["a", "b"], 3):
        begins, sentence = probabilities(parser, words)
        assert begins[0] == 1
        assert begins == sorted(begins, reverse=True)
        longer = [probabilities(parser, [*words, x])[0][-1] for x in grammar.terminals]
        assert_close(begins[-1], sentence + sum(longer))


def test_the_shipped_grammar_of_english() -> None:
    grammar = library.load("english")
    parser = Parser(grammar)
    words = library.sentences("ambiguous")[1]
    begins, sentence = probabilities(parser, words)
    assert_close(math.log(sentence), parser.log_partition(words))
    for n in range(len(words) + 1):
        _, ends = probabilities(parser, words[:n])
        longer = [float(parser.prefix_log_probs([*words[:n], x])[-1]) for x in grammar.terminals]
        assert_close(begins[n], ends + float(np.exp(longer).sum()))


# Numbers that are far apart, and grammars close to the edge


def inverse(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """(I − matrix)⁻¹, exactly."""
    m = len(matrix)
    rows = [
        [Fraction(i == j) - matrix[i][j] for j in range(m)] + [Fraction(i == j) for j in range(m)]
        for i in range(m)
    ]
    for i in range(m):
        pivot = next(k for k in range(i, m) if rows[k][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in range(m):
            if k != i:
                rows[k] = [x - rows[k][i] * y for x, y in zip(rows[k], rows[i], strict=True)]
    return [row[m:] for row in rows]


def log_of(x: Fraction) -> float:
    if x == 0:
        return -INF
    # Far beyond what floats can hold.
    shift = x.numerator.bit_length() - x.denominator.bit_length()
    return math.log(x / Fraction(2) ** shift) + shift * math.log(2)


@given(
    st.lists(
        st.lists(st.none() | st.integers(-400, 0), min_size=6, max_size=6), min_size=1, max_size=5
    )
)
@settings(max_examples=examples(200))
@example([[0, None, None, None, None, -400]])  # almost for ever
@example([[None, -400, None, None, None, 0], [-400, None, None, None, None, -390]])
def test_elimination_keeps_all_digits(powers: list[list[int | None]]) -> None:
    m = len(powers)
    # In each row m steps and the end, in proportion to powers of ten; the end is always there.
    parts = [[Fraction(0) if p is None else Fraction(10) ** p for p in row[:m]] for row in powers]
    ends = [Fraction(10) ** (row[5] or -400) for row in powers]
    sums = [sum(row) + end for row, end in zip(parts, ends, strict=True)]
    matrix = [[x / total for x in row] for row, total in zip(parts, sums, strict=True)]
    logs = np.array([[log_of(x) for x in row] for row in matrix])
    leaving = np.array([log_of(x / total) for x, total in zip(ends, sums, strict=True)])
    steps = op.elimination(logs, leaving)
    expected = [[log_of(x) for x in row] for row in inverse(matrix)]
    unit = np.where(np.eye(m, dtype=bool), 0.0, -np.inf)
    found = np.stack([steps.log_applied(column) for column in unit], axis=1)
    assert_close(found, np.array(expected), rtol=1e-13, atol=1e-11)


def test_a_way_too_unlikely_for_floats() -> None:
    # The only way to w leads down 6 left corners with probability 1e-100 each.
    names = [f"A{k}" for k in range(7)]
    rules = [f"{a} -> {b} Z [1e-100] | 'z'" for a, b in itertools.pairwise(names)]
    parser = Parser(Grammar.from_text("\n".join([*rules, "A6 -> 'w'", "Z -> 'z'"]), start="A0"))
    assert_close(parser.surprisals(["w"])[0], 600 * math.log(10))
    assert parser.surprisals(["z", "w"]).tolist() == [0.0, INF]
    assert_close(parser.surprisals(["w", *"zzzzzz"])[1:], np.zeros(6))
    assert float(parser.surprisals(["w", *"zzzzzzz"])[-1]) == INF


@pytest.mark.parametrize("power", [-100, -200, -290, -310, -400])
def test_what_is_dropped_may_be_all_that_is_left(power: int) -> None:
    # After a, B is 10^power as likely as A, and nothing but B lets b follow.
    text = f"{power * math.log(10)}\tS B C\n0\tS A D\n0\tA a\n0\tB a\n0\tC b\n0\tD d\n"
    parser = Parser(Grammar.from_text(text, "lines", log=True))
    expected = [0.0, -power * math.log(10), 0.0]
    assert_close(parser.surprisals(["a", "b"], end=True), expected)
    # And where what is unlikely is a symbol's value over the word, not a rule.
    text = f"0\tS B C\n0\tS A D\n0\tA a\n{power * math.log(10)}\tB a\n0\tB x\n0\tC b\n0\tD d\n"
    parser = Parser(Grammar.from_text(text, "lines", log=True))
    assert_close(parser.surprisals(["a", "b"], end=True), [math.log(2), *expected[1:]])


def test_long_sentences_do_not_underflow() -> None:
    parser = Parser(
        Grammar.from_text("S -> A S [0.5] | A [0.5]\nA -> 'a' [1e-9] | 'b' [0.999999999]")
    )
    n = 120
    found = parser.surprisals(["a"] * n, end=True)
    rare = 9 * math.log(10)
    assert_close(found[0], rare)
    assert_close(found[1:-1], np.full(n - 1, rare + math.log(2)))
    assert_close(found[-1], math.log(2))


def test_a_critical_grammar() -> None:
    parser = Parser(Grammar.from_text("S -> S S [0.5] | 'a' [0.5]"))
    begins = parser.prefix_log_probs(["a"] * 5).exp()
    catalan = np.array([1, 1, 2, 5])
    lengths = catalan * 0.5 ** (2 * np.arange(1, 5) - 1)
    expected = 1 - np.append([0.0, 0.0], np.cumsum(lengths))
    assert_close(begins, expected, rtol=1e-6)  # Z has half of its digits


@pytest.mark.parametrize("stop", [1e-6, 1e-9, 1e-12])
def test_sentences_almost_without_end(stop: float) -> None:
    text = f"{math.log1p(-stop)}\tS S B\n{math.log(stop)}\tS a\n0\tB b\n"
    parser = Parser(Grammar.from_text(text, "lines", log=True))
    found = parser.surprisals(["a", *"bbbbb"], end=True)
    assert_close(found[:-1], [0.0, *[-math.log1p(-stop)] * 5], rtol=1e-4, atol=1e-14)
    assert_close(found[-1], -math.log(stop), rtol=0.01)


# What has no answer, and what is refused


def test_impossible_words() -> None:
    parser = Parser(Grammar.from_text("S -> 'a' 'b' 'c'"))
    assert parser.surprisals(["a", "c", "c"], end=True).tolist() == [0, INF, INF, INF]
    assert parser.prefix_log_probs(["a", "zzz"]).tolist() == [0, 0, -INF]
    assert parser.surprisals(["a", "b"], end=True).tolist() == [0, 0, INF]


def test_the_empty_sentence() -> None:
    parser = Parser(Grammar.from_text("S -> [1] | 'a' [3]"))
    assert parser.prefix_log_probs([]).tolist() == [0.0]
    assert parser.surprisals([]).tolist() == []
    assert_close(parser.surprisals([], end=True).exp(), [4.0])
    parser = Parser(Grammar.from_text("S -> [2]"))
    assert parser.surprisals(["a"], end=True).tolist() == [INF, INF]
    assert parser.surprisals([], end=True).tolist() == [0.0]


def test_unknown_words_stand_for_their_class() -> None:
    parser = Parser(Grammar.from_text("S -> 'the' N\nN -> 'dog' [0.75] | 'UNK' [0.25]"))
    assert_close((-parser.surprisals(["the", "parrot"])).exp(), [1.0, 0.25])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S -> S S [0.6] | 'a' [0.6]", "sum to infinity"),
        ("S -> S | 'a'", "sum to infinity"),
        ("S -> S S | 'a' [0.1] | ", "trees without words must have a finite sum"),
        ("S -> S 'a'", "have no tree"),
        ("S -> 'a' [0]", "have no tree"),
    ],
)
def test_sums_that_are_no_probabilities(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Parser(Grammar.from_text(text)).surprisals(["a"])


def test_what_is_no_sentence(unchecked: None) -> None:
    parser = Parser(Grammar.from_text("S -> 'a'"))
    with pytest.raises(ArgumentError, match="sequence of strings"):
        parser.surprisals("a")
    with pytest.raises(ArgumentError, match="lattice"):
        parser.prefix_log_probs(Lattice([(0, 1, "a")]))  # type: ignore[arg-type]


@pytest.mark.exhaustive
def test_a_grammar_of_a_treebank(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = data_dir / "grammars" / "wsj.eng.R2.gr.xz"
    if not path.exists():
        pytest.skip(f"no file {path} (set INOUT_DATA to where the data are)")
    parser = Parser(Grammar.load(path))
    words = ["The", "company", "said", "that", "its", "net", "income", "rose", "."]
    found = parser.surprisals(words, end=True)
    assert bool((found > 0).all() and found.isfinite().all())
    total = log_partition_functions(parser.grammar)[0]
    assert_close(-found.sum(), parser.log_partition(words) - total)
    in_log_space(monkeypatch)
    assert_close(parser.surprisals(words, end=True), found)
