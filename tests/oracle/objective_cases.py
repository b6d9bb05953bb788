"""Small distributions with all their events as lists of parts: the oracle of the objectives.

Nothing here asks the library anything but to make the distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise, product

import torch
from torch import Tensor
from torch.autograd import grad

from inout import PCFG, LinearChain, SemiMarkov, SpanTree, StructuredDistribution
from tests.support import assert_close

Part = tuple[str, tuple[int, ...]]
F64 = torch.float64
VARIANTS = ["finite", "-inf", "an element without events"]


@dataclass(frozen=True)
class Structure:
    """One event: its parts, the labels of its positions, and what the library calls it."""

    parts: tuple[Part, ...]
    labels: tuple[int, ...]
    tensor: Tensor


@dataclass(frozen=True)
class Case:
    """A batch of one family."""

    family: str
    make: Callable[..., StructuredDistribution]
    arguments: dict[str, Tensor]
    shapes: dict[str, tuple[int, ...]]  # of the potentials of one element
    lengths: tuple[int, ...]
    structures: Callable[[int], list[Structure]]
    labels: int

    def distribution(self, *arguments: Tensor) -> StructuredDistribution:
        given = arguments or tuple(self.arguments.values())
        named = dict(zip(self.arguments, given, strict=True))
        return self.make(**named, lengths=torch.tensor(self.lengths))

    def changed(self, change: Callable[[str, Tensor], Tensor]) -> Case:
        return replace(self, arguments={n: change(n, x) for n, x in self.arguments.items()})

    def leaves(self) -> Case:
        return self.changed(lambda _, x: x.detach().clone().requires_grad_())

    def with_impossible_parts(self, share: float = 0.15, seed: int = 5) -> Case:
        generator = seeded(seed)

        def kill(_: str, x: Tensor) -> Tensor:
            dead = torch.rand(x.shape, generator=generator) < share
            return x.masked_fill(dead, -torch.inf)

        return self.changed(kill)

    def without_events_of(self, element: int) -> Case:
        """One element has no possible event."""
        name = next(n for n, x in self.arguments.items() if len(x) == len(self.lengths))
        dead = torch.arange(len(self.lengths)) == element

        def kill(given: str, x: Tensor) -> Tensor:
            mask = dead.reshape(-1, *[1] * (x.ndim - 1))
            return x.masked_fill(mask, -torch.inf) if given == name else x

        return self.changed(kill)

    def variant(self, which: str) -> Case:
        """As it is, with impossible parts, or with an element that has no event."""
        if which == "finite":
            return self
        return self.with_impossible_parts() if which == "-inf" else self.without_events_of(1)

    def __str__(self) -> str:
        return self.family


class Enumerated:
    """Every event of every element, with probabilities that autograd follows to the arguments."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.batch = len(case.lengths)
        self.structures = [case.structures(length) for length in case.lengths]
        self.offsets, self.size = {}, 0
        for name, shape in case.shapes.items():
            self.offsets[name] = self.size
            self.size += torch.Size(shape).numel()
        self.rows = [self._rows(events) for events in self.structures]
        self.scores = self.additive(dict(case.arguments))
        self.possible = [bool((x > -torch.inf).any()) for x in self.scores]
        self.p = [
            x.softmax(0) if alive else torch.zeros_like(x)
            for x, alive in zip(self.scores, self.possible, strict=True)
        ]

    def _rows(self, events: list[Structure]) -> Tensor:
        """Places of the events' parts [events, parts]; what is missing is the place of a 0."""
        longest = max((len(e.parts) for e in events), default=0)
        rows = torch.full((len(events), longest), self.size)
        for row, event in zip(rows, events, strict=True):
            for k, part in enumerate(event.parts):
                row[k] = self.place(part)
        return rows

    def place(self, part: Part) -> int:
        name, index = part
        place = 0
        for i, size in zip(index, self.case.shapes[name], strict=True):
            place = place * size + i
        return self.offsets[name] + place

    def additive(self, f: dict[str, Tensor]) -> list[Tensor]:
        """Sum of f over the parts of each event, for each element."""
        pieces = []
        for name, shape in self.case.shapes.items():
            values = f.get(name, torch.zeros((), dtype=F64)).double()
            pieces.append(values.expand(self.batch, *shape).reshape(self.batch, -1))
        flat = torch.cat([*pieces, torch.zeros(self.batch, 1, dtype=F64)], 1)
        return [flat[b][rows].sum(-1) for b, rows in enumerate(self.rows)]

    def mean(self, values: list[Tensor]) -> Tensor:
        """Expectation [b] of a function given by its value for each event."""
        pairs = zip(self.p, values, strict=True)
        # An impossible event counts for nothing, even if its value is infinite.
        return torch.stack([(p * torch.where(p == 0, 0.0, x)).sum() for p, x in pairs])

    def counts(self, b: int) -> Tensor:
        """How often each event of an element uses each part, [events, parts]."""
        result = torch.zeros(len(self.rows[b]), self.size + 1, dtype=F64)
        ones = torch.ones(self.rows[b].shape, dtype=F64)
        return result.scatter_add(1, self.rows[b], ones)[:, :-1]

    def shaped(self, flat: Tensor, name: str) -> Tensor:
        """Of values [b, parts] those of one potential [b ...]."""
        shape = self.case.shapes[name]
        first = self.offsets[name]
        return flat[:, first : first + torch.Size(shape).numel()].reshape(self.batch, *shape)

    def position_labels(self, b: int) -> Tensor:
        """Labels [events, length] of an element's events."""
        return torch.tensor([e.labels for e in self.structures[b]])

    def gold(self, seed: int) -> tuple[Tensor, list[Structure]]:
        """A possible event of each element (any if none is), as a tensor and as it is here."""
        generator = seeded(seed)
        chosen = []
        for scores, events in zip(self.scores, self.structures, strict=True):
            good = (scores > -torch.inf).nonzero()[:, 0].tolist() or [0]
            pick = int(torch.randint(len(good), (), generator=generator))
            chosen.append(events[good[pick]])
        return torch.stack([e.tensor for e in chosen]), chosen


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=F64)


