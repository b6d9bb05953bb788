"""Texts of grammars: round trips, detection, every error with its place, files."""

from __future__ import annotations

import gzip
import json
import lzma
import math
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from inout import ArgumentError, FileError
from inout.grammars import Grammar, GrammarError, Rule, Terminal
from inout.grammars.formats import Source, detect

INF = math.inf


def rules_of(grammar: Grammar) -> list[str]:
    return [str(rule) for rule in grammar.rules]


# Round trips

CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
ANY_TEXT = st.text(CHARACTERS, max_size=4)
AWKWARD = st.sampled_from(
    [
        "#",
        "''",
        '"',
        "->",
        "-->",
        "%start",
        "|",
        "[0.5]",
        "S",
        "a b",
        "\\",
        "0.5",
        "",
        "\t",
        "=",
        "'",
    ]
)
WORD = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=3)
LOG_WEIGHT = st.one_of(st.floats(-700, 700), st.just(-INF), st.just(0.0))

Spec = list[tuple[str, list[tuple[bool, str]], float]]


def specs(names: st.SearchStrategy[str], texts: st.SearchStrategy[str]) -> st.SearchStrategy[Spec]:
    """Rules as plain data: left side, right side of (is a terminal, text), log-weight."""
    terminal = st.tuples(st.just(True), texts)
    nonterminal = st.tuples(st.just(False), names)
    right = st.lists(st.one_of(terminal, nonterminal), max_size=4)
    return st.lists(
        st.tuples(names, right, LOG_WEIGHT),
        min_size=1,
        max_size=6,
        unique_by=lambda rule: (rule[0], tuple(rule[1])),
    )


def build(spec: Spec) -> Grammar:
    rules = [
        Rule(lhs, tuple(Terminal(text) if is_terminal else text for is_terminal, text in rhs))
        for lhs, rhs, _ in spec
    ]
    # The last left side: a start symbol that is not simply the first.
    return Grammar(spec[-1][0], rules, [weight for *_, weight in spec])


def assert_same_weights(actual: Grammar, expected: Grammar) -> None:
    a, b = actual.log_weights, expected.log_weights
    assert torch.equal(torch.isneginf(a), torch.isneginf(b))
    # One unit in the last place of exp(x) is an absolute error of x.
    finite = ~torch.isneginf(b)
    torch.testing.assert_close(a[finite], b[finite], rtol=1e-15, atol=5e-16)


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=5))
@pytest.mark.parametrize("format", ["nltk", "lines"])
def test_weights_that_were_read_keep_every_bit(format: str, weights: list[float]) -> None:
    grammar = Grammar.from_text("\n".join(f"{w!r} S {n}" for n, w in enumerate(weights)))
    again = Grammar.from_text(grammar.to_text(format))  # type: ignore[arg-type]
    assert torch.equal(again.log_weights, grammar.log_weights)


@given(specs(ANY_TEXT | AWKWARD, ANY_TEXT | AWKWARD))
def test_json_keeps_every_symbol_and_every_bit(spec: Spec) -> None:
    grammar = build(spec)
    again = Grammar.from_text(grammar.to_text("json"))
    assert again.rules == grammar.rules
    assert again.start == grammar.start
    assert again.log_weights.numpy().tobytes() == grammar.log_weights.numpy().tobytes()


@given(specs(ANY_TEXT | AWKWARD | WORD, ANY_TEXT | AWKWARD | WORD), st.booleans())
@example([("S", [(True, '"'), (True, "S"), (False, "X")], 0.0)], True)
def test_lines_keep_what_they_write(spec: Spec, log: bool) -> None:
    grammar = build(spec)
    try:
        text = grammar.to_text("lines", log=log)
    except ArgumentError as error:
        # The name that cannot be written is a nonterminal's.
        assert any(repr(name) in str(error) for name in grammar.nonterminals)  # noqa: PT017
        return
    again = Grammar.from_text(text, "lines")
    assert again.rules == grammar.rules
    if log:
        assert torch.equal(again.log_weights, grammar.log_weights)
    else:
        assert_same_weights(again, grammar)


