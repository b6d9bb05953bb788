"""What is timed: each objective with its gradient, as a training step would compute it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.problems import Gradient, Problem
from inout import moments

FEATURES = 20


@dataclass(frozen=True, eq=False)
class Criterion:
    """Features of tokens [m b n], and the labels [m s] they should have on average."""

    tokens: Tensor
    targets: Tensor

    @classmethod
    def of(cls, problem: Problem) -> Criterion:
        """Each feature is on at one token in ten."""
        emissions = problem.potentials["emissions"]
        b, n, s = emissions.shape
        generator = torch.Generator().manual_seed(3)
        tokens = torch.rand(FEATURES, b, n, generator=generator) < 0.1
        targets = torch.rand(FEATURES, s, generator=generator, dtype=torch.float64)
        return cls(tokens, (targets / targets.sum(-1, keepdim=True)).to(emissions.dtype))

    def gradient(self, problem: Problem) -> tuple[Tensor, Gradient]:
        """The criterion and its gradient in every potential."""
        leaves = problem.leaves()
        loss = moments.expectation_criterion(problem.family(**leaves), self.tokens, self.targets)
        return loss.detach(), gradient(loss, leaves)


def expected_f(problem: Problem, gold: Tensor, **how: str | int | None) -> tuple[Tensor, Gradient]:
    """Expected F1 [b] of segmentations, and the gradient of its sum."""
    leaves = problem.leaves()
    value = moments.expected_f_of_event(problem.family(**leaves), gold, **how)  # type: ignore[arg-type]
    return value.detach(), gradient(value.sum(), leaves)


def gradient(loss: Tensor, leaves: dict[str, Tensor]) -> Gradient:
    """The gradient of a number in every leaf."""
    found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def gold_event(problem: Problem) -> Tensor:
    """An event of each element to compare with, the same in each call."""
    generator = torch.Generator().manual_seed(4)
    return problem.to(torch.float64).make().sample(generator=generator)
