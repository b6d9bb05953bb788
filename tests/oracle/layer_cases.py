"""Structures of the layers as Python lists, all of them, with scores from the layers' tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from torch import Tensor

from inout import constraints, nn

Tables = dict[str, Tensor]
Row = list[Any]


@dataclass(frozen=True)
class LayerCase:
    """A layer, the shape of its scores for n positions, its structures and their scores."""

    name: str
    make: Callable[..., nn.StructuredLayer]
    shape: Callable[[int], tuple[int, ...]]
    rows: Callable[[int], Iterator[Row]]
    score: Callable[[Row, Tensor, Tables, int], Tensor]
    allowed: Any = None
    lengths: tuple[int, ...] = (4, 1, 3)  # of elements padded to the first


def labellings(s: int) -> Callable[[int], Iterator[Row]]:
    return lambda n: (list(row) for row in product(range(s), repeat=n))


def sequence_score(row: Row, scores: Tensor, tables: Tables, n: int) -> Tensor:
    total = scores.new_zeros(())
    for t, label in enumerate(row):
        total = total + scores[t, label]
        total = total + (tables["transitions"][row[t - 1], label] if t else tables["start"][label])
    return total + tables["end"][row[-1]] if row else total


def segmentations(s: int, w: int, n: int, start: int = 0) -> Iterator[Row]:
    if start == n:
        yield []
    for stop in range(start + 1, min(start + w, n) + 1):
        for label in range(s):
            for rest in segmentations(s, w, n, stop):
                yield [(start, stop, label), *rest]


def segment_score(row: Row, scores: Tensor, tables: Tables, n: int) -> Tensor:
    total = scores.new_zeros(())
    for k, (start, stop, label) in enumerate(row):
        if scores.ndim == 2:
            for t in range(start, stop):
                total = total + scores[t, label]
        else:
            total = total + scores[stop - 1, stop - start - 1, label]
        total = total + tables["widths"][stop - start - 1, label]
        before = tables["transitions"][row[k - 1][2], label] if k else tables["start"][label]
        total = total + before
    return total + tables["end"][row[-1][2]] if row else total


def bracketings(s: int, start: int, stop: int) -> Iterator[Row]:
    for label in range(s):
        if stop - start == 1:
            yield [(start, stop, label)]
        for split in range(start + 1, stop):
            for left in bracketings(s, start, split):
                for right in bracketings(s, split, stop):
                    yield sorted([(start, stop, label), *left, *right])


def tree_score(row: Row, scores: Tensor, tables: Tables, n: int) -> Tensor:
    total = scores.new_zeros(())
    for start, stop, label in row:
        total = total + scores[start, stop - 1, label]
        total = total + tables["words" if stop - start == 1 else "phrases"][label]
        if (start, stop) == (0, n):
            total = total + tables["root"][label]
    return total


def heads_of(n: int, projective: bool) -> Iterator[Row]:
    for heads in product(range(n + 1), repeat=n):
        if heads.count(0) != 1 or not all(_reaches_root(word, heads) for word in range(1, n + 1)):
            continue
        arcs = [sorted((head, word)) for word, head in enumerate(heads, 1)]
        cross = any(a < c < b < d for a, b in arcs for c, d in arcs)
        if not (projective and cross):
            yield list(heads)


def _reaches_root(word: int, heads: tuple[int, ...]) -> bool:
    for _ in heads:
        word = heads[word - 1] if word else 0
    return word == 0


def with_labels(s: int, n: int, projective: bool) -> Iterator[Row]:
    for heads in heads_of(n, projective):
        for labels in product(range(s), repeat=n):
            yield list(zip(heads, labels, strict=True))


def heads_score(row: Row, scores: Tensor, tables: Tables, n: int) -> Tensor:
    total = scores.new_zeros(())
    for word, head in enumerate(row):
        total = total + scores[head, word]
    return total


def arcs_score(row: Row, scores: Tensor, tables: Tables, n: int) -> Tensor:
    total = scores.new_zeros(())
    for word, (head, label) in enumerate(row):
        total = total + scores[head, word, label] + tables["arcs" if head else "root"][label]
    return total


BIO = constraints.bio(["B", "I", "O"])
SPANS = constraints.spans(["S", "X"], words=["X"], root=["S"])
ARCS = constraints.arcs(["root", "x"])

CASES = [
    LayerCase("crf", lambda c: nn.CRF(3, c), lambda n: (n, 3), labellings(3), sequence_score, BIO),
    LayerCase(
        "semi",
        lambda c: nn.SemiCRF(3, 2, c),
        lambda n: (n, 3),
        lambda n: segmentations(3, 2, n),
        segment_score,
        BIO,
    ),
    LayerCase(
        "segments",
        lambda c: nn.SemiCRF(3, 3, c, segments=True),
        lambda n: (n, 3, 3),
        lambda n: segmentations(3, 3, n),
        segment_score,
        BIO,
    ),
    LayerCase(
        "tree",
        lambda c: nn.TreeCRF(2, c),
        lambda n: (n, n, 2),
        lambda n: bracketings(2, 0, n),
        tree_score,
        SPANS,
        (4, 2, 3),  # one word would be both X and S
    ),
    LayerCase(
        "words",
        lambda c: nn.TreeCRF(2, c),
        lambda n: (n, n, 2),
        lambda n: bracketings(2, 0, n),
        tree_score,
        constraints.spans(["S", "X"], words=["X"]),
        (3, 1, 2),
    ),
    LayerCase(
        "heads",
        lambda c: nn.DependencyCRF(),
        lambda n: (n + 1, n),
        lambda n: heads_of(n, True),
        heads_score,
    ),
    LayerCase(
        "crossing",
        lambda c: nn.DependencyCRF(2, c, projective=False),
        lambda n: (n + 1, n, 2),
        lambda n: with_labels(2, n, False),
        arcs_score,
        ARCS,
    ),
]
