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

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.grammars.tree import Tree, is_preterminal
from inout.grammars.treebank.cleaning import EMPTY, PUNCTUATION, ROOTS, base_label

_MISSING = object()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """What was counted in one sentence."""

    length: int  # words of the gold tree, punctuation included
    words: int  # words without punctuation: those whose tags are compared
    gold: int  # brackets of the gold tree
    found: int = 0  # brackets of the parse
    matched: int = 0  # brackets in both, with their labels
    matched_unlabelled: int = 0  # brackets in both, whatever their labels
    crossing: int = 0  # brackets of the parse that cross a gold bracket
    correct_tags: int = 0
    # `failed`: there is no parse; `error`: the parse has other words.
    status: Literal["parsed", "failed", "error"] = "parsed"
    message: str = ""  # what was wrong, for an error

    @property
    def exact(self) -> bool:
        """Whether the parse has the gold brackets and no others."""
        return self.status == "parsed" and self.gold == self.found == self.matched


@dataclass(frozen=True)
class Scores:
    """The scores of a corpus: sums over all sentences, then ratios (0 where nothing was counted).

    Sentences with errors are always left out. Failed ones count as empty parses if
    `count_failures`, and are left out otherwise; crossing brackets are those of the parsed
    sentences only.
    """

    sentences: tuple[SentenceScore, ...]
    count_failures: bool = True

    @property
    def num_sentences(self) -> int:
        """The number of sentences, with or without a parse."""
        return len(self.sentences)

    @property
    def num_failed(self) -> int:
        return sum(sentence.status == "failed" for sentence in self.sentences)

    @property
    def num_errors(self) -> int:
        """The number of parses with other words than the gold tree."""
        return sum(sentence.status == "error" for sentence in self.sentences)

    @property
    def precision(self) -> float:
        """The share of the parses' brackets that are right."""
        return _ratio(self._sum("matched"), self._sum("found"))

    @property
    def recall(self) -> float:
        """The share of the gold brackets that were found."""
        return _ratio(self._sum("matched"), self._sum("gold"))

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _ratio(2 * self._sum("matched"), self._sum("found") + self._sum("gold"))

    @property
    def unlabelled_precision(self) -> float:
        return _ratio(self._sum("matched_unlabelled"), self._sum("found"))

    @property
    def unlabelled_recall(self) -> float:
        return _ratio(self._sum("matched_unlabelled"), self._sum("gold"))

    @property
    def unlabelled_f1(self) -> float:
        total = self._sum("found") + self._sum("gold")
        return _ratio(2 * self._sum("matched_unlabelled"), total)

    @property
    def exact_match(self) -> float:
        """The share of the sentences whose brackets are all right."""
        scored = self._scored()
        return _ratio(sum(sentence.exact for sentence in scored), len(scored))

    @property
    def average_crossing(self) -> float:
        """Crossing brackets for each parsed sentence."""
        parsed = self._parsed()
        return _ratio(sum(sentence.crossing for sentence in parsed), len(parsed))

    @property
    def no_crossing(self) -> float:
        return self._at_most(0)

    @property
    def two_or_less_crossing(self) -> float:
        return self._at_most(2)

    @property
    def tag_accuracy(self) -> float:
        """The share of the words, without punctuation, whose tag is right."""
        return _ratio(self._sum("correct_tags"), self._sum("words"))

    def up_to(self, length: int) -> Scores:
        """The scores of the sentences of at most this many words, punctuation included."""
        short = tuple(sentence for sentence in self.sentences if sentence.length <= length)
        return Scores(short, self.count_failures)

    def by_length(self, width: int = 10) -> dict[tuple[int, int], Scores]:
        """The scores of sentences of 1 to `width` words, of the next `width` lengths, and so on.

        Lengths without sentences are left out.
        """
        expect(width >= 1, "width", "must be at least 1", width)
        groups: dict[int, list[SentenceScore]] = {}
        for sentence in self.sentences:
            groups.setdefault(max(0, sentence.length - 1) // width, []).append(sentence)
        return {
            (group * width + 1, (group + 1) * width): Scores(tuple(found), self.count_failures)
            for group, found in sorted(groups.items())
        }

    def to_dict(self) -> dict[str, float | int]:
        """All figures by name, for JSON."""
        names = (
            "num_sentences", "num_failed", "num_errors",
            "precision", "recall", "f1",
            "unlabelled_precision", "unlabelled_recall", "unlabelled_f1",
            "exact_match", "average_crossing", "no_crossing", "two_or_less_crossing",
            "tag_accuracy",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def table(self, cutoff: int | None = 40, width: int = 10) -> str:
        """The scores as text: all sentences, those up to `cutoff` words, then by length.

        >>> print(Scores((SentenceScore(6, 5, 4, 4, 3, 4, 0, 5),)).table(cutoff=None))
        length  sentences  failed  errors  precision  recall     F1  unlabelled  exact  tags
        1-10            1       0       0      75.00   75.00  75.00      100.00   0.00  100.00
        all             1       0       0      75.00   75.00  75.00      100.00   0.00  100.00
        <BLANKLINE>
        crossing brackets a sentence: 0.00; none in 100.00 %, at most two in 100.00 %
        """
        rows = [
            (f"{first}-{last}", scores) for (first, last), scores in self.by_length(width).items()
        ]
        if cutoff is not None:
            rows.append((f"<= {cutoff}", self.up_to(cutoff)))
        rows.append(("all", self))
        cells = [_HEAD, *(_row(name, scores) for name, scores in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in cells
        ]
        crossing = (
            f"crossing brackets a sentence: {self.average_crossing:.2f}; "
            f"none in {_percent(self.no_crossing)} %, "
            f"at most two in {_percent(self.two_or_less_crossing)} %"
        )
        return "\n".join([*lines, "", crossing])

    def _parsed(self) -> list[SentenceScore]:
        return [sentence for sentence in self.sentences if sentence.status == "parsed"]

    def _scored(self) -> list[SentenceScore]:
        allowed = ("parsed", "failed") if self.count_failures else ("parsed",)
        return [sentence for sentence in self.sentences if sentence.status in allowed]

    def _sum(self, name: str) -> int:
        return sum(getattr(sentence, name) for sentence in self._scored())

    def _at_most(self, crossing: int) -> float:
        parsed = self._parsed()
        return _ratio(sum(sentence.crossing <= crossing for sentence in parsed), len(parsed))


_HEAD = ["length", "sentences", "failed", "errors", "precision", "recall", "F1"]
_HEAD += ["unlabelled", "exact", "tags"]


def _row(name: str, scores: Scores) -> list[str]:
    counts = [scores.num_sentences, scores.num_failed, scores.num_errors]
    ratios = [scores.precision, scores.recall, scores.f1]
    ratios += [scores.unlabelled_f1, scores.exact_match, scores.tag_accuracy]
    return [name, *map(str, counts), *map(_percent, ratios)]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2f}"


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


@dataclass(frozen=True)
class Parseval:
    """Scoring options; the defaults are those of evalb's COLLINS.prm.

    `Parseval(roots=(), punctuation=(), equal={})` compares everything literally.
    """

    roots: Collection[str] = ROOTS  # labels whose brackets do not count
    # Tags of words that are no words: they count nowhere, not even in the sentence length.
    empty: Collection[str] = EMPTY
    # Tags whose words are deleted; they still count in the sentence length.
    punctuation: Collection[str] = PUNCTUATION
    # Labels that are taken for others, as brackets and as tags.
    equal: Mapping[str, str] = field(default_factory=lambda: {"PRT": "ADVP"})
    functions: bool = False  # whether NP-SBJ and NP are different labels
    # Whose tags say what is punctuation: the gold tree's for both, or each tree's own. evalb does
    # the latter, and loses every sentence in which the parser took a word for punctuation or the
    # other way round.
    punctuation_by: Literal["gold", "each"] = "gold"
    # Whether the gold brackets of a sentence without parse are missing ones; evalb skips it.
    count_failures: bool = True


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
            given = f"only {number - 1} {which} instead"
            raise ArgumentError(
                None, f"there must be one parse (or None) for each gold tree. Got {given}"
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
