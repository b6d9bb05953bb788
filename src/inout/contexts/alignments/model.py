"""`AlignmentModel`: an output and its alignment, predicted from an input; and its file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from inout._core.checks import at_least, expect
from inout._core.errors import ArgumentError
from inout._core.lazy import lazy_property
from inout.contexts.alignments.actions import (
    MOST_LETTERS,
    alignment_columns,
    alignment_of_actions,
    alignment_streams,
    letter_targets,
)
from inout.contexts.alignments.alignment import Alignment
from inout.io.models import made_of, read_model, write_model
from inout.kernels.lattice.arrays import Columns, Numbers, Targets
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice
from inout.kernels.lattice.selection import select

Strings: TypeAlias = Sequence[Sequence[str]]

VERSION = 1
CHUNK = 64  # inputs whose lattices are in memory at a time
CANDIDATES = 10
_KEY, _WHAT = "inout-alignment", "alignment model"


@dataclass(frozen=True, kw_only=True)
class AlignmentSettings:
    """How many contexts there are and what they remember, and which alignments there are."""

    size: int = 20  # contexts of each column: of each number of letters of each symbol of the input
    memory: int | None = None  # most edges that a context remembers
    beam: bool = False  # beam search: only whole strings are remembered, and the others are dropped
    # Added to the score of what follows a context that remembers nothing; a beam's is -inf.
    escape: float = 0.0
    most_letters: int = MOST_LETTERS
    many_to_many: bool = False

    def __post_init__(self) -> None:
        at_least("size", self.size, 1)
        at_least("most_letters", self.most_letters, 1)
        if self.memory is not None:
            at_least("memory", self.memory, 1)
            wanted = "must be None with a beam, which remembers everything"
            expect(not self.beam, "memory", wanted, self.memory)
        expect(self.escape < math.inf, "escape", "must be finite or -inf", self.escape)

    @property
    def selection(self) -> dict[str, Any]:
        """The arguments of `select`."""
        escape = -math.inf if self.beam else self.escape
        return {"memory": self.memory, "anchored": self.beam, "escape": escape}


@dataclass(frozen=True)
class AlignedOutput:
    """An output with its best alignment; both None if the beam lost every alignment."""

    output: tuple[str, ...]
    log_probability: float  # of the output, all its alignments together
    alignment: Alignment | None

    @property
    def probability(self) -> float:
        return math.exp(self.log_probability)


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentModel:
    """p(output, alignment | input) with contexts selected for each input by their mass.

    The score of an alignment is the sum of weights of n-grams of letters and of groups of n
    consecutive edges with their symbols of the input (Steinhardt & Liang 2015, section 4.2).
    """

    symbols: tuple[str, ...]
    letters: tuple[str, ...]
    histories: Histories
    settings: AlignmentSettings

    @staticmethod
    def start(
        symbols: Sequence[str],
        letters: Sequence[str],
        *,
        order: int = 5,
        only_longest: bool = False,
        settings: AlignmentSettings | None = None,
    ) -> AlignmentModel:
        """A model with no weights yet, for n-grams up to `order` (or only of that order)."""
        at_least("order", order, 1)
        lengths = [order - 1] if only_longest else range(order)
        streams = alignment_streams(len(symbols), len(letters), lengths, lengths)
        return AlignmentModel(
            tuple(symbols), tuple(letters), Histories(streams), settings or AlignmentSettings()
        )

    def __post_init__(self) -> None:
        for name, values in (("symbols", self.symbols), ("letters", self.letters)):
            different = values and len(set(values)) == len(values)
            expect(different, name, "must be different strings", values)

    @lazy_property
    def _symbol_numbers(self) -> dict[str, int]:
        return {symbol: number for number, symbol in enumerate(self.symbols)}

    @lazy_property
    def _letter_numbers(self) -> dict[str, int]:
        return {letter: number for number, letter in enumerate(self.letters)}

    def numbered_inputs(self, inputs: Strings) -> list[list[int]]:
        return [_numbers("inputs", self._symbol_numbers, symbols) for symbols in inputs]

    def numbered_outputs(self, outputs: Strings) -> list[list[int]]:
        return [_numbers("outputs", self._letter_numbers, letters) for letters in outputs]

    def columns(self, inputs: Sequence[Sequence[int]]) -> Columns:
        most, many = self.settings.most_letters, self.settings.many_to_many
        return alignment_columns(inputs, len(self.letters), most_letters=most, many_to_many=many)

    def targets(self, outputs: Strings) -> Targets:
        return letter_targets(self.numbered_outputs(outputs), len(self.letters))

    def lattice(self, columns: Columns, **options: Any) -> Lattice:
        """The lattice of contexts selected for inputs; `options` are those of the kernel."""
        settings = self.settings
        return select(columns, self.histories, None, settings.size, **settings.selection, **options)

    def predict(self, inputs: Strings, candidates: int = CANDIDATES) -> list[AlignedOutput]:
        """The most probable output of each input, with its best alignment.

        It is chosen among the outputs of the `candidates` best paths (outputs with alignments); the
        probability of an output is the sum over all its alignments.
        """
        found: list[AlignedOutput] = []
        for own, _, lattice in self._parts(inputs):
            outputs, shares = self._most_probable(lattice, candidates)
            best = lattice.best_given(self.targets(outputs))
            found += _outputs(outputs, shares, list(self._alignments(own, lattice, best)))
        return found

    def _most_probable(
        self, lattice: Lattice, candidates: int
    ) -> tuple[list[tuple[str, ...]], Float[np.ndarray, " b"]]:
        """The output of each example with the largest sum over its alignments; log of its share."""
        edges, offsets, _ = lattice.kbest(candidates)
        actions = lattice.actions(edges)
        letters = len(self.letters)
        choices: list[list[tuple[str, ...]]] = []
        for b in range(lattice.columns.num_examples):
            written: dict[tuple[str, ...], None] = {}
            for lo, hi in pairwise(offsets[b * candidates : (b + 1) * candidates + 1].tolist()):
                path = actions[lo:hi]
                spelled = path[path < 2 * letters] % letters
                if hi > lo:
                    written[tuple(self.letters[letter] for letter in spelled)] = None
            choices.append(list(written) or [()])
        outputs = [choice[0] for choice in choices]
        shares = np.full(len(choices), -np.inf)
        for rank in range(max(map(len, choices), default=0)):
            tried = [choice[min(rank, len(choice) - 1)] for choice in choices]
            own = lattice.log_shares(lattice.constrained(self.targets(tried)).log_partition)
            better = own > shares
            outputs = [
                new if b else old for new, old, b in zip(tried, outputs, better, strict=True)
            ]
            shares = np.where(better, own, shares)
        return outputs, shares

    def align(self, inputs: Strings, outputs: Strings) -> list[AlignedOutput]:
        """The best alignment of each input with a given output."""
        _same_number(inputs, outputs)
        found: list[AlignedOutput] = []
        for own, part, lattice in self._parts(inputs):
            given = [tuple(output) for output in outputs[part]]
            targets = self.targets(given)
            constrained = lattice.constrained(targets)
            alignments = list(self._alignments(own, lattice, lattice.best_given(targets)))
            found += _outputs(given, lattice.log_shares(constrained.log_partition), alignments)
        return found

    def log_likelihood(self, inputs: Strings, outputs: Strings) -> Float[np.ndarray, " b"]:
        """log p(output | input) of each pair; -inf if there is no alignment."""
        _same_number(inputs, outputs)
        found = [np.zeros(0)]
        for _, part, lattice in self._parts(inputs):
            constrained = lattice.constrained(self.targets(outputs[part]))
            found.append(lattice.log_shares(constrained.log_partition))
        return np.concatenate(found)

    def _parts(self, inputs: Strings) -> Iterator[tuple[Strings, slice, Lattice]]:
        """Some inputs at a time: they, their places, and their lattice."""
        for start in range(0, len(inputs), CHUNK):
            part = slice(start, start + CHUNK)
            own = inputs[part]
            yield own, part, self.lattice(self.columns(self.numbered_inputs(own)))

    def _alignments(
        self, inputs: Strings, lattice: Lattice, best: tuple[Numbers, Numbers, Any]
    ) -> Iterator[Alignment | None]:
        edges, offsets, _ = best
        actions = lattice.actions(edges).tolist()
        for symbols, (start, end) in zip(inputs, pairwise(offsets), strict=True):
            path = actions[start:end]
            yield alignment_of_actions(path, symbols, self.letters) if path else None

    def save(self, path: str | Path) -> None:
        """Write the model as safetensors, atomically."""
        lengths = self.histories.streams.lengths
        settings = asdict(self.settings)
        if settings["escape"] == -math.inf:
            settings["escape"] = None  # no number of JSON
        content = {
            "symbols": list(self.symbols),
            "letters": list(self.letters),
            "lengths": [np.flatnonzero(used).tolist() for used in lengths],
            "settings": settings,
        }
        write_model(path, _KEY, VERSION, content, self.histories.to_arrays())

    @staticmethod
    def load(path: str | Path) -> AlignmentModel:
        """The model in a file that `save` wrote; `FileError` for any other file."""
        content, arrays = read_model(path, _KEY, VERSION, _WHAT)
        with made_of(path, _WHAT):
            symbols, letters = tuple(content["symbols"]), tuple(content["letters"])
            streams = alignment_streams(len(symbols), len(letters), *content["lengths"])
            settings = content["settings"]
            if settings["escape"] is None:
                settings["escape"] = -math.inf
            histories = Histories.from_arrays(streams, arrays)
            return AlignmentModel(symbols, letters, histories, AlignmentSettings(**settings))

    def __repr__(self) -> str:
        return (
            f"AlignmentModel({len(self.symbols)} symbols, {len(self.letters)} letters, "
            f"{len(self.histories.weights)} weights)"
        )


def _numbers(name: str, numbers: dict[str, int], strings: Sequence[str]) -> list[int]:
    try:
        return [numbers[string] for string in strings]
    except KeyError as error:
        known = ", ".join(sorted(numbers))
        raise ArgumentError(name, f"must be of {known:.200}. Got {error}") from None


def _same_number(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    if len(inputs) != len(outputs):
        given = f"{len(inputs)} and {len(outputs)}"
        raise ArgumentError(None, f"inputs and outputs must have the same length. Got {given}")


def _outputs(
    outputs: Sequence[tuple[str, ...]],
    log_probabilities: Float[np.ndarray, " b"],
    alignments: Sequence[Alignment | None],
) -> Iterator[AlignedOutput]:
    for output, value, alignment in zip(outputs, log_probabilities, alignments, strict=True):
        yield AlignedOutput(output, float(value), alignment)
