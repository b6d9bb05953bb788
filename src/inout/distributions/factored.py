"""What distributions with factored tables share: which questions are about latent values too."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from inout._core.errors import InoutError
from inout.distributions.base import StructuredDistribution
from inout.distributions.derivatives import Potentials
from inout.distributions.trees import used_rows
from inout.forest.generating import generating_function
from inout.kernels.math.reweighting import shares
from inout.series import Lanes


class FactoredDistribution(StructuredDistribution):
    """A distribution in which a part of each event is a sum over a latent value.

    Events do not tell the latent values. Additive functions may: their values belong to entries of
    the factors. `dense` is the same distribution with the whole table, for what needs it.
    """

    @abstractmethod
    def dense(self) -> StructuredDistribution:
        """The same distribution with the table that the factors define."""

    @property
    def _event_kind(self) -> Any:
        symbols = self.size[2:]  # type: ignore[attr-defined]
        return self.event_shape, *symbols

    def entropy(self) -> Float[Tensor, "*b"]:
        """Entropy of the events, not of latent values, in nats; by `dense`, with its costs."""
        return self._in_double().dense().entropy().to(self._dtype)

    def cross_entropy(self, other: StructuredDistribution) -> Float[Tensor, "*b"]:
        """-E[log q(event)] under this distribution; by `dense`, with its costs.

        +inf if q lacks a possible event. q may have another rank.
        """
        self._refuse_other_events(other)
        mine, its = self._in_double(), other._in_double()
        return mine.dense().cross_entropy(its.dense()).to(self._dtype)  # type: ignore[attr-defined]

    def _in_double(self) -> FactoredDistribution:
        twin = super()._in_double()
        assert isinstance(twin, FactoredDistribution)
        return twin

    @property
    def _dtype(self) -> torch.dtype:
        return next(iter(self.potentials.values())).dtype

    def _k_best(self, k: int) -> tuple[Tensor, Float[Tensor, "k b"]]:
        return self.dense()._k_best(k)

    def _draw_distinct(
        self, k: int, seed: int
    ) -> tuple[Tensor, Float[Tensor, "k b"], Float[Tensor, " b"]]:
        """By `dense`: the forest has an event once for each choice of its latent values."""
        return self.dense()._draw_distinct(k, seed)

    def sparsemap(self, *_: Any, **__: Any) -> NoReturn:
        """Not possible: raises. The score of an event is no sum over entries of the factors."""
        raise InoutError(
            f"sparsemap needs scores that are sums over parts, and those of {type(self).__name__} "
            "have a latent value summed out; use dense().sparsemap(...), which makes the whole "
            "table and whose parts are its entries"
        )

    def _best_parts(self, scores: Potentials) -> Potentials:
        """Of an event with its latent values, of which `scores` are."""
        twin = self._supported(scores)
        sizes = {name: p.numel() for name, p in twin.potentials.items()}
        counts = np.zeros(sum(sizes.values()))
        for found in used_rows(twin.forest(), 1):
            for _, rows in found:
                np.add.at(counts, rows, 1.0)
        split = torch.split(torch.from_numpy(counts).to(self._dtype), list(sizes.values()))
        return {
            name: part.reshape(twin.potentials[name].shape).to(self.lengths.device)
            for name, part in zip(sizes, split, strict=True)
        }

    def _generating(
        self, lanes: Lanes, values: Potentials, shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        forest = self.forest()
        rows = [
            values[name].expand(-1, self.batch_shape.numel(), *self._part_shapes[name]).flatten(1)
            for name in forest.relations
        ]
        axioms = torch.cat(rows, 1)[:, forest.axiom_rows]
        derived = axioms.new_zeros(len(axioms), forest.num_items - axioms.shape[1])
        function = generating_function(forest, torch.cat([axioms, derived], 1))
        return function.evaluate(lanes, function.functions, shift)


def latent_shares(logits: Float[Tensor, "*e r"], used: Tensor) -> Float[Tensor, "*e r"]:
    """Probabilities of the latent values of used parts; 0 for others, and impossible ones."""
    found, _ = shares(logits)
    return found.where(used[..., None], 0.0)
