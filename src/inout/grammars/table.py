"""`Rule` and its symbols; `RuleTable`: the rules of a grammar as a few arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import expect
from inout._core.errors import ArgumentError

_Array = TypeVar("_Array", bound=np.ndarray)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal symbol, distinct from a nonterminal of the same name.

    >>> Terminal("dog")
    Terminal('dog')
    >>> Terminal("NP") == "NP"
    False
    """

    text: str

    def __repr__(self) -> str:
        return f"Terminal({self.text!r})"


# Nonterminals are plain strings, as are the labels of trees.
Symbol = str | Terminal


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule `lhs -> rhs`; the right side may be empty and may mix both kinds of symbols.

    >>> rule = Rule("NP", (Terminal("the"), "N"))
    >>> str(rule), rule.arity
    ("NP -> 'the' N", 2)
    """

    lhs: str
    rhs: tuple[Symbol, ...]

    def __str__(self) -> str:
        right = (repr(s.text) if isinstance(s, Terminal) else s for s in self.rhs)
        return " ".join([self.lhs, "->", *right])

    @property
    def arity(self) -> int:
        return len(self.rhs)

    @property
    def is_lexical(self) -> bool:
        """Whether the right side is exactly one terminal."""
        return len(self.rhs) == 1 and isinstance(self.rhs[0], Terminal)


@dataclass(frozen=True, eq=False, repr=False)
class RuleTable(Sequence[Rule]):
    """Distinct rules in order, stored as numbers; `Rule` objects are made lazily.

    Nonterminals and terminals are numbered in order of first use, except that the start symbol
    is nonterminal 0. In `rhs` the number n ≥ 0 is nonterminal n and −1−n terminal n.
    r rules with t right-side symbols take 12 r + 4 t bytes and the text of the symbols.

    >>> table = RuleTable.of("S", [Rule("S", ("S", Terminal("a"))), Rule("S", ())])
    >>> table.lhs.tolist(), table.offsets.tolist(), table.rhs.tolist()
    ([0, 0], [0, 2, 2], [0, -1])
    >>> str(table[0]), len(table)
    ("S -> S 'a'", 2)
    """

    start: str
    nonterminals: tuple[str, ...]
    terminals: tuple[str, ...]
    lhs: NDArray[np.int32]  # [r]
    offsets: NDArray[np.int64]  # [r+1]: the right side of rule i is rhs[offsets[i]:offsets[i+1]]
    rhs: NDArray[np.int32]  # [t]

    @staticmethod
    def of(start: str, rules: Iterable[Rule]) -> RuleTable:
        """The table of these rules in order; duplicate rules raise ArgumentError."""
        if isinstance(rules, RuleTable) and rules.start == start:
            return rules
        builder = TableBuilder()
        for number, rule in enumerate(rules):
            lhs, rhs = builder.nonterminal(_name(rule)), tuple(map(builder.symbol, rule.rhs))
            first = builder.add(lhs, rhs)
            if first is not None:
                given = f"{rule} as rule {first} and as rule {number}"
                raise ArgumentError("rules", f"must differ. Got {given}")
        return builder.table(start)

    @cached_property
    def arities(self) -> NDArray[np.int64]:
        """The length of each right side: [r]."""
        return _frozen(np.diff(self.offsets))

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The rule that each symbol of `rhs` belongs to: [t]."""
        return _frozen(np.repeat(np.arange(len(self)), self.arities))

    @cached_property
    def inner_counts(self) -> list[int]:
        """The number of nonterminals on each right side: [r]."""
        inner = np.bincount(self.owners, weights=self.rhs >= 0, minlength=len(self))
        counts: list[int] = inner.astype(np.int64).tolist()
        return counts

    @cached_property
    def rule_numbers(self) -> dict[Rule, int]:
        return {rule: number for number, rule in enumerate(self)}

    def select(self, numbers: NDArray[np.int64]) -> RuleTable:
        """The table of these rules alone, in this order, with the same start symbol."""
        arities = self.arities[numbers]
        offsets = np.concatenate([[0], np.cumsum(arities)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[numbers] - offsets[:-1], arities)
        return _numbered(
            self.start,
            self.nonterminals,
            self.terminals,
            self.lhs[numbers],
            offsets,
            self.rhs[places],
        )

    def right_side(self, rule: int) -> list[int]:
        """The right side of a rule in numbers of symbols."""
        numbers: list[int] = self.rhs[self.offsets[rule] : self.offsets[rule + 1]].tolist()
        return numbers

    def symbol(self, number: int) -> Symbol:
        """The symbol that a number in `rhs` stands for."""
        return self.nonterminals[number] if number >= 0 else Terminal(self.terminals[-1 - number])

    @overload
    def __getitem__(self, index: SupportsIndex) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Rule, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Rule | tuple[Rule, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        number = range(len(self))[index]
        right = self.rhs[self.offsets[number] : self.offsets[number + 1]]
        lhs = self.nonterminals[self.lhs[number]]
        return Rule(lhs, tuple(self.symbol(int(n)) for n in right))

    def __iter__(self) -> Iterator[Rule]:
        for lhs, rhs in self.named():
            yield Rule(lhs, rhs)

    def named(self) -> Iterator[tuple[str, tuple[Symbol, ...]]]:
        """Left side and right side of every rule; faster than indexing."""
        terminals = [Terminal(text) for text in self.terminals]
        rhs = [self.nonterminals[n] if n >= 0 else terminals[-1 - n] for n in self.rhs.tolist()]
        offsets = self.offsets.tolist()
        for number, lhs in enumerate(self.lhs.tolist()):
            yield self.nonterminals[lhs], tuple(rhs[offsets[number] : offsets[number + 1]])

    def __len__(self) -> int:
        return len(self.lhs)

    def __contains__(self, rule: object) -> bool:
        return rule in self.rule_numbers

    def __eq__(self, other: object) -> bool:
        # Symbols are numbered by the rules, so equal tables have equal arrays.
        return self is other or (
            isinstance(other, RuleTable)
            and self.nonterminals == other.nonterminals
            and self.terminals == other.terminals
            and np.array_equal(self.lhs, other.lhs)
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.rhs, other.rhs)
        )

    def __hash__(self) -> int:
        return hash((self.nonterminals, self.terminals, len(self)))

    def __repr__(self) -> str:
        return f"RuleTable({len(self)} rules)"


class TableBuilder:
    """Collects rules for a `RuleTable`, and finds duplicates."""

    def __init__(self) -> None:
        self._nonterminals: dict[str, int] = {}
        self._terminals: dict[str, int] = {}
        self._rules: dict[tuple[int, ...], int] = {}

    def nonterminal(self, name: str) -> int:
        """The number of a nonterminal, a new one where it has none."""
        return self._nonterminals.setdefault(name, len(self._nonterminals))

    def terminal(self, text: str) -> int:
        """The number of a terminal, a new one where it has none; it is negative."""
        return -1 - self._terminals.setdefault(text, len(self._terminals))

    def symbol(self, symbol: Symbol) -> int:
        """The number of a symbol of either kind."""
        if isinstance(symbol, Terminal) and isinstance(symbol.text, str):
            return self.terminal(symbol.text)
        expect(isinstance(symbol, str), "rules", ": a symbol must be a str or a Terminal", symbol)
        return self.nonterminal(str(symbol))

    def add(self, lhs: int, rhs: tuple[int, ...]) -> int | None:
        """None for a new rule; the number of a duplicate."""
        first = self._rules.setdefault((lhs, *rhs), number := len(self._rules))
        return None if first == number else first

    def __len__(self) -> int:
        return len(self._rules)

    def table(self, start: str) -> RuleTable:
        start_number = self.nonterminal(start)
        flat = np.array([n for rule in self._rules for n in rule], dtype=np.int32)
        lengths = np.array([len(rule) for rule in self._rules], dtype=np.int64)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        offsets = ends - np.arange(len(ends))
        return _numbered(
            start,
            tuple(self._nonterminals),
            tuple(self._terminals),
            flat[ends[:-1]],
            offsets,
            np.delete(flat, ends[:-1]),
            start_number,
        )


def table_of_numbers(
    start: str,
    nonterminals: Sequence[str],
    terminals: Sequence[str],
    lhs: Sequence[int],
    sides: Sequence[Sequence[int]],
) -> RuleTable:
    """The table of distinct rules given by numbers of symbols; the start symbol is number 0."""
    arities = np.fromiter(map(len, sides), np.int64, len(sides))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(arities)])
    rhs = np.fromiter((n for side in sides for n in side), np.int32, int(offsets[-1]))
    heads = np.array(lhs, dtype=np.int32)
    return _numbered(start, tuple(nonterminals), tuple(terminals), heads, offsets, rhs)


