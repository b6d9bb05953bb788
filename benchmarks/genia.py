"""The GENIA treebank: its parts, grammars read off it, scores of a parser on short sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from nltk.tree import Tree

from benchmarks.data import data_file
from inout.grammars import Grammar, Markovisation
from inout.grammars.treebank import Scores, leaves, read_trees, restore, score

Part = Literal["train", "dev", "test"]
# A parser of many sentences: a tree of the grammar, or None, for each.
Parse = Callable[[Sequence[Sequence[str]]], Sequence[Tree | None]]

LONGEST = 40  # words, punctuation included, as most results on treebanks are reported


def trees(part: Part, longest: int | None = None, limit: int | None = None) -> list[Tree]:
    """The trees of a part, or the first `limit` of those with at most `longest` words."""
    found: list[Tree] = []
    for tree in _part(part):
        if limit is not None and len(found) == limit:
            break
        if longest is None or len(leaves(tree)) <= longest:
            found.append(tree)
    return found


def grammar(markovisation: Markovisation) -> Grammar:
    """The grammar of the training part."""
    return Grammar.from_treebank(_part("train"), markovisation)


def scores(
    parse: Parse, part: Part = "dev", longest: int | None = LONGEST, limit: int | None = None
) -> Scores:
    """Parseval scores of the trees that a parser finds for the words of a part.

    Trees of the grammar are restored here; trees of the treebank stay what they are.
    """
    gold = trees(part, longest, limit)
    found = parse([leaves(tree) for tree in gold])
    return score(gold, [None if tree is None else restore(tree) for tree in found])


def _part(part: Part) -> Iterator[Tree]:
    return read_trees(data_file(f"genia/genia.{part}.mrg.xz"))
