"""Files of tagged sequences: what is written is read back, and mistakes are named with a line."""

from __future__ import annotations

import gzip
import lzma
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inout._core.errors import ArgumentError, FileError
from inout.io.column_features import column_features, columns_of, shape
from inout.io.files import decoded_lines
from inout.io.tagged import parse_tagged, read_tagged, write_tagged
from tests.seeds import examples

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6)
LABELS = NAMES.filter(lambda label: " " not in label)
POSITIONS = st.dictionaries(NAMES, st.floats(allow_nan=False, allow_infinity=False), max_size=4)
SEQUENCES = st.lists(
    st.lists(st.tuples(LABELS, POSITIONS), min_size=1, max_size=4), min_size=0, max_size=4
)


@settings(deadline=None, max_examples=examples(40))
@given(SEQUENCES)
def test_what_is_written_is_read_back(tmp_path_factory, sequences):
    path = tmp_path_factory.mktemp("tagged") / "data.tsv"
    positions = [[p for _, p in sequence] for sequence in sequences]
    labels = [[label for label, _ in sequence] for sequence in sequences]
    write_tagged(path, positions, labels)
    read = list(read_tagged(path))
    assert [s.labels for s in read] == labels
    assert [s.positions for s in read] == positions
    write_tagged(path, positions)
    assert [(s.labels, s.positions) for s in read_tagged(path)] == [(None, p) for p in positions]


def read(text: str, form="features"):
    data = text.encode("utf-8").splitlines(keepends=True)
    return list(parse_tagged(decoded_lines(data, "data.tsv"), "data.tsv", form))


@pytest.mark.parametrize(
    "text",
    [
        "B\ta\tb:2\nI\n\nB\tc\n",
        "B\ta\tb:2\nI\n\nB\tc",
        "\n\nB\ta\tb:2\nI\n  \n\n\nB\tc\n\n\n",
        "B\ta\tb:2\r\nI\r\n\r\nB\tc\r\n",
        "\ufeffB\ta\tb:2\nI\n\nB\tc\n",
        "B\ta\tb\tb\nI\n\nB\tc:1.0\n",
        "B\ta:1e0\tb:.2e1\nI\n\nB\tc:+1\n",
    ],
)
def test_line_ends_blank_lines_and_numbers(text):
    sequences = read(text)
    assert [s.labels for s in sequences] == [["B", "I"], ["B"]]
    assert [s.positions for s in sequences] == [[{"a": 1, "b": 2}, {}], [{"c": 1}]]
    assert [len(s) for s in sequences] == [2, 1]


def test_places_are_those_of_the_first_lines():
    assert [s.place for s in read("\nB\ta\n\nB\tb\n")] == ["data.tsv:2", "data.tsv:4"]


def test_labels_may_be_missing():
    assert [s.labels for s in read("\ta\n\tb\n\n?\ta\n?\n\n\\?\ta\n")] == [None, None, ["?"]]


