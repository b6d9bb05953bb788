"""`PathDistribution`: the common part of distributions over the paths of a lattice."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.errors import ArgumentError
from inout._core.tracing import any_seen
from inout.distributions import arguments
from inout.distributions.base import StructuredDistribution
from inout.distributions.charts import Group, chart_forest
from inout.distributions.derivatives import Potentials
from inout.distributions.distinct import Used
from inout.forest import Forest
from inout.forest.labels import BlockLabels
from inout.kernels.alignment import op
from inout.kernels.alignment.counting import all_paths, count_paths
from inout.kernels.alignment.generating import generating_function
from inout.kernels.alignment.lattice import Lattice
from inout.kernels.alignment.reference import reference_log_partition
from inout.kernels.tiers import choose_tier
from inout.series.lanes import Lanes

Planes = list[Inexact[Tensor, "... _ _"]]
NO_EVENT = -1


class PathDistribution(StructuredDistribution):
    """Paths through a grid of n rows and m columns, see `inout.kernels.alignment.lattice`.

    A family says how its potentials make the planes of its lattice (`_planes`), and how events
    are paths (`_moves_of`) and paths events (`_of_moves`). If an element has no possible event,
    decoding gives -1 everywhere.
    """

    lattice: Lattice
    lengths: Int[Tensor, "*b"]
    target_lengths: Int[Tensor, "*b"]
    event_name = "alignment"
    most_events = 10**6
    _blank = NO_EVENT
    _further_tensors: ClassVar = {"target_lengths": 0}

    def _set_sizes(
        self,
        batch_shape: torch.Size,
        sizes: tuple[int, int],
        lengths: arguments.Lengths | None,
        target_lengths: arguments.Lengths | None,
        tier: str | None,
        device: torch.device,
    ) -> None:
        """Check the numbers of rows and columns of each element, and the tier."""
        self.sizes = sizes
        self.lengths = arguments.checked_lengths(lengths, batch_shape, sizes[0], device)
        self.target_lengths = arguments.checked_lengths(
            target_lengths, batch_shape, sizes[1], device, "target_lengths"
        )
        self.tier = choose_tier(device, tier)

    def _set_event(self, batch_shape: torch.Size, size: int) -> None:
        torch.distributions.Distribution.__init__(
            self, batch_shape, torch.Size([size]), validate_args=False
        )

    @abstractmethod
    def _planes(self, values: Mapping[str, Inexact[Tensor, "*k b ..."]]) -> Planes:
        """The planes [*k b r c] of potentials, or of values like them: a linear map.

        Its constants, the masks of a family, are in `_masked`.
        """

    def _masked(self, planes: Planes) -> Planes:
        """The planes with what the family forbids at -inf."""
        return planes

    @abstractmethod
    def _moves_of(self, event: Int[Tensor, "*sb p"]) -> tuple[Tensor, Bool[Tensor, "*sb"]]:
        """The moves [*sb steps] of events, -1 after the last, and which are no events."""

    @abstractmethod
    def _of_moves(self, paths: Int[Tensor, "*m b p"]) -> Int[Tensor, "*m b ..."]:
        """The events of paths, anything in the padding, -1 for no path."""

    @property
    def _real_entries(self) -> Bool[Tensor, "*b p"]:
        steps = self.lengths + self.lattice.slope * self.target_lengths
        return torch.arange(self.event_shape[0], device=steps.device) < steps[..., None]

    @property
    def _flat_sizes(self) -> Int[Tensor, "b 2"]:
        both = torch.stack([self.lengths.reshape(-1), self.target_lengths.reshape(-1)], -1)
        return both.clone() if both.is_inference() else both

    def _flat(self, values: Potentials) -> Potentials:
        """Values of parts [*b ...] with the batch flattened."""
        b = self.batch_shape.numel()
        return {
            name: x.expand(self.batch_shape + self._part_shapes[name]).reshape(
                b, *self._part_shapes[name]
            )
            for name, x in values.items()
        }

    def _weights(self, potentials: Potentials) -> Planes:
        """The planes of potentials [*b ...]."""
        return self._masked(self._planes(self._flat(potentials)))

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        log_z = reference_log_partition if self.tier == "reference" else op.log_partition
        found = log_z(self.lattice, self._weights(potentials), self._flat_sizes)
        return found.reshape(self.batch_shape)

    def _refuse_other_events(self, other: StructuredDistribution) -> None:
        super()._refuse_other_events(other)
        assert isinstance(other, PathDistribution)
        if not torch.equal(self.target_lengths, other.target_lengths):
            raise ArgumentError(
                None,
                "both distributions must have the same target lengths. "
                f"Got {self.target_lengths.tolist()} and {other.target_lengths.tolist()}",
            )

    @property
    def mode(self) -> Int[Tensor, "*b ..."]:
        """The most probable event (Viterbi), -1 everywhere if there is none."""
        with torch.no_grad():
            weights = self._weights(self.potentials)
            paths = op.best_paths(self.lattice, weights, self._flat_sizes)
            return self._events(self._of_moves(self._padded(paths)))

    def _padded(self, paths: Int[Tensor, "*m _"]) -> Int[Tensor, "*m _"]:
        """Paths with room for the moves of the largest element that the shapes allow."""
        missing = self.lattice.steps(*self.sizes) - paths.shape[-1]
        return torch.nn.functional.pad(paths, (0, missing), value=NO_EVENT)

    def _k_best(self, k: int) -> tuple[Tensor, Float[Tensor, "k b"]]:
        """O(k b n m) time, and O(k n m) memory per thread."""
        weights = self._weights(self.potentials)
        paths, scores = op.k_best_paths(self.lattice, weights, self._flat_sizes, k)
        return self._of_moves(self._padded(paths)), scores

    def _draw(self, count: int, seed: int) -> tuple[Tensor, Bool[Tensor, " b"]]:
        weights = self._weights(self.potentials)
        paths, some = op.sample_paths(self.lattice, weights, self._flat_sizes, count, seed)
        return self._of_moves(self._padded(paths)), some

    def _write_events(self, events: NDArray[np.int64], used: Used) -> None:
        # The nodes of a path, in order: every move goes on in rows or columns.
        rank, element, layer, i, j = used["alpha"]
        order = np.lexsort((j, i, element, rank))
        rank, element, layer, i, j = (x[order] for x in used["alpha"])
        same = (np.diff(rank) == 0) & (np.diff(element) == 0)
        moves = self.lattice.numbers[layer[:-1], layer[1:], np.diff(i) * same, np.diff(j) * same]
        ends = np.arange(1, len(order))
        starts = np.maximum.accumulate(np.where(same, 0, ends))
        paths = np.full((*events.shape[:2], self.lattice.steps(*self.sizes)), NO_EVENT)
        paths[rank[1:][same], element[1:][same], (ends - starts - 1)[same]] = moves[same]
        found = self._of_moves(torch.from_numpy(paths).to(self.lengths.device))
        events[:] = found.cpu().numpy()

    def _whole(self, planes: Planes) -> Planes:
        """The planes with an entry of its own for whatever may be right or wrong in `min_risk`."""
        return planes

    def _gains(self, uses: Planes) -> Planes:
        """What each entry of the planes is worth to `min_risk`, given its expected uses."""
        return uses

    def min_risk(self) -> Int[Tensor, "*b ..."]:
        """The event with the most expected correct entries, -1 everywhere if there is none."""
        with torch.no_grad():
            sizes = self._flat_sizes
            weights = self._whole(self._weights(self._expanded()))
            uses = op.expected_uses(self.lattice, weights, sizes)
            gains = [
                torch.where(weight == -torch.inf, -torch.inf, gain)
                for weight, gain in zip(weights, self._gains(list(uses)), strict=True)
            ]
            paths = op.best_paths(self.lattice, gains, sizes)
            return self._events(self._of_moves(self._padded(paths)))

    def _checked_moves(self, event: Tensor) -> tuple[Int[Tensor, "*sb p"], Bool[Tensor, "*sb"]]:
        """The moves of events, and which are -1 everywhere: no event, where none is possible."""
        wanted = [*self.batch_shape, *self.event_shape]
        arguments.refuse_misfits(f"{self.event_name}s", event, wanted, len(self.event_shape))
        samples = event.shape[: max(event.ndim - len(wanted), 0)]
        event = event.expand(*samples, *wanted).long().where(self._real_entries, NO_EVENT)
        moves, wrong = self._moves_of(event)
        # Without rows, say, there is nothing to write, even if there are columns and so no event.
        none = (event == NO_EVENT).all(-1) & (self._real_entries.any(-1) | wrong)
        if any_seen(wrong & ~none):
            raise ArgumentError(
                "event", f": must be {self._wanted}. Number {_first(wrong & ~none)} is not"
            )
        return moves.where(~(none | wrong)[..., None], NO_EVENT), none

    def _is_event(self, event: Int[Tensor, "*sb p"]) -> Bool[Tensor, "*sb"]:
        return ~self._moves_of(event)[1]

    _wanted = "possible events"

    def _uses(self, moves: Int[Tensor, "*sb p"]) -> list[tuple[Tensor, Tensor]]:
        """For each plane, the flat places of the entries at a path's nodes, and which it reads."""
        device = moves.device
        table = torch.from_numpy(self.lattice.arrays[0]).to(device)
        own = table[moves.clamp(min=0)] * (moves >= 0)[..., None]
        i, j = own[..., 3].cumsum(-1), own[..., 4].cumsum(-1)
        found = []
        shapes = [x.shape[-2:] for x in self._weights(self.potentials)]
        for p, (plane, (rows, columns)) in enumerate(zip(self.lattice.planes, shapes, strict=True)):
            row = (i - plane.row).clamp(0, max(rows - 1, 0))
            column = (j - plane.column).clamp(0, max(columns - 1, 0))
            place = row * columns + column
            used = (own[..., 5:] == p) & (moves >= 0)[..., None]
            found.append((place, used.any(-1) & bool(rows * columns)))
        return found

    def _score(self, event: Tensor) -> Float[Tensor, "*sb"]:
        moves, none = self._checked_moves(event)
        own = len(self.batch_shape)
        score: Tensor | float = 0.0
        for plane, (place, used) in zip(
            self._weights(self.potentials), self._uses(moves), strict=True
        ):
            if not plane.shape[-2:].numel():
                score = score + plane.sum()
                continue
            flat = plane.reshape(*self.batch_shape, plane.shape[-2:].numel())
            flat = flat.expand(*place.shape[: place.ndim - 1 - own], *flat.shape)
            score = score + torch.where(used, flat.gather(-1, place), 0.0).sum(-1)
        assert isinstance(score, Tensor)
        return torch.where(none, -torch.inf, score)

    def parts(self, event: Tensor) -> Potentials:
        """How often an event uses each part: [*s *b ...] for each potential."""
        moves, _ = self._checked_moves(event)
        leading = moves.shape[: moves.ndim - 1 - len(self.batch_shape)]
        count, b = leading.numel(), self.batch_shape.numel()
        dtype = next(iter(self.potentials.values())).dtype
        with torch.inference_mode(False), torch.enable_grad():
            zeros = {
                name: torch.zeros(
                    count, b, *shape, dtype=dtype, device=moves.device, requires_grad=True
                )
                for name, shape in self._part_shapes.items()
            }
            planes, reads = self._planes(zeros), self._uses(moves.clone())
            cotangents = []
            for plane, (place, used) in zip(planes, reads, strict=True):
                if not plane.requires_grad:  # a mask
                    continue
                flat = torch.zeros(count, b, plane.shape[-2:].numel(), dtype=dtype)
                flat = flat.to(moves.device)
                if flat.numel():
                    places = place.reshape(count, b, -1)
                    flat.scatter_add_(-1, places, used.reshape(places.shape).to(dtype))
                cotangents.append(flat.reshape(plane.shape))
            # How the planes depend on the potentials, backwards: the parts that entries are.
            moving = [plane for plane in planes if plane.requires_grad]
            found = torch.autograd.grad(
                moving, list(zeros.values()), cotangents, materialize_grads=True
            )
        return {
            name: x.reshape(*leading, *self.batch_shape, *self._part_shapes[name])
            for name, x in zip(zeros, found, strict=True)
        }

    def _generating(
        self, lanes: Lanes, values: Potentials, shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        b = self.batch_shape.numel()
        own = {
            name: values[name].expand(-1, b, *shape) for name, shape in self._part_shapes.items()
        }
        wide = {name: p.double() for name, p in self.potentials.items()}
        planes = self._weights(wide)
        return generating_function(
            lanes, self.lattice, planes, self._flat_sizes, self._planes(own), shift
        )

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "m *b ..."]:
        """All events [m *b ...], if all elements have the same ones; in no particular order."""
        sizes = self._one_size()
        self._refuse_many(count_paths(self.lattice, *sizes))
        paths = torch.from_numpy(all_paths(self.lattice, *sizes)).to(self.lengths.device)
        b = self.batch_shape.numel()
        paths = self._allowed(self._padded(paths))
        events = self._events(self._of_moves(paths[:, None].expand(-1, max(b, 1), -1)[:, :b]))
        return events if expand else events[:, *[slice(1)] * len(self.batch_shape)]

    def _allowed(self, paths: Int[Tensor, "_ p"]) -> Int[Tensor, "_ p"]:
        """Those paths that no mask forbids."""
        return paths

    def _one_size(self) -> tuple[int, int]:
        """The common size of all elements."""
        found = sorted({tuple(x) for x in self._flat_sizes.tolist()})
        if len(found) > 1:
            raise ArgumentError(
                None, f"enumerate_support needs elements of one length. Got the lengths {found}"
            )
        return (found[0][0], found[0][1]) if found else self.sizes

    @abstractmethod
    def _plane_items(self, items: BlockLabels) -> Sequence[NDArray[np.int64] | None]:
        """The numbers [b r c] of the parts that make the entries of the planes, None for masks."""

    def _relations(self) -> Potentials:
        """The potentials with the padding at -inf: a forest refuses NaN anywhere."""
        shapes = {name: (1, self.batch_shape.numel(), *s) for name, s in self._part_shapes.items()}
        marks = self._read_entries(shapes)
        return {
            name: torch.where(marks[name], p, -torch.inf) for name, p in self._expanded().items()
        }

    def _read_entries(self, shapes: Mapping[str, tuple[int, ...]]) -> Potentials:
        """Which parts [*b ...] any node reads."""
        with torch.inference_mode(False), torch.enable_grad():
            zeros = {
                n: torch.zeros(s, device=self.lengths.device, requires_grad=True)
                for n, s in shapes.items()
            }
            planes = {p: x for p, x in enumerate(self._planes(zeros)) if x.requires_grad}
            real = [
                self._real_plane(p, x.shape[-2:]).to(x).expand(x.shape) for p, x in planes.items()
            ]
            found = torch.autograd.grad(
                list(planes.values()), list(zeros.values()), real, materialize_grads=True
            )
        return {
            name: (x[0] > 0).reshape(self.batch_shape + self._part_shapes[name])
            for name, x in zip(zeros, found, strict=True)
        }

    def _real_plane(self, p: int, shape: torch.Size) -> Bool[Tensor, "b r c"]:
        """Which entries of a plane any node of an element reads."""
        plane, (n, m) = self.lattice.planes[p], self._flat_sizes.unbind(-1)
        rows, columns = (torch.arange(size, device=n.device) for size in shape)
        in_rows = rows < (n + plane.more_rows)[:, None]
        in_columns = columns < (m + plane.more_columns)[:, None]
        return in_rows[:, :, None] & in_columns[:, None]

    def forest(self) -> Forest:
        """The lattice as an explicit forest, one goal for each batch element.

        Its relations are the potentials, flattened; gradients flow back to them. Items are
        alpha(element, layer, i, j), the paths up to a node.
        """
        b, (n, m) = self.batch_shape.numel(), self.sizes
        shapes = {name: (b, *shape) for name, shape in self._part_shapes.items()}
        nodes = (b, self.lattice.layers, n + 1, m + 1)
        items = BlockLabels(shapes | {"alpha": nodes, "goal": (b,)})
        return chart_forest(
            self._relations(), items, self._edges(items), batched=bool(self.batch_shape)
        )

    def _edges(self, items: BlockLabels) -> list[Group]:
        alphas, goals = items.numbers("alpha"), items.numbers("goal")
        parts = self._plane_items(items)
        masks = [x.detach().cpu().numpy() for x in self._weights(self.potentials)]
        groups: list[Group] = []
        for b, (n, m) in enumerate(self._flat_sizes.tolist()):
            groups.append((alphas[b, 0, :1, 0], []))
            for move in self.lattice.moves:
                i, j = (x.reshape(-1) for x in np.indices((n + 1, m + 1)))
                keep = (i >= move.rows) & (j >= move.columns)
                places = []
                for p in move.planes:
                    plane = self.lattice.planes[p]
                    row, column = i - plane.row, j - plane.column
                    keep &= (row >= 0) & (row < n + plane.more_rows)
                    keep &= (column >= 0) & (column < m + plane.more_columns)
                    places.append((p, row, column))
                i, j = i[keep], j[keep]
                tails = [alphas[b, move.source, i - move.rows, j - move.columns]]
                possible = np.ones(len(i), bool)
                for p, row, column in places:
                    at = _entry(masks[p][b], row[keep], column[keep])
                    possible &= masks[p][b][at] > -np.inf
                    own = parts[p]
                    if own is not None:
                        tails.append(own[b][at])
                heads = alphas[b, move.target, i, j]
                groups.append((heads[possible], [tail[possible] for tail in tails]))
            for layer in self.lattice.last:
                groups.append((goals[b : b + 1], [alphas[b, layer, n : n + 1, m]]))
        return groups


def _entry(
    table: NDArray[np.floating], row: NDArray[np.int64], column: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices in a table that may have size 1."""
    return row * (table.shape[0] > 1), column * (table.shape[1] > 1)


def _first(mask: Bool[Tensor, " ..."]) -> str:
    """The first place that is true, for messages."""
    return f"{int(mask.reshape(-1).nonzero()[0, 0])} (of {mask.numel()})"
