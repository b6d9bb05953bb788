"""Semi-naive grounding: all items and edges that facts and rules give, as a `Forest`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.errors import ArgumentError, GroundingError, Remedy
from inout._core.lazy import LazySequence
from inout.deduction.agenda import Agenda, Queue, Search
from inout.deduction.engine import JoinTooLargeError
from inout.deduction.evaluate import evaluate_rule
from inout.deduction.facts import Facts, Vocabulary
from inout.deduction.plan import (
    Plan,
    Stratum,
    existential_filters,
    filtered_relations,
    make_plan,
    repeats_edges,
    stratify,
    weighted_relations,
)
from inout.deduction.relation import Beam, EdgeChunk, Part, Relation, View
from inout.deduction.syntax import Atom, ParsedProgram, Rule
from inout.forest import Forest, Item
from inout.forest.assembly import assemble
from inout.kernels.math.interning import RowTable

Progress = Callable[[int, int], None]  # items so far, edges so far


@dataclass(frozen=True)
class Limits:
    """Limits that stop grounding from exhausting memory or running forever."""

    edges: int = 50_000_000
    rounds: int = 100_000


@dataclass
class Grounding:
    """The state of one run: relations, edges so far, plans made so far."""

    program: ParsedProgram
    facts: Mapping[str, Facts]
    limits: Limits
    beam: Beam | Agenda
    keep_zeros: bool
    progress: Progress | None
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    derived: dict[str, Relation] = field(default_factory=dict)
    given: dict[tuple[str, int], Relation] = field(default_factory=dict)
    axiom_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    chunks: list[EdgeChunk] = field(default_factory=list)
    num_edges: int = 0
    plans: dict[tuple[int, int | None], Plan] = field(default_factory=dict)
    fan_outs: dict[tuple[str, int, tuple[int, ...]], float] = field(default_factory=dict)
    met: dict[int, RowTable] = field(default_factory=dict)  # edges of rules that repeat them

    def run(self, goal: str) -> Forest:
        rules = existential_filters(self.program)
        kind = Queue if isinstance(self.beam, Agenda) else Relation
        self.derived = {
            rule.head.relation: kind(rule.head.relation, rule.head.arity) for rule in rules
        }
        self.met = {
            id(rule): RowTable(1 + sum(not atom.is_filter for atom in rule.body))
            for rule in rules
            if repeats_edges(rule)
        }
        self._load_facts()
        weighted = weighted_relations(rules, goal)
        strata = stratify(rules)
        if isinstance(self.beam, Agenda):  # all items wait in one queue
            self.beam.label, self.beam.found = self._label, partial(self._forest, goal)
            self.beam.eager = filtered_relations(rules)
            strata = [Stratum(frozenset(self.derived), rules)]
        for stratum in strata:
            self._run_stratum(stratum, weighted)
        return self._forest(goal)

    def _load_facts(self) -> None:
        """Number the facts as axioms, relation by relation; those of weight zero if kept."""
        first_row, first_axiom, rows = 0, 0, []
        for name, facts in self.facts.items():
            found = (facts.log_weights.detach() > -torch.inf) | self.keep_zeros
            for arity, block in facts.coded(self.vocabulary).items():
                kept = found.cpu().numpy()[block.places]
                codes, places = block.codes[kept], block.places[kept]
                numbers = np.arange(first_axiom, first_axiom + len(codes))
                self.given[name, arity] = Relation(name, arity, View(codes, numbers))
                rows.append(first_row + places)
                first_axiom += len(codes)
            first_row += len(facts)
        self.axiom_rows = np.concatenate([np.empty(0, dtype=np.int64), *rows])
        self.beam.start(self.derived, self._axiom_weights())
        for (name, arity), relation in self.given.items():
            if name in self.derived and arity == self.derived[name].arity:
                # Given and derived: the derived item has one edge more, from the fact itself.
                assert relation.given is not None
                head = self.derived[name]
                numbers = head.table.add(relation.given.rows)
                self._add_edges(head, numbers, [(relation, relation.given.numbers)])

    def _axiom_weights(self) -> NDArray[np.float64]:
        logs = [facts.log_weights.detach().double().cpu() for facts in self.facts.values()]
        return torch.cat([torch.zeros(0), *logs]).numpy()[self.axiom_rows]

    def _relation(self, atom: Atom) -> Relation:
        if atom.relation in self.derived:
            return self.derived[atom.relation]
        known = self.given.get((atom.relation, atom.arity))
        if known is None:
            nothing = View(np.empty((0, atom.arity), dtype=np.int64), np.empty(0, dtype=np.int64))
            known = self.given[atom.relation, atom.arity] = Relation(
                atom.relation, atom.arity, nothing
            )
        return known

    def _run_stratum(self, stratum: Stratum, weighted: set[str]) -> None:
        """Fire the stratum's rules until they derive nothing new.

        A rule with recursive atoms fires once for each of them: that one ranges over the rows of
        the last round, those before it over older rows, those after it over all, so that every
        combination of rows is met exactly once.
        """
        relations = [self.derived[name] for name in stratum.relations]
        for rule in stratum.rules:
            if not self._recursive_atoms(rule, stratum):
                self._fire(rule, None, [], weighted)
        rounds = 0
        while True:
            self.beam.select(relations)
            advanced = [relation.advance() for relation in relations]
            if not any(advanced):
                return
            for rule in stratum.rules:
                recursive = self._recursive_atoms(rule, stratum)
                for place in recursive:
                    self._fire(rule, place, recursive, weighted)
            rounds += 1
            if rounds > self.limits.rounds:
                newest = max(relations, key=len)
                label = self._label(newest, len(newest) - 1)
                raise GroundingError(
                    f"still deriving new items after {self.limits.rounds:,} rounds, the newest "
                    f"{label} (is a recursive rule missing a bound?)",
                    remedy=Remedy.LARGER_MAX_ROUNDS,
                )

    @staticmethod
    def _recursive_atoms(rule: Rule, stratum: Stratum) -> list[int]:
        return [p for p, atom in enumerate(rule.body) if atom.relation in stratum.relations]

    def _view(self, rule: Rule, place: int | None, recursive: list[int], other: int) -> View:
        """The rows that the atom `other` ranges over when the rule fires for the atom `place`."""
        part: Part = "all"
        if other in recursive and place is not None:
            part = "new" if other == place else "old" if other < place else "all"
        return self._relation(rule.body[other]).view(part)

    def _fire(
        self, rule: Rule, place: int | None, recursive: list[int], weighted: set[str]
    ) -> None:
        view_of = partial(self._view, rule, place, recursive)
        if place is not None and not len(view_of(place).rows):
            return
        plan = self.plans.get((id(rule), place))
        if plan is None:
            plan = self.plans[id(rule), place] = make_plan(rule, place, self._fan_out)
        try:
            room = self.limits.edges - self.num_edges
            result = evaluate_rule(plan, view_of, self.vocabulary, max(room, 0))
        except JoinTooLargeError as error:
            raise self._too_large(rule, error.rows) from None
        if result is None:
            return
        head_rows, tails = result
        head = self.derived[rule.head.relation]
        if head.name in weighted and len(head_rows) > room:
            raise self._too_large(rule, len(head_rows))
        numbers = head.table.add(head_rows)
        if head.name in weighted:
            if id(rule) in self.met:
                numbers, tails = self._unmet(rule, numbers, tails)
            atoms = [atom for atom in rule.body if not atom.is_filter]
            self._add_edges(
                head, numbers, [(self._relation(a), t) for a, t in zip(atoms, tails, strict=True)]
            )

    def _unmet(
        self, rule: Rule, heads: NDArray[np.int64], tails: list[NDArray[np.int64]]
    ) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """The edges of a rule that it has not made before, each once."""
        table = self.met[id(rule)]
        known = len(table)
        edges = table.add(np.stack([heads, *tails], axis=1))
        distinct, first = np.unique(edges, return_index=True)
        kept = np.sort(first[distinct >= known])
        return heads[kept], [t[kept] for t in tails]

    def _too_large(self, rule: Rule, rows: int) -> GroundingError:
        return GroundingError(
            f"grounding stopped at the limit of {self.limits.edges:,} edges: "
            f"{self.num_edges:,} so far, and the rule in line {rule.position.line} would join "
            f"{rows:,} more rows",
            remedy=Remedy.LARGER_MAX_EDGES,
        )

    def _add_edges(
        self,
        head: Relation,
        heads: NDArray[np.int64],
        tails: list[tuple[Relation, NDArray[np.int64]]],
    ) -> None:
        chunk = EdgeChunk(
            head,
            heads.astype(np.int32),
            tuple((relation, numbers.astype(np.int32)) for relation, numbers in tails),
        )
        self.chunks.append(chunk)
        self.num_edges += len(heads)
        self.beam.add(chunk)
        if self.progress is not None:
            self.progress(sum(len(r) for r in self.derived.values()), self.num_edges)

    def _fan_out(self, atom: Atom, columns: tuple[int, ...]) -> float:
        """Mean number of rows for a known value of the columns; derived relations are guessed."""
        relation = self._relation(atom)
        if relation.given is None:
            return 0.5 if len(columns) == atom.arity else 16.0 ** (atom.arity - len(columns))
        if not columns:
            return float(len(relation))
        key = (atom.relation, atom.arity, columns)
        if key not in self.fan_outs:
            distinct = RowTable(len(columns))
            distinct.add(relation.given.rows[:, columns])
            self.fan_outs[key] = len(relation) / max(len(distinct), 1)
        return self.fan_outs[key]

    def _label(self, relation: Relation, number: int) -> Item:
        row = (relation.given.rows if relation.given else relation.table.rows)[number]
        return Item(relation.name, tuple(self.vocabulary.decode(int(code)) for code in row))

    def _sorted_rows(self, relation: Relation) -> NDArray[np.int64]:
        """The rows of a relation by their values: numbers in order, then strings, then lists."""

        def key(value: Hashable) -> tuple[int, Any]:
            if isinstance(value, tuple):
                return 2, [key(v) for v in value]
            return int(isinstance(value, str)), value

        def keys(number: int) -> list[tuple[int, Any]]:
            return [key(v) for v in self._label(relation, number).arguments]

        return np.array(sorted(range(len(relation)), key=keys), dtype=np.int64)

    def _forest(self, goal: str) -> Forest:
        goal_relation = self.derived[goal]
        if goal_relation.arity == 0:
            # Without a derivation the goal is still an item, of weight zero.
            goal_relation.table.add(np.empty((1, 0), dtype=np.int64))
        first = len(self.axiom_rows)
        offsets: dict[str, int] = {}
        for name, relation in self.derived.items():
            offsets[name] = first
            first += len(relation)
        if first >= 2**31:
            raise GroundingError(f"a forest holds fewer than 2**31 items. Got {first:,}")
        goals = self._sorted_rows(goal_relation)
        fields = assemble(
            *self._edges(offsets),
            _alike(self.facts),
            self.axiom_rows,
            offsets[goal] + goals,
            GroundLabels(self, list(offsets.values())),
        )
        return Forest(**fields, single_goal=goal_relation.arity == 0)

    def _edges(
        self, offsets: Mapping[str, int]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
        """(heads [e], tail_offsets [e+1], tails [t]) of all edges.

        `offsets` are the numbers of the derived relations' first items.
        """

        def first(relation: Relation) -> np.int32:
            return np.int32(0 if relation.given is not None else offsets[relation.name])

        heads = np.empty(self.num_edges, dtype=np.int32)
        tail_offsets = np.zeros(self.num_edges + 1, dtype=np.int64)
        tails = np.empty(sum(len(c.heads) * len(c.tails) for c in self.chunks), dtype=np.int32)
        edge = tail = 0
        for chunk in self.chunks:
            n, arity = len(chunk.heads), len(chunk.tails)
            np.add(chunk.heads, first(chunk.head), out=heads[edge : edge + n])
            matrix = tails[tail : tail + n * arity].reshape(n, arity)
            for column, (relation, rows) in enumerate(chunk.tails):
                np.add(rows, first(relation), out=matrix[:, column])
            tail_offsets[edge + 1 : edge + n + 1] = tail + arity * np.arange(1, n + 1)
            edge, tail = edge + n, tail + n * arity
        return heads, tail_offsets, tails


def _alike(facts: Mapping[str, Facts]) -> dict[str, torch.Tensor]:
    """The log-weights of all facts; defaults take dtype and device of the others."""
    given = [f.log_weights for f in facts.values() if f.weighted]
    dtype, device = torch.float64, torch.device("cpu")
    if given:
        dtype, device = max((g.dtype for g in given), key=lambda t: t.itemsize), given[0].device
    return {
        name: f.log_weights if f.weighted else f.log_weights.to(dtype=dtype, device=device)
        for name, f in facts.items()
    } or {"facts": torch.zeros(0, dtype=dtype)}


class GroundLabels(LazySequence[Hashable]):
    """Labels of a grounded program's items: axioms first, then relation by relation."""

    def __init__(self, grounding: Grounding, offsets: list[int]) -> None:
        self._grounding = grounding
        derived = list(grounding.derived.values())
        given = [r for r in grounding.given.values() if len(r)]
        self._relations = [*given, *derived]
        sizes = [len(r) for r in given]
        self._firsts = np.array([*np.cumsum([0, *sizes])[: len(sizes)], *offsets], dtype=np.int64)
        self._size = len(grounding.axiom_rows) + sum(len(r) for r in derived)

    def __len__(self) -> int:
        return self._size

    def _made(self, index: int) -> Hashable:
        place = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return self._grounding._label(self._relations[place], index - int(self._firsts[place]))


