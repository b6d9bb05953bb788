"""`DependencyTree`: distributions over dependency trees."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import expect, expect_shape
from inout._core.errors import ArgumentError, ForestError
from inout._core.tracing import is_readable
from inout.distributions import arguments
from inout.distributions.charts import chart_forest
from inout.distributions.dependency_forest import all_heads, count_of, edges, used_heads
from inout.distributions.derivatives import Potentials
from inout.distributions.distinct import Used
from inout.distributions.trees import TreeDistribution, summed_labels, unrelated_zero
from inout.forest import Forest
from inout.forest.labels import BlockLabels
from inout.kernels.arborescences import op as arborescences
from inout.kernels.arborescences.generating import generating_function as crossing_function
from inout.kernels.arborescences.reference import reference_log_partition as crossing_reference
from inout.kernels.arborescences.taylor import log_series
from inout.kernels.dependencies import op
from inout.kernels.dependencies.generating import Parts, generating_function
from inout.kernels.dependencies.reference import real_arcs, real_siblings, reference_log_partition
from inout.series.lanes import Lanes


class DependencyTree(TreeDistribution):
    """Dependency trees, p(tree) proportional to exp(sum of the potentials of its arcs).

    `arcs` [*b n n] scores each word (first index) as the head of each other word (second), `root`
    [*b n] each word below the root. With labels, `arcs` are [*b n n s] and `root` is [*b n s];
    `labelled=True` says so where the sizes leave it open: where the last batch dimension, n and s
    are the same. What is -inf is forbidden. A word's arc to itself and the padding are never read.

    Trees are projective, without crossing arcs, unless `projective` is False, and have one root
    word unless `single_root` is False. `siblings` [*b n n n], for projective trees, score pairs of
    neighbouring dependents of one word on one side of it: head, dependent, and the dependent
    before it, between the two. An element of length 0 has no tree: log Z = -inf.

    Events are the heads [*b n] as in CoNLL files: 0 for the root, j for the j-th word, -1 in the
    padding. With labels they are [*b n 2]: the head of each word, and the label of its arc.
    Trees of both kinds take O(b n² s + b n³) time: Eisner's algorithm, and the matrix-tree theorem,
    by an elimination that subtracts nothing, so that no weights are too far apart. Non-projective
    trees have every query but `forest`, `inside` and `outside`. Half precision is computed in
    float32; `tier="reference"` runs plain torch code instead of the compiled kernels.

    >>> import torch
    >>> trees = DependencyTree(torch.zeros(3, 3), torch.zeros(3))
    >>> trees.log_partition().exp()  # with one root word and without crossing arcs
    tensor(7.)
    >>> trees.marginals()["root"]
    tensor([0.4286, 0.1429, 0.4286])
    >>> DependencyTree(torch.zeros(3, 3), torch.zeros(3), projective=False).log_partition().exp()
    tensor(9.)
    """

    family = "DependencyTree"
    options = ("projective", "single_root", "labelled")

    def __init__(
        self,
        arcs: Float[Tensor, " ..."],
        root: Float[Tensor, " ..."],
        lengths: arguments.Lengths | None = None,
        projective: bool = True,
        single_root: bool = True,
        *,
        siblings: Float[Tensor, "*b n n n"] | None = None,
        labelled: bool | None = None,
        tier: str | None = None,
    ) -> None:
        arguments.refuse_non_tensors(arcs=arcs, root=root, siblings=siblings)
        self.projective, self.single_root = bool(projective), bool(single_root)
        self.labelled = _has_labels(arcs, root, labelled)
        own = 3 if self.labelled else 2
        batch_shape, n = arcs.shape[:-own], arcs.shape[-own]
        event_shape = (n, 2) if self.labelled else (n,)
        self._set_shape(batch_shape, event_shape, lengths, tier, arcs.device)
        lasting = (..., *[None] * self.labelled)
        arguments.refuse_bad_values("arcs", arcs, lambda: self._real_arcs[..., 1:, :][lasting])
        arguments.refuse_bad_values("root", root, lambda: self._real_arcs[..., 0, :][lasting])
        potentials = {"arcs": arcs, "root": root}
        if siblings is not None:
            if not projective:
                raise ArgumentError("siblings", "must be None for non-projective trees")
            expect_shape("siblings", siblings, (*batch_shape, n, n, n))
            arguments.refuse_bad_values("siblings", siblings, self._real_siblings)
            potentials["siblings"] = siblings
        self.potentials = arguments.of_one_dtype(potentials)

    @property
    def size(self) -> tuple[int, int, int]:
        """(elements in all, positions, labels)."""
        return self.batch_shape.numel(), self.event_shape[0], self._labels or 1

    @property
    def _labels(self) -> int:
        """How many labels arcs have, 0 for none."""
        return self.potentials["arcs"].shape[-1] if self.labelled else 0

    @property
    def _real_entries(self) -> Bool[Tensor, " ..."]:
        real = self._real[..., None] if self.labelled else self._real
        return real.expand(self.batch_shape + self.event_shape)

    @property
    def _real_arcs(self) -> Bool[Tensor, "*b h n"]:
        """Which arcs trees may have, the first row being the root's."""
        n = self.event_shape[0]
        return real_arcs(n, self.lengths.reshape(-1)).reshape(*self.batch_shape, n + 1, n)

    @property
    def _real_siblings(self) -> Bool[Tensor, "*b n n n"]:
        n = self.event_shape[0]
        return real_siblings(n, self.lengths.reshape(-1)).reshape(*self.batch_shape, n, n, n)

    def _table(self, values: Potentials) -> Tensor:
        """Values [..., n+1 n] or [..., n+1 n s] of all arcs, those of the root first."""
        arcs, root = values["arcs"], values["root"]
        dim = -3 if self.labelled else -2
        return torch.cat([root.unsqueeze(dim), arcs], dim)

    def _masked(self, potentials: Potentials) -> Float[Tensor, "*b h n s"]:
        """The potentials by label, -inf for what no tree has."""
        table = self._table(potentials)
        table = table if self.labelled else table[..., None]
        return table.where(self._real_arcs[..., None], -torch.inf)

    def _scores(self, potentials: Potentials) -> Float[Tensor, "b h n"]:
        """Log of the total weight of the labels of each arc, in float64."""
        _, n, _ = self.size
        if self.labelled:
            scores = summed_labels(self._masked(potentials))
        else:
            if not self._whole:
                # Elements without words count as one word until the end: no NaN of their padding.
                root = potentials["root"].where(self.lengths[..., None] > 0, 0.0)
                potentials = potentials | {"root": root}
            scores = self._table(potentials).double()
        return scores.reshape(-1, n + 1, n)

    def _second(self, potentials: Potentials) -> Float[Tensor, "b n n n"] | None:
        """The scores of siblings in float64, if there are any."""
        if "siblings" not in potentials:
            return None
        n = self.event_shape[0]
        return potentials["siblings"].double().reshape(-1, n, n, n)

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        dtype = potentials["arcs"].dtype
        if self._empty:
            nothing = potentials["arcs"].new_full(self.batch_shape, -torch.inf)
            return nothing + unrelated_zero(potentials)
        scores, siblings = self._scores(potentials), self._second(potentials)
        plain = self.tier == "reference"
        if self.projective:
            log_z = reference_log_partition if plain else op.log_partition
            result = log_z(scores, self._flat_lengths, self.single_root, siblings)
        else:
            other = crossing_reference if plain else arborescences.log_partition
            result = other(scores, self.lengths.reshape(-1), self.single_root)
        result = result.reshape(self.batch_shape).to(dtype)
        return result if self._whole else torch.where(self.lengths == 0, -torch.inf, result)

    def _generating(
        self, lanes: Lanes, values: Potentials, shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        b, n, s = self.size
        own = {
            name: values[name].expand(-1, b, *shape) for name, shape in self._part_shapes.items()
        }
        table = self._table(own)
        table = table if self.labelled else table[..., None]
        arcs = self._table(self.potentials).reshape(b, n + 1, n, s)
        lengths = self.lengths.reshape(-1)
        if not self.projective:
            x, centres = crossing_function(lanes, arcs, lengths, self.single_root, table, shift)
            return torch.where(lengths == 0, 0.0, x), centres
        parts = Parts(arcs, self._second(self.potentials))
        own_parts = Parts(table, own.get("siblings"))
        return generating_function(lanes, parts, lengths, self.single_root, own_parts, shift)

    def _log_series(self, orders: tuple[int, ...], values: Potentials) -> Inexact[Tensor, "l b"]:
        if self.projective:
            return super()._log_series(orders, values)
        b, n, s = self.size
        own = self._table(
            {name: values[name].expand(-1, b, *shape) for name, shape in self._part_shapes.items()}
        )
        arcs = self._table(self.potentials).reshape(b, n + 1, n, s)
        own = own.reshape(len(orders), b, n + 1, n, s)
        found = log_series(orders, arcs, self.lengths.reshape(-1), self.single_root, own)
        # Without words there is no tree, so log 0.
        return torch.where(self.lengths.reshape(-1) == 0, torch.zeros_like(found).log(), found)

    def _read(self, event: Tensor) -> tuple[Int[Tensor, "*sb n"], Int[Tensor, "*sb n"]]:
        """Heads and labels of an event, expanded, with -1 in the padding; without labels, 0."""
        _, n, s = self.size
        wanted = [*self.batch_shape, *self.event_shape]
        arguments.refuse_misfits("heads", event, wanted, fixed=len(self.event_shape))
        samples = event.shape[: max(event.ndim - len(wanted), 0)]
        event = event.long().expand(*samples, *wanted).where(self._real_entries, -1)
        heads, labels = self._heads_and_labels(event)
        arguments.checked_range("heads", heads, -1, n + 1)
        arguments.checked_range("labels", labels, -1, s)
        if is_readable(heads, labels):
            self._refuse_non_trees(heads, labels)
        return heads, labels

    def _heads_and_labels(self, event: Tensor) -> tuple[Int[Tensor, "*sb n"], Int[Tensor, "*sb n"]]:
        heads, labels = event.unbind(-1) if self.labelled else (event, event.clamp(max=0))
        return heads, labels

    def _are_trees(
        self, heads: Int[Tensor, "*sb n"], labels: Int[Tensor, "*sb n"], lengths: Int[Tensor, "*sb"]
    ) -> Bool[Tensor, "*sb"]:
        """Whether heads and labels form trees of this kind over so many words."""
        flat = heads.reshape(lengths.numel(), self.size[1])
        found = op.faults(flat, lengths.reshape(-1)).reshape(lengths.shape)
        bad = (found & (1 + 2 * self.single_root + 4 * self.projective)) > 0
        return ~bad & ((heads < 0) == (labels < 0)).all(-1)

    def _is_event(self, event: Tensor) -> Bool[Tensor, "*sb"]:
        heads, labels = self._heads_and_labels(event)
        lengths = self.lengths.expand(heads.shape[:-1])
        in_range = ((labels >= -1) & (labels < self.size[2])).all(-1)
        return self._are_trees(heads, labels, lengths) & in_range & (lengths > 0)

    def _refuse_non_trees(self, heads: Int[Tensor, "*sb n"], labels: Int[Tensor, "*sb n"]) -> None:
        """Raise unless all events are trees, or all -1."""
        # If no tree is possible, the event may be the empty one that decoding returns.
        empty = (heads < 0).all(-1) & (labels < 0).all(-1)
        lengths = self.lengths.expand(empty.shape).where(~empty, 0)
        bad = ~self._are_trees(heads, labels, lengths)
        if bool(bad.any()):
            kind = "projective tree" if self.projective else "tree"
            roots = "one root word" if self.single_root else "root words"
            place = int(bad.reshape(-1).nonzero()[0, 0])
            raise ArgumentError(
                "event",
                f": the heads must form a {kind} with {roots} over the element's length. "
                f"Those of number {place} (of {bad.numel()}) do not",
            )

    def _inner(self, heads: Int[Tensor, "*sb n"]) -> Int[Tensor, "*sb n"]:
        """The sibling, from 0, between each word and its head that is next to it; -1 if none."""
        place = torch.arange(1, heads.shape[-1] + 1, device=heads.device)
        low, high = torch.minimum(heads, place), torch.maximum(heads, place)
        between = (low[..., None] < place) & (place < high[..., None])
        own = between & (heads[..., None] == heads[..., None, :]) & (heads[..., None] > 0)
        far = (place[:, None] - place).abs().where(own, len(place) + 1)
        return far.argmin(-1).where(own.any(-1), -1) if len(place) else heads

    def _pairs(self, heads: Int[Tensor, "*sb n"]) -> tuple[Int[Tensor, "*sb n"], Tensor]:
        """Places of the siblings of a tree in [n n n], flat, 0 for none; and which there are."""
        n, inner = heads.shape[-1], self._inner(heads)
        word = torch.arange(n, device=heads.device)
        return (((heads - 1) * n + word) * n + inner).where(inner >= 0, 0), inner >= 0

    def _chosen(
        self, table: Tensor, heads: Int[Tensor, "*sb n"], labels: Int[Tensor, "*sb n"]
    ) -> Tensor:
        """Entries [*sb n] of a table [... n+1 n s] at the arcs of a tree, anything in padding."""
        table = table.expand(*heads.shape[:-1], *table.shape[-3:])
        rows = heads.clamp(min=0)[..., None, :, None].expand(
            *heads.shape[:-1], 1, -1, table.shape[-1]
        )
        found = table.gather(-3, rows)[..., 0, :, :]
        return found.gather(-1, labels.clamp(min=0)[..., None])[..., 0]

    def _score(self, event: Tensor) -> Float[Tensor, "*sb"]:
        heads, labels = self._read(event)
        table = self._table(self.potentials)
        values = self._chosen(table if self.labelled else table[..., None], heads, labels)
        score = values.where(heads >= 0, 0.0).sum(-1)
        if "siblings" in self.potentials:
            places, some = self._pairs(heads)
            given = self.potentials["siblings"].flatten(-3)
            given = given.expand(*heads.shape[:-1], given.shape[-1])
            score = score + given.gather(-1, places).where(some, 0.0).sum(-1)
        return torch.where((heads < 0).all(-1), -torch.inf, score)

    def parts(self, event: Tensor) -> Potentials:
        """Indicators of the arcs of a tree [*s *b n n], or by label, of root words, of siblings."""
        heads, labels = self._read(event)
        dtype = self.potentials["arcs"].dtype
        rows = torch.arange(heads.shape[-1] + 1, device=heads.device)
        table = heads[..., None, :] == rows[:, None]
        if self.labelled:
            table = table[..., None] & (
                labels[..., None, :, None] == torch.arange(self.size[2], device=heads.device)
            )
        dim = -3 if self.labelled else -2
        arcs, root = table.narrow(dim, 1, heads.shape[-1]), table.select(dim, 0)
        parts = {"arcs": arcs.to(dtype), "root": root.to(dtype)}
        if "siblings" in self.potentials:
            places, some = self._pairs(heads)
            flat = torch.zeros(*heads.shape[:-1], heads.shape[-1] ** 3, dtype=dtype)
            flat = flat.to(heads.device).scatter_add(-1, places, some.to(dtype))
            parts["siblings"] = flat.reshape(*heads.shape[:-1], *[heads.shape[-1]] * 3)
        return parts

    def _tree(
        self, heads: Int[Tensor, "*m b n"], labels: Int[Tensor, "b h n"]
    ) -> Int[Tensor, " ..."]:
        """Trees with given heads; the labels are given for every arc."""
        if not self.labelled:
            return heads
        own = self._chosen(labels[..., None], heads, torch.zeros_like(heads))
        return torch.stack([heads, own.where(heads >= 0, -1)], -1)

    def _best(self, table: Float[Tensor, "*b h n s"], siblings: Tensor | None) -> Tensor:
        """The tree with the highest sum of these scores."""
        _, n, _ = self.size
        best, labels = table.double().reshape(-1, n + 1, n, table.shape[-1]).max(-1)
        if self.projective:
            heads = op.best_heads(best, self._flat_lengths, self.single_root, siblings)
        else:
            heads = arborescences.best_heads(best, self.lengths.reshape(-1), self.single_root)
        return self._events(self._tree(heads, labels))

    @property
    def mode(self) -> Int[Tensor, " ..."]:
        """The most probable tree. O(b n² s + b n³), or O(b n² s) if arcs may cross."""
        if self._empty:
            return self._nothing()
        with torch.no_grad():
            return self._best(self._masked(self.potentials), self._second(self.potentials))

    def min_risk(self) -> Int[Tensor, " ..."]:
        """The tree with the most expected correct heads, and labels: the best by the marginals."""
        if self._empty:
            return self._nothing()
        with torch.no_grad():
            gains = self._table(self.marginals("arcs", "root"))
            gains = gains if self.labelled else gains[..., None]
            possible = self._masked(self.potentials) > -torch.inf
            chosen = self._best(gains.where(possible, -torch.inf), None)
            alive = (self.log_partition() > -torch.inf).reshape(
                *self.batch_shape, *[1] * len(self.event_shape)
            )
            return chosen.where(alive, -1)

    def _k_best_trees(self, k: int) -> tuple[Int[Tensor, " ..."], Float[Tensor, "k b"]]:
        """By the explicit forest, which has O(n³ + n² s) edges per element, if none may cross."""
        if self.projective:
            heads, labels, scores = used_heads(self.forest(), k, *self.size)
        else:
            b, n, s = self.size
            table = self._masked(self.potentials).reshape(b, n + 1, n, s)
            lengths = self.lengths.reshape(-1)
            heads, labels, scores = arborescences.k_best_arcs(table, lengths, self.single_root, k)
            scores = scores.where(lengths > 0, -torch.inf)
        events = torch.stack([heads, labels], -1) if self.labelled else heads
        device = self.lengths.device
        return events.to(device), scores.to(device)

    def _draw_trees(self, count: int, seed: int) -> Int[Tensor, " ..."]:
        b, n, s = self.size
        scores, siblings = self._scores(self.potentials), self._second(self.potentials)
        lengths, single = self._flat_lengths, self.single_root
        if self.projective:
            heads = op.sample_heads(scores, lengths, single, count, seed, siblings)
        else:
            heads = arborescences.sample_heads(scores, lengths, single, count, seed)
        heads = heads.where((self.lengths.reshape(-1) > 0)[:, None], -1)
        if not self.labelled:
            return heads
        # Given the heads, labels are independent: the largest of randomly perturbed scores.
        table = self._masked(self.potentials).double().reshape(b, n + 1, n, s)
        rows = heads.clamp(min=0)[:, :, None, :, None].expand(-1, -1, -1, -1, s)
        logits = table.expand(count, -1, -1, -1, -1).gather(2, rows)[:, :, 0]
        generator = torch.Generator().manual_seed(seed)
        noise = torch.rand(logits.shape, generator=generator, dtype=logits.dtype).to(logits.device)
        labels = (logits - (-noise.log()).log()).argmax(-1)
        return torch.stack([heads, labels.where(heads >= 0, -1)], -1)

    def _draw_distinct(
        self, k: int, seed: int
    ) -> tuple[Tensor, Float[Tensor, "k b"], Float[Tensor, " b"]]:
        """By the forest, or by one elimination for each word of each tree if arcs may cross."""
        if self.projective or self._empty:
            return super()._draw_distinct(k, seed)
        b, n, s = self.size
        table = self._masked(self.potentials).reshape(b, n + 1, n, s)
        given = table, self._scores(self.potentials), self.lengths.reshape(-1)
        arcs, keys, threshold = arborescences.distinct_arcs(*given, self.single_root, k, seed)
        events = torch.stack([*arcs], -1) if self.labelled else arcs[0]
        some = self.lengths.reshape(-1) > 0
        return events, keys.where(some, -torch.inf), threshold.where(some, -torch.inf)

    def _write_events(self, events: NDArray[np.int64], used: Used) -> None:
        rank, element, head, word, *label = used["arcs"]
        top_rank, top_element, top, *top_label = used["root"]
        values = [(head + 1, np.zeros_like(top)), *zip(label, top_label, strict=True)]
        wide = events if self.labelled else events[..., None]
        for place, (own, own_top) in enumerate(values):
            wide[rank, element, word, place] = own
            wide[top_rank, top_element, top, place] = own_top

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, " ..."]:
        """All trees [m *b n], with labels [m *b n 2], if all lengths are the same."""
        n, s = self._one_length(), self.size[2]
        self._refuse_many(count_of(n, self.projective, self.single_root) * s**n)
        heads = all_heads(n, self.projective, self.single_root)
        if not self.labelled:
            return self._support(heads, expand)
        choices = torch.cartesian_prod(*[torch.arange(s)] * n).reshape(-1, n)
        pairs = torch.stack(
            [heads[:, None].expand(-1, len(choices), -1), choices.expand(len(heads), -1, -1)], -1
        )
        return self._support(pairs.flatten(0, 1), expand)

    def forest(self) -> Forest:
        """The chart as an explicit forest, one goal for each batch element.

        Its relations are the potentials, flattened; gradients flow back to them. Items, for
        positions from 0, the root: right(e, i, j), word i with what depends on it to its right up
        to j; left(e, i, j), the mirror image with head j; gap(e, i, j), the two halves that meet
        between i and j; arc(e, h, d), an arc with all between its ends; link(e, h, d), the sum over
        the labels of an arc. Only of projective trees: others have no inside algorithm.
        """
        if not self.projective:
            raise ForestError(
                "non-projective trees have no forest of polynomial size, nor inside and outside "
                "values; use log_partition, marginals, topk or sample"
            )
        b, n, _ = self.size
        shapes = {name: (b, *shape) for name, shape in self._part_shapes.items()}
        tables = ["link"] * self.labelled + ["gap", "arc", "right", "left"]
        blocks = shapes | dict.fromkeys(tables, (b, n + 1, n + 1)) | {"goal": (b,)}
        items = BlockLabels(blocks)
        # No edge uses the padding, but a forest refuses NaN anywhere.
        table = self._masked(self.potentials)
        table = table if self.labelled else table[..., 0]
        dim = -3 if self.labelled else -2
        relations = {"arcs": table.narrow(dim, 1, n), "root": table.select(dim, 0)}
        if "siblings" in self.potentials:
            given = self.potentials["siblings"]
            relations["siblings"] = given.where(self._real_siblings, -torch.inf)
        groups = edges(items, self.lengths.reshape(-1).tolist(), self.single_root)
        return chart_forest(relations, items, groups, batched=bool(self.batch_shape))


def _has_labels(arcs: Tensor, root: Tensor, labelled: bool | None) -> bool:
    """Whether the shapes are those of potentials with labels."""
    several, one = arcs.shape, root.shape

    def plain() -> bool:
        return len(several) >= 2 and several[-1] == several[-2] and one == several[:-1]

    def fits() -> bool:
        square = len(several) >= 3 and several[-2] == several[-3]
        return square and one == several[:-3] + several[-2:]

    # A size that a graph compares with another is no longer free: only what is asked is compared.
    chosen = (fits() and not plain()) if labelled is None else bool(labelled)
    wanted = "must be [*b n n] with the root [*b n], or [*b n n s] with the root [*b n s]"
    expect(fits() if chosen else plain(), "arcs", wanted, [list(several), list(one)])
    expect(not chosen or several[-1] > 0, "arcs", "must have a label or more", list(several))
    return chosen
