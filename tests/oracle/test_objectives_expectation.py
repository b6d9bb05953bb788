"""Generalised expectation criteria against enumeration of all events."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from inout import HMM, ArgumentError, LinearChain
from inout.distributions.base import StructuredDistribution
from inout.moments import expectation_criterion, label_expectations
from tests.oracle.objective_cases import (
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
)
from tests.support import assert_close

variants = pytest.mark.parametrize("which", VARIANTS)
families = pytest.mark.parametrize("case", FAMILIES, ids=str)


def features(case: Case, m: int = 5, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, targets (the last excludes a label) and weights; the first feature is on nowhere."""
    tokens = torch.rand(m, len(case.lengths), 4, generator=seeded(seed)) < 0.4
    tokens[0] = False
    targets = torch.rand(m, case.labels, generator=seeded(seed + 1), dtype=F64)
    targets[-1, 0] = 0
    targets = targets / targets.sum(-1, keepdim=True)
    return tokens, targets, torch.rand(m, generator=seeded(seed + 2), dtype=F64)


def model_expectations(oracle: Enumerated, tokens: Tensor) -> list[Tensor | None]:
    """Mean label distribution of each feature's tokens, one token after the other."""
    found: list[Tensor | None] = []
    for feature in tokens:
        rows = []
        for b, length in enumerate(oracle.case.lengths):
            labels = oracle.position_labels(b)
            for t in range(length):
                if feature[b, t] and oracle.possible[b]:
                    hits = torch.nn.functional.one_hot(labels[:, t], oracle.case.labels)
                    rows.append((oracle.p[b][:, None] * hits).sum(0))
        found.append(torch.stack(rows).mean(0) if rows else None)
    return found


def criterion(
    oracle: Enumerated, tokens: Tensor, targets: Tensor, weights: Tensor, divergence: str
) -> Tensor:
    total = torch.zeros((), dtype=F64)
    for found, target, weight in zip(
        model_expectations(oracle, tokens), targets, weights, strict=True
    ):
        if found is None:
            continue
        if divergence == "squared":
            total = total + weight * ((target - found) ** 2).sum()
            continue
        for wanted, is_there in zip(target, found, strict=True):
            if wanted > 0:
                total = total + weight * wanted * (wanted.log() - is_there.log())
    return total


@pytest.mark.few(12)
@pytest.mark.parametrize("divergence", ["kl", "squared"])
@variants
@families
def test_criterion(case: Case, which: str, divergence: str) -> None:
    case = case.variant(which)
    tokens, targets, weights = features(case)
    agree(
        case,
        lambda d: expectation_criterion(d, tokens, targets, weights, divergence),
        lambda o: criterion(o, tokens, targets, weights, divergence),
    )
    ones = torch.ones_like(weights)
    agree(
        case,
        lambda d: expectation_criterion(d, tokens, targets, divergence=divergence),
        lambda o: criterion(o, tokens, targets, ones, divergence),
    )


