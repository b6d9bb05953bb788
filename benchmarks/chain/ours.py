"""What we are asked for beside the peers: a loss and its gradient, one EM step."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.problems import Gradient, Problem


def random_labels(problem: Problem) -> Tensor:
    """Labels [b n] whose likelihood is the loss."""
    b, n, s = problem.potentials["emissions"].shape
    return torch.randint(s, (b, n), generator=torch.Generator().manual_seed(2))


def loss_gradient(problem: Problem, labels: Tensor) -> tuple[Tensor, Gradient]:
    """The negative log-likelihood of the labels, and its gradient."""
    leaves = problem.leaves()
    loss = -problem.family(**leaves).log_prob(labels).sum()
    found = torch.autograd.grad(loss, list(leaves.values()))
    return loss.detach(), dict(zip(leaves, found, strict=True))


def em_step(problem: Problem) -> Gradient:
    """The re-estimated log-probabilities of an HMM: its expected counts, normalised."""
    _, counts = problem.gradient()
    return {name: count.log() - count.sum(-1, keepdim=True).log() for name, count in counts.items()}
