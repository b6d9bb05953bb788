"""`Parse`: one analysis of a sentence, in terms of the rules of the grammar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from inout.grammars.rule import Rule, Symbol, Terminal
from inout.grammars.table import RuleTable

if TYPE_CHECKING:
    from nltk.tree import Tree


@dataclass(frozen=True, eq=False)
class Parse:
    """A tree of a sentence and its weight; without a tree, the reason why there is none."""

    words: tuple[str, ...]
    """The words as they were given."""

    tree: Tree | None
    """The tree, with the words as given for leaves."""

    log_weight: float
    """The sum of the log-weights of its rules; −inf where they do not make such a tree."""

    rules: tuple[int, ...] | None = None
    """The numbers of its rules, as a leftmost derivation uses them; None if no rules make it."""

    reason: str | None = None
    """Why there is no tree."""

    unknown: tuple[str, ...] = ()
    """The words of the sentence that the grammar does not have, classes aside."""

    log_partition: Callable[[], float] = field(default=lambda: -np.inf, repr=False)
    """The log of the weight of all trees of the sentence, computed when called."""

    @property
    def log_prob(self) -> float:
        """The log of the probability of the tree given the sentence."""
        return self.log_weight - self.log_partition() if self.tree is not None else -np.inf

    def __str__(self) -> str:
        return str(self.tree) if self.tree is not None else f"no tree: {self.reason}"


def tree_of(table: RuleTable, rules: Sequence[int], words: Sequence[str]) -> Tree:
    """The tree of a leftmost derivation over these words; O(number of nodes).

    >>> from inout.grammars.rule import Rule, Symbol, Terminal
    >>> table = RuleTable.of("S", [Rule("S", ("A", Terminal("b"))), Rule("A", ())])
    >>> print(tree_of(table, [0, 1], ["B"]))
    (S (A ) B)
    """
    from nltk.tree import Tree

    numbers, leaves = iter(rules), iter(words)
    top: list[Tree | str] = []
    # Places still to fill: where to append, and the symbol.
    agenda: list[tuple[list[Tree | str], int]] = [(top, 0)]
    while agenda:
        siblings, symbol = agenda.pop()
        if symbol < 0:
            siblings.append(next(leaves))
            continue
        rule = next(numbers)
        node = Tree(table.nonterminals[symbol], [])
        siblings.append(node)
        agenda.extend((node, child) for child in reversed(table.right_side(rule)))
    tree = top[0]
    assert isinstance(tree, Tree)  # the start symbol's
    return tree


def leaves_of(tree: Tree) -> list[str]:
    """The words of a tree, however deep (nltk's `leaves` calls itself)."""
    words: list[str] = []
    agenda: list[Tree | str] = [tree]
    while agenda:
        node = agenda.pop()
        if isinstance(node, str):
            words.append(node)
        else:
            agenda.extend(reversed(node))
    return words


def rules_of(table: RuleTable, tree: Tree, words: Sequence[str] | None = None) -> list[int] | None:
    """The leftmost derivation of a tree, None where the grammar does not have a rule of it.

    `words` are terminals to read in place of the leaves, as for words that stand for a class.

    >>> from nltk.tree import Tree
    >>> from inout.grammars.rule import Rule, Symbol, Terminal
    >>> table = RuleTable.of("S", [Rule("S", ("A", Terminal("b"))), Rule("A", ())])
    >>> rules_of(table, Tree("S", [Tree("A", []), "b"]))
    [0, 1]
    """
    terminals = iter(leaves_of(tree) if words is None else words)
    rows: list[tuple[str, list[Symbol]]] = []  # parents first, left before right
    agenda: list[tuple[Tree | str, list[Symbol]]] = [(tree, [])]
    while agenda:
        node, siblings = agenda.pop()
        if isinstance(node, str):
            siblings.append(Terminal(next(terminals)))
            continue
        siblings.append(node.label())
        right: list[Symbol] = []
        rows.append((node.label(), right))
        agenda.extend((child, right) for child in reversed(node))
    numbers = [table.rule_numbers.get(Rule(lhs, tuple(rhs))) for lhs, rhs in rows]
    found = [number for number in numbers if number is not None]
    whole = len(found) == len(numbers) and tree.label() == table.start
    return found if whole else None
