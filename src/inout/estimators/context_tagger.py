"""`ContextTagger`: sequence labelling with confidences, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError(
        'inout.estimators needs scikit-learn: pip install "inout[estimators]"'
    ) from error

from inout._core.errors import ArgumentError
from inout.contexts.history_features import HistoryFeature
from inout.contexts.model import ContextModel, Tagging
from inout.contexts.orderings import LEFT_TO_RIGHT, Ordering
from inout.learning.contexts import Method, check_positions, fit_contexts

Position: TypeAlias = Mapping[str, float] | Sequence[str]
Sequences: TypeAlias = Sequence[Sequence[Position] | NDArray[Any]]
Labels: TypeAlias = Sequence[Sequence[Hashable] | NDArray[Any]]


class ContextTagger(BaseEstimator):  # type: ignore[misc]
    """Labels sequences by a reified context model, with confidences.

    A sequence is a list of positions, each a list of names of features or a mapping from names to
    values; or an array [n, d] of numbers. Labels are strings, or anything of which no two look the
    same as strings. Sequences are not padded, and must not be empty.

    `order`: n-grams of up to this many labels are features. `size`: number of contexts per
    position. `memory`: maximum labels a context remembers ("order": what n-grams need; None: no
    limit). `beam`: beam search instead; with `learn_escape` pruned histories stay possible.
    `method`, `epochs`, `step`, `delta`, `l2`, `threads`, `truncate`, `ordering`: as in
    `inout.learning.contexts.fit_contexts`.
    `random_state`: the order in which sequences are seen; None is always the same order.
    `history_features`: functions of the labels before a position, which they see as strings.

    After `fit`: `classes_` are the labels in order, `model_` is the `ContextModel`, which can be
    saved, without functions also for `inout context tag`.

    >>> tagger = ContextTagger(order=2, epochs=3)
    >>> sequences, labels = [[["round"], ["dark"]]] * 3, [["sun", "moon"]] * 3
    >>> tagger.fit(sequences, labels).predict([[["dark"], ["round"]]])
    [['moon', 'sun']]
    >>> (
    ...     tagger.classes_.tolist(),
    ...     tagger.predict_proba([[["dark"]]])[0].shape,
    ...     tagger.confidence([[["round"], ["dark"]]]).shape,
    ... )
    (['moon', 'sun'], (1, 2), (1,))

    Steinhardt & Liang, "Reified context models" (2015).
    """

    def __init__(
        self,
        order: int = 4,
        size: int = 10,
        memory: int | str | None = "order",
        beam: bool = False,
        learn_escape: bool = False,
        method: Method = "adagrad",
        epochs: int = 5,
        step: float = 0.2,
        delta: float = 0.1,
        l2: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        history_features: Sequence[HistoryFeature] = (),
        threads: int = 1,
        truncate: float = 0.0,
        ordering: Ordering = LEFT_TO_RIGHT,
    ) -> None:
        self.order, self.size, self.memory = order, size, memory
        self.beam, self.learn_escape = beam, learn_escape
        self.method, self.epochs = method, epochs
        self.step, self.delta, self.l2 = step, delta, l2
        self.random_state, self.history_features = random_state, history_features
        self.threads, self.truncate, self.ordering = threads, truncate, ordering

    def fit(self, X: Sequences, y: Labels) -> ContextTagger:
        """Train on sequences and their labels; O(epochs · positions · size · labels) time."""
        classes = _classes(y)
        names = {label: name for name, label in classes.items()}
        options = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
            if name not in ("random_state", "history_features", "ordering")
        }
        model = fit_contexts(
            X,
            [[names[label] for label in labels] for labels in y],
            history_features=self.history_features,
            ordering=self.ordering,
            generator=_generator(self.random_state),
            **options,
        )
        self.model_: ContextModel = replace(
            model, training={**model.training, **options, "sequences": len(X)}
        )
        self.classes_: NDArray[Any] = _array([classes[name] for name in model.labels])
        return self

    def predict(self, X: Sequences) -> list[list[Any]]:
        """The most probable labelling of each sequence."""
        return self._labels(self._tag(X))

    def predict_proba(self, X: Sequences) -> list[NDArray[np.float64]]:
        """The probability of each label at each position: an array [n s] for each sequence.

        Columns are in the order of `classes_`, rows sum to one. The best individual labels need
        not be those of `predict`, which are jointly the best.
        """
        return [tagging.marginals for tagging in self._tag(X)]

    def confidence(self, X: Sequences) -> NDArray[np.float64]:
        """The probability that all labels of `predict` are right, for each sequence: [b]."""
        return np.array([tagging.confidence for tagging in self._tag(X)], dtype=np.float64)

    def score(self, X: Sequences, y: Labels) -> float:
        """The share of sequences whose labels are all right; `label_score` counts labels."""
        right = [bool(hits.all()) for hits in self._hits(X, y)]
        return float(np.mean(right))

    def label_score(self, X: Sequences, y: Labels) -> float:
        """The share of labels that are right, over all sequences."""
        return float(np.concatenate(list(self._hits(X, y))).mean())

    def _hits(self, X: Sequences, y: Labels) -> Iterator[NDArray[np.bool_]]:
        """Whether each label is right, for each sequence."""
        found = self.predict(X)
        if len(found) != len(y) or not len(y):
            raise ArgumentError(
                None,
                f"X and y must have the same number of sequences, at least one. Got {len(found)} "
                f"and {len(y)}",
            )
        check_positions("y", found, y)
        for labels, wanted in zip(found, y, strict=True):
            yield np.array([a == b for a, b in zip(labels, wanted, strict=True)], dtype=np.bool_)

    def _tag(self, X: Sequences) -> list[Tagging]:
        check_is_fitted(self)
        return self.model_.tag(X)

    def _labels(self, found: Sequence[Tagging]) -> list[list[Any]]:
        own = dict(zip(self.model_.labels, self.classes_.tolist(), strict=True))
        return [[own[name] for name in tagging.labels] for tagging in found]


def _classes(y: Labels) -> dict[str, Hashable]:
    """The labels by their strings, which must be distinct."""
    found: dict[str, Hashable] = {}
    for label in {label: None for labels in y for label in labels}:
        if found.setdefault(str(label), label) != label:
            raise ArgumentError(
                "y", f": labels must differ as strings too. Got {found[str(label)]!r} and {label!r}"
            )
    return found


def _array(labels: Sequence[Hashable]) -> NDArray[Any]:
    """An array of the labels with their own type, or of objects if types are mixed."""
    if len({type(label) for label in labels}) == 1 and not isinstance(labels[0], tuple):
        return np.array(labels)
    made = np.empty(len(labels), dtype=object)
    made[:] = labels
    return made


def _generator(random_state: int | np.random.RandomState | None) -> torch.Generator | None:
    if random_state is None:
        return None
    drawn = check_random_state(random_state).randint(2**31 - 1)
    return torch.Generator().manual_seed(int(drawn))
