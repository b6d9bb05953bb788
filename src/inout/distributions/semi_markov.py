"""`SemiMarkov`: distributions over labelled segmentations."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import checked_memory, expect
from inout._core.errors import ArgumentError
from inout._core.tracing import any_seen
from inout.distributions import arguments
from inout.distributions.base import StructuredDistribution
from inout.distributions.charts import Group, chart_forest
from inout.distributions.derivatives import Potentials
from inout.distributions.distinct import Used
from inout.forest import Forest
from inout.forest.labels import BlockLabels
from inout.kernels.recomputing import Memory
from inout.kernels.segments import op
from inout.kernels.segments.generating import generating_function
from inout.kernels.segments.reference import reference_log_partition
from inout.kernels.tiers import choose_tier
from inout.series import Lanes


class SemiMarkov(StructuredDistribution):
    """Labelled segmentations of a sequence, p proportional to exp(sum over its segments).

    `log_potentials` [*b n w s s]: entry [e, d - 1, i, j] is the log-potential of a segment of
    width d with label j that ends at position e (the last one it covers, from 0) and follows a
    segment with label i. The first segment follows none: its potential is at i = 0. Segments
    are at most w wide. Padding, which is ignored: positions beyond `lengths` [*b], segments that
    would start before the sequence (d > e + 1), and i > 0 for those that start it (d = e + 1).
    -inf is allowed.

    Events are integers [*b n]: at the last position of each segment its label, -1 elsewhere (a
    segment starts where the one before it ends). Decoding gives -1 beyond the length too, and
    scoring ignores the padding; so with w = 1 the events are those of `LinearChain`.

    log Z and its gradient cost O(b n w s²) time (Sarawagi & Cohen 2004, section 3.2). Potentials
    in half precision are computed in float32. `tier="reference"` runs plain torch code instead
    of the compiled kernels.

    Besides potentials and gradients they keep O(b n (s + w)), which is much only where there are
    few labels. On the CPU `memory="sqrt"` keeps O(b √(n w) (s + w)) and makes the rest again,
    block by block; a number of bytes does so where needed.

    >>> import torch
    >>> segments = SemiMarkov(torch.zeros(3, 2, 1, 1))  # one label: 1+1+1, 1+2, 2+1
    >>> segments.log_partition().exp()
    tensor(3.)
    >>> segments.enumerate_support()
    tensor([[ 0,  0,  0],
            [-1,  0,  0],
            [ 0, -1,  0]])
    >>> segments.marginals()["log_potentials"].detach()[..., 0, 0]  # [end, width - 1]
    tensor([[0.6667, 0.0000],
            [0.3333, 0.3333],
            [0.6667, 0.3333]])
    """

    event_name = "segmentation"
    family = "SemiMarkov"
    options = ("memory",)

    def __init__(
        self,
        log_potentials: Float[Tensor, "*b n w s s"],
        lengths: arguments.Lengths | None = None,
        *,
        tier: str | None = None,
        memory: Memory = None,
    ) -> None:
        arguments.refuse_non_tensors(log_potentials=log_potentials)
        shape = log_potentials.shape
        square = len(shape) >= 4 and shape[-1] == shape[-2]
        expect(square, "log_potentials", "must be [*b n w s s]", list(shape))
        arguments.refuse_non_floats("log_potentials", log_potentials)
        batch_shape, (n, w, s) = shape[:-4], shape[-4:-1]
        some = w > 0 and s > 0
        expect(some, "log_potentials", "must have at least one width and one label", list(shape))
        self.tier = choose_tier(log_potentials.device, tier)
        self.memory = checked_memory(memory)
        self.lengths = arguments.checked_lengths(lengths, batch_shape, n, log_potentials.device)
        self.potentials = arguments.of_one_dtype({"log_potentials": log_potentials})
        super().__init__(batch_shape, torch.Size([n]), validate_args=False)
        # The mask costs a tenth of log Z: computed only if something is wrong.
        if log_potentials.numel() and any_seen(~(log_potentials.detach().amax() < torch.inf)):
            arguments.refuse_bad_values("log_potentials", log_potentials, self._used)

    @property
    def size(self) -> tuple[int, int, int, int]:
        """(elements in all, positions, widths, labels)."""
        n, w, s = self.potentials["log_potentials"].shape[-4:-1]
        return self.batch_shape.numel(), n, w, s

    @property
    def _used(self) -> Bool[Tensor, "*b n w s 1"]:
        """Which potentials are not padding."""
        _, n, w, s = self.size
        device = self.lengths.device
        before = torch.arange(n, device=device)[:, None] - torch.arange(w, device=device)
        first_label = torch.arange(s, device=device) == 0
        within = (before[..., None] > 0) | ((before[..., None] == 0) & first_label)
        return (self._real[..., None, None] & within)[..., None]

    def _flat(self, potentials: Potentials) -> tuple[Tensor, Tensor]:
        """Potentials [b n w s s] and lengths [b]."""
        b, n, w, s = self.size
        return potentials["log_potentials"].reshape(b, n, w, s, s), self.lengths.reshape(b)

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        if self.tier == "reference":
            log_z = reference_log_partition(*self._flat(potentials))
        else:
            log_z = op.log_partition(*self._flat(potentials), self.memory)
        return log_z.reshape(self.batch_shape)

    def _cuts(self, labels: Int[Tensor, "*sb n"]) -> tuple[Tensor, Tensor, Tensor]:
        """Where segments end; the last end before each position, -1 for none; and how far it is."""
        ends, positions = labels >= 0, torch.arange(labels.shape[-1], device=labels.device)
        if not len(positions):
            return ends, labels, labels
        last = torch.where(ends, positions, -1).cummax(-1).values
        before = torch.nn.functional.pad(last[..., :-1], (1, 0), value=-1)
        return ends, before, positions - before

    def _covered(self, labels: Int[Tensor, "*sb n"]) -> Bool[Tensor, "*sb"]:
        """Whether the last real position, if there is one, ends a segment."""
        final = torch.arange(labels.shape[-1], device=labels.device) == self.lengths[..., None] - 1
        return ((labels >= 0) | ~final).all(-1)

    def _is_event(self, event: Int[Tensor, "*sb n"]) -> Bool[Tensor, "*sb"]:
        _, _, w, s = self.size
        ends, _, widths = self._cuts(event)
        good = (event >= -1) & (event < s) & ~(ends & (widths > w))
        return good.all(-1) & self._covered(event)

    def _segments(self, event: Tensor) -> tuple[Bool[Tensor, "*sb n"], Int[Tensor, "*sb n"]]:
        """Where segments end, and the index of each segment's part in the flat [n w s s]."""
        _, n, w, s = self.size
        arguments.refuse_misfits("events", event, [*self.batch_shape, n])
        labels = torch.where(self._real, event.long(), -1)
        arguments.checked_range("events", labels, -1, s)
        ends, before, widths = self._cuts(labels)
        if any_seen(ends & (widths > w)):
            raise ArgumentError(
                "event", f": segments must be at most {w} wide. Got {int(widths[ends].max())}"
            )
        if any_seen(~self._covered(labels)):
            raise ArgumentError(
                "event", ": an event must have a label at the last position of its sequence"
            )
        previous = labels.gather(-1, before.clamp(min=0)).where(before >= 0, 0)
        positions = torch.arange(n, device=labels.device)
        place = ((positions * w + widths - 1) * s + previous) * s + labels
        return ends, place.where(ends, 0)

    def _score(self, event: Int[Tensor, "*#sb n"]) -> Float[Tensor, "*sb"]:
        ends, place = self._segments(event)
        b, n, w, s = self.size
        potentials = self.potentials["log_potentials"].reshape(b, n * w * s * s)
        element = torch.arange(b, device=place.device).reshape(*self.batch_shape, 1)
        return potentials[element.expand(place.shape), place].where(ends, 0.0).sum(-1)

    def parts(self, event: Int[Tensor, "*#sb n"]) -> Potentials:
        """Indicators [*sb n w s s] of the event's segments."""
        ends, place = self._segments(event)
        _, n, w, s = self.size
        dtype = self.potentials["log_potentials"].dtype
        flat = torch.zeros((*place.shape[:-1], n * w * s * s), dtype=dtype, device=place.device)
        flat = flat.scatter_add(-1, place, ends.to(dtype))
        return {"log_potentials": flat.reshape(*place.shape[:-1], n, w, s, s)}

    @property
    def mode(self) -> Int[Tensor, "*b n"]:
        """The most probable segmentation (Viterbi); O(b n w s²).

        Ties go, from the end, to the smaller label, then width, then label before. Where none is
        possible, all segments have width 1 and label 0.
        """
        found = self._events(op.best_segments(*self._flat(self.potentials)))
        if not found.is_cuda:
            return found
        # There, what leads to a dead end is still in it.
        dead = (self._score(found) == -torch.inf)[..., None] & self._real
        return torch.where(dead, 0, found)

    def _k_best(self, k: int) -> tuple[Int[Tensor, "k b n"], Float[Tensor, "k b"]]:
        """O(k b n w s²); segments of width 1 with label 0 if there are fewer."""
        return op.k_best_segments(*self._flat(self.potentials), k)

    def _draw(self, count: int, seed: int) -> tuple[Int[Tensor, "m b n"], Bool[Tensor, " b"]]:
        return op.sample_segments(*self._flat(self.potentials), count, seed)

    def _write_events(self, events: NDArray[np.int64], used: Used) -> None:
        rank, element, end, _, _, label = used["log_potentials"]
        events[rank, element, end] = label

    def min_risk(self) -> Int[Tensor, "*b n"]:
        """The segmentation with the most expected correct labelled segments.

        It maximises the sum of the marginals of its labelled segments, among the possible
        segmentations. O(b n w s²).
        """
        with torch.no_grad():
            used = self.marginals()["log_potentials"]
            gains = used.sum(-2, keepdim=True).expand(used.shape)
            return self._supported({"log_potentials": gains}).mode

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "m *b n"]:
        """All segmentations [m *b n] with segments at most w wide, if all lengths are the same."""
        n = self._one_length()
        _, _, w, s = self.size
        counts = [1]
        for t in range(1, n + 1):
            counts.append(s * sum(counts[max(t - w, 0) : t]))
        self._refuse_many(counts[n])
        prefixes = [torch.empty((1, 0), dtype=torch.long)]
        for t in range(1, n + 1):
            longer = [
                torch.nn.functional.pad(prefix, (0, t - length), value=-1)
                for length, prefix in reversed(list(enumerate(prefixes)))
                if t - length <= w
            ]
            ending = torch.cat(longer).repeat_interleave(s, 0)
            ending[:, -1] = torch.arange(s).repeat(len(ending) // s)
            prefixes.append(ending)
        return self._support(prefixes[n], expand)

    def _generating(
        self, lanes: Lanes, values: dict[str, Tensor], shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        potentials, lengths = self._flat(self.potentials)
        return generating_function(lanes, potentials, lengths, values["log_potentials"], shift)

    def forest(self) -> Forest:
        """The segmentations as an explicit forest, one goal for each batch element.

        Its one relation is the potentials, flattened (padding at -inf); gradients flow back to
        them.
        """
        potentials = torch.where(self._used, self.potentials["log_potentials"], -torch.inf)
        b, n, w, s = self.size
        items = BlockLabels({"log_potentials": (b, n, w, s, s), "alpha": (b, n, s), "goal": (b,)})
        relations = {"log_potentials": potentials}
        return chart_forest(relations, items, self._edges(items), batched=bool(self.batch_shape))

    def _edges(self, items: BlockLabels) -> list[Group]:
        """alpha(element, t, label): the first t + 1 positions, ending with such a segment."""
        b, _, w, s = self.size
        part, alphas = items.numbers("log_potentials"), items.numbers("alpha")
        goals = items.numbers("goal")[:, None]
        groups: list[Group] = []
        for k, length in enumerate(self.lengths.reshape(b).tolist()):
            if length == 0:
                groups.append((goals[k], []))
                continue
            for end in range(length):
                if end < w:
                    groups.append((alphas[k, end], [part[k, end, end, 0]]))
                for d in range(1, min(w, end) + 1):
                    before = np.repeat(alphas[k, end - d], s)
                    after = np.tile(alphas[k, end], s)
                    groups.append((after, [before, part[k, end, d - 1].reshape(-1)]))
            groups.append((np.repeat(goals[k], s), [alphas[k, length - 1]]))
        return groups
