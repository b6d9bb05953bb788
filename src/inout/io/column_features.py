"""Standard features of words in columns, so that a tagger needs no code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_LONGEST_AFFIX = 4
_NEIGHBOURS = (-2, -1, 1, 2)
_COLUMN = re.compile(r"column([0-9]+)=")
_RUN = re.compile(r"(.)\1+")


def column_features(rows: Sequence[Sequence[str]]) -> list[dict[str, float]]:
    """The features of each position of a sequence; its first column is the word.

    Of the word itself: the word, its lower-case form, its prefixes and suffixes of one to four
    letters, its shape; of up to two words on either side: the lower-case form, and the shape of
    the nearest. Of other columns: the values here and on both sides, and pairs of neighbours. A
    missing neighbour is a feature too. O(number of words).

    >>> first, _ = column_features([["Paris", "NNP"], ["sleeps", "VBZ"]])
    >>> {"word=Paris", "shape=Xx", "suffix=is", "lower[+1]=sleeps", "column1=NNP"} <= set(first)
    True
    """
    shapes = [shape(row[0]) for row in rows]
    return [dict.fromkeys(_features(rows, shapes, here), 1.0) for here in range(len(rows))]


def columns_of(names: Iterable[str]) -> int:
    """The number of columns of the sequences that these features come from.

    >>> columns_of(column_features([["Paris", "NNP"]])[0]), columns_of(["word=Paris"])
    (2, 1)
    """
    found = (_COLUMN.match(name) for name in names)
    return 1 + max((int(match[1]) for match in found if match), default=0)


def shape(word: str) -> str:
    """The shape of a word: its kinds of characters, without repetition.

    >>> shape("McDonald"), shape("F-16"), shape("été")
    ('XxXx', 'X-d', 'x')
    """
    kinds = "".join(
        "d" if c.isdigit() else "X" if c.isupper() else "x" if c.isalpha() else c for c in word
    )
    return _RUN.sub(r"\1", kinds)


def _features(rows: Sequence[Sequence[str]], shapes: Sequence[str], here: int) -> list[str]:
    word = rows[here][0]
    lower = word.lower()
    names = ["bias", f"word={word}", f"lower={lower}", f"shape={shapes[here]}"]
    for size in range(1, min(_LONGEST_AFFIX, len(lower)) + 1):
        names += [f"prefix={lower[:size]}", f"suffix={lower[-size:]}"]
    for offset in _NEIGHBOURS:
        names.append(f"lower[{offset:+}]={_at(rows, here + offset, 0).lower()}")
    for offset in (-1, 1):
        if 0 <= here + offset < len(rows):
            names.append(f"shape[{offset:+}]={shapes[here + offset]}")
    for column in range(1, len(rows[here])):
        before, now, after = (_at(rows, here + offset, column) for offset in (-1, 0, 1))
        names += [
            f"column{column}={now}",
            f"column{column}[-1]={before}",
            f"column{column}[+1]={after}",
            f"column{column}[-1,0]={before}|{now}",
            f"column{column}[0,+1]={now}|{after}",
        ]
    return names


def _at(rows: Sequence[Sequence[str]], here: int, column: int) -> str:
    """The value at a place; nothing beyond the ends."""
    return rows[here][column] if 0 <= here < len(rows) else ""
