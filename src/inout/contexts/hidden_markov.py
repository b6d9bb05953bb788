"""`ContextHiddenMarkovModel`: symbols emitted by labels that follow a language model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import as_log_weights, at_least
from inout._core.errors import ArgumentError
from inout.contexts.fixed_contexts import FixedContexts, add_counts
from inout.contexts.language_model import NGramLanguageModel, checked_sequences
from inout.distributions.arguments import refuse_bad_values
from inout.kernels.lattice.arrays import Columns
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice
from inout.kernels.lattice.selection import select
from inout.kernels.threads import over_batch

Numbers: TypeAlias = NDArray[np.int64]
# A part of a corpus has about this many edges, each of some 30 bytes, in each thread.
_EDGES = 2**23


@dataclass(frozen=True, eq=False)
class ContextExpectation:
    """What contexts that were selected for a corpus say about it."""

    log_likelihoods: NDArray[np.float64]  # [b]; -inf where no labels are possible
    counts: NDArray[np.float64]  # [s v]: expected number of times that a label emits a symbol
    context_length: float  # see `ContextHiddenMarkovModel.expectation`

    @property
    def log_likelihood(self) -> float:
        """The sum over all sequences that are possible."""
        return float(self.log_likelihoods[self.log_likelihoods > -np.inf].sum())


class ContextHiddenMarkovModel:
    """Sequences of symbols, each emitted by a hidden label; labels follow an n-gram model.

    `emission` [s v] are log-probabilities of each symbol given its label. Exact inference under
    a language model of order n takes s^(n+1) steps per position. Here `size` contexts are selected
    per position (Steinhardt & Liang 2015, section 4), and a label has the probability that the
    language model gives it after what its context remembers, in size · s steps. That is a
    different model for each sequence and each setting of the parameters, in which all labels are
    possible everywhere, and inference is exact. With `size` ≥ s^n it is the n-th order model.

    A context remembers at most `memory` labels (None: as many as the language model uses; in a
    beam, all). `escape` is added to the scores of everything that follows ⋆…⋆; -inf gives a beam
    with the best histories of `memory` labels. `beam` is beam search.

    It is a generative model for `inout.em`, whose parameters are the emissions. Contexts are then
    selected once, under the given model. `inout.learning.fit_context_hidden_markov` selects them
    again in each iteration.

    >>> words = NGramLanguageModel.estimated([[0, 1, 2], [0, 2, 1, 2], [0, 1]], labels=3, order=2)
    >>> emission = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]).double().log()
    >>> model = ContextHiddenMarkovModel(words, emission, size=2)
    >>> model.decode([[0, 1, 1]])
    [array([0, 1, 2])]
    >>> model.posteriors([0, 1, 1]).sum(1)
    array([1., 1., 1.])
    """

    def __init__(
        self,
        language_model: NGramLanguageModel,
        emission: Float[Tensor, "s v"],
        size: int,
        *,
        memory: int | None = None,
        escape: float = 0.0,
        anchored: bool = False,
    ) -> None:
        if not isinstance(emission, Tensor) or emission.ndim != 2 or 0 in emission.shape:
            raise ArgumentError("emission", f"must be a tensor [s v]. Got {emission!r:.80}")
        refuse_bad_values("emission", emission)
        if len(emission) != language_model.labels:
            wanted = f"must have a row for each of {language_model.labels} labels"
            raise ArgumentError("emission", f"{wanted}. Got {list(emission.shape)}")
        if not escape < np.inf:  # NaN as well
            raise ArgumentError("escape", f"must be a number or -inf. Got {escape!r:.80}")
        if memory is not None:
            memory = at_least("memory", memory, max(language_model.order, 1))
            if anchored:
                raise ArgumentError("memory", f"must be None where anchored. Got {memory}")
        elif not anchored:
            memory = max(language_model.order, 1)
        self.language_model = language_model
        self.size = at_least("size", size, 1)
        self.memory, self.escape, self.anchored = memory, float(escape), anchored
        self._emission = emission.detach().to("cpu", torch.float64, copy=True)
        # Made once, and shared by all models that follow from this one.
        self._shared: list[Histories] = []

    @staticmethod
    def beam(
        language_model: NGramLanguageModel, emission: Float[Tensor, "s v"], size: int
    ) -> ContextHiddenMarkovModel:
        """The model in which only the `size` best labellings so far are kept (section 4.1)."""
        return ContextHiddenMarkovModel(
            language_model, emission, size, escape=-np.inf, anchored=True
        )

    @property
    def emission(self) -> Float[Tensor, "s v"]:
        return self._emission

    @property
    def num_symbols(self) -> int:
        return int(self._emission.shape[1])

    @property
    def histories(self) -> Histories:
        """The language model as the kernel reads it."""
        if not self._shared:
            self._shared.append(self.language_model.histories())
        return self._shared[0]

    @cached_property
    def log_weights(self) -> Float[Tensor, " p"]:
        """All parameters: the emissions, row by row."""
        return self._emission.reshape(-1)

    @cached_property
    def distributions(self) -> Int[np.ndarray, " p"]:
        """The number of the distribution of each parameter: its label."""
        return np.arange(self.language_model.labels).repeat(self.num_symbols)

    def with_log_weights(
        self, log_weights: Tensor | NDArray[np.float64] | Sequence[float]
    ) -> ContextHiddenMarkovModel:
        """The model with other emissions [s v], row by row."""
        given = as_log_weights("log_weights", log_weights, self._emission.numel())
        made = ContextHiddenMarkovModel(
            self.language_model,
            given.reshape(self._emission.shape),
            self.size,
            memory=self.memory,
            escape=self.escape,
            anchored=self.anchored,
        )
        made._shared = self._shared
        return made

    def likelihood(self, corpus: Iterable[Any]) -> FixedContexts:
        """log Z of each sequence [b] as a function of the emissions [p], with fixed contexts.

        They are selected now, under this model's emissions, and kept: about 30 · size · s bytes per
        symbol of the corpus.
        """
        sequences = self._checked_corpus(corpus)
        lattices = self._over_parts(sequences, lambda lattice: lattice)
        return FixedContexts(lattices, self.histories, self._emission.shape, self.escape)

    def expectation(self, corpus: Iterable[Any]) -> ContextExpectation:
        """What the contexts that are selected under the current emissions say about a corpus.

        The context length is the average number of labels that a context remembers, weighted by
        its share of what leads to its position (section 7). Time: O(size · s · log size) for each
        symbol; sequences are gone through in parts, in torch's threads, so that memory is bounded.
        """
        sequences = self._checked_corpus(corpus)
        found = self._over_parts(sequences, self._summary)
        lengths = np.sum([one.length for one in found], axis=0)
        counts = np.zeros((self.num_symbols, self.language_model.labels))
        for one in found:
            counts += one.counts
        return ContextExpectation(
            np.concatenate([np.zeros(0), *(one.log_partitions for one in found)]),
            np.ascontiguousarray(counts.T),
            float(lengths[0] / lengths[1]) if len(found) and lengths[1] else 0.0,
        )

    def lattice(self, corpus: Iterable[Any]) -> Lattice:
        """The contexts that are selected for some sequences, all at once."""
        return self._selected(self._checked_corpus(corpus))

    def decode(self, corpus: Iterable[Any]) -> list[Numbers]:
        """The best labels of each sequence; those of one that is impossible are -1."""
        sequences = self._checked_corpus(corpus)
        found: list[Numbers] = []
        for part in self._over_parts(sequences, _best_labels):
            found.extend(part)
        return [
            labels[: len(sequence)] if len(labels) else np.full(len(sequence), -1)
            for labels, sequence in zip(found, sequences, strict=True)
        ]

    def posteriors(self, sequence: Sequence[int]) -> Float[np.ndarray, "n s"]:
        """The probability of each label at each position of a sequence."""
        (symbols,) = self._checked_corpus([sequence])
        lattice = self._selected([symbols], by_position=True)
        found = np.zeros((len(symbols), self.language_model.labels))
        add_counts(lattice, lattice.posteriors, found)
        return found

    def lengths(self, corpus: Iterable[Any]) -> Int[np.ndarray, " b"]:
        return np.array([len(sequence) for sequence in corpus], np.int64)

    def fingerprint(self) -> str:
        """The identity of the model, apart from its parameters."""
        rows = self.language_model.log_rows
        return (
            f"ContextHiddenMarkovModel {list(self._emission.shape)} {self.size} {self.memory} "
            f"{self.escape} {self.anchored} {self.language_model!r} {rows[rows > -np.inf].sum()!r}"
        )

    def __repr__(self) -> str:
        kind = "a beam" if self.anchored else "contexts"
        return (
            f"ContextHiddenMarkovModel({self.language_model.labels} labels, {self.num_symbols} "
            f"symbols, order {self.language_model.order}, {kind} of size {self.size})"
        )

    def _selected(self, sequences: list[Numbers], *, by_position: bool = False) -> Lattice:
        """Contexts of some sequences; rows of emissions are symbols, or `by_position`."""
        model = self.language_model
        columns = Columns.chains(
            [len(sequence) for sequence in sequences], model.labels, end=model.end
        )
        emissions = np.ascontiguousarray(self._emission.numpy().T)  # [v s]
        symbols = np.concatenate([np.zeros(0, np.int64), *sequences])
        if by_position:
            emissions = emissions[symbols]
        else:
            rows = columns.emission_rows.copy()
            rows[rows >= 0] = symbols
            columns = columns._replace(emission_rows=rows)
        return select(
            columns,
            self.histories,
            emissions,
            self.size,
            memory=self.memory,
            escape=self.escape,
            anchored=self.anchored,
        )

    def _over_parts(self, sequences: list[Numbers], ask: Any) -> list[Any]:
        """What `ask` says about the lattice of each part of the sequences, in order."""
        labels = self.language_model.labels
        edges = np.cumsum([0, *((len(s) + 1) * (self.size + 1) * labels for s in sequences)])
        self.histories  # noqa: B018  # made before the threads begin
        count = min(max(int(edges[-1]) // _EDGES + 1, 8), len(sequences))
        cuts = np.searchsorted(edges, edges[-1] * np.arange(count + 1) / max(count, 1))
        found: list[list[Any]] = [[] for _ in range(count)]

        def part(low: int, high: int) -> None:
            for number in range(low, high):
                own = sequences[cuts[number] : cuts[number + 1]]
                if own:
                    found[number].append(ask(self._selected(own)))

        over_batch(part, count, int(edges[-1]) * 20)
        return [answer for answers in found for answer in answers]

    def _summary(self, lattice: Lattice) -> _Summary:
        counts = np.zeros((self.num_symbols, self.language_model.labels))
        add_counts(lattice, lattice.posteriors, counts)
        return _Summary(lattice.log_partition.copy(), counts, _context_length(lattice))

    def _checked_corpus(self, corpus: Iterable[Any]) -> list[Numbers]:
        return checked_sequences("corpus", corpus, "symbol", self.num_symbols)


@dataclass(frozen=True, eq=False)
class _Summary:
    """What is kept of a lattice."""

    log_partitions: NDArray[np.float64]  # [b]
    counts: NDArray[np.float64]  # [v s]
    length: NDArray[np.float64]  # sum of the average lengths of positions, number of these


def _context_length(lattice: Lattice) -> NDArray[np.float64]:
    """Σ of the average length of the contexts of each position but the ends; how many those are.

    By their mass so far, as in the paper's section 7, which costs no backward pass.
    """
    starts = lattice.node_offsets[:-1]
    largest = np.maximum.reduceat(lattice.forward, starts)
    inner = largest > -np.inf
    inner[lattice.columns.firsts[:-1]] = inner[lattice.columns.firsts[1:] - 1] = False
    sizes = np.diff(lattice.node_offsets)
    shares = np.exp(lattice.forward - np.repeat(np.where(inner, largest, 0.0), sizes))
    totals = np.add.reduceat(shares, starts)[inner]
    sums = np.add.reduceat(shares * lattice.lengths, starts)[inner]
    return np.array([(sums / totals).sum(), float(inner.sum())])


def _best_labels(lattice: Lattice) -> list[Numbers]:
    edges, offsets, _ = lattice.best()
    return np.split(lattice.actions(edges), offsets[1:-1])
