"""Workload `deduction`: from facts to a ready forest, and the command's first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.deduction import grammar
from benchmarks.deduction.cky import cky
from benchmarks.deduction.first_use import first_and_later
from benchmarks.deduction.grammar import Parsing
from benchmarks.deduction.polars_joins import Tables, count_edges, tables
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate
from inout import Facts, Forest, Program


@dataclass(frozen=True, eq=False)
class Problem:
    """A parsing problem in every form that is timed."""

    parsing: Parsing
    program: Program
    facts: Mapping[str, Facts]
    tables: Tables

    def ground(self) -> Forest:
        """The forest, from facts that are already coded."""
        return self.program.ground(self.facts)

    def ground_from_rows(self) -> Forest:
        """The forest, from rows of strings."""
        return self.program.ground(self.parsing.facts())

    def edges_before_trimming(self) -> int:
        """Number of edges that the rules give, also those that no parse uses."""
        found = []
        self.program.ground(self.facts, progress=lambda _, edges: found.append(edges))
        return found[-1]

    def join(self) -> int:
        """What the peer does."""
        return count_edges(self.tables)


@dataclass(frozen=True, eq=False)
class State:
    """The problems of the workload."""

    quick: bool
    problems: Mapping[str, Problem]


PLAIN, CLOSED, TOY = "WSJ, unary rules left out", "WSJ, unary rules closed", "toy, 10 words"


def prepare(quick: bool) -> State:
    """The grammars read, the facts coded."""
    program = Program(grammar.PROGRAM)
    plain, closed = grammar.wsj()
    parsings = {PLAIN: plain, CLOSED: closed, TOY: grammar.toy()}
    return State(
        quick, {name: Problem(p, program, p.facts(), tables(p)) for name, p in parsings.items()}
    )


def check(state: State) -> Iterator[Agreement]:
    """log Z and the number of edges against a dense parser; the peer's edges against ours."""
    for name, problem in state.problems.items():
        forest = problem.ground()
        log_z, num_edges = cky(problem.parsing)
        off = abs(forest.log_partition().item() - log_z)
        yield Agreement(f"log Z: {name}", off, 1e-10)
        yield Agreement(f"number of edges: {name}", abs(forest.num_edges - num_edges), 0)
        # The peer stops before the goal, which has one edge more.
        off = abs(problem.edges_before_trimming() - 1 - problem.join())
        yield Agreement(f"edges before trimming, peer: {name}", off, 0)


def measure(state: State) -> Iterator[Figure]:
    """Grounding beside the peer's joins, then the command from a cold start."""
    yield from _large(state, PLAIN, repeats=7 if state.quick else 31, bound=3.0)
    yield from _large(state, CLOSED, repeats=1 if state.quick else 9, bound=None)
    yield from _toy(state)
    yield from _first_use(state)


def _large(state: State, name: str, repeats: int, bound: float | None) -> Iterator[Figure]:
    problem = state.problems[name]
    million = problem.ground().num_edges / 1e6
    seconds = alternate(
        {"ground": problem.ground, "rows": problem.ground_from_rows, "polars": problem.join},
        repeats,
    )
    yield Figure(f"edges: {name}", million, "million")
    yield Figure(
        f"facts to forest: {name}",
        million / seconds["ground"],
        "million edges/s",
        at_least=bound,
        repeats=repeats,
    )
    yield Figure(
        f"rows of strings to forest: {name}",
        million / seconds["rows"],
        "million edges/s",
        repeats=repeats,
    )
    yield Figure(
        f"peer: joins alone in polars / facts to forest: {name}",
        seconds["polars"] / seconds["ground"],
        "times",
        repeats=repeats,
    )


def _toy(state: State) -> Iterator[Figure]:
    problem, repeats = state.problems[TOY], 50 if state.quick else 200
    seconds = alternate(
        {"ground": problem.ground, "rows": problem.ground_from_rows, "polars": problem.join},
        repeats,
    )
    yield Figure(
        f"facts to forest: {TOY}, 20 rules",
        seconds["ground"] * 1e3,
        "ms",
        at_most=30,
        repeats=repeats,
    )
    yield Figure(
        f"rows of strings to forest: {TOY}, 20 rules", seconds["rows"] * 1e3, "ms", repeats=repeats
    )
    yield Figure(
        f"peer: joins alone in polars: {TOY}", seconds["polars"] * 1e3, "ms", repeats=repeats
    )


def _first_use(state: State) -> Iterator[Figure]:
    firsts, laters = (1, 2) if state.quick else (3, 5)
    first, later = first_and_later(state.problems[TOY].parsing, firsts, laters)
    name = "`inout solve`, nothing compiled"
    yield Figure(name, first.wall, "s", at_most=20, repeats=firsts)
    yield Figure(f"{name}: processor time", first.processor, "s", repeats=firsts)
    name, repeats = "`inout solve`, later", firsts * laters
    yield Figure(name, later.wall, "s", at_most=4, repeats=repeats)
    yield Figure(f"{name}: processor time", later.processor, "s", repeats=repeats)
