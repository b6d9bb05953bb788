"""Grammars that others wrote and read: NLTK, ATIS, WSJ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from inout.grammars import Grammar, Rule, Terminal, structure
from inout.grammars import diagnostics as diagnoses


@pytest.fixture
def grammar_file(data_dir: Path) -> Callable[[str], Path]:
    def find(name: str) -> Path:
        path = data_dir / "grammars" / name
        if not path.is_file():
            pytest.skip(f"no file {path} (set INOUT_DATA to where the data are)")
        return path

    return find


def as_nltk_reads(text: str) -> list[Rule]:
    nltk = pytest.importorskip("nltk")
    return [
        Rule(
            production.lhs().symbol(),
            tuple(Terminal(s) if isinstance(s, str) else s.symbol() for s in production.rhs()),
        )
        for production in nltk.CFG.fromstring(text).productions()
    ]


NLTK_TEXT = """
# comment
%start S
S -> NP VP | VP |
NP -> "it's" | 'the' N/PP
VP -> 'x y' \\
  NP
N/PP -> '' | 'a' N/PP NP<x>^y-z
"""


def test_nltk_reads_the_same() -> None:
    assert as_nltk_reads(NLTK_TEXT) == list(Grammar.from_text(NLTK_TEXT).rules)


def test_nltk_reads_what_is_written() -> None:
    nltk = pytest.importorskip("nltk")
    grammar = Grammar.from_text("S -> S S [0.1] | 'a' [0.899999] | \"it's\" [1e-6]")
    theirs = nltk.PCFG.fromstring(grammar.to_text("nltk"))
    assert [p.prob() for p in theirs.productions()] == [0.1, 0.899999, 1e-6]
    written = Grammar.from_text(NLTK_TEXT).to_text("nltk")
    assert as_nltk_reads(written) == list(Grammar.from_text(NLTK_TEXT).rules)


@pytest.mark.parametrize("name", ["atis.cfg", "toy.cfg"])
def test_nltk_reads_the_same_files(grammar_file: Callable[[str], Path], name: str) -> None:
    path = grammar_file(name)
    rules = as_nltk_reads(path.read_text(encoding="utf-8"))
    assert list(Grammar.load(path).rules) == rules


def test_atis(grammar_file: Callable[[str], Path]) -> None:
    grammar = Grammar.load(grammar_file("atis.cfg"))
    assert (grammar.start, len(grammar), len(grammar.nonterminals)) == ("SIGMA", 5517, 549)
    assert (grammar.rules.arities.min(), grammar.rules.arities.max()) == (1, 10)
    assert not grammar.log_weights.any()
    assert not structure.nullable(grammar.rules).any()
    assert diagnoses.unary_cycles(grammar) == ()  # hence all 98 counts are finite
    for format in ("nltk", "lines", "json"):
        assert Grammar.from_text(grammar.to_text(format)).rules == grammar.rules


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "symbols", "binary"), [("R0", 98, 4240), ("R2", 3091, 13657)])
def test_wsj(grammar_file: Callable[[str], Path], name: str, symbols: int, binary: int) -> None:
    grammar = Grammar.load(grammar_file(f"wsj.eng.{name}.gr.xz"))
    lexical = len(grammar.lexical_rules)
    assert (grammar.start, len(grammar.nonterminals)) == ("ROOT", symbols)
    assert ((grammar.rules.arities == 2).sum(), lexical) == (binary, 52009)
    assert len(grammar) == binary + 236 + 52009
    assert len(grammar.terminals) == 44452
    assert diagnoses.improper(grammar, 5e-5) == {}
    found = diagnoses.consistency(grammar)
    assert found.consistent is True
    assert 0.9 < found.spectral_radius < 0.91
    # Booth & Thompson's condition and the sums over all trees agree, to the digits printed.
    assert diagnoses.log_partition_functions(grammar).abs().max() < 1e-3
    expectations = diagnoses.expected(grammar)
    assert 20 < expectations.length < 27  # sentences of the WSJ have 24 words
    # Every word has a lexical rule, and no other rule has words.
    assert expectations.rule_counts[grammar.lexical_rules].sum() == pytest.approx(
        expectations.length
    )
    again = Grammar.from_text(grammar.to_text("wsj"))
    assert again.rules == grammar.rules
    assert torch.equal(again.log_weights, grammar.log_weights)
    normalised = grammar.normalised()
    assert diagnoses.improper(normalised, 1e-9) == {}
