"""`StructuredLayer`: what the layers have in common."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from inout._core.checks import at_least, expect, expect_one_of, expect_shape
from inout._core.errors import ArgumentError
from inout._core.tracing import any_seen, called, in_graph, is_transformed, untraced
from inout.distributions.arguments import Lengths, is_integer, refuse_non_tensors
from inout.distributions.base import StructuredDistribution
from inout.nn.masks import lengths_of

Gold = Tensor | Sequence[Any]  # events, or lists as `decode` returns
D = TypeVar("D", bound=StructuredDistribution)
C = TypeVar("C")  # constraints
REDUCTIONS = ("none", "sum", "mean", "token_mean")


class Span(NamedTuple):
    """Positions start, …, stop - 1 and their label."""

    start: int
    stop: int
    label: int


# What a graph traces through: all else reads values.
_TRACED = dict.fromkeys(("distribution", "forward", "log_prob", "marginals"))


@partial(untraced, instead=_TRACED)
class StructuredLayer(nn.Module, Generic[D]):
    """A module that scores events by an encoder's output and tables of its own.

    The batch comes first, as with torch's `batch_first=True`: scores are [*b n ...], any number of
    batch dimensions. Elements are padded on the right; `mask` [*b n] is True where there is no
    padding, or `lengths` [*b] says how much there is. The tables begin at 0. `constraints` has a
    mask for each table: what is False has log-potential -inf, whatever is learned. An entry of the
    scores may be -inf as well, for constraints of one input.

    `gold` are events of the distribution (any numbers in the padding), or lists like those that
    `decode` returns.
    """

    kind: ClassVar[Any]  # of constraints
    in_graphs: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        untraced(cls, _TRACED)

    def __init__(
        self,
        tables: Mapping[str, tuple[int, ...]],
        constraints: Any = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._tables = tuple(tables)
        good = constraints is None or (tables and isinstance(constraints, self.kind))
        wanted = f"{self.kind.__name__}, as in inout.constraints, or None" if tables else "None"
        expect(good, "constraints", f"must be {wanted}", constraints)
        masks: dict[str, Tensor] = constraints._asdict() if constraints else {}
        for name, shape in tables.items():
            setattr(self, name, nn.Parameter(torch.zeros(shape, device=device, dtype=dtype)))
            allowed = masks.get(name)
            if allowed is not None:
                expect_shape(f"constraints.{name}", allowed, shape)
                allowed = allowed.to(device=device, dtype=torch.bool)
            # How a layer is made, not what it has learned.
            self.register_buffer(f"allowed_{name}", allowed, persistent=False)

    def reset_parameters(self) -> None:
        """Set all tables to 0, as at the beginning."""
        for name in self._tables:
            nn.init.zeros_(getattr(self, name))

    def _table(self, name: str) -> Tensor:
        """A table, -inf where the constraints forbid something."""
        table: Tensor = getattr(self, name)
        allowed: Tensor | None = getattr(self, f"allowed_{name}")
        return table if allowed is None else table.masked_fill(~allowed, -torch.inf)

    @abstractmethod
    def _size(self, scores: Tensor) -> tuple[torch.Size, int]:
        """The batch's shape and the number of positions; refuses other shapes."""

    @abstractmethod
    def _distribution(self, scores: Tensor, lengths: Int[Tensor, "*b"], n: int) -> D:
        """The distribution of these scores and the tables."""

    @abstractmethod
    def _marginals(self, distribution: D) -> Tensor:
        """Probabilities of parts, in the shape of the scores."""

    def _row(self, event: Tensor) -> list[Any]:
        """One event without padding as a list."""
        return list(event.tolist())

    def _event(self, row: Sequence[Any], length: int) -> Tensor:
        """The inverse of `_row`."""
        expect(len(row) == length, "gold", f"must have {length} positions here", len(row))
        event = torch.as_tensor(row) if length else torch.zeros(0, dtype=torch.long)
        expect(is_integer(event), "gold", "must be whole numbers", row)
        return event

    def distribution(
        self, scores: Tensor, mask: Tensor | None = None, lengths: Lengths | None = None
    ) -> D:
        """The distribution over events, for all other queries: samples, k best, entropy, ….

        Differentiable in the scores and in the layer's tables.
        """
        refuse_non_tensors(scores=scores)
        batch_shape, n = self._size(scores)
        return self._distribution(
            scores, lengths_of(mask, lengths, batch_shape, n, scores.device), n
        )

    def forward(
        self,
        scores: Tensor,
        gold: Gold,
        mask: Tensor | None = None,
        lengths: Lengths | None = None,
        reduction: str = "mean",
    ) -> Float[Tensor, " ..."]:
        """The loss: the negative log-likelihood of the gold events.

        `reduction`: "none" [*b], "sum", "mean" over elements, "token_mean" over all positions. A
        gold event that is impossible has loss +inf; a warning says which and why.
        """
        expect_one_of("reduction", reduction, REDUCTIONS)
        distribution = self.distribution(scores, mask, lengths)
        events = self._events(gold, distribution)
        loss = -distribution.log_prob(events)
        if not in_graph():
            _warn_later(loss, events, distribution)
        if reduction == "none":
            return loss
        if reduction == "mean":
            return loss.mean()
        total = loss.sum()
        if reduction == "sum":
            return total
        return total / distribution.lengths.expand(loss.shape).sum()

    def log_prob(
        self, scores: Tensor, gold: Gold, mask: Tensor | None = None, lengths: Lengths | None = None
    ) -> Float[Tensor, " ..."]:
        """Log-probability [*b] of each event, -inf where it breaks a constraint."""
        distribution = self.distribution(scores, mask, lengths)
        return distribution.log_prob(self._events(gold, distribution))

    def marginals(
        self, scores: Tensor, mask: Tensor | None = None, lengths: Lengths | None = None
    ) -> Float[Tensor, " ..."]:
        """The probability of each part, in the shape of the scores; 0 in the padding."""
        return self._marginals(self.distribution(scores, mask, lengths))

    def decode(
        self, scores: Tensor, mask: Tensor | None = None, lengths: Lengths | None = None
    ) -> list[Any]:
        """The most probable event of each element as a list, without padding."""
        with torch.no_grad():
            distribution = self.distribution(scores, mask, lengths)
            return self._lists(distribution.mode, distribution.lengths)

    def _lists(self, events: Tensor, lengths: Tensor) -> list[Any]:
        """Lists of events, nested like the batch."""
        if lengths.ndim:
            return [self._lists(*pair) for pair in zip(events, lengths, strict=True)]
        return self._row(events[: int(lengths)])

    def _events(self, gold: Gold, distribution: D) -> Tensor:
        """Gold events as a tensor."""
        if isinstance(gold, Tensor):
            return gold.to(distribution.lengths.device)
        events: Tensor = self._events_of_lists(gold, distribution)
        return events

    @called
    def _events_of_lists(self, gold: Sequence[Any], distribution: D) -> Tensor:
        """Events of nested lists, padded."""
        try:
            return self._padded(gold, distribution)
        except (TypeError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            wanted = "must be a tensor, or lists like those that decode returns"
            raise ArgumentError("gold", f"{wanted}. Got {gold!r:.80}") from error

    def _padded(self, gold: Sequence[Any], distribution: D) -> Tensor:
        lengths = distribution.lengths
        events = torch.full(distribution.batch_shape + distribution.event_shape, -1)
        for place in product(*map(range, distribution.batch_shape)):
            row: Any = gold
            for size, index in zip(distribution.batch_shape, place, strict=True):
                expect(len(row) == size, "gold", f"must have {size} elements", len(row))
                row = row[index]
            event = self._event(row, int(lengths[place]))
            if event.numel():
                events[place][tuple(slice(size) for size in event.shape)] = event
        return events.to(lengths.device)


class LabelLayer(StructuredLayer[D], Generic[D, C]):
    """A layer whose tables, those of its constraints, are [s], or [s s] if they are `of_pairs`."""

    of_pairs: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        num_labels: int,
        constraints: C | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        s = at_least("num_labels", num_labels, 1)
        tables = {name: (s, s) if name in self.of_pairs else (s,) for name in self.kind._fields}
        super().__init__(tables, constraints, device, dtype)


def _warn_later(loss: Tensor, events: Tensor, distribution: StructuredDistribution) -> None:
    """Warn if a loss is +inf; on a GPU in the backward pass, so that nothing waits before it."""
    values = loss.detach()
    if values.is_cuda and loss.requires_grad and not is_transformed(loss):
        loss.register_hook(lambda _: _warn(values, events, distribution))  # type: ignore[no-untyped-call]
    else:
        _warn(values, events, distribution)


def _warn(loss: Tensor, events: Tensor, distribution: StructuredDistribution) -> None:
    impossible = loss == torch.inf
    if not any_seen(impossible):
        return
    place = impossible.nonzero()[0].tolist()
    used = distribution.parts(events)
    why = ""
    for name, potential in distribution._expanded().items():
        broken = ((used[name] > 0) & (potential.detach() == -torch.inf))[tuple(place)]
        if bool(broken.any()):
            why = f" by {name}{broken.nonzero()[0].tolist()}"
            break
    warnings.warn(
        f"{int(impossible.sum())} of {impossible.numel()} gold events are impossible, the first "
        f"at {place}{why}: the loss is +inf. Correct the gold labels, or allow what they have",
        stacklevel=2,
    )