def test_nothing_is_a_comment_and_colons_are_escaped():
    (sequence,) = read("#\t#a\t\\:\\:2\t\\\\:3\ta\\\\\\:b:4\n")
    assert sequence.labels == ["#"]
    assert sequence.positions == [{"#a": 1, "::2": 1, "\\": 3, "a\\:b": 4}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B\ta\nB\tb:x\n", "data.tsv:2: the value of a feature must be a finite number. Got 'x'"),
        ("B\thttp://x\n", r"Got '//x' for 'http'; a colon in a name is written \:"),
        ("B\ta:\n", "data.tsv:1: the value of a feature must be a finite number. Got ''"),
        ("B\ta:nan\n", "Got 'nan' for 'a'"),
        ("B\ta:inf\n", "Got 'inf'"),
        ("B\ta:1e999\n", "Got '1e999'"),
        ("B\ta\nB\ta:1e308\ta:1e308\n", "data.tsv:2: the values of a feature must have a finite"),
        ("B\ta:1_0\n", "Got '1_0'"),
        ("B\ta:1:2\n", "Got '1:2'"),
        ("B\ta\t\tb\n", "data.tsv:1: features must have a name. Got '' behind a tab"),
        ("B\t:2\n", "features must have a name. Got ':2'"),
        ("B\t\n", "features must have a name"),
        ("B\ta\n\t\n", "data.tsv:2: features must have a name"),
        ("B\ta\\d\n", "data.tsv:1: a backslash must be written \\\\"),
        ("B\ta\\", "a backslash must be written"),
        ("B\ta\n?\tb\n", "data.tsv:2: all positions of a sequence must have a label, or none"),
        ("\ta\nB\tb\n", "data.tsv:1: all positions"),
        ("the DT B-NP\n", "data.tsv:1: fields must be separated by tabs"),
    ],
)
def test_mistakes_are_named_with_their_line(text, message):
    with pytest.raises(FileError) as raised:
        read(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path):
    for name, content, message in (
        ("bad.tsv", b"B\ta\nB\t\xff\n", "bad.tsv:2:3: the file must be UTF-8 text"),
        ("bad.tsv.gz", b"B\ta\n", "not compressed as its name says"),
        ("bad.tsv.xz", b"B\ta\n", "not compressed as its name says"),
        ("cut.tsv.gz", gzip.compress(b"B\ta\n" * 999)[:-9], "ends too early"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(FileError, match=message):
            list(read_tagged(path))
    with pytest.raises(FileError, match="no such file"):
        list(read_tagged(tmp_path / "none.tsv"))
    with pytest.raises(FileError, match="is a directory"):
        list(read_tagged(tmp_path))


def test_compressed_files_are_read(tmp_path):
    text = "B\té\n".encode()
    (tmp_path / "a.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.xz").write_bytes(lzma.compress(text))
    for name in ("a.gz", "a.xz"):
        (sequence,) = read_tagged(tmp_path / name)
        assert sequence.positions == [{"é": 1}]


def test_sequences_come_as_they_are_read():
    def lines():
        yield from ("B\ta", "", "B\tb", "")
        raise AssertionError("nobody asked for more")

    assert [s.labels for s in islice(parse_tagged(lines()), 2)] == [["B"], ["B"]]


@pytest.mark.parametrize(
    ("positions", "labels", "message"),
    [
        ([[]], [[]], "at least one position"),
        ([[{"a": 1.0}]], [["B", "I"]], "1 positions and 2 labels in sequence 0"),
        ([[{"a": 1.0}]], [], "those of 1 sequences. Got 0"),
        ([[{"a": float("nan")}]], [["B"]], "finite value"),
        ([[{"": 1.0}]], [["B"]], "must have a name"),
        ([[{"a": 1.0}]], [["b c"]], "no spaces"),
        ([[{"a": 1.0}]], [[""]], "at least one letter"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, positions, labels, message):
    with pytest.raises(ArgumentError, match=message):
        write_tagged(tmp_path / "a.tsv", positions, labels)
    assert not list(tmp_path.iterdir())


COLUMNS = "The DT B-NP\ncat  NN\tI-NP\nsat VBD B-VP \n\nYes UH O\n"


def test_columns_become_features():
    cat, yes = read(COLUMNS, "conll")
    assert (cat.labels, yes.labels) == (["B-NP", "I-NP", "B-VP"], ["O"])
    here = cat.positions[1]
    assert set(here.values()) == {1.0}
    for name in (
        "word=cat",
        "lower[-1]=the",
        "lower[+1]=sat",
        "suffix=at",
        "shape=x",
        "shape[-1]=Xx",
        "column1=NN",
        "column1[-1,0]=DT|NN",
    ):
        assert name in here
    # The label is no feature.
    assert not [name for position in cat.positions for name in position if "-NP" in name]
    assert "lower[-1]=" in cat.positions[0]


def test_columns_without_labels():
    words, tagged = read("the\ncat\n\nthe DT ?\ncat NN ?\n", "conll")
    assert words.labels is tagged.labels is None
    assert "column1=NN" in tagged.positions[1]
    assert "word=cat" in words.positions[1]


def test_columns_may_be_known():
    given = ["the DT", "cat NN", "", "the DT B", "cat NN I"]
    plain, tagged = parse_tagged(given, form="conll", columns=2)
    assert (plain.labels, tagged.labels) == (None, ["B", "I"])
    assert plain.positions == tagged.positions
    assert columns_of(name for position in plain.positions for name in position) == 2


def test_columns_must_be_as_many_on_each_line():
    with pytest.raises(FileError, match=r"data.tsv:2: .* Got 2 after 3"):
        read("the DT B\ncat NN\n", "conll")


def test_features_depend_on_neighbours_only():
    rows = [[word, "T"] for word in "abcdefg"]
    whole = column_features(rows)
    assert whole[3] == column_features(rows[1:6])[2]
    assert shape("U.S.") == "X.X."
