"""SparseMAP: marginals of the structure with the best score less a quadratic term, and few events.

The oracle is the mode under other scores, for the whole batch at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError, PrecisionError
from inout.distributions.active_set import ActiveSet, Column

if TYPE_CHECKING:
    from inout.distributions.base import StructuredDistribution
    from inout.distributions.derivatives import Potentials


class SparseMAP(NamedTuple):
    """A few events with weights that add up to 1, and the marginals they make together.

    Where an element has fewer events than others, its best one is repeated with weight 0; where no
    event is possible, all weights and marginals are 0. Weights and marginals are differentiable.
    """

    events: Int[Tensor, " m *b ..."]  # those of largest weight first
    weights: Float[Tensor, " m *b"]
    marginals: Potentials


def sparsemap(
    d: StructuredDistribution, names: tuple[str, ...], precision: float, max_iterations: int
) -> SparseMAP:
    """See `StructuredDistribution.sparsemap`."""
    if not precision > 0:
        raise ArgumentError("precision", f"must be above 0. Got {precision}")
    names = tuple(dict.fromkeys(names)) or tuple(d.potentials)
    with torch.no_grad():
        search = _Search(d, names)
        search.run(precision, max_iterations)
        events, plain, slopes = search.result()
    scores = d._score(events) if len(events) else plain.to(next(iter(d.potentials.values())))
    moving = scores.where((scores > -torch.inf) & (plain > 0), 0.0)
    # Zero in value: the weights are linear in the scores while the events stay the same.
    change = torch.einsum("...ij,j...->i...", slopes.to(scores), moving - moving.detach())
    weights = plain.to(scores) + change
    return SparseMAP(events, weights, _marginals(d, events, weights))


def _marginals(d: StructuredDistribution, events: Tensor, weights: Tensor) -> Potentials:
    """The weighted mean of the events' parts; event by event, to save memory."""
    totals = {
        name: weights.new_zeros(d.batch_shape + shape) for name, shape in d._part_shapes.items()
    }
    for event, weight in zip(events, weights, strict=True):
        for name, counts in d.parts(event).items():
            own = weight.reshape(weight.shape + (1,) * (counts.ndim - weight.ndim))
            totals[name] = totals[name] + own * counts
    return totals


class _Search:
    """The active sets of all elements of a batch, in double precision."""

    def __init__(self, d: StructuredDistribution, names: tuple[str, ...]) -> None:
        self.d, self.names = d._in_double(), names
        self.potentials = {n: p.detach() for n, p in self.d._expanded().items()}
        self.size = d.batch_shape.numel()
        self.width = sum(d._part_shapes[name].numel() for name in names)
        self.sets = [ActiveSet() for _ in range(self.size)]
        self.found: list[Tensor] = []  # the events of each call of the oracle

    def run(self, precision: float, max_iterations: int) -> None:
        """Adds the best event to the set of each element until its duality gap is small."""
        means = np.zeros((self.size, self.width))
        gaps, open_sets = np.zeros(self.size), list(range(self.size))
        for _ in range(max_iterations):
            if not open_sets:
                return
            columns, dense = self._oracle(means)
            still = []
            for b in open_sets:
                own, column = self.sets[b], columns[b]
                if column.score == -np.inf:
                    continue
                gaps[b] = own.gain(column, means[b]) if own.names else np.inf
                # An event that is in the set has no gain: what is left is rounding.
                if gaps[b] <= precision * max(1.0, abs(column.score)) or own.has(column):
                    continue
                own.add(len(self.found) - 1, column, dense[b])
                means[b] = own.means(self.width)
                still.append(b)
            open_sets = still
        if open_sets:
            raise PrecisionError(
                f"sparsemap has a duality gap of {gaps[open_sets].max():.3g} after "
                f"{max_iterations} iterations; raise max_iterations or precision"
            )

    def _oracle(self, means: np.ndarray) -> tuple[list[Column], np.ndarray]:
        """The best event of each element, less the means, and its counts of regularised parts."""
        d, scores, first = self.d, dict(self.potentials), 0
        device = d.lengths.device
        for name in self.names:
            last = first + d._part_shapes[name].numel()
            own = torch.from_numpy(means[:, first:last]).to(device)
            scores[name] = scores[name] - own.reshape(scores[name].shape)
            first = last
        events = d._supported(scores).mode
        parts = d.parts(events)
        dense = torch.cat(
            [parts[name].reshape(self.size, d._part_shapes[name].numel()) for name in self.names], 1
        )
        values = d._score(events).reshape(-1).tolist()
        table = dense.cpu().numpy()
        self.found.append(events)
        columns = []
        keys = events.reshape(self.size, d.event_shape.numel()).cpu().numpy()
        for key, value, row in zip(keys, values, table, strict=True):
            used = np.flatnonzero(row)
            columns.append(Column(key.tobytes(), value, used, row[used]))
        return columns, table

    def result(self) -> tuple[Tensor, Tensor, Tensor]:
        """Events [m *b ...], weights [m *b], and their derivatives in the scores [*b m m]."""
        most = max((len(own.names) for own in self.sets), default=0)
        weights, slopes = np.zeros((most, self.size)), np.zeros((self.size, most, most))
        chosen = np.zeros((most, self.size), np.int64)
        for b, own in enumerate(self.sets):
            order, count = np.argsort(-own.weights, kind="stable"), len(own.names)
            if count == 0:
                continue
            chosen[:, b] = own.names[order[0]]
            chosen[:count, b] = np.array(own.names)[order]
            weights[:count, b] = own.weights[order]
            slopes[b, :count, :count] = own.slopes()[np.ix_(order, order)]
        shape, device = self.d.batch_shape, self.d.lengths.device
        events = torch.zeros((0, *shape, *self.d.event_shape), dtype=torch.long, device=device)
        if most:
            flat = len(self.found), self.size, self.d.event_shape.numel()
            stacked = torch.stack(self.found).reshape(flat)
            index = torch.from_numpy(chosen).to(device)[..., None].expand(-1, -1, stacked.shape[2])
            events = stacked.gather(0, index).reshape(most, *shape, *self.d.event_shape)
        return (
            events,
            torch.from_numpy(weights).reshape(most, *shape).to(device),
            torch.from_numpy(slopes).reshape(*shape, most, most).to(device),
        )
