"""What other libraries are asked for on a GPU: log Z and gradients in our terms."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from benchmarks.dependency.peers import Slogdet
from benchmarks.peers import peer
from benchmarks.problems import Gradient, Problem

Peer = Callable[[Problem], tuple[Tensor, Gradient]]


def torchaudio_rnnt() -> Peer | None:
    """torchaudio's transducer loss, None without torchaudio or where it has none."""
    if find_spec("torchaudio") is None:
        return None
    loss = getattr(peer("torchaudio.functional", "torchaudio"), "rnnt_loss", None)
    if loss is None:
        return None

    def gradient(problem: Problem) -> tuple[Tensor, Gradient]:
        logits, targets = problem.leaves()["logits"], problem.others["targets"].int()
        b, t, w, _ = logits.shape
        sizes = (torch.full((b,), n, dtype=torch.int32, device=logits.device) for n in (t, w - 1))
        losses = loss(logits, targets, *sizes, blank=0, reduction="none")
        (found,) = torch.autograd.grad(losses.sum(), logits)
        return -losses.detach(), {"logits": -found}

    return gradient


def slogdet() -> Peer:
    """The matrix-tree theorem by torch's determinant and its autograd."""
    return lambda problem: Slogdet(problem).gradient()


def torch_ctc() -> Peer:
    """torch's own CTC loss; its gradient is that of our log Z for inputs of a log-softmax only."""

    def gradient(problem: Problem) -> tuple[Tensor, Gradient]:
        scores, targets = problem.leaves()["log_probs"], problem.others["targets"]
        b, t, _ = scores.shape
        sizes = torch.full((b,), t), torch.full((b,), targets.shape[1])
        log_z = -ctc_loss(scores.transpose(0, 1), targets, *sizes, reduction="none")
        (found,) = torch.autograd.grad(log_z.sum(), scores)
        return log_z.detach(), {"log_probs": found}

    return gradient
