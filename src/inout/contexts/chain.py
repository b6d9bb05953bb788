"""`ContextChain`: distributions over labellings where every label follows a context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import at_least, expect
from inout._core.errors import ArgumentError
from inout._core.tracing import any_seen
from inout.contexts.chain_lattice import ChainEdges, ChainLattice
from inout.contexts.context_set import Context, ContextSet
from inout.distributions import arguments
from inout.distributions.base import StructuredDistribution
from inout.distributions.derivatives import Potentials
from inout.distributions.distinct import Used
from inout.distributions.labels import LabelSequence
from inout.forest import Forest
from inout.kernels.forest import kbest as best_kernel
from inout.kernels.forest import op
from inout.kernels.forest import sample as sampling_kernel
from inout.kernels.forest.generating import generating_function
from inout.kernels.lattice.op import Lattice
from inout.kernels.tiers import choose_tier
from inout.series import Lanes

NAME = "log_potentials"
Score = Callable[[int, Context, int], float | Tensor]


class ContextChain(LabelSequence):
    """Labels of a sequence, each scored given what its context remembers of those before it.

    `log_potentials` [*b n c s]: entry [i, k, y] is the score of label y at position i after
    context number k. `successors` [*b n c s], or a shape that expands to it: the number of the
    context that position i+1 then follows. The first label follows context 0, the beginning. So
    the labels determine the contexts, and p(y) is proportional to exp Σ_i score_i(c_{i-1}, y_i).

    With `ordering` [*b n], step i of this is not about position i but about position ordering[i]:
    a permutation of the positions of each element. Events, `label_marginals`, `contexts_of` and
    `context_mass` have positions as they are; potentials, `parts` and `marginals` have steps.

    Padding, which is ignored: positions beyond `lengths` [*b], contexts that no labels lead to,
    and successors of the last label. -inf is allowed. Events are labels [*b n]: decoding gives -1
    beyond an element's length, scoring ignores the padding.

    Everything is computed on the lattice of contexts, as a forest with an edge for each possible
    (position, context, label): log Z and its gradient cost O(b n c s). Potentials in half
    precision are computed in float32; `tier="reference"` runs plain torch code.

    >>> import torch
    >>> a, b = 0, 1
    >>> sets = [ContextSet([(None,), (a,)])]  # of the first label: whether it is an a
    >>> chain = ContextChain.from_sets(sets, lambda i, c, y: 2.0 * (c == (a,) and y == b), labels=2)
    >>> chain.mode
    tensor([0, 1])
    >>> chain.label_marginals()[0]  # (1 + e²) to 2
    tensor([0.8075, 0.1925], dtype=torch.float64)

    Steinhardt & Liang, "Reified context models" (2015), equations 2 and 3.
    """

    def __init__(
        self,
        log_potentials: Float[Tensor, "*b n c s"],
        successors: Int[Tensor, "*#b #n c s"],
        lengths: arguments.Lengths | None = None,
        *,
        ordering: Int[Tensor, "*#b n"] | None = None,
        tier: str | None = None,
    ) -> None:
        arguments.refuse_non_tensors(log_potentials=log_potentials, successors=successors)
        shape = log_potentials.shape
        wanted = "must be [*b n c s] with at least one context and one label"
        expect(len(shape) >= 3 and 0 not in shape[-2:], NAME, wanted, list(shape))
        fits = arguments.is_integer(successors) and arguments.broadcasts(successors.shape, shape)
        if not fits:
            wanted = f"must be {list(shape)}, as log_potentials are, and integers"
            given = f"{successors.dtype} {list(successors.shape)}"
            raise ArgumentError("successors", f"{wanted}. Got {given}")
        arguments.refuse_non_floats(NAME, log_potentials)
        self.tier = choose_tier(log_potentials.device, tier)
        self.lengths = arguments.checked_lengths(
            lengths, shape[:-3], shape[-3], log_potentials.device
        )
        super().__init__(shape[:-3], torch.Size([shape[-3]]), validate_args=False)
        self.potentials = arguments.of_one_dtype({NAME: log_potentials})
        own = successors.to(log_potentials.device, torch.long, copy=True)
        self.successors = own.expand(shape)
        self._steps = self._checked_ordering(ordering)
        self._tensors_changed()
        if log_potentials.numel() and any_seen(~(log_potentials.detach().amax() < torch.inf)):
            arguments.refuse_bad_values(NAME, log_potentials, self._used)

    _further_tensors: ClassVar = {"successors": 3, "_steps": 1}

    def _tensors_changed(self) -> None:
        self._lattice = ChainLattice(self.size, self.successors, self.lengths)

    def _checked_ordering(self, ordering: Tensor | None) -> Int[Tensor, "*b n"] | None:
        """The step of each position: the inverse of the ordering, and the padding as it is."""
        if ordering is None:
            return None
        arguments.refuse_non_tensors(ordering=ordering)
        n, shape = self.size[1], [*self.batch_shape, self.size[1]]
        good = arguments.is_integer(ordering) and arguments.broadcasts(ordering.shape, shape)
        expect(good, "ordering", f"must be {shape}, integers", list(ordering.shape))
        places = torch.arange(n, device=self.lengths.device)
        own = ordering.to(places).expand(shape)
        own = own.where(places < self.lengths[..., None], places)
        if not bool((own.sort(-1).values == places).all()):
            raise ArgumentError("ordering", "must have each position of an element once")
        return own.argsort(-1)

    def _by_position(self, by_step: Tensor, dim: int) -> Tensor:
        """Something of each step as something of each position; batch dimensions lie before."""
        if self._steps is None:
            return by_step
        tail = by_step.shape[by_step.ndim + dim + 1 :]
        index = self._steps.reshape(*self._steps.shape, *[1] * len(tail)).expand(by_step.shape)
        return by_step.gather(dim, index)

    def _checked_labels(self, event: Int[Tensor, "*e n"]) -> Int[Tensor, "*sb n"]:
        labels = super()._checked_labels(event)
        if self._steps is None:
            return labels
        return torch.zeros_like(labels).scatter(-1, self._steps.expand(labels.shape), labels)

    def _events(self, found: Int[Tensor, ...]) -> Int[Tensor, ...]:
        return self._by_position(super()._events(found), -1)

    @classmethod
    def from_sets(
        cls,
        sets: Sequence[ContextSet],
        score: Score,
        *,
        labels: int,
        ordering: Sequence[int] | None = None,
        tier: str | None = None,
    ) -> ContextChain:
        """The chain over len(sets) + 1 positions with the given contexts and scores.

        `sets[i]` has the contexts after i+1 labels; `score(position, context, label)` is called
        for every context that can be reached. Number k of a position's contexts is number k of
        `sets[position - 1].contexts`. One element, batch shape ().

        With an `ordering` of the positions the labels of ordering[0], ordering[1], … are chosen
        one after the other: a context after i+1 labels has those of ordering[: i+1], in this order.
        """
        before = [ContextSet([()]), *sets]
        for length, contexts in enumerate(before):
            wanted = f"must have contexts of length {length}"
            expect(contexts.length == length, f"sets[{length - 1}]", wanted, contexts.length)
        n, s = len(before), at_least("labels", labels, 1)
        most = max((label or 0 for c in before for context in c for label in context), default=0)
        if most >= s:
            raise ArgumentError("labels", f"must be in 0..{s - 1}. Got {most} in a context")
        shape = (n, max(map(len, before)), s)
        successors = torch.zeros(shape, dtype=torch.long)
        order = range(n) if ordering is None else ordering
        expect(sorted(order) == [*range(n)], "ordering", f"must have 0 to {n - 1}, once", ordering)
        places: list[tuple[int, int, int]] = []
        values: list[Tensor] = []
        reached = {0}
        for i, contexts in enumerate(before):
            following = set()
            for number, label in product(sorted(reached), range(s)):
                context = contexts.contexts[number]
                places.append((i, number, label))
                value = score(order[i], context, label)
                if not isinstance(value, Tensor):
                    value = torch.tensor(value, dtype=torch.float64)
                values.append(value)
                if i + 1 < n:
                    after = contexts.refine(context, label, before[i + 1])
                    successors[places[-1]] = before[i + 1].numbers[after]
                    following.add(before[i + 1].numbers[after])
            reached = following
        given = torch.stack(values)
        log_potentials = given.new_zeros(shape).index_put(torch.tensor(places).unbind(1), given)
        given_order = None if ordering is None else torch.tensor(list(ordering))
        return cls(log_potentials, successors, ordering=given_order, tier=tier)

    @classmethod
    def from_lattice(
        cls,
        lattice: Lattice,
        scores: Float[Tensor, " e"] | None = None,
        *,
        ordering: Int[Tensor, "b n"] | None = None,
        tier: str | None = None,
    ) -> ContextChain:
        """The chains of a lattice over `Columns.chains`: [b], of the lengths that they have.

        All queries are differentiable in the `scores` of the edges (by default the lattice's own),
        with the contexts fixed. Number k of the contexts that position i follows is number k of
        column i. The score of an end, which is not a label, goes to the last label before it;
        where there is none, it is left out.
        """
        given = torch.from_numpy(lattice.scores) if scores is None else scores
        wanted = list(lattice.scores.shape)
        expect(list(given.shape) == wanted, "scores", f"must be {wanted}", list(given.shape))
        edges = ChainEdges(lattice)
        index = tuple(torch.from_numpy(x).to(given.device) for x in edges.places)
        own = given[torch.from_numpy(edges.numbers).to(given.device)]
        if edges.endings is not None:
            ends = torch.from_numpy(edges.endings).to(given.device)
            own = own + given[ends.clamp(min=0)].where(ends >= 0, 0.0)
        log_potentials = given.new_zeros(edges.shape).index_put(index, own)
        successors = torch.zeros(edges.shape, dtype=torch.long, device=given.device)
        targets = torch.from_numpy(edges.targets).to(given.device)
        lengths = torch.from_numpy(edges.lengths).to(given.device)
        following = successors.index_put(index, targets)
        return cls(log_potentials, following, lengths, ordering=ordering, tier=tier)

    @property
    def size(self) -> tuple[int, int, int, int]:
        """(elements in all, positions, contexts, labels)."""
        n, c, s = self.potentials[NAME].shape[-3:]
        return self.batch_shape.numel(), n, c, s

    @property
    def _used(self) -> Bool[Tensor, "*b n c s"]:
        """Which potentials are not padding."""
        shape = self.batch_shape + self._part_shapes[NAME]
        used = torch.zeros(shape.numel(), dtype=torch.bool, device=self.lengths.device)
        used[self._rows] = True
        return used.reshape(shape)

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        return {NAME: self.potentials[NAME].shape[-3:]}

    def _refuse_other_events(self, other: StructuredDistribution) -> None:
        super()._refuse_other_events(other)
        assert isinstance(other, ContextChain)
        if not self._lattice.equals(other._lattice):
            raise ArgumentError(None, "two distributions with the same successors are needed")
        places = torch.arange(self.size[1], device=self.lengths.device).expand(self._real.shape)
        own, others = (places if d._steps is None else d._steps for d in (self, other))
        if not torch.equal(own, others.to(own)):
            raise ArgumentError(None, "two distributions with the same ordering are needed")

    @property
    def _rows(self) -> Int[Tensor, " a"]:
        """Places of the leaves of the lattice among the potentials."""
        return torch.from_numpy(self._lattice.axiom_rows).to(self.lengths.device)

    @property
    def _goals(self) -> Int[Tensor, " b"]:
        return torch.from_numpy(self._lattice.arrays.goals).to(self.lengths.device)

    def _item_weights(self, potentials: Potentials) -> Float[Tensor, " v"]:
        """Log-weights of all items of the lattice, in float64."""
        leaves = potentials[NAME].reshape(-1)[self._rows].double()
        return torch.nn.functional.pad(leaves, (0, self._lattice.num_derived))

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        weights, arrays = self._item_weights(potentials), self._lattice.arrays
        log_z = op.log_values(arrays, weights, self._goals, self.tier)
        return log_z.reshape(self.batch_shape).to(potentials[NAME].dtype)

    def label_marginals(self) -> Float[Tensor, "*b n s"]:
        """Probability of every label at every position; differentiable."""
        return self._by_position(self.marginals()[NAME].sum(-2), -2)

    def context_mass(self) -> Float[Tensor, "*b n c"]:
        """Probability that position i follows context number k, for all of them; differentiable.

        All of it is on context 0 at the first one; it adds up to 1 at all positions of an element.
        """
        return self._by_position(self.marginals()[NAME].sum(-1), -2)

    def mean_context_length(self, sizes: Tensor) -> Float[Tensor, "*b"]:
        """The mean over positions of how many labels contexts remember, weighted by their mass.

        `sizes` [*b n c], or what expands to it, says how many each of them does (section 7 of the
        paper). 0 where there are no positions, or no labelling is possible.
        """
        mass = self.context_mass()
        good, wanted = arguments.broadcasts(sizes.shape, mass.shape), f"must be {list(mass.shape)}"
        expect(good, "sizes", wanted, list(sizes.shape))
        total = (mass * torch.where(mass == 0, 0.0, sizes.to(mass))).sum((-1, -2))
        return total / self.lengths.clamp(min=1)

    def contexts_of(self, event: Int[Tensor, "*e n"]) -> Int[Tensor, "*sb n"]:
        """The number of the context that each label of an event follows, 0 in the padding."""
        return self._by_position(self._walk(self._checked_labels(event)).where(self._real, 0), -1)

    def _walk(self, labels: Tensor) -> Tensor:
        """Contexts that checked labels follow; any numbers in the padding."""
        _, n, c, s = self.size
        # What stands in the padding must not lead out of the table.
        steps = self.successors.clamp(0, c - 1).flatten(-2)  # [*b n c*s]
        contexts = torch.zeros_like(labels)
        for i in range(n - 1):
            here = contexts[..., i] * s + labels[..., i]
            table = steps[..., i, :].expand(*here.shape, c * s)
            contexts[..., i + 1] = table.gather(-1, here[..., None])[..., 0]
        return contexts

    def _places(self, event: Tensor) -> Tensor:
        """Of each position: the place of its part in the flat [c s]."""
        labels = self._checked_labels(event)
        return self._walk(labels) * self.size[3] + labels

    def _score(self, event: Int[Tensor, "*e n"]) -> Float[Tensor, "*sb"]:
        places = self._places(event)
        table = self.potentials[NAME].flatten(-2)
        table = table.expand(*places.shape, table.shape[-1])
        return table.gather(-1, places[..., None])[..., 0].where(self._real, 0.0).sum(-1)

    def parts(self, event: Int[Tensor, "*e n"]) -> Potentials:
        """Indicators [*s *b n c s] of the contexts and labels of an event."""
        places = self._places(event)
        _, _, c, s = self.size
        flat = torch.nn.functional.one_hot(places, c * s) * self._real[..., None]
        dtype = self.potentials[NAME].dtype
        return {NAME: flat.to(dtype).reshape(*places.shape, c, s)}

    def _numpy_weights(self) -> NDArray[np.float64]:
        return np.asarray(self._item_weights(self.potentials).detach().cpu().numpy())

    @property
    def mode(self) -> Int[Tensor, "*b n"]:
        """The most probable labels (Viterbi), 0 if none are possible. O(b n c s).

        Ties go, from the last position, to the smaller number of the context before it, then to
        the smaller label.
        """
        return self._events(self._k_best(1)[0][0])

    def _k_best(self, k: int) -> tuple[Int[Tensor, "k b n"], Float[Tensor, "k b"]]:
        """O(b n (c s + k log k)); 0 if there are fewer."""
        lattice, weights = self._lattice, self._numpy_weights()
        best = best_kernel.viterbi(lattice.arrays.structure, weights)
        b, n, _, _ = self.size
        labels = np.zeros((k, b, n), np.int64)
        scores = np.full((k, b), -np.inf)
        for element, goal in enumerate(lattice.arrays.goals.tolist()):
            own_scores, offsets, edges = best_kernel.kbest(best, goal, k)
            length = int(lattice.lengths[element])
            own = edges[offsets[:-1, None] + np.arange(length)]
            labels[: len(own), element, :length] = lattice.labels_of(own)
            scores[: len(own), element] = own_scores
        device = self.lengths.device
        return torch.from_numpy(labels).to(device), torch.from_numpy(scores).to(device)

    def _draw(self, count: int, seed: int) -> tuple[Int[Tensor, "m b n"], Bool[Tensor, " b"]]:
        b, n, _, _ = self.size
        possible = (self.log_partition() > -torch.inf).reshape(b)
        labels = np.zeros((b, count, n), np.int64)
        if count == 0 or not bool(possible.all()):
            return torch.from_numpy(labels.swapaxes(0, 1)).to(self.lengths.device), possible
        arrays = self._lattice.arrays
        shares = op.edge_probabilities(arrays, torch.from_numpy(self._numpy_weights()), "cpu")
        tables = sampling_kernel.alias_tables(arrays.edge_offsets, shares.numpy())
        roots = np.tile(arrays.goals, count)
        offsets, edges = sampling_kernel.sample(arrays.structure, tables, roots, seed)
        for element, length in enumerate(self._lattice.lengths.tolist()):
            firsts = offsets[element : count * b : b, None]
            own = edges[firsts + np.arange(length)]
            labels[element, :, :length] = self._lattice.labels_of(own)
        return torch.from_numpy(labels.swapaxes(0, 1)).to(self.lengths.device), possible

    def _write_events(self, events: NDArray[np.int64], used: Used) -> None:
        rank, element, step, _, label = used[NAME]
        events[rank, element, step] = label

    def _generating(
        self, lanes: Lanes, values: dict[str, Tensor], shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        leaves = values[NAME].expand(-1, *self.size).flatten(1)[:, self._rows]
        items = torch.nn.functional.pad(leaves, (0, self._lattice.num_derived))
        weights = self._item_weights(self.potentials)
        arrays = self._lattice.arrays
        return generating_function(arrays, lanes, weights, items, self._goals, shift)

    def forest(self) -> Forest:
        """The lattice of contexts as an explicit forest, one goal for each batch element.

        Its one relation is the potentials, flattened (padding at -inf); gradients flow back to
        them.
        """
        potentials = torch.where(self._used, self.potentials[NAME], -torch.inf)
        return Forest(
            arrays=self._lattice.arrays,
            relations={NAME: potentials.reshape(-1)},
            axiom_rows=torch.from_numpy(self._lattice.axiom_rows),
            labels=self._lattice.names,
            single_goal=not self.batch_shape,
        )