def _numbered(
    start: str,
    nonterminals: tuple[str, ...],
    terminals: tuple[str, ...],
    lhs: NDArray[np.int32],
    offsets: NDArray[np.int64],
    rhs: NDArray[np.int32],
    start_number: int = 0,
) -> RuleTable:
    """The table with its symbols numbered by first mention, and without those never mentioned."""
    mentions = np.insert(rhs, offsets[:-1], lhs)
    first = np.array([start_number], dtype=np.int32)
    used = _by_first_mention(np.concatenate([first, mentions[mentions >= 0]]))
    words = _by_first_mention(-1 - mentions[mentions < 0])
    new = np.zeros(len(nonterminals), dtype=np.int32)
    new[used] = np.arange(len(used))
    new_words = np.zeros(len(terminals) + 1, dtype=np.int32)
    new_words[words] = np.arange(len(words))
    return RuleTable(
        start,
        tuple(nonterminals[n] for n in used.tolist()),
        tuple(terminals[n] for n in words.tolist()),
        _frozen(new[lhs]),
        _frozen(offsets.astype(np.int64)),
        _frozen(
            np.where(rhs >= 0, new[np.maximum(rhs, 0)], -1 - new_words[np.maximum(-1 - rhs, 0)])
        ),
    )


def _by_first_mention(mentions: NDArray[np.int32]) -> NDArray[np.int32]:
    values, first = np.unique(mentions, return_index=True)
    return values[np.argsort(first)]


def _frozen(array: _Array) -> _Array:
    array.flags.writeable = False
    return array


def _name(rule: Rule) -> str:
    good = isinstance(rule, Rule) and isinstance(rule.lhs, str)
    expect(good, "rules", "must be Rules whose lhs is a str", rule)
    wanted = ": the rhs of a rule must be a tuple of symbols"
    expect(isinstance(rule.rhs, tuple), "rules", wanted, rule.rhs)
    return rule.lhs
