"""`HiddenMarkovModel`: hidden Markov models as generative models, for `em`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from inout._core.checks import as_log_weights, at_least, expect_shape
from inout._core.errors import ArgumentError
from inout._core.randomness import checked_generator
from inout.distributions import HMM
from inout.distributions.arguments import is_integer, refuse_bad_values
from inout.learning.model import LogPartitions

# A batch is padded to its longest sequence, so one has no sequence much shorter than that, and no
# more potentials than fit a cache or two.
_SHORTEST = 0.7
_BATCH = 2**21
_PARTS = ("initial", "transition", "emission")


@dataclass(frozen=True, eq=False, repr=False)
class HiddenMarkovModel:
    """Sequences of symbols emitted by hidden states, given their lengths.

    `initial` [s], `transition` [s s] (from, to) and `emission` [s v] are log-probabilities. A
    corpus is a list of sequences of symbol numbers. `log_weights` has the parameters in this
    order; each row is a distribution. `HMM` has the queries about the states of given sequences.

    >>> import torch
    >>> coin = HiddenMarkovModel(
    ...     *(
    ...         torch.tensor(p, dtype=torch.float64).log()
    ...         for p in ([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.1, 0.9]])
    ...     )
    ... )
    >>> coin.likelihood([[0], [1, 1]])(coin.log_weights).exp()
    tensor([0.3000, 0.5220], dtype=torch.float64)
    """

    initial: Float[Tensor, " s"]
    transition: Float[Tensor, "s s"]
    emission: Float[Tensor, "s v"]

    def __post_init__(self) -> None:
        for name in _PARTS:
            part = getattr(self, name)
            if not isinstance(part, Tensor):
                raise ArgumentError(name, f"must be a tensor. Got {part!r:.80}")
            refuse_bad_values(name, part)
            object.__setattr__(self, name, part.to(torch.float64, copy=True))
        if self.emission.ndim != 2 or 0 in self.emission.shape:
            raise ArgumentError("emission", f"must be [s v]. Got {list(self.emission.shape)}")
        s = self.emission.shape[0]
        for name, wanted in (("initial", (s,)), ("transition", (s, s))):
            expect_shape(name, getattr(self, name), wanted)

    @staticmethod
    def random(
        states: int, symbols: int, *, generator: torch.Generator | None = None
    ) -> HiddenMarkovModel:
        """A model whose distributions are drawn uniformly.

        `generator` makes them reproducible; by default torch's own is used.
        """
        source = checked_generator(generator)
        s, v = at_least("states", states, 1), at_least("symbols", symbols, 1)

        def drawn(*shape: int) -> Tensor:
            variates = torch.empty(shape, dtype=torch.float64, device=source.device)
            return variates.exponential_(generator=source).log().log_softmax(-1)

        return HiddenMarkovModel(drawn(s), drawn(s, s), drawn(s, v))

    @cached_property
    def log_weights(self) -> Float[Tensor, " p"]:
        """All parameters: initial, transition, emission."""
        parts = (self.initial, self.transition, self.emission)
        return torch.cat([part.reshape(-1) for part in parts])

    @cached_property
    def distributions(self) -> Int[np.ndarray, " p"]:
        """The number of the distribution of each parameter."""
        s, v = self.emission.shape
        transition, emission = 1 + np.arange(s), 1 + s + np.arange(s)
        return np.concatenate([np.zeros(s, int), transition.repeat(s), emission.repeat(v)])

    def with_log_weights(
        self, log_weights: Tensor | NDArray[np.float64] | Sequence[float]
    ) -> HiddenMarkovModel:
        """A model of the same size with other parameters [p]; a tensor keeps its graph."""
        size = len(self.distributions)
        return HiddenMarkovModel(*self._split(as_log_weights("log_weights", log_weights, size)))

    def _split(self, log_weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s, v = self.emission.shape
        initial, transition, emission = torch.split(log_weights, [s, s * s, s * v])
        return initial, transition.reshape(s, s), emission.reshape(s, v)

    def likelihood(self, corpus: Iterable[Any]) -> LogPartitions:
        """A function of the parameters [p] that gives the log-probability of each sequence [b].

        Sequences of about the same length go together; O(n s²) time for one of n symbols.
        """
        sequences = self._checked_sequences(corpus)
        batches = list(self._batches(sequences))
        order = [number for batch in batches for number in batch.numbers]
        places = torch.empty(len(order), dtype=torch.long)
        places[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))

        def log_partitions(log_weights: Float[Tensor, " p"]) -> Float[Tensor, " b"]:
            parts = self._split(log_weights)
            found = [HMM(*parts, batch.symbols, batch.lengths).log_partition() for batch in batches]
            return torch.cat([log_weights.new_empty(0), *found])[places]

        return log_partitions

    def states(self, corpus: Iterable[Any]) -> HMM:
        """The distribution over the hidden states of sequences, as one batch [b n]."""
        sequences = self._checked_sequences(corpus)
        lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.long)
        symbols = pad_sequence(sequences, batch_first=True)
        return HMM(self.initial, self.transition, self.emission, symbols, lengths)

    def sample(
        self, lengths: Iterable[int], *, generator: torch.Generator | None = None
    ) -> list[Int[Tensor, " n"]]:
        """Sequences of symbols of the given lengths, each drawn independently.

        `generator` makes them reproducible; by default torch's own is used. The weights
        must be probabilities. O(s + v) time for each symbol.
        """
        wanted, source = [at_least("lengths", x, 0) for x in lengths], checked_generator(generator)
        initial, transition, emission = (
            part.detach().to(source.device).exp() for part in self._parts_checked_as_proper()
        )
        states = torch.empty(0, dtype=torch.long)
        columns = []
        for place in range(max(wanted, default=0)):
            rows = transition[states] if place else initial.expand(len(wanted), -1)
            states = torch.multinomial(rows, 1, generator=source)[:, 0]
            columns.append(torch.multinomial(emission[states], 1, generator=source)[:, 0])
        symbols = torch.stack(columns, 1).cpu() if columns else torch.empty(len(wanted), 0).long()
        return [row[:length].clone() for row, length in zip(symbols, wanted, strict=True)]

    def lengths(self, corpus: Iterable[Any]) -> Int[np.ndarray, " b"]:
        return np.array([len(sequence) for sequence in corpus], np.int64)

    def fingerprint(self) -> str:
        """The sizes, which with the parameters determine the model."""
        return f"HiddenMarkovModel {list(self.emission.shape)}"

    def __repr__(self) -> str:
        s, v = self.emission.shape
        return f"HiddenMarkovModel({s} states, {v} symbols)"

    def _parts_checked_as_proper(self) -> tuple[Tensor, Tensor, Tensor]:
        parts = self.initial, self.transition, self.emission
        for name, part in zip(_PARTS, parts, strict=True):
            total = part.detach().exp().sum(-1)
            if not bool(((total - 1).abs() < 1e-6).all()):
                raise ArgumentError(name, f"must sum to 1 to be sampled from. Got {total}")
        return parts

    def _checked_sequences(self, corpus: Iterable[Any]) -> list[Tensor]:
        """Each sequence as a tensor of symbol numbers."""
        v = self.emission.shape[1]
        if isinstance(corpus, str | bytes) or not isinstance(corpus, Iterable):
            raise ArgumentError("corpus", f"must be a list of sequences. Got {corpus!r:.80}")
        found = []
        for number, sequence in enumerate(corpus):
            try:
                symbols = torch.as_tensor(sequence).cpu()
            except (TypeError, ValueError, RuntimeError):
                symbols = torch.tensor(torch.nan)
            if symbols.numel() == 0:
                symbols = symbols.long()
            if symbols.ndim != 1 or not is_integer(symbols):
                given = f"{sequence!r:.80} as sequence {number}"
                raise ArgumentError("corpus", f"must hold sequences of symbol numbers. Got {given}")
            if len(symbols) and not (int(symbols.min()) >= 0 and int(symbols.max()) < v):
                bad = next(x for x in symbols.tolist() if not 0 <= x < v)
                given = f"{bad} in sequence {number}"
                raise ArgumentError("corpus", f"must have symbols in 0..{v - 1}. Got {given}")
            found.append(symbols.long())
        return found

    def _batches(self, sequences: list[Tensor]) -> Iterable[_Batch]:
        lengths = [len(sequence) for sequence in sequences]
        order = sorted(range(len(sequences)), key=lambda number: -lengths[number])
        most = _BATCH // self.emission.shape[0]
        first = 0
        while first < len(order):
            longest = lengths[order[first]]
            last = first + 1
            while (
                last < len(order)
                and lengths[order[last]] >= _SHORTEST * longest
                and (last - first + 1) * longest <= most
            ):
                last += 1
            numbers = order[first:last]
            yield _Batch(
                numbers,
                pad_sequence([sequences[number] for number in numbers], batch_first=True),
                torch.tensor([lengths[number] for number in numbers]),
            )
            first = last


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some sequences of a corpus, padded."""

    numbers: list[int]
    symbols: Int[Tensor, "b n"]
    lengths: Int[Tensor, " b"]
