"""`Observations`: the features of the positions of sequences, as sparse rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError

Position = Mapping[str, float] | Sequence[str]
Sequences = Sequence[Sequence[Position] | NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Observations:
    """Features of all positions of all sequences, one position after the other.

    >>> names = {}
    >>> two = Observations.of([[["round", "dark"], {"round": 0.5}]], names, grow=True)
    >>> names, two.indices.tolist(), two.values.tolist()
    ({'round': 0, 'dark': 1}, [0, 1, 0], [1.0, 1.0, 0.5])
    """

    starts: NDArray[np.int64]  # [b+1]: the positions of sequence b are starts[b] to starts[b+1]
    offsets: NDArray[np.int64]  # [p+1]: the features of position p are offsets[p] to offsets[p+1]
    indices: NDArray[np.int32]
    values: NDArray[np.float64]
    visits: NDArray[np.int64] | None = None
    """[p]: which position of its sequence each one is; None: they are in order."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @staticmethod
    def of(sequences: Sequences, names: dict[str, int], *, grow: bool = False) -> Observations:
        """The features of sequences, by the numbers that `names` gives them.

        A position is a mapping from names of features to values, or names alone (value 1). A
        sequence may also be an array [n, d], whose features are named "0", "1", …, d-1. Names
        that are unknown are ignored, or with `grow` get the next numbers.
        """
        starts, offsets = [0], [0]
        indices: list[int] = []
        values: list[float] = []
        for b, sequence in enumerate(sequences):
            if len(sequence) == 0:
                raise _bad("every sequence must have a position", f"none in number {b}")
            rows = _array_rows(sequence) if isinstance(sequence, np.ndarray) else sequence
            for position in rows:
                for name, value in _pairs(position, b):
                    try:
                        number = names.get(name)
                    except TypeError as error:  # it cannot even be looked up
                        raise _bad_name(name, b) from error
                    if number is None:
                        if not isinstance(name, str):
                            raise _bad_name(name, b)
                        if not grow:
                            continue
                        number = names[name] = len(names)
                    indices.append(number)
                    values.append(value)
                offsets.append(len(indices))
            starts.append(len(offsets) - 1)
        try:
            numbers = np.array(values, np.float64)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                "sequences", f": values of features must be numbers. {error}"
            ) from error
        found = Observations(
            np.array(starts, np.int64),
            np.array(offsets, np.int64),
            np.array(indices, np.int32),
            numbers,
        )
        if not np.isfinite(found.values).all():
            first = np.argmin(np.isfinite(found.values))
            place = int(np.searchsorted(found.offsets, first, "right"))
            number = int(np.searchsorted(found.starts, place - 1, "right")) - 1
            raise _bad("values of features must be finite", f"others in number {number}")
        return found

    def part(self, first: int, last: int) -> Observations:
        lo, hi = self.starts[first], self.starts[last]
        begin, end = self.offsets[lo], self.offsets[hi]
        return Observations(
            self.starts[first : last + 1] - lo,
            self.offsets[lo : hi + 1] - begin,
            self.indices[begin:end],
            self.values[begin:end],
            None if self.visits is None else self.visits[lo:hi],
        )

    def visited(self, visits: NDArray[np.int64] | None) -> Observations:
        """The same positions, so far in order, in the order of these visits."""
        if visits is None:
            return self
        moved = replace(self, visits=visits)
        rows = moved.rows
        sizes = np.diff(self.offsets)[rows]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], sizes)
        return replace(
            moved, offsets=offsets, indices=self.indices[places], values=self.values[places]
        )

    @property
    def rows(self) -> NDArray[np.int64]:
        """[p]: the number that each position has among all in order."""
        if self.visits is None:
            return np.arange(self.starts[-1])
        return self.visits + np.repeat(self.starts[:-1], self.lengths)

    def in_order_of_visits(self, labels: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """The labels of the positions of each sequence, as they are visited."""
        visits = self.visits
        if visits is None:
            return labels
        bounds = pairwise(self.starts.tolist())
        return [
            [own[i] for i in visits[lo:hi]] for own, (lo, hi) in zip(labels, bounds, strict=True)
        ]


def _array_rows(array: NDArray[Any]) -> list[dict[str, float]]:
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise _bad("an array must be numbers [n, d]", f"{array.dtype} {array.shape}")
    return [{str(k): float(row[k]) for k in np.flatnonzero(row)} for row in array]


def _pairs(position: Position, sequence: int) -> Any:
    if isinstance(position, str) or not isinstance(position, Iterable):
        kind = "string" if isinstance(position, str) else type(position).__name__
        wanted = "a position must be a list of names of features, or a mapping to their values"
        raise _bad(wanted, f"the {kind} {position!r:.80} in sequence {sequence}")
    if isinstance(position, Mapping):
        return position.items()
    return ((name, 1.0) for name in position)


def _bad_name(name: object, sequence: int) -> ArgumentError:
    return _bad("names of features must be strings", f"{name!r:.80} in sequence {sequence}")


def _bad(wanted: str, got: str) -> ArgumentError:
    return ArgumentError("sequences", f": {wanted}. Got {got}")
