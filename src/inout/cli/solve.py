"""From what the command was given to an `Answer`: everything that the reports print."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from inout import programs
from inout._core.errors import ArgumentError, FileError
from inout.cli.names import did_you_mean
from inout.cli.trees import WORD, phrase_tree
from inout.deduction import Facts, Program
from inout.deduction.reading import parse_program
from inout.forest import Derivation, Forest, Item
from inout.forest.decoding import kbest
from inout.io import AmbiguousFactsError, read_facts, read_text, read_value
from inout.viz import TreeNode

LENGTH = "length"
# Beyond this many goals, entropy and derivations are left out: they take a pass for each goal.
MOST_GOALS = 100

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Request:
    """What to solve, as the user gave it."""

    program: str
    files: Sequence[tuple[str, str]] = ()  # relation, path of a file
    single: Sequence[tuple[str, str]] = ()  # relation, values of one fact separated by spaces
    sentence: str | None = None
    goal: str = "goal"
    best: int = 3
    weighted: Sequence[str] = ()
    unweighted: Sequence[str] = ()
    probabilities: bool = False
    beam: Mapping[str, int] | None = None
    max_edges: int | None = None
    max_rounds: int | None = None


@dataclass(frozen=True)
class GoalAnswer:
    """What is known about one goal; entropy and derivations only where they were computed."""

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
        """What was solved, in a line."""
        sentence = self.request.sentence
        return self.request.program if sentence is None else f"{self.request.program}: {sentence}"

    @cached_property
    def phrases(self) -> bool:
        """Whether trees are drawn over words."""
        return WORD in self.facts

    @cached_property
    def unknown_words(self) -> list[str]:
        """Words of the sentence that stand in no other fact, in order."""
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
                    f"all weights of {name} lie between 0 and 1 and are taken as logarithms; "
                    "if they are probabilities, add --probabilities"
                )
        return notes

    def tree(self, derivation: Derivation) -> TreeNode:
        """The derivation as it is drawn."""
        return phrase_tree(derivation) if self.phrases else derivation.tree()


def solve(request: Request, progress: Progress | None = None) -> Answer:
    """Read the program and the facts, ground them, and ask the forest everything."""
    start = time.perf_counter()
    program = load_program(request.program, request.goal)
    facts, from_sentence = load_facts(program, request)
    read = time.perf_counter()
    limits = {"max_edges": request.max_edges, "max_rounds": request.max_rounds}
    for name in request.beam or {}:
        if name not in program.parsed.derived:
            derived = ", ".join(program.parsed.derived)
            raise ArgumentError(
                f"--beam: no rule of the program derives {name!r}"
                f"{did_you_mean(name, program.parsed.derived) or f'; it derives {derived}'}"
            )
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
    """Every number that is reported about a forest."""
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


def load_program(name: str, goal: str) -> Program:
    """The program in a file, or of that name in the library."""
    path = Path(name)
    # A directory that happens to be called like a program does not hide it.
    if name in programs.names() and not path.is_file():
        text, source = programs.text(name), f"{name}.dyna"
    elif path.exists() or "/" in name or path.suffix:
        text, source = read_text(path), name
    else:
        hint = did_you_mean(name, programs.names())
        raise FileError(
            f"{name}: there is no such file, and no program of that name in the library"
            f"{hint or ' (inout programs lists it)'}"
        )
    derived = parse_program(text, source).derived
    if goal not in derived:
        hint = did_you_mean(goal, derived) or f"; it derives {', '.join(derived) or 'nothing'}"
        raise ArgumentError(f"--goal: no rule of {name} derives {goal!r}{hint}")
    return Program(text, goal=goal, source=source)


def load_facts(program: Program, request: Request) -> tuple[dict[str, Facts], frozenset[str]]:
    """The facts from files and from the sentence, and the relations that the sentence gave."""
    arities = _arities(program)
    _check_options(arities, request)
    parts: dict[str, list[Facts]] = {}
    for name, path in request.files:
        choice = True if name in request.weighted else False if name in request.unweighted else None
        try:
            rows = read_facts(
                path, arities[name], weighted=choice, probabilities=request.probabilities
            )
        except AmbiguousFactsError as error:
            raise FileError(f"{error}; say --weighted {name} or --unweighted {name}") from None
        parts.setdefault(name, []).append(rows)
    for name, values in request.single:
        parts.setdefault(name, []).append(Facts([_single(name, values, arities[name])]))
    facts = {name: _chained(files) for name, files in parts.items()}
    said = {} if request.sentence is None else _sentence(request.sentence, arities, facts)
    facts.update(said)
    _check_complete(program, facts)
    return facts, frozenset(said)


def _arities(program: Program) -> dict[str, set[int]]:
    """The arities of every relation that may be given as facts."""
    parsed = program.parsed
    arities = {name: set(use.arities) for name, use in parsed.used.items()}
    for name, arity in parsed.derived.items():
        arities.setdefault(name, set()).add(arity)
    return arities


def _check_options(arities: Mapping[str, object], request: Request) -> None:
    """Refuse names that are not there, before any file is read."""
    for option, pairs in (("--facts", request.files), ("--fact", request.single)):
        for name, _ in pairs:
            if name not in arities:
                hint = did_you_mean(name, arities) or f"; it has {', '.join(arities)}"
                raise ArgumentError(f"{option}: the program has no relation {name!r}{hint}")
    named = {name for name, _ in request.files}
    for option, names in (("--weighted", request.weighted), ("--unweighted", request.unweighted)):
        for name in names:
            if name not in named:
                hint = did_you_mean(name, named)
                raise ArgumentError(f"{option}: no --facts file is given for {name!r}{hint}")
    if both := set(request.weighted) & set(request.unweighted):
        raise ArgumentError(f"{min(both)!r} cannot be --weighted and --unweighted at once")


def _single(name: str, values: str, arities: set[int]) -> tuple[str | int, ...]:
    """The one row of a --fact option."""
    try:
        row = tuple(read_value(value) for value in values.split())
    except ValueError as error:
        raise ArgumentError(f"--fact {name}={values}: {error}") from None
    if len(row) not in arities:
        sizes = " or ".join(str(arity) for arity in sorted(arities))
        raise ArgumentError(
            f"--fact: {name} takes {sizes} values, separated by spaces. Got {len(row)}: {values!r}"
        )
    return row


def _chained(files: list[Facts]) -> Facts:
    """The rows of several files, one after another."""
    if len(files) == 1:
        return files[0]
    rows = [row for facts in files for row in facts.rows]
    return Facts(rows, torch.cat([facts.log_weights for facts in files]))


def _sentence(
    sentence: str, arities: Mapping[str, set[int]], facts: Mapping[str, Facts]
) -> dict[str, Facts]:
    """word(W,I,K) and length(N) of a sentence, as far as the program uses them."""
    if 3 not in arities.get(WORD, ()):
        raise ArgumentError("--sentence: the program has no word(W,I,K) to put the words in")
    if WORD in facts:
        raise ArgumentError("--sentence and --facts word=... both give the words")
    try:
        words = [read_value(word) for word in sentence.split()]
    except ValueError as error:
        raise ArgumentError(f"--sentence: {error}") from None
    said = {WORD: Facts([(word, i, i + 1) for i, word in enumerate(words)])}
    if 1 in arities.get(LENGTH, ()) and LENGTH not in facts:
        said[LENGTH] = Facts([(len(words),)])
    return said


def _check_complete(program: Program, facts: Mapping[str, Facts]) -> None:
    for name, use in program.parsed.used.items():
        if name in facts or name in program.parsed.derived:
            continue
        way = f"--facts {name}=FILE.tsv or --fact {name}=VALUES"
        if name == WORD and 3 in use.arities:
            way += ' or --sentence "..."'
        raise program.parsed.error(f"{name} is not given: add {way}", use.position)
