"""`Program`: an inside algorithm written as equations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import at_least
from inout._core.errors import ProgramError
from inout.deduction.agenda import Agenda, Heuristic, Search
from inout.deduction.facts import Facts, Value
from inout.deduction.fold import fold
from inout.deduction.ground import Limits, Progress, ground, search
from inout.deduction.reading import parse_program
from inout.forest import Forest

Given = (
    Facts
    | Mapping[tuple[Value, ...], float]
    | Mapping[Value, float]
    | Iterable[Sequence[Value]]
    | NDArray[np.int64]
)


class Program:
    """Equations that define how items are derived from other items and from facts.

    >>> program = Program('''
    ...     goal        += beta("S", 0, N) * length(N).
    ...     beta(X,I,K) += rule(X,Y,Z) * beta(Y,I,J) * beta(Z,J,K).
    ...     beta(X,I,K) += rule(X,W) * word(W,I,K).
    ... ''')
    >>> forest = program.ground(
    ...     {
    ...         "rule": {("S", "S", "S"): -1.0, ("S", "a"): -0.5},
    ...         "word": [("a", 0, 1), ("a", 1, 2), ("a", 2, 3)],
    ...         "length": [(3,)],
    ...     }
    ... )
    >>> forest.count()
    2
    >>> forest.expected_counts("rule").tolist()
    [2.0, 3.0]

    `goal` is the relation whose items are the forest's goals. Errors in the text raise
    `ProgramError` with line, column and caret. `docs/language.md` describes the language.
    """

    def __init__(self, text: str, *, goal: str = "goal", source: str = "program") -> None:
        self.goal = goal
        self.parsed = parse_program(text, source)
        if goal not in self.parsed.derived:
            raise ProgramError(
                f"no rule derives {goal!r}, the goal of the program", text, 1, 1, source
            )

    @property
    def text(self) -> str:
        """The program as written."""
        return self.parsed.text

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The relations that must be given as facts, with the arities they are used with."""
        derived = self.parsed.derived
        return {n: use.arities for n, use in self.parsed.used.items() if n not in derived}

    def ground(
        self,
        facts: Mapping[str, Given],
        *,
        max_edges: int = Limits.edges,
        max_rounds: int = Limits.rounds,
        beam: Mapping[str, int] | None = None,
        keep_zeros: bool = False,
        progress: Progress | None = None,
    ) -> Forest:
        """The forest of all derivations of the goal from these facts.

        Each relation is given as `Facts`, as {row: log-weight}, or as rows of weight one. A fact
        of log-weight -inf is ignored; with `keep_zeros` it is kept, has an outside value, and
        satisfies conditions (`?fact`). Gradients of `log_partition` reach the log-weights, and
        `expected_counts(name)` lines up with the rows. Several goals (a goal with arguments) are
        ordered by name.

        Semi-naive joins over whole columns: time is linear in the edges, plus a fraction of a
        millisecond per rule and round. Stops with `GroundingError` beyond `max_edges` edges (or
        rows of an intermediate join) and `max_rounds` rounds. `beam={"state": 8}` keeps only the 8
        heaviest new items of `state` in each round; the result is an ordinary forest of the kept
        items. `progress(items, edges)` is called as it grows.
        """
        limits = Limits(at_least("max_edges", max_edges, 1), at_least("max_rounds", max_rounds, 1))
        given = {name: Facts.of(rows) for name, rows in facts.items()}
        return ground(self.parsed, self.goal, given, limits, beam or {}, keep_zeros, progress)

    def search(
        self,
        facts: Mapping[str, Given],
        k: int = 1,
        *,
        heuristic: Heuristic | None = None,
        max_items: int | None = None,
        max_edges: int = Limits.edges,
        max_rounds: int = Limits.rounds,
    ) -> Search:
        """The k best derivations without the whole forest: best-first search, exact.

        Weights must be at most 1. `heuristic(item)` is an upper bound on the log-weight of what
        can surround the item in a derivation of the goal (0 by default, which gives Knuth's
        algorithm; -inf: nothing can), for example `outside_bounds` of a coarser program: A*. After
        `max_items` items the search stops early; then `finished` is False.

        >>> program = Program('goal += a("x"). goal += a("y") * goal0. goal0 += a("z").')
        >>> found = program.search({"a": {"x": -1.0, "y": -2.0, "z": -3.0}})
        >>> found.finished, found.forest.argmax().log_weight, round(found.bound, 1)
        (True, -1.0, -3.0)
        """
        limits = Limits(at_least("max_edges", max_edges, 1), at_least("max_rounds", max_rounds, 1))
        given = {name: Facts.of(rows) for name, rows in facts.items()}
        most = None if max_items is None else at_least("max_items", max_items, 0)
        agenda = Agenda(self.goal, at_least("k", k, 1), heuristic, most)
        return search(self.parsed, given, limits, agenda)

    def folded(self) -> Program:
        """The program with long rules in steps, so that fewer variables meet in the largest rule.

        Σ_{y,z} a(x,y) b(y,z) c(z) is cheaper as Σ_y a(x,y) (Σ_z b(y,z) c(z)). Of all such orders
        of a body the one is chosen whose largest step has the fewest variables, then the second
        largest, and so on; a rule that gains nothing stays as it is. Derivations correspond one
        to one, so log Z, counts and all answers about facts are the same; a variable less is a
        factor of its size less in time and memory. An equation (K = I+1) counts as a variable
        less; facts that determine each other (a word by its position) are not seen.
        Rules of more than 10 relations are left alone. Time 3^m for a body of m relations.

        >>> print(Program("goal += a(X,Y) * b(Y,Z) * c(Z,X2) * d(X2).").folded().text, end="")
        % Folded: at most 2 variables in a rule, 4 before.
        goal += goal_1(Z) * d(X2) * c(Z, X2).
        goal_1(Z) += goal_2(Y) * b(Y, Z).
        goal_2(Y) += a(X, Y).

        The folding of a lexicalised grammar is the hook trick (Eisner 2016, footnote 10;
        Eisner & Satta 1999); see Eisner & Blatz (2007) on program transformations.
        """
        return Program(fold(self.parsed), goal=self.goal, source=self.parsed.source)

    def __repr__(self) -> str:
        inputs = ", ".join(self.inputs)
        return f"Program({len(self.parsed.rules)} rules, facts needed: {inputs})"
