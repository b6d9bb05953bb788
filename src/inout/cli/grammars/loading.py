"""Grammars and sentences from files, options and standard input."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from inout._core.errors import ArgumentError, FileError
from inout.cli.commands.options import Reading, optional_choice
from inout.cli.files import STANDARD_INPUT, STDIN, stdin_bytes, stdin_lines
from inout.cli.messages import did_you_mean
from inout.grammars import library
from inout.grammars.formats import Duplicates, Format
from inout.grammars.grammar import Grammar
from inout.io.files import check_readable, decoded, lines_of_file
from inout.io.models import LATENT_GRAMMAR, has_key

# A no-break space is part of a word, as in treebanks.
_WORD = re.compile(r"\S+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its place: a file, standard input, or an option."""

    source: str
    number: int
    text: str

    @property
    def words(self) -> list[str]:
        """The tokens between ASCII white space."""
        return _WORD.findall(self.text)

    @property
    def place(self) -> str:
        return f"{self.source}:{self.number}"

    def error(self, column: int, message: str) -> FileError:
        """An error about a column of the line, counted from 1."""
        return FileError(message, file=self.source, line=self.number, column=column)


def load_grammar(path: str, reading: Reading) -> Grammar:
    """The grammar from a file, from the library by name, or from standard input for `-`."""
    form: Format | None = optional_choice("--from", reading.format, get_args(Format))
    start, encoding = reading.start, reading.encoding
    duplicates: Duplicates = "add" if reading.add_duplicates else "error"
    if path == STANDARD_INPUT:
        text = decoded(STDIN, stdin_bytes("a grammar").read(), encoding, "#")
        return Grammar.from_text(text, form, STDIN, start=start, duplicates=duplicates)
    if not Path(path).exists() and not Path(path).suffix and "/" not in path:
        return _from_library(path, start)
    if is_model(path):
        raise FileError("a latent model, which only `inout parse` reads, not a grammar", file=path)
    return Grammar.load(path, form, start=start, duplicates=duplicates, encoding=encoding)


def is_model(path: str) -> bool:
    """Whether a file is a latent model; only regular files are read."""
    if not Path(path).is_file():
        return False
    try:
        with Path(path).open("rb") as file:
            # They begin with an eight-byte number, which no text does.
            if b"\0" not in file.read(8):
                return False
    except OSError:
        return False
    return has_key(path, LATENT_GRAMMAR)


def check_model(path: str) -> None:
    """Refuse a file that is not a latent model, before any work is done."""
    if path == STANDARD_INPUT:
        raise ArgumentError("--model", "must be a file. Got -, standard input")
    check_readable(path)
    if Path(path).is_file() and not is_model(path):
        raise FileError(
            "not a latent model from `inout induce --latent`; for a grammar, leave out --model",
            file=path,
        )


def _from_library(name: str, start: str | None) -> Grammar:
    if name not in library.names():
        hint = did_you_mean(name, library.names()) or f", which has {', '.join(library.names())}"
        raise FileError(f"no such file, and no such grammar in the library{hint}", file=name)
    grammar = library.load(name)
    return grammar if start is None else Grammar.from_text(grammar.to_text("json"), start=start)


def read_sentences(
    files: Sequence[str], sentences: Sequence[str], grammar: str = ""
) -> Iterable[Line]:
    """The lines of files, or the sentences of an option; without either, standard input.

    Files are read into a list, so that errors in them are reported before any work; standard
    input is read lazily.
    """
    if files and sentences:
        raise ArgumentError(None, "use --sentence or files, not both")
    if sentences:
        return [Line("--sentence", number, text) for number, text in enumerate(sentences, 1)]
    for name in files:
        if name != STANDARD_INPUT and not Path(name).exists():
            hint = "; use --sentence for a sentence" if " " in name else ""
            raise FileError(f"no such file{hint}", file=name)
    names = list(files) or [STANDARD_INPUT]
    if [grammar, *names].count(STANDARD_INPUT) > 1:
        way = "name a file, or use --sentence, for the other"
        raise ArgumentError(None, f"only one input can be standard input; {way}")
    return _lines(names) if STANDARD_INPUT in names else list(_lines(names))


def _lines(names: Sequence[str]) -> Iterator[Line]:
    for name in names:
        if name == STANDARD_INPUT:
            source, lines = STDIN, stdin_lines("sentences, one per line,")
        else:
            source, lines = name, lines_of_file(name)
        for number, text in enumerate(lines, 1):
            yield Line(source, number, text)
