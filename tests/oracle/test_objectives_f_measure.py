"""Expected F-measure, by quadrature and by its series, against enumeration of all events."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from inout import ArgumentError, LinearChain, SemiMarkov
from inout.moments import expected_f, expected_f_of_event
from inout.moments.quadrature import enough_nodes, jacobi_rule
from tests.oracle.objective_cases import (
    CHAINS,
    F64,
    FAMILIES,
    VARIANTS,
    Case,
    Enumerated,
    agree,
    chain,
    randn,
    seeded,
    segments,
    span_trees,
)
from tests.support import assert_close

variants = pytest.mark.parametrize("which", VARIANTS)
families = pytest.mark.parametrize("case", FAMILIES, ids=str)
gammas = pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
GOLD = torch.tensor([3.0, 0.0, 1.5], dtype=F64)


def functions(case: Case, seed: int = 40) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Sizes 0, 1 or 2 for each part, and what is right of those that count at all."""
    size, correct = {}, {}
    for k, (name, shape) in enumerate(case.shapes.items()):
        whole = (len(case.lengths), *shape)
        size[name] = torch.randint(3, whole, generator=seeded(seed + k)).double()
        right = torch.rand(whole, generator=seeded(seed + 10 + k), dtype=F64)
        correct[name] = torch.where(size[name] > 0, right, 0.0)
    return correct, size


def f_measure(
    oracle: Enumerated,
    correct: dict[str, Tensor],
    size: dict[str, Tensor],
    gold: Tensor,
    gamma: float,
) -> Tensor:
    """(1 + gamma²) l / (|π| + gamma² L) of each event, averaged; 1 for nothing where nothing is."""
    values = []
    for right, counted, wanted in zip(
        oracle.additive(correct), oracle.additive(size), gold, strict=True
    ):
        below = counted + gamma**2 * wanted
        ratio = (1 + gamma**2) * right / torch.where(below == 0, 1.0, below)
        nothing = (counted == 0) & (wanted == 0)
        values.append(ratio + nothing)
    return oracle.mean(values)


@pytest.mark.few(12)
@gammas
@variants
@families
def test_quadrature(case: Case, which: str, gamma: float) -> None:
    correct, size = functions(case)
    agree(
        case.variant(which),
        lambda d: expected_f(d, correct, size, GOLD, gamma),
        lambda o: f_measure(o, correct, size, GOLD, gamma),
    )


@families
def test_precision_alone(case: Case) -> None:
    """gamma = 0: what is right of what is counted."""
    correct, size = functions(case)
    agree(
        case,
        lambda d: expected_f(d, correct, size, GOLD, 0.0),
        lambda o: f_measure(o, correct, size, GOLD, 0.0),
    )


def test_parts_that_are_right_but_not_counted() -> None:
    """No F-measure, but a ratio all the same where it cannot divide by 0."""
    case = chain(stationary=False)
    correct, size = functions(case)
    correct = {name: x + 0.5 for name, x in correct.items()}
    gold = torch.tensor([3.0, 0.25, 1.5], dtype=F64)
    agree(
        case,
        lambda d: expected_f(d, correct, size, gold),
        lambda o: f_measure(o, correct, size, gold, 1.0),
    )
    with pytest.raises(ArgumentError, match="size must count all parts"):
        expected_f(case.distribution(), correct, size, GOLD)


@pytest.mark.few(10)
@gammas
@variants
@pytest.mark.parametrize("case", CHAINS, ids=str)
def test_labels_of_a_chain(case: Case, which: str, gamma: float) -> None:
    """F of the positions with a label other than 0."""
    case = case.variant(which)
    event, gold = Enumerated(case).gold(11)
    counted = torch.tensor([False, True, True])

    def truth(oracle):
        values = []
        for events, answer in zip(oracle.structures, gold, strict=True):
            there = {(t, y) for t, y in enumerate(answer.labels) if y}
            found = [{(t, y) for t, y in enumerate(e.labels) if y} for e in events]
            values.append(torch.tensor([f_of_sets(x, there, gamma) for x in found], dtype=F64))
        return oracle.mean(values)

    agree(case, lambda d: expected_f_of_event(d, event, gamma, counted), truth)


def f_of_sets(found: set, there: set, gamma: float) -> float:
    if not found and not there:
        return 1.0
    return (1 + gamma**2) * len(found & there) / (len(found) + gamma**2 * len(there))


