"""`RNNT`: the frames at which a transducer emits the labels of a given sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import at_least, expect, expect_shape
from inout._core.errors import ArgumentError
from inout.distributions import arguments
from inout.distributions.paths import NO_EVENT, PathDistribution, Planes
from inout.forest.labels import BlockLabels
from inout.kernels.alignment import additive, joiner
from inout.kernels.alignment.lattice import ROW, Lattice, Move, Plane
from inout.kernels.tiers import choose_tier

BLANK, LABEL = 0, 1
# The last frame ends with a blank: labels are emitted before it.
LATTICE = Lattice(
    moves=(Move(0, 0, 1, 0, (0,)), Move(0, 0, 0, 1, (1,))),
    planes=(ROW, Plane(0, 1, 0, 0)),
    last=(0,),
)


class RNNT(PathDistribution):
    """At which frame each label of a target is emitted: the recurrent neural network transducer.

    After j labels, at frame t, the next label is emitted with log-probability `labels` [*b t u+1],
    or a `blank` [*b t u+1], which goes on to the next frame; the path ends with a blank at the last
    frame. The last column of `labels` is never read, and may be left out. They need not be
    normalised, and may be -inf. `lengths` and `target_lengths` [*b] say how many frames and labels
    are real. `from_logits` and `from_joiner` make both of the outputs of a network.

    log Z is the log-likelihood of the target. Events are the frames [*b u] at which its labels are
    emitted, in order; -1 in the padding. O(b t u) time and memory for all queries; half precision
    is computed in float32; `tier="reference"` runs plain torch code.

    >>> import torch
    >>> d = RNNT(torch.zeros(3, 3), torch.zeros(3, 3))  # three frames, two labels
    >>> d.log_partition().exp()
    tensor(6.)
    >>> d.enumerate_support()
    tensor([[0, 0],
            [0, 1],
            [1, 1],
            [0, 2],
            [1, 2],
            [2, 2]])

    Graves, "Sequence transduction with recurrent neural networks" (2012), section 2.4.
    """

    lattice = LATTICE
    event_name = "alignment"
    _wanted = "frames in order, one for each label"

    def __init__(
        self,
        blank: Float[Tensor, "*b t w"],
        labels: Float[Tensor, "*b t _"],
        lengths: arguments.Lengths | None = None,
        target_lengths: arguments.Lengths | None = None,
        *,
        tier: str | None = None,
    ) -> None:
        arguments.refuse_non_tensors(blank=blank, labels=labels)
        good = blank.ndim >= 2 and blank.shape[-1] > 0
        expect(good, "blank", "must be [*b t u+1]", list(blank.shape))
        batch_shape, (t, w) = blank.shape[:-2], blank.shape[-2:]
        good = labels.shape in (blank.shape, (*batch_shape, t, w - 1))
        expect(good, "labels", f"must be {list(blank.shape)}, as blank", list(labels.shape))
        self._set_sizes(batch_shape, (t, w - 1), lengths, target_lengths, tier, blank.device)
        self._set_planes(blank, labels)

    @classmethod
    def _made(
        cls, planes: Planes, given: _Given, batch_shape: torch.Size, tier: str | None
    ) -> RNNT:
        """From planes [b t w], with lengths that have been checked."""
        blank, labels = (x.reshape(*batch_shape, *x.shape[1:]) for x in planes)
        made = cls.__new__(cls)
        made.sizes = blank.shape[-2], blank.shape[-1] - 1
        made.lengths, made.target_lengths = given.frames, given.sizes
        made.tier = choose_tier(blank.device, tier)
        made._set_planes(blank, labels)
        return made

    def _set_planes(self, blank: Tensor, labels: Tensor) -> None:
        batch_shape = blank.shape[:-2]
        self._set_event(batch_shape, blank.shape[-1] - 1)
        potentials = {"blank": blank, "labels": labels}
        self._shapes = {name: x.shape[len(batch_shape) :] for name, x in potentials.items()}
        if not arguments.seem_right(blank, labels):
            for p, (name, value) in enumerate(potentials.items()):
                real = self._real_plane(p, self._shapes[name]).reshape(value.shape)
                arguments.refuse_bad_values(name, value, real)
        self.potentials = arguments.of_one_dtype(potentials)

    @classmethod
    def from_logits(
        cls,
        logits: Float[Tensor, "*b t w v"],
        targets: Int[Tensor, "*b u"],
        lengths: arguments.Lengths | None = None,
        target_lengths: arguments.Lengths | None = None,
        blank: int = 0,
        *,
        starts: Int[Tensor, "*b t"] | None = None,
        tier: str | None = None,
    ) -> RNNT:
        """From joint outputs [*b t u+1 v], unnormalised, and the `targets` [*b u].

        Their log-softmax is taken in blocks: besides them and their gradient nothing is as large.
        With `starts`, logits are [*b t s v], of s symbols of each frame from there on (see
        `windows`); all others are impossible.

        >>> import torch
        >>> RNNT.from_logits(torch.zeros(3, 3, 4), torch.tensor([1, 2])).log_partition().exp()
        tensor(0.0059)
        """
        arguments.refuse_non_tensors(logits=logits, targets=targets, starts=starts)
        good = logits.ndim >= 3 and 0 not in logits.shape[-2:]
        expect(good, "logits", "must be [*b t u+1 v]", list(logits.shape))
        arguments.refuse_non_floats("logits", logits)
        batch_shape, (t, w, v) = logits.shape[:-3], logits.shape[-3:]
        given = _Given.of(targets, batch_shape, t, v, blank, lengths, target_lengths)
        given = given.on(logits.device)
        u, b = given.padded.shape[1] - 1, batch_shape.numel()
        if starts is None:
            expect(
                w == u + 1,
                "logits",
                f"must be [*b t {u + 1} v] for these targets",
                list(logits.shape),
            )
        places = _places(starts, batch_shape, t, w, u)
        sizes = given.frames.reshape(b), given.sizes.reshape(b) + 1
        own = joiner.labels_of(given.padded, *sizes, t, places)
        planes = joiner.from_logits(logits.reshape(b, t, w, v), own, blank)
        if places is not None:
            none = planes[0].new_full((b, t, u + 1), -torch.inf)
            planes = (none.scatter(-1, places, planes[0]), none.scatter(-1, places, planes[1]))
        return cls._made(list(planes), given, batch_shape, tier)

    @classmethod
    def from_joiner(
        cls,
        encoder: Float[Tensor, "*b t v"],
        predictor: Float[Tensor, "*b w v"],
        targets: Int[Tensor, "*b u"],
        lengths: arguments.Lengths | None = None,
        target_lengths: arguments.Lengths | None = None,
        blank: int = 0,
        *,
        tier: str | None = None,
    ) -> RNNT:
        """From an additive joiner: logits encoder[t] + predictor[j], of which t·u·v are never made.

        O(b (t + u) v + b t u) memory; the time is that of a matrix product [t v] [v u+1].

        >>> import torch
        >>> d = RNNT.from_joiner(torch.zeros(3, 4), torch.zeros(3, 4), torch.tensor([1, 2]))
        >>> d.log_partition().exp()
        tensor(0.0059)
        """
        arguments.refuse_non_tensors(encoder=encoder, predictor=predictor, targets=targets)
        good = encoder.ndim >= 2 and encoder.shape[-1] > 0
        expect(good, "encoder", "must be [*b t v]", list(encoder.shape))
        batch_shape, (t, v) = encoder.shape[:-2], encoder.shape[-2:]
        given = _Given.of(targets, batch_shape, t, v, blank, lengths, target_lengths)
        given = given.on(encoder.device)
        expect_shape("predictor", predictor, (*batch_shape, given.padded.shape[1], v))
        rows = {
            "encoder": (encoder, None if lengths is None else given.frames),
            "predictor": (predictor, None if target_lengths is None else given.sizes + 1),
        }
        real = {name: _real_rows(name, *row) for name, row in rows.items()}
        b = batch_shape.numel()
        parts = [x.reshape(b, *x.shape[-2:]) for x in real.values()]
        planes = additive.from_sum(parts[0], parts[1], given.padded, blank)
        try:
            return cls._made(list(planes), given, batch_shape, tier)
        except ArgumentError:
            for name, x in real.items():  # what was wrong is in one of these
                arguments.refuse_bad_values(name, x)
            raise

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        return self._shapes

    @property
    def _real_entries(self) -> Bool[Tensor, "*b u"]:
        labels = torch.arange(self.event_shape[0], device=self.lengths.device)
        return labels < self.target_lengths[..., None]

    def _planes(self, values: Mapping[str, Inexact[Tensor, ...]]) -> Planes:
        return list(values.values())

    def _plane_items(self, items: BlockLabels) -> list[NDArray[np.int64]]:
        return [items.numbers("blank"), items.numbers("labels")]

    def _moves_of(self, event: Int[Tensor, "*sb u"]) -> tuple[Tensor, Bool[Tensor, "*sb"]]:
        t, u = self.sizes
        real = self._real_entries.expand(event.shape)
        before = torch.nn.functional.pad(event[..., :-1], (1, 0)) if u else event
        wrong = (real & ((event < before) | (event >= self.lengths[..., None]))).any(-1)
        wrong = wrong | ((self.lengths == 0) & (self.target_lengths > 0))
        place = event.clamp(0, max(t - 1, 0)) + torch.arange(u, device=event.device)
        moves = torch.zeros((*event.shape[:-1], t + u), dtype=torch.long, device=event.device)
        if t + u:
            moves = moves.scatter_add(-1, place, real.long()).clamp(max=LABEL)
        step = torch.arange(t + u, device=event.device)
        last = (self.lengths + self.target_lengths)[..., None]
        return moves.where(step < last, NO_EVENT), wrong

    def _of_moves(self, paths: Int[Tensor, "*m b p"]) -> Int[Tensor, "*m b u"]:
        u = self.sizes[1]
        frame = (paths == BLANK).long().cumsum(-1)
        label = paths == LABEL
        place = (label.long().cumsum(-1) - 1).where(label, u)
        events = torch.full((*paths.shape[:-1], u + 1), NO_EVENT, device=paths.device)
        return events.scatter(-1, place, frame)[..., :u]

    def _gains(self, uses: Planes) -> Planes:
        return [torch.zeros_like(uses[0]), uses[1]]  # labels at their frames

    def windows(self, size: int) -> Int[Tensor, "*b t"]:
        """Where windows of `size` symbols should start in each frame, for `from_logits(starts=)`.

        A window has the most expected visits of its frame; then starts are moved, so that they go
        from 0 to the last symbols, never back, and windows of neighbouring frames overlap. `self`
        is usually a simple model, such as that of `from_joiner`, and the windows are for the logits
        of a better one. At most u+1 symbols.

        Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training" (2022), section 3.2.
        """
        size = min(at_least("size", size, 1), self.sizes[1] + 1)
        t = self.sizes[0]
        with torch.no_grad():
            found = self.marginals()
            visits = found["blank"].double()
            labels = found["labels"].double()
            visits[..., : labels.shape[-1]] += labels
            sums = torch.nn.functional.pad(visits.cumsum(-1), (1, 0))
            best = (sums[..., size:] - sums[..., :-size]).argmax(-1)
        frame = torch.arange(t, device=best.device)
        last = (self.target_lengths + 1 - size).clamp(min=0)[..., None]
        left = (self.lengths[..., None] - 1 - frame).clamp(min=0)
        if bool((last > (self.lengths[..., None] - 1).clamp(min=0) * (size - 1)).any()):
            raise ArgumentError(
                "size",
                f"is too small: windows of {size} symbols cannot overlap up to the last label",
            )
        best = best.cummax(-1).values if t else best
        best = torch.maximum(torch.minimum(best, frame * (size - 1)), last - left * (size - 1))
        best = torch.minimum(best, last)
        slack = (best - frame * (size - 1)).flip(-1)
        return slack.cummax(-1).values.flip(-1) + frame * (size - 1) if t else best

    @staticmethod
    def in_windows(
        values: Float[Tensor, "*b w h"], starts: Int[Tensor, "*b t"], size: int
    ) -> Float[Tensor, "*b t s h"]:
        """Rows of a predictor's outputs [*b u+1 h] in windows of `size`, frame by frame."""
        places = starts[..., None] + torch.arange(size, device=starts.device)
        flat = places.flatten(-2)[..., None].expand(*places.shape[:-2], -1, values.shape[-1])
        return values.gather(-2, flat).reshape(*places.shape, values.shape[-1])


