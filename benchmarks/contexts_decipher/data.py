"""Plain text, and enciphered sentences to find the words of."""

from __future__ import annotations

import lzma
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import data_file

Sentences = list[NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Task:
    """A language's sentences as label numbers, other sentences as symbols of a cipher."""

    words: list[str]
    plain: Sentences
    cipher: Sentences
    dev: Sentences  # plain text of yet other books
    key: NDArray[np.int64]  # the label that each symbol stands for

    @property
    def occurring(self) -> NDArray[np.int64]:
        """The symbols that occur."""
        return np.unique(np.concatenate(self.cipher))

    def accuracy(self, scores: NDArray[np.float64]) -> float:
        """Mapping accuracy in percent: of the symbols that occur, how many are read rightly.

        A symbol is read as the label with the largest score: [s v].
        """
        symbols = self.occurring
        return 100.0 * float((scores[:, symbols].argmax(0) == self.key[symbols]).mean())

    def by_frequency(self) -> float:
        """The accuracy if labels and symbols are matched by their ranks alone."""
        size = len(self.words)
        ranks = [
            np.argsort(-np.bincount(np.concatenate(part), minlength=size), kind="stable")
            for part in (self.plain, self.cipher)
        ]
        scores = np.zeros((size, size))
        scores[ranks[0], ranks[1]] = 1.0
        return self.accuracy(scores)


def load(labels: int, sentences: int, seed: int) -> Task:
    """The task with the commonest words and the first distinct sentences made of them.

    Plain text and cipher are of different books. The cipher is a permutation drawn with the seed.
    """
    vocabulary = data_file("decipherment/novels97.vocab500.tsv").read_text(encoding="utf-8")
    words = [line.split("\t")[0] for line in vocabulary.splitlines()][:labels]
    numbers = {word: number for number, word in enumerate(words)}
    with lzma.open(data_file("decipherment/novels97.top500.tsv.xz"), "rt", encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    books = {book: number for number, book in enumerate(sorted({book for book, _ in rows}))}
    plain: dict[tuple[int, ...], None] = {}  # as ordered sets
    cipher: dict[tuple[int, ...], None] = {}
    dev: dict[tuple[int, ...], None] = {}
    for book, text in rows:
        own = text.split()
        if len(own) < 3 or not all(word in numbers for word in own):
            continue
        number = books[book] % 10
        part = plain if number < 5 else cipher if number < 9 else dev
        part[tuple(numbers[word] for word in own)] = None
    symbols = np.random.default_rng(seed).permutation(labels)  # of each label
    return Task(
        words,
        [np.array(sentence) for sentence in plain],
        [symbols[list(sentence)] for sentence in list(cipher)[:sentences]],
        [np.array(sentence) for sentence in dev],
        np.argsort(symbols),
    )