@given(specs(WORD | AWKWARD, ANY_TEXT | AWKWARD))
@example([("S", [(True, "it's"), (False, "X")], -700.0)])
def test_nltk_keeps_what_it_writes(spec: Spec) -> None:
    grammar = build(spec)
    try:
        text = grammar.to_text("nltk")
    except ArgumentError as error:
        assert "no way to write" in str(error)  # noqa: PT017
        return
    again = Grammar.from_text(text, "nltk")
    assert again.rules == grammar.rules
    assert_same_weights(again, grammar)


@given(specs(WORD | AWKWARD, WORD | AWKWARD))
def test_wsj_keeps_what_it_writes(spec: Spec) -> None:
    grammar = build(spec)
    try:
        text = grammar.to_text("wsj")
    except ArgumentError as error:
        assert error.argument == "format"  # noqa: PT017
        return
    again = Grammar.from_text(text, "wsj")
    # The lexicon comes last, so the order may differ.
    before = dict(zip(grammar.rules, grammar.log_weights.tolist(), strict=True))
    assert before == dict(zip(again.rules, again.log_weights.tolist(), strict=True))
    assert again.start == grammar.start


@given(specs(WORD, WORD))
@pytest.mark.parametrize("format", ["nltk", "lines", "json"])
def test_what_is_written_is_detected(format: str, spec: Spec) -> None:
    assert detect(Source.of(build(spec).to_text(format), None)) == format  # type: ignore[arg-type]


# What each format means


def test_nltk_reads_all_of_its_notation() -> None:
    text = """
        # a comment
        %start VP
        S -> NP VP [.9] | VP [1e-1]   # another
        NP -> "it's" | 'the' N |
            | 'a "b"' N
        VP -> 'x' \\
            NP [ 0.5 ]
        N ->
    """
    grammar = Grammar.from_text(text)
    assert grammar.start == "VP"
    assert list(grammar.rules) == [
        Rule("S", ("NP", "VP")),
        Rule("S", ("VP",)),
        Rule("NP", (Terminal("it's"),)),
        Rule("NP", (Terminal("the"), "N")),
        Rule("NP", ()),
        Rule("NP", (Terminal('a "b"'), "N")),
        Rule("VP", (Terminal("x"), "NP")),
        Rule("N", ()),
    ]
    weights = grammar.log_weights.exp().tolist()
    assert weights == pytest.approx([0.9, 0.1, 1, 1, 1, 1, 0.5, 1], rel=1e-15)


def test_lines_tell_terminals_by_left_sides_and_quotes() -> None:
    text = '# comment\n0.5\tS\tNP "S"\n.25 S --> VP\n1 NP -> the\n%nonterminals VP\n0\tS\n'
    grammar = Grammar.from_text(text)
    assert list(grammar.rules) == [
        Rule("S", ("NP", Terminal("S"))),
        Rule("S", ("VP",)),
        Rule("NP", (Terminal("the"),)),
        Rule("S", ()),
    ]
    assert grammar.log_weights.tolist() == [math.log(0.5), math.log(0.25), 0.0, -INF]


def test_lines_of_logs() -> None:
    expected = [-1.5, -INF]
    text = "-1.5 S a\n-inf S b"
    assert Grammar.from_text(text, log=True).log_weights.tolist() == expected
    assert Grammar.from_text("%weights log\n" + text).log_weights.tolist() == expected
    with pytest.raises(GrammarError, match="at least 0"):
        Grammar.from_text(text)


def test_wsj_reads_hashes_quotes_and_any_arity() -> None:
    text = (
        "lang=UNK start=ROOT\nROOT -> # '' -0.5\nX -> 0\n===== LEXICON =====\n# -> New York -1\n\n"
    )
    grammar = Grammar.from_text(text)
    assert list(grammar.rules) == [
        Rule("ROOT", ("#", "''")),
        Rule("X", ()),
        Rule("#", (Terminal("New"), Terminal("York"))),
    ]
    assert grammar.log_weights.tolist() == [-0.5, 0.0, -1.0]


