"""Constants as 64-bit codes, so that joins and arithmetic run on plain integer columns."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import GroundingError
from inout.deduction.syntax import Constant, Nil
from inout.kernels.math.interning import RowTable

Codes = NDArray[np.int64]

# Integers stand for themselves below 2**40 in size; the rest of the range is shared out.
INTEGER_LIMIT = 2**40
FIRST_STRING = 2**40
NIL_CODE = 2**41
FIRST_PAIR = 2**41 + 1


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
