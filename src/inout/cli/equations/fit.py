"""Training of a program's facts, for `inout fit`: the corpus, checkpoints, files of facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from inout._core.errors import ArgumentError, FileError
from inout.cli.equations.facts import check_complete, given_facts
from inout.cli.equations.program import Request, Source, arities_of
from inout.cli.files import STANDARD_INPUT, checkpointed
from inout.cli.grammars.em import Corpus, frequency
from inout.cli.grammars.em import as_text as summary
from inout.cli.grammars.loading import Line
from inout.deduction import Program
from inout.io.facts import facts_text, read_examples, read_value
from inout.io.files import check_writable, write_text
from inout.learning.arguments import naming_examples
from inout.learning.em import EMResult, em
from inout.learning.program_model import ProgramModel
from inout.learning.stepwise import Stepwise
from inout.programs import sentence, sentence_pair

FORMAT = "inout fit 1"
# The relations that each form of a corpus fills.
FILLED = {
    "sentences": ("word", "length"),
    "pairs": ("source", "target", "source_length", "target_length"),
}


@dataclass(frozen=True)
class Problem:
    """A model and its examples, with their places in the files."""

    model: ProgramModel
    corpus: Corpus
    probabilities: bool


def read(
    source: Source,
    request: Request,
    paths: Sequence[str],
    lines: Iterable[Line],
    form: str | None,
    characters: bool,
    frequencies: bool,
    groups: Sequence[str] | None,
) -> Problem:
    """The model of a program and its facts, and the examples."""
    program = Program(source.text, goal=request.goal, source=source.name)
    facts = given_facts(program, request)
    missing = [name for name in program.inputs if name not in facts]
    if form is None:
        form = next((f for f, filled in FILLED.items() if filled[0] in missing), "facts")
    corpus = Corpus(frequencies=[] if frequencies else None, kind="example")
    if form == "facts":
        given = {"--characters": characters, "--frequencies": frequencies}
        for option in (name for name, value in given.items() if value):
            raise ArgumentError(option, "needs a corpus of sentences or pairs, one per line")
        _read_facts(program, request, paths, set(facts), corpus)
    else:
        _read_lines(lines, form, characters, corpus)
    if not corpus.sentences:
        raise ArgumentError("--corpus", "must contain at least one example. Got none")
    check_complete(program, {*facts, *corpus.sentences[0]}, corpus=True)
    for name in [name for name in corpus.sentences[0] if name not in missing]:
        if name not in arities_of(program.parsed):
            for example in corpus.sentences:  # the program does without it, as with a length
                del example[name]
        else:
            raise ArgumentError("--corpus", f"and --facts {name}=... both give {name}")
    limits = {"max_edges": request.max_edges, "max_rounds": request.max_rounds}
    options = {name: limit for name, limit in limits.items() if limit is not None}
    model = ProgramModel(program, facts, groups=groups or None, **options)
    return Problem(model, corpus, request.probabilities)


def _read_lines(lines: Iterable[Line], form: str, characters: bool, corpus: Corpus) -> None:
    """Sentences or pairs of them, one per line."""
    for line in lines:
        often, text = (1.0, line.text) if corpus.frequencies is None else frequency(line)
        if not text.strip():
            corpus.empty += 1
            continue
        sides = text.split("\t") if form == "pairs" else [text]
        if form == "pairs" and len(sides) != 2:
            wanted = "expected two sentences with a tab between them"
            raise line.error(1, f"{wanted}. Got {len(sides)}: {text!r:.60}")
        words = [_words(line, side, characters) for side in sides]
        example = sentence(words[0]) if form == "sentences" else sentence_pair(words[0], words[1])
        corpus.sentences.append(example)
        corpus.lines.append(line)
        if corpus.frequencies is not None:
            corpus.frequencies.append(often)


def _words(line: Line, text: str, characters: bool) -> list[Any]:
    """The words of a sentence, read like fields of a file of facts."""
    words = [c for c in text if not c.isspace()] if characters else text.split()
    try:
        return [read_value(word) for word in words]
    except ValueError as error:
        raise line.error(1, str(error)) from None


def _read_facts(
    program: Program, request: Request, paths: Sequence[str], shared: set[str], corpus: Corpus
) -> None:
    """Examples as blocks of facts; a relation that is missing in one of them is empty there."""
    arities = {name: a for name, a in program.inputs.items() if name not in shared}
    for path in paths:
        if path == STANDARD_INPUT:
            raise ArgumentError("--corpus", "must be a file where examples are facts. Got -")
        for number, example in read_examples(path, arities, probabilities=request.probabilities):
            corpus.sentences.append(example)
            corpus.lines.append(Line(path, number, ""))
    names = {name for example in corpus.sentences for name in example}
    corpus.sentences[:] = [{name: [] for name in names} | e for e in corpus.sentences]


def minibatches(method: str, batch_size: int, step: float) -> Stepwise | None:
    """The options of stepwise EM."""
    return Stepwise(batch_size, step) if method == "stepwise" else None


def train(
    problem: Problem, out: str, *, checkpoint: str | None, resume: bool, seed: int, **options: Any
) -> EMResult[ProgramModel]:
    """Train, write the facts, remove the checkpoint, in this order, so that nothing is lost."""
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise FileError("must be a folder for the trained facts, but is a file", file=out)
    for name in problem.model.trained if folder.exists() else [""]:
        check_writable(folder / f"{name}.tsv" if name else folder)
    kept = Path(checkpoint or f"{folder}.checkpoint")
    places = [line.place for line in problem.corpus.lines]
    with checkpointed(kept, resume=resume), naming_examples(lambda i: places[i]):
        result = em(
            problem.model,
            problem.corpus.sentences,
            frequencies=problem.corpus.frequencies,
            generator=torch.Generator().manual_seed(seed),
            checkpoint=kept,
            resume=resume,
            progress=True,
            **options,
        )
        folder.mkdir(exist_ok=True)
        for name in problem.model.trained:
            text = facts_text(result.model.facts[name], probabilities=problem.probabilities)
            write_text(folder / f"{name}.tsv", text)
    return result


def as_text(problem: Problem, result: EMResult[ProgramModel], out: str) -> str:
    """The log-likelihood of every iteration, and a summary."""
    table = ["iteration  log-likelihood"]
    table += [f"{i:>9}  {value:>14.4f}" for i, value in enumerate(result.log_likelihoods)]
    wrote = ", ".join(str(Path(out) / f"{name}.tsv") for name in problem.model.trained)
    return "\n".join([*table, "", summary(problem.corpus, result, wrote)])
