"""Inside and outside values of dense distributions, against all events taken apart by hand.

An event is a sequence of parts; each item of the chart covers a stretch of it. The inside value of
an item is the sum over all different stretches, its outside value over all that surrounds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch

from inout import HMM, PCFG, LinearChain, SemiMarkov, SpanTree
from inout.distributions.base import StructuredDistribution
from tests.support import assert_close

Part = tuple[str, tuple[int, ...], int]  # potential, index, and which use of it
Stretch = tuple[str, tuple[int, ...], int, int]  # block, index, from, to
Event = tuple[list[Part], list[Stretch]]


def chains(n: int, s: int, names: set[str], stationary: bool) -> Iterator[Event]:
    for labels in product(range(s), repeat=n):
        parts: list[Part] = []
        items: list[Stretch] = []
        if n and "start" in names:
            parts.append(("start", labels[:1], 0))
        for t, y in enumerate(labels):
            if t:
                pair = (labels[t - 1], y)
                parts.append(("transitions", pair if stationary else (t - 1, *pair), t))
            parts.append(("emissions", (t, y), 0))
            items.append(("alpha", (t, y), 0, len(parts)))
        if n and "end" in names:
            parts.append(("end", labels[-1:], 0))
        yield parts, [*items, ("goal", (), 0, len(parts))]


def segmentations(n: int, w: int, s: int) -> Iterator[Event]:
    def from_here(t: int, before: int) -> Iterator[list[tuple[int, int, int, int]]]:
        if t == n:
            yield []
        for d, y in product(range(1, min(w, n - t) + 1), range(s)):
            for rest in from_here(t + d, y):
                yield [(t + d - 1, d - 1, before, y), *rest]

    for segments in from_here(0, 0):
        parts: list[Part] = [("log_potentials", index, 0) for index in segments]
        items = [("alpha", (x[0], x[3]), 0, k + 1) for k, x in enumerate(segments)]
        yield parts, [*items, ("goal", (), 0, len(parts))]


def joined(own: list[Part], left: Event, right: Event, blocks: list[tuple]) -> Event:
    """A node above two others; blocks are (name, index, whether it covers the node's own part)."""
    parts = [*own, *left[0], *right[0]]
    items = [(b, x, lo + len(own), hi + len(own)) for b, x, lo, hi in left[1]]
    shift = len(own) + len(left[0])
    items += [(b, x, lo + shift, hi + shift) for b, x, lo, hi in right[1]]
    items += [(b, x, 0 if whole else len(own), len(parts)) for b, x, whole in blocks]
    return parts, items


def span_trees(i: int, j: int, s: int) -> Iterator[Event]:
    for y in range(s):
        own: list[Part] = [("log_potentials", (i, j, y), 0)]
        if i == j:
            yield own, [("label", (i, j), 0, 1), ("beta", (i, j), 0, 1)]
        for k in range(i, j):
            for left, right in product(span_trees(i, k, s), list(span_trees(k + 1, j, s))):
                parts, items = joined(own, left, right, [("beta", (i, j), True)])
                yield parts, [*items, ("label", (i, j), 0, 1)]


def grammar_trees(i: int, j: int, nt: int, pt: int) -> Iterator[tuple[int, Event]]:
    if i == j:
        for p in range(pt):
            yield nt + p, ([("preterminals", (i, p), 0)], [])
    for k in range(i, j):
        rights = list(grammar_trees(k + 1, j, nt, pt))
        for (b, left), (c, right) in product(grammar_trees(i, k, nt, pt), rights):
            for a in range(nt):
                blocks = [("beta", (i, j, a), True), ("pair", (i, j, b, c), False)]
                yield a, joined([("rules", (a, b, c), i * 100 + j)], left, right, blocks)


def rooted(events: Iterator[tuple[int, Event]]) -> Iterator[Event]:
    for a, (parts, items) in events:
        moved = [(b, x, lo + 1, hi + 1) for b, x, lo, hi in items]
        yield [("root", (a,), 0), *parts], [*moved, ("goal", (), 0, len(parts) + 1)]


def oracle(
    events: Iterator[Event], weights: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    inner: dict[tuple, set[tuple]] = {}
    outer: dict[tuple, set[tuple]] = {}
    for parts, items in events:
        single = [(name, index, k, k + 1) for k, (name, index, _) in enumerate(parts)]
        for name, index, lo, hi in [*items, *single]:
            inner.setdefault((name, index), set()).add(tuple(parts[lo:hi]))
            # Uses of one part at two places are different: the hole is marked.
            around = (*parts[:lo], *parts[hi:], lo if name in weights else -1)
            outer.setdefault((name, index), set()).add(around)
    found = []
    for sets in (inner, outer):
        values = {name: np.full(shape, -np.inf) for name, shape in shapes.items()}
        for (name, index), stretches in sets.items():
            logs = [sum(weights[p[0]][p[1]] for p in s if isinstance(p, tuple)) for s in stretches]
            values[name][index] = np.logaddexp.reduce(logs, initial=-np.inf)
        found.append(values)
    return found[0], found[1]


RNG = np.random.default_rng(3)


def potentials(*shape: int, dead: float = 0.2, scale: float = 1.0) -> torch.Tensor:
    values = RNG.normal(size=shape) * scale
    return torch.from_numpy(np.where(RNG.random(shape) < dead, -np.inf, values))


def events_of(d: StructuredDistribution, length: int) -> Iterator[Event]:
    if isinstance(d, LinearChain):
        yield from chains(length, d.size[2], set(d.potentials), d.stationary)
    elif isinstance(d, SemiMarkov):
        yield from segmentations(length, d.size[2], d.size[3])
    elif isinstance(d, SpanTree) and length:
        for parts, items in span_trees(0, length - 1, d.size[2]):
            yield parts, [*items, ("goal", (), 0, len(parts))]
    elif isinstance(d, PCFG) and length > 1:
        yield from rooted(grammar_trees(0, length - 1, *d.size[2:]))


def made(family: str, dead: float = 0.2, scale: float = 1.0) -> StructuredDistribution:
    def values(*shape: int) -> torch.Tensor:
        return potentials(*shape, dead=dead, scale=scale)

    if family == "stationary":
        return LinearChain(values(3, 4, 2), values(2, 2), lengths=[4, 2, 0])
    if family == "chain":
        return LinearChain(values(2, 4, 3), values(2, 3, 3, 3), values(3), values(2, 3), [1, 4])
    if family == "hmm":
        words = torch.tensor([[0, 1, 1], [1, 0, 0]])
        return HMM(values(2), values(2, 2), values(2, 2), words, [3, 2])
    if family == "segments":
        return SemiMarkov(values(3, 4, 2, 2, 2), [4, 3, 0])
    if family == "spans":
        return SpanTree(values(3, 4, 4, 2), [4, 2, 0])
    return PCFG(values(3, 2), values(3, 2, 4, 4), values(3, 3, 2), [3, 2, 1])


FAMILIES = ["stationary", "chain", "hmm", "segments", "spans", "grammar"]


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_sums_over_stretches_and_what_surrounds_them(family, scale):
    d = made(family, scale=scale)
    inside, outside = d.inside(), d.outside()
    assert set(outside) == {*inside, *d.potentials}
    whole = {n: p.expand(d.batch_shape + d._part_shapes[n]) for n, p in d.potentials.items()}
    for element, length in enumerate(d.lengths.tolist()):
        weights = {name: p[element].numpy() for name, p in whole.items()}
        shapes = {name: values.shape[1:] for name, values in outside.items()}
        inner, outer = oracle(events_of(d, length), weights, shapes)
        if length == 0 and family in ("stationary", "segments"):
            inner["goal"] = np.zeros(())
        outer["goal"] = np.zeros(())  # also where nothing is possible
        for name, values in inside.items():
            assert_close(values[element], inner[name], rtol=1e-10, atol=1e-10)
        for name, values in outside.items():
            assert_close(values[element], outer[name], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.few(2)
def test_they_are_differentiable_twice_and_give_the_marginals(family):
    d = made(family, dead=0.0)
    log_z = d.log_partition()
    possible = log_z > -torch.inf
    marginals, outside = d.marginals(), d.outside()
    for name, p in d.potentials.items():
        dims = (1,) * (marginals[name].ndim - 1)
        logs = p + outside[name] - log_z.reshape(-1, *dims)
        assert_close(logs[possible].exp(), marginals[name][possible], rtol=1e-10, atol=1e-12)
    inputs = [p.detach().clone().requires_grad_() for p in d.potentials.values()]

    def values(*given: torch.Tensor) -> torch.Tensor:
        d.potentials = dict(zip(d.potentials, given, strict=True))
        found = torch.cat([v.flatten() for v in (*d.inside().values(), *d.outside().values())])
        return found[found > -torch.inf]

    assert torch.autograd.gradcheck(values, inputs)
    assert torch.autograd.gradgradcheck(values, inputs)


def test_single_precision_and_elements_without_a_batch():
    emissions, transitions = potentials(3, 2, dead=0.0), potentials(2, 2, dead=0.0)
    double, single = (
        LinearChain(emissions.to(dtype), transitions.to(dtype))
        for dtype in (torch.float64, torch.float32)
    )
    for found, wanted in ((single.inside(), double.inside()), (single.outside(), double.outside())):
        assert {name: v.shape for name, v in found.items()} == {
            name: v.shape for name, v in wanted.items()
        }
        for name, value in found.items():
            assert value.dtype == torch.float32
            assert_close(value.double(), wanted[name], rtol=1e-5, atol=1e-5)
