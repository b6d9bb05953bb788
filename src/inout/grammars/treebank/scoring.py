"""PARSEVAL: the brackets of parses compared with those of gold trees, as evalb does.

Words with deleted tags go before positions are counted, so brackets on either side of a comma
become neighbours; brackets left without words and brackets with deleted labels do not count; the
rest are compared as multisets of (label, start, end). A bracket of the parse crosses if it
overlaps some gold bracket without containing it or lying within it (Black et al. 1991; the
program evalb of Sekine & Collins 1997).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal, TypeVar

from inout._core.errors import ArgumentError
from inout.grammars.tree import Tree
from inout.grammars.treebank.cleaning import EMPTY, PUNCTUATION, ROOTS, base_label
from inout.grammars.treebank.scores import Scores, SentenceScore
from inout.grammars.treebank.walking import is_preterminal

_MISSING = object()
T = TypeVar("T")


@dataclass(frozen=True)
class Parseval:
    """Scoring options; the defaults are those of evalb's COLLINS.prm.

    `Parseval(roots=(), punctuation=(), equal={})` compares everything literally.
    """

    roots: Collection[str] = ROOTS
    """Labels whose brackets do not count."""

    empty: Collection[str] = EMPTY
    """Tags of words that are no words: they count nowhere, not even in the sentence length."""

    punctuation: Collection[str] = PUNCTUATION
    """Tags whose words are deleted; they still count in the sentence length."""

    equal: Mapping[str, str] = field(default_factory=lambda: {"PRT": "ADVP"})
    """Labels that are taken for others, as brackets and as tags."""

    functions: bool = False
    """Whether NP-SBJ and NP are different labels."""

    punctuation_by: Literal["gold", "each"] = "gold"
    """Whose tags say what is punctuation: the gold tree's for both, or each tree's own.

    evalb does the latter, and loses every sentence in which the parser took a word for
    punctuation or the other way round.
    """

    count_failures: bool = True
    """Whether the gold brackets of a sentence without parse are missing ones; evalb skips it."""


@dataclass(frozen=True)
class _Spans:
    """A tree as its words without traces, their tags, and brackets between word positions."""

    words: list[str]
    tags: list[str | None]
    brackets: list[tuple[str, int, int]]

    def positions(self, deleted: list[bool]) -> list[int]:
        """For each border between words: how many words before it are left."""
        left = [0]
        for gone in deleted:
            left.append(left[-1] + (not gone))
        return left


def score(
    gold: Iterable[Tree], parses: Iterable[Tree | None], options: Parseval | None = None
) -> Scores:
    """The scores of parses against gold trees, sentence by sentence; None is a failed parse.

    A parse over other words than its gold tree counts as an error and is not scored. Different
    numbers of trees raise `ArgumentError`. O(brackets) for each sentence, and
    O(wrong brackets × brackets) for the crossing ones.

    >>> from nltk.tree import Tree
    >>> gold = Tree.fromstring("(VP (VBD saw) (NP (DT the) (NN cat)) (ADVP (RB now)))")
    >>> parse = Tree.fromstring("(VP (VBD saw) (NP (DT the) (NN cat) (RB now)))")
    >>> scores = score([gold], [parse])
    >>> scores.precision, scores.recall, scores.tag_accuracy
    (0.5, 0.3333333333333333, 1.0)
    """
    options = options or Parseval()
    sentences = []
    for number, (tree, parse) in enumerate(zip_longest(gold, parses, fillvalue=_MISSING), 1):
        if tree is _MISSING or parse is _MISSING:
            which = "gold trees" if tree is _MISSING else "parses"
            raise ArgumentError(
                None,
                "there must be one parse (or None) for each gold tree. "
                f"Got only {number - 1} {which} instead",
            )
        sentences.append(score_sentence(tree, parse, options))
    return Scores(tuple(sentences), options.count_failures)


def score_sentence(
    gold: Tree, parse: Tree | None, options: Parseval | None = None
) -> SentenceScore:
    """The score of one parse against its gold tree.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(TOP (S (NP (PRP she)) (VP (VBD slept)) (. .)))")
    >>> one = score_sentence(tree, tree)
    >>> one.length, one.words, one.gold, one.matched, one.exact
    (3, 2, 3, 3, True)
    """
    options = options or Parseval()
    truth = _spans(gold, options)
    length = len(truth.words)
    deleted = [tag in options.punctuation for tag in truth.tags]
    wanted = _brackets(truth, deleted, options)
    num_words = deleted.count(False)
    answer = None if parse is None else _spans(parse, options)
    if answer is None or not answer.words:
        return SentenceScore(length, num_words, len(wanted), status="failed")
    if options.punctuation_by == "each":
        deleted_here = [tag in options.punctuation for tag in answer.tags]
    else:
        deleted_here = deleted
    message = _difference(truth, deleted, answer, deleted_here)
    if message:
        return SentenceScore(length, num_words, len(wanted), status="error", message=message)
    found = _brackets(answer, deleted_here, options)
    pairs = zip(_left(truth.tags, deleted), _left(answer.tags, deleted_here), strict=True)
    same = options.equal
    correct = sum(same.get(a or "", a) == same.get(b or "", b) for a, b in pairs)
    return SentenceScore(
        length,
        num_words,
        len(wanted),
        len(found),
        _common(wanted, found),
        _common([bracket[1:] for bracket in wanted], [bracket[1:] for bracket in found]),
        _crossing(wanted, found),
        correct,
    )


def _spans(tree: Tree, options: Parseval) -> _Spans:
    words: list[str] = []
    tags: list[str | None] = []
    brackets: list[tuple[str, int, int]] = []
    # A bracket is noted when the walk comes back to it: then all of its words are known.
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            brackets.append((*node, len(words)))
        elif is_preterminal(node):
            if node.label() not in options.empty:
                words.append(node[0])
                tags.append(node.label())
        elif isinstance(node, Tree):
            stack.append((node.label(), len(words)))
            stack.extend(reversed(node))
        else:
            words.append(node)
            tags.append(None)
    return _Spans(words, tags, brackets)


def _brackets(spans: _Spans, deleted: list[bool], options: Parseval) -> list[tuple[str, int, int]]:
    position = spans.positions(deleted)
    kept = []
    for name, start, end in spans.brackets:
        label = name if options.functions else base_label(name)
        if label in options.roots or label in options.punctuation or label in options.empty:
            continue
        if position[start] < position[end]:
            kept.append((options.equal.get(label, label), position[start], position[end]))
    return kept


def _left(values: list[T], deleted: list[bool]) -> list[T]:
    return [value for value, gone in zip(values, deleted, strict=True) if not gone]


def _difference(
    truth: _Spans, deleted: list[bool], answer: _Spans, deleted_here: list[bool]
) -> str:
    """How the compared words differ; empty if they are the same."""
    if len(answer.words) != len(deleted_here):
        return f"the parse has {len(answer.words)} words, the gold tree {len(truth.words)}"
    words, others = _left(truth.words, deleted), _left(answer.words, deleted_here)
    if len(words) != len(others):
        return f"the parse has {len(others)} words without punctuation, the gold tree {len(words)}"
    for word, other in zip(words, others, strict=True):
        if word != other:
            return f"the parse has the word {other!r} where the gold tree has {word!r}"
    return ""


def _common(some: list[T], others: list[T]) -> int:
    return sum((Counter(some) & Counter(others)).values())


def _crossing(wanted: list[tuple[str, int, int]], found: list[tuple[str, int, int]]) -> int:
    gold = {bracket[1:] for bracket in wanted}
    crossing = 0
    for _, start, end in found:
        # The brackets of one tree never cross each other, so a right one cannot.
        if (start, end) not in gold:
            crossing += any(
                first < start < last < end or start < first < end < last for first, last in gold
            )
    return crossing
