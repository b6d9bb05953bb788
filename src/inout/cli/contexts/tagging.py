"""Labels of sequences with their probabilities, printed as they are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from inout.cli.contexts.reading import read_sequences
from inout.cli.files import STANDARD_INPUT, is_typed
from inout.cli.formats import json_line, plural
from inout.cli.messages import note
from inout.cli.progress import counter
from inout.contexts.model import ContextModel, Tagging
from inout.io.column_features import columns_of
from inout.io.tagged import UNKNOWN, Form, TaggedSequence, written_label

FORMAT = "inout context tag 1"
_TOGETHER = 256  # sequences


@dataclass(frozen=True)
class Answer:
    """A sequence and its labels; how many of its features the model knows."""

    sequence: TaggedSequence
    tagging: Tagging
    known: int


def load(path: str) -> ContextModel:
    """The model in a file."""
    return ContextModel.load("/dev/stdin" if path == STANDARD_INPUT else path)


def form_of(model: ContextModel) -> Form:
    """What kind of file the model was trained on."""
    return "conll" if model.training.get("form") == "conll" else "features"


def answers(
    model: ContextModel, paths: Sequence[str], form: Form, size: int | None
) -> Iterator[Answer]:
    """The labels of all sequences, in order."""
    names = frozenset(model.features)
    # The training data tell whether a label is present or a column is missing.
    columns = columns_of(model.features) if form == "conll" else None
    sequences = read_sequences(paths, form, columns)
    # Typed sequences are answered one at a time.
    together = 1 if STANDARD_INPUT in paths and is_typed() else _TOGETHER
    while some := list(islice(sequences, together)):
        found = model.tag([sequence.positions for sequence in some], size)
        for sequence, tagging in zip(some, found, strict=True):
            known = sum(name in names for position in sequence.positions for name in position)
            yield Answer(sequence, tagging, known)


def begun(
    model: ContextModel, paths: Sequence[str], form: Form, size: int | None
) -> Iterator[Answer]:
    """The same iterator with its first item computed, unless a person types the input."""
    found = answers(model, paths, form, size)
    if STANDARD_INPUT in paths and is_typed():
        return found
    return chain(list(islice(found, 1)), found)


def print_answers(
    model: ContextModel,
    found: Iterator[Answer],
    *,
    as_json: bool,
    confidence: bool,
    marginals: bool,
    least: float | None,
) -> None:
    """Print each answer, then notes on stderr."""
    done = answered = known = 0
    with counter("sequences") as step:
        for answer in found:
            sure = least is None or answer.tagging.confidence >= least
            if as_json:
                print(_json(model, answer, sure, marginals), flush=True)
            else:
                print(_text(model, answer.tagging, sure, confidence, marginals), flush=True)
            done, answered, known = done + 1, answered + sure, known + answer.known
            step(done)
    if not done:
        note("there were no sequences")
    elif not known and model.features:
        note(nothing_known(done))
    if least is not None and done:
        of = f"{answered:,} of {plural(done, 'sequence')}"
        note(f"{of} answered, with a confidence of at least {least:g}")


def nothing_known(sequences: int) -> str:
    """The note for data without any feature of the model."""
    return (
        f"the model knows no feature of {plural(sequences, 'sequence')}; is DATA in the format "
        "it was trained on (--from)?"
    )


def share(value: float) -> str:
    """A probability with significant digits, however small.

    >>> share(0.25), share(1.0), share(0.0000125)
    ('0.2500', '1.0000', '1.25e-05')
    """
    return f"{value:.4f}" if value >= 1e-3 or value == 0 else f"{value:.2e}"


def _text(
    model: ContextModel, tagging: Tagging, sure: bool, confidence: bool, marginals: bool
) -> str:
    """A line per position: its label and probability, or those of all labels; then a blank line."""
    lines = [f"# confidence {share(tagging.confidence)}"] if confidence else []
    chosen = _probabilities(model, tagging)
    for label, own, row in zip(tagging.labels, chosen, tagging.marginals, strict=True):
        fields = [written_label(label) if sure else UNKNOWN]
        if marginals:
            order = sorted(range(len(row)), key=lambda column: -row[column])
            fields += [f"{written_label(model.labels[k])}:{share(row[k])}" for k in order]
        else:
            fields.append(share(own))
        lines.append("\t".join(fields))
    return "\n".join([*lines, ""])


def _probabilities(model: ContextModel, tagging: Tagging) -> list[float]:
    """The probability of the label of each position."""
    numbers = {label: column for column, label in enumerate(model.labels)}
    pairs = zip(tagging.labels, tagging.marginals, strict=True)
    return [float(row[numbers[label]]) for label, row in pairs]


def _json(model: ContextModel, answer: Answer, sure: bool, marginals: bool) -> str:
    tagging = answer.tagging
    told: dict[str, Any] = {
        "format": FORMAT,
        "place": answer.sequence.place,
        "answered": sure,
        "confidence": tagging.confidence,
        "labels": tagging.labels,
        "probabilities": _probabilities(model, tagging),
        "context_length": tagging.context_length,
    }
    if marginals:
        told["marginals"] = [
            dict(zip(model.labels, map(float, row), strict=True)) for row in tagging.marginals
        ]
    return json_line(told)
