"""`SpanTree`: distributions over binary trees with labelled spans."""

from __future__ import annotations

from collections.abc import Hashable
from math import comb

import numpy as np
import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.distributions.arguments import of_one_dtype, random_seed, refuse_bad_values
from inout.distributions.base import Potentials
from inout.distributions.trees import (
    TreeDistribution,
    unrelated_zero,
    used_rows,
)
from inout.forest import Forest, Item
from inout.forest.assembly import assemble
from inout.forest.labels import LazyLabels
from inout.kernels.spans import op
from inout.kernels.spans.generating import generating_function
from inout.kernels.spans.reference import reference_tree_log_partition
from inout.series.lanes import Lanes


class SpanTree(TreeDistribution):
    """Binary trees with labelled spans, p(tree) proportional to exp(sum of its spans' potentials).

    `log_potentials` [*b n n s]: entry [i, j, a] for the span from i to j inclusive with label a.
    Every span of a tree has a label, those of width 1 included, so a tree over n positions has
    2n - 1 labelled spans. Entries outside i <= j < length are never read. An element of length 0
    has no tree: log Z = -inf.

    Events are integers [*b n n]: the label of each span of the tree and -1 elsewhere.
    log Z and its gradient cost O(b n² s + b n³) time. Half precision is computed in float32;
    `tier="reference"` runs plain torch code instead of the compiled kernels.

    >>> import torch
    >>> trees = SpanTree(torch.zeros(3, 3, 1))
    >>> trees.log_partition().exp()  # two ways to bracket three words
    tensor(2.)
    >>> SpanTree(torch.zeros(3, 3, 2)).enumerate_support().shape
    torch.Size([64, 3, 3])
    """

    def __init__(
        self,
        log_potentials: Float[Tensor, "*b n n s"],
        lengths: Int[Tensor, "*b"] | None = None,
        *,
        tier: str | None = None,
    ) -> None:
        shape = log_potentials.shape
        if len(shape) < 3 or shape[-3] != shape[-2] or shape[-1] == 0:
            raise ArgumentError(
                f"log_potentials must be [*b n n s] with at least one label. Got {list(shape)}"
            )
        self._set_shape(shape[:-3], shape[-2], lengths, tier, log_potentials.device)
        refuse_bad_values("log_potentials", log_potentials, self._spans[..., None])
        self.potentials = of_one_dtype({"log_potentials": log_potentials})

    @property
    def size(self) -> tuple[int, int, int]:
        """(elements in all, positions, labels)."""
        n, s = self.potentials["log_potentials"].shape[-2:]
        return self.batch_shape.numel(), n, s

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        _, n, s = self.size
        return {"log_potentials": torch.Size([n, n, s])}

    def _masked(self, potentials: Potentials) -> Float[Tensor, "*b n n s"]:
        """The potentials, -inf where there can be no span."""
        return potentials["log_potentials"].where(self._spans[..., None], -torch.inf)

    def _scores(self, potentials: Potentials) -> Float[Tensor, "b n n"]:
        """Log of the total weight of the labels of each span, in float64.

        The chart adds up O(n) of them: rounded to float32, large ones would lose the answer.
        """
        _, n, _ = self.size
        labels = self._masked(potentials)
        # Without the shift by 0 of the dead spans their derivatives would be NaN.
        top = labels.detach().amax(-1, keepdim=True)
        top = torch.where(top == -torch.inf, 0.0, top)
        total = (labels - top).exp().sum(-1)
        dead = total == 0
        total = torch.where(dead, 1.0, total).double().log() + top[..., 0].double()
        scores = torch.where(dead, -torch.inf, total)
        return scores.reshape(-1, n, n)

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        if self._empty:
            nothing = potentials["log_potentials"].new_full(self.batch_shape, -torch.inf)
            return nothing + unrelated_zero(potentials)
        log_z = reference_tree_log_partition if self.tier == "reference" else op.tree_log_partition
        scores = self._scores(potentials)
        result = log_z(scores, self._flat_lengths).reshape(self.batch_shape)
        result = result.to(potentials["log_potentials"].dtype)
        return torch.where(self.lengths == 0, -torch.inf, result)

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

    def _k_best(self, k: int) -> tuple[Int[Tensor, "k b n n"], Float[Tensor, "k b"]]:
        """By the explicit forest, which has O(n³ + n² s) edges for an element."""
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

    def _draw(self, count: int, generator: torch.Generator) -> Int[Tensor, "m b n n"]:
        b, n, s = self.size
        potentials = self._masked(self.potentials).reshape(b, n, n, s)
        lengths = self.lengths.reshape(-1)
        scores = self._scores(self.potentials)
        events = op.sample_trees(
            scores, potentials, self._flat_lengths, count, random_seed(generator)
        )
        return events.where((lengths > 0)[:, None, None], -1)

    def min_risk(self) -> Int[Tensor, "*b n n"]:
        """The tree with the most expected correct labelled spans (Goodman 1996, section 3).

        The sum of the marginals of its labelled spans is highest: labelled recall.
        """
        if self._empty:
            return self._nothing()
        with torch.no_grad():
            gains, labels = self.marginals()["log_potentials"].max(-1)
            return self._best_recall(gains.double(), labels)

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "m *b n n"]:
        """All trees [Catalan(n-1) s**(2n-1), *b n n]; for elements of one length only."""
        _, n, s = self.size
        self._check_enumerable(catalan(n - 1) * s ** (2 * n - 1) if n else 0)
        return self._for_batch(self._labelled(range(s), range(s)), expand)

    def forest(self) -> Forest:
        """The chart as an explicit forest, one goal for each batch element.

        Its relation is `log_potentials`, flattened; gradients flow back to it. Items: label(e, i,
        j), the sum over the labels of a span, and beta(e, i, j), the sum over the trees below it.
        """
        relations = {"log_potentials": self._expanded()["log_potentials"].reshape(-1)}
        # Entries of the padding may be anything; no edge uses them, but they are checked.
        used = self._spans[..., None].expand(self._expanded()["log_potentials"].shape)
        relations["log_potentials"] = relations["log_potentials"].where(
            used.reshape(-1), -torch.inf
        )
        builder = _Chart(self)
        fields = assemble(*builder.edges(), relations, *builder.rest())
        return Forest(**fields, single_goal=not self.batch_shape)


