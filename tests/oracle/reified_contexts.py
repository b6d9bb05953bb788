"""Reified context models three times over, with no code of the library.

(a) `transcribed`: appendix A of Steinhardt & Liang (2015) for chains, line by line, with its
misprints corrected: step 1 expands C_{i-1}, ⋆…⋆ is on the stack before anything is merged, and an
active context keeps the score of the element that it was made from.

(b) `selected`: the same with dictionaries, for columns with several sources; the least ancestor is
found by trying all suffixes.

(c) `enumerated` and `all_paths`: sums over all (y, c).

A context is the tuple of the symbols that it remembers, from the oldest to the latest, the
beginning (BOS) being one of them; () is ⋆…⋆.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

BOS = "BOS"
INF = math.inf
String = tuple[Any, ...]
Score = Callable[[int, String, int], float]  # of a label at a position, or of an action
Node = tuple[int, String]  # column, context
Edge = tuple[int, int, String, int]  # column, source column, context, action


class AmbiguousError(Exception):
    """Rounding decides which contexts are chosen."""


@dataclass
class Selection:
    """The contexts of all columns, in order, and what leads from one to another."""

    contexts: list[list[String]]
    forward: dict[Node, float]
    edges: dict[Edge, tuple[float, String]]  # their scores, and the contexts they lead to


def log_sum(values: Iterable[float]) -> float:
    """log Σ exp, accurately."""
    values = [v for v in values if v > -INF]
    if not values:
        return -INF
    top = max(values)
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def place(string: String) -> tuple[Any, ...]:
    """What strings are sorted by: the last symbol first; labels, then the beginning, then ⋆."""
    keys: list[tuple[int, int]] = []
    for symbol in reversed(string):
        action = symbol[0] if isinstance(symbol, tuple) else symbol
        keys.append((1, 0) if action == BOS else (0, action))
    return (*keys, (2, 0))


def choose(
    masses: Mapping[String, float], size: int, exact: Callable[[Sequence[String]], bool]
) -> set[String]:
    """The `size` strings with the largest masses above zero; of equal ones the first in order.

    `exact` says whether strings whose masses look equal are equal indeed.
    """
    ranked = sorted((s for s in masses if masses[s] > -INF), key=lambda s: (-masses[s], place(s)))
    if 0 < size < len(ranked):
        last, limit = masses[ranked[size - 1]], masses[ranked[size]]
        near = [s for s in ranked if abs(masses[s] - limit) < 1e-9]
        if last - limit < 1e-9 and not (len({masses[s] for s in near}) == 1 and exact(near)):
            raise AmbiguousError
    return set(ranked[:size])


# ------------------------------------------------------------------- appendix A, for chains


@dataclass
class Merged:
    """M: an element of C_i."""

    string: String
    len: int
    forward: float = -INF
    absorbed: list[Expanded] = field(default_factory=list)
    pure: bool = False  # its forward score was never added up from several

    def absorb(self, element: Expanded) -> None:
        self.absorbed.append(element)
        element.merged_into = self


@dataclass
class Expanded:
    """E: an element of C̃_i; with a bound on the memory, of several contexts of C_{i-1}."""

    sources: list[tuple[Merged, float]]  # contexts, and the score of the label after each
    label: int
    string: String
    len: int
    forward: float
    active: bool = False
    merged_into: Merged | None = None


def transcribed(
    labels: int,
    score: Score,
    sizes: Sequence[int],
    *,
    memory: int | None = None,
    beam: bool = False,
    escape: float = 0.0,
) -> Selection:
    """Algorithm RCMS for a chain with sizes[i] contexts after i+1 labels, beside ⋆…⋆."""
    limit = math.inf if memory is None else memory
    chain = [Merged((BOS,), 1, 0.0, pure=True)]
    lcs: list[float] = [0]
    found = Selection([[(BOS,)]], {(0, (BOS,)): 0.0}, {})
    for i, size in enumerate(sizes):
        # Step 1.
        elements: list[Expanded] = []
        wide_lcs: list[float] = []
        for label in range(labels):
            for k, m in enumerate(chain):
                wide_lcs.append(lcs[k] + 1 if k + 1 < len(chain) else 0)
                own = score(i, m.string, label) + (escape if m.len == 0 else 0.0)
                string = (*m.string, label)
                elements.append(Expanded([(m, own)], label, string, m.len + 1, m.forward + own))
        elements, wide_lcs = _bounded(elements, wide_lcs, limit)
        # Step 2.
        allowed = {e.string: e for e in elements if not beam or e.string[0] == BOS}

        def exact(near: Sequence[String], allowed: Any = allowed) -> bool:
            # Of one context, or never added up: equal in any arithmetic.
            sources = [m for s in near for m, _ in allowed[s].sources]
            one = len({id(m) for m in sources}) == 1
            return len(sources) == len(near) and (one or all(m.pure for m in sources))

        for string in choose({s: e.forward for s, e in allowed.items()}, size, exact):
            allowed[string].active = True
        # Step 3.
        whole = Merged((), 0)
        stack, chain, lcs = [whole], [whole], [0]
        common = math.inf
        for j in reversed(range(len(elements))):
            element = elements[j]
            common = min(common, wide_lcs[j])
            while common < stack[-1].len:
                stack.pop()
            if element.active:
                m = Merged(element.string, element.len)
                m.absorb(element)
                lcs.append(common)
                chain.append(m)
                stack.append(m)
                common = math.inf
            else:
                stack[-1].absorb(element)
        lcs.reverse()
        chain.reverse()
        found.contexts.append([m.string for m in chain])
        for m in chain:
            m.forward = log_sum(e.forward for e in m.absorbed)
            m.pure = [source.pure for e in m.absorbed for source, _ in e.sources] == [True]
            found.forward[i + 1, m.string] = m.forward
            for e in m.absorbed:
                for source, own in e.sources:
                    found.edges[i + 1, i, source.string, e.label] = own, m.string
    return found


def _bounded(
    elements: list[Expanded], lcs: list[float], memory: float
) -> tuple[list[Expanded], list[float]]:
    """Elements with the same last `memory` symbols, which are neighbours, as one."""
    kept: list[Expanded] = []
    kept_lcs: list[float] = []
    for element, common in zip(elements, lcs, strict=True):
        if kept and kept_lcs[-1] >= memory:
            kept[-1].sources += element.sources
            kept[-1].forward = log_sum([kept[-1].forward, element.forward])
            kept_lcs[-1] = common
        else:
            element.len = min(element.len, int(min(memory, element.len)))
            element.string = element.string[len(element.string) - element.len :]
            kept.append(element)
            kept_lcs.append(common)
    return kept, [min(common, memory) for common in kept_lcs]


# ----------------------------------------------------------- dictionaries, for any columns


@dataclass(frozen=True)
class Target:
    """What the actions of a path are to write: symbols[a] for action a, None for nothing."""

    symbols: Sequence[int | None]
    string: Sequence[int]

    def after(self, written: int, action: int) -> int | None:
        """How much of the string is written after one more action; None: something else is."""
        symbol = self.symbols[action]
        if symbol is None:
            return written
        right = written < len(self.string) and self.string[written] == symbol
        return written + 1 if right else None


@dataclass(frozen=True)
class Column:
    """Where contexts are selected: its source columns, actions, the input that is read."""

    sources: Sequence[int]
    actions: range
    given: int = -1


def suffix_in(string: String, contexts: Iterable[String]) -> String:
    """The longest suffix of a string that is among the contexts."""
    contexts = set(contexts)
    for start in range(len(string) + 1):
        if string[start:] in contexts:
            return string[start:]
    raise AssertionError("⋆…⋆ is missing")


def selected(
    columns: Sequence[Column],
    score: Score,
    sizes: Sequence[int],
    *,
    memory: int | None = None,
    beam: bool = False,
    escape: float = 0.0,
    by: str = "model",
    target: Target | None = None,
) -> Selection:
    """RCMS for one example; symbols of contexts are (action, input).

    `score(column, context, action)`. The last column has ⋆…⋆ only.
    """
    found = Selection([], {}, {})
    aims: dict[tuple[int, String, int], float] = {}  # mass that has written so much of the target
    for c, column in enumerate(columns):
        if not column.sources:
            found.contexts.append([(BOS,)])
            found.forward[c, (BOS,)] = 0.0
            aims[c, (BOS,), 0] = 0.0
            continue
        parts: dict[String, list[tuple[Edge, float]]] = {}
        for source in column.sources:
            for context in found.contexts[source]:
                for action in column.actions:
                    own = score(c, context, action) + (escape if context == () else 0.0)
                    string = (*context, (action, column.given))
                    if memory is not None:
                        string = string[-memory:]
                    parts.setdefault(string, []).append(((c, source, context, action), own))
        masses = {
            string: log_sum(found.forward[edge[1], edge[2]] + own for edge, own in several)
            for string, several in parts.items()
        }
        aimed: dict[String, dict[int, list[float]]] = {string: {} for string in parts}
        if target is not None:
            for string, several in parts.items():
                for (_, source, context, action), own in several:
                    for written in range(len(target.string) + 1):
                        after = target.after(written, action)
                        mass = aims.get((source, context, written), -INF) + own
                        if after is not None and mass > -INF:
                            aimed[string].setdefault(after, []).append(mass)

        def exact(near: Sequence[String], parts: Any = parts) -> bool:
            sources = {tuple((edge[1:3], own) for edge, own in parts[s]) for s in near}
            return len(sources) == 1 or all(s[0] == BOS and len(s) == 2 for s in near)

        allowed = [s for s in parts if not beam or s[0] == BOS]
        size = 0 if c == len(columns) - 1 else sizes[c]
        chosen: set[String] = set()
        if by in ("model", "hybrid"):
            chosen |= choose({s: masses[s] for s in allowed}, size, exact)
        if by in ("target", "hybrid"):
            totals = {s: log_sum(x for own in aimed[s].values() for x in own) for s in allowed}
            chosen |= choose(totals, size, exact)
        contexts = [*sorted(chosen, key=place), ()]
        found.contexts.append(contexts)
        into = {string: suffix_in(string, contexts) for string in parts}
        for context in contexts:
            own_strings = [s for s in parts if into[s] == context]
            found.forward[c, context] = log_sum(masses[s] for s in own_strings)
            written = {w for s in own_strings for w in aimed[s]}
            for w in written:
                several = [x for s in own_strings for x in aimed[s].get(w, [])]
                aims[c, context, w] = log_sum(several)
        for string, several in parts.items():
            for edge, own in several:
                found.edges[edge] = own, into[string]
    return found


Weights = Mapping[tuple[int, String, int | None], Sequence[float]]  # rows by their histories


@dataclass(frozen=True)
class Stream:
    """What features see: shown[a] of action a (None: nothing), with the input if `pairs`."""

    shown: Sequence[int | None]
    places: Sequence[int | None]  # which number of a row an action has; None: no weights
    lengths: Sequence[int]
    pairs: bool = False
    next_input: bool = False


def history(stream: Stream, context: String, length: int) -> String:
    """The last symbols of a context that a stream shows, BOS or ⋆ where there are no more."""
    anchored = bool(context) and context[0] == BOS
    symbols: list[Any] = []
    for action, given in context[1:] if anchored else context:
        shown = stream.shown[action]
        if shown is not None:
            symbols.append((shown, given) if stream.pairs else shown)
    filled = [BOS if anchored else "⋆"] * length + symbols
    return tuple(filled[len(filled) - length :])


def feature_score(
    streams: Sequence[Stream],
    weights: Weights,
    context: String,
    given: int,
    action: int,
    *,
    deepest: bool = False,
) -> float:
    """The weights of all histories of a context with an action, or of the longest that have any."""
    total = 0.0
    for number, stream in enumerate(streams):
        where = stream.places[action]
        if where is None:
            continue
        for length in sorted(stream.lengths, reverse=True):
            key = number, history(stream, context, length), given if stream.next_input else None
            if key in weights:
                total += weights[key][where]
                if deepest:
                    break
    return total


# ---------------------------------------------------------------------- sums over all (y, c)


@dataclass
class Totals:
    """Sums over all paths of a selection."""

    log_z: float
    posteriors: dict[Edge, float]
    mass: dict[Node, float]
    best: float
    best_paths: list[tuple[Edge, ...]]
    constrained: float = -INF
    constrained_posteriors: dict[Edge, float] = field(default_factory=dict)
    paths: list[tuple[float, tuple[Edge, ...]]] = field(default_factory=list)


def all_paths(
    columns: Sequence[Column],
    contexts: Sequence[Sequence[String]],
    score: Score,
    *,
    escape: float = 0.0,
    memory: int | None = None,
    target: Target | None = None,
) -> Totals:
    """Every path from the first column to the last, its contexts by the definition of f."""
    follow: dict[int, list[int]] = {}
    for c, column in enumerate(columns):
        for source in column.sources:
            follow.setdefault(source, []).append(c)
    paths: list[tuple[float, tuple[Edge, ...], int | None]] = []

    def walk(c: int, context: String, total: float, edges: tuple[Edge, ...], t: int | None) -> None:
        if c == len(columns) - 1:
            paths.append((total, edges, t))
            return
        for after in follow.get(c, []):
            for action in columns[after].actions:
                own = score(after, context, action) + (escape if context == () else 0.0)
                string = (*context, (action, columns[after].given))
                if memory is not None:
                    string = string[-memory:]
                step = (after, c, context, action)
                now = None if target is None or t is None else target.after(t, action)
                walk(after, suffix_in(string, contexts[after]), total + own, (*edges, step), now)

    walk(0, (BOS,), 0.0, (), 0)
    totals = Totals(log_sum(p[0] for p in paths), {}, {}, max(p[0] for p in paths), [])
    totals.best_paths = [e for total, e, _ in paths if total > -INF and total == totals.best]
    totals.paths = [(p[0], p[1]) for p in paths]
    totals.posteriors = _shares(totals.paths)
    for (_, source, context, _), p in totals.posteriors.items():
        node = source, context
        totals.mass[node] = totals.mass.get(node, 0.0) + p
    if target is not None:
        good = [(p[0], p[1]) for p in paths if p[2] == len(target.string)]
        totals.constrained = log_sum(p[0] for p in good)
        totals.constrained_posteriors = _shares(good)
    return totals


def _shares(paths: Sequence[tuple[float, tuple[Edge, ...]]]) -> dict[Edge, float]:
    log_z = log_sum(p[0] for p in paths)
    shares: dict[Edge, float] = {}
    for total, edges in paths:
        for edge in edges:
            own = math.exp(total - log_z) if total > -INF else 0.0
            shares[edge] = shares.get(edge, 0.0) + own
    return shares


Pattern = tuple[int | None, ...]  # a context of any form: labels, or None for ⋆


@dataclass
class Enumerated:
    """Sums over all labellings under given context sets."""

    log_z: float
    labellings: dict[tuple[int, ...], float]  # their log-weights
    contexts: dict[tuple[int, ...], tuple[Pattern, ...]]  # c_0, …, c_{n-1}
    marginals: list[list[float]]
    mass: list[dict[Pattern, float]]  # of the contexts that each position follows
    best: tuple[int, ...]
    entropy: float


def enumerated(
    labels: int, sets: Sequence[Sequence[Pattern]], score: Callable[[int, Pattern, int], float]
) -> Enumerated:
    """All labellings of len(sets) + 1 positions; sets[i] are the contexts after i+1 labels."""
    n = len(sets) + 1
    weights, chains = {}, {}
    for y in product(range(labels), repeat=n):
        context: Pattern = ()
        chain, total = [], 0.0
        for i, label in enumerate(y):
            chain.append(context)
            total += score(i, context, label)
            if i + 1 < n:
                context = _intersection_of_all((*context, label), sets[i])
                assert context in sets[i], "the sets are not closed"
                assert all(c is None or c == x for c, x in zip(context, y, strict=False))
        weights[y], chains[y] = total, tuple(chain)
    log_z = log_sum(weights.values())
    marginals = [[0.0] * labels for _ in range(n)]
    mass: list[dict[Pattern, float]] = [{} for _ in range(n)]
    entropy = 0.0
    for y, weight in weights.items():
        p = math.exp(weight - log_z)
        entropy -= p * (weight - log_z) if p else 0.0
        for i, label in enumerate(y):
            marginals[i][label] += p
            mass[i][chains[y][i]] = mass[i].get(chains[y][i], 0.0) + p
    best = max(weights, key=lambda y: weights[y])
    return Enumerated(log_z, weights, chains, marginals, mass, best, entropy)


def _intersection_of_all(pattern: Pattern, contexts: Iterable[Pattern]) -> Pattern:
    """The intersection of all contexts that contain everything of a pattern."""
    meet: list[int | None] = [None] * len(pattern)
    for context in contexts:
        if all(c is None or c == p for c, p in zip(context, pattern, strict=True)):
            meet = [m if c is None else c for m, c in zip(meet, context, strict=True)]
    return tuple(meet)
