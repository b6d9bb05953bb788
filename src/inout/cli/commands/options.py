"""Options of the commands: declarations, options that several commands share, checks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from functools import wraps
from inspect import Signature, signature
from typing import Any, NamedTuple, get_type_hints

import typer

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.cli.messages import did_you_mean

FORMATS = ("nltk", "lines", "wsj", "json")

GRAMMARS = "Grammars, sentences, treebanks"
SEQUENCES = "Sequence labelling"
EQUATIONS = "Equations"


def argument(metavar: str, help: str, value: Any = ...) -> Any:
    """A positional argument; it has to be given unless it has a value by default."""
    return typer.Argument(value, metavar=metavar, help=help, show_default=False)


def option(
    names: str,
    metavar: str,
    help: str,
    value: Any = None,
    *,
    shown: str | None = None,
    panel: str | None = None,
) -> Any:
    """An option with its value by default; `shown` describes one that depends on other options."""
    return typer.Option(
        value,
        *names.split(),
        metavar=metavar,
        help=help,
        show_default=True if shown is None else shown,
        rich_help_panel=panel,
    )


def flag(name: str, help: str) -> Any:
    """An option without a value."""
    # Without a metavar typer writes <bool> behind the flag, as if it took a value.
    return typer.Option(False, name, metavar=" ", help=help)


GRAMMAR = argument("GRAMMAR", "Grammar file, or a name from the library (english); - is stdin.")
SENTENCES = argument(
    "FILE", "Files with one sentence per line, words separated by spaces; default stdin.", None
)
TAGGED = argument("DATA", "Files of labelled sequences, plain, .xz or .gz; - is stdin.")
SENTENCE = option("--sentence", "WORDS", "Sentence, instead of files. Repeatable.")
TO = option("--to", "FORMAT", "Output format: nltk, lines, wsj, json. Default: from the file name.")
JSON = flag("--json", "Print JSON.")
HTML = option("--html", "FILE", "Write a page with drawings.")
SEED = option("--seed", "N", "Random seed.", shown="random")
ITERATIONS = option("--iterations", "N", "Maximum number of iterations.", 100)
TOLERANCE = option("--tolerance", "X", "Stop when the relative change is at most X.", 1e-6)
RESTARTS = option("--restarts", "N", "Also start from N random points, and keep the best.", 0)
RESTARTS_SEED = option("--seed", "N", "Seed for the random points.", 0)
RESUME = flag("--resume", "Continue from the checkpoint.")
PROGRAM = argument("PROGRAM", "File of equations, or a name from `inout programs`.")
GOAL = option("--goal", "NAME", "Relation to derive.", "goal")
PROBABILITIES = flag("--probabilities", "Files contain weights, not log-weights.")
WEIGHTED = option("--weighted", "NAME", "Every row of these facts has a weight. Repeatable.")
UNWEIGHTED = option("--unweighted", "NAME", "No row of these facts has a weight. Repeatable.")
MAX_EDGES = option("--max-edges", "N", "Maximum number of edges.", shown="50,000,000")
MAX_ROUNDS = option("--max-rounds", "N", "Maximum number of rounds.", shown="100,000")
_SKIPPED = "Skip longer sentences: time is cubic in the length, memory quadratic."
MAX_WORDS = option("--max-words", "N", _SKIPPED, 300)


class Reading(NamedTuple):
    """How a grammar is read: the options of all commands that take one."""

    format: str | None = None
    start: str | None = None
    add_duplicates: bool = False
    encoding: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What was given, by option."""
        names = "--from", "--start", "--add-duplicates", "--encoding"
        return dict(zip(names, self, strict=True))


DETECTED = Reading()
_OF_READING = {
    "format": option(
        "--from", "FORMAT", "Format of the grammar: nltk, lines, wsj, json. Default: detected."
    ),
    "start": option("--start", "SYMBOL", "Start symbol, instead of the grammar's own."),
    "add_duplicates": flag(
        "--add-duplicates", "Add up the weights of duplicate rules (default: an error)."
    ),
    "encoding": option(
        "--encoding", "NAME", "Encoding of the grammar file: utf-8, latin-1, …", shown="utf-8"
    ),
}


def reads_a_grammar(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with four options in place of its parameter `reading`.

    typer takes options from signatures, where they cannot stand as a bundle.
    """

    @wraps(command)
    def with_options(**given: Any) -> Any:
        reading = Reading(**{name: given.pop(name) for name in _OF_READING})
        return command(**given, reading=reading)

    types = get_type_hints(Reading)
    parameters = []
    for parameter in signature(command, eval_str=True).parameters.values():
        if parameter.name == "reading":
            parameters += [
                parameter.replace(name=name, default=default, annotation=types[name])
                for name, default in _OF_READING.items()
            ]
        else:
            parameters.append(parameter)
    with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {x.name: x.annotation for x in parameters}
    return with_options


def choice(option: str, given: str, known: Collection[str]) -> str:
    """Check that `given` is one of the known names, and return it; the error lists them."""
    if given in known:
        return given
    names = list(known)
    listed = f"{', '.join(names[:-1])} or {names[-1]}"
    hint = did_you_mean(given, names)
    raise ArgumentError(option, f"must be {listed}. Got {given!r}{hint}")


def optional_choice(option: str, given: str | None, known: Collection[str]) -> Any:
    """Like `choice`, for an option that may be missing."""
    return None if given is None else choice(option, given, known)


def seed_or_random(given: int | None) -> int:
    """The seed, or a random one."""
    check_seed(given)
    return secrets.randbits(63) if given is None else given


def check_seed(given: int | None) -> None:
    """Refuse a seed that torch cannot hold."""
    if given is not None and not -(2**63) <= given < 2**63:
        raise ArgumentError("--seed", f"must be a 64-bit integer. Got {given}")


def count(option: str, given: int, least: int, most: int | None = None) -> int:
    """Check that `given` is in range, and return it."""
    expect(given >= least, option, f"must be at least {least}", given)
    if most is not None and given > most:
        raise ArgumentError(option, f"must be at most {most}. Got {given}")
    return given


def share(option: str, given: float) -> float:
    """Check that `given` is a probability, and return it."""
    expect(0 <= given <= 1, option, "must be from 0 to 1", given)
    return given


def refuse(given: dict[str, Any], why: str) -> None:
    """Raise for the first of these options that was given."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise ArgumentError(name, why)
