"""Generating functions of trees against sums over all of them, one tree at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from inout.distributions.pcfg import PCFG
from inout.distributions.span_tree import SpanTree
from inout.kernels.pcfg import generating
from inout.series.lanes import Lanes, Points, Truncated
from tests.support import assert_close

F32, F64, C128 = torch.float32, torch.float64, torch.complex128
Trees = SpanTree | PCFG
Values = dict[str, Tensor]
FAMILIES = ["spans", "shared", "own"]
LANES = [
    Truncated((8,)),
    Truncated((4, 4)),
    Truncated((3, 3, 2)),
    Points(torch.tensor([[0.3, -0.7, 1.1]], dtype=F64)),
    Points(torch.tensor([[0.3 + 1j, -0.7, 2j], [0.5, 1.5j, -1 - 1j]], dtype=C128)),
]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(g: torch.Generator, *shape: int, dtype: Any = F64) -> Tensor:
    return torch.randn(shape, generator=g, dtype=F64).to(dtype)


def potentials_of(family: str, g: torch.Generator, b: int, n: int, scale: float = 1.0) -> Values:
    own = (b,) if family == "own" else ()
    shapes = {"root": (*own, 2), "rules": (*own, 2, 4, 4), "preterminals": (b, n, 2)}
    if family == "spans":
        shapes = {"log_potentials": (b, n, n, 2)}
    return {name: scale * random(g, *shape) for name, shape in shapes.items()}


def made(family: str, potentials: Values, lengths: Tensor | None = None) -> Trees:
    return (SpanTree if family == "spans" else PCFG)(**potentials, lengths=lengths)


def values_of(d: Trees, g: torch.Generator, k: int, dtype: Any = F64) -> Values:
    b = d.batch_shape.numel()
    shapes = {name: (k, b, *shape) for name, shape in d._part_shapes.items()}
    if dtype == C128:
        return {n: torch.complex(random(g, *x), random(g, *x)) for n, x in shapes.items()}
    return {name: random(g, *shape) for name, shape in shapes.items()}


def cut(d: Trees, values: Values, e: int) -> tuple[Trees, Values]:
    """One element of a batch by itself, without its padding."""
    n = int(d.lengths[e])
    own = {name: p[e].clone() for name, p in d._expanded().items()}
    mine = {name: v[:, e] for name, v in values.items()}
    if isinstance(d, SpanTree):
        own = {name: p[:n, :n] for name, p in own.items()}
        mine = {name: v[:, :n, :n] for name, v in mine.items()}
    else:
        own["preterminals"] = own["preterminals"][:n]
        mine["preterminals"] = mine["preterminals"][:, :n]
    return type(d)(**own), mine


@torch.no_grad()
def by_enumeration(
    d: Trees, values: Values, lanes: Lanes, centres: Tensor
) -> tuple[Tensor, Tensor]:
    """E[exp(z · (F − centres))] and E|…| of each lane, by all trees of each element."""
    rows, sizes = [], []
    for e in range(d.batch_shape.numel()):
        alone, mine = cut(d, values, e)
        events = alone.enumerate_support() if d.lengths[e] > 0 else torch.empty(0, 0, 0).long()
        chances = alone.log_prob(events).exp().double()
        f = -centres[:, e, None].expand(-1, len(events))
        for name, counts in alone.parts(events).items():
            uses = counts.double().flatten(1).to(f.dtype)
            f = f + mine[name].flatten(1).to(f.dtype) @ uses.T
        terms = lanes.exponential(f)
        rows.append((chances * terms).sum(-1))
        sizes.append((chances * terms.abs()).sum(-1))
    return torch.stack(rows, -1), torch.stack(sizes, -1)


def check(d: Trees, values: Values, lanes: Lanes, shift: float = 0.0, tolerance: float = 1e-12):
    x, centres = d._generating(lanes, values, shift)
    assert x.shape == (lanes.size, d.batch_shape.numel())
    assert centres.shape == (lanes.num_functions, d.batch_shape.numel())
    assert not x.requires_grad or any(p.requires_grad for p in d.potentials.values())
    truth, size = by_enumeration(d, values, lanes, centres)
    off = (x.detach() - truth).abs() / torch.where(size == 0, 1.0, size)
    assert float(off.max()) < tolerance
    return x, centres


@pytest.mark.few(12)
@pytest.mark.parametrize("kind", [F64, C128], ids=["real", "complex"])
@pytest.mark.parametrize("lanes", LANES, ids=["8", "4-4", "3-3-2", "real", "points"])
@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_batches(family: str, lanes: Lanes, kind: Any) -> None:
    g = seeded(1)
    lengths = torch.tensor([4, 0, 2, 1, 3])
    d = made(family, potentials_of(family, g, 5, 4), lengths)
    x, centres = check(d, values_of(d, g, lanes.num_functions, kind), lanes)
    alive = lengths > (0 if family == "spans" else 1)
    assert_close(x[0].real, alive.double())
    if isinstance(lanes, Truncated):
        first = x[[1]] if lanes.num_functions == 1 else x[[1, lanes.orders[-1] + 1]]
        assert float(first.abs().max()) < 1e-12  # the centres are the means


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_may_be_anything(family: str) -> None:
    g, lanes = seeded(2), Truncated((3,))
    lengths = torch.tensor([2, 4, 3])
    given = potentials_of(family, g, 3, 4)
    d = made(family, given, lengths)
    values = values_of(d, g, 1)
    name = "log_potentials" if family == "spans" else "preterminals"
    outside = ~(d._spans if family == "spans" else d._real)[..., None]
    found = d._generating(lanes, values, 0.0)
    given[name] = given[name].masked_fill(outside, torch.inf)
    values[name] = values[name].masked_fill(outside, torch.nan)
    given[name].requires_grad_()
    again = made(family, given, lengths)._generating(lanes, values, 0.0)
    for ours, before in zip(again, found, strict=True):
        assert_close(ours, before)
        if ours.requires_grad:
            (gradient,) = grad(ours.sum(), given[name])
            assert bool(gradient.isfinite().all())
            assert not bool(gradient[outside.expand(gradient.shape)].any())


@pytest.mark.parametrize("family", FAMILIES)
def test_minus_infinity_and_elements_without_trees(family: str) -> None:
    g, lanes = seeded(21), Truncated((2, 2))
    given = potentials_of(family, g, 6, 4)
    for name, p in given.items():
        p[torch.rand(p.shape, generator=g) < 0.12] = -torch.inf
        if name in ("log_potentials", "preterminals"):
            p[2, 1] = -torch.inf
    given = {name: p.requires_grad_() for name, p in given.items()}
    d = made(family, given)
    values = values_of(d, g, 2)
    alive = (d.log_partition() > -torch.inf).detach()
    assert bool(alive.any())
    assert not bool(alive[2])
    x, _ = check(d, values, lanes)
    assert_close(x[0], alive.double())
    gradients = grad(x[0].sum(), list(given.values()), retain_graph=True)
    marginals = d.marginals()
    for gradient, (name, p) in zip(gradients, given.items(), strict=True):
        total = marginals[name].sum_to_size(p.shape)
        assert_close(gradient, total)
    for gradient in grad(x.sum(), list(given.values())):
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_small_trees(family: str, n: int) -> None:
    g, lanes = seeded(4), Truncated((3,))
    given = {name: p.requires_grad_() for name, p in potentials_of(family, g, 2, n).items()}
    d = made(family, given)
    values = values_of(d, g, 1)
    if n == 0:
        x, centres = d._generating(lanes, values, 0.0)
        assert_close(x, torch.zeros(4, 2, dtype=F64))
        assert_close(centres, torch.zeros(1, 2, dtype=F64))
    else:
        x, _ = check(d, values, lanes)
    gradients = grad(x.sum(), list(given.values()), allow_unused=True)
    assert all(y is None or bool(y.isfinite().all()) for y in gradients)


@pytest.mark.parametrize("lanes", LANES[1:], ids=["4-4", "3-3-2", "real", "points"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_shift_changes_the_centres_alone(family: str, lanes: Lanes) -> None:
    g = seeded(5)
    d = made(family, potentials_of(family, g, 3, 4))
    values = values_of(d, g, lanes.num_functions)
    x, centres = d._generating(lanes, values, 0.0)
    y, others = check(d, values, lanes, shift=0.3)
    assert bool((centres != others).all())
    assert_close(lanes.times(y, lanes.exponential(others - centres)), x)


@pytest.mark.few(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_potentials_of_any_size(family: str) -> None:
    """Sizes are those of moments about 0: of central ones nothing may be left."""
    lanes: Lanes
    for scale in (30.0, 400.0, 1e4):
        for lanes in LANES:
            g = seeded(6)
            given = potentials_of(family, g, 4, 4, scale)
            given = {name: p.requires_grad_() for name, p in given.items()}
            d = made(family, given)
            values = values_of(d, g, lanes.num_functions)
            x, centres = d._generating(lanes, values, 0.0)
            raw = lanes.times(x, lanes.exponential(centres))
            truth, size = by_enumeration(d, values, lanes, torch.zeros_like(centres))
            assert float(((raw.detach() - truth).abs() / size).max()) < 1e-9
            marginals = d.marginals()
            gradients = grad(x[0].real.sum(), list(given.values()))
            for gradient, (name, p) in zip(gradients, given.items(), strict=True):
                assert_close(gradient, marginals[name].sum_to_size(p.shape), atol=1e-9)


@pytest.mark.parametrize("depth", [50.0, 200.0, 900.0, 1e4])
def test_a_symbol_far_below_the_best_survives_alone(depth: float) -> None:
    """Nonterminal 0 leads in spans of two words, but can be nowhere below the root."""
    g = seeded(7)
    given = potentials_of("shared", g, 2, 4)
    given["rules"][0, 2:, 2:] += depth
    given["rules"][1, 0, :] = given["rules"][1, :, 0] = -torch.inf
    given["root"][0] = -torch.inf
    d = made("shared", given)
    check(d, values_of(d, g, 1), Truncated((6,)), tolerance=1e-9)
    chart = generating._in_range(_plain(d), d.lengths)
    assert bool(chart.all()) == (2 * depth < 460)


def _plain(d: PCFG) -> generating.ValuedGrammar:
    root, rules, words, _ = d._flat(d.potentials)
    relative = generating.relative
    zeros = torch.zeros_like(root)[None], None, torch.zeros_like(words)[None]
    return generating.ValuedGrammar(
        relative(root, (1,)), relative(rules, (1, 2, 3)), relative(words, (2,)), *zeros
    )


@pytest.mark.few(4)
@pytest.mark.parametrize("lanes", LANES, ids=["8", "4-4", "3-3-2", "real", "points"])
@pytest.mark.parametrize("family", FAMILIES[1:])
def test_log_space_gives_the_same_numbers(
    family: str, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = seeded(8)
    given = {n: p.requires_grad_() for n, p in potentials_of(family, g, 4, 5).items()}
    d = made(family, given, torch.tensor([5, 1, 3, 4]))
    values = values_of(d, g, lanes.num_functions)
    here = [x.requires_grad_() for x in values.values()]
    inputs = [*given.values(), *here]
    x, centres = d._generating(lanes, values, 0.0)
    weights = random(g, *x.shape)
    first = grad((weights * x).real.sum(), inputs)
    for chosen in (torch.zeros(4), torch.tensor([1.0, 0.0, 0.0, 1.0])):
        monkeypatch.setattr(generating, "_in_range", lambda *_, c=chosen: c.bool())
        y, others = d._generating(lanes, values, 0.1)
        change = others - centres
        y = lanes.times(y, lanes.exponential(change))
        assert_close(y, x)
        for ours, truth in zip(grad((weights * y).real.sum(), inputs), first, strict=True):
            assert_close(ours, truth)


@pytest.mark.parametrize("family", FAMILIES)
def test_nearly_certain_trees_keep_their_digits(family: str) -> None:
    """Values cancel in the one likely tree of each element: the others have 1e-9 in all."""
    g, lanes = seeded(9), Truncated((8,))
    d = made(family, potentials_of(family, g, 3, 4))
    best = {name: uses.clamp(max=1.0) for name, uses in d.parts(d.mode).items()}
    likely = {
        name: p + 21 * best[name].sum_to_size(p.shape).clamp(max=1.0)
        for name, p in d.potentials.items()
    }
    d = made(family, likely)
    assert float((1 - d.log_prob(d.mode).exp()).max()) < 1e-5
    values = values_of(d, g, 1)
    x, centres = d._generating(lanes, values, 0.0)
    truth, size = by_enumeration(d, values, lanes, centres)
    # The first is what is left of the mean, which is rounded.
    assert float(((x - truth).abs() / size)[2:].max()) < 1e-10


@pytest.mark.few(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients(family: str) -> None:
    g = seeded(10)
    lengths = torch.tensor([3, 2])
    given = potentials_of(family, g, 2, 3)
    given[next(iter(given))].view(-1)[1] = -torch.inf
    kinds: list[tuple[Lanes, Any]] = [
        (Truncated((2, 1)), F64),
        (Truncated((2,)), C128),
        (Points(torch.tensor([[0.5, 1j]], dtype=C128)), F64),
    ]
    for lanes, kind in kinds:
        values = values_of(made(family, given, lengths), g, lanes.num_functions, kind)
        inputs = [x.clone().requires_grad_() for x in (*given.values(), *values.values())]
        function = _of(family, lanes, lengths, list(given))
        assert gradcheck(function, inputs, fast_mode=True)
    values = values_of(made(family, given, lengths), g, 1)
    inputs = [x.clone().requires_grad_() for x in (*given.values(), *values.values())]
    function = _of(family, Truncated((2,)), lengths, list(given))
    assert gradgradcheck(function, inputs, fast_mode=True)


def _of(family: str, lanes: Lanes, lengths: Tensor, names: list[str]) -> Callable[..., Tensor]:
    """E[exp(z · F)] as a function of the finite potentials and the values."""

    def function(*inputs: Tensor) -> Tensor:
        potentials, values = inputs[: len(names)], inputs[len(names) :]
        d = made(family, dict(zip(names, potentials, strict=True)), lengths)
        x, centres = d._generating(lanes, dict(zip(d._part_shapes, values, strict=True)), 0.0)
        x = x / x[:1]
        return lanes.times(x, lanes.exponential(centres))

    return function


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_potentials(family: str) -> None:
    g, lanes = seeded(11), Truncated((4,))
    given = {n: p.float() for n, p in potentials_of(family, g, 3, 4).items()}
    values = values_of(made(family, given), g, 1)
    exact = {n: p.double() for n, p in given.items()}
    leaves = {n: p.requires_grad_() for n, p in given.items()}
    x, centres = made(family, leaves)._generating(lanes, values, 0.0)
    truth, others = made(family, exact)._generating(lanes, values, 0.0)
    assert x.dtype == F64
    assert_close(x, truth)
    assert_close(centres, others)
    assert all(y.dtype == F32 for y in grad(x.sum(), list(leaves.values())))


def test_values_of_size_1() -> None:
    """Dimensions that values do not depend on, as `StructuredDistribution.moments` leaves them."""
    g, lanes = seeded(12), Truncated((3,))
    for family in FAMILIES:
        d = made(family, potentials_of(family, g, 3, 4))
        whole, small = {}, {}
        for name, shape in d._part_shapes.items():
            small[name] = random(g, 1, 3, *shape[:-1], 1)
            whole[name] = small[name].expand(1, 3, *shape)
        found, truths = (d._generating(lanes, v, 0.0) for v in (small, whole))
        for ours, truth in zip(found, truths, strict=True):
            assert_close(ours, truth)
        check(d, whole, lanes)


@pytest.mark.parametrize("shared", [True, False])
def test_values_of_some_parts_only(shared: bool) -> None:
    g, lanes = seeded(13), Truncated((4,))
    d = made("shared" if shared else "own", potentials_of("shared" if shared else "own", g, 3, 4))
    for name in d._part_shapes:
        values = {n: torch.zeros_like(v) for n, v in values_of(d, g, 1).items()}
        values[name] = random(g, 1, 1, *d._part_shapes[name]).expand(-1, 3, *d._part_shapes[name])
        check(d, values, lanes)
