"""`FactoredChain` and `FactoredHMM`: `LinearChain` and `HMM` with `TransitionFactors`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.distributions import arguments
from inout.distributions.chain import LinearChain
from inout.distributions.charts import Group, group
from inout.distributions.derivatives import Potentials
from inout.distributions.factored import FactoredDistribution, latent_shares
from inout.distributions.factors import TransitionFactors
from inout.distributions.hmm import HMM, StationaryChain
from inout.forest.labels import BlockLabels
from inout.kernels.lowrank import op, tables
from inout.kernels.lowrank.reference import reference_factored_chain
from inout.kernels.math.reweighting import log_sum


class FactoredChain(FactoredDistribution, LinearChain):
    """A `LinearChain` whose transitions are sums over a latent value, given as `TransitionFactors`.

    Events are labels. `mode`, `topk`, `sample`, `log_prob`, `entropy`, `min_risk` and divergences
    are about labels, with the latent values summed out. The potentials are `source` and `target`
    instead of `transitions`: `marginals` are the expected uses of their entries, `parts` those
    given labels, and the functions of `expectation`, `covariance` and `moments` may depend on
    latent values. `forest` has them as well.

    log Z and its gradient take O(b n s r) time and O(b n (s + r)) memory, samples O(n (s + r)).
    What needs each transition's weight takes longer: `mode` O(b n s²) and the time to make all
    transitions, O(s² r), in blocks (at each step, if one block does not hold them); `topk`, samples
    without replacement, `entropy` and divergences those of `dense`, which has all transitions.
    `sparsemap` is that of `dense` only. `memory` must be None.
    """

    _tables = ("source", "target")
    _shareable = frozenset({"source", "target", "start", "end"})

    def __init__(self, emissions: Tensor, transitions: Any, *rest: Any, **options: Any) -> None:
        if options.get("memory") is not None:
            raise ArgumentError("memory", "must be None if transitions are given as factors")
        LinearChain.__init__(self, emissions, transitions, *rest, **options)
        self._refuse_bad_values(self.potentials)
        self._values_checked = True

    def _checked_tables(
        self, transitions: Any, batch_shape: torch.Size, steps: int, s: int
    ) -> Potentials:
        source, target = transitions
        arguments.refuse_missing(source=source, target=target)
        arguments.refuse_non_tensors(source=source, target=target)
        self.stationary = self._always_stationary or source.ndim == 2
        # The rank is that of the source; a wrong one shows in the target.
        rank = source.shape[-1] if source.ndim else 0
        if rank == 0:
            raise ArgumentError("source", f"must be [.. s r], r >= 1. Got {list(source.shape)}")
        given = batch_shape, steps
        return {
            "source": self._table("source", source, *given, (s, rank)),
            "target": self._table("target", target, *given, (rank, s)),
        }

    @property
    def rank(self) -> int:
        """The number of latent values."""
        return self.potentials["source"].shape[-1]

    def _flat(self, potentials: Potentials) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Nodes [b n s], source [1|b 1|n-1 s r], target [1|b 1|n-1 r s], lengths [b]."""
        _, _, s = self.size
        return (
            self._flat_nodes(potentials),
            self._flat_table(potentials["source"], s, self.rank),
            self._flat_table(potentials["target"], self.rank, s),
            self.lengths.reshape(-1),
        )

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        reference = self.tier == "reference"
        function = reference_factored_chain if reference else op.chain_log_partition
        log_z: Tensor = function(*self._flat(potentials))
        return log_z.reshape(self.batch_shape)

    def dense(self) -> LinearChain:
        """The same distribution with all transitions, [s s] or [*b n-1 s s].

        Differentiable. O(s² r) time and O(s²) memory for each table.
        """
        given = self.potentials
        table = tables.transitions(*(x.double() for x in self._factors()))
        kind = StationaryChain if self.stationary else LinearChain
        return kind(
            given["emissions"], table.to(self._dtype), given.get("start"), given.get("end"),
            self.lengths, tier=self.tier,
        )  # fmt: skip

    def _factors(self) -> tuple[Tensor, ...]:
        """Source and target, without what may be NaN in the padding: it would reach gradients."""
        factors = (self.potentials[name] for name in self._tables)
        if self.stationary:
            return tuple(factors)
        return tuple(x.where(self._real[..., 1:, None, None], 0.0) for x in factors)

    def _logits(
        self, before: Int[Tensor, "*e m"], after: Int[Tensor, "*e m"]
    ) -> Float[Tensor, "*e m r"]:
        """Log-weights of the latent values of steps from labels to labels."""
        source, target = self._factors()

        def rows(table: Tensor, labels: Tensor) -> Tensor:
            """Rows [*e m r] of a table [s r] or [*b s r], or of those of the steps [.. m s r]."""
            if table.ndim == 2:
                return table[labels]
            places = labels[..., None].expand(*labels.shape, self.rank)
            if self.stationary:
                whole = table.expand(*labels.shape[:-1], *table.shape[-2:])
                return whole.gather(-2, places)
            whole = table.expand(*labels.shape, *table.shape[-2:])
            return whole.gather(-2, places[..., None, :])[..., 0, :]

        return rows(source, before) + rows(target.mT, after)

    def _pair_scores(
        self, before: Int[Tensor, "*e m"], after: Int[Tensor, "*e m"]
    ) -> Float[Tensor, "*e m"]:
        return log_sum(self._logits(before, after), -1)

    def _pair_parts(
        self, labels: Int[Tensor, "*e n"], nodes: Float[Tensor, "*e n s"]
    ) -> Potentials:
        """Expected uses of the factors' entries, given the labels."""
        before, after = labels[..., :-1], labels[..., 1:]
        used = self._real[..., 1:].expand(before.shape)
        shares = latent_shares(self._logits(before, after), used).to(nodes.dtype)

        def spread(ends: Tensor) -> Tensor:
            """Shares [.. m r] by label, [.. s r] of all steps or [.. m s r]."""
            s, steps = self.size[2], ends.shape[-1]
            if self.stationary:
                counts = shares.new_zeros((*ends.shape[:-1], s, self.rank))
                return counts.scatter_add(-2, ends[..., None].expand(shares.shape), shares)
            counts = shares.new_zeros((*ends.shape[:-1], steps, s, self.rank))
            places = ends[..., None, None].expand(*ends.shape, 1, self.rank)
            return counts.scatter(-2, places, shares[..., None, :])

        return {"source": spread(before), "target": spread(after).mT.contiguous()}

    @property
    def mode(self) -> Int[Tensor, "*b n"]:
        """The most probable labels, latent values summed out, 0 if none are possible.

        For the cost see the class. Ties go to smaller labels, the last position first.
        """
        return self._events(op.best_labels(*self._flat(self.potentials)))

    def _draw(self, count: int, seed: int) -> tuple[Int[Tensor, "m b n"], Bool[Tensor, " b"]]:
        labels = op.sample_labels(*self._flat(self.potentials), count=count, seed=seed)
        impossible = (labels < 0).any(0) & self._real.reshape(labels.shape[1:])
        return labels, ~impossible.any(-1)

    def _chart_shapes(self) -> dict[str, tuple[int, ...]]:
        b, n, s = self.size
        return {"alpha": (b, n, s), "latent": (b, n, self.rank)}

    def _edges(self, items: BlockLabels) -> list[Group]:
        """As for `LinearChain`, with latent(element, position, r) between positions."""
        b, _, s = self.size
        number = {name: items.numbers(name) for name in items.shapes}
        groups: list[Group] = []

        for k, length in enumerate(self.lengths.reshape(b).tolist()):
            alpha, nodes, goal = (number[x][k] for x in ("alpha", "emissions", "goal"))
            if length == 0:
                groups.append((goal[None], []))
                continue
            start = [number["start"][k]] if "start" in number else []
            groups.append(group(alpha[0], *start, nodes[0]))
            for t in range(1, length):
                latent = number["latent"][k, t]
                source, target = (
                    number[name][k] if self.stationary else number[name][k, t - 1]
                    for name in self._tables
                )
                groups.append(group(latent, alpha[t - 1][:, None], source))
                groups.append(group(alpha[t], latent[:, None], target, nodes[t]))
            end = [number["end"][k]] if "end" in number else []
            groups.append(group(np.repeat(goal, s), alpha[length - 1], *end))
        return groups


class FactoredHMM(HMM, FactoredChain):
    """An `HMM` with `TransitionFactors`: `transition` is the product that they define.

    Elements may have factors of their own, [*b s r] and [*b r s]. See `FactoredChain`.
    """

    _further_tensors: ClassVar = {"initial": 1, "emission": 2, "observations": 1}
    _shareable = FactoredChain._shareable | {"initial", "emission"}

    def _check_transition(self, transition: Any, batch_shape: torch.Size, s: int) -> None:
        """The chain checks the factors, by their names."""

    def _tensors_changed(self) -> None:
        super()._tensors_changed()
        self.transition = TransitionFactors(*(self.potentials[name] for name in self._tables))


LinearChain._factored = FactoredChain
HMM._factored = FactoredHMM
