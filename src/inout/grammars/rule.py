"""`Rule` and its symbols: a nonterminal is a string, a terminal is a `Terminal`."""

from __future__ import annotations

from dataclasses import dataclass


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
        """The number of symbols on the right side."""
        return len(self.rhs)

    @property
    def is_lexical(self) -> bool:
        """Whether the right side is exactly one terminal."""
        return len(self.rhs) == 1 and isinstance(self.rhs[0], Terminal)
