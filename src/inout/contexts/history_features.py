"""`HistoryFeature`: user-defined features of what a context remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.kernels.lattice.ties import BEGIN, LOCK, STAR, Ties

BEGINNING, ANYTHING, LATER = "^", "⋆", "?"
_OUTSIDE, _LATER = 0, -1  # in place of how many steps ago a neighbour was visited
MOST_KINDS = 1 << 16

_TAKEN = ("x", "y", "escape")  # what the model calls its own features


@dataclass(frozen=True)
class HistoryFeature:
    """A feature (key, label), where the key is a function of the labels that a context remembers.

    `function` gets the last `length` labels before a position, the oldest first: "⋆" for one that
    the context has forgotten, "^" for everything before the first. It returns a key, any string, or
    None for no feature. Histories with the same key share their weights, one per label.

    With `neighbours`, the function gets the labels of other positions than the last ones: those of
    `neighbours(i, n)`, where i is the position and n the length of the sequence. They may be on
    either side, or above in a grid, if the `ordering` of the model visits them before. "⋆" stands
    for a label that is forgotten, or was visited more than `length` steps before; "^" for None
    and positions outside; "?" for one that is visited later.

    The function is called once or a few times for each distinct history, and must be
    deterministic. It is not part of a saved model. Contexts must remember at least `length`
    labels, so there may be many histories: that is the main cost of such features.

    >>> from inout.learning.contexts import fit_contexts
    >>> def vowels(history):
    ...     return str(sum(label in "aeiou" for label in history))
    >>> words = [list("kanobitu"), list("abidune")] * 10
    >>> blank = [[[] for _ in word] for word in words]  # nothing is known of the positions
    >>> feature = HistoryFeature("vowels", 2, vowels)
    >>> model = fit_contexts(blank, words, order=1, history_features=[feature])
    >>> counts = model.expected_features(blank[:1])
    >>> sorted({feature[1] for feature in counts if feature[0] == "vowels"})
    ['0', '1', '2']
    """

    name: str  # what it is called, beside the key and the label, among the model's features
    length: int  # how many labels the function sees
    function: Callable[[tuple[str, ...]], str | None]
    neighbours: Callable[[int, int], Sequence[int | None]] | None = None

    def __post_init__(self) -> None:
        wanted = f"must not be empty, nor {', '.join(_TAKEN)}, which the model's own features have"
        expect(self.name and self.name not in _TAKEN, "name", wanted, self.name)
        wanted = f"of the history feature {self.name} must be at least 1"
        expect(self.length >= 1, "length", wanted, self.length)

    def key(self, history: tuple[str, ...]) -> str | None:
        """What the function says, checked."""
        found = self.function(history)
        if found is not None and not isinstance(found, str):
            wanted = f"of the history feature {self.name} must give a string or None"
            given = f"{found!r:.80} for {' '.join(history)!r:.80}"
            raise ArgumentError("function", f"{wanted}. Got {given}")
        return found


def checked_features(given: Any) -> tuple[HistoryFeature, ...]:
    """The features, checked."""
    found = tuple(given) if isinstance(given, Iterable) else (None,)
    good = all(isinstance(one, HistoryFeature) for one in found)
    expect(good, "history_features", "must be a list of HistoryFeature", given)
    return found


def described(features: Sequence[HistoryFeature]) -> tuple[tuple[str, int], ...]:
    """The names and lengths of features, which must have different names."""
    found = tuple((feature.name, feature.length) for feature in features)
    names = [name for name, _ in found]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        wanted = "must have different names"
        raise ArgumentError("history_features", f"{wanted}. Got {repeated[0]!r:.80} more than once")
    return found


def with_neighbours(features: Sequence[HistoryFeature]) -> tuple[str, ...]:
    """The names of those that see neighbours."""
    return tuple(feature.name for feature in features if feature.neighbours is not None)


def in_order(
    given: Sequence[HistoryFeature], wanted: Sequence[tuple[str, int]]
) -> tuple[HistoryFeature, ...]:
    """The features with these names and lengths, none missing and none beyond."""
    own = {(feature.name, feature.length): feature for feature in given}
    if sorted(described(given)) != sorted(wanted):
        raise ArgumentError(
            "history_features",
            "must be those that the model was trained with, whose functions are "
            f"not in its file and can only be given in Python: {_listed(wanted)}. "
            f"Got {_listed(described(given))}",
        )
    return tuple(own[one] for one in wanted)


def _listed(features: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} (length {length})" for name, length in features) or "none"


def ties(
    features: Sequence[HistoryFeature],
    labels: Sequence[str],
    rows: Sequence[dict[str, int]] | None = None,
) -> Ties:
    """The features as ties of further streams, behind the one of n-grams; `rows` they have."""
    taken = [BEGINNING, ANYTHING, *([LATER] if with_neighbours(features) else [])]
    if features and {*taken} & set(labels):
        raise ArgumentError(
            "labels",
            f"must not be {' or '.join(taken)}, which stand for the beginning and for anything in "
            "the histories that functions get",
        )
    names = dict(enumerate(labels)) | {BEGIN: BEGINNING, STAR: ANYTHING}
    kinds, places = Kinds(), accumulate((bool(one.neighbours) for one in features), initial=0)
    functions = [
        Named(one, names, kinds, place) for one, place in zip(features, places, strict=False)
    ]
    return Ties([None, *functions], None if rows is None else [{}, *rows])


class Kinds:
    """Numbers for how many steps ago the neighbours of a position were visited, by feature."""

    def __init__(self) -> None:
        self.lags: list[tuple[tuple[int, ...], ...]] = []
        self._numbers: dict[tuple[tuple[int, ...], ...], int] = {}

    def of(
        self, features: Sequence[HistoryFeature], length: int, visits: Iterable[int]
    ) -> list[int]:
        """The kind of each position of a sequence, in the order of its visits."""
        order = list(visits)
        when = {position: step for step, position in enumerate(order)}

        def lag(feature: HistoryFeature, step: int, other: Any) -> int:
            if other is None or other not in when:
                return _OUTSIDE
            return min(step - when[other], feature.length + 1) if when[other] < step else _LATER

        found = []
        for step, i in enumerate(order):
            several = [(one, one.neighbours(i, length)) for one in features if one.neighbours]
            lags = tuple(tuple(lag(one, step, j) for j in near) for one, near in several)
            with LOCK:
                number = self._numbers.setdefault(lags, len(self.lags))
                if number == len(self.lags):
                    self.lags.append(lags)
            expect(number < MOST_KINDS, "neighbours", "must be more regular", f"{number} kinds")
            found.append(number)
        return found


@dataclass(frozen=True)
class Named:
    """A feature as a function of the numbers of labels; a class, so that it can be pickled."""

    feature: HistoryFeature
    names: dict[int, str]
    kinds: Kinds
    place: int  # among the features that have neighbours

    def __call__(self, symbols: tuple[int, ...], kind: int | None = None) -> str | None:
        if kind is None:
            return self.feature.key(tuple(self.names[symbol] for symbol in symbols))
        if kind < 0:
            return None  # the end is beside nothing
        lags = self.kinds.lags[kind][self.place]
        return self.feature.key(tuple(self._label(symbols, lag) for lag in lags))

    def _label(self, symbols: tuple[int, ...], lag: int) -> str:
        if lag in (_OUTSIDE, _LATER):
            return BEGINNING if lag == _OUTSIDE else LATER
        return ANYTHING if lag > len(symbols) else self.names[symbols[-lag]]
