"""`HistoryFeature`: user-defined features of what a context remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.kernels.lattice.ties import BEGIN, STAR, Ties

BEGINNING, ANYTHING = "^", "⋆"

_TAKEN = ("x", "y", "escape")  # what the model calls its own features


@dataclass(frozen=True)
class HistoryFeature:
    """A feature (key, label), where the key is a function of the labels that a context remembers.

    `function` gets the last `length` labels before a position, the oldest first: "⋆" for one that
    the context has forgotten, "^" for everything before the first. It returns a key, any string, or
    None for no feature. Histories with the same key share their weights, one per label.

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
    if features and {BEGINNING, ANYTHING} & set(labels):
        raise ArgumentError(
            "labels",
            f"must not be {BEGINNING} or {ANYTHING}, which stand for the beginning and for "
            "anything in the histories that functions get",
        )
    names = dict(enumerate(labels)) | {BEGIN: BEGINNING, STAR: ANYTHING}
    functions = [_Named(feature, names) for feature in features]
    return Ties([None, *functions], None if rows is None else [{}, *rows])


@dataclass(frozen=True)
class _Named:
    """A feature as a function of the numbers of labels; a class, so that it can be pickled."""

    feature: HistoryFeature
    names: dict[int, str]

    def __call__(self, symbols: tuple[int, ...]) -> str | None:
        return self.feature.key(tuple(self.names[symbol] for symbol in symbols))
