"""`LinearChain`: distributions over label sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from torch import Tensor

from inout._core.checks import checked_memory, expect
from inout._core.errors import ArgumentError
from inout._core.tracing import any_seen
from inout.distributions import arguments
from inout.distributions.charts import Group, chart_forest
from inout.distributions.derivatives import Potentials
from inout.distributions.factors import MayHaveFactors, TransitionFactors
from inout.distributions.labels import LabelSequence
from inout.forest import Forest
from inout.forest.labels import BlockLabels
from inout.kernels.chain import op
from inout.kernels.chain.generating import generating_function
from inout.kernels.chain.reference import reference_log_partition
from inout.kernels.recomputing import Memory
from inout.kernels.tiers import choose_tier
from inout.series import Lanes


class LinearChain(MayHaveFactors, LabelSequence):
    """Labels y of a sequence, p(y) proportional to exp(start + emissions + transitions + end).

    `emissions` [*b n s]; `transitions` [s s], shared by all positions, or [*b n-1 s s], previous
    label first; `start` and `end` [s] or [*b s]; `lengths` [*b], a tensor or a list. Events are
    labels [*b n]: decoding gives -1 beyond an element's length, and scoring ignores the padding.
    Log-potentials may be -inf.

    log Z and its gradient take O(b n s²) time, and O(b n s) memory besides the potentials and
    their gradients. Potentials in half precision are computed in float32. `tier="reference"`
    computes log Z and its derivatives in plain torch code instead of the compiled kernels. For
    very long chains on the CPU, `memory="sqrt"` keeps only O(b √n s) for the gradient and computes
    the rest again, block by block; a number of bytes does so where needed. NaN
    and +inf are refused, at the latest by the first query (on a GPU by its backward pass).

    >>> import torch
    >>> chain = LinearChain(torch.zeros(3, 2), torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]))
    >>> chain.log_partition().exp()
    tensor(4.)
    >>> chain.topk(2)[0]
    tensor([[0, 0, 0],
            [1, 0, 0]])
    >>> chain.marginals()["emissions"]
    tensor([[0.2500, 0.7500],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])

    `transitions` may be given as `TransitionFactors`, of which the table is never made: see
    `FactoredChain`.

    Lafferty, McCallum & Pereira, "Conditional random fields" (2001), section 3.
    """

    family = "LinearChain"
    options = ("memory",)
    _kind_of_factors = TransitionFactors
    _tables: ClassVar[tuple[str, ...]] = ("transitions",)  # potentials of steps
    _shareable = frozenset({"transitions", "start", "end"})
    _always_stationary: ClassVar[bool] = False  # also where elements have transitions of their own

    def __init__(
        self,
        emissions: Float[Tensor, "*b n s"],
        transitions: Float[Tensor, " ..."] | TransitionFactors,
        start: Float[Tensor, "*#b s"] | None = None,
        end: Float[Tensor, "*#b s"] | None = None,
        lengths: arguments.Lengths | None = None,
        *,
        tier: str | None = None,
        memory: Memory = None,
    ) -> None:
        arguments.refuse_non_tensors(emissions=emissions, start=start, end=end)
        if emissions.ndim < 2 or emissions.shape[-1] == 0:
            given = list(emissions.shape)
            raise ArgumentError("emissions", f"must be [*b n s], at least one label. Got {given}")
        batch_shape, (n, s) = emissions.shape[:-2], emissions.shape[-2:]
        tables = self._checked_tables(transitions, batch_shape, max(n - 1, 0), s)
        self.tier = choose_tier(emissions.device, tier)
        self.memory = checked_memory(memory)
        self.lengths = arguments.checked_lengths(lengths, batch_shape, n, emissions.device)
        potentials = {"emissions": emissions, **tables}
        for name, potential in (("start", start), ("end", end)):
            if potential is None:
                continue
            good = potential.shape[-1:] == (s,) and arguments.broadcasts(
                potential.shape, (*batch_shape, s)
            )
            expect(good, name, f"must be {[s]} or {[*batch_shape, s]}", list(potential.shape))
            potentials[name] = potential
        super().__init__(batch_shape, torch.Size([n]), validate_args=False)
        for name, potential in potentials.items():
            arguments.refuse_non_floats(name, potential)
        self.potentials = arguments.of_one_dtype(potentials)
        self._values_checked = False
        if self.tier == "reference":
            self._refuse_bad_values(potentials)
        elif self.tier == "cpu":
            self._refuse_bad_values(
                name for name in potentials if self.stationary or name not in self._tables
            )

    def _checked_tables(
        self, transitions: Any, batch_shape: torch.Size, steps: int, s: int
    ) -> Potentials:
        """The potentials of steps; sets `stationary`."""
        arguments.refuse_non_tensors(transitions=transitions)
        self.stationary = self._always_stationary or transitions.ndim == 2
        return {"transitions": self._table("transitions", transitions, batch_shape, steps, (s, s))}

    def _table(
        self, name: str, given: Tensor, batch_shape: torch.Size, steps: int, own: tuple[int, int]
    ) -> Tensor:
        """A potential of steps, checked: as given if stationary, else with a block for each."""
        several = [*batch_shape, *([] if self._always_stationary else [steps]), *own]
        wanted = several if self._always_stationary or not self.stationary else [*own]
        good = given.shape[-2:] == own and arguments.broadcasts(given.shape, wanted)
        shapes = f"must be {list(own)} or {several} for these emissions"
        expect(good, name, shapes, list(given.shape))
        # One block may be given for all positions of an element.
        return given if self.stationary else given.expand(*given.shape[:-3], steps, *own)

    def _refuse_bad_values(self, names: Iterable[str]) -> None:
        """Raise if one of these potentials has NaN or +inf outside the padding.

        Reading position-specific transitions costs a tenth of log Z, and reading from a GPU a wait:
        these are checked only if log Z is NaN, or before the first decoding.
        """
        real = self._real[..., None]
        used = {"emissions": real}
        if not self.stationary:
            used |= dict.fromkeys(self._tables, real[..., 1:, :, None])
        for name in names:
            arguments.refuse_bad_values(name, self.potentials[name], used.get(name))

    def _checked_flat(self) -> tuple[Tensor, Tensor, Tensor]:
        """As `_flat`, of the potentials, once they are known to be valid."""
        if not self._values_checked:
            self._refuse_bad_values(self.potentials)
            self._values_checked = True
        return self._flat(self.potentials)

    @property
    def size(self) -> tuple[int, int, int]:
        """(elements in all, positions, labels)."""
        n, s = self.potentials["emissions"].shape[-2:]
        return self.batch_shape.numel(), n, s

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        n, s = self.potentials["emissions"].shape[-2:]  # graphs know no number of elements
        shapes = {"emissions": (n, s), "start": (s,), "end": (s,)}
        for name in self._tables:
            own = self.potentials[name].shape[-2:]
            shapes[name] = own if self.stationary else (max(n - 1, 0), *own)
        return {name: torch.Size(shapes[name]) for name in self.potentials}

    def _flat(self, potentials: Potentials) -> tuple[Tensor, Tensor, Tensor]:
        """Emissions [b n s] with start and end in them, transitions [bt nt s s], lengths [b]."""
        b, n, s = self.size
        transitions = self._flat_table(potentials["transitions"], s, s)
        return self._flat_nodes(potentials), transitions, _shaped(self.lengths, (b,))

    def _flat_table(self, table: Tensor, rows: int, columns: int) -> Tensor:
        """A potential of steps as [1|b 1|n-1 rows columns]."""
        b, n, _ = self.size
        block = (1, rows, columns) if self.stationary else (max(n - 1, 0), rows, columns)
        own_dims = 2 if self.stationary else 3
        shared = table.ndim == own_dims
        if not shared:
            whole = self.batch_shape + table.shape[-own_dims:]
            table = table if table.shape == whole else table.expand(whole)
        return _shaped(table, (1 if shared else b, *block))

    def _flat_nodes(self, potentials: Potentials) -> Float[Tensor, "b n s"]:
        """Emissions with start and end in them."""
        b, n, s = self.size
        emissions = potentials["emissions"]
        if "start" in potentials or "end" in potentials:
            # scatter_add copies the rest, and needs nothing for it in the backward pass.
            places = {"start": torch.zeros_like(self.lengths), "end": self.lengths - 1}
            some = (self.lengths > 0)[..., None, None]
            for name in [name for name in places if name in potentials]:
                place = places[name].clamp(min=0)[..., None, None]
                more = potentials[name][..., None, :].where(some, 0.0)
                emissions = emissions.scatter_add(-2, place.expand(more.shape)[..., :n, :], more)
        return _shaped(emissions, (b, n, s))

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        if self.tier == "reference":
            log_z = reference_log_partition(*self._flat(potentials))
        else:
            log_z = op.log_partition(*self._flat(potentials), self.memory)
        if not self._values_checked:
            plain = log_z.detach()
            if log_z.requires_grad and log_z.is_cuda:
                # No wait for the device now: the answer is there by the backward pass.
                log_z.register_hook(lambda _: self._refuse_nan(plain))  # type: ignore[no-untyped-call]
            else:
                self._refuse_nan(plain)
        return _shaped(log_z, self.batch_shape)

    def _refuse_nan(self, log_z: Tensor) -> None:
        """If log Z is NaN, raise for the potential that caused it."""
        if any_seen(log_z.isnan()):
            self._refuse_bad_values(self.potentials)
        self._values_checked = True

    def _score(self, event: Int[Tensor, "*e n"]) -> Float[Tensor, "*sb"]:
        labels, real = self._checked_labels(event), self._real
        n = self.event_shape[0]

        def expanded(name: str) -> Tensor:
            return self.potentials[name].expand(labels.shape[:-1] + self._part_shapes[name])

        nodes = expanded("emissions").gather(-1, labels[..., None])[..., 0]
        score = nodes.where(real, 0.0).sum(-1)
        if n > 1:
            pairs = self._pair_scores(labels[..., :-1], labels[..., 1:])
            score = score + pairs.where(real[..., 1:], 0.0).sum(-1)
        for name, place in (("start", torch.zeros_like(self.lengths)), ("end", self.lengths - 1)):
            if name in self.potentials and n > 0:
                at = place.clamp(min=0).expand(labels.shape[:-1])[..., None]
                value = expanded(name).gather(-1, labels.gather(-1, at))[..., 0]
                score = score + value.where(self.lengths > 0, 0.0)
        return score

    def _pair_scores(
        self, before: Int[Tensor, "*e m"], after: Int[Tensor, "*e m"]
    ) -> Float[Tensor, "*e m"]:
        """The log-weights of steps from labels to labels."""
        table, places = self.potentials["transitions"], before * self.size[2] + after
        if table.ndim == 2:
            return table[before, after]
        whole = table.expand(before.shape[:-1] + self._part_shapes["transitions"]).flatten(-2)
        by_step = places if self.stationary else places[..., None]
        return whole.gather(-1, by_step).reshape(places.shape)

    def parts(self, event: Int[Tensor, "*e n"]) -> Potentials:
        """Indicators of labels and label pairs; counts of pairs with shared transitions."""
        labels, real = self._checked_labels(event), self._real
        s, dtype = self.size[2], self.potentials["emissions"].dtype
        nodes = torch.nn.functional.one_hot(labels, s).to(dtype) * real[..., None]
        last = torch.arange(labels.shape[-1], device=labels.device) == self.lengths[..., None] - 1
        parts = {
            "emissions": nodes,
            **self._pair_parts(labels, nodes),
            "start": nodes[..., :1, :].sum(-2),
            "end": (nodes * last[..., None]).sum(-2),
        }
        return {name: parts[name] for name in self.potentials}

    def _pair_parts(
        self, labels: Int[Tensor, "*e n"], nodes: Float[Tensor, "*e n s"]
    ) -> Potentials:
        """The parts of steps, of labels and their indicators."""
        s, real, dtype = self.size[2], self._real, nodes.dtype
        if self.stationary:
            # Counted, not multiplied: a product would round under autocast.
            places = labels[..., :-1] * s + labels[..., 1:]
            counts = nodes.new_zeros((*labels.shape[:-1], s * s))
            counts = counts.scatter_add(-1, places, real[..., 1:].expand(places.shape).to(dtype))
            pairs = counts.reshape(*counts.shape[:-1], s, s)
        else:
            pairs = nodes[..., :-1, :, None] * nodes[..., 1:, None, :]
        return {"transitions": pairs}

    @property
    def mode(self) -> Int[Tensor, "*b n"]:
        """The most probable labels (Viterbi), 0 if none are possible; O(b n s²).

        Ties go to smaller labels, the last position first.
        """
        return self._events(op.best_labels(*self._checked_flat()))

    def _k_best(self, k: int) -> tuple[Int[Tensor, "k b n"], Float[Tensor, "k b"]]:
        """O(k b n s²) time, O(k n s) memory per thread; 0 if there are fewer."""
        return op.k_best_labels(*self._checked_flat(), k)

    def _draw(self, count: int, seed: int) -> tuple[Int[Tensor, "m b n"], Bool[Tensor, " b"]]:
        labels = op.sample_labels(*self._checked_flat(), count, seed)
        impossible = (labels < 0).any(0) & self._real.reshape(labels.shape[1:])
        return labels, ~impossible.any(-1)

    def _draw_distinct(
        self, k: int, seed: int
    ) -> tuple[Int[Tensor, "k b n"], Float[Tensor, "k b"], Float[Tensor, " b"]]:
        return op.distinct_labels(*self._checked_flat(), k, seed)

    def label_marginals(self) -> Float[Tensor, "*b n s"]:
        """Probability of every label at every position; differentiable."""
        return self.marginals("emissions")["emissions"]

    def _generating(
        self, lanes: Lanes, values: dict[str, Tensor], shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        # In double precision before start and end are added to the emissions.
        wide = {name: potential.double() for name, potential in self.potentials.items()}
        emissions, transitions, lengths = self._flat(wide)
        b, n, s = self.size
        nodes = self._node_values(values)
        pairs = values["transitions"]
        if not self.stationary:
            pairs = pairs.expand(-1, -1, max(n - 1, 0), s, s)
        else:
            pairs = pairs[:, :, None].expand(-1, -1, -1, s, s)
        some = pairs if pairs.requires_grad or bool(pairs.any()) else None
        given = emissions, transitions
        return generating_function(lanes, given, lengths, (nodes, some), shift)

    def _node_values(self, values: dict[str, Tensor]) -> Inexact[Tensor, "k b n s"]:
        """Values of labels at positions, including those of the first and the last label."""
        b, n, s = self.size
        nodes = values["emissions"].expand(-1, b, n, s)
        lengths = self.lengths.reshape(b)
        position = torch.arange(n, device=lengths.device)
        for name, place in (("start", torch.zeros_like(lengths)), ("end", lengths - 1)):
            if name in values:
                here = (position == place[:, None])[..., None]
                nodes = nodes + torch.where(here, values[name].expand(-1, b, s)[:, :, None], 0.0)
        return nodes

    def forest(self) -> Forest:
        """The trellis as an explicit forest, one goal for each batch element.

        Its relations are the potentials, expanded over the batch and flattened; gradients flow
        back to them.
        """
        self._checked_flat()
        expanded = self._expanded()
        b = self.size[0]
        shapes = {name: (b, *self._part_shapes[name]) for name in expanded}
        items = BlockLabels(shapes | self._chart_shapes() | {"goal": (b,)})
        return chart_forest(expanded, items, self._edges(items), batched=bool(self.batch_shape))

    def _chart_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the trellis' items."""
        return {"alpha": self.size}

    def _edges(self, items: BlockLabels) -> list[Group]:
        """alpha(element, position, label): the labels up to a position, ending with this one."""
        b, _, s = self.size
        part = {name: items.numbers(name) for name in self.potentials}
        alphas, goals = items.numbers("alpha"), items.numbers("goal")[:, None]
        groups: list[Group] = []
        for k, length in enumerate(self.lengths.reshape(b).tolist()):
            if length == 0:
                groups.append((goals[k], []))
                continue
            start = [part["start"][k]] if "start" in part else []
            groups.append((alphas[k, 0], [*start, part["emissions"][k, 0]]))
            for t in range(1, length):
                pairs = part["transitions"][k]
                block = pairs if self.stationary else pairs[t - 1]
                before = np.repeat(alphas[k, t - 1], s)
                after = np.tile(alphas[k, t], s)
                emitted = np.tile(part["emissions"][k, t], s)
                groups.append((after, [before, block.reshape(-1), emitted]))
            end = [part["end"][k]] if "end" in part else []
            groups.append((np.repeat(goals[k], s), [alphas[k, length - 1], *end]))
        return groups


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x in another shape; x itself, without an autograd node, if it already has it."""
    return x if x.shape == shape else x.reshape(shape)
