"""`SpanTree`: distributions over binary trees with labelled spans."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import checked_memory, expect
from inout.distributions import arguments
from inout.distributions.charts import Group, chart_forest
from inout.distributions.derivatives import Potentials
from inout.distributions.distinct import Used
from inout.distributions.trees import (
    BinaryTreeDistribution,
    split_places,
    summed_labels,
    unrelated_zero,
    used_rows,
)
from inout.forest import Forest
from inout.forest.labels import BlockLabels
from inout.kernels.recomputing import Memory
from inout.kernels.spans import op
from inout.kernels.spans.generating import generating_function
from inout.kernels.spans.reference import reference_tree_log_partition
from inout.series.lanes import Lanes


class SpanTree(BinaryTreeDistribution):
    """Binary trees with labelled spans, p(tree) proportional to exp(sum of its spans' potentials).

    `log_potentials` [*b n n s]: entry [i, j, a] for the span from i to j inclusive with label a.
    Every span of a tree has a label, those of width 1 included, so a tree over n positions has
    2n - 1 labelled spans. Entries outside i <= j < length are never read. An element of length 0
    has no tree: log Z = -inf.

    Events are integers [*b n n]: the label of each span of the tree and -1 elsewhere.
    log Z and its gradient cost O(b n² s + b n³) time. Half precision is computed in float32;
    `tier="reference"` runs plain torch code instead of the compiled kernels.

    `memory` limits what they take besides potentials and gradients: a number of bytes, at least
    n² (5 s · size of a float + 96), or "sqrt". Charts are then made for as many elements as fit,
    or √b of them, discarded, and made again in the backward pass.

    >>> import torch
    >>> trees = SpanTree(torch.zeros(3, 3, 1))
    >>> trees.log_partition().exp()  # two ways to bracket three words
    tensor(2.)
    >>> SpanTree(torch.zeros(3, 3, 2)).enumerate_support().shape
    torch.Size([64, 3, 3])
    """

    family = "SpanTree"
    options = ("memory",)

    def __init__(
        self,
        log_potentials: Float[Tensor, "*b n n s"],
        lengths: arguments.Lengths | None = None,
        *,
        tier: str | None = None,
        memory: Memory = None,
    ) -> None:
        arguments.refuse_non_tensors(log_potentials=log_potentials)
        shape = log_potentials.shape
        good = len(shape) >= 3 and shape[-3] == shape[-2] and shape[-1] > 0
        wanted = "must be [*b n n s] with at least one label"
        expect(good, "log_potentials", wanted, list(shape))
        self._set_shape(shape[:-3], shape[-3:-1], lengths, tier, log_potentials.device)
        self.memory = checked_memory(memory)
        arguments.refuse_bad_values("log_potentials", log_potentials, self._spans[..., None])
        self.potentials = arguments.of_one_dtype({"log_potentials": log_potentials})

    @property
    def size(self) -> tuple[int, int, int]:
        """(elements in all, positions, labels)."""
        n, s = self.potentials["log_potentials"].shape[-2:]
        return self.batch_shape.numel(), n, s

    @property
    def _needs(self) -> tuple[int, int]:
        _, n, s = self.size
        labels = 5 * s * self.potentials["log_potentials"].element_size()
        return n * n * (labels + 96), 0

    def _masked(self, potentials: Potentials) -> Float[Tensor, "*b n n s"]:
        """The potentials, -inf for impossible spans."""
        return potentials["log_potentials"].where(self._spans[..., None], -torch.inf)

    def _scores(self, potentials: Potentials) -> Float[Tensor, "b n n"]:
        """Log of the total weight of the labels of each span, in float64."""
        _, n, _ = self.size
        return summed_labels(self._masked(potentials)).reshape(-1, n, n)

    def _log_partition_at_once(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        if self._empty:
            nothing = potentials["log_potentials"].new_full(self.batch_shape, -torch.inf)
            return nothing + unrelated_zero(potentials)
        log_z = reference_tree_log_partition if self.tier == "reference" else op.tree_log_partition
        scores = self._scores(potentials)
        result = log_z(scores, self._flat_lengths).reshape(self.batch_shape)
        result = result.to(potentials["log_potentials"].dtype)
        return result if self._whole else torch.where(self.lengths == 0, -torch.inf, result)

    def _generating(
        self, lanes: Lanes, values: Potentials, shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        b, n, s = self.size
        potentials = self.potentials["log_potentials"].reshape(b, n, n, s)
        own = values["log_potentials"].expand(-1, b, n, n, -1)
        return generating_function(lanes, potentials, self.lengths.reshape(-1), own, shift)

    def _score(self, event: Int[Tensor, "*e n n"]) -> Float[Tensor, "*sb"]:
        event, _ = self._checked_tree(event, labels=self.size[2])
        present = event >= 0
        potentials = self.potentials["log_potentials"].expand(*event.shape, self.size[2])
        values = potentials.gather(-1, event.clamp(min=0)[..., None])[..., 0]
        score = values.where(present, 0.0).sum((-1, -2))
        return torch.where(self._no_tree(event), -torch.inf, score)

    def _is_event(self, event: Int[Tensor, "*sb n n"]) -> Bool[Tensor, "*sb"]:
        return self._is_tree(event, labels=self.size[2])

    def parts(self, event: Int[Tensor, "*e n n"]) -> Potentials:
        """Indicators [*s *b n n s] of the labelled spans."""
        event, _ = self._checked_tree(event, labels=self.size[2])
        labels = torch.arange(self.size[2], device=event.device)
        dtype = self.potentials["log_potentials"].dtype
        return {"log_potentials": (event[..., None] == labels).to(dtype)}

    @property
    def mode(self) -> Int[Tensor, "*b n n"]:
        """The most probable tree: Viterbi over the best label of each span. O(b n² s + b n³)."""
        if self._empty:
            return self._nothing()
        with torch.no_grad():
            best, labels = self._masked(self.potentials).max(-1)
            return self._best_recall(best.double(), labels)

    def _k_best_trees(self, k: int) -> tuple[Int[Tensor, "k b n n"], Float[Tensor, "k b"]]:
        """By the explicit forest, which has O(n³ + n² s) edges per element."""
        b, n, s = self.size
        events = np.full((k, b, n * n), -1, np.int64)
        scores = np.full((k, b), -np.inf)
        for element, found in enumerate(used_rows(self.forest(), k)):
            for rank, (score, rows) in enumerate(found):
                scores[rank, element] = score
                events[rank, element, rows // s % (n * n)] = rows % s
        device = self.lengths.device
        trees = torch.from_numpy(events).reshape(k, b, n, n).to(device)
        return trees, torch.from_numpy(scores).to(device)

    def _draw_trees(self, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        b, n, s = self.size
        potentials = self._masked(self.potentials).reshape(b, n, n, s)
        lengths = self.lengths.reshape(-1)
        scores = self._scores(self.potentials)
        events = op.sample_trees(scores, potentials, self._flat_lengths, count, seed)
        return events.where((lengths > 0)[:, None, None], -1)

    def _write_events(self, events: NDArray[np.int64], used: Used) -> None:
        *places, label = used["log_potentials"]
        events[tuple(places)] = label

    def min_risk(self) -> Int[Tensor, "*b n n"]:
        """The tree with the most expected correct labelled spans (Goodman 1996, section 3).

        It maximises the sum of the marginals of its labelled spans: labelled recall.
        """
        if self._empty:
            return self._nothing()
        with torch.no_grad():
            gains, labels = self.marginals()["log_potentials"].max(-1)
            return self._best_recall(gains.double(), labels)

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "m *b n n"]:
        """All trees [Catalan(n-1) s**(2n-1), *b n n], if all lengths are the same."""
        labels = range(self.size[2])
        return self._support(self._labelled(self._one_length(), labels, labels), expand)

    def forest(self) -> Forest:
        """The chart as an explicit forest, one goal for each batch element.

        Its relation is `log_potentials`, flattened; gradients flow back to it. Items: label(e, i,
        j), the sum over the labels of a span, and beta(e, i, j), the sum over the trees below it.
        """
        b, n, s = self.size
        items = BlockLabels(
            {"log_potentials": (b, n, n, s), "label": (b, n, n), "beta": (b, n, n), "goal": (b,)}
        )
        # No edge uses the padding, but a forest refuses NaN anywhere.
        relations = {"log_potentials": self._masked(self.potentials)}
        return chart_forest(relations, items, self._edges(items), batched=bool(self.batch_shape))

    def _edges(self, items: BlockLabels) -> list[Group]:
        b, _, s = self.size
        axioms, sums, betas, goals = (items.numbers(name) for name in items.shapes)
        groups: list[Group] = []
        for e, length in enumerate(self.lengths.reshape(b).tolist()):
            if length == 0:
                continue
            i, j = np.triu_indices(length)
            groups.append((np.repeat(sums[e, i, j], s), [axioms[e, i, j].reshape(-1)]))
            place = np.arange(length)
            groups.append((betas[e, place, place], [sums[e, place, place]]))
            i, k, j = split_places(length)
            groups.append((betas[e, i, j], [sums[e, i, j], betas[e, i, k], betas[e, k + 1, j]]))
            groups.append((goals[e : e + 1], [betas[e, 0, length - 1 : length]]))
        return groups