def test_words_may_hold_unusual_blanks() -> None:
    text = "start=S\n===== LEXICON =====\nS -> a\u00a0b\u2028c -1.0\n"
    assert Grammar.from_text(text).terminals == ("a\u00a0b\u2028c",)


@pytest.mark.parametrize("format", ["nltk", "lines", "wsj", "json"])
def test_marks_of_windows_files_do_not_matter(format: str) -> None:
    grammar = Grammar.from_text("%start A\nS -> A A [0.5]\nA -> 'a' [0.25]")
    text = grammar.to_text(format)  # type: ignore[arg-type]
    again = Grammar.from_text("\ufeff" + text.replace("\n", "\r\n"))
    assert again.rules == grammar.rules
    assert torch.equal(again.log_weights, grammar.log_weights)


def test_start_can_be_chosen() -> None:
    grammar = Grammar.from_text("S -> A\nA -> 'a'", start="A")
    assert (grammar.start, grammar.nonterminals) == ("A", ("A", "S"))
    with pytest.raises(ArgumentError, match="start must be the left side of a rule\\. Got 'B'"):
        Grammar.from_text("S -> B", start="B")


@pytest.mark.parametrize(
    "text",
    [
        "S -> 'a' [0.5] | 'b' [0.25]\nS -> 'a' [0.25]",
        "0.5 S a\n0.25 S b\n0.25 S a",
        f"start=S\n===== LEXICON =====\nS -> a {math.log(0.5)}\nS -> b {math.log(0.25)}\n"
        f"S -> a {math.log(0.25)}",
        '{"format": "inout grammar", "version": 1, "start": "S", "rules": ['
        f'["S", [{{"terminal": "a"}}], {math.log(0.5)}], '
        f'["S", [{{"terminal": "b"}}], {math.log(0.25)}], '
        f'["S", [{{"terminal": "a"}}], {math.log(0.25)}]]}}',
    ],
)
def test_weights_of_a_repeated_rule_add_up_if_asked(text: str) -> None:
    grammar = Grammar.from_text(text, duplicates="add")
    assert rules_of(grammar) == ["S -> 'a'", "S -> 'b'"]
    assert grammar.log_weights.exp().tolist() == pytest.approx([0.75, 0.25])
    with pytest.raises(GrammarError, match="duplicate"):
        Grammar.from_text(text)


# Errors

JSON_HEAD = '{"format": "inout grammar", "version": 1, "start": "S",\n"rules": [\n'

