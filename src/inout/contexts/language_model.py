"""`NGramLanguageModel`: label sequences as Markov chains of any order, by absolute discounting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from inout._core.checks import at_least, expect
from inout._core.errors import ArgumentError
from inout.kernels.lattice.arrays import Streams
from inout.kernels.lattice.histories import Histories

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class NGramLanguageModel:
    """An n-gram model: the probability of each label after a history, from counts.

        p(y | h) = max(count(h y) - d, 0) / count(h) + d · kinds(h) / count(h) · p(y | h'),

    where h' is h without its oldest symbol, kinds(h) how many different labels follow h, and
    p(y) = (count(y) + smoothing) / (count() + smoothing · labels). A history that never occurred
    has the probabilities of h', so that only the longest one that did counts.

    Histories are labels 0..labels-1, oldest first. `beginning` comes before the first label of a
    sequence, and a history reaches back to it at most; ⋆ (`anything`) hides everything before it.
    With `end` each sequence ends in one more label, number `labels`.

    Each history has a row of `log_rows`, so the memory is (distinct histories) × labels numbers.

    >>> model = NGramLanguageModel.estimated([[0, 1, 0, 1, 1], [1, 0]], labels=2, order=2)
    >>> np.exp(model.log_probabilities([0]))  # 0 was always followed by 1
    array([0.0536, 0.9464])
    >>> star = model.anything
    >>> np.array_equal(model.log_probabilities([star, 0]), model.log_probabilities([0]))
    True

    Ney, Essen & Kneser, "On structuring probabilistic dependences in stochastic language
    modelling" (1994).
    """

    labels: int
    order: int  # the length of the longest history
    end: bool
    log_rows: NDArray[np.float64]  # [h s]; history 0 is the empty one
    shorter: Numbers  # [h]: the number of each history without its oldest symbol
    oldest: Numbers  # [h]: the oldest symbol of each history; -1 for the empty one

    @staticmethod
    def estimated(
        sequences: Iterable[Sequence[int] | NDArray[Any]],
        labels: int,
        order: int,
        *,
        discount: float = 0.25,
        smoothing: float = 0.01,
        end: bool = False,
    ) -> NGramLanguageModel:
        """The model with the counts of some sequences of label numbers.

        Time: that of a sort of the text for each length of a history, and of writing the rows.
        """
        labels, order = at_least("labels", labels, 1), at_least("order", order, 0)
        good = _is_number(discount) and 0.0 <= discount <= 1.0
        expect(good, "discount", "must be a number from 0 to 1", discount)
        good = _is_number(smoothing) and 0.0 <= smoothing < np.inf
        expect(good, "smoothing", "must be a number of at least 0", smoothing)
        text, places = _joined(sequences, labels, end=end)
        width = labels + end
        if not len(text) and smoothing == 0.0:
            raise ArgumentError("sequences", "must hold a label where smoothing is 0. Got none")
        counts = np.bincount(text, minlength=width) + float(smoothing)
        levels = [(counts / counts.sum())[None]]
        shorter, oldest = [np.zeros(1, np.int64)], [np.full(1, -1)]
        histories = np.zeros(len(text), np.int64)  # of each label: its history, within the level
        kept = np.arange(len(text))  # the labels that have a history of this length
        first = 0  # number of the level's first history
        for length in range(1, order + 1):
            # The oldest symbol is the label so many places back, or the beginning before it all.
            long = places[kept] >= length - 1
            kept, histories = kept[long], histories[long]
            if not len(kept):
                break
            inside = places[kept] >= length
            symbols = np.where(inside, text[kept - length * inside], width)
            found, histories = np.unique(histories * (width + 1) + symbols, return_inverse=True)
            parents = found // (width + 1)
            shorter.append(first + parents)
            oldest.append(found % (width + 1))
            first += len(levels[-1])
            levels.append(_discounted(histories, text[kept], levels[-1], parents, float(discount)))
        with np.errstate(divide="ignore"):
            rows = np.log(np.concatenate(levels))
        return NGramLanguageModel(
            labels, order, end, rows, np.concatenate(shorter), np.concatenate(oldest)
        )

    @property
    def width(self) -> int:
        """How many labels there are to choose from: with the end, if there is one."""
        return self.labels + self.end

    @property
    def beginning(self) -> int:
        """The symbol before the first label."""
        return self.width

    @property
    def anything(self) -> int:
        """The symbol ⋆."""
        return self.width + 1

    @property
    def num_histories(self) -> int:
        """How many histories have a row, the empty one among them."""
        return len(self.log_rows)

    def history(self, number: int) -> tuple[int, ...]:
        """The symbols of a history that occurred, oldest first.

        >>> model = NGramLanguageModel.estimated([[0, 1, 0]], labels=2, order=2)
        >>> [model.history(number) for number in range(model.num_histories)]
        [(), (0,), (1,), (2,), (2, 0), (0, 1)]
        """
        symbols = []
        while number:
            symbols.append(int(self.oldest[number]))
            number = int(self.shorter[number])
        return tuple(symbols)

    def find(self, history: Sequence[int]) -> int:
        """The number of the longest end of a history that occurred."""
        given = tuple(history)
        number = 0
        for place, symbol in enumerate(reversed(given), 1):
            wrong = not (isinstance(symbol, int | np.integer) and 0 <= symbol <= self.anything)
            if wrong or (symbol == self.beginning and place < len(given)):
                raise ArgumentError(
                    "history",
                    f"must be symbols in 0..{self.anything}, the beginning "
                    f"({self.beginning}) only at its left. Got {list(given)!r:.80}",
                )
        for symbol in given[::-1][: self.order]:
            longer = self._longer.get((number, int(symbol)))
            if longer is None:
                break
            number = longer
        return number

    def log_probabilities(self, history: Sequence[int]) -> Float[np.ndarray, " s"]:
        """log p(y | history) for each label y."""
        row: NDArray[np.float64] = self.log_rows[self.find(history)].copy()
        return row

    def log_probability(self, sequence: Sequence[int] | NDArray[Any]) -> float:
        """log p of a whole sequence; with `end` that of its end as well."""
        text, _ = _joined([sequence], self.labels, end=self.end)
        symbols = [self.beginning, *text.tolist()]
        ends = range(1, len(symbols))
        rows = [self.find(symbols[max(end - self.order, 0) : end]) for end in ends]
        return float(sum(self.log_rows[rows, text]))

    def chain(self) -> tuple[Float[np.ndarray, " s"], Float[np.ndarray, "s s"]]:
        """A model of first order as log-probabilities of the first label, and of one after another.

        >>> model = NGramLanguageModel.estimated([[0, 1, 0, 1, 1], [1, 0]], labels=2, order=1)
        >>> initial, transition = model.chain()
        >>> initial.shape, np.exp(transition).sum(1)
        ((2,), array([1., 1.]))
        """
        if self.order != 1 or self.end:
            given = f"order {self.order}{', with end' * self.end}"
            raise ArgumentError(
                None, f"only a model of order 1 without end is a chain. Got {given}"
            )
        initial = self.log_probabilities([self.beginning])
        return initial, np.stack([self.log_probabilities([y]) for y in range(self.labels)])

    def histories(self) -> Histories:
        """The model as weights of features for `select`: a row for each history that occurred.

        Of these the kernel takes the longest that a context remembers, which is what `find` does.
        """
        lengths = np.zeros(self.num_histories, np.int64)
        for number in range(1, self.num_histories):  # shorter ones come first
            lengths[number] = lengths[self.shorter[number]] + 1
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        symbols = np.empty(offsets[-1], np.int64)
        numbers = np.arange(self.num_histories)
        for place in range(self.order):
            own = lengths > place
            symbols[offsets[:-1][own] + place] = self.oldest[numbers[own]]
            numbers = self.shorter[numbers]
        symbols[symbols == self.beginning] = Histories.BEGIN
        streams = Streams.labels(self.labels, range(self.order + 1), end=self.end, deepest=True)
        made = Histories(streams)
        starts = made.rows(0, symbols, offsets)
        made.weights.reshape(-1, self.width)[starts // self.width] = self.log_rows
        return made

    def __repr__(self) -> str:
        return (
            f"NGramLanguageModel({self.labels} labels{' and an end' * self.end}, "
            f"order {self.order}, {self.num_histories:,} histories)"
        )

    @cached_property
    def _longer(self) -> dict[tuple[int, int], int]:
        """The number of (history, with this symbol before it)."""
        pairs = zip(self.shorter[1:].tolist(), self.oldest[1:].tolist(), strict=True)
        return {pair: number for number, pair in enumerate(pairs, 1)}


def _discounted(
    histories: Int[np.ndarray, " t"],
    text: Int[np.ndarray, " t"],
    below: Float[np.ndarray, "g s"],
    parents: Int[np.ndarray, " h"],
    discount: float,
) -> Float[np.ndarray, "h s"]:
    """Probabilities after each history, from labels with their histories and shorter ones."""
    size, width = len(parents), below.shape[1]
    found, counts = np.unique(histories * width + text, return_counts=True)
    totals = np.bincount(histories, minlength=size)
    kinds = np.bincount(found // width, minlength=size)
    rows: NDArray[np.float64] = below[parents] * (discount * kinds / totals)[:, None]
    rows.reshape(-1)[found] += (counts - discount) / totals[found // width]
    return rows


def _joined(sequences: Iterable[Any], labels: int, *, end: bool) -> tuple[Numbers, Numbers]:
    """All labels side by side, and the place of each in its sequence, from 0."""
    parts = checked_sequences("sequences", sequences, "label", labels)
    if end:
        parts = [np.append(part, labels) for part in parts]
    parts = [np.zeros(0, np.int64), *parts]
    places = np.concatenate([np.arange(len(part)) for part in parts])
    return np.concatenate(parts), places


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def checked_sequences(name: str, given: Iterable[Any], what: str, count: int) -> list[Numbers]:
    """Each sequence as an array of numbers below `count`; they number labels, symbols, …"""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ArgumentError(name, f"must be a list of sequences. Got {given!r:.80}")
    found = []
    for place, sequence in enumerate(given):
        try:
            numbers = np.asarray(sequence)
        except (TypeError, ValueError):  # lists of different lengths
            numbers = np.array(np.nan)
        if not numbers.size:
            numbers = np.zeros(0, np.int64)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            wanted = f"must hold sequences of {what} numbers"
            raise ArgumentError(name, f"{wanted}. Got {sequence!r:.80} as sequence {place}")
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < count):
            bad = numbers.min() if numbers.min() < 0 else numbers.max()
            wanted = f"must have {what}s in 0..{count - 1}"
            raise ArgumentError(name, f"{wanted}. Got {bad} in sequence {place}")
        found.append(numbers.astype(np.int64))
    return found
