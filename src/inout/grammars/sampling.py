"""Trees and sentences drawn from a grammar, from the start symbol down."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch

from inout._core.checks import at_least
from inout._core.errors import ArgumentError, Remedy
from inout._core.randomness import checked_generator, drawn
from inout.grammars.derivations import leaves
from inout.grammars.diagnostics import consistency, expected
from inout.grammars.grammar import Grammar
from inout.grammars.tree import PlainTree, Tree, as_nltk

MAX_RULES = 1_000_000
"""The maximum number of rules in one tree."""

# Random numbers are drawn in blocks: single draws would dominate the time.
_BLOCK = 4096


def sample_trees(
    grammar: Grammar,
    n: int,
    *,
    generator: torch.Generator | None = None,
    max_rules: int = MAX_RULES,
) -> list[Tree]:
    """n independent trees of a PCFG, each with probability ∏ p(rule).

    Inner nodes are nonterminals, leaves terminals; an empty rule is a node without children. The
    grammar must be proper, and its trees must have total probability 1 and a finite expected
    size: `grammar.normalised()` makes such a grammar from any whose weights have a finite sum.
    `generator` makes them reproducible (by default torch's own is used); with the same seed, the
    first trees are the same for every n. O(rules of the trees).

    >>> grammar = Grammar.from_text("S -> 'a' S [0.5] | 'b' [0.5]")
    >>> generator = torch.Generator().manual_seed(4)
    >>> for tree in sample_trees(grammar, 3, generator=generator):
    ...     print(tree)
    (S a (S b))
    (S a (S b))
    (S b)
    """
    return [as_nltk(tree) for tree in _drawn(grammar, n, generator, max_rules)]


def sample_sentences(
    grammar: Grammar,
    n: int,
    *,
    generator: torch.Generator | None = None,
    max_rules: int = MAX_RULES,
) -> list[list[str]]:
    """The words of `sample_trees` of the same arguments.

    >>> grammar = Grammar.from_text("S -> 'a' S [0.5] | 'b' [0.5]")
    >>> sample_sentences(grammar, 3, generator=torch.Generator().manual_seed(4))
    [['a', 'b'], ['a', 'b'], ['b']]
    """
    return [leaves(tree) for tree in _drawn(grammar, n, generator, max_rules)]


def _drawn(
    grammar: Grammar, n: int, generator: torch.Generator | None, max_rules: int
) -> Iterator[PlainTree]:
    at_least("n", n, 0)
    at_least("max_rules", max_rules, 1)
    return islice(iterate_trees(grammar, generator=generator, max_rules=max_rules), n)


def iterate_trees(
    grammar: Grammar, *, generator: torch.Generator | None = None, max_rules: int = MAX_RULES
) -> Iterator[PlainTree]:
    """An endless iterator of trees as `sample_trees` draws them."""
    check_samplable(grammar)
    choices = _choices(grammar)
    right_sides = [symbols for _, symbols in grammar.rules.named()]
    numbers_below_one = _uniform(generator)
    while True:
        root = PlainTree(grammar.start)
        agenda = [root]
        used = 0
        while agenda:
            node = agenda.pop()
            sums, rules = choices[node.label()]
            rule = rules[bisect_right(sums, next(numbers_below_one))]
            used += 1
            if used > max_rules:
                raise ArgumentError(
                    "max_rules",
                    f"must be larger for this grammar: a tree needs more than "
                    f"{max_rules} rules, {expected(grammar).rules:.4g} are expected",
                )
            below = []
            for symbol in right_sides[rule]:
                if isinstance(symbol, str):
                    child = PlainTree(symbol)
                    below.append(child)
                    node.append(child)
                else:
                    node.append(symbol.text)
            agenda.extend(reversed(below))
        yield root


def _choices(grammar: Grammar) -> dict[str, tuple[list[float], list[int]]]:
    """For each nonterminal its possible rules, and up to which number each one is chosen."""
    probabilities = np.exp(grammar.numpy_log_weights)
    choices = {}
    for name, numbers in grammar.rules_by_left_side.items():
        possible = numbers[probabilities[numbers] > 0]
        sums = np.cumsum(probabilities[possible])
        # They sum to 1 up to rounding; a number below 1 must always find a rule.
        choices[name] = ((sums / sums[-1:]).tolist(), possible.tolist())
    return choices


def check_samplable(grammar: Grammar) -> None:
    """Raise an ArgumentError with reason and remedy if trees cannot be drawn."""
    found = consistency(grammar)
    remedy = Remedy.NORMALISE
    if not found.proper:
        raise ArgumentError(
            None,
            "the weights of the rules of each left side must sum to 1 to draw from them. "
            "Got a grammar where they do not",
            remedy=remedy,
        )
    if found.leaking:
        none = f"none for {', '.join(found.leaking[:5])}"
        raise ArgumentError(
            None,
            f"every nonterminal that is met must have a finite tree. Got {none}",
            remedy=remedy,
        )
    if found.consistent is False:
        raise ArgumentError(
            None,
            "the probabilities of all finite trees must sum to 1, or sampling may never end. "
            f"Got a spectral radius of {found.spectral_radius:.6g}, above 1",
            remedy=remedy,
        )
    if found.consistent is None or not np.isfinite(expected(grammar).rules):
        raise ArgumentError(
            None,
            "the expected number of rules in a tree must be finite. Got a grammar where it is "
            f"infinite (spectral radius {found.spectral_radius:.6g})",
        )


def _uniform(generator: torch.Generator | None) -> Iterator[float]:
    """An endless iterator of numbers in [0, 1)."""
    source = checked_generator(generator)
    while True:
        yield from drawn(torch.rand, source, _BLOCK).tolist()
