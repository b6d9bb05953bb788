"""The request to `inout solve` and the program: everything checked before torch is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inout._core.errors import ArgumentError, FileError
from inout.cli.messages import did_you_mean
from inout.deduction.reading import parse_program
from inout.deduction.syntax import ParsedProgram
from inout.io.files import check_readable, read_text
from inout.programs import library


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
class Source:
    """The text of a program, and its name in messages."""

    text: str
    name: str


def read_program(request: Request) -> Source:
    """The program in a file, or in the library, after all checks that need no facts."""
    source = _source(request.program)
    program = parse_program(source.text, source.name)
    for option, names in (("--goal", [request.goal]), ("--beam", request.beam or ())):
        for name in names:
            _check_derived(option, name, program, request.program)
    _check_options(arities_of(program), request)
    for _, path in request.files:
        check_readable(path)
    return source


def _source(name: str) -> Source:
    path = Path(name)
    # A directory with the name of a program does not hide it.
    if name in library.names() and not path.is_file():
        return Source(library.text(name), f"{name}{library.SUFFIX}")
    if path.exists() or "/" in name or path.suffix:
        return Source(read_text(path), name)
    hint = did_you_mean(name, library.names()) or "; `inout programs` lists them"
    raise FileError(f"no such file, and no such program in the library{hint}", file=name)


def _check_derived(option: str, name: str, program: ParsedProgram, source: str) -> None:
    derived = program.derived
    if name not in derived:
        hint = did_you_mean(name, derived) or f"; it derives {', '.join(derived) or 'nothing'}"
        raise ArgumentError(option, f": no rule of {source} derives {name!r}{hint}")


def _check_options(arities: Mapping[str, object], request: Request) -> None:
    """Refuse names of relations that the program does not have."""
    for option, pairs in (("--facts", request.files), ("--fact", request.single)):
        for name, _ in pairs:
            if name not in arities:
                hint = did_you_mean(name, arities) or f"; it has {', '.join(arities)}"
                raise ArgumentError(option, f": the program has no relation {name!r}{hint}")
    named = {name for name, _ in request.files}
    for option, names in (("--weighted", request.weighted), ("--unweighted", request.unweighted)):
        for name in names:
            if name not in named:
                hint = did_you_mean(name, named)
                raise ArgumentError(option, f": no --facts file is given for {name!r}{hint}")
    if both := set(request.weighted) & set(request.unweighted):
        raise ArgumentError(None, f"{min(both)!r} cannot be --weighted and --unweighted at once")


def arities_of(program: ParsedProgram) -> dict[str, set[int]]:
    """The arities of every relation that may be given as facts."""
    arities = {name: set(use.arities) for name, use in program.used.items()}
    for name, arity in program.derived.items():
        arities.setdefault(name, set()).add(arity)
    return arities
