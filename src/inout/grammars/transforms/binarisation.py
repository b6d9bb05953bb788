"""Binarisation: right sides of at most two symbols, terminals only by themselves."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from inout.grammars.table import RuleTable, table_of_numbers
from inout.grammars.transforms.base import RuleTransform, Vector, single_pieces
from inout.grammars.transforms.pieces import Pieces


class Binarisation(RuleTransform):
    """Rules of at most two symbols: A -> B C, A -> B, A -> 'a', A ->.

    Rule A -> X Y Z becomes A -> X ⟨Y Z⟩ and ⟨Y Z⟩ -> Y Z. Rules that end alike share the new
    symbols. A terminal 'a' beside other symbols becomes ⟨'a'⟩ with the rule ⟨'a'⟩ -> 'a'. Only
    the first part of a rule has a weight: new rule i < r is old rule i, the others weigh 1.
    """

    def __init__(self, source: RuleTable) -> None:
        self.source = source
        builder = _Symbols(source)
        lhs, sides = source.lhs.tolist(), []
        rhs, offsets = source.rhs.tolist(), source.offsets.tolist()
        for number in range(len(source)):
            right = rhs[offsets[number] : offsets[number + 1]]
            sides.append(builder.shortened(right) if len(right) > 1 else right)
        size = len(sides)
        for head, right in builder.rules:
            lhs.append(head)
            sides.append(right)
        self.table = table_of_numbers(source.start, builder.names, source.terminals, lhs, sides)
        new = np.full(len(lhs) - size, -1)
        self.original: NDArray[np.int64] = np.concatenate([np.arange(size), new])

    def log_weights(self, old: Float[Tensor, "*c r"]) -> Float[Tensor, "*c k"]:
        extra = len(self.table) - len(self.source)
        return old if extra == 0 else pad(old, (0, extra))

    def best_log_weights(self, old: Vector) -> Vector:
        return np.concatenate([old, np.zeros(len(self.table) - len(self.source))])

    def pieces(self, old: Vector) -> Pieces:
        return single_pieces(self.table, self.original, old)


class _Symbols:
    """The new symbols and their rules."""

    def __init__(self, source: RuleTable) -> None:
        self.source = source
        self.names = list(source.nonterminals)
        self.rules: list[tuple[int, list[int]]] = []
        self._taken = set(self.names)
        self._numbers: dict[tuple[int, ...], int] = {}

    def shortened(self, right: list[int]) -> list[int]:
        """The two symbols in place of a right side of two or more."""
        first = self._number((right[0],)) if right[0] < 0 else right[0]
        rest = right[1:]
        last = rest[0] if len(rest) == 1 and rest[0] >= 0 else self._number(tuple(rest))
        return [first, last]

    def _number(self, right: tuple[int, ...]) -> int:
        """The new symbol that has these below it."""
        # A loop, not recursion: right sides may be longer than Python's stack is deep.
        pending = []
        while right not in self._numbers:
            number = len(self.names)
            self._numbers[right] = number
            self.names.append(self._name(right))
            pending.append((number, right))
            if len(right) == 1 or (len(right) == 2 and right[1] >= 0):
                break
            right = right[1:]
        for number, symbols in reversed(pending):
            side = list(symbols) if len(symbols) == 1 else self.shortened(list(symbols))
            self.rules.append((number, side))
        return pending[0][0] if pending else self._numbers[right]

    def _name(self, right: tuple[int, ...]) -> str:
        shown = (self.source.symbol(n) for n in right)
        name = "⟨" + " ".join(s if isinstance(s, str) else repr(s.text) for s in shown) + "⟩"
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name
