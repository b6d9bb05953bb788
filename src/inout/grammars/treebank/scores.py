"""Scores of parses: of one sentence, of a corpus, by sentence length; as numbers and as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from inout._core.checks import expect


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """What was counted in one sentence."""

    length: int
    """Words of the gold tree, punctuation included."""
    words: int
    """Words without punctuation: those whose tags are compared."""
    gold: int
    """Brackets of the gold tree."""
    found: int = 0
    """Brackets of the parse."""
    matched: int = 0
    """Brackets in both, with their labels."""
    matched_unlabelled: int = 0
    """Brackets in both, whatever their labels."""
    crossing: int = 0
    """Brackets of the parse that cross a gold bracket."""
    correct_tags: int = 0
    status: Literal["parsed", "failed", "error"] = "parsed"
    """`failed`: there is no parse; `error`: the parse has other words."""
    message: str = ""
    """What was wrong, for an error."""

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
        """The number of sentences without a parse."""
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
        """Precision without labels."""
        return _ratio(self._sum("matched_unlabelled"), self._sum("found"))

    @property
    def unlabelled_recall(self) -> float:
        """Recall without labels."""
        return _ratio(self._sum("matched_unlabelled"), self._sum("gold"))

    @property
    def unlabelled_f1(self) -> float:
        """F1 without labels."""
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
        """The share of the parsed sentences without crossing brackets."""
        return self._at_most(0)

    @property
    def two_or_less_crossing(self) -> float:
        """The share of the parsed sentences with at most two crossing brackets."""
        return self._at_most(2)

    @property
    def tag_accuracy(self) -> float:
        """The share of the words, without punctuation, whose tag is right."""
        return _ratio(self._sum("correct_tags"), self._sum("words"))

    def up_to(self, length: int) -> Scores:
        """The scores of the sentences of at most this many words, punctuation included."""
        return self._where(lambda sentence: sentence.length <= length)

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
        return "\n".join([*lines, "", self._crossing_line()])

    def _crossing_line(self) -> str:
        return (
            f"crossing brackets a sentence: {self.average_crossing:.2f}; "
            f"none in {_percent(self.no_crossing)} %, "
            f"at most two in {_percent(self.two_or_less_crossing)} %"
        )

    def _where(self, wanted: Callable[[SentenceScore], bool]) -> Scores:
        return Scores(tuple(filter(wanted, self.sentences)), self.count_failures)

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
