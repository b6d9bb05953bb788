"""`ContextModel`: labels of sequences by reified contexts; its features, answers and file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import at_least, expect
from inout._core.errors import ArgumentError
from inout._core.lazy import lazy_property
from inout.contexts.chain import ContextChain
from inout.contexts.exactness import Refined, refined
from inout.contexts.history_features import (
    MOST_KINDS,
    HistoryFeature,
    Named,
    checked_features,
    described,
    in_order,
    ties,
    with_neighbours,
)
from inout.contexts.observations import Observations, Position, Sequences
from inout.contexts.orderings import LEFT_TO_RIGHT, Ordering, checked_ordering, visits
from inout.io.models import made_of, read_model, write_model
from inout.kernels.lattice.arrays import Columns, Streams, Targets
from inout.kernels.lattice.cpu import observations as observed
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice
from inout.kernels.lattice.selection import select

VERSION = 1
_KEY, _WHAT = "inout-contexts", "context model"
_TOGETHER = 4096  # positions whose lattices are in memory at a time


@dataclass(frozen=True)
class Settings:
    """The kind of a context model."""

    # Features are n-grams of up to this many labels; contexts remember all but one of them.
    order: int = 4
    size: int = 10  # the number of contexts kept per position, besides ⋆…⋆
    memory: int | None = 3  # how many labels a context can remember; None: all, as in the paper
    # Whether only whole histories are kept, as in beam search; pruned ones go into ⋆…⋆, at the cost
    # of the escape weight.
    beam: bool = False
    # Whether n-grams of all lengths up to `order` are features, or those of that length only.
    shorter: bool = True
    end: bool = False  # whether the end of a sequence is a label that n-grams see
    # The order in which positions get their labels, by name: n-grams and contexts are of labels
    # that were visited one after the other.
    ordering: str = LEFT_TO_RIGHT
    # The names and lengths of features by functions: see `HistoryFeature`.
    history_features: tuple[tuple[str, int], ...] = ()
    neighbours: tuple[str, ...] = ()  # the names of those that see neighbours

    def __post_init__(self) -> None:
        at_least("order", self.order, 1)
        at_least("size", self.size, 0)
        if self.memory is None:
            return
        at_least("memory", self.memory, 0)
        needs = [(max(self.order - 1, 1), f"n-grams of order {self.order}")]
        needs += [(size, f"the history feature {name}") for name, size in self.history_features]
        for least, what in needs:
            wanted = f"must be at least {least}, for {what}; None: no bound"
            expect(self.memory >= least, "memory", wanted, self.memory)
        wanted = "must be None with a beam, which remembers everything"
        expect(not self.beam, "memory", wanted, self.memory)

    def streams(self, labels: int) -> Streams:
        """The features of contexts over so many labels."""
        lengths = range(self.order) if self.shorter else [self.order - 1]
        further = [length for _, length in self.history_features]
        sees = [name in self.neighbours for name, _ in self.history_features]
        most = MOST_KINDS if self.neighbours else 0
        return Streams.labels(
            labels, lengths, end=self.end, further=further, sees_input=sees, num_inputs=most
        )


@dataclass(frozen=True, eq=False)
class Tagging:
    """The labels of one sequence, and how sure they are."""

    labels: list[str]
    confidence: float  # the probability of this labelling
    marginals: NDArray[np.float64]  # [n s]: the probability of each label
    context_length: float  # how many labels contexts remember, on average by mass


@dataclass(frozen=True, eq=False, repr=False)
class ContextModel:
    """p(y, c | x) ∝ exp Σ_i θ·φ_i(c_{i-1}, y_i): labels y, contexts c that are chosen for each x.

    The features are those of the input with each label, n-grams of labels and ⋆, functions of
    histories with each label, and `escape` for every step from ⋆…⋆. Train one with
    `inout.learning.contexts.fit_contexts`.

    Steinhardt & Liang, "Reified context models" (2015).
    """

    labels: tuple[str, ...]
    features: tuple[str, ...]  # the names of the features of the input
    emission: NDArray[np.float64]  # their weights with each label: [d s]
    histories: Histories  # the weights of n-grams and of history features
    escape: float = 0.0
    settings: Settings = field(default_factory=Settings)
    training: dict[str, Any] = field(default_factory=dict)  # training options, for information only
    # Functions of what contexts remember, those that `settings` name.
    history_features: tuple[HistoryFeature, ...] = ()
    # The ordering that `settings` name, if it is a function of a sequence: it gives its positions.
    ordering: Ordering | None = None

    def __post_init__(self) -> None:
        wanted = (len(self.features), len(self.labels))
        given = list(self.emission.shape)
        expect(given == list(wanted), "emission", f"must be {list(wanted)}", given)
        if len(set(self.labels)) != len(self.labels) or not self.labels:
            raise ArgumentError("labels", "must be distinct, and at least one")
        own = described(self.history_features), with_neighbours(self.history_features)
        if own != (self.settings.history_features, self.settings.neighbours):
            raise ArgumentError(
                "history_features", "must be those that settings name, in that order"
            )
        checked_ordering(self.settings.ordering, self.ordering)

    @staticmethod
    def untrained(
        labels: Sequence[str],
        features: Sequence[str],
        settings: Settings,
        history_features: Sequence[HistoryFeature] = (),
        ordering: Ordering | None = None,
    ) -> ContextModel:
        """A model of these labels and features, all weights being 0; a beam lets nothing escape."""
        near = with_neighbours(history_features)
        settings = replace(settings, history_features=described(history_features), neighbours=near)
        return ContextModel(
            tuple(labels),
            tuple(features),
            np.zeros((len(features), len(labels))),
            Histories(settings.streams(len(labels)), ties(history_features, labels)),
            -np.inf if settings.beam else 0.0,
            settings,
            history_features=tuple(history_features),
            ordering=ordering,
        )

    def copy(self) -> ContextModel:
        """A copy with its own weights, unaffected by further training."""
        emission, histories = self.emission.copy(), self.histories.copy()
        return replace(self, emission=emission, histories=histories, training=dict(self.training))

    @lazy_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.features)}

    def observe(self, sequences: Sequences) -> Observations:
        """The features of sequences that the model knows, their positions as they are visited."""
        ordering = checked_ordering(self.settings.ordering, self.ordering)
        seen = Observations.of(sequences, self._numbers)
        return seen.visited(visits(ordering, sequences))

    def emissions(self, seen: Observations) -> NDArray[np.float64]:
        """The scores of labels by the features of the input, as positions are visited: [p s]."""
        scores = np.empty((int(seen.starts[-1]), len(self.labels)))
        observed.scores(seen.offsets, seen.indices, seen.values, 0, self.emission, scores)
        return scores

    def select(
        self, seen: Observations, size: int | NDArray[Any] | None = None, **options: Any
    ) -> Lattice:
        """The contexts that are selected for sequences; `options` are those of the kernel."""
        return self.lattice(self.columns(seen), self.emissions(seen), size, **options)

    def lattice(
        self,
        columns: Columns,
        emissions: NDArray[np.float64],
        size: int | NDArray[Any] | None = None,
        **options: Any,
    ) -> Lattice:
        """The lattice of the contexts that are selected under scores of labels [p actions]."""
        settings = self.settings
        return select(
            columns, self.histories, emissions, settings.size if size is None else size,
            memory=settings.memory, escape=self.escape, anchored=settings.beam, **options,
        )  # fmt: skip

    def columns(self, seen: Observations) -> Columns:
        columns = Columns.chains(seen.lengths, len(self.labels), end=self.settings.end)
        if not self.settings.neighbours:
            return columns
        kinds = next(one.kinds for one in self.histories.ties.functions if isinstance(one, Named))
        bounds, visits = pairwise(seen.starts.tolist()), seen.rows
        found = [
            kinds.of(self.history_features, hi - lo, (visits[lo:hi] - lo).tolist())
            for lo, hi in bounds
        ]
        inputs = columns.inputs.copy()
        inputs[columns.emission_rows >= 0] = [kind for own in found for kind in own]
        return columns._replace(inputs=inputs)

    def targets(self, tags: Sequence[Sequence[str]]) -> Targets:
        """The labels of sequences, as positions are visited, as what lattices are to spell."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        end = [len(self.labels)] if self.settings.end else []
        try:
            strings = [[*(numbers[label] for label in one), *end] for one in tags]
        except KeyError as error:
            known = ", ".join(self.labels[:10])
            wanted = f"must be labels of the model ({known}, …)"
            raise ArgumentError("tags", f"{wanted}. Got {error.args[0]!r}") from error
        lengths = [len(string) for string in strings]
        return Targets(
            np.arange(len(self.labels) + len(end), dtype=np.int32),
            np.array([y for string in strings for y in string], np.int32),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]),
        )

    def tag(self, sequences: Sequences, size: int | None = None) -> list[Tagging]:
        """The most probable labels of each sequence, with their probabilities."""
        return [found for part in self.tag_parts(sequences, size) for found in part]

    def tag_parts(self, sequences: Sequences, size: int | None = None) -> Iterator[list[Tagging]]:
        """The same, some sequences at a time."""
        seen = self.observe(sequences)
        for first, last in _parts(seen.starts):
            part = seen.part(first, last)
            yield self._taggings(part, self.select(part, size))

    def _taggings(self, seen: Observations, lattice: Lattice) -> list[Tagging]:
        marginals = lattice.emission_counts(lattice.posteriors)[:, : len(self.labels)]
        edges, offsets, scores = lattice.best()
        actions = lattice.actions(edges)
        confidences = np.exp(lattice.log_shares(scores))
        lengths, rows = lattice.mean_lengths, seen.rows
        marginals[rows] = marginals.copy()
        found = []
        for b in range(len(seen.lengths)):
            lo, hi = seen.starts[b], seen.starts[b + 1]
            best = actions[offsets[b] : offsets[b + 1]][: hi - lo]  # without the end
            labels = dict(zip(rows[lo:hi].tolist(), best.tolist(), strict=False))  # or no path
            found.append(
                Tagging(
                    [self.labels[labels[i]] for i in sorted(labels)],
                    float(confidences[b]),
                    marginals[lo:hi],
                    float(lengths[b]),
                )
            )
        return found

    def log_likelihoods(
        self, sequences: Sequences, tags: Sequence[Sequence[str]], size: int | None = None
    ) -> NDArray[np.float64]:
        """log p(tags | sequence) of each sequence: [b]."""
        seen = self.observe(sequences)
        if list(map(len, tags)) != seen.lengths.tolist():
            raise ArgumentError("tags", "must be one for each position of each sequence")
        lattice, targets = self.select(seen, size), self.targets(seen.in_order_of_visits(tags))
        return lattice.log_shares(lattice.constrained(targets).log_partition)

    def chain(self, sequences: Sequences, emissions: Tensor | None = None) -> ContextChain:
        """The distribution over the labels of sequences [b], the selected contexts being fixed.

        For all other queries, with derivatives: samples, k best, entropy, moments, … `emissions`
        [p s] are scores of the labels of all positions, one sequence after the other, in place of
        those of the model: the output of a network, say, which log Z is then differentiable in.
        """
        seen = self.observe(sequences)
        order = None if seen.visits is None else _padded(seen)
        if emissions is None:
            return ContextChain.from_lattice(self.select(seen), ordering=order)
        wanted = (int(seen.starts[-1]), len(self.labels))
        if tuple(emissions.shape) != wanted:
            raise ArgumentError("emissions", f"must be {list(wanted)}. Got {list(emissions.shape)}")
        emissions = emissions[torch.from_numpy(seen.rows).to(emissions.device)]
        columns = self.columns(seen)
        lattice = self.lattice(columns, emissions.detach().cpu().double().numpy())
        fixed = lattice.reweighted(self.histories, self.histories.weights, None, self.escape)
        rows = np.repeat(columns.emission_rows, np.diff(lattice.edge_offsets))
        actions = lattice.actions(np.arange(len(lattice.scores)))
        places = torch.from_numpy(np.where(rows >= 0, rows * len(self.labels) + actions, 0))
        own = emissions.reshape(-1)[places.to(emissions.device)]
        own = own.where(torch.from_numpy(rows >= 0).to(emissions.device), 0.0)
        scores = own + torch.from_numpy(fixed.scores).to(own.device, own.dtype)
        return ContextChain.from_lattice(lattice, scores, ordering=order)

    def contexts(self, sequence: Sequence[Position]) -> list[dict[str, float]]:
        """The contexts that each position follows, as text, with the probability of each.

        Labels of one letter are concatenated, longer ones separated by blanks, those last visited
        at the end; ⋆ is what a context does not remember.
        """
        seen = self.observe([sequence])
        lattice = self.select(seen)
        between = "" if max(map(len, self.labels)) == 1 else " "
        found: list[dict[str, float]] = [{} for _ in sequence]
        for c, position in enumerate(seen.rows.tolist()):
            own = found[position]
            for v in range(lattice.node_offsets[c], lattice.node_offsets[c + 1]):
                names = [self.labels[y] for y in lattice.string(v)]
                star = [] if lattice.is_anchored[v] else ["⋆"]
                own[between.join([*star, *names])] = float(lattice.mass[v])
        return found

    def expected_features(self, sequences: Sequences) -> dict[tuple[str, ...], float]:
        """The expected count of each feature, over all sequences; features never seen are left out.

        A feature is ("x", name, label), ("y", *labels with ⋆ and ^ for the beginning, label),
        (name of a history feature, key, label) or ("escape",).
        """
        seen = self.observe(sequences)
        lattice = self.select(seen)
        edges = lattice.posteriors
        positions = lattice.emission_counts(edges)
        counts = np.zeros_like(self.emission)
        own = np.ascontiguousarray(positions[:, : len(self.labels)])
        observed.add_gradient(seen.offsets, seen.indices, seen.values, 0, own, counts)
        found: dict[tuple[str, ...], float] = {}
        for d, y in np.argwhere(counts):
            found["x", self.features[d], self.labels[y]] = float(counts[d, y])
        names = dict(enumerate(self.labels)) | {Histories.BEGIN: "^", Histories.STAR: "⋆"}
        names[len(self.labels)] = "$"
        weights = self.histories.counts(lattice, edges)
        for _, symbols, _, place in self.histories.items():
            history = ("y", *(names[symbol] for symbol in symbols))
            for y in np.flatnonzero(weights[place]):
                found[*history, names[int(y)]] = float(weights[place.start + y])
        for stream, key, place in self.histories.shared_items():
            name = self.history_features[stream - 1].name
            for y in np.flatnonzero(weights[place]):
                found[name, key, names[int(y)]] = float(weights[place.start + y])
        if escaped := float(edges[lattice.lens[lattice.edge_sources] == 0].sum()):
            found["escape",] = escaped
        return found

    def refined(
        self,
        sequences: Sequences,
        *,
        size: int = 4,
        most: int = 256,
        tolerance: float = 0.01,
        passes: int = 8,
    ) -> Refined:
        """Contexts selected in several passes: see `inout.contexts.refined`."""
        seen = self.observe(sequences)
        columns = self.columns(seen).size
        return refined(
            lambda sizes: self.select(seen, sizes), columns, self.settings.memory,
            size=size, most=most, tolerance=tolerance, passes=passes,
        )  # fmt: skip

    def describe(self) -> str:
        kind = "beam" if self.settings.beam else "contexts"
        return (
            f"{len(self.labels)} labels, {len(self.features):,} features, "
            f"{self.settings.order}-grams ({self.histories.num_weights:,} weights), "
            f"{kind} of size {self.settings.size}"
            + (f", {self.settings.ordering}" if self.settings.ordering != LEFT_TO_RIGHT else "")
        )

    def __repr__(self) -> str:
        return f"ContextModel({self.describe()})"

    def save(self, path: str | Path) -> None:
        """Write the model as safetensors, atomically; without functions of histories."""
        arrays = {"emission": self.emission, **self.histories.to_arrays()}
        content = {
            "labels": list(self.labels),
            "features": list(self.features),
            "escape": None if self.escape == -np.inf else self.escape,
            "settings": asdict(self.settings),
            "training": self.training,
            "history_rows": self.histories.ties.rows[1:],
        }
        write_model(path, _KEY, VERSION, content, arrays)

    @staticmethod
    def load(
        path: str | Path,
        *,
        history_features: Sequence[HistoryFeature] = (),
        ordering: Ordering | None = None,
    ) -> ContextModel:
        """The model in a file that `save` wrote; `FileError` for any other file.

        Functions are not in files: `history_features` and `ordering` must be those it was trained
        with.
        """
        content, arrays = read_model(path, _KEY, VERSION, _WHAT)
        with made_of(path, _WHAT):
            settings = content["settings"]
            wanted = [(str(name), int(size)) for name, size in settings.get("history_features", [])]
            named = str(settings.get("ordering", LEFT_TO_RIGHT))
        given = in_order(checked_features(history_features), wanted)
        order = checked_ordering(named, ordering)
        near = tuple(settings.get("neighbours", ()))
        expect(
            with_neighbours(given) == near, "history_features",
            f"must see neighbours as in training: {', '.join(near) or 'none'}",
            ", ".join(with_neighbours(given)) or "none",
        )  # fmt: skip
        with made_of(path, _WHAT):
            return _model(arrays, content, given, order)


