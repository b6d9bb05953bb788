"""All outputs and alignments of a short input one by one, in Python, as a check of the kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from inout.contexts.alignments.model import AlignmentModel
from inout.kernels.lattice.histories import Histories

NONE = -1


def enumerate_scores(
    model: AlignmentModel, symbols: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], float]]:
    """(letters, score) of every path of actions over an input, given as numbers."""
    letters, most = len(model.letters), model.settings.most_letters

    def go_on(
        place: int, count: int, path: list[tuple[int, int]]
    ) -> Iterator[list[tuple[int, int]]]:
        # `count`: letters of the symbol at `place`; 0 where it shares the letter before.
        if place == len(symbols) - 1:
            yield path
        elif place + 1 < len(symbols):
            given = symbols[place + 1]
            for a in range(letters):
                yield from go_on(place + 1, 1, [*path, (given, a)])
            if path and count <= 1:
                yield from go_on(place + 1, 0, [*path, (given, 2 * letters)])
        if 1 <= count < most:
            for a in range(letters):
                yield from go_on(place, count + 1, [*path, (symbols[place], letters + a)])

    for path in go_on(-1, 0, []):
        written = tuple(action % letters for _, action in path if action < 2 * letters)
        yield written, _score(model, path, written)


def _score(model: AlignmentModel, path: list[tuple[int, int]], written: tuple[int, ...]) -> float:
    """The sum of the weights of all n-grams."""
    histories = model.histories
    depth, letters = histories.streams.depth, len(model.letters)
    begin = [Histories.BEGIN] * depth
    shown, edges = [*begin, *written], list(begin)
    total = 0.0
    for place, letter in enumerate([*written, letters], start=depth):
        for k in range(depth + 1):
            row = histories.weights[histories.row(0, shown[place - k : place], grow=False)]
            total += float(row[letter]) if len(row) else 0.0
    for given, action in path:
        for k in range(depth + 1):
            before = edges[len(edges) - k :]
            row = histories.weights[histories.row(1, before, given, grow=False)]
            total += float(row[action]) if len(row) else 0.0
        edges.append(action + histories.streams.num_actions * (given + 1))
    return total


def log_sum(values: Sequence[float]) -> float:
    """log Σ exp."""
    most = max(values)
    return most + math.log(math.fsum(math.exp(value - most) for value in values))
