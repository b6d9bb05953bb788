"""The common part of distributions over trees, and that of binary ones: checks, decoding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from copy import copy
from functools import cache
from itertools import product
from math import comb

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout._core.tracing import any_seen
from inout.distributions.arguments import Lengths, checked_lengths, checked_range, refuse_misfits
from inout.distributions.base import StructuredDistribution
from inout.distributions.derivatives import Potentials
from inout.forest import Forest
from inout.kernels.recomputing import Memory, group_size, log_partition_by_groups
from inout.kernels.spans import op as spans
from inout.kernels.tiers import choose_tier


class TreeDistribution(StructuredDistribution):
    """Trees over the positions of each element, of which there are none over no positions.

    Scoring ignores the padding beyond an element's length. If an element has no tree, decoding
    gives -1 everywhere.
    """

    event_name = "tree"
    _blank = -1
    most_events = 10**6

    def _set_shape(
        self,
        batch_shape: torch.Size,
        event_shape: tuple[int, ...],
        lengths: Lengths | None,
        tier: str | None,
        device: torch.device,
    ) -> None:
        """Check the lengths and the tier, and set batch and event shape [n ...]."""
        self.lengths = checked_lengths(lengths, batch_shape, event_shape[0], device)
        self._whole = lengths is None and event_shape[0] > 0  # so no element is empty
        self.tier = choose_tier(device, tier)
        torch.distributions.Distribution.__init__(
            self, batch_shape, torch.Size(event_shape), validate_args=False
        )

    @property
    def _flat_lengths(self) -> Int[Tensor, " b"]:
        """Lengths [b] of at least 1, as the kernels need them."""
        lengths = self.lengths.reshape(-1)
        return lengths if self._whole else lengths.clamp(min=1)

    def _no_tree(self, event: Tensor) -> Bool[Tensor, "*sb"]:
        """Whether an event is -1 everywhere."""
        return (event < 0).flatten(-len(self.event_shape)).all(-1)

    @property
    def _empty(self) -> bool:
        """Whether there is nothing to compute."""
        return self.event_shape[0] == 0 or self.batch_shape.numel() == 0

    def _nothing(self, *leading: int) -> Tensor:
        """Events that are no tree."""
        shape = (*leading, *self.batch_shape, *self.event_shape)
        return torch.full(shape, -1, device=self.lengths.device)

    def _k_best(self, k: int) -> tuple[Int[Tensor, "k b ..."], Float[Tensor, "k b"]]:
        """The k best trees and their scores; fewer: -1 everywhere, and -inf."""
        if not self._empty:
            return self._k_best_trees(k)
        b = self.batch_shape.numel()
        scores = torch.full((k, b), -torch.inf, device=self.lengths.device)
        return self._nothing(k).reshape(k, b, *self.event_shape), scores

    @abstractmethod
    def _k_best_trees(self, k: int) -> tuple[Int[Tensor, "k b ..."], Float[Tensor, "k b"]]:
        """`_k_best` of a non-empty batch."""

    def _draw(self, count: int, seed: int) -> tuple[Int[Tensor, "m b ..."], Bool[Tensor, " b"]]:
        if self._empty or count == 0:
            trees = self._nothing(count).reshape(count, self.batch_shape.numel(), *self.event_shape)
        else:
            trees = self._draw_trees(count, seed)
        return trees, ~self._no_tree(trees).any(0)

    def _draw_distinct(
        self, k: int, seed: int
    ) -> tuple[Tensor, Float[Tensor, "k b"], Float[Tensor, " b"]]:
        if self._empty:
            trees, keys = self._k_best(k)
            return trees, keys, keys[0]
        return super()._draw_distinct(k, seed)

    @abstractmethod
    def _draw_trees(self, count: int, seed: int) -> Int[Tensor, "m b ..."]:
        """`_draw` of a non-empty batch; -1 everywhere if an element has no tree."""


class BinaryTreeDistribution(TreeDistribution):
    """Binary trees over the positions of each element, as tensors of labelled spans.

    An event is an integer tensor [*b n n]: entry [i, j] is the label of the span from i to j
    inclusive if the tree has that span, and -1 if not.
    """

    memory: Memory

    @property
    def _spans(self) -> Bool[Tensor, "*b n n"]:
        """Which spans i..j an element can have: i <= j < length."""
        n = self.event_shape[0]
        ordered = torch.ones(n, n, dtype=torch.bool, device=self.lengths.device).triu()
        return self._real[..., None, :] & ordered

    @property
    @abstractmethod
    def _needs(self) -> tuple[int, int]:
        """Bytes that log Z and its gradient take for each element, and in all besides."""

    @abstractmethod
    def _log_partition_at_once(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        """`_log_partition` with all charts in memory."""

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        count = self.batch_shape.numel()
        size = group_size(self.memory, count, *self._needs)
        if size >= count or self.event_shape[0] < 2:
            return self._log_partition_at_once(potentials)
        shapes = self._part_shapes
        batched = [p.ndim > len(shapes[name]) for name, p in potentials.items()]
        flat = [
            p.expand(self.batch_shape + shapes[name]).reshape(count, *shapes[name]) if own else p
            for own, (name, p) in zip(batched, potentials.items(), strict=True)
        ]
        lengths = self.lengths.reshape(-1)

        def of_group(lo: int, hi: int, *own: Tensor) -> Tensor:
            group = copy(self)
            group.lengths, group._batch_shape = lengths[lo:hi], torch.Size([hi - lo])
            group.potentials = dict(zip(potentials, own, strict=True))
            return group._log_partition_at_once(group.potentials)

        log_z = log_partition_by_groups(of_group, size, count, flat, batched)
        return log_z.reshape(self.batch_shape)

    def _splits(self, event: Int[Tensor, "*sb n n"]) -> tuple[Tensor, Bool[Tensor, "*sb"]]:
        """Where spans [*s *b n n] are split, and whether they are a binary tree of each element."""
        lengths = self.lengths.expand(event.shape[:-2]).reshape(-1)
        flat = (event >= 0).reshape(len(lengths), *self.event_shape)
        splits, good = spans.splits_of(flat, lengths)
        return splits.reshape(event.shape), good.reshape(event.shape[:-2])

    def _is_tree(self, event: Int[Tensor, "*sb n n"], *, labels: int) -> Bool[Tensor, "*sb"]:
        """Whether spans are a binary tree over one position or more, with labels in range."""
        in_range = ((event >= -1) & (event < labels)).flatten(-2).all(-1)
        return self._splits(event)[1] & in_range & (self.lengths > 0)

    def _checked_tree(self, event: Tensor, *, labels: int) -> tuple[Tensor, Tensor]:
        """An event [*s *b n n], expanded, with -1 in the padding, and where its spans are split."""
        n = self.event_shape[0]
        wanted = [*self.batch_shape, n, n]
        refuse_misfits("trees", event, wanted, fixed=2)
        samples = event.shape[: event.ndim - len(wanted)] if event.ndim > len(wanted) else ()
        real = self._real[..., None] & self._real[..., None, :]
        event = event.long().expand(*samples, *wanted).where(real, -1)
        checked_range("labels", event, -1, labels)
        splits, good = self._splits(event)
        # If no tree is possible, the event may be the empty one that decoding returns.
        good = (good | self._no_tree(event)).reshape(-1)
        if any_seen(~good):
            place = int((~good).nonzero()[0, 0])
            raise ArgumentError(
                "event",
                f": the labelled spans must form a binary tree over the element's length. "
                f"Those of number {place} (of {len(good)}) do not",
            )
        return event, splits

    def _best_recall(
        self, gains: Float[Tensor, "*b n n"], labels: Int[Tensor, "*b n n"]
    ) -> Int[Tensor, "*b n n"]:
        """The labelled tree with the highest sum of gains over its spans."""
        n = self.event_shape[0]
        flat = gains.reshape(-1, n, n)
        chosen = spans.best_tree(flat, self._flat_lengths).reshape(labels.shape)
        impossible = (self.log_partition() == -torch.inf)[..., None, None]
        return torch.where(chosen & ~impossible, labels, -1)

    def _labelled(self, n: int, inner: range, leaves: range) -> Int[Tensor, "m n n"]:
        """All trees over n positions, with labels from `leaves` at width 1 and `inner` above."""
        self._refuse_many(catalan(n - 1) * len(inner) ** (n - 1) * len(leaves) ** n if n else 0)
        events = []
        for tree in bracketings(0, n - 1) if n > 0 else ():
            places = np.array(tree).T
            choices = [leaves if i == j else inner for i, j in tree]
            for labels in product(*choices):
                event = np.full((n, n), -1, np.int64)
                event[places[0], places[1]] = labels
                events.append(event)
        return torch.from_numpy(np.array(events, np.int64).reshape(-1, n, n))


def catalan(n: int) -> int:
    """The number of binary trees with n + 1 leaves."""
    return comb(2 * n, n) // (n + 1)


def split_places(length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All (i, k, j) with 0 <= i <= k < j < length, by width of i..j."""
    i, k, j = np.meshgrid(*[np.arange(length)] * 3, indexing="ij")
    good = (i <= k) & (k < j)
    order = np.argsort((j - i)[good], kind="stable")
    return i[good][order], k[good][order], j[good][order]


