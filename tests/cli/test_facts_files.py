"""Files of facts: what they may hold, and what is said about those that are wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inout import FileError
from inout.forest.labels import format_value
from inout.io import AmbiguousFactsError, read_facts, read_value


def read(tmp_path: Path, content: str | bytes, arities=(2,), **options):
    path = tmp_path / "f.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    facts = read_facts(path, arities, **options)
    return list(zip(facts.rows, facts.log_weights.tolist(), strict=True))


def complaint(tmp_path: Path, content: str | bytes, arities=(2,), **options) -> str:
    with pytest.raises(FileError) as caught:
        read(tmp_path, content, arities, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(tmp_path / "f.tsv"))
    return message.removeprefix(str(tmp_path / "f.tsv"))


def test_rows_with_and_without_weights_may_stand_together(tmp_path):
    assert read(tmp_path, "a\tb\na\tc\t-1.5\n") == [(("a", "b"), 0.0), (("a", "c"), -1.5)]


def test_values_are_integers_or_strings(tmp_path):
    content = '12\t-3\n"12"\t007\n0\t-0\n 5 \t x \n+1\t1.0\n"\t""\n'
    assert [row for row, _ in read(tmp_path, content)] == [
        (12, -3),
        ("12", "007"),
        (0, "-0"),
        (5, "x"),
        ("+1", "1.0"),
        ('"', ""),
    ]


def test_comments_blank_lines_and_line_ends_do_not_matter(tmp_path):
    content = b"\xef\xbb\xbf# first\r\n\r\na\tb\r\n   \n\t\n#a\tb\na\t#\n"
    assert [row for row, _ in read(tmp_path, content)] == [("a", "b"), ("a", "#")]


def test_only_line_feeds_end_a_line(tmp_path):
    assert [row for row, _ in read(tmp_path, "a\u2028b\tc\x0bd\n")] == [("a\u2028b", "c\x0bd")]


def test_an_empty_file_has_no_facts(tmp_path):
    assert read(tmp_path, "") == []


@pytest.mark.parametrize("written", ["-inf", "-Infinity", "-INF"])
def test_minus_infinity_is_a_log_weight(tmp_path, written):
    assert read(tmp_path, f"a\tb\t{written}\n") == [(("a", "b"), -math.inf)]


def test_probabilities_become_logarithms(tmp_path):
    rows = read(tmp_path, "a\tb\t0.25\na\tc\t0\na\td\n", probabilities=True)
    assert [weight for _, weight in rows] == [math.log(0.25), -math.inf, 0.0]


@given(st.one_of(st.text(), st.integers(-(2**40) + 1, 2**40 - 1)))
def test_what_is_written_in_the_language_is_read_back(value):
    written = format_value(value).replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    assert read_value(written) == value


class TestSeveralArities:
    """rule(X,Y,Z) and rule(X,W): three fields may be three values, or two and a weight."""

    def test_a_longer_row_shows_that_there_are_weights(self, tmp_path):
        rows = read(tmp_path, "S\tNP\tVP\t-1\nNP\tshe\t-2\n", (2, 3))
        assert rows == [(("S", "NP", "VP"), -1.0), (("NP", "she"), -2.0)]

    def test_a_shorter_row_shows_that_there_are_none(self, tmp_path):
        rows = read(tmp_path, "A\t1\t2\nA\tb\n", (2, 3))
        assert rows == [(("A", 1, 2), 0.0), (("A", "b"), 0.0)]

    def test_a_last_field_that_is_no_number_is_a_value(self, tmp_path):
        assert read(tmp_path, "S\tNP\tVP\n", (2, 3)) == [(("S", "NP", "VP"), 0.0)]

    @pytest.mark.parametrize("word", ["nan", "inf", "infinity", "1_000", "1e999"])
    def test_words_that_float_would_take_are_words(self, tmp_path, word):
        assert read(tmp_path, f"NP\tthe\t{word}\n", (2, 3)) == [(("NP", "the", word), 0.0)]

    def test_a_file_that_can_be_read_both_ways_is_refused(self, tmp_path):
        with pytest.raises(AmbiguousFactsError, match=r":1:8: .* value or a weight"):
            read(tmp_path, "NP\tshe\t-2\nNP\tthey\t-3\n", (2, 3))

    def test_so_is_a_row_of_a_mixed_file(self, tmp_path):
        with pytest.raises(AmbiguousFactsError, match=":3:"):
            read(tmp_path, "S\tNP\tVP\t-1\nNP\tit\nNP\tshe\t-2\n", (2, 3))

    def test_the_user_decides(self, tmp_path):
        content = "NP\tshe\t-2\n"
        assert read(tmp_path, content, (2, 3), weighted=True) == [(("NP", "she"), -2.0)]
        assert read(tmp_path, content, (2, 3), weighted=False) == [(("NP", "she", -2), 0.0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\na\n", ":2:1: expected 2 values separated by tabs, and at most a weight"),
        ("a\tb\t1\t2\n", ":1:1: expected 2 values separated by tabs, and at most a weight"),
        ("a b\n", "Got 1 field"),
        ("a\tb\tc\n", ":1:5: a log-weight must be a number or -inf. Got 'c'"),
        ("a\tbb\tnan\n", ":1:6: a log-weight must be a number or -inf. Got 'nan'"),
        ("a\tb\tinf\n", "Got 'inf'"),
        ("a\tb\t1e999\n", "Got '1e999'"),
        ("a\tb\t-1e999\n", "Got '-1e999'"),
        ("a\tb\t1_0\n", "Got '1_0'"),
        ("a\tb\t\n", "Got ''"),
        ("a\t\n", ":1:3: the field is empty"),
        ("a\t1099511627776\n", ":1:3: integers must be smaller than 2**40"),
        ('a\t"\\q"\n', "unknown escape '\\q'"),
        ('a\t"b"c"\n', "a quote within quotes"),
        ('a\t"b\\"\n', "unknown escape '\\'"),
        (b"a\tb\nxy\t\xff\n", ":2:4: the file must be UTF-8 text. Got the byte 0xff"),
        ("a\tb\n".encode("utf-16"), ":1:1: the file must be UTF-8 text"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path, content, message):
    assert message in complaint(tmp_path, content)


@pytest.mark.parametrize("weight", ["-0.1", "-inf", "nan", "x"])
def test_a_probability_is_at_least_zero(tmp_path, weight):
    text = complaint(tmp_path, f"a\tb\t{weight}\n", probabilities=True)
    assert text == f":1:5: a weight must be a number of at least 0. Got '{weight}'"


def test_weights_that_were_promised_must_be_there(tmp_path):
    assert "expected 2 values separated by tabs and a weight" in complaint(
        tmp_path, "a\tb\n", weighted=True
    )
    assert "expected 2 values separated by tabs. Got 3" in complaint(
        tmp_path, "a\tb\t1\n", weighted=False
    )


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read_facts(tmp_path / "nothing", [1])
    with pytest.raises(FileError, match="directory"):
        read_facts(tmp_path, [1])
    with pytest.raises(FileError, match="null"):
        read_facts("a\0b", [1])
