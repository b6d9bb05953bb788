"""What the peers are asked for: log Z, gradients and best paths in our terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from benchmarks.peers import peer
from benchmarks.problems import Gradient, Problem


@dataclass(frozen=True, eq=False)
class TorchCTC:
    """`torch.nn.functional.ctc_loss`."""

    problem: Problem

    def gradient(self) -> tuple[Tensor, Gradient]:
        """log Z and its gradient, as ours."""
        scores = self.problem.leaves()["log_probs"]
        targets = self.problem.others["targets"]
        b, t, _ = scores.shape
        lengths, sizes = torch.full((b,), t), torch.full((b,), targets.shape[1])
        given = scores.transpose(0, 1), targets, lengths, sizes
        log_z = -ctc_loss(*given, reduction="none")
        (found,) = torch.autograd.grad(log_z.sum(), scores)
        return log_z.detach(), {"log_probs": found}


def of_logits(problem: Problem, gradient: Gradient) -> Gradient:
    """The gradient by the inputs of a log-softmax: torch's is only right for these."""
    found = gradient["log_probs"]
    scores = problem.potentials["log_probs"].to(found)
    return {"log_probs": found - scores.exp() * found.sum(-1, keepdim=True)}


@cache
def soft_dtw_peer() -> Callable[[Problem], tuple[Tensor, Gradient]] | None:
    """pysdtw's log Z and gradient of a problem of time warping; None if it is not installed."""
    if find_spec("pysdtw") is None:
        return None
    library = peer("pysdtw", "pysdtw")

    def gradient(problem: Problem) -> tuple[Tensor, Gradient]:
        match = problem.leaves()["match"]
        # It makes the costs itself, of series [b n 1], by the function it is given.
        loss: Any = library.SoftDTW(gamma=1.0, dist_func=lambda *_: -match, use_cuda=False)
        rows, columns = (torch.zeros(len(match), size, 1) for size in match.shape[1:])
        log_z = -loss(rows, columns)
        (found,) = torch.autograd.grad(log_z.sum(), match)
        return log_z.detach(), {"match": found}

    return gradient


def _imported(name: str) -> Any | None:
    """A module, None if it is not installed or cannot be loaded."""
    try:
        return import_module(name)
    except (ImportError, OSError):
        return None


@cache
def rnnt_peer() -> Callable[[Problem], tuple[Tensor, Gradient]] | None:
    """torchaudio's log Z and gradient of a transducer; None if it cannot be loaded."""
    functional = _imported("torchaudio.functional")
    if functional is None:
        return None

    def gradient(problem: Problem) -> tuple[Tensor, Gradient]:
        logits, targets = problem.leaves()["logits"], problem.others["targets"].int()
        b, t, w, _ = logits.shape
        frames, labels = (torch.full((b,), size, dtype=torch.int32) for size in (t, w - 1))
        log_z = -functional.rnnt_loss(logits, targets, frames, labels, blank=0, reduction="none")
        (found,) = torch.autograd.grad(log_z.sum(), logits)
        return log_z.detach(), {"logits": found}

    return gradient


@cache
def search_peer() -> Callable[[Tensor, Tensor], Tensor] | None:
    """monotonic-alignment-search's best paths of [b m n] and a mask; None if not installed."""
    library = _imported("monotonic_alignment_search")
    found: Callable[[Tensor, Tensor], Tensor] | None = getattr(library, "maximum_path", None)
    return found