class _Chart(LazyLabels):
    """Edges and labels of a span tree's forest; items: axioms, label sums, betas, goals."""

    def __init__(self, trees: SpanTree) -> None:
        self.trees = trees
        b, n, s = trees.size
        self.num_axioms, self.cells = b * n * n * s, b * n * n

    def __len__(self) -> int:
        return self.num_axioms + 2 * self.cells + self.trees.size[0]

    def label(self, index: int) -> Hashable:
        """The labelled span, or the sum over its labels, or over the trees below it, or a goal."""
        b, n, s = self.trees.size
        if index < self.num_axioms:
            return _item("log_potentials", index, (b, n, n, s))
        index -= self.num_axioms
        if index < 2 * self.cells:
            name = "label" if index < self.cells else "beta"
            return _item(name, index % self.cells, (b, n, n))
        return Item("goal", (index - 2 * self.cells,))

    def edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(heads, tail_offsets, tails) of all edges."""
        b, n, s = self.trees.size
        lengths = self.trees.lengths.reshape(-1).cpu().numpy()
        axioms = np.arange(self.num_axioms).reshape(b, n, n, s)
        sums = self.num_axioms + np.arange(self.cells).reshape(b, n, n)
        betas = sums + self.cells
        first_goal = self.num_axioms + 2 * self.cells
        groups: list[tuple[np.ndarray, list[np.ndarray]]] = []
        for e in range(b):
            length = int(lengths[e])
            if length == 0:
                continue
            i, j = np.triu_indices(length)
            groups.append((np.repeat(sums[e, i, j], s), [axioms[e, i, j].reshape(-1)]))
            place = np.arange(length)
            groups.append((betas[e, place, place], [sums[e, place, place]]))
            i, k, j = split_places(length)
            groups.append((betas[e, i, j], [sums[e, i, j], betas[e, i, k], betas[e, k + 1, j]]))
            groups.append((np.array([first_goal + e]), [betas[e, 0, length - 1 : length]]))
        return pack_edges(groups)

    def rest(self) -> tuple[np.ndarray, np.ndarray, _Chart]:
        """(axiom rows, goals, labels)."""
        b = self.trees.size[0]
        goals = self.num_axioms + 2 * self.cells + np.arange(b)
        return np.arange(self.num_axioms), goals, self


def _item(name: str, index: int, shape: tuple[int, ...]) -> Item:
    return Item(name, tuple(int(x) for x in np.unravel_index(index, shape)))


def split_places(length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All (i, k, j) with 0 <= i <= k < j < length, by width of i..j."""
    i, k, j = np.meshgrid(*[np.arange(length)] * 3, indexing="ij")
    good = (i <= k) & (k < j)
    order = np.argsort((j - i)[good], kind="stable")
    return i[good][order], k[good][order], j[good][order]


def pack_edges(
    groups: list[tuple[np.ndarray, list[np.ndarray]]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(heads, tail_offsets, tails) of groups of edges with equally many tails."""
    heads = np.concatenate([np.empty(0, int), *(h for h, _ in groups)]).astype(np.int32)
    arity = np.concatenate([np.empty(0, int), *(np.full(len(h), len(t)) for h, t in groups)])
    tails = [np.stack(t, axis=1).reshape(-1) for _, t in groups]
    offsets = np.concatenate([[0], np.cumsum(arity)]).astype(np.int64)
    return heads, offsets, np.concatenate([np.empty(0, int), *tails]).astype(np.int32)


def catalan(n: int) -> int:
    """The number of binary trees with n + 1 leaves."""
    return comb(2 * n, n) // (n + 1)
