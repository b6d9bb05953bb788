"""Conversion between trees and leftmost derivations by the rules of a table."""

from __future__ import annotations

from collections.abc import Sequence

from inout.grammars.table import Rule, RuleTable, Symbol, Terminal
from inout.grammars.tree import PlainTree, Tree


def tree_of(table: RuleTable, rules: Sequence[int], words: Sequence[str]) -> PlainTree:
    """The tree of a leftmost derivation over these words; O(number of nodes).

    >>> from inout.grammars.table import Rule, Symbol, Terminal
    >>> table = RuleTable.of("S", [Rule("S", ("A", Terminal("b"))), Rule("A", ())])
    >>> tree_of(table, [0, 1], ["B"])
    PlainTree('S', [PlainTree('A', []), 'B'])
    """
    numbers, rest = iter(rules), iter(words)
    top: list[PlainTree | str] = []
    # Places still to fill: where to append, and the symbol.
    agenda: list[tuple[list[PlainTree | str], int]] = [(top, 0)]
    while agenda:
        siblings, symbol = agenda.pop()
        if symbol < 0:
            siblings.append(next(rest))
            continue
        rule = next(numbers)
        node = PlainTree(table.nonterminals[symbol], [])
        siblings.append(node)
        agenda.extend((node, child) for child in reversed(table.right_side(rule)))
    tree = top[0]
    assert isinstance(tree, PlainTree)  # the start symbol's
    return tree


def leaves(tree: Tree) -> list[str]:
    """The words of the tree from left to right, however deep it is (nltk's `leaves` recurses).

    >>> from nltk.tree import Tree
    >>> leaves(Tree.fromstring("(S (NP (PRP she)) (VP (VBD slept)))"))
    ['she', 'slept']
    """
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
    """The leftmost derivation of a tree, None if the grammar lacks one of its rules.

    `words` are terminals that replace the leaves, such as classes of unknown words.

    >>> from nltk.tree import Tree
    >>> from inout.grammars.table import Rule, Symbol, Terminal
    >>> table = RuleTable.of("S", [Rule("S", ("A", Terminal("b"))), Rule("A", ())])
    >>> rules_of(table, Tree("S", [Tree("A", []), "b"]))
    [0, 1]
    """
    terminals = iter(leaves(tree) if words is None else words)
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
