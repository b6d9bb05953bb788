"""What the peers are asked for: log Z and gradients in our terms."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, eq=False)
class Slogdet:
    """Koo et al. (2007) as users write it: `torch.linalg.slogdet` in float64, and its autograd."""

    problem: Problem

    def gradient(self) -> tuple[Tensor, Gradient]:
        """log Z and its gradient, as ours."""
        leaves = self.problem.leaves()
        weights, root = leaves["arcs"].double().exp(), leaves["root"].double().exp()
        weights = weights * (1 - torch.eye(weights.shape[-1]).to(weights))
        laplacian = torch.diag_embed(weights.sum(1)) - weights
        log_z = torch.linalg.slogdet(torch.cat([root[:, None], laplacian[:, 1:]], 1))[1]
        found = torch.autograd.grad(log_z.sum(), list(leaves.values()))
        return log_z.detach(), dict(zip(leaves, found, strict=True))


def stanza_decoder() -> Any | None:
    """stanza's `chuliu_edmonds` module, without the rest of stanza; None if it is not installed."""
    found = find_spec("stanza")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "models" / "common" / "chuliu_edmonds.py"
    spec = spec_from_file_location("stanza_chuliu_edmonds", path)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stanza_heads(decoder: Any, problem: Problem) -> Tensor:
    """The best trees with one root word by stanza, sentence by sentence."""
    arcs, root = problem.potentials["arcs"], problem.potentials["root"]
    n = arcs.shape[-1]
    table = torch.full((len(arcs), n + 1, n + 1), -1e9)
    table[:, 1:, 0], table[:, 1:, 1:] = root, arcs.mT
    table.diagonal(dim1=1, dim2=2).fill_(-1e9)
    heads = [decoder.chuliu_edmonds_one_root(scores.numpy().copy())[1:] for scores in table]
    return torch.stack([torch.as_tensor(row) for row in heads])
