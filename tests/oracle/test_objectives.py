"""Curvature, Hamming objective, risk and entropy against enumeration of all events."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from inout import ArgumentError, LinearChain, SemiMarkov
from inout.moments import (
    hamming_risk,
    hessian_vector_product,
    label_marginals,
    log_marginals,
    risk,
    risk_variance,
)
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
    segments,
)
from tests.support import assert_close

DEFAULTS = {
    "LinearChain": "emissions",
    "SemiMarkov": "log_potentials",
    "SpanTree": "log_potentials",
    "PCFG": "preterminals",
}
variants = pytest.mark.parametrize("which", VARIANTS)
families = pytest.mark.parametrize("case", FAMILIES, ids=str)


def random_function(case: Case, seed: int) -> dict[str, Tensor]:
    shapes = {n: (len(case.lengths), *shape) for n, shape in case.shapes.items()}
    return {n: randn(*shape, seed=seed + k) for k, (n, shape) in enumerate(shapes.items())}


# ------------------------------------------------------------------ curvature


@variants
@families
def test_hessian_times_a_direction(case: Case, which: str) -> None:
    case = case.variant(which)
    u = random_function(case, 50)
    found = hessian_vector_product(case.distribution(), u)
    oracle = Enumerated(case)
    rows = []
    for b, (p, values) in enumerate(zip(oracle.p, oracle.additive(u), strict=True)):
        rows.append((p * (values - (p * values).sum())) @ oracle.counts(b))
    wanted = torch.stack(rows)
    assert found.keys() == case.shapes.keys()
    for name, values in found.items():
        assert_close(values, oracle.shaped(wanted, name))


@variants
@families
def test_derivative_of_the_curvature(case: Case, which: str) -> None:
    """Third cumulants: Cov[U, F] differentiated by the arguments and by u."""
    case = case.variant(which)
    f, u = random_function(case, 60), random_function(case, 70)

    def ours(d):
        second = hessian_vector_product(d, u)
        return sum((x * f[n]).flatten(1).sum(1) for n, x in second.items())

    def truth(oracle):
        left, right = oracle.additive(u), oracle.additive(f)
        means = oracle.mean(left), oracle.mean(right)
        products = [(x - a) * (y - c) for x, y, a, c in zip(left, right, *means, strict=True)]
        return oracle.mean(products)

    agree(case, ours, truth)


def test_curvature_is_linear_in_its_direction() -> None:
    case = chain()
    d, u = case.distribution(), random_function(case, 80)
    u["emissions"].requires_grad_()
    second = hessian_vector_product(d, u)
    weights = random_function(case, 85)
    total = sum((second[n] * weights[n]).sum() for n in second)
    (by_direction,) = grad(total, u["emissions"])
    assert_close(by_direction, hessian_vector_product(d, weights)["emissions"])


def test_curvature_of_little() -> None:
    d = chain().distribution()
    for direction in ({}, {"emissions": torch.ones(3, dtype=F64)}):  # nothing, and a constant
        for values in hessian_vector_product(d, direction).values():
            assert_close(values, torch.zeros_like(values), atol=1e-12)
    with torch.inference_mode():
        d = chain().distribution()
        found = hessian_vector_product(d, {"start": torch.ones(3, dtype=F64)})
        assert not found["start"].requires_grad
    with pytest.raises(ArgumentError, match="direction names unknown"):
        hessian_vector_product(d, {"begin": torch.ones(3)})


def test_values_at_impossible_parts_do_not_count() -> None:
    """The direction of the entropy's gradient is the potentials themselves, -inf and all."""
    case = segments().with_impossible_parts()
    d = case.distribution()
    u = dict(d.potentials)
    finite = {n: torch.where(x == -torch.inf, 7.0, x) for n, x in u.items()}
    ours, wanted = hessian_vector_product(d, u), hessian_vector_product(d, finite)
    for name in ours:
        assert_close(ours[name], wanted[name])


# ------------------------------------------------------------------ the Hamming objective


def product_of_marginals(oracle: Enumerated, gold: list, name: str) -> Tensor:
    """Sum over the gold parts of one potential of log P(an event has this part)."""
    logs = []
    for b, event in enumerate(gold):
        counts = oracle.counts(b)
        total = torch.zeros((), dtype=F64)
        for part in event.parts:
            if part[0] == name:
                total = total + (oracle.p[b] * counts[:, oracle.place(part)]).sum().log()
        logs.append(total)
    return torch.stack(logs)


