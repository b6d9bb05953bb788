"""Plain text, and enciphered sentences to find the words of."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import data_file

Sentence = tuple[int, ...]
Sentences = list[NDArray[np.int64]]

IN_ALL = 24_666  # sentences that the paper had


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


def load(labels: int, sentences: int, seed: int, text: int = 0, lines: bool = False) -> Task:
    """The task with the commonest words: one of several texts, enciphered.

    Plain text and cipher are of different books, and no sentence comes twice; text k is the k-th
    part of so many sentences. With `lines` both are drawn from all books, with sentences that come
    more than once, `IN_ALL` of them, as the paper does; text k is the k-th draw. The cipher is a
    permutation drawn with the seed.
    """
    vocabulary = data_file("decipherment/novels97.vocab500.tsv").read_text(encoding="utf-8")
    words = [line.split("\t")[0] for line in vocabulary.splitlines()][:labels]
    numbers = {word: number for number, word in enumerate(words)}
    with lzma.open(data_file("decipherment/novels97.top500.tsv.xz"), "rt", encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    known = [
        (book, tuple(numbers[word] for word in line.split()))
        for book, line in rows
        if all(word in numbers for word in line.split())
    ]
    plain, cipher, dev = _by_books(known)
    cipher = cipher[text * sentences : (text + 1) * sentences]
    if lines:
        order = np.random.default_rng([seed, text]).permutation(len(known))
        drawn = [known[k][1] for k in order[:IN_ALL]]
        plain, cipher = drawn[sentences:], drawn[:sentences]
    symbols = np.random.default_rng(seed).permutation(labels)  # of each label
    return Task(
        words,
        [np.array(sentence) for sentence in plain],
        [symbols[list(sentence)] for sentence in cipher],
        [np.array(sentence) for sentence in dev],
        np.argsort(symbols),
    )


def _by_books(rows: Sequence[tuple[str, Sentence]]) -> list[list[Sentence]]:
    """Different sentences of three words or more: plain text, cipher, other books."""
    books = {book: number for number, book in enumerate(sorted({book for book, _ in rows}))}
    parts: list[dict[Sentence, None]] = [{}, {}, {}]  # as ordered sets
    for book, sentence in rows:
        number = books[book] % 10
        if len(sentence) >= 3:
            parts[0 if number < 5 else 1 if number < 9 else 2][sentence] = None
    return [list(part) for part in parts]
