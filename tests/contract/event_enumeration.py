"""Sums over all events of a batch in float64: the oracle of the suite for dense distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Event = tuple[Any, ...]
Part = tuple[str, tuple[int, ...]]
F32, F64 = torch.float32, torch.float64

# Events of a suite by length and shapes, with their parts; the oldest go.
_KNOWN: dict[Any, tuple[list[Event], NDArray[np.int64]]] = {}


class Facts(Protocol):
    """What the oracle must know of a family; see `DistributionSuite`."""

    def potentials(self, case: Case) -> dict[str, Tensor]: ...
    def events(self, n: int, s: int) -> list[Event]: ...
    def parts_of(self, event: Event) -> list[Part]: ...
    def tensor(self, event: Event, n: int, s: int) -> Tensor: ...


@dataclass(frozen=True)
class Case:
    """Arguments of a distribution: the differentiable ones, the others, and the lengths."""

    arguments: dict[str, Tensor]
    batch: tuple[int, ...]
    n: int
    s: int
    lengths: Tensor | None = None
    others: dict[str, Tensor] = field(default_factory=dict)

    def length(self, element: tuple[int, ...]) -> int:
        return self.n if self.lengths is None else int(self.lengths[element])

    def elements(self) -> Iterator[tuple[int, ...]]:
        return product(*map(range, self.batch))

    def changed(self, change: Callable[[str, Tensor], Tensor]) -> Case:
        return replace(self, arguments={n: change(n, x) for n, x in self.arguments.items()})

    def leaves(self) -> Case:
        return self.changed(lambda _, x: x.detach().clone().requires_grad_())


class Enumeration:
    """All events of every element of a batch with their scores, in float64."""

    def __init__(self, suite: Facts, case: Case) -> None:
        self.suite, self.case = suite, case
        arguments = {name: x.double() for name, x in case.arguments.items()}
        self.potentials = suite.potentials(replace(case, arguments=arguments))
        self.shapes = {n: p.shape[len(case.batch) :] for n, p in self.potentials.items()}
        self.offsets, total = {}, 0
        for name, shape in self.shapes.items():
            self.offsets[name] = total
            total += math.prod(shape)
        self.size = total
        self.elements = list(case.elements())
        lengths = [case.length(b) for b in self.elements]
        found = [self._events_and_rows(n) for n in lengths]
        self.events, self.rows = [list(events) for events, _ in found], [rows for _, rows in found]

    def _events_and_rows(self, n: int) -> tuple[list[Event], Tensor]:
        """All events of a length, and the places of their parts; made once for each shape."""
        key = type(self), type(self.suite), n, self.case.s, tuple(self.shapes.items())
        if key not in _KNOWN:
            events = self.suite.events(n, self.case.s)
            row = [[self._place(part) for part in self.suite.parts_of(event)] for event in events]
            # Events with fewer parts than others have the place after the last, whose value is 0.
            most = max(map(len, row), default=0)
            for places in row:
                places.extend([self.size] * (most - len(places)))
            rows = np.array(row, np.int64).reshape(len(row), -1 if row else 0)
            if len(_KNOWN) >= 50:
                del _KNOWN[next(iter(_KNOWN))]
            _KNOWN[key] = events, rows
        events, rows = _KNOWN[key]
        return events, torch.from_numpy(rows)  # in torch.func, a tensor is of one call

    def _place(self, part: Part) -> int:
        name, index = part
        place = 0
        for i, size in zip(index, self.shapes[name], strict=True):
            place = place * size + i
        return self.offsets[name] + place

    def flat(self, values: dict[str, Tensor]) -> Tensor:
        """Values of the parts, [elements, parts]; what is not named is 0."""
        pieces = []
        for name, shape in self.shapes.items():
            whole = self.case.batch + tuple(shape)
            value = values.get(name, torch.zeros(whole, dtype=F64))
            pieces.append(value.double().expand(whole).reshape(len(self.elements), -1))
        return torch.cat(pieces, 1)

    def unflat(self, flat: Tensor) -> dict[str, Tensor]:
        return {
            name: flat[:, self.offsets[name] : self.offsets[name] + math.prod(shape)].reshape(
                self.case.batch + tuple(shape)
            )
            for name, shape in self.shapes.items()
        }

    def scores(self, values: dict[str, Tensor] | None = None) -> list[Tensor]:
        """Sum of `values` (the potentials) over the parts of each event, for each element."""
        flat = self.flat(self.potentials if values is None else values)
        flat = torch.nn.functional.pad(flat, (0, 1))
        return [flat[b][rows].sum(-1) for b, rows in enumerate(self.rows)]

    def shaped(self, values: list[Tensor]) -> Tensor:
        return torch.stack(values).reshape(self.case.batch)

    def log_z(self) -> Tensor:
        return self.shaped([x.logsumexp(0) for x in self.scores()])

    def probabilities(self) -> list[Tensor]:
        result = []
        for x in self.scores():
            x = x.detach()
            alive = bool((x > -torch.inf).any())
            result.append(x.softmax(0) if alive else torch.zeros_like(x))
        return result

    def counts(self) -> list[Tensor]:
        """How often each event uses each part: [events, parts], for each element."""
        result = []
        for rows in self.rows:
            count = torch.zeros(len(rows), self.size + 1, dtype=F64)
            ones = torch.ones(rows.shape, dtype=F64)
            result.append(count.scatter_add(1, rows, ones)[:, :-1])
        return result

    def marginals(self) -> dict[str, Tensor]:
        pairs = zip(self.probabilities(), self.counts(), strict=True)
        return self.unflat(torch.stack([p @ c for p, c in pairs]))

    def mean(self, f: dict[str, Tensor]) -> Tensor:
        pairs = zip(self.probabilities(), self.scores(f), strict=True)
        return self.shaped([(p * x).sum() for p, x in pairs])

    def covariance(self, f: dict[str, Tensor], g: dict[str, Tensor]) -> Tensor:
        triples = zip(self.probabilities(), self.scores(f), self.scores(g), strict=True)
        return self.shaped(
            [(p * (x - (p * x).sum()) * (y - (p * y).sum())).sum() for p, x, y in triples]
        )

    def hessian_times(self, u: dict[str, Tensor]) -> dict[str, Tensor]:
        """Cov[part, U] of every part."""
        triples = zip(self.probabilities(), self.scores(u), self.counts(), strict=True)
        return self.unflat(torch.stack([(p * (x - (p * x).sum())) @ c for p, x, c in triples]))

    def slope_of_entropy(self, u: dict[str, Tensor]) -> Tensor:
        """The derivative of the entropy along U: -Cov[score, U]."""
        slopes = []
        rows = zip(self.probabilities(), self.scores(), self.counts(), self.flat(u), strict=True)
        for p, scores, counts, values in rows:
            scores, own = scores.where(p > 0, 0.0), counts @ values
            slopes.append(-(p * (scores - (p * scores).sum()) * own).sum())
        return self.shaped(slopes)

    def padded(self, events: list[Event]) -> Tensor:
        tensors = [self.suite.tensor(e, self.case.n, self.case.s) for e in events]
        # Of no events, the shape alone.
        empty = self.suite.tensor((), self.case.n, self.case.s)[None]
        return torch.stack(tensors) if tensors else empty[:0]


class SeenEnumeration(Enumeration):
    """The same distribution over what the library writes, of events that differ in more.

    `events` are one of each kind; scores are sums over all of a kind, counts are means.
    """

    def __init__(self, suite: Facts, case: Case) -> None:
        super().__init__(suite, case)
        self.kinds, every, self.events = [], self.events, []
        for events in every:
            first: dict[tuple[int, ...], int] = {}
            written = [tuple(x.reshape(-1).tolist()) for x in self.padded(events)]
            for place, event in enumerate(written):
                first.setdefault(event, place)
            numbers = {event: number for number, event in enumerate(first)}
            self.kinds.append(torch.tensor([numbers[event] for event in written]))
            self.events.append([events[place] for place in first.values()])

    def _of_kinds(self, b: int, values: Tensor) -> list[Tensor]:
        return [values[self.kinds[b] == kind] for kind in range(len(self.events[b]))]

    def scores(self, values: dict[str, Tensor] | None = None) -> list[Tensor]:
        assert values is None, "a kind has no sum of values"
        result = []
        for b, scores in enumerate(super().scores()):
            sums = [
                x.logsumexp(0) if bool((x > -torch.inf).any()) else x.detach().amax()
                for x in self._of_kinds(b, scores)
            ]
            result.append(torch.stack(sums) if sums else scores)
        return result

    def counts(self) -> list[Tensor]:
        result = []
        for b, (scores, counts) in enumerate(zip(super().scores(), super().counts(), strict=True)):
            pairs = zip(self._of_kinds(b, scores), self._of_kinds(b, counts), strict=True)
            means = [x.detach().softmax(0).nan_to_num() @ c for x, c in pairs]
            result.append(torch.stack(means) if means else counts)
        return result


def random_like(values: dict[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
    return {n: torch.randn(x.shape, generator=generator, dtype=F64) for n, x in values.items()}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
