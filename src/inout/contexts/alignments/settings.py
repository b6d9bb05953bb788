"""`AlignmentSettings`: how alignment models select contexts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from inout._core.checks import at_least
from inout._core.errors import ArgumentError
from inout.contexts.alignments.actions import MOST_LETTERS


@dataclass(frozen=True, kw_only=True)
class AlignmentSettings:
    """How many contexts there are and what they remember, and which alignments there are."""

    size: int = 20
    """Contexts of each column: of each number of letters of each symbol of the input."""

    memory: int | None = None
    """Most edges that a context remembers."""

    beam: bool = False
    """Beam search: only whole strings are remembered, and the others are dropped."""

    escape: float = 0.0
    """Added to the score of what follows a context that remembers nothing; a beam's is -inf."""

    most_letters: int = MOST_LETTERS
    many_to_many: bool = False

    def __post_init__(self) -> None:
        at_least("size", self.size, 1)
        at_least("most_letters", self.most_letters, 1)
        if self.memory is not None:
            at_least("memory", self.memory, 1)
            if self.beam:
                raise ArgumentError(
                    "memory",
                    f"must be None with a beam, which remembers everything. Got {self.memory}",
                )
        if not self.escape < math.inf:
            raise ArgumentError("escape", f"must be finite or -inf. Got {self.escape}")

    @property
    def columns(self) -> dict[str, Any]:
        """The arguments of `alignment_columns`."""
        return {"most_letters": self.most_letters, "many_to_many": self.many_to_many}

    @property
    def selection(self) -> dict[str, Any]:
        """The arguments of `select`."""
        escape = -math.inf if self.beam else self.escape
        return {"memory": self.memory, "anchored": self.beam, "escape": escape}