@gammas
@variants
@pytest.mark.parametrize("counted", [None, (False, True)], ids=["all", "label 1"])
def test_segments(which: str, gamma: float, counted: tuple[bool, ...] | None) -> None:
    """F of the segments (start, end, label), whatever stands before them."""
    case = segments().variant(which)
    event, gold = Enumerated(case).gold(12)
    labels = None if counted is None else torch.tensor(counted)

    def spans(structure):
        found = {(end, width, label) for _, (end, width, _, label) in structure.parts}
        return {x for x in found if counted is None or counted[x[2]]}

    def truth(oracle):
        values = []
        for events, answer in zip(oracle.structures, gold, strict=True):
            there = spans(answer)
            found = [f_of_sets(spans(e), there, gamma) for e in events]
            values.append(torch.tensor(found, dtype=F64))
        return oracle.mean(values)

    agree(case, lambda d: expected_f_of_event(d, event, gamma, labels), truth)


def test_labelled_spans_of_trees() -> None:
    case = span_trees()
    event, gold = Enumerated(case).gold(13)
    counted = torch.tensor([False, True])

    def truth(oracle):
        values = []
        for events, answer in zip(oracle.structures, gold, strict=True):
            there = {part for part in answer.parts if part[1][2]}
            found = [{part for part in e.parts if part[1][2]} for e in events]
            values.append(torch.tensor([f_of_sets(x, there, 1.0) for x in found], dtype=F64))
        return oracle.mean(values)

    agree(case, lambda d: expected_f_of_event(d, event, counted=counted), truth)


@pytest.mark.few(1)
@pytest.mark.parametrize("case", [chain(), segments()], ids=str)
def test_derivatives_by_differences(case: Case) -> None:
    correct, size = functions(case)
    inputs = tuple(case.leaves().arguments.values())
    # Of the rule with three nodes, exact or not.
    objective = lambda *x: expected_f(  # noqa: E731
        case.distribution(*x), correct, size, GOLD, nodes=3
    )
    assert gradcheck(objective, inputs, fast_mode=True)
    assert gradgradcheck(objective, inputs, fast_mode=True)


def test_derivative_by_what_is_right() -> None:
    case = segments().leaves()
    correct, size = functions(case)
    name = "log_potentials"
    d = case.distribution()

    def objective(x: Tensor, theta: Tensor) -> Tensor:
        return expected_f(case.distribution(theta), {name: x}, size, GOLD)

    right = correct[name].detach().requires_grad_()
    fixed = d.potentials[name].detach()
    counted = size[name] > 0
    some = lambda x: objective(torch.where(counted, x, 0.0), fixed)  # noqa: E731
    assert gradcheck(some, right, fast_mode=True)
    both = lambda x, theta: objective(torch.where(counted, x, 0.0), theta)  # noqa: E731
    assert gradgradcheck(both, (right, d.potentials[name]), fast_mode=True)
    # The value is linear in it, up to what nothing adds where nothing is.
    none = expected_f(d, {}, size, GOLD)
    (slope,) = grad(objective(right, d.potentials[name]).sum(), right)
    assert_close((slope * right).flatten(1).sum(1), expected_f(d, correct, size, GOLD) - none)


def test_the_first_and_the_second_way_to_the_gradient_agree() -> None:
    """With create_graph from a graph of all nodes, else made in the forward pass."""
    case = chain().with_impossible_parts().leaves()
    correct, size = functions(case)
    value = expected_f(case.distribution(), correct, size, GOLD).sum()
    leaves = list(case.arguments.values())
    plain = grad(value, leaves, create_graph=True)
    for x, y in zip(grad(value, leaves), plain, strict=True):
        assert_close(x, y)


def test_a_long_chain() -> None:
    """Independent labels: a Poisson-binomial distribution, by exact fractions."""
    n = 60
    gold = list(range(0, n, 3))
    odds = [Fraction(1 + t % 5, 3) for t in range(n)]
    p = [x / (1 + x) for x in odds]
    c = Fraction(len(gold))
    wanted = Fraction(0)
    for t in gold:
        others = [Fraction(1)]
        for q in p[:t] + p[t + 1 :]:
            longer = [*others, Fraction(0)]
            others = [x * (1 - q) + (longer[k - 1] * q if k else 0) for k, x in enumerate(longer)]
        wanted += p[t] * sum(x / (k + 1 + c) for k, x in enumerate(others))
    emissions = torch.zeros(n, 2, dtype=F64)
    emissions[:, 1] = torch.tensor([float(x) for x in odds], dtype=F64).log()
    d = LinearChain(emissions, torch.zeros(2, 2, dtype=F64))
    labels = torch.zeros(n, dtype=torch.long)
    labels[gold] = 1
    counted = torch.tensor([False, True])
    found = expected_f_of_event(d, labels, 1.0, counted)
    assert_close(found, float(2 * wanted), rtol=1e-12, atol=0)
    assert_close(expected_f_of_event(d, labels, 1.0, counted, nodes=16), found, rtol=1e-11, atol=0)
    few = expected_f_of_event(d, labels, 1.0, counted, nodes=2)
    assert abs(float(few - found)) > 1e-9


