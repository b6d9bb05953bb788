"""Input of the parser: sentences and lattices of words, with brackets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.grammars.parser.normal_form import FormWeights, NormalForm
from inout.grammars.words import Vocabulary
from inout.kernels.sparse.arrays import SentenceArrays

Integers = NDArray[np.int64]
Brackets = Iterable[tuple[int, int]]


class Arc(NamedTuple):
    """A word between two states of a lattice."""

    source: int
    target: int
    word: str
    log_weight: float = 0.0


@dataclass(frozen=True)
class Lattice:
    """Sentences that share words, with weights: a graph of states 0, 1, …, n joined by words.

    Arcs go from lower to higher states; a path from 0 to n is a sentence. Its weight is the
    product of those of its arcs. Spans of constituents are pairs of states.

    >>> Lattice(
    ...     [(0, 1, "wreck"), (1, 2, "a"), (2, 3, "nice"), (0, 2, "recognise"), (3, 4, "beach")]
    ... )
    Lattice(5 words, 5 states)
    """

    arcs: tuple[Arc, ...]

    def __init__(self, arcs: Iterable[Arc | Sequence[object]]) -> None:
        rows = tuple(_arc(row) for row in arcs)
        object.__setattr__(self, "arcs", rows)

    @property
    def steps(self) -> int:
        """The number of the last state."""
        return max((arc.target for arc in self.arcs), default=0)

    def __repr__(self) -> str:
        return f"Lattice({len(self.arcs)} words, {self.steps + 1} states)"


def _arc(row: Arc | Sequence[object]) -> Arc:
    try:
        arc = Arc(*row)
        good = _is_int(arc.source) and _is_int(arc.target) and isinstance(arc.word, str)
        good = good and 0 <= arc.source < arc.target
        good = good and arc.log_weight < np.inf  # NaN is not
    except TypeError:
        good = False
    wanted = (
        ": an arc must be (source, target, word) or (source, target, word, log-weight), the "
        "target after the source, the log-weight no NaN or inf"
    )
    expect(good, "arcs", wanted, row)
    return arc


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


Words = Sequence[str] | Lattice


class Compiled(NamedTuple):
    """Sentences as the kernels read them; the rule, arc weight, cell and word of each entry."""

    arrays: SentenceArrays
    rules: Integers  # [entries] numbers of rules of the normal form
    log_weights: NDArray[np.float64]  # [entries]
    cells: Integers  # [entries]
    words: list[str]  # [entries], as given
    barred: NDArray[np.bool_] | None = None  # [cells] where no constituent may be, if that matters

    def unrestricted(self) -> Compiled:
        """The same without what is not allowed."""
        arrays = self.arrays
        free = SentenceArrays(
            arrays.starts, arrays.offsets, arrays.symbols, arrays.arc_offsets, arrays.arc_symbols
        )
        return self._replace(arrays=free, barred=None)

    def potentials(self, form: NormalForm, weights: FormWeights) -> tuple[Tensor, Tensor, Tensor]:
        """The log-weights of binary rules, chains and entries that the kernels want."""
        rules = torch.from_numpy(self.rules)
        if weights.rules.ndim == 1:
            entries = weights.rules[rules]
        else:
            entries = weights.rules[torch.from_numpy(self.cells), rules]
        entries = entries + torch.from_numpy(self.log_weights)
        chains = weights.chains
        if self.barred is not None and weights.barred_chains is not None:
            barred = torch.from_numpy(self.barred)[:, None]
            chains = torch.where(barred, weights.barred_chains, chains)
        return weights.rules[..., torch.from_numpy(form.binary)], chains, entries


def arcs_of(words: Words) -> tuple[Arc, ...]:
    """The words and where they stand."""
    if isinstance(words, Lattice):
        return words.arcs
    return tuple(Arc(i, i + 1, word) for i, word in enumerate(words))


def check_words(words: Any) -> None:
    """Refuse anything but sentences; in particular a string, which is a sequence of letters."""
    if isinstance(words, Lattice):
        return
    good = isinstance(words, Sequence) and not isinstance(words, str)
    expect(good, "words", "must be a sequence of strings, as split() makes", words)
    for place, word in enumerate(words):
        if not isinstance(word, str):
            raise ArgumentError("words", f"must be strings. Got {word!r:.80} at place {place}")


def known_form(words: Words, form: NormalForm, vocabulary: Vocabulary | None) -> list[str]:
    """The words with classes in place of those that the grammar does not have."""
    arcs = arcs_of(words)
    if vocabulary is None:
        return [arc.word for arc in arcs]
    return [
        arc.word
        if arc.word in form.lexicon
        else vocabulary.class_of(arc.word, first=arc.source == 0)
        for arc in arcs
    ]


def length(words: Words) -> int:
    """The number of steps between states, for a plain sentence that of words."""
    return words.steps if isinstance(words, Lattice) else len(words)


def compile_sentences(
    sentences: Sequence[Words],
    form: NormalForm,
    vocabulary: Vocabulary | None,
    brackets: Sequence[Brackets] | None = None,
) -> Compiled:
    """All entries of all words, in the order of the kernels; O(entries)."""
    nothing = np.empty(0, np.int64)
    lengths = np.array([length(words) for words in sentences], dtype=np.int64)
    starts = np.append(0, lengths.cumsum())
    first_cells = np.append(0, (lengths**2).cumsum())
    # (sentence, source, target, place in the sentence, its rules) of each word, unit steps first.
    units: list[list[tuple[Integers, float, int, str]]] = [[] for _ in range(int(starts[-1]))]
    wide: list[tuple[int, Integers, float, str]] = []
    for b, words in enumerate(sentences):
        known = known_form(words, form, vocabulary)
        n = int(lengths[b])
        for arc, word in zip(arcs_of(words), known, strict=True):
            rules = form.lexicon.get(word, nothing)
            cell = int(first_cells[b]) + arc.source * n + arc.target - 1
            if arc.target == arc.source + 1:
                place = int(starts[b]) + arc.source
                units[place].append((rules, arc.log_weight, cell, arc.word))
            else:
                wide.append((cell, rules, arc.log_weight, arc.word))
    wide.sort(key=lambda entry: entry[0])
    narrow = [entry for place in units for entry in place]
    counts = np.array([sum(len(e[0]) for e in place) for place in units], dtype=np.int64)
    entries = [*narrow, *((rules, log, cell, word) for cell, rules, log, word in wide)]
    sizes = np.array([len(e[0]) for e in entries], dtype=np.int64)
    rules = np.concatenate([nothing, *(e[0] for e in entries)])
    cells = np.repeat(np.array([e[2] for e in entries], dtype=np.int64), sizes)
    symbols = form.table.lhs[rules].astype(np.int32)
    num_units = int(counts.sum())
    arc_offsets = nothing
    if wide:
        arc_offsets = np.searchsorted(cells[num_units:], np.arange(int(first_cells[-1]) + 1))
    free = _crossing_free_cells(lengths, brackets)
    # Parts of long rules are not constituents and may cross brackets.
    masks = () if free is None else (free if form.is_original.all() else free | ~form.is_original,)
    arrays = SentenceArrays(
        starts,
        np.append(0, counts.cumsum()),
        symbols[:num_units],
        arc_offsets,
        symbols[num_units:],
        *masks,
    )
    return Compiled(
        arrays,
        rules,
        np.repeat(np.array([e[1] for e in entries], dtype=np.float64), sizes),
        cells,
        [word for entry in entries for word in [entry[3]] * len(entry[0])],
        ~free[:, 0] if free is not None and form.leaks else None,
    )


def _crossing_free_cells(
    lengths: Integers, brackets: Sequence[Brackets] | None
) -> NDArray[np.bool_] | None:
    """Which cells [cells 1] cross no bracket of their sentence; None if there are no brackets."""
    given = [list(pairs) for pairs in brackets or []]
    if not any(given):
        return None
    parts = [crossing_free(int(n), pairs) for n, pairs in zip(lengths, given, strict=True)]
    return np.concatenate([part.reshape(-1, 1) for part in parts])


def crossing_free(n: int, brackets: Brackets) -> NDArray[np.bool_]:
    """Which spans i..j (both inclusive) cross none of the brackets (i, j), j exclusive: [n n].

    >>> crossing_free(3, [(0, 2)]).astype(int)
    array([[1, 1, 1],
           [1, 1, 0],
           [1, 1, 1]])
    """
    free = np.ones((n, n), dtype=bool)
    starts, ends = np.arange(n)[:, None], np.arange(1, n + 1)[None, :]
    for pair in brackets:
        try:
            low, high = pair
            good = _is_int(low) and _is_int(high) and 0 <= low < high <= n
        except (TypeError, ValueError):
            good = False
        expect(good, "brackets", f": a bracket must be a pair (i, j) with 0 <= i < j <= {n}", pair)
        free &= ~(
            ((starts < low) & (low < ends) & (ends < high))
            | ((low < starts) & (starts < high) & (high < ends))
        )
    return free
