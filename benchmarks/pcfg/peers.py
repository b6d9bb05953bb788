"""What torch-struct's grammar is asked for: log Z and gradient, the best tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import torch_struct
from benchmarks.problems import Gradient, Problem


@dataclass(frozen=True, eq=False)
class StructGrammar:
    """torch-struct's `SentCFG` with the potentials of one of our grammars."""

    problem: Problem

    @classmethod
    def of(cls, problem: Problem) -> StructGrammar:
        """The same grammar for torch-struct, which numbers symbols as we do."""
        return cls(problem)

    def _make(self) -> tuple[dict[str, Tensor], Any]:
        leaves = self.problem.leaves()
        words = leaves["preterminals"]
        # It wants the rules of each element.
        rules = leaves["rules"].expand(len(words), -1, -1, -1)
        root = leaves["root"].expand(len(words), -1)
        return leaves, torch_struct().SentCFG((words, rules, root))

    def gradient(self) -> tuple[Tensor, Gradient]:
        """log Z and its gradient, in the shared rules too."""
        leaves, grammar = self._make()
        log_z = grammar.partition
        found = torch.autograd.grad(log_z.sum(), list(leaves.values()))
        return log_z.detach(), dict(zip(leaves, found, strict=True))

    def best_score(self) -> Tensor:
        """The score of the best tree of each element."""
        score: Tensor = self._make()[1].max
        return score.detach()

    def argmax(self) -> tuple[Tensor, ...]:
        """The best tree of each element as counts of its parts."""
        parts: tuple[Tensor, ...] = self._make()[1].argmax
        return parts