def test_float32() -> None:
    case = segments()
    event, _ = Enumerated(case).gold(14)
    single = case.arguments["log_potentials"].float().requires_grad_()
    lengths = torch.tensor(case.lengths)
    found = expected_f_of_event(SemiMarkov(single, lengths), event)
    assert found.dtype == torch.float32
    wanted = expected_f_of_event(case.distribution(), event)
    assert_close(found, wanted.float())
    series = expected_f_of_event(SemiMarkov(single, lengths), event, method="series")
    assert series.dtype == torch.float32
    assert grad(found.sum(), single)[0].dtype == torch.float32


def test_batches_of_any_shape_and_without_graph() -> None:
    x = randn(2, 2, 3, 2, 2, 2, seed=15)
    events = SemiMarkov(x).sample(generator=seeded(16))
    found = expected_f_of_event(SemiMarkov(x), events)
    assert found.shape == (2, 2)
    assert not found.requires_grad
    assert_close(found[1, 0], expected_f_of_event(SemiMarkov(x[1, 0]), events[1, 0]))
    with torch.inference_mode():
        assert_close(expected_f_of_event(SemiMarkov(x.clone()), events), found)
    nothing = SemiMarkov(torch.zeros(0, 3, 2, 2, 2))
    assert expected_f(nothing, {}, {"log_potentials": torch.ones(2)}, 1.0).shape == (0,)


def test_only_what_cannot_be_counted() -> None:
    """A model that never counts anything, where something is there, and where nothing is."""
    emissions = torch.tensor([[0.0, -torch.inf]] * 3, dtype=F64).expand(2, 3, 2).clone()
    d = LinearChain(emissions.requires_grad_(), torch.zeros(2, 2, dtype=F64))
    gold = torch.tensor([[0, 1, 0], [0, 0, 0]])
    counted = torch.tensor([False, True])
    for method in ("quadrature", "series"):
        found = expected_f_of_event(d, gold, 1.0, counted, method=method)
        assert_close(found, torch.tensor([0.0, 1.0], dtype=F64))
        assert bool(grad(found.sum(), emissions)[0].isfinite().all())


# ------------------------------------------------------------------ the series


def truncated(
    oracle: Enumerated,
    correct: dict[str, Tensor],
    size: dict[str, Tensor],
    gold: Tensor,
    order: int,
    centre: float,
) -> Tensor:
    """Equation 52, gamma = 1, term by term over all events."""
    values = []
    for right, counted, wanted in zip(
        oracle.additive(correct), oracle.additive(size), gold, strict=True
    ):
        ratio = (counted - centre) / (-wanted - centre)
        values.append(2 / (wanted + centre) * right * sum(ratio**m for m in range(order + 1)))
    return oracle.mean(values)


@pytest.mark.few(4)
@variants
@pytest.mark.parametrize("case", [*CHAINS[:2], segments(), span_trees()], ids=str)
def test_series_as_printed(case: Case, which: str) -> None:
    correct, size = functions(case)
    gold = torch.tensor([3.0, 2.0, 1.5], dtype=F64)
    for order, centre in [(0, 4.0), (3, 4.0), (6, 7.5)]:
        agree(
            case.variant(which),
            lambda d, m=order, x=centre: expected_f(
                d, correct, size, gold, method="series", order=m, centre=x
            ),
            lambda o, m=order, x=centre: truncated(o, correct, size, gold, m, x),
            rtol=1e-8,
        )


@gammas
@pytest.mark.parametrize("case", [CHAINS[0], segments()], ids=str)
def test_series_approaches_the_quadrature(case: Case, gamma: float) -> None:
    event, _ = Enumerated(case).gold(17)
    counted = torch.arange(case.labels) > 0
    d = case.leaves().distribution()
    exact = expected_f_of_event(d, event, gamma, counted).detach()
    errors = []
    for order in (1, 3, 5, 9, 15, 25):
        found = expected_f_of_event(d, event, gamma, counted, method="series", order=order)
        errors.append(float((found.detach() - exact).abs().max()))
    for before, after in pairwise(errors):
        assert after < max(0.7 * before, 1e-9)


def test_gradient_of_the_series() -> None:
    case = segments()
    event, _ = Enumerated(case).gold(18)
    series = lambda x: expected_f_of_event(  # noqa: E731
        case.distribution(x), event, method="series", order=6, centre=2.5
    )
    leaf = case.leaves().arguments["log_potentials"]
    assert gradcheck(series, leaf, fast_mode=True)
    (exact,) = grad(expected_f_of_event(case.distribution(leaf), event).sum(), leaf)
    long = expected_f_of_event(case.distribution(leaf), event, method="series", order=24)
    assert_close(grad(long.sum(), leaf)[0], exact, rtol=1e-6, atol=1e-6)


