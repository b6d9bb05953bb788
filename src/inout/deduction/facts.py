"""`Facts`: the rows of a given relation with their log-weights; constants as 64-bit codes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import as_log_weights
from inout._core.errors import ArgumentError, GroundingError
from inout.deduction.syntax import Constant, Nil
from inout.kernels.math.interning import RowTable

Codes = NDArray[np.int64]

# Integers stand for themselves below 2**40 in size; the rest of the range is shared out.
INTEGER_LIMIT = 2**40
FIRST_STRING = 2**40
NIL_CODE = 2**41
FIRST_PAIR = 2**41 + 1
Value = str | int


class Vocabulary:
    """Codes of strings and lists; grows as programs build new lists."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {}
        self._spelling: list[str] = []
        self._pairs = RowTable(arity=2)

    def string(self, value: str) -> int:
        """The code of a string."""
        code = self._strings.get(value)
        if code is None:
            code = self._strings[value] = FIRST_STRING + len(self._spelling)
            self._spelling.append(value)
        return code

    def constant(self, argument: Constant | Nil) -> int:
        """The code of a constant of a program."""
        if isinstance(argument, Nil):
            return NIL_CODE
        value = argument.value
        if isinstance(value, str):
            return self.string(value)
        if abs(value) >= INTEGER_LIMIT:
            raise GroundingError(
                f"integers in programs must be smaller than 2**40 in size. Got {value} "
                f"({argument.position})"
            )
        return value

    def pairs(self, heads: Codes, tails: Codes) -> Codes:
        """Codes of the lists [head|tail]."""
        return FIRST_PAIR + self._pairs.add(np.stack([heads, tails], axis=1))

    def split(self, codes: Codes) -> tuple[Codes, Codes, NDArray[np.bool_]]:
        """(heads, tails, is a nonempty list); heads and tails are 0 where it is not."""
        is_pair = codes >= FIRST_PAIR
        rows = self._pairs.rows
        places = np.where(is_pair, codes - FIRST_PAIR, 0)
        if not len(rows):
            return np.zeros_like(codes), np.zeros_like(codes), is_pair
        return rows[places, 0], rows[places, 1], is_pair

    def decode(self, code: int) -> Hashable:
        """The value of a code: an int, a str, or a tuple for a list."""
        if code < FIRST_STRING:
            return code
        if code < NIL_CODE:
            return self._spelling[code - FIRST_STRING]
        elements = []
        while code >= FIRST_PAIR:
            head, code = (int(c) for c in self._pairs.rows[code - FIRST_PAIR])
            elements.append(self.decode(head))
        if code != NIL_CODE:
            elements.append(("|", self.decode(code)))
        return tuple(elements)


@dataclass(frozen=True)
class Block:
    """The rows of one arity: which rows of the facts they are, and their values as codes."""

    places: NDArray[np.int64]  # [m]
    codes: NDArray[np.int64]  # [m, arity]; strings coded by their place in `Facts.strings`


class Facts:
    """Rows of strings and integers, and a log-weight for each (0 where none are given).

    Rows may differ in length where a program uses the relation with several arities. Two equal
    rows are two facts. Rows are coded once here, so keep a `Facts` and use it again.

    >>> rule = Facts([("S", "NP", "VP"), ("NP", "she")], log_weights=[-0.1, -2.3])
    >>> rule
    Facts(2 rows)
    """

    def __init__(
        self,
        rows: Sequence[Sequence[Value]] | NDArray[np.int64],
        log_weights: Tensor | Sequence[float] | NDArray[np.float64] | None = None,
    ) -> None:
        self.rows = rows
        self.weighted = log_weights is not None
        self.log_weights: Float[Tensor, " rows"] = as_log_weights(
            "log_weights", log_weights, len(rows)
        )
        self.strings, self.blocks = _encode(rows)

    @staticmethod
    def of(
        given: Facts
        | Mapping[tuple[Value, ...], float]
        | Mapping[Value, float]
        | Iterable[Sequence[Value]]
        | NDArray[np.int64],
    ) -> Facts:
        """Facts from a mapping {row: log-weight}, or from rows alone."""
        if isinstance(given, Facts):
            return given
        if isinstance(given, Mapping):
            rows = [row if isinstance(row, tuple) else (row,) for row in given]
            return Facts(rows, list(given.values()))
        return Facts(given if isinstance(given, np.ndarray) else list(given))

    def with_log_weights(self, log_weights: Tensor) -> Facts:
        """The same rows with other log-weights; nothing is coded again."""
        same = copy(self)
        same.weighted = True
        same.log_weights = as_log_weights("log_weights", log_weights, len(self.rows))
        return same

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Facts({len(self)} rows)"

    def coded(self, vocabulary: Vocabulary) -> dict[int, Block]:
        """The rows by arity, coded in a program's vocabulary."""
        spelling = np.array([vocabulary.string(s) for s in self.strings], dtype=np.int64)
        blocks = {}
        for arity, block in self.blocks.items():
            codes = block.codes
            if len(spelling):
                is_string = codes >= FIRST_STRING
                place = np.where(is_string, codes - FIRST_STRING, 0)
                codes = np.where(is_string, spelling[place], codes)
            blocks[arity] = Block(block.places, codes)
        return blocks


def _encode(
    rows: Sequence[Sequence[Value]] | NDArray[np.int64],
) -> tuple[list[str], dict[int, Block]]:
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind in "iu":
        codes = rows.astype(np.int64)
        if (np.abs(codes) >= INTEGER_LIMIT).any():
            raise ArgumentError("facts", ": integers must be smaller than 2**40 in size")
        return [], {rows.shape[1]: Block(np.arange(len(rows)), codes)}
    spelling: dict[str, int] = {}
    places: dict[int, list[int]] = {}
    values: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Iterable):
            raise ArgumentError("facts", f"must be a tuple of values. Got {row!r} at row {place}")
        coded = []
        for value in row:
            if isinstance(value, str):
                coded.append(FIRST_STRING + spelling.setdefault(value, len(spelling)))
            elif isinstance(value, int | np.integer) and not isinstance(value, bool):
                if abs(int(value)) >= INTEGER_LIMIT:
                    wanted = "integers must be smaller than 2**40 in size"
                    raise ArgumentError("facts", f": {wanted}. Got {value} at row {place}")
                coded.append(int(value))
            else:
                raise ArgumentError(
                    "facts", f"hold strings and integers. Got {value!r} at row {place}"
                )
        places.setdefault(len(coded), []).append(place)
        values.setdefault(len(coded), []).extend(coded)
    blocks = {
        arity: Block(
            np.array(at, dtype=np.int64),
            np.array(values[arity], dtype=np.int64).reshape(len(at), arity),
        )
        for arity, at in places.items()
    }
    return list(spelling), blocks