ERRORS = {
    # text: (line, column, part of the message)
    "": (1, 1, "an empty text"),
    "  \n\n": (1, 1, "an empty text"),
    "# only a comment\n": (1, 17, "only comments"),
    "hello world": (1, 1, "first line of any grammar format"),
    "S NP VP": (1, 1, "first line of any grammar format"),
    # nltk
    "S -> NP VP [-0.5]": (1, 13, "finite and at least 0. Got '-0.5'"),
    "S -> NP VP [nan]": (1, 13, "a number of at least 0. Got 'nan'"),
    "S -> NP [1e999]": (1, 10, "finite"),
    "S -> NP [1e-999]": (1, 10, "too small"),
    "S -> NP []": (1, 10, "a number"),
    "S -> NP [0.5": (1, 9, "expected ']'"),
    "S -> NP [0.5] VP": (1, 15, "expected '|' or the line's end, found VP"),
    "S -> 'a' 'b\n": (1, 10, "not closed: expected another '"),
    "S -> A\n\tA -> 'a\" B": (2, 7, "not closed"),
    "S -> A ] B": (1, 8, "found ']'"),
    "S -> A -> B": (1, 8, "one '->' a line"),
    "S -> A\nA B -> C": (2, 2, "expected '->' after a left side, found 'B -> C'"),
    "S->A": (1, 5, "a blank stands before '->'"),
    "S -> A\n'a' -> B": (2, 1, "terminals are allowed on the right only"),
    "S -> A\n-> B": (2, 1, "expected a nonterminal on the left"),
    "S -> A\n%begin S": (2, 1, "expected '%start'"),
    "%start X\nS -> 'a'": (1, 8, "start symbol X has no rule"),
    "%start S\n%start S\nS -> 'a'": (2, 8, "already declared on line 1"),
    "S -> 'a'\nT -> | 'x' | 'b'\nT -> 'c' | 'b'": (3, 12, "duplicate rule, already on line 2"),
    "S -> A \\ B": (1, 8, "the line's end after"),
    # lines
    "0.5\tS a\nabc\tS b": (2, 1, "a number of at least 0. Got 'abc'"),
    "0.5\tS a\n-1\tS b": (2, 1, "finite and at least 0"),
    "0.5\tS a\nnan\tS b": (2, 1, "at least 0. Got 'nan'"),
    "0.5\tS a\n0.5": (2, 4, "expected a weight, a left side"),
    '0.5\tS "a b': (1, 7, "not closed"),
    '0.5\tS "': (1, 7, "not closed"),
    '0.5\tS "a"b': (1, 10, "expected a blank"),
    '0.5\tS "\\q"': (1, 7, "JSON string"),
    '0.5\t"S" a': (1, 5, "expected a nonterminal"),
    "0.5 --> a": (1, 5, "expected a left side"),
    "0.5 S a\n%weights logs": (2, 1, "'%weights log'"),
    "0.5 S a\n%start T": (2, 8, "start symbol T has no rule"),
    "0.5\tS a\n  0.25\tS\ta": (2, 3, "duplicate rule, already on line 1"),
    # wsj
    "lang=X\nS -> A -1.0": (1, 1, "no start symbol"),
    "S -> A -1.0": (1, 1, "no start symbol"),
    "start=S\n": (1, 8, "expected rules, found none"),
    "start=S\nS -> A": (2, 6, "finite number or -inf. Got 'A'"),
    "start=S\nS -> A nan": (2, 8, "Got 'nan'"),
    "start=S\nS -> A inf": (2, 8, "Got 'inf'"),
    "start=S\nS ->": (2, 1, "a right side and a log-weight"),
    "start=S\nS A -1": (2, 1, "expected LEFT -> RIGHT"),
    "start=T\nS -> A -1": (1, 7, "start symbol T has no rule"),
    "start=S\n===== LEXICON =====\nS -> a -1\n===== LEXICON =====": (4, 1, "found another"),
    "start=S\nS -> A -1\nS -> A -2": (3, 1, "duplicate rule, already on line 2"),
    # json
    '{"format": ': (1, 12, "expected JSON"),
    '{"format": NaN}': (1, 1, "NaN is not JSON"),
    '{"format": "other"}': (1, 1, 'expected an object with "format"'),
    '{"format": "inout grammar",\n "version": 2}': (2, 13, "the newest there is"),
    '{"format": "inout grammar", "version": 1}': (1, 1, 'expected "start"'),
    JSON_HEAD + "]}": (3, 3, "expected rules, found none"),
    JSON_HEAD + '["T", [], 0]]}': (1, 52, "start symbol S has no rule"),
    JSON_HEAD + '["S", [], 0],\n["S", ["A", 3], 0]]}': (4, 13, "expected a nonterminal"),
    JSON_HEAD + '["S", [], 0],\n["S", [{"word": "a"}], 0]]}': (4, 8, "expected a nonterminal"),
    JSON_HEAD + '["S", [], 0],\n ["S", ["A"], "x"]]}': (4, 15, "a log-weight"),
    JSON_HEAD + '["S", [], 1e999]]}': (3, 11, "a finite number"),
    JSON_HEAD + '["S", [], true]]}': (3, 11, "a number"),
    JSON_HEAD + '["S", []]]}': (3, 1, "expected [left side, right side, log-weight]"),
    JSON_HEAD + '[["S"], [], 0]]}': (3, 2, "a left side, a string"),
    JSON_HEAD + '["S", "A", 0]]}': (3, 7, "a right side, a list"),
    JSON_HEAD + '["S", [], 0],\n["S", [], 1]]}': (4, 1, "duplicate of rule 0"),
}


