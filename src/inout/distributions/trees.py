"""What distributions over binary trees share: the encoding of trees, checks, decoding by recall."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout._core.checks import at_least
from inout._core.errors import ArgumentError, ForestError
from inout.distributions.arguments import broadcasts, checked_lengths
from inout.distributions.base import Potentials, StructuredDistribution
from inout.forest import Forest
from inout.kernels.spans import op as spans
from inout.kernels.tiers import choose_tier

MAX_SUPPORT = 1_000_000


class TreeDistribution(StructuredDistribution):
    """Binary trees over the positions of each element, as tensors of labelled spans.

    An event is an integer tensor [*b n n]: entry [i, j] is the label of the span from i to j
    inclusive if the tree has that span, and -1 if not. Nothing outside i <= j < length may be
    anything but -1. Where an element has no tree at all, decoding gives -1 everywhere.
    """

    lengths: Tensor
    tier: str

    def _set_shape(
        self,
        batch_shape: torch.Size,
        n: int,
        lengths: Tensor | None,
        tier: str | None,
        device: torch.device,
    ) -> None:
        """Checks the lengths and the tier, and fixes batch and event shape."""
        self.lengths = checked_lengths(lengths, batch_shape, n, device)
        self.tier = choose_tier(device, tier)
        torch.distributions.Distribution.__init__(
            self, batch_shape, torch.Size([n, n]), validate_args=False
        )

    @property
    def _spans(self) -> Bool[Tensor, "*b n n"]:
        """Which spans i..j an element can have: i <= j < length."""
        n = self.event_shape[0]
        ordered = torch.ones(n, n, dtype=torch.bool, device=self.lengths.device).triu()
        return self._real[..., None, :] & ordered

    @property
    def _flat_lengths(self) -> Int[Tensor, " b"]:
        """Lengths [b] of at least 1, as the kernels want them."""
        return self.lengths.reshape(-1).clamp(min=1)

    def _checked_tree(self, event: Tensor, *, labels: int) -> tuple[Tensor, Tensor]:
        """An event [*s *b n n], expanded, and where its spans are split; a complaint if no tree."""
        n = self.event_shape[0]
        wanted = [*self.batch_shape, n, n]
        samples = event.shape[: max(event.ndim - len(wanted), 0)]
        fits = event.shape[-2:] == (n, n) and broadcasts(event.shape, [*samples, *wanted])
        if not fits or event.is_floating_point():
            raise ArgumentError(
                f"a tree must be integers [..., {', '.join(map(str, wanted))}], "
                f"the labels of its spans. Got {event.dtype} {list(event.shape)}"
            )
        event = event.expand(*samples, *wanted)
        if bool(((event < -1) | (event >= labels)).any()):
            raise ArgumentError(f"labels must be in 0..{labels - 1}, or -1 where no span is")
        lengths = self.lengths.expand(event.shape[:-2]).reshape(-1)
        # Where no tree is possible none may be what decoding returned.
        flat = (event >= 0).reshape(len(lengths), n, n)
        splits, good = spans.splits_of(flat, lengths)
        good = good | ~flat.flatten(1).any(1)
        if not bool(good.all()):
            place = int((~good).nonzero()[0, 0])
            raise ArgumentError(
                f"the labelled spans must form a binary tree over the element's length. "
                f"Those of number {place} (of {len(good)}) do not"
            )
        return event.long(), splits.reshape(event.shape)

    def _no_tree(self, event: Tensor) -> Bool[Tensor, "*sb"]:
        """Whether an event is -1 everywhere."""
        return (event < 0).flatten(-2).all(-1)

    @property
    def _empty(self) -> bool:
        """Whether there is nothing to compute."""
        return self.event_shape[0] == 0 or self.batch_shape.numel() == 0

    def _nothing(self, *leading: int) -> Tensor:
        """Events without any span."""
        shape = (*leading, *self.batch_shape, *self.event_shape)
        return torch.full(shape, -1, device=self.lengths.device)

    def _draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Labelled trees [count b n n] from the family's kernel."""
        raise NotImplementedError

    def _sample(self, count: int, generator: torch.Generator) -> Int[Tensor, "m *b n n"]:
        if self._empty or count == 0:
            events = self._nothing(count)
        else:
            events = self._draw(count, generator).reshape(
                count, *self.batch_shape, *self.event_shape
            )
        if bool(self._no_tree(events).any()):
            raise ForestError("an element of the batch has no possible tree to sample")
        return events

    def topk(self, k: int) -> tuple[Int[Tensor, "k *b n n"], Float[Tensor, " k *b"]]:
        """The k most probable trees, best first, and their log-probabilities.

        Where an element has fewer than k, the rest has no spans and log-probability -inf. The
        log-probabilities are differentiable.
        """
        k = at_least("k", k, 1)
        if self._empty:
            events = self._nothing(k)
            scores = torch.full((k, *self.batch_shape), -torch.inf, device=events.device)
        else:
            with torch.no_grad():
                flat, flat_scores = self._k_best(k)
            events = flat.reshape(k, *self.batch_shape, *self.event_shape)
            scores = flat_scores.reshape(k, *self.batch_shape)
        return events, torch.where(scores == -torch.inf, -torch.inf, self.log_prob(events))

    def _k_best(self, k: int) -> tuple[Int[Tensor, "k b n n"], Float[Tensor, "k b"]]:
        """The k best trees and their scores in float64; fewer: -1 everywhere, and -inf."""
        raise NotImplementedError

    def _best_recall(
        self, gains: Float[Tensor, "*b n n"], labels: Int[Tensor, "*b n n"]
    ) -> Int[Tensor, "*b n n"]:
        """The labelled tree with the highest sum of gains over its spans."""
        n = self.event_shape[0]
        flat = gains.reshape(-1, n, n)
        chosen = spans.best_tree(flat, self._flat_lengths).reshape(labels.shape)
        impossible = (self.log_partition() == -torch.inf)[..., None, None]
        return torch.where(chosen & ~impossible, labels, -1)

    def _check_enumerable(self, count: int) -> None:
        n = self.event_shape[0]
        if bool((self.lengths != n).any()):
            raise ArgumentError("enumerate_support needs all elements to have the full length")
        if count > MAX_SUPPORT:
            raise ArgumentError(f"there are {count} trees, more than {MAX_SUPPORT}")

    def _labelled(self, inner: range, leaves: range) -> Int[Tensor, "m n n"]:
        """All trees over n positions, with labels from `leaves` at width 1 and `inner` above."""
        n = self.event_shape[0]
        events = []
        for tree in bracketings(0, n - 1) if n > 0 else ():
            places = np.array(tree).T
            choices = [leaves if i == j else inner for i, j in tree]
            for labels in product(*choices):
                event = np.full((n, n), -1, np.int64)
                event[places[0], places[1]] = labels
                events.append(event)
        return torch.from_numpy(np.array(events, np.int64).reshape(-1, n, n))

    def _for_batch(self, events: Tensor, expand: bool) -> Tensor:
        """Events [m n n] as [m *b n n], or with dimensions of size 1 for the batch."""
        events = events.reshape(-1, *(1,) * len(self.batch_shape), *self.event_shape)
        events = events.to(self.lengths.device)
        return events.expand(-1, *self.batch_shape, *self.event_shape) if expand else events


def unrelated_zero(potentials: Potentials) -> Float[Tensor, ""]:
    """0 with gradient 0 in all potentials, for a log Z that depends on none of them."""
    total: Tensor = sum(p[..., :0].sum() for p in potentials.values())  # type: ignore[assignment]
    return total


def used_rows(forest: Forest, k: int) -> Iterator[list[tuple[float, np.ndarray]]]:
    """Of each goal's k best derivations: (score, rows of the relations chained that it uses)."""
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
