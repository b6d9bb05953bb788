"""What the peers are asked for: log Z and gradients in our terms."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.peers import torch_struct
from benchmarks.problems import Gradient, Problem


@dataclass(frozen=True, eq=False)
class StructTrees:
    """torch-struct's `DependencyCRF`, whose scores have those of the root in their diagonal."""

    scores: Tensor

    @classmethod
    def of(cls, problem: Problem) -> StructTrees:
        """The same trees for torch-struct."""
        arcs, root = problem.potentials["arcs"], problem.potentials["root"]
        return cls(torch.where(torch.eye(arcs.shape[-1], dtype=torch.bool), root[:, None], arcs))

    def gradient(self) -> tuple[Tensor, Gradient]:
        """log Z and its gradient, as ours."""
        scores = self.scores.detach().requires_grad_()
        log_z = torch_struct().DependencyCRF(scores, multiroot=False).partition
        (found,) = torch.autograd.grad(log_z.sum(), scores)
        root = found.diagonal(dim1=1, dim2=2)
        return log_z.detach(), {"arcs": found - torch.diag_embed(root), "root": root}
