"""The tree with the most expected correct labelled brackets (Goodman 1996)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from inout.grammars.parser.marginals import Marginals
from inout.grammars.tree import PlainTree

Vector = NDArray[np.float64]
Label = Callable[[str], str | None]

_MORE_LIKELY_THAN_NOT = 0.5


def most_recalled(
    marginals: Marginals, words: list[str], start: str, label: Label | None = None
) -> PlainTree:
    """The labelled binary bracketing with the most expected correct brackets.

    In a binary bracketing each span has the label that is most likely there, or none where most
    trees have no constituent there that counts; brackets without a label vanish, so that the tree
    need not be binary. Further labels over the same span come in where they are more likely than
    not. The root has the start symbol. O(n³).
    """
    n = len(words)
    names, values, rest = _by_label(marginals, n, label)
    tags, bare = _tags(marginals, label)
    for (name, place), value in tags.items():
        if name in names:
            # A tag is drawn with its word, not as a constituent above it.
            values[place, place + 1, names.index(name)] -= value
    best = values.max(axis=2, initial=0.0) if names else np.zeros((n, n + 1))
    choice = values.argmax(axis=2) if names else np.zeros((n, n + 1), dtype=int)
    gains = np.maximum(best, rest)
    splits = _bracketing(gains)

    def labels_over(i: int, j: int) -> list[str]:
        chosen = {int(choice[i, j])} if best[i, j] > 0 and best[i, j] >= rest[i, j] else set()
        if j == i + 1:
            chosen = set()  # a word has its tag, which is a bracket already
        chosen |= set(np.flatnonzero(values[i, j] > _MORE_LIKELY_THAN_NOT).tolist())
        found = [names[a] for a in sorted(chosen)]
        return found if len(found) < 2 else _outer_first(found, marginals, (i, j), label)

    root_label = start if label is None else label(start)

    def leaf(i: int) -> PlainTree | str:
        options = [(value, name) for (name, place), value in tags.items() if place == i]
        value, name = max(options, default=(0.0, ""))
        return PlainTree(name, [words[i]]) if value > bare.get(i, 0.0) else words[i]

    # Children first, without recursion: right-branching trees are deep.
    order: list[tuple[int, int]] = []
    agenda = [(0, n)]
    while agenda:
        i, j = agenda.pop()
        order.append((i, j))
        if j > i + 1:
            agenda += [(i, int(splits[i, j])), (int(splits[i, j]), j)]
    below: dict[tuple[int, int], list[PlainTree | str]] = {}
    for i, j in reversed(order):
        k = int(splits[i, j])
        inner = [leaf(i)] if j == i + 1 else below.pop((i, k)) + below.pop((k, j))
        over = labels_over(i, j)
        if (i, j) == (0, n) and root_label is not None:
            over = [root_label, *(name for name in over if name != root_label)]
            # A sentence of one word may have its tag for a root.
            tag = inner[0].label() if n == 1 and isinstance(inner[0], PlainTree) else None
            over = [] if over == [tag] else over
        for name in reversed(over):
            inner = [PlainTree(name, inner)]
        below[i, j] = inner
    top = below[0, n]
    root = top[0] if len(top) == 1 else None
    return root if isinstance(root, PlainTree) else PlainTree(start, top)


def _outer_first(
    names: list[str], marginals: Marginals, span: tuple[int, int], label: Label | None
) -> list[str]:
    """Labels over one span, those first that stand above others more often than below them."""
    below = dict.fromkeys(names, 0.0)
    for (upper, lower), value in marginals.unary_steps.get(span, {}).items():
        outer, inner = (x if label is None else label(x) for x in (upper, lower))
        if outer in below and inner in below and outer != inner:
            below[str(outer)] -= value
            below[str(inner)] += value
    return sorted(names, key=below.__getitem__)


def _by_label(
    marginals: Marginals, n: int, label: Label | None
) -> tuple[list[str], Vector, Vector]:
    """(labels, their expected numbers [n n+1 labels], those of constituents that do not count)."""
    counts = marginals.constituent_counts
    mapped = [name if label is None else label(name) for name in marginals.labels]
    names = list(dict.fromkeys(name for name in mapped if name is not None))
    places = {name: a for a, name in enumerate(names)}
    values, rest = np.zeros((n, n + 1, len(names))), marginals.other_counts.copy()
    for a, name in enumerate(mapped):
        if name is None:
            rest += counts[:, :, a]
        else:
            values[:, :, places[name]] += counts[:, :, a]
    return names, values, rest


def _tags(
    marginals: Marginals, label: Label | None
) -> tuple[dict[tuple[str, int], float], dict[int, float]]:
    """How likely each word is right below each label, and below none that counts."""
    tags: dict[tuple[str, int], float] = {}
    bare: dict[int, float] = {}
    for (name, place, _), value in marginals.tags.items():
        shown = name if name is None or label is None else label(name)
        if shown is None:
            bare[place] = bare.get(place, 0.0) + value
        else:
            tags[shown, place] = tags.get((shown, place), 0.0) + value
    return tags, bare


def _bracketing(gains: Vector) -> NDArray[np.int64]:
    """The split k [n n+1] of each span i..j in the bracketing of the largest sum of gains."""
    n = len(gains)
    totals, splits = np.zeros((n + 1, n + 1)), np.zeros((n, n + 1), dtype=np.int64)
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width
            if width > 1:
                sums = totals[i, i + 1 : j] + totals[i + 1 : j, j]
                splits[i, j] = i + 1 + int(sums.argmax())
                totals[i, j] = sums.max()
            totals[i, j] += gains[i, j]
    return splits