def _padded(values: list[int], n: int, fill: int) -> Tensor:
    return torch.tensor([*values, *[fill] * (n - len(values))], dtype=torch.long)


def chain(stationary: bool = True, ends: bool = True, seed: int = 0) -> Case:
    b, n, s = 3, 4, 3
    shapes = {"emissions": (n, s), "transitions": (s, s) if stationary else (n - 1, s, s)}
    arguments = {
        "emissions": randn(b, n, s, seed=seed),
        "transitions": randn(*(() if stationary else (b,)), *shapes["transitions"], seed=seed + 1),
    }
    if ends:
        shapes |= {"start": (s,), "end": (s,)}
        arguments |= {"start": randn(s, seed=seed + 2), "end": randn(b, s, seed=seed + 3)}

    def structures(length: int) -> list[Structure]:
        found = []
        for labels in product(range(s), repeat=length):
            parts: list[Part] = [("emissions", (t, y)) for t, y in enumerate(labels)]
            for t, pair in enumerate(pairwise(labels)):
                parts.append(("transitions", pair if stationary else (t, *pair)))
            if ends and length:
                parts += [("start", (labels[0],)), ("end", (labels[-1],))]
            found.append(Structure(tuple(parts), labels, _padded([*labels], n, 0)))
        return found

    family = ("shared" if stationary else "specific") + (" with ends" if ends else "")
    return Case(family, LinearChain, arguments, shapes, (4, 2, 3), structures, s)


def segments(seed: int = 10) -> Case:
    b, n, w, s = 3, 4, 3, 2
    shapes = {"log_potentials": (n, w, s, s)}

    def structures(length: int) -> list[Structure]:
        found = []
        for cuts in product([False, True], repeat=length - 1):
            ends = [k for k, cut in enumerate(cuts) if cut] + [length - 1]
            starts = [0, *(end + 1 for end in ends[:-1])]
            if any(end - start >= w for start, end in zip(starts, ends, strict=True)):
                continue
            for labels in product(range(s), repeat=len(ends)):
                parts, event, covered, before = [], [-1] * length, [0] * length, 0
                for start, end, label in zip(starts, ends, labels, strict=True):
                    parts.append(("log_potentials", (end, end - start, before, label)))
                    covered[start : end + 1] = [label] * (end + 1 - start)
                    event[end] = before = label
                found.append(Structure(tuple(parts), tuple(covered), _padded(event, n, 0)))
        return found

    arguments = {"log_potentials": randn(b, n, w, s, s, seed=seed)}
    return Case("segments", SemiMarkov, arguments, shapes, (4, 3, 1), structures, s)


