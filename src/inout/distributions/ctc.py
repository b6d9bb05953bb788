"""`CTC`: labels of frames that spell a given sequence (connectionist temporal classification)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout._core.tracing import is_readable
from inout.distributions import arguments
from inout.distributions.base import StructuredDistribution
from inout.distributions.derivatives import Potentials
from inout.distributions.paths import NO_EVENT, PathDistribution, Planes
from inout.forest.labels import BlockLabels
from inout.kernels.alignment import op
from inout.kernels.alignment.lattice import COLUMN, ROW, Lattice, Move, Plane

# Layer 0 is in a blank, layer 1 in a label; a column is a label of the target. A label follows
# another without a blank between them unless they are the same.
BLANKS, LABELS = 0, 1
STAY, REST, BEGIN, REPEAT, FOLLOW = range(5)
LATTICE = Lattice(
    moves=(
        Move(BLANKS, BLANKS, 1, 0, (0,)),
        Move(LABELS, BLANKS, 1, 0, (0,)),
        Move(BLANKS, LABELS, 1, 1, (1,)),
        Move(LABELS, LABELS, 1, 0, (1,)),
        Move(LABELS, LABELS, 1, 1, (1, 2)),
    ),
    planes=(ROW, Plane(1, 1, 0, 0), COLUMN),
    last=(BLANKS, LABELS),
)


class Segments(NamedTuple):
    """Where the labels of targets are: frames start, …, stop - 1. See `CTC.segments`."""

    start: Int[Tensor, "*b u"]
    stop: Int[Tensor, "*b u"]
    confidence: Float[Tensor, "*b u"]


class CTC(PathDistribution):
    """Labels of frames, given the target that they spell: p proportional to their scores.

    `log_probs` [*b t v] score each label at each frame; they need not be normalised, and may be
    -inf. `targets` [*b u] are labels other than the `blank`; `lengths` [*b] and `target_lengths`
    [*b], tensors or lists, say how many frames and targets are real. A sequence of frames spells
    what is left when repeated labels are taken once, and then blanks are removed.

    With log-softmax outputs, log Z is the log-likelihood of the target: `-log_partition()` is the
    CTC loss. A target that does not fit its frames has log Z = -inf and gradient 0.

    Events are the labels (or blanks) of all frames [*b t], -1 in the padding; `mode` is the forced
    alignment. O(b t u) time and memory for all queries, besides `log_probs` and their gradient.
    Half precision is computed in float32; `tier="reference"` runs plain torch code.

    >>> import torch
    >>> ctc = CTC(torch.zeros(4, 3), torch.tensor([1, 2]))
    >>> ctc.log_partition().exp()  # 1 1 2 2, 1 0 2 2, 0 1 2 0, …
    tensor(15.)
    >>> ctc.marginals()["log_probs"][0]  # labels of the first frame
    tensor([0.3333, 0.6667, 0.0000])
    >>> CTC(torch.zeros(3, 3), torch.tensor([1, 1])).mode  # a repeated label needs a blank
    tensor([1, 0, 1])

    Graves et al., "Connectionist temporal classification" (2006), section 4.
    """

    lattice = LATTICE
    event_name = "labelling"
    _wanted = "labels of frames that spell the target"
    _further_tensors: ClassVar = {"target_lengths": 0, "targets": 1}

    def __init__(
        self,
        log_probs: Float[Tensor, "*b t v"],
        targets: Int[Tensor, "*b u"],
        lengths: arguments.Lengths | None = None,
        target_lengths: arguments.Lengths | None = None,
        blank: int = 0,
        *,
        tier: str | None = None,
    ) -> None:
        arguments.refuse_non_tensors(log_probs=log_probs, targets=targets)
        good = log_probs.ndim >= 2 and log_probs.shape[-1] > 0
        expect(good, "log_probs", "must be [*b t v]", list(log_probs.shape))
        batch_shape, (t, v) = log_probs.shape[:-2], log_probs.shape[-2:]
        good = targets.shape[:-1] == batch_shape and targets.ndim == len(batch_shape) + 1
        wanted = f"must be [{', '.join([*map(str, batch_shape), 'u'])}] for these log_probs"
        expect(good, "targets", wanted, list(targets.shape))
        expect(arguments.is_integer(targets), "targets", "must be integers", targets.dtype)
        expect(isinstance(blank, int) and 0 <= blank < v, "blank", f"must be in 0..{v - 1}", blank)
        self.blank = blank
        sizes = t, targets.shape[-1]
        self._set_sizes(batch_shape, sizes, lengths, target_lengths, tier, log_probs.device)
        self._set_event(batch_shape, t)
        self.targets, blanks = targets.long(), targets == blank
        if target_lengths is not None:
            real = self._columns < self.target_lengths[..., None]
            self.targets, blanks = self.targets.where(real, 0), blanks & real
        if not _seem_right(log_probs, self.targets, blanks):
            arguments.checked_range("targets", self.targets, 0, v)
            if bool(blanks.any()):
                raise ArgumentError("targets", f"must not have the blank, {blank}, among them")
            arguments.refuse_bad_values("log_probs", log_probs, lambda: self._real[..., None])
        self.potentials = arguments.of_one_dtype({"log_probs": log_probs})

    @property
    def _columns(self) -> Int[Tensor, " u"]:
        return torch.arange(self.sizes[1], device=self.lengths.device)

    @property
    def _flat_targets(self) -> Int[Tensor, "b u"]:
        found = self.targets.reshape(self.batch_shape.numel(), self.sizes[1])
        return found.clone() if found.is_inference() else found

    @property
    def _repeated(self) -> Bool[Tensor, "b u"]:
        """Which labels of the targets cannot follow the one before them without a blank."""
        return _repeated_in(self._flat_targets)

    def _planes(self, values: Mapping[str, Inexact[Tensor, "*k b t v"]]) -> Planes:
        return _planes_of(values["log_probs"], self._flat_targets, self.blank)

    def _masked(self, planes: Planes) -> Planes:
        blanks, labels, none = planes
        return [blanks, labels, none.masked_fill(self._repeated[:, None], -torch.inf)]

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        if self.tier != "gpu":
            return super()._log_partition(potentials)
        lengths = (x.reshape(-1, 1) for x in (self.lengths, self.target_lengths))
        given = torch.cat([*lengths, self._flat_targets], 1)
        (scores,) = self._flat(potentials).values()
        planes_of = partial(_weights_of, blank=self.blank)
        found = op.ctc_log_partition(self.lattice, scores, given, self.blank, planes_of)
        return found.reshape(self.batch_shape)

    def _moves_of(self, event: Int[Tensor, "*sb t"]) -> tuple[Tensor, Bool[Tensor, "*sb"]]:
        real = self._real
        before = torch.nn.functional.pad(event[..., :-1], (1, 0), value=self.blank)
        label, after = (event != self.blank) & real, before != self.blank
        begins = label & (event != before)
        place = begins.long().cumsum(-1)
        moves = torch.where(
            label,
            torch.where(begins, torch.where(after, FOLLOW, BEGIN), REPEAT),
            torch.where(after, REST, STAY),
        )
        targets = self.targets.expand(*event.shape[:-1], self.sizes[1])
        if self.sizes[1]:
            spelt = targets.gather(-1, (place - 1).clamp(0, self.sizes[1] - 1))
        else:
            spelt = torch.full_like(event, NO_EVENT)
        wrong = (begins & ((spelt != event) | (place > self.sizes[1]))).any(-1)
        wrong = wrong | (begins.sum(-1) != self.target_lengths)
        return moves.where(real, NO_EVENT), wrong | ((event < 0) & real).any(-1)

    def _of_moves(self, paths: Int[Tensor, "*m b t"]) -> Int[Tensor, "*m b t"]:
        table = torch.from_numpy(self.lattice.arrays[0]).to(paths.device)
        own = table[paths.clamp(min=0)]
        place = (own[..., 4] * (paths >= 0)).cumsum(-1) - 1
        labels = torch.full_like(paths, self.blank)
        if self.sizes[1]:
            targets = self._flat_targets.expand(*paths.shape[:-1], self.sizes[1])
            labels = targets.gather(-1, place.clamp(min=0)).where(own[..., 1] == LABELS, labels)
        return labels.where(paths >= 0, NO_EVENT)

    def min_risk(self) -> Int[Tensor, "*b t"]:
        """The labels with the most expected correct frames, among those that spell the target."""
        with torch.no_grad():
            return self._supported(self.marginals()).mode

    def _one_size(self) -> tuple[int, int]:
        found = super()._one_size()
        own = self._flat_targets[:, : found[1]]
        if bool((own != own[:1]).any()):
            raise ArgumentError(None, "enumerate_support needs elements with the same targets")
        return found

    def _allowed(self, paths: Int[Tensor, "_ p"]) -> Int[Tensor, "_ p"]:
        if not self.batch_shape.numel() or not self.sizes[1]:
            return paths
        table = torch.from_numpy(self.lattice.arrays[0]).to(paths.device)
        place = (table[paths.clamp(min=0), 4] * (paths >= 0)).cumsum(-1) - 1
        wrong = self._repeated[0][place.clamp(min=0)] & (paths == FOLLOW)
        return paths[~wrong.any(-1)]

    def _refuse_other_events(self, other: StructuredDistribution) -> None:
        super()._refuse_other_events(other)
        assert isinstance(other, CTC)
        if other.blank != self.blank or not torch.equal(other.targets, self.targets):
            raise ArgumentError(None, "both distributions must have the same targets and blank")

    def _plane_items(self, items: BlockLabels) -> list[NDArray[np.int64] | None]:
        numbers = items.numbers("log_probs")
        targets = self._flat_targets.cpu().numpy()[:, None]
        labels = np.take_along_axis(
            numbers, np.broadcast_to(targets, (*numbers.shape[:2], targets.shape[-1])), 2
        )
        return [numbers[:, :, self.blank, None], labels, None]

    def target_marginals(self) -> Float[Tensor, "*b t u"]:
        """Probability that a frame belongs to each label of the target, told apart by place.

        Not differentiable. Frames also have a probability to be blank; both add up to 1.
        """
        with torch.no_grad():
            uses = op.expected_uses(self.lattice, self._weights(self._expanded()), self._flat_sizes)
            return uses[LABELS].reshape(*self.batch_shape, *self.sizes)

    def segments(self) -> Segments:
        """The frames of each label of the target in the forced alignment, `mode`.

        `confidence` is the mean probability of the label at its frames, given the target. Where
        there is no alignment, and in the padding, frames are -1 and confidences 0.

        >>> import torch
        >>> scores = torch.eye(3)[[0, 1, 1, 0, 2]] * 5
        >>> CTC(scores, torch.tensor([1, 2])).segments()
        Segments(start=tensor([1, 4]), stop=tensor([3, 5]), confidence=tensor([0.9934, 0.9999]))
        """
        frames = self.mode
        before = torch.nn.functional.pad(frames[..., :-1], (1, 0), value=self.blank)
        real = self._real & (frames >= 0) & (frames != self.blank)
        place = ((real & (frames != before)).long().cumsum(-1) - 1).clamp(min=0)
        t, u = self.sizes
        own = (place[..., None] == self._columns) & real[..., None]
        count = own.sum(-2)
        frame = torch.arange(t, device=frames.device)[:, None]
        found = count > 0
        start = torch.where(own, frame, t).amin(-2) if t else count
        stop = torch.where(own, frame + 1, 0).amax(-2) if t else count
        chances = (self.target_marginals() * own).sum(-2) / count.clamp(min=1)
        return Segments(
            start.where(found, NO_EVENT), stop.where(found, NO_EVENT), chances.where(found, 0.0)
        )


def _seem_right(scores: Tensor, targets: Int[Tensor, "*b u"], blanks: Bool[Tensor, "*b u"]) -> bool:
    """Whether nothing is wrong with arguments on a GPU, which is waited for once; or unknown."""
    if not (scores.is_cuda and scores.is_floating_point() and scores.numel() and targets.numel()):
        return False
    if not is_readable(scores, targets, blanks):
        return False
    largest, (low, high) = scores.detach().amax(), targets.aminmax()
    lowest, highest, wrong = torch.stack([low, high, blanks.sum()]).tolist()
    right = lowest >= 0 and highest < scores.shape[-1] and not wrong
    return right and float(largest) < torch.inf


def _repeated_in(targets: Int[Tensor, "b u"]) -> Bool[Tensor, "b u"]:
    """Which labels are the one before them again, or the first."""
    before = torch.nn.functional.pad(targets[:, :-1], (1, 0), value=-1)
    return (targets == before) | (torch.arange(targets.shape[1], device=targets.device) == 0)


def _planes_of(
    table: Inexact[Tensor, "*k b t v"], targets: Int[Tensor, "b u"], blank: int
) -> Planes:
    """Scores of the blank, of the labels of the target, and of a label behind another."""
    places = targets[:, None].expand(*table.shape[:-1], -1)
    none = table.new_zeros(*table.shape[:-2], 1, targets.shape[1])
    return [table[..., blank, None], table.gather(-1, places), none]


def _weights_of(scores: Float[Tensor, "b t v"], targets: Int[Tensor, "b u"], blank: int) -> Planes:
    """The planes of one batch, with what cannot follow at -inf."""
    blanks, labels, none = _planes_of(scores, targets, blank)
    return [blanks, labels, none.masked_fill(_repeated_in(targets)[:, None], -torch.inf)]
