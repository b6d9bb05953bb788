"""`Alignment`: which letters of an output belong to which symbols of an input, and its picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from inout._core.errors import ArgumentError

Edge = tuple[int, int]

# From one edge to the next: (in the input, in the output).
NEXT, SAME, SHARE = (1, 1), (0, 1), (1, 0)


@dataclass(frozen=True)
class Alignment:
    """A monotone alignment of two strings: non-crossing edges that cover every symbol.

    Edge (i, k) links symbol i of the input with letter k of the output. Listed in order such
    edges are a path from (0, 0) to the last symbols, each step of which goes on by one in the
    input, in the output, or in both (Steinhardt & Liang 2015, section 4.2).

    >>> alignment = Alignment.from_steps(
    ...     ("T", "AE", "K", "S"), "tax", ((1, 1), (1, 1), (1, 1), (1, 0))
    ... )
    >>> alignment.edges
    ((0, 0), (1, 1), (2, 2), (3, 2))
    >>> print(alignment)
    | T | AE | K S |
    | t | a  | x   |
    """

    input: tuple[str, ...]
    output: tuple[str, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        if not self.edges:
            raise ArgumentError("edges", "must not be empty")
        steps = self.steps()
        if wrong := [step for step in steps if step not in (NEXT, SAME, SHARE)]:
            wanted = "must go on by one in the input, the output or both"
            raise ArgumentError("edges", f"{wanted}. Got a step {wrong[0]}")
        end = (len(self.input) - 1, len(self.output) - 1)
        if steps[0] != NEXT or self.edges[-1] != end:
            wanted = f"must lead from (0, 0) to {end}"
            raise ArgumentError("edges", f"{wanted}. Got {self.edges[0]} to {self.edges[-1]}")

    @staticmethod
    def from_steps(input: Iterable[str], output: Iterable[str], steps: Iterable[Edge]) -> Alignment:
        """The alignment whose edges are the sums of the steps, the first of them (1, 1)."""
        at, edges = (-1, -1), []
        for step in steps:
            at = (at[0] + step[0], at[1] + step[1])
            edges.append(at)
        return Alignment(tuple(input), tuple(output), tuple(edges))

    @property
    def is_stars(self) -> bool:
        """Whether no symbol with several letters shares one of them ("but not both")."""
        one_input = [i for (i, _), (j, _) in pairwise(self.edges) if i == j]
        one_letter = {
            e for edges in pairwise(self.edges) if edges[0][1] == edges[1][1] for e in edges
        }
        return not any(i in one_input for i, _ in one_letter)

    def steps(self) -> list[Edge]:
        """How each edge goes on from the one before it; the first from (-1, -1)."""
        return [(k[0] - h[0], k[1] - h[1]) for h, k in pairwise([(-1, -1), *self.edges])]

    def groups(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The parts of input and output that belong together, in order."""
        starts = [edge for edge, step in zip(self.edges, self.steps(), strict=True) if step == NEXT]
        ends = [*starts[1:], (len(self.input), len(self.output))]
        return [
            (self.input[i:j], self.output[k:h]) for (i, k), (j, h) in zip(starts, ends, strict=True)
        ]

    def __str__(self) -> str:
        """Input above output, with bars between the groups."""
        between = "" if all(len(letter) == 1 for letter in self.output) else " "
        cells = [(" ".join(above), between.join(below)) for above, below in self.groups()]
        widths = [max(len(text) for text in cell) for cell in cells]
        return "\n".join(_line([cell[k] for cell in cells], widths) for k in (0, 1))


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
    return f"| {' | '.join(padded)} |"
