"""A probabilistic grammar read off a treebank: relative frequencies, with classes of rare words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TypeVar

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.grammars.derivations import leaves
from inout.grammars.markovisation import Markovisation
from inout.grammars.table import Rule, Terminal
from inout.grammars.tree import Tree, is_preterminal, preorder
from inout.grammars.treebank.annotation import markovise
from inout.grammars.treebank.cleaning import clean as cleaned
from inout.grammars.treebank.cleaning import with_root
from inout.grammars.words import Vocabulary

R = TypeVar("R", str, tuple[str, ...])  # a word, or the labels on a right side


@dataclass(frozen=True)
class TreebankCounts:
    """How often each production, each word under its tag and each root label occurs."""

    # (left side, right side) of nodes with nodes below them.
    rules: Counter[tuple[str, tuple[str, ...]]]
    lexicon: Counter[tuple[str, str]]  # (tag, word or class of words)
    roots: Counter[str]  # labels of roots; their sum is the number of trees


def count_productions(
    trees: Iterable[Tree], vocabulary: Vocabulary | None = None
) -> TreebankCounts:
    """The counts from which a grammar is read off; rare words counted as their classes.

    Every word needs a tag of its own. O(number of nodes).

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(S (NP (PRP she)) (VP (VBD saw) (NP (PRP it))))")
    >>> counts = count_productions([tree])
    >>> counts.rules["NP", ("PRP",)], counts.lexicon["PRP", "it"], counts.roots["S"]
    (2, 1, 1)
    """
    rules: Counter[tuple[str, tuple[str, ...]]] = Counter()
    lexicon: Counter[tuple[str, str]] = Counter()
    roots: Counter[str] = Counter()
    for tree in trees:
        roots[tree.label()] += 1
        words = leaves(tree)
        if vocabulary is not None:
            words = vocabulary.replace(words)
        remaining = iter(words)
        for node in preorder(tree):
            if is_preterminal(node):
                lexicon[node.label(), next(remaining)] += 1
            else:
                rules[node.label(), _right_side(node)] += 1
    return TreebankCounts(rules, lexicon, roots)


def _right_side(node: Tree) -> tuple[str, ...]:
    for child in node:
        if not isinstance(child, Tree):
            given = f"the word {child!r} beside others below {node.label()!r}"
            raise ArgumentError("trees", f": every word must have a tag of its own. Got {given}")
    return tuple(child.label() for child in node)


DEFAULT = Markovisation()


def relative_frequencies(
    trees: Iterable[Tree], unknown_threshold: int, unknown_share: float
) -> tuple[list[Rule], list[float]]:
    """The rules of trees and their log-weights: p(A → α) = count(A → α) / count(A).

    Words seen at most `unknown_threshold` times are rare. Each time one occurs, `unknown_share`
    of its count goes to its class (`words.signature`: UNK-LC-ed) and the rest to the word itself,
    so that a tag's probabilities still sum to 1.
    """
    expect(unknown_threshold >= 0, "unknown_threshold", "must be 0 or more", unknown_threshold)
    expect(0 <= unknown_share <= 1, "unknown_share", "must be from 0 to 1", unknown_share)
    made = list(trees)
    if not made:
        raise ArgumentError("trees", "must hold at least one tree with words. Got none")
    counts = count_productions(made)
    lexicon: Mapping[tuple[str, str], float] = counts.lexicon
    if unknown_share > 0:
        lexicon = _with_classes(made, counts.lexicon, unknown_threshold, unknown_share)
    rules = [(Rule(left, right), count) for left, right, count in _by_left_side(counts.rules)]
    words = _by_left_side(lexicon)
    rules += [(Rule(tag, (Terminal(word),)), count) for tag, word, count in words]
    totals: defaultdict[str, float] = defaultdict(float)
    for rule, count in rules:
        totals[rule.lhs] += count
    log_weights = [log(count / totals[rule.lhs]) for rule, count in rules]
    return [rule for rule, _ in rules], log_weights


def training_trees(
    trees: Iterable[Tree],
    markovisation: Markovisation = DEFAULT,
    *,
    start: str = "TOP",
    clean: bool = True,
) -> Iterator[Tree]:
    """The trees as `Grammar.from_treebank` counts them; `restore` undoes the last step.

    They are cleaned (`treebank.clean`, unless `clean` is False; trees of nothing but traces are
    left out), get the root `start` in place of TOP, ROOT or whatever root they have, or above
    it, and are Markovised (`markovise`). Unary chains stay.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(S (NP-SBJ (DT the) (JJ old) (NN cat)) (VP (VBD slept)))")
    >>> (made,) = training_trees([tree], Markovisation(horizontal=1, vertical=1))
    >>> print(made)
    (TOP (S (NP (DT the) (NP|<DT> (JJ old) (NN cat))) (VP (VBD slept))))
    """
    for tree in trees:
        rooted = cleaned(tree, root=start) if clean else with_root(tree, start)
        if rooted is not None:
            yield markovise(rooted, markovisation)


def _with_classes(
    trees: Sequence[Tree], lexicon: Counter[tuple[str, str]], threshold: int, share: float
) -> dict[tuple[str, str], float]:
    """The lexicon with a share of the counts of rare words moved to their classes."""
    frequencies: Counter[str] = Counter()
    for (_, word), count in lexicon.items():
        frequencies[word] += count
    # A treebank may have classes in place of words already; they stay what they are.
    known = Vocabulary.from_terminals(frequencies).words
    rare = frozenset(word for word in known if frequencies[word] <= threshold)
    # Classes as the parser will find them: by the words that are terminals in the end.
    vocabulary = Vocabulary(known if share < 1 else known - rare)
    made: dict[tuple[str, str], float] = {}
    for (tag, word), count in lexicon.items():
        left = count * (1 - share) if word in rare else count
        if left > 0:
            made[tag, word] = left
    for tree in trees:
        tagged = (node for node in preorder(tree) if is_preterminal(node))
        for position, node in enumerate(tagged):
            if node[0] in rare:
                entry = node.label(), vocabulary.class_of(node[0], first=position == 0)
                made[entry] = made.get(entry, 0.0) + share
    return made


def _by_left_side(counts: Mapping[tuple[str, R], float]) -> Iterator[tuple[str, R, float]]:
    """Left side, right side and count; left sides in their order, the commonest rules first."""
    groups: dict[str, list[tuple[float, R]]] = {}
    for (left, right), count in counts.items():
        groups.setdefault(left, []).append((-count, right))
    for left, group in groups.items():
        for count, right in sorted(group):
            yield left, right, -count
