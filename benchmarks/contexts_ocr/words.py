"""Handwritten words (Kassel 1995), each letter cut down to 8 × 4 points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.data import data_file

TEST_FOLD, DEV_FOLD = 1, 0

Letters = list[list[str]]  # the names of the dark points of each letter


@dataclass(frozen=True)
class Words:
    """Pictures of words, and what they spell."""

    pictures: list[Letters]
    spellings: list[list[str]]

    def __len__(self) -> int:
        return len(self.pictures)


def load(step: int = 1, dev: bool = False) -> tuple[Words, Words]:
    """(training, test) words, every `step`-th of them: nine folds, and fold 1.

    With `dev`: the eight folds that are neither 0 nor 1, and fold 0. Of each picture the rows and
    columns 1, 3, 5, … are kept, counted from 1. A point that is always there is the weight of a
    letter without any dark point.
    """
    with np.load(data_file("ocr_letters/ocr_letters.npz"), allow_pickle=False) as data:
        points = np.unpackbits(data["pixels"], axis=1).reshape(-1, 16, 8)[:, ::2, ::2]
        labels, offsets, folds = data["labels"], data["offsets"], data["folds"]
    dark = points.reshape(len(points), -1) > 0
    letters = [["always", *map(str, np.flatnonzero(row))] for row in dark]
    left_out = [TEST_FOLD, DEV_FOLD] if dev else [TEST_FOLD]
    parts = []
    for chosen in (~np.isin(folds, left_out), folds == left_out[-1]):
        words = np.flatnonzero(chosen)[::step]
        ranges = [(int(offsets[w]), int(offsets[w + 1])) for w in words]
        parts.append(
            Words(
                [letters[lo:hi] for lo, hi in ranges],
                [[chr(ord("a") + label) for label in labels[lo:hi]] for lo, hi in ranges],
            )
        )
    return parts[0], parts[1]