def _trees(i: int, j: int, inner: range, leaves: range) -> list[tuple[tuple[int, int, int], ...]]:
    """Spans (i, j, label) of all labelled trees, a span before those below it."""
    if i == j:
        return [((i, i, label),) for label in leaves]
    return [
        ((i, j, label), *left, *right)
        for k in range(i, j)
        for left in _trees(i, k, inner, leaves)
        for right in _trees(k + 1, j, inner, leaves)
        for label in inner
    ]


def _table(spans: tuple[tuple[int, int, int], ...], n: int) -> Tensor:
    table = torch.full((n, n), -1)
    for i, j, label in spans:
        table[i, j] = label
    return table


def span_trees(seed: int = 20) -> Case:
    b, n, s = 3, 4, 2

    def structures(length: int) -> list[Structure]:
        found = []
        for spans in _trees(0, length - 1, range(s), range(s)):
            labels = tuple(label for i, j, label in sorted(spans) if i == j)
            parts = tuple(("log_potentials", span) for span in spans)
            found.append(Structure(parts, labels, _table(spans, n)))
        return found

    arguments = {"log_potentials": randn(b, n, n, s, seed=seed)}
    shapes = {"log_potentials": (n, n, s)}
    return Case("span trees", SpanTree, arguments, shapes, (4, 2, 1), structures, s)


def grammar(seed: int = 30) -> Case:
    b, n, nt, pt = 3, 4, 2, 2
    s = nt + pt

    def structures(length: int) -> list[Structure]:
        found = []
        for spans in _trees(0, length - 1, range(nt), range(nt, s)):
            symbol = {(i, j): label for i, j, label in spans}
            parts: list[Part] = [("root", (spans[0][2],))]
            for i, j, label in spans:
                if i == j:
                    parts.append(("preterminals", (i, label - nt)))
                else:
                    k = next(k for k in range(i, j) if {(i, k), (k + 1, j)} <= symbol.keys())
                    parts.append(("rules", (label, symbol[i, k], symbol[k + 1, j])))
            labels = tuple(symbol[t, t] - nt for t in range(length))
            found.append(Structure(tuple(parts), labels, _table(spans, n)))
        return found

    arguments = {
        "root": randn(nt, seed=seed),
        "rules": randn(nt, s, s, seed=seed + 1),
        "preterminals": randn(b, n, pt, seed=seed + 2),
    }
    shapes = {"root": (nt,), "rules": (nt, s, s), "preterminals": (n, pt)}
    return Case("grammar", PCFG, arguments, shapes, (4, 3, 2), structures, pt)


CHAINS = [chain(stationary, ends) for stationary in (True, False) for ends in (True, False)]
FAMILIES = [*CHAINS, segments(), span_trees(), grammar()]


def agree(
    case: Case,
    ours: Callable[[StructuredDistribution], Tensor],
    truth: Callable[[Enumerated], Tensor],
    *,
    seed: int = 99,
    rtol: float | None = None,
) -> None:
    """An objective and its gradient by every argument, against the same of an enumeration."""
    case = case.leaves()
    found, wanted = ours(case.distribution()), truth(Enumerated(case))
    assert_close(found, wanted.to(found.dtype), rtol=rtol)
    finite = wanted.isfinite()
    outer = randn(*wanted.shape, seed=seed) * finite
    leaves = list(case.arguments.values())
    mine = grad(found, leaves, outer.to(found.dtype), materialize_grads=True)
    expected = grad(torch.where(finite, wanted, 0.0), leaves, outer, materialize_grads=True)
    for x, y in zip(mine, expected, strict=True):
        assert_close(x, y, rtol=rtol)