def ground(
    program: ParsedProgram,
    goal: str,
    facts: Mapping[str, Facts],
    limits: Limits,
    beam: Mapping[str, int],
    keep_zeros: bool,
    progress: Progress | None,
) -> Forest:
    """The forest of all derivations of `goal`; see `Program.ground`."""
    _check_facts(program, facts)
    for name in beam:
        if name not in program.derived:
            raise ArgumentError("beam", f"names {name!r}, which no rule of the program derives")
    return Grounding(program, facts, limits, Beam(dict(beam)), keep_zeros, progress).run(goal)


def search(
    program: ParsedProgram, facts: Mapping[str, Facts], limits: Limits, agenda: Agenda
) -> Search:
    """The part of the forest that holds the k best derivations; see `Program.search`."""
    _check_facts(program, facts)
    if program.derived[agenda.goal]:
        raise ArgumentError("goal", "must have no arguments for a best-first search")
    forest = Grounding(program, facts, limits, agenda, False, None).run(agenda.goal)
    return Search(forest, agenda.bound, agenda.finished)


def _check_facts(program: ParsedProgram, facts: Mapping[str, Facts]) -> None:
    used, derived = program.used, program.derived
    for name, use in used.items():
        if name not in facts and name not in derived:
            known = ", ".join([*facts, *derived]) or "none"
            raise program.error(
                f"{name} is neither given as facts nor derived by a rule (there are {known})",
                use.position,
            )
    for name, given in facts.items():
        arities = set(used[name].arities if name in used else ())
        if name in derived:
            arities.add(derived[name])
        if not arities:
            needed = ", ".join(n for n in used if n not in derived)
            raise ArgumentError(
                "facts", f": no rule uses the facts {name!r}; the program needs {needed}"
            )
        for arity, block in given.blocks.items():
            if arity not in arities:
                expected = " or ".join(str(a) for a in sorted(arities))
                raise ArgumentError(
                    "facts",
                    f": rows of {name!r} must have {expected} values, as the program uses it. "
                    f"Got {arity} in row {block.places[0]}: {given.rows[int(block.places[0])]}",
                )
