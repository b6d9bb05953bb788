"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from inout._core.errors import ArgumentError
from inout.cli.names import did_you_mean

# Without it typer writes <bool> behind a flag, as if it took a value.
FLAG = " "

FORMATS = ("nltk", "lines", "wsj", "json")

GRAMMARS = "Grammars, sentences, treebanks"
SEQUENCES = "Labels of sequences"
EQUATIONS = "Equations"

HtmlOption = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write a page with drawings to FILE."),
]
GrammarArgument = Annotated[
    str,
    typer.Argument(
        metavar="GRAMMAR",
        help="A file with a grammar, or a name from the library (english); - is standard input.",
    ),
]
SentencesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="Files with a sentence a line, words separated by spaces; - or none is standard "
        "input.",
        show_default=False,
    ),
]
SentenceOption = Annotated[
    list[str] | None,
    typer.Option("--sentence", metavar="WORDS", help="A sentence, instead of files. Repeatable."),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help="The format of the grammar: nltk, lines, wsj or json. Found by the content unless "
        "told.",
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option("--start", metavar="SYMBOL", help="The start symbol, instead of the file's."),
]
DuplicatesOption = Annotated[
    bool,
    typer.Option(
        "--add-duplicates",
        metavar=FLAG,
        help="Add up the weights of a rule that stands there twice, which is an error otherwise.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print JSON for a machine.")]
MaxWordsOption = Annotated[
    int,
    typer.Option(
        "--max-words",
        metavar="N",
        help="Leave out sentences of more words; time grows with the cube of the length, memory "
        "with its square.",
    ),
]
MAX_WORDS = 300


def choice(option: str, given: str, known: Collection[str]) -> str:
    """`given` where it is one of the known names; otherwise an error that lists them."""
    if given in known:
        return given
    names = list(known)
    listed = f"{', '.join(names[:-1])} or {names[-1]}"
    raise ArgumentError(f"{option} must be {listed}. Got {given!r}{did_you_mean(given, names)}")


def check_seed(given: int | None) -> None:
    """Refuse a seed that torch has no room for."""
    if given is not None and not -(2**63) <= given < 2**63:
        raise ArgumentError(f"--seed must be an integer of 64 bits. Got {given}")


def count(option: str, given: int, least: int) -> int:
    """`given` where it is large enough."""
    if given < least:
        raise ArgumentError(f"{option} must be at least {least}. Got {given}")
    return given