@families
def test_model_expectations(case: Case) -> None:
    tokens, _, _ = features(case)
    zeros = torch.zeros(case.labels, dtype=F64)
    agree(
        case,
        lambda d: label_expectations(d, tokens),
        lambda o: torch.stack([zeros if x is None else x for x in model_expectations(o, tokens)]),
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("case", [chain(), segments()], ids=str)
def test_criterion_by_differences(case: Case) -> None:
    tokens, targets, weights = features(case)
    inputs = tuple(case.leaves().arguments.values())
    objective = lambda *x: expectation_criterion(  # noqa: E731
        case.distribution(*x), tokens, targets, weights
    )
    assert gradcheck(objective, inputs)
    assert gradgradcheck(objective, inputs, fast_mode=True)


def test_sparse_tokens() -> None:
    case = chain()
    tokens, targets, _ = features(case)
    d = case.distribution()
    wanted = expectation_criterion(d, tokens, targets)
    assert_close(expectation_criterion(d, tokens.to_sparse(), targets), wanted)
    counts = (2.5 * tokens).to_sparse()
    assert_close(expectation_criterion(d, counts, targets), wanted)
    # Stored zeros are off, and an entry given twice is on once.
    again, off = counts.indices()[:, :3], torch.zeros(3, 1, dtype=torch.long)
    places = torch.cat([counts.indices(), again, off], 1)
    values = torch.ones(places.shape[1])
    values[-1] = 0
    twice = torch.sparse_coo_tensor(places, values, tokens.shape, check_invariants=True)
    assert_close(expectation_criterion(d, twice, targets), wanted)


def test_padding_never_counts() -> None:
    case = chain()
    tokens, targets, _ = features(case)
    cleared = tokens.clone()
    for b, length in enumerate(case.lengths):
        cleared[:, b, length:] = False
    assert bool((cleared != tokens).any())
    d = case.distribution()
    assert_close(
        expectation_criterion(d, tokens, targets), expectation_criterion(d, cleared, targets)
    )


def test_a_feature_that_is_on_nowhere_adds_nothing() -> None:
    d = chain().leaves().distribution()
    tokens, targets = torch.zeros(1, 3, 4, dtype=torch.bool), torch.full((1, 3), 1 / 3)
    loss = expectation_criterion(d, tokens, targets)
    assert loss == 0
    loss.backward()
    assert float(d.potentials["emissions"].grad.abs().sum()) == 0


@pytest.mark.parametrize("divergence", ["kl", "squared"])
def test_a_label_that_the_model_excludes(divergence: str) -> None:
    emissions = randn(3, 2, seed=1)
    emissions[:, 1] = -torch.inf
    emissions.requires_grad_()
    d = LinearChain(emissions, torch.zeros(2, 2, dtype=F64))
    tokens, targets = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[0.5, 0.5]], dtype=F64)
    loss = expectation_criterion(d, tokens, targets, divergence=divergence)
    assert loss == (torch.inf if divergence == "kl" else 0.5)
    (gradient,) = grad(loss, emissions)
    assert bool(gradient.isfinite().all())
    # A weight of 0 takes the whole feature out.
    assert expectation_criterion(d, tokens, targets, torch.zeros(1)) == 0


def test_a_target_that_is_met_has_no_gradient() -> None:
    case = chain().leaves()
    tokens = features(case)[0][1:]
    d = case.distribution()
    targets = label_expectations(d, tokens).detach()
    loss = expectation_criterion(d, tokens, targets)
    assert_close(loss, torch.zeros((), dtype=F64))
    for gradient in grad(loss, list(case.arguments.values())):
        assert_close(gradient, torch.zeros_like(gradient))


def test_hidden_markov_models_and_batches_of_any_shape() -> None:
    initial, transition, emission = randn(3, seed=1), randn(3, 3, seed=2), randn(3, 5, seed=3)
    symbols = torch.randint(5, (2, 2, 4), generator=seeded(4))
    tokens = torch.rand(2, 2, 2, 4, generator=seeded(5)) < 0.5
    targets = torch.full((2, 3), 1 / 3, dtype=F64)
    d: StructuredDistribution = HMM(initial, transition, emission, symbols)
    flat = HMM(initial, transition, emission, symbols.flatten(0, 1))
    single = HMM(initial, transition, emission, symbols[0, 0])
    assert_close(
        expectation_criterion(d, tokens, targets),
        expectation_criterion(flat, tokens.flatten(1, 2), targets),
    )
    assert_close(label_expectations(single, torch.ones(1, 4, dtype=torch.bool))[0].sum(), 1.0)


def test_wrong_arguments_are_refused(unchecked) -> None:
    d = chain().distribution()
    tokens, targets, weights = features(chain())
    with pytest.raises(ArgumentError, match=r"tokens must be \[m, 3, 4\]. Got \[5, 3, 3\]"):
        expectation_criterion(d, tokens[..., :3], targets)
    with pytest.raises(ArgumentError, match="tokens must be booleans, or sparse"):
        expectation_criterion(d, tokens.double(), targets)
    with pytest.raises(ArgumentError, match=r"targets must have shape \[5, 3\]"):
        expectation_criterion(d, tokens, targets[:, :2])
    for wrong in (2 * targets, targets - 1, targets * torch.nan):
        with pytest.raises(ArgumentError, match="targets must be distributions"):
            expectation_criterion(d, tokens, wrong)
    with pytest.raises(ArgumentError, match=r"weights must have shape \[5\]"):
        expectation_criterion(d, tokens, targets, weights[:2])
    with pytest.raises(ArgumentError, match="divergence must be one of"):
        expectation_criterion(d, tokens, targets, divergence="l1")