# ------------------------------------------------------------------ nodes, arguments


def test_nodes_integrate_powers() -> None:
    for c in (0.25, 1.0, 7.0, 30.5, 500.0):
        for count in (1, 2, 5, 16):
            nodes, weights = jacobi_rule(c - 1, count)
            for m in range(2 * count):
                wanted = float(1 / (m + Fraction(c)))
                assert abs(float(weights @ nodes**m) / wanted - 1) < 1e-13 * max(1, c)


def test_number_of_nodes() -> None:
    for degree in (0, 1, 2, 10, 64, 300):
        for exponent in (0.0, 0.25, 3.0, 40.0):
            count = enough_nodes(exponent, degree)
            assert count <= degree // 2 + 1
            nodes, weights = jacobi_rule(exponent, count)
            for m in range(degree + 1):
                error = float(weights @ nodes**m) * (m + exponent + 1) - 1
                assert abs(error) < 1e-13 * max(1, degree / 50)
    assert enough_nodes(0.0, 1000) <= 100


def test_wrong_arguments_are_refused(unchecked) -> None:
    case = segments()
    d = case.distribution()
    event, _ = Enumerated(case).gold(19)
    ones = {"log_potentials": torch.ones(2, dtype=F64)}
    for wrong in (-1.0, 0.5, torch.inf, torch.nan):
        with pytest.raises(ArgumentError, match=r"size\['log_potentials'\] must be whole numbers"):
            expected_f(d, ones, {"log_potentials": torch.tensor([1.0, wrong])}, 1.0)
    with pytest.raises(ArgumentError, match=r"correct\['log_potentials'\] must be finite"):
        expected_f(d, {"log_potentials": torch.tensor([1.0, torch.nan])}, ones, 1.0)
    with pytest.raises(ArgumentError, match="correct names unknown potentials"):
        expected_f(d, {"labels": torch.ones(2)}, ones, 1.0)
    for gold in (-1.0, torch.nan):
        with pytest.raises(ArgumentError, match="gold_size must be at least 0"):
            expected_f(d, ones, ones, gold)
    with pytest.raises(ArgumentError, match=r"gold_size must be \[3\]"):
        expected_f(d, ones, ones, torch.ones(2))
    for gamma in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="gamma must be a number"):
            expected_f(d, ones, ones, 1.0, gamma)
    with pytest.raises(ArgumentError, match="method must be one of"):
        expected_f(d, ones, ones, 1.0, method="sampling")
    with pytest.raises(ArgumentError, match="nodes must be an integer of at least 1"):
        expected_f(d, ones, ones, 1.0, nodes=0)
    with pytest.raises(ArgumentError, match="centre"):
        expected_f(d, ones, ones, 1.0, method="series", centre=-1.0)
    with pytest.raises(ArgumentError, match="counted must be 2 booleans"):
        expected_f_of_event(d, event, counted=torch.tensor([True]))
    with pytest.raises(ArgumentError, match="one gold event for each element"):
        expected_f_of_event(d, event[None])
    trees = FAMILIES[-1]
    with pytest.raises(ArgumentError, match="use expected_f"):
        expected_f_of_event(trees.distribution(), Enumerated(trees).gold(0)[0])


def test_one_chain_without_a_batch() -> None:
    """By both ways; (0 + 0 + 1 + 2/3)/4 as in the example of `expected_f`."""
    d = LinearChain(torch.zeros(2, 2, dtype=F64), torch.zeros(2, 2, dtype=F64))
    gold, counted = torch.tensor([1, 0]), torch.tensor([False, True])
    exact = expected_f_of_event(d, gold, counted=counted)
    assert_close(exact, torch.tensor(5 / 12, dtype=F64))
    series = expected_f_of_event(d, gold, counted=counted, method="series", order=40)
    assert_close(series, exact, rtol=1e-6, atol=1e-6)


def test_series_without_gold_parts() -> None:
    """Precision (gamma = 0), where the denominator is |π| alone."""
    d = LinearChain(torch.zeros(1, 2, dtype=F64), torch.zeros(2, 2, dtype=F64))
    one = {"emissions": torch.tensor([0.0, 1.0], dtype=F64)}
    for order in (14, 15, 40):
        found = expected_f(d, one, one, 1.0, 0.0, method="series", order=order)
        assert_close(found, torch.tensor(0.5, dtype=F64))
    both = {"emissions": torch.ones(2, dtype=F64)}
    for method in ("series", "quadrature"):
        with pytest.raises(ArgumentError, match="count all parts"):
            expected_f(d, both, one, 0.0, method=method)
