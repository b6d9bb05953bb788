"""Entropies, divergences and histograms of huge and of underflowing potentials, by enumeration.

The sums here are in extended precision, over events listed by Python loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import kl_divergence

from inout import HMM, PCFG, DependencyTree, LinearChain, SemiMarkov, SpanTree
from inout.distributions.base import StructuredDistribution
from tests.seeds import seeds
from tests.support import assert_close

F64 = torch.float64
Part = tuple[Any, ...]  # name of a potential and an index into one element of it
Draw = Callable[..., Tensor]
LENGTHS = [3, 4, 2]


def labellings(n: int) -> Iterator[list[Part]]:
    for labels in product(range(2), repeat=n):
        parts: list[Part] = [("emissions", t, y) for t, y in enumerate(labels)]
        parts += [("transitions", t, *labels[t : t + 2]) for t in range(n - 1)]
        yield [*parts, ("start", labels[0]), ("end", labels[-1])]


def shared_labellings(n: int) -> Iterator[list[Part]]:
    for parts in labellings(n):
        yield [(p[0], *p[2:]) if p[0] == "transitions" else p for p in parts]


def segmentations(n: int, start: int = 0, before: int = 0) -> Iterator[list[Part]]:
    if start == n:
        yield []
    for end in range(start, min(n, start + 3)):
        for label in range(2):
            part = ("log_potentials", end, end - start, before, label)
            for rest in segmentations(n, end + 1, label):
                yield [part, *rest]


def span_trees(i: int, j: int) -> Iterator[list[Part]]:
    splits = (
        [[[]]]
        if i == j
        else [
            [left + right for left in span_trees(i, k) for right in span_trees(k + 1, j)]
            for k in range(i, j)
        ]
    )
    for below in [tree for trees in splits for tree in trees]:
        for label in range(2):
            yield [("log_potentials", i, j, label), *below]


def grammar_trees(i: int, j: int) -> Iterator[tuple[int, list[Part]]]:
    """Symbols and parts: nonterminals 0 and 1, preterminals 2 and 3."""
    if i == j:
        for word in range(2):
            yield 2 + word, [("preterminals", i, word)]
        return
    for k in range(i, j):
        for b, left in grammar_trees(i, k):
            for c, right in grammar_trees(k + 1, j):
                for a in range(2):
                    yield a, [("rules", a, b, c), *left, *right]


def dependency_trees(n: int) -> Iterator[list[Part]]:
    """Several root words may be, and siblings count."""
    for heads in product(range(n + 1), repeat=n):
        arcs = [(min(h, d), max(h, d)) for d, h in enumerate(heads, 1)]
        ends = list(range(1, n + 1))
        for _ in range(n):
            ends = [heads[d - 1] if d else 0 for d in ends]
        if n == 0 or any(ends) or any(a < c < b < e for a, b in arcs for c, e in arcs):
            continue
        parts: list[Part] = []
        for d, h in enumerate(heads, 1):
            parts.append(("arcs", h - 1, d - 1) if h else ("root", d - 1))
            inner = [k for k in range(min(h, d) + 1, max(h, d)) if heads[k - 1] == h]
            if h and inner:
                nearest = max(inner) if h < d else min(inner)
                parts.append(("siblings", h - 1, d - 1, nearest - 1))
        yield parts


FAMILIES: dict[str, tuple[Callable[[int], Any], Callable[..., StructuredDistribution]]] = {
    "chain": (
        labellings,
        lambda draw, **more: LinearChain(
            draw(3, 4, 2), draw(3, 3, 2, 2), draw(3, 2), draw(3, 2), **more
        ),
    ),
    "shared": (
        shared_labellings,
        lambda draw, **more: LinearChain(
            draw(3, 4, 2), draw(2, 2), draw(2), draw(2), **more
        ),
    ),
    "segments": (segmentations, lambda draw, **more: SemiMarkov(draw(3, 4, 3, 2, 2), **more)),
    "spans": (
        lambda n: span_trees(0, n - 1),
        lambda draw, **more: SpanTree(draw(3, 4, 4, 2), **more),
    ),
    "dependencies": (
        dependency_trees,
        lambda draw, **more: DependencyTree(
            draw(3, 4, 4), draw(3, 4), siblings=draw(3, 4, 4, 4), single_root=False, **more
        ),
    ),
    "grammar": (
        lambda n: [[("root", a), *parts] for a, parts in grammar_trees(0, n - 1)],
        lambda draw, **more: PCFG(draw(3, 2), draw(3, 2, 4, 4), draw(3, 4, 2), **more),
    ),
}  # fmt: skip
EVERY = pytest.mark.parametrize("family", FAMILIES)


def scores(family: str, d: StructuredDistribution, values: dict[str, Tensor]) -> list[np.ndarray]:
    """Sums of values over the parts of each event, for each element, in extended precision."""
    result = []
    for b, n in enumerate(d.lengths.tolist()):
        tables = {
            name: value.detach().double().expand(d.batch_shape + d._part_shapes[name])[b].numpy()
            for name, value in values.items()
        }
        events = list(FAMILIES[family][0](n))
        result.append(
            np.array([
                sum((np.longdouble(tables[p[0]][p[1:]]) for p in parts), np.longdouble(0))
                for parts in events
            ])
        )  # fmt: skip
    return result


def probabilities(x: np.ndarray) -> np.ndarray:
    if x.max() == -np.inf:
        return np.zeros_like(x)
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def entropies(family: str, d: StructuredDistribution) -> Tensor:
    result = []
    for x in scores(family, d, d.potentials):
        p = probabilities(x)
        result.append(float(-(p * np.log(np.where(p > 0, p, 1))).sum()))
    return torch.tensor(result, dtype=F64)


def numbers(seed: int, scale: float, shift: float, holes: float = 0.0) -> Draw:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        x = torch.randn(*shape, dtype=F64, generator=generator) * scale + shift
        hole = torch.rand(*shape, dtype=F64, generator=generator) < holes
        return torch.where(hole, -torch.inf, x)

    return draw


# ------------------------------------------------------------------- entropies


@EVERY
@pytest.mark.parametrize("tier", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("scale", "shift"), [(1, -1e4), (1e4, 0), (300, 0), (50, -1e4), (1e4, 1e4)]
)
@pytest.mark.few(20)
def test_entropy_of_huge_potentials(family, tier, scale, shift):
    for seed in seeds(5):
        d = FAMILIES[family][1](
            numbers(seed, scale, shift, 0.05), lengths=torch.tensor(LENGTHS), tier=tier
        )
        truth = entropies(family, d)
        some = d.log_partition() > -torch.inf
        if not some.any():
            continue
        # A few units in the last place of log Z, and never the square of that.
        bound = 20 * np.finfo(float).eps * float(d.log_partition()[some].abs().max())
        assert bound < 1e-9
        for entropy in (d.entropy(), d.forest().entropy()):
            assert bool((entropy[some] >= 0).all())
            assert bool((entropy[~some] == -torch.inf).all())
            if tier == "cpu":
                assert_close(entropy[some], truth[some], atol=bound, rtol=1e-10)


@EVERY
def test_marginals_of_huge_potentials_sum_to_one(family):
    """As exactly as those of small ones: large expectations depend on it."""
    d = FAMILIES[family][1](numbers(3, 1e4, 0), lengths=torch.tensor(LENGTHS))
    units = {
        "chain": "emissions", "shared": "emissions", "grammar": "preterminals"
    }  # fmt: skip
    name = units.get(family, "log_potentials")
    used = d.marginals()
    if family == "dependencies":
        used = torch.cat([used["root"][:, None], used["arcs"]], 1)
    else:
        used = used[name]
    lengths = d.lengths.double()
    if family == "segments":  # widths add up to the length
        used = used * torch.arange(1, 4, dtype=F64)[:, None, None]
    total = used.flatten(1).sum(1)
    assert_close(total, 2 * lengths - 1 if family == "spans" else lengths, rtol=1e-14, atol=0)


@EVERY
def test_gradient_of_the_entropy_of_huge_potentials(family):
    """-Cov[score, part], where two events are near each other and all others far below."""
    make = FAMILIES[family][1]
    draw = numbers(1, 3e3, 0)
    d = make(lambda *shape: draw(*shape).round().requires_grad_(), lengths=torch.tensor(LENGTHS))
    potentials = list(d.potentials.values())
    gradients = grad(d.entropy().sum(), potentials)
    total = d.log_partition().sum()
    (first,) = [grad(total, potentials, create_graph=True)]
    expected = sum((p.detach() * g).sum() for p, g in zip(potentials, first, strict=True))
    second = grad(expected, potentials)
    for a, b in zip(gradients, second, strict=True):
        assert_close(a, -b, atol=1e-8)


# ---------------------------------------------------- events that underflow


def test_mode_without_possible_events():
    """All labels 0, as `topk`; not a mixture with what is possible before a dead end."""
    potentials = torch.full((2, 3, 2, 2, 2), -torch.inf, dtype=F64)
    potentials[:, 0, 0, 0, 1] = potentials[:, 1, 1, 0, 1] = potentials[:, 1, 0, 1, 0] = 0.0
    potentials[1, 2, 0, 0, 1] = 0.0  # the second element has one
    d = SemiMarkov(potentials)
    assert d.mode.tolist() == [[0, 0, 0], [1, 0, 1]]
    assert d.min_risk().tolist() == [[0, 0, 0], [1, 0, 1]]


def test_min_risk_of_segments_that_underflow():
    """A segmentation is possible if its potentials are above -inf, whatever its probability."""
    potentials = torch.full((2, 1, 3, 3), -torch.inf, dtype=F64)
    potentials[0, 0, 0, :2] = 0.0
    for (i, j), p in {(0, 1): 0.3, (0, 2): 0.3, (1, 0): 0.4}.items():
        potentials[1, 0, i, j] = np.log(p)
    potentials[1, 0, 0, 0] = -900.0
    # Right at 0 with probability 0.6, at 1 with 0.4; those with mass expect at most 0.9.
    assert SemiMarkov(potentials).min_risk().tolist() == [0, 0]


def test_min_risk_of_segments_by_enumeration():
    for seed in seeds(12):
        d = SemiMarkov(numbers(seed, 300, 0, 0.2)(3, 4, 3, 2, 2), lengths=torch.tensor(LENGTHS))
        found = d.min_risk()
        for b, (x, n) in enumerate(zip(scores("segments", d, d.potentials), LENGTHS, strict=True)):
            if not (x > -np.inf).any():
                continue
            events = list(segmentations(n))
            used: dict[Part, Any] = {}  # by end, width and label, whatever the label before
            for parts, p in zip(events, probabilities(x), strict=True):
                for _, end, width, _, label in parts:
                    used[end, width, label] = used.get((end, width, label), 0) + p
            gains = [sum(used[e, w, y] for _, e, w, _, y in parts) for parts in events]
            best = max(g for g, score in zip(gains, x, strict=True) if score > -np.inf)
            labels = [{e: y for _, e, _, _, y in parts} for parts in events]
            place = labels.index({t: y for t, y in enumerate(found[b].tolist()) if y >= 0})
            assert x[place] > -np.inf
            assert_close(float(gains[place]), float(best))


@EVERY
def test_divergence_from_what_lacks_an_event_that_underflows(family):
    make = FAMILIES[family][1]
    for seed in seeds(6):
        p = make(numbers(seed, 2e3, 0, 0.1), lengths=torch.tensor(LENGTHS))
        q = make(numbers(seed + 50, 1, 0, 0.02), lengths=torch.tensor(LENGTHS))
        truth = []
        for x, y in zip(
            scores(family, p, p.potentials), scores(family, q, q.potentials), strict=True
        ):
            alive = x > -np.inf
            if not alive.any():
                truth.append(0.0)
            elif (y[alive] == -np.inf).any():
                truth.append(np.inf)
            else:
                a, b = probabilities(x)[alive], probabilities(y)[alive]
                truth.append(float((a * np.log(np.where(a > 0, a, 1) / b)).sum()))
        assert_close(kl_divergence(p, q), torch.tensor(truth, dtype=F64), atol=1e-9)
        assert bool((kl_divergence(p, p) == 0).all())


@EVERY
def test_histogram_with_values_that_underflow(family):
    """The range is that of possible events; the probabilities of some of them are 0."""
    make = FAMILIES[family][1]
    for seed in seeds(6):
        d = make(numbers(seed, 1e3, 0, 0.1), lengths=torch.tensor(LENGTHS))
        whole = numbers(seed + 9, 3, 0)
        f = {name: whole(*d.batch_shape, *d._part_shapes[name]).round() for name in d.potentials}
        found = d.histogram(f)
        low, high, expected = [], [], []
        for x, y in zip(scores(family, d, d.potentials), scores(family, d, f), strict=True):
            alive = x > -np.inf
            if alive.any():
                low.append(y[alive].min())
                high.append(y[alive].max())
            expected.append((probabilities(x)[alive] if alive.any() else x[:0], y[alive]))
        first, last = (int(min(low)), int(max(high))) if low else (0, 0)
        assert (found.first, found.probabilities.shape[-1]) == (first, last - first + 1)
        truth = np.zeros((3, last - first + 1))
        for b, (p, y) in enumerate(expected):
            np.add.at(truth[b], (y - first).astype(int), p.astype(float))
        assert_close(found.probabilities, truth)
        again = d.forest().histogram(
            {name: values.flatten() for name, values in f.items()}
        )  # the same by the explicit forest
        assert (again.first, again.probabilities.shape[-1]) == (first, last - first + 1)
        assert_close(again.probabilities, truth)


def test_a_part_of_one_event_among_too_many_to_count():
    """2 ** 1500 labellings, and one that has label 2 everywhere: every marginal underflows."""
    n = 1500
    transitions = torch.zeros(3, 3, dtype=F64)
    transitions[2, :2] = transitions[:2, 2] = -torch.inf
    emissions = torch.zeros(n, 3, dtype=F64)
    p = LinearChain(emissions, transitions)
    without = transitions.clone()
    without[2, 2] = -torch.inf
    assert kl_divergence(p, LinearChain(emissions, without)) == torch.inf
    found = p.histogram({"emissions": torch.tensor([0.0, 0.0, 1.0])})
    assert found.first == 0
    assert found.probabilities.shape == (n + 1,)
    assert_close(found.probabilities[0], 1.0)
    assert_close(found.probabilities.sum(), 1.0)


# ------------------------------------------------------------- nothing observed


@pytest.mark.parametrize("tier", ["cpu", "reference"])
@pytest.mark.parametrize("batch", [(), (3,), (0,), (2, 1)])
def test_second_derivatives_of_hmms_without_observations(tier, batch):
    given = [torch.randn(*shape, dtype=F64).requires_grad_() for shape in ((2,), (2, 2), (2, 3))]
    d = HMM(*given, torch.zeros(*batch, 0, dtype=torch.long), tier=tier)
    log_z = d.log_partition()
    assert_close(log_z, torch.zeros(batch, dtype=F64))
    first = grad(log_z.sum(), given, create_graph=True, materialize_grads=True)
    total = sum(((x + 1) ** 2).sum() for x in first)
    assert isinstance(total, Tensor)
    second = (
        grad(total, given, materialize_grads=True)
        if total.requires_grad
        else [torch.zeros_like(x) for x in given]
    )
    for x in (*first, *second):
        assert not bool(x.any())