def summed_labels(labels: Float[Tensor, "*e s"]) -> Float[Tensor, "*e"]:
    """Log of the total weight of the labels of each part, in float64.

    Charts add up O(n) of them: float32 would lose too much if they are large.
    """
    # Without shifting impossible parts by 0 their derivatives would be NaN.
    top = labels.detach().amax(-1, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)
    total = (labels - top).exp().sum(-1)
    dead = total == 0
    total = torch.where(dead, 1.0, total).double().log() + top[..., 0].double()
    return torch.where(dead, -torch.inf, total)


def unrelated_zero(potentials: Potentials) -> Float[Tensor, ""]:
    """0 with gradient 0 in all potentials, for a log Z that depends on none of them."""
    total: Tensor = sum(p[..., :0].sum() for p in potentials.values())  # type: ignore[assignment]
    return total


def used_rows(forest: Forest, k: int) -> Iterator[list[tuple[float, np.ndarray]]]:
    """For each goal's k best derivations: (score, rows of the concatenated relations)."""
    arrays, rows = forest.arrays, forest.axiom_rows.cpu().numpy()
    best = forest.kbest(k)
    for trees in best if isinstance(best, list) else [best]:
        found = []
        for tree in trees:
            tails = np.concatenate(
                [
                    arrays.tails[arrays.tail_offsets[e] : arrays.tail_offsets[e + 1]]
                    for e in tree.edges
                ]
            )
            found.append((tree.log_weight, rows[tails[tails < arrays.num_axioms]]))
        yield found


@cache
def bracketings(i: int, j: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """All binary trees over i..j as their spans in preorder; there are Catalan(j - i) of them."""
    if i == j:
        return (((i, i),),)
    return tuple(
        ((i, j), *left, *right)
        for k in range(i, j)
        for left in bracketings(i, k)
        for right in bracketings(k + 1, j)
    )
