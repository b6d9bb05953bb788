"""A probabilistic grammar read off a treebank: relative frequencies, with classes of rare words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from typing import Literal, TypeVar

from nltk.tree import Tree

from inout._core.errors import ArgumentError
from inout.grammars.grammar import Grammar
from inout.grammars.rule import Rule, Terminal
from inout.grammars.treebank.cleaning import clean as cleaned
from inout.grammars.treebank.cleaning import with_root
from inout.grammars.treebank.counting import count_productions
from inout.grammars.treebank.markovisation import binarise, with_ancestors
from inout.grammars.treebank.walking import is_preterminal, preorder
from inout.grammars.words import Vocabulary

R = TypeVar("R", str, tuple[str, ...])  # a word, or the labels on a right side


def induce(
    trees: Iterable[Tree],
    *,
    horizontal: int | None = 2,
    vertical: int = 2,
    direction: Literal["right", "left"] = "right",
    tags: bool = False,
    binary: bool = True,
    unknown_threshold: int = 1,
    unknown_share: float = 0.5,
    start: str = "TOP",
    clean: bool = True,
) -> Grammar:
    """The grammar of the treebank's `training_trees`: p(A → α) = count(A → α) / count(A).

    Words seen at most `unknown_threshold` times are rare. Each time one occurs, `unknown_share`
    of its count goes to its class (`words.signature`: UNK-LC-ed) and the rest to the word itself,
    so that a tag's probabilities still sum to 1, and a sentence can hold the rare word or any
    word that looks like it. With share 1 rare words have no rule of their own; with share 0, or
    threshold 0, there are no classes, and the grammar knows no other words than the treebank's.
    `Vocabulary.from_terminals(grammar.terminals)` tells words and classes apart.

    Parses go back to trees of the treebank by `restore`. O(number of nodes) after the cleaning.

    >>> tree = Tree.fromstring("(S (NP (DT the) (NN cat)) (VP (VBD saw) (NP (DT the) (NN dog))))")
    >>> grammar = induce([tree], vertical=1)
    >>> print(grammar.to_text("nltk"), end="")
    %start TOP
    TOP -> S [1]
    S -> NP VP [1]
    NP -> DT NN [1]
    VP -> VBD NP [1]
    DT -> 'the' [1]
    NN -> 'UNK-LC' [0.5]
    NN -> 'cat' [0.25]
    NN -> 'dog' [0.25]
    VBD -> 'UNK-LC' [0.5]
    VBD -> 'saw' [0.5]
    """
    if unknown_threshold < 0:
        raise ArgumentError(f"unknown_threshold must be 0 or more. Got {unknown_threshold} instead")
    if not 0 <= unknown_share <= 1:
        raise ArgumentError(f"unknown_share must be from 0 to 1. Got {unknown_share} instead")
    made = list(
        training_trees(
            trees,
            horizontal=horizontal,
            vertical=vertical,
            direction=direction,
            tags=tags,
            binary=binary,
            start=start,
            clean=clean,
        )
    )
    if not made:
        raise ArgumentError("trees must hold at least one tree with words. Got none")
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
    return Grammar(start, [rule for rule, _ in rules], log_weights)


def training_trees(
    trees: Iterable[Tree],
    *,
    horizontal: int | None = 2,
    vertical: int = 2,
    direction: Literal["right", "left"] = "right",
    tags: bool = False,
    binary: bool = True,
    start: str = "TOP",
    clean: bool = True,
) -> Iterator[Tree]:
    """The trees as `induce` counts them, one after the other; `restore` undoes the last step.

    They are cleaned (`treebank.clean`, unless `clean` is False; trees of nothing but traces are
    left out), get the root `start` in place of TOP, ROOT or whatever root they have, or above
    it, and are binarised with Markovisation (`binarise`). With `binary` False nodes keep all of
    their children and only the ancestors are written (`with_ancestors`). Unary chains stay.

    >>> tree = Tree.fromstring("(S (NP-SBJ (DT the) (JJ old) (NN cat)) (VP (VBD slept)))")
    >>> (made,) = training_trees([tree], horizontal=1, vertical=1)
    >>> print(made)
    (TOP (S (NP (DT the) (NP|<DT> (JJ old) (NN cat))) (VP (VBD slept))))
    """
    for tree in trees:
        rooted = cleaned(tree, root=start) if clean else with_root(tree, start)
        if rooted is None:
            continue
        if binary:
            yield binarise(
                rooted, horizontal=horizontal, vertical=vertical, direction=direction, tags=tags
            )
        else:
            yield with_ancestors(rooted, vertical=vertical, tags=tags)


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