def _wide(x: Tensor) -> Tensor:
    """At least in single precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _real_rows(name: str, x: Tensor, sizes: Tensor | None) -> Tensor:
    """At least in single precision, 0 in the padding."""
    arguments.refuse_non_floats(name, x)
    if sizes is None:
        return _wide(x)
    real = torch.arange(x.shape[-2], device=x.device) < sizes[..., None]
    return _wide(x).where(real[..., None], 0.0)


class _Given(NamedTuple):
    """Targets with a blank in the padding and behind them [b u+1]; frames and labels [*b]."""

    padded: Int[Tensor, "b w"]
    frames: Int[Tensor, "*b"]
    sizes: Int[Tensor, "*b"]

    @classmethod
    def of(
        cls,
        targets: Tensor,
        batch_shape: torch.Size,
        t: int,
        v: int,
        blank: int,
        lengths: Any,
        target_lengths: Any,
    ) -> _Given:
        """The checked arguments."""
        targets, lengths, target_lengths = arguments.on_host(targets, lengths, target_lengths)
        padded = targets_with_blanks(targets, batch_shape, v, blank, target_lengths)
        u, device = padded.shape[-1] - 1, targets.device
        return cls(
            padded.reshape(batch_shape.numel(), u + 1),
            arguments.checked_lengths(lengths, batch_shape, t, device),
            arguments.checked_lengths(target_lengths, batch_shape, u, device, "target_lengths"),
        )

    def on(self, device: torch.device) -> _Given:
        """The same there, by one copy."""
        if self.padded.device == device:
            return self
        flat = torch.cat([x.reshape(-1) for x in self]).to(device)
        parts = torch.split(flat, [x.numel() for x in self])
        return _Given(*(x.reshape(y.shape) for x, y in zip(parts, self, strict=True)))


def targets_with_blanks(
    targets: Tensor, batch_shape: torch.Size, v: int, blank: int, lengths: object
) -> Int[Tensor, "*b w"]:
    """The checked targets, with the blank in the padding and once more behind them: [*b u+1]."""
    expect(isinstance(blank, int) and 0 <= blank < v, "blank", f"must be in 0..{v - 1}", blank)
    good = targets.ndim == len(batch_shape) + 1 and targets.shape[:-1] == batch_shape
    wanted = f"must be [{', '.join([*map(str, batch_shape), 'u'])}] for these outputs"
    expect(good, "targets", wanted, list(targets.shape))
    expect(arguments.is_integer(targets), "targets", "must be integers", targets.dtype)
    u = targets.shape[-1]
    sizes = arguments.checked_lengths(lengths, batch_shape, u, targets.device, "target_lengths")
    real = torch.arange(u, device=targets.device) < sizes[..., None]
    ids = arguments.checked_range("targets", targets.where(real, blank).long(), 0, v)
    if bool(((ids == blank) & real).any()):
        raise ArgumentError("targets", f"must not have the blank, {blank}, among them")
    return torch.nn.functional.pad(ids, (0, 1), value=blank)


def _places(
    starts: Tensor | None, batch_shape: torch.Size, t: int, w: int, u: int
) -> Int[Tensor, "b t w"] | None:
    """The symbols of windows, None for all symbols."""
    if starts is None:
        return None
    expect_shape("starts", starts, (*batch_shape, t))
    expect(arguments.is_integer(starts), "starts", "must be integers", starts.dtype)
    expect(w <= u + 1, "logits", f"must have windows of at most {u + 1} symbols", w)
    arguments.checked_range("starts", starts, 0, u + 2 - w)
    return starts.reshape(batch_shape.numel(), t, 1).long() + torch.arange(w, device=starts.device)