@variants
@families
def test_hamming_objective(case: Case, which: str) -> None:
    case = case.variant(which)
    name = DEFAULTS[type(case.distribution()).__name__]
    event, gold = Enumerated(case).gold(3)
    agree(case, lambda d: log_marginals(d, event), lambda o: product_of_marginals(o, gold, name))


def test_hamming_objective_of_other_parts() -> None:
    case = chain(stationary=False)
    event, gold = Enumerated(case).gold(4)
    for name in case.shapes:
        agree(
            case,
            lambda d, name=name: log_marginals(d, event, name),
            lambda o, name=name: product_of_marginals(o, gold, name),
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("case", [CHAINS[0], segments()], ids=str)
def test_hamming_objective_by_differences(case: Case) -> None:
    event, _ = Enumerated(case).gold(5)
    inputs = tuple(case.leaves().arguments.values())
    objective = lambda *x: log_marginals(case.distribution(*x), event)  # noqa: E731
    assert gradcheck(objective, inputs)
    assert gradgradcheck(objective, inputs, fast_mode=True)


def test_a_label_that_is_impossible() -> None:
    """-inf, and a finite gradient."""
    emissions = randn(2, 3, 2, seed=6)
    emissions[0, 1, 1] = -torch.inf
    emissions.requires_grad_()
    d = LinearChain(emissions, torch.zeros(2, 2, dtype=F64))
    found = log_marginals(d, torch.tensor([[0, 1, 0], [0, 1, 0]]))
    assert found[0] == -torch.inf
    assert found[1].isfinite()
    (gradient,) = grad(found.sum(), emissions)
    assert bool(gradient.isfinite().all())
    assert float(gradient[1].abs().sum()) > 0


def test_small_probabilities_in_float32() -> None:
    """exp(-150) is below all of float32's numbers; its log is an ordinary one."""
    emissions = torch.tensor([[0.0, -150.0]], requires_grad=True)
    found = log_marginals(LinearChain(emissions, torch.zeros(2, 2)), torch.tensor([1]))
    assert found.dtype == torch.float32
    assert_close(found, torch.tensor(-150.0))
    assert_close(grad(found, emissions)[0], torch.tensor([[-1.0, 1.0]]))


def test_samples_of_events() -> None:
    d = chain().distribution()
    events = torch.randint(3, (5, 3, 4), generator=torch.Generator().manual_seed(1))
    found = log_marginals(d, events)
    assert_close(found, torch.stack([log_marginals(d, e) for e in events]))


def test_parts_without_probability_are_refused() -> None:
    d = chain().distribution()
    event = torch.zeros(3, 4, dtype=torch.long)
    with pytest.raises(ArgumentError, match="'transitions' more than once"):
        log_marginals(d, event, "transitions")
    with pytest.raises(ArgumentError, match=r"potential must be one of .* Got 'labels'"):
        log_marginals(d, event, "labels")
    trees = FAMILIES[-1]
    with pytest.raises(ArgumentError, match="'rules' more than once"):
        log_marginals(trees.distribution(), Enumerated(trees).gold(0)[0], "rules")


# ------------------------------------------------------------------ labels of positions, risk


@variants
@families
def test_labels_of_positions(case: Case, which: str) -> None:
    def truth(oracle):
        rows = []
        for b, p in enumerate(oracle.p):
            labels = oracle.position_labels(b)
            hits = torch.nn.functional.one_hot(labels, case.labels).double()
            found = (p[:, None, None] * hits).sum(0)
            rows.append(torch.nn.functional.pad(found, (0, 0, 0, 4 - labels.shape[1])))
        return torch.stack(rows)

    agree(case.variant(which), label_marginals, truth)


@pytest.mark.few(8)
@variants
@families
def test_risk_and_its_variance(case: Case, which: str) -> None:
    loss = random_function(case, 90)

    def variance(oracle):
        values = oracle.additive(loss)
        means = oracle.mean(values)
        return oracle.mean([(x - m) ** 2 for x, m in zip(values, means, strict=True)])

    case = case.variant(which)
    agree(case, lambda d: risk(d, loss), lambda o: o.mean(o.additive(loss)))
    agree(case, lambda d: risk_variance(d, loss), variance)


@variants
@families
def test_hamming_risk(case: Case, which: str) -> None:
    labels = torch.randint(case.labels, (3, 4), generator=torch.Generator().manual_seed(2))

    def truth(oracle):
        found = [oracle.position_labels(b) for b in range(3)]
        return oracle.mean([(x != labels[b, : x.shape[1]]).sum(1) for b, x in enumerate(found)])

    agree(case.variant(which), lambda d: hamming_risk(d, labels), truth)


def test_risks_by_differences() -> None:
    case = segments()
    inputs = tuple(case.leaves().arguments.values())
    loss = random_function(case, 95)
    labels = torch.zeros(3, 4, dtype=torch.long)
    for objective in (
        lambda d: risk(d, loss),
        lambda d: risk_variance(d, loss),
        lambda d: hamming_risk(d, labels),
    ):
        assert gradcheck(lambda *x, f=objective: f(case.distribution(*x)), inputs, fast_mode=True)


def test_a_small_hamming_risk_keeps_its_digits() -> None:
    emissions = torch.tensor([[0.0, -50.0]], dtype=F64)
    d = LinearChain(emissions, torch.zeros(2, 2, dtype=F64))
    assert_close(hamming_risk(d, torch.tensor([0])), torch.tensor(-50.0, dtype=F64).exp(), atol=0)


def test_wrong_labels_are_refused() -> None:
    d = chain().distribution()
    with pytest.raises(ArgumentError, match=r"labels must be in 0\.\.2. Got 0\.\.3"):
        hamming_risk(d, torch.tensor([0, 0, 0, 3]))
    with pytest.raises(ArgumentError, match="labels must be integers"):
        hamming_risk(d, torch.tensor([0, 0, 1]))
    # Beyond the length nothing is looked at.
    hamming_risk(d, torch.tensor([[0, 0, 0, 0], [0, 0, 9, 9], [0, 0, 0, -5]]))


# ------------------------------------------------------------------ entropy


def entropy_of(oracle: Enumerated) -> Tensor:
    found = -oracle.mean([torch.where(p > 0, p, 1.0).log() for p in oracle.p])
    return torch.where(torch.tensor(oracle.possible), found, -torch.inf)  # by convention


@variants
@families
def test_entropy_and_its_gradient(case: Case, which: str) -> None:
    """Equation 30, with the sign of (29) put right: the entropy is not negative."""
    case = case.variant(which)
    agree(case, lambda d: d.entropy(), entropy_of)
    found = case.distribution().entropy()
    assert (found >= 0).tolist() == Enumerated(case).possible


@pytest.mark.few(2)
@pytest.mark.parametrize("case", FAMILIES, ids=str)
def test_entropy_by_differences(case: Case) -> None:
    inputs = tuple(case.leaves().arguments.values())
    assert gradcheck(lambda *x: case.distribution(*x).entropy(), inputs)


def test_second_derivative_of_the_entropy() -> None:
    for case in (chain(ends=False), segments()):
        inputs = tuple(case.leaves().arguments.values())
        entropy = lambda *x, c=case: c.distribution(*x).entropy()  # noqa: E731
        assert gradgradcheck(entropy, inputs, fast_mode=True)


def test_entropy_as_a_regulariser() -> None:
    """-log p(labelled) + weight H(unlabelled): the gradient of the sum, and steps that lower it."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(8, 6, 5, generator=generator, dtype=F64)
    weights = (0.1 * torch.randn(5, 3, generator=generator, dtype=F64)).requires_grad_()
    transitions = torch.zeros(3, 3, dtype=F64, requires_grad=True)
    gold = torch.randint(3, (4, 6), generator=generator)

    def loss() -> Tensor:
        labelled = LinearChain(inputs[:4] @ weights, transitions)
        unlabelled = LinearChain(inputs[4:] @ weights, transitions)
        return -labelled.log_prob(gold).sum() + 0.5 * unlabelled.entropy().sum()

    values = []
    for _ in range(5):
        value = loss()
        values.append(float(value.detach()))
        steps = grad(value, (weights, transitions))
        with torch.no_grad():
            for x, step in zip((weights, transitions), steps, strict=True):
                x -= 0.02 * step
    assert values == sorted(values, reverse=True)
    assert gradcheck(
        lambda w, t: (
            -LinearChain(inputs[:2, :3] @ w, t).log_prob(gold[:2, :3])
            + 0.5 * LinearChain(inputs[4:6, :3] @ w, t).entropy()
        ),
        (weights, transitions),
    )


def test_objectives_in_float32() -> None:
    case = segments()
    event, gold = Enumerated(case).gold(7)
    single = SemiMarkov(case.arguments["log_potentials"].float(), torch.tensor(case.lengths))
    wanted = product_of_marginals(Enumerated(case), gold, "log_potentials")
    assert_close(log_marginals(single, event), wanted, rtol=1e-5)
    second = hessian_vector_product(single, {"log_potentials": torch.ones(3, 4, 3, 2, 2)})
    assert second["log_potentials"].dtype == torch.float32
