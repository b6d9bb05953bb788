"""Words of CMUdict with their phones, and how far predicted spellings are off."""

from __future__ import annotations

import lzma
import random
from collections.abc import Sequence
from typing import Literal

from benchmarks.data import data_file
from inout.contexts.alignments.model import AlignmentModel

Part = Literal["train", "dev", "test"]
Word = tuple[str, list[str]]  # letters, phones

LETTERS = "abcdefghijklmnopqrstuvwxyz"
STRESS = "012"


def words(part: Part, count: int, seed: int) -> list[Word]:
    """Words drawn from those of a part in a-z only, with their first pronunciation.

    Stress is removed from the phones: on the dev part it made the error rate one point worse.
    """
    with lzma.open(data_file("cmudict/cmudict.tsv.xz"), "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    chosen = [
        (word, [phone.rstrip(STRESS) for phone in phones.split()])
        for word, variant, phones, own in rows
        if own == part and variant == "1" and all("a" <= letter <= "z" for letter in word)
    ]
    return random.Random(f"{part} {seed}").sample(chosen, count)


def scores(model: AlignmentModel, gold: Sequence[Word]) -> tuple[float, float]:
    """Character error rate (edits for each letter of the right spellings) and exact matches.

    Of the spelling of the best path, as in the results so far; the spelling with the largest sum
    over its alignments made no difference on dev words.
    """
    found = model.predict([phones for _, phones in gold], candidates=1)
    spelled = ["".join(output.output) for output in found]
    edits = sum(distance(given, word) for given, (word, _) in zip(spelled, gold, strict=True))
    exact = sum(given == word for given, (word, _) in zip(spelled, gold, strict=True))
    return edits / sum(len(word) for word, _ in gold), exact / len(gold)


def distance(a: str, b: str) -> int:
    """Levenshtein's distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]
