"""From a request to `inout solve` to an `Answer`: everything that the reports print."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from inout.cli.equations.facts import load_facts
from inout.cli.equations.phrases import WORD, phrase_tree
from inout.cli.equations.program import Request, Source
from inout.deduction import Facts, Program
from inout.forest import Derivation, Forest, Item
from inout.forest.decoding import kbest
from inout.viz import TreeNode

# Beyond this many goals, entropy and derivations are left out: they take a pass per goal.
MOST_GOALS = 100


@dataclass(frozen=True)
class GoalAnswer:
    """The answers for one goal; entropy and derivations only if they were computed."""

    label: Item
    log_partition: float
    count: int
    entropy: float | None
    best: Sequence[Derivation] | None


@dataclass(frozen=True)
class Answer:
    """A solved forest: numbers for each goal, expected counts of each fact, times in seconds."""

    request: Request
    forest: Forest
    facts: Mapping[str, Facts]
    from_sentence: frozenset[str]
    goals: Sequence[GoalAnswer]
    counts: Mapping[str, Sequence[float]]
    seconds: Mapping[str, float]

    @property
    def title(self) -> str:
        """A one-line description of the problem."""
        sentence = self.request.sentence
        return self.request.program if sentence is None else f"{self.request.program}: {sentence}"

    @cached_property
    def phrases(self) -> bool:
        """Whether trees are drawn over words."""
        return WORD in self.facts

    @cached_property
    def log_outside(self) -> Mapping[str, Sequence[float]]:
        """Log of the outside value of each fact; its inside value is its weight."""
        with torch.no_grad():
            return {name: self.forest.outside(name).tolist() for name in self.forest.relations}

    @cached_property
    def unknown_words(self) -> list[str]:
        """Words of the sentence that occur in no other fact, in order."""
        if WORD not in self.from_sentence:
            return []
        known = {
            value
            for name, facts in self.facts.items()
            if name not in self.from_sentence
            for row in facts.rows
            for value in row
        }
        words = (row[0] for row in self.facts[WORD].rows)
        return list(dict.fromkeys(str(word) for word in words if word not in known))

    @cached_property
    def notes(self) -> list[str]:
        """What the user may have overlooked."""
        notes = []
        if self.unknown_words:
            notes.append(f"no other fact has these words: {', '.join(self.unknown_words)}")
        for name, facts in self.facts.items():
            weights = facts.log_weights
            between = (weights > 0) & (weights < 1)
            outside = (weights < 0) | (weights > 1)
            if not self.request.probabilities and bool(between.any()) and not bool(outside.any()):
                notes.append(
                    f"all weights of {name} are between 0 and 1 but read as logarithms; "
                    "use --probabilities if they are probabilities"
                )
        return notes

    def tree(self, derivation: Derivation) -> TreeNode:
        """The derivation as a tree to draw."""
        return phrase_tree(derivation) if self.phrases else derivation.tree()


def solve(
    source: Source, request: Request, progress: Callable[[int, int], None] | None = None
) -> Answer:
    """Read the facts, ground the program on them, and ask the forest everything."""
    start = time.perf_counter()
    program = Program(source.text, goal=request.goal, source=source.name)
    facts, from_sentence = load_facts(program, request)
    read = time.perf_counter()
    limits: dict[str, Any] = {"max_edges": request.max_edges, "max_rounds": request.max_rounds}
    forest = program.ground(
        facts,
        beam=request.beam,
        progress=progress,
        **{name: limit for name, limit in limits.items() if limit is not None},
    )
    grounded = time.perf_counter()
    times = {"read": read - start, "ground": grounded - read}
    return answer(request, forest, facts, from_sentence, times)


def answer(
    request: Request,
    forest: Forest,
    facts: Mapping[str, Facts],
    from_sentence: frozenset[str],
    seconds: Mapping[str, float],
) -> Answer:
    """Every number reported about a forest."""
    start = time.perf_counter()
    with torch.no_grad():
        goals = _goals(forest, request.best)
        counts = {name: forest.expected_counts(name).tolist() for name in forest.relations}
    times = {**seconds, "infer": time.perf_counter() - start}
    return Answer(request, forest, facts, from_sentence, goals, counts, times)


def _goals(forest: Forest, best: int) -> list[GoalAnswer]:
    log_z = forest.log_partition().reshape(-1).tolist()
    counted = forest.count()
    counts = [counted] if isinstance(counted, int) else counted
    few = len(log_z) <= MOST_GOALS
    entropies = forest.entropy().reshape(-1).tolist() if few else [None] * len(log_z)
    answers = []
    for place, goal in enumerate(forest.arrays.goals.tolist()):
        label = forest.labels[goal]
        assert isinstance(label, Item)
        derivations = kbest(forest, goal, best) if few else None
        answers.append(
            GoalAnswer(label, log_z[place], counts[place], entropies[place], derivations)
        )
    return answers