def _model(
    arrays: Mapping[str, NDArray[Any]],
    content: Mapping[str, Any],
    functions: tuple[HistoryFeature, ...],
    ordering: Ordering,
) -> ContextModel:
    named = {"history_features": described(functions), "neighbours": with_neighbours(functions)}
    settings = Settings(**content["settings"] | named)
    labels = tuple(str(label) for label in content["labels"])
    emission = np.asarray(arrays["emission"], np.float64)
    rows = [
        {str(key): int(start) for key, start in one.items()}
        for one in content.get("history_rows", [])
    ]
    if len(rows) != len(functions):
        raise ArgumentError("history_rows", f"must be {len(functions)}. Got {len(rows)}")
    histories = Histories.from_arrays(
        settings.streams(len(labels)), dict(arrays), ties(functions, labels, rows)
    )
    for name, values in (("emission", emission), ("weights", histories.weights)):
        if not np.isfinite(values).all():
            raise ArgumentError(name, "must be finite")
    escape = -np.inf if content["escape"] is None else float(content["escape"])
    return ContextModel(
        labels,
        tuple(str(name) for name in content["features"]),
        emission,
        histories,
        escape,
        settings,
        dict(content["training"]),
        functions,
        ordering,
    )


def _padded(seen: Observations) -> Tensor:
    """The positions of each sequence as they are visited, and the padding behind: [b n]."""
    assert seen.visits is not None
    found = torch.arange(int(seen.lengths.max(initial=0))).repeat(len(seen.lengths), 1)
    real = found < torch.from_numpy(seen.lengths)[:, None]
    found[real] = torch.from_numpy(seen.visits)
    return found


def _parts(starts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of sequences with some thousand positions each."""
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + _TOGETHER, "right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last