@pytest.mark.parametrize("text", ERRORS, ids=[repr(text)[-40:] for text in ERRORS])
def test_mistakes_are_shown_with_their_place(text: str) -> None:
    line, column, message = ERRORS[text]
    with pytest.raises(GrammarError) as caught:
        Grammar.from_text(text, source="g.txt")
    shown = str(caught.value).split("\n")
    assert message in shown[0]
    assert (caught.value.line, caught.value.column) == (line, column), shown
    assert shown[0].startswith(f"g.txt:{line}:{column}: ")
    code = [*text.split("\n"), ""][line - 1]
    assert shown[1] == "  " + code
    assert shown[2].endswith("^")
    assert len(shown[2]) == column + 2
    assert [c == "\t" for c in shown[2][2:-1]] == [c == "\t" for c in code[: column - 1]]


def test_a_very_long_line_is_not_shown_whole() -> None:
    text = "S -> " + "A " * 10_000 + "]"
    with pytest.raises(GrammarError) as caught:
        Grammar.from_text(text)
    message, code, pointer = str(caught.value).split("\n")
    assert len(code) < 110
    assert code[len(pointer) - 1] == "]"


@given(st.text(max_size=60) | st.text("S->| '\"[]0.5\\\t\n#%{}:,=", max_size=60))
@pytest.mark.parametrize("format", [None, "nltk", "lines", "wsj", "json"])
def test_any_text_is_a_grammar_or_a_grammar_error(format: str | None, text: str) -> None:
    try:
        grammar = Grammar.from_text(text, format)  # type: ignore[arg-type]
    except GrammarError:
        return
    assert len(grammar) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "yaml"}, "format must be one of nltk, lines, wsj, json. Got 'yaml'"),
        ({"duplicates": "max"}, "duplicates must be"),
        ({"log": True}, "log must be None for every format but lines"),
    ],
)
def test_bad_arguments(unchecked: None, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Grammar.from_text("S -> 'a'", **arguments)  # type: ignore[arg-type]


def test_bytes_are_no_text(unchecked: None) -> None:
    with pytest.raises(ArgumentError, match="text must be a str"):
        Grammar.from_text(b"S -> 'a'")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "format", "message"),
    [
        (Rule("#", ()), "nltk", "nonterminal '#'"),
        (Rule("A B", ()), "nltk", "nonterminal 'A B'"),
        (Rule("S", (Terminal("'\""),)), "nltk", "terminal"),
        (Rule("S", (Terminal("a\nb"),)), "nltk", "terminal"),
        (Rule("A B", ()), "lines", "nonterminal 'A B'"),
        (Rule("S", (Terminal("a b"),)), "wsj", "symbol 'a b'"),
        (Rule("S", ("S", Terminal("a"))), "wsj", "mix terminals and nonterminals. Got S -> S 'a'"),
    ],
)
def test_what_a_format_cannot_write_is_refused(rule: Rule, format: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Grammar(rule.lhs, [rule]).to_text(format)  # type: ignore[arg-type]


@pytest.mark.parametrize("log_weight", [-800.0, 800.0])
def test_weights_beyond_floats_are_written_as_logs_only(log_weight: float) -> None:
    grammar = Grammar("S", [Rule("S", ())], [log_weight])
    for format in ("nltk", "lines"):
        with pytest.raises(ArgumentError, match="use json, or lines with log=True"):
            grammar.to_text(format)  # type: ignore[arg-type]
    assert Grammar.from_text(grammar.to_text("lines", log=True)).log_weights.item() == log_weight
    assert Grammar.from_text(grammar.to_text("wsj")).log_weights.item() == log_weight


# Files


@pytest.mark.parametrize("name", ["g.cfg", "g.pcfg", "g.tsv", "g.gr", "g.json"])
def test_files_have_the_format_of_their_name(tmp_path: Path, name: str) -> None:
    grammar = Grammar.from_text("%start A\nS -> A A [0.5]\nA -> 'ä' [0.25]")
    path = tmp_path / name
    grammar.save(path)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    again = Grammar.load(path)
    assert again.rules == grammar.rules
    assert torch.equal(again.log_weights, grammar.log_weights)


def test_names_that_say_no_format(tmp_path: Path) -> None:
    grammar = Grammar.from_text("S -> 'a'")
    with pytest.raises(ArgumentError, match="format must be given"):
        grammar.save(tmp_path / "grammar.txt")
    with pytest.raises(ArgumentError, match="written plain"):
        grammar.save(tmp_path / "grammar.json.xz")
    grammar.save(tmp_path / "grammar.txt", "json")
    assert json.loads((tmp_path / "grammar.txt").read_text())["start"] == "S"


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "g.cfg"
    path.write_text("S -> 'old'")
    with pytest.raises(ArgumentError):
        Grammar("#", [Rule("#", ())]).save(path)
    assert path.read_text() == "S -> 'old'"


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "g.cfg"
    path.write_text("S -> 'a")
    with pytest.raises(GrammarError, match=r"g\.cfg:1:6: "):
        Grammar.load(path)


@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_unreadable_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"g.cfg{suffix}"
    with pytest.raises(FileError, match="no such file"):
        Grammar.load(path)
    data = "S -> 'ä'\nS -> '".encode() + b"\xff'"
    path.write_bytes(lzma.compress(data) if suffix else data)
    with pytest.raises(FileError, match=r":2:7: .*UTF-8.*0xff"):
        Grammar.load(path)
    (tmp_path / f"directory{suffix}").mkdir()
    with pytest.raises(FileError, match="directory"):
        Grammar.load(tmp_path / f"directory{suffix}")


@pytest.mark.parametrize(("suffix", "compress"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_compressed_files(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    for name in ("g.cfg", "g.gr"):
        path = tmp_path / f"{name}{suffix}"
        data = compress("\ufeffS -> 'ä'".encode())
        path.write_bytes(data)
        assert Grammar.load(path).terminals == ("ä",)
        for broken in (data[:-9], b"S -> 'a'", b""):
            path.write_bytes(broken)
            with pytest.raises(FileError, match=r"compressed|expected rules"):
                Grammar.load(path)


def test_bytes_of_another_encoding(tmp_path: Path) -> None:
    """In a comment they do not matter; elsewhere the encoding has to be named."""
    path = tmp_path / "g.cfg"
    path.write_bytes("# de José\n  # Núñez\nS -> 'ä'\n".encode("latin-1").replace(b"\xe4", b"a"))
    assert Grammar.load(path).terminals == ("a",)
    path.write_bytes("# José\nS -> 'ä'\n".encode("latin-1"))
    with pytest.raises(FileError, match=r"g\.cfg:2:7: .*UTF-8.*0xe4$"):
        Grammar.load(path)
    assert Grammar.load(path, encoding="latin-1").terminals == ("ä",)
    with pytest.raises(FileError, match=r":1:6: .*ascii text. Got the byte 0xe9$"):
        Grammar.load(path, encoding="ascii")
    with pytest.raises(ArgumentError, match="must be one that Python has"):
        Grammar.load(path, encoding="klingon")
    path.write_bytes("S -> 'ä'\n".encode("utf-8-sig"))
    assert Grammar.load(path, encoding="UTF-8").terminals == ("ä",)
