"""The facts that `inout solve` is given: files, single facts, a sentence."""

from __future__ import annotations

from collections.abc import Container, Mapping

import torch

from inout._core.errors import AmbiguousFactsError, ArgumentError, FileError
from inout.cli.equations.phrases import WORD
from inout.cli.equations.program import Request, arities_of
from inout.deduction import Facts, Program
from inout.io.facts import read_facts, read_value

LENGTH = "length"


def load_facts(program: Program, request: Request) -> tuple[dict[str, Facts], frozenset[str]]:
    """The facts from files and from the sentence, and the relations that the sentence fills."""
    arities, facts = arities_of(program.parsed), given_facts(program, request)
    said = {} if request.sentence is None else _sentence(request.sentence, arities, facts)
    facts.update(said)
    check_complete(program, facts)
    return facts, frozenset(said)


def given_facts(program: Program, request: Request) -> dict[str, Facts]:
    """The facts of --facts and --fact."""
    arities = arities_of(program.parsed)
    parts: dict[str, list[Facts]] = {}
    for name, path in request.files:
        choice = True if name in request.weighted else False if name in request.unweighted else None
        try:
            rows = read_facts(
                path, arities[name], weighted=choice, probabilities=request.probabilities
            )
        except AmbiguousFactsError as error:
            message = f"{error.message}; use --weighted {name} or --unweighted {name}"
            raise FileError(
                message, file=error.file, line=error.line, column=error.column
            ) from None
        parts.setdefault(name, []).append(rows)
    for name, values in request.single:
        parts.setdefault(name, []).append(Facts([_single(name, values, arities[name])]))
    return {name: _chained(files) for name, files in parts.items()}


def _single(name: str, values: str, arities: set[int]) -> tuple[str | int, ...]:
    """The one row of a --fact option."""
    try:
        row = tuple(read_value(value) for value in values.split())
    except ValueError as error:
        raise ArgumentError("--fact", f"{name}={values}: {error}") from None
    if len(row) not in arities:
        sizes = " or ".join(str(arity) for arity in sorted(arities))
        wanted = f"{name} takes {sizes} values, separated by spaces"
        raise ArgumentError("--fact", f": {wanted}. Got {len(row)}: {values!r}")
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
    """word(W,I,K) and length(N) of a sentence, if the program uses them."""
    if 3 not in arities.get(WORD, ()):
        raise ArgumentError("--sentence", ": the program has no word(W,I,K) to put the words in")
    if WORD in facts:
        raise ArgumentError(None, "--sentence and --facts word=... both give the words")
    try:
        words = [read_value(word) for word in sentence.split()]
    except ValueError as error:
        raise ArgumentError("--sentence", f": {error}") from None
    said = {WORD: Facts([(word, i, i + 1) for i, word in enumerate(words)])}
    if 1 in arities.get(LENGTH, ()) and LENGTH not in facts:
        said[LENGTH] = Facts([(len(words),)])
    return said


def check_complete(program: Program, facts: Container[str], corpus: bool = False) -> None:
    """Refuse relations that nothing gives; the caret is below their first use."""
    for name, use in program.parsed.used.items():
        if name in facts or name in program.parsed.derived:
            continue
        way = f"--facts {name}=FILE.tsv or --fact {name}=VALUES"
        if corpus:
            way += ", or --from facts and rows of it in the corpus"
        elif name == WORD and 3 in use.arities:
            way += ' or --sentence "..."'
        raise program.parsed.error(f"{name} is not given: add {way}", use.position)
