"""`SpanningTree`: distributions over the spanning trees of undirected graphs."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import product

import torch
from jaxtyping import Bool, Float, Inexact, Int
from torch import Tensor

from inout._core.checks import expect
from inout._core.errors import ArgumentError, ForestError
from inout._core.tracing import any_seen
from inout.distributions import arguments
from inout.distributions.base import StructuredDistribution
from inout.distributions.derivatives import Potentials
from inout.forest import Forest
from inout.kernels.arborescences import op
from inout.kernels.arborescences.generating import generating_function
from inout.kernels.arborescences.reference import reference_log_partition
from inout.kernels.arborescences.taylor import log_series
from inout.kernels.tiers import choose_tier
from inout.series.lanes import Lanes


class SpanningTree(StructuredDistribution):
    """Spanning trees of an undirected graph, p(tree) proportional to exp(sum of its edges).

    `edges` [*b n n]: entry [i, j] with i < j scores the edge between the nodes i and j, -inf if
    there is none. Other entries, and those of nodes beyond an element's length, are never read; so
    a symmetric matrix will do. A single node has one tree, without edges; no node has no tree.

    Events are integers [*b n n]: 1 at [i, j] with i < j if the tree has that edge, 0 elsewhere, and
    -1 in the padding; 0 everywhere if a graph is not connected. log Z and its gradient cost O(b n³)
    time, by Kirchhoff's theorem: they are those of arborescences with the first node as the root.
    Half precision is computed in float32; `tier="reference"` runs plain torch code.

    >>> import torch
    >>> trees = SpanningTree(torch.zeros(4, 4))
    >>> trees.log_partition().exp()  # 4 nodes have 4² trees (Cayley)
    tensor(16.)
    >>> trees.marginals()["edges"][0]
    tensor([0.0000, 0.5000, 0.5000, 0.5000])
    """

    event_name = "spanning tree"
    family = "SpanningTree"
    most_events = 10**6

    def __init__(
        self,
        edges: Float[Tensor, "*b n n"],
        lengths: arguments.Lengths | None = None,
        *,
        tier: str | None = None,
    ) -> None:
        arguments.refuse_non_tensors(edges=edges)
        shape = edges.shape
        good = len(shape) >= 2 and shape[-2] == shape[-1]
        expect(good, "edges", "must be [*b n n]", list(shape))
        self.lengths = arguments.checked_lengths(lengths, shape[:-2], shape[-1], edges.device)
        self.tier = choose_tier(edges.device, tier)
        torch.distributions.Distribution.__init__(
            self, shape[:-2], torch.Size(shape[-2:]), validate_args=False
        )
        arguments.refuse_bad_values("edges", edges, self._pairs)
        self.potentials = arguments.of_one_dtype({"edges": edges})

    @property
    def _pairs(self) -> Bool[Tensor, "*b n n"]:
        """Which entries are read: i < j < length."""
        n = self.event_shape[0]
        upper = torch.ones(n, n, dtype=torch.bool, device=self.lengths.device).triu(1)
        return self._real[..., None, :] & upper

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        return {"edges": self.event_shape}

    @property
    def _words(self) -> Int[Tensor, " b"]:
        """Lengths of the elements without their root."""
        return (self.lengths - 1).clamp(min=0).reshape(-1)

    @property
    def _dead(self) -> Bool[Tensor, " b"]:
        return (self.lengths == 0).reshape(-1)

    def _arcs(self, values: Inexact[Tensor, "*k b n n"], none: float) -> Inexact[Tensor, ...]:
        """Values of edges as arcs [*k b heads n-1] both ways, from the first node on."""
        pairs = self._pairs.reshape(self.batch_shape.numel(), *self.event_shape)
        upper = values.where(pairs, 0.0)
        both = (upper + upper.mT).where(pairs | pairs.mT, none)
        return both[..., 1:]

    def _scores(self, potentials: Potentials) -> Float[Tensor, "b heads words"]:
        shape = self.batch_shape.numel(), *self.event_shape
        edges = potentials["edges"].expand(self.batch_shape + self.event_shape)
        return self._arcs(edges.reshape(shape).double(), -torch.inf)

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        log_z = reference_log_partition if self.tier == "reference" else op.log_partition
        scores = self._scores(potentials)
        result = log_z(scores, self._words, False) if scores.numel() else scores.sum((1, 2))
        result = result.to(potentials["edges"].dtype).where(~self._dead, -torch.inf)
        return result.reshape(self.batch_shape)

    def _trees(self, heads: Int[Tensor, "*m b words"]) -> Int[Tensor, "*m b n n"]:
        """The edges between nodes and their heads; none where the heads are -1."""
        shape = (*heads.shape[:-1], *self.event_shape)
        trees = torch.zeros(shape, dtype=torch.long, device=heads.device)
        if not heads.numel():
            return trees
        nodes = torch.arange(1, shape[-1], device=heads.device).expand(heads.shape)
        ends = torch.minimum(heads, nodes).clamp(min=0), torch.maximum(heads, nodes)
        places = ends[0] * shape[-1] + ends[1]
        return trees.flatten(-2).scatter_add_(-1, places, (heads >= 0).long()).reshape(shape)

    @property
    def mode(self) -> Int[Tensor, "*b n n"]:
        """The most probable tree, a maximum spanning tree; O(b n²)."""
        with torch.no_grad():
            heads = op.best_heads(self._scores(self.potentials), self._words, False)
            return self._events(self._trees(heads))

    def _k_best(self, k: int) -> tuple[Int[Tensor, "k b n n"], Float[Tensor, "k b"]]:
        scores = self._scores(self.potentials)[..., None]
        heads, _, found = op.k_best_arcs(scores, self._words, False, k)
        return self._trees(heads), found.where(~self._dead, -torch.inf)

    def _draw(self, count: int, seed: int) -> tuple[Int[Tensor, "m b n n"], Bool[Tensor, " b"]]:
        scores = self._scores(self.potentials)
        heads = op.sample_heads(scores, self._words, False, count, seed)
        return self._trees(heads), self.log_partition().reshape(-1) > -torch.inf

    def _draw_distinct(
        self, k: int, seed: int
    ) -> tuple[Int[Tensor, "k b n n"], Float[Tensor, "k b"], Float[Tensor, " b"]]:
        scores = self._scores(self.potentials)
        arcs, keys, threshold = op.distinct_arcs(
            scores[..., None], scores, self._words, False, k, seed
        )
        some = ~self._dead
        return self._trees(arcs[0]), keys.where(some, -torch.inf), threshold.where(some, -torch.inf)

    def min_risk(self) -> Int[Tensor, "*b n n"]:
        """The tree with the most expected correct edges: the best one by their probabilities."""
        with torch.no_grad():
            return self._supported(self.marginals()).mode

    def _is_tree(self, event: Int[Tensor, "*sb n n"]) -> Bool[Tensor, "*sb"]:
        """Whether entries, 0 in the padding, are the edges of a tree over a node or more."""
        linked = (event + event.mT > 0).double()
        for _ in range(self.event_shape[0].bit_length()):
            linked = ((linked + linked @ linked) > 0).double()
        if not self.event_shape[0]:
            return torch.zeros(event.shape[:-2], dtype=torch.bool, device=event.device)
        reached = linked[..., 0, :].sum(-1)
        tree = (event.sum((-1, -2)) == self.lengths - 1) & (
            (reached == self.lengths) | (self.lengths <= 1)
        )
        return tree & ((event == 0) | ((event == 1) & self._pairs)).flatten(-2).all(-1)

    def _is_event(self, event: Int[Tensor, "*sb n n"]) -> Bool[Tensor, "*sb"]:
        return self._is_tree(event.where(self._real_entries, 0))

    def _checked_tree(self, event: Tensor) -> tuple[Int[Tensor, "*e n n"], Bool[Tensor, "*sb"]]:
        """An event, expanded, with 0 in the padding; and whether it is a tree."""
        wanted = [*self.batch_shape, *self.event_shape]
        arguments.refuse_misfits("trees", event, wanted, fixed=2)
        samples = event.shape[: event.ndim - len(wanted)] if event.ndim > len(wanted) else ()
        event = event.long().expand(*samples, *wanted).where(self._real_entries, 0)
        arguments.checked_range("edges", event, 0, 2)
        none = (event == 0).flatten(-2).all(-1)
        tree = self._is_tree(event)
        if any_seen(~(tree | none)):
            raise ArgumentError(
                "event",
                ": the edges [i, j] with i < j must form a spanning tree of the element's nodes",
            )
        return event, tree

    def _score(self, event: Int[Tensor, "*e n n"]) -> Float[Tensor, "*sb"]:
        event, tree = self._checked_tree(event)
        values = self.potentials["edges"].where(event > 0, 0.0)
        return torch.where(tree, values.sum((-1, -2)), -torch.inf)

    def parts(self, event: Int[Tensor, "*e n n"]) -> Potentials:
        """Indicators [*s *b n n] of the edges."""
        event, _ = self._checked_tree(event)
        return {"edges": event.to(self.potentials["edges"].dtype)}

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "m *b n n"]:
        """All trees [n**(n-2), *b n n], if all lengths are the same; by Prüfer's codes."""
        n = self._one_length()
        self._refuse_many(n ** (n - 2) if n > 1 else n)
        codes = product(range(n), repeat=max(n - 2, 0)) if n else ()
        trees = [_of_code(code, n) for code in codes]
        events = torch.stack(trees) if trees else torch.zeros(0, n, n, dtype=torch.long)
        return self._support(events, expand)

    def _generating(
        self, lanes: Lanes, values: Potentials, shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        scores, own = self._parts_of(values)
        found, centres = generating_function(lanes, scores, self._words, False, own, shift)
        return torch.where(self._dead, 0.0, found), centres

    def _parts_of(self, values: Potentials) -> tuple[Tensor, Tensor]:
        """Scores [b heads words 1] and values [k b heads words 1] of arcs."""
        scores = self._scores(self.potentials)
        own = values["edges"].expand(-1, len(scores), *self.event_shape)
        return scores[..., None], self._arcs(own, 0.0)[..., None]

    def _log_series(self, orders: tuple[int, ...], values: Potentials) -> Inexact[Tensor, "l b"]:
        scores, own = self._parts_of(values)
        return log_series(orders, scores, self._words, False, own)

    def forest(self) -> Forest:
        """Not possible: raises. Spanning trees have no inside algorithm, so no forest either."""
        raise ForestError(
            "spanning trees have no forest of polynomial size, nor inside and outside values; "
            "use log_partition, marginals, topk or sample"
        )


def _of_code(code: tuple[int, ...], n: int) -> Int[Tensor, "n n"]:
    """The tree of a Prüfer code: again and again, the least leaf hangs on the next node."""
    tree = torch.zeros(n, n, dtype=torch.long)
    degrees = [1 + code.count(node) for node in range(n)]
    leaves = [node for node in range(n) if degrees[node] == 1] if n > 1 else []
    heapify(leaves)
    for node in code:
        leaf = heappop(leaves)
        tree[min(leaf, node), max(leaf, node)] = 1
        degrees[node] -= 1
        if degrees[node] == 1:
            heappush(leaves, node)
    if n > 1:
        i, j = sorted((heappop(leaves), heappop(leaves)))
        tree[i, j] = 1
    return tree
