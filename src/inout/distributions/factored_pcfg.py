"""`FactoredPCFG`: what `PCFG` is if its rules are `RuleFactors`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout.distributions import arguments
from inout.distributions.charts import Group, chart_forest, group
from inout.distributions.derivatives import Potentials
from inout.distributions.factored import FactoredDistribution, latent_shares
from inout.distributions.pcfg import PCFG, SymbolsUsed
from inout.distributions.trees import split_places
from inout.forest import Forest
from inout.forest.labels import BlockLabels
from inout.kernels.lowrank import op, tables
from inout.kernels.lowrank.reference import reference_factored_grammar
from inout.kernels.math.reweighting import log_sum


class RulesUsed(NamedTuple):
    """The rules of an event, at most n - 1 of them, and the weights of their latent values."""

    head: Int[Tensor, "*e m"]
    left: Int[Tensor, "*e m"]
    right: Int[Tensor, "*e m"]
    used: Tensor  # [*e m]
    logits: Float[Tensor, "*e m r"]


class FactoredPCFG(FactoredDistribution, PCFG):
    """A `PCFG` whose rules are sums over a latent value of r, given as `RuleFactors`.

    Events are trees. `mode`, `topk`, `sample`, `log_prob`, `entropy`, `min_risk` and divergences
    are about trees, with the latent values summed out. The potentials are `head` (unless r is the
    head), `left` and `right` instead of `rules`: `marginals` are the expected uses of their
    entries, `parts` those given a tree, and the functions of `expectation`, `covariance` and
    `moments` may depend on latent values. `forest` has them as well.

    log Z and its gradient take O(n³ r + n² (nt + pt) r) time per element; samples O(n r) for each
    rule. What needs the weight of every rule takes longer: `mode` O(n³ nt² + n² nt (nt + pt)²) and
    the time to make all rules, O(nt (nt + pt)² r), in blocks (for each width, if one block does
    not hold them); `topk`, samples without replacement, `entropy` and divergences those of `dense`,
    which has all rules. `sparsemap` is that of `dense` only.
    """

    _shareable = frozenset({"root", "head", "left", "right"})

    def _tables(self, rules: Any, nt: int, pt: int) -> dict[str, tuple[Tensor, tuple[int, ...]]]:
        head, left, right = rules
        arguments.refuse_missing(left=left, right=right)
        arguments.refuse_non_tensors(head=head, left=left, right=right)
        # The rank is that of the head; a wrong one shows in the children.
        rank = nt if head is None else head.shape[-1] if head.ndim else 0
        if rank == 0:
            raise ArgumentError("head", f"must be [.. nt r], r >= 1. Got {list(head.shape)}")
        found = {} if head is None else {"head": (head, (nt, rank))}
        return found | {"left": (left, (rank, nt + pt)), "right": (right, (rank, nt + pt))}

    @property
    def rank(self) -> int:
        """The number of latent values."""
        return self.potentials["left"].shape[-2]

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        _, n, nt, pt = self.size
        children = (self.rank, nt + pt)
        shapes = {"root": (nt,), "head": (nt, self.rank), "left": children, "right": children}
        return {n: torch.Size(s) for n, s in shapes.items() if n in self.potentials} | {
            "preterminals": torch.Size([n, pt])
        }

    @property
    def _needs(self) -> tuple[int, int]:
        _, n, nt, pt = self.size
        size = self.potentials["left"].element_size()
        own = self.rank * (3 * nt + 2 * pt)
        if self.tier == "gpu":  # a chart has no nonterminals there, but products of factors
            own, kept = own + self.rank**2, 3 * self.rank
        else:
            kept = nt + 2 * self.rank
        batched = any(self.potentials[name].ndim > 2 for name in ("left", "right"))
        each = 2 * n * n * kept + 4 * n * pt + (6 * own if batched else 0)
        return size * each + 32 * n * n, 0 if batched else 24 * size * own

    def _flat(self, potentials: Potentials) -> tuple[Tensor, ...]:  # type: ignore[override]
        """root [b nt], head [1|b nt r], left, right [1|b r s], preterminals [b n pt], lengths [b].

        The head is [1 0 0] if there is none; lengths are at least 1.
        """
        b, n, nt, pt = self.size

        def factor(name: str) -> Tensor:
            values = potentials[name]
            if values.ndim > 2:
                values = values.expand(self.batch_shape + values.shape[-2:])
            return values.reshape(-1, *values.shape[-2:])

        return (
            potentials["root"].expand(*self.batch_shape, nt).reshape(b, nt),
            factor("head") if "head" in potentials else potentials["left"].new_empty(1, 0, 0),
            factor("left"),
            factor("right"),
            potentials["preterminals"].where(self._real[..., None], 0.0).reshape(b, n, pt),
            self._flat_lengths,
        )

    @property
    def _kernel(self) -> Callable[..., Tensor]:
        reference = self.tier == "reference"
        return reference_factored_grammar if reference else op.grammar_log_partition

    def dense(self) -> PCFG:
        """The same distribution with all rules, [nt nt+pt nt+pt] or [*b ...] of them.

        Differentiable. O(nt (nt + pt)² r) time, O(nt (nt + pt)²) memory.
        """
        given = self.potentials
        head = given.get("head", given["left"].new_empty(0, 0))
        rules = tables.rules(*(x.double() for x in (head, given["left"], given["right"])))
        return PCFG(
            given["root"], rules.to(self._dtype), given["preterminals"], self.lengths,
            tier=self.tier, memory=self.memory,
        )  # fmt: skip

    def _rules_used(self, used: SymbolsUsed) -> RulesUsed:
        n = self.event_shape[0]
        most = max(n - 1, 0)
        order = (used.head < 0).byte().argsort(dim=-1, stable=True)[..., :most]
        head, left, right = (
            x.gather(-1, order) for x in (used.head, used.left, used.right)
        )  # fmt: skip
        here = head >= 0
        head, left, right = (x.where(here, 0) for x in (head, left, right))
        element = torch.arange(self.size[0], device=head.device).reshape(*self.batch_shape, 1)
        _, heads, lefts, rights, _, _ = self._flat(self.potentials)

        def rows(table: Tensor, symbols: Tensor) -> Tensor:
            """Rows [.. m r] of a table [1|b symbols r]."""
            own = element if len(table) > 1 else torch.zeros_like(element)
            return table[own.expand(symbols.shape), symbols]

        if heads.shape[2]:
            logits = rows(heads, head) + rows(lefts.mT, left) + rows(rights.mT, right)
        else:
            pair = rows(lefts.mT, left) + rows(rights.mT, right)
            logits = pair.where(_one_of(head, self.rank), -torch.inf)
        return RulesUsed(head, left, right, here, logits)

    def _score(self, event: Int[Tensor, "*e n n"]) -> Float[Tensor, "*sb"]:
        used = self._decomposed(event)
        rules = self._rules_used(used)
        score = log_sum(rules.logits, -1).where(rules.used, 0.0).sum(-1)
        root, *_, words, _ = self._flat(self.potentials)
        nt = self.size[2]
        root = root.reshape(*self.batch_shape, nt).expand(*used.top.shape[:-1], nt)
        score = score + root.gather(-1, used.top.clamp(min=0)).where(used.top >= 0, 0.0)[..., 0]
        whole = words.reshape(*self.batch_shape, *words.shape[1:])
        whole = whole.expand(*used.words.shape, -1)
        leaves = whole.gather(-1, used.words.clamp(min=0)[..., None])[..., 0]
        score = score + leaves.where(used.words >= 0, 0.0).sum(-1)
        impossible = self._no_tree(used.event) | (self.lengths < 2)
        return torch.where(impossible, -torch.inf, score)

    def parts(self, event: Int[Tensor, "*e n n"]) -> Potentials:
        """Expected uses of each part given the event: of entries of factors by its latent values.

        The gradient of the event's score. An impossible rule uses no entries.
        """
        used = self._decomposed(event)
        rules = self._rules_used(used)
        given = latent_shares(rules.logits, rules.used)
        _, _, nt, pt = self.size

        def spread(symbols: Tensor, size: int) -> Tensor:
            """Shares [.. m r] added up by symbols, [.. size r]."""
            counts = given.new_zeros((*symbols.shape[:-1], size, self.rank))
            return counts.scatter_add(-2, symbols[..., None].expand(given.shape), given)

        found = {
            "root": _one_of(used.top, nt)[..., 0, :],
            "head": spread(rules.head, nt),
            "left": spread(rules.left, nt + pt).mT,
            "right": spread(rules.right, nt + pt).mT,
            "preterminals": _one_of(used.words, pt),
        }
        return {name: found[name].to(given.dtype).contiguous() for name in self.potentials}

    @property
    def mode(self) -> Int[Tensor, "*b n n"]:
        """The most probable tree, its latent values summed out; for the cost see the class.

        Ties go to smaller symbols, and then to the first split.
        """
        if self._empty:
            return self._nothing()
        return self._events(op.best_trees(*self._flat(self.potentials)))

    def _k_best_trees(self, k: int) -> tuple[Int[Tensor, "k b n n"], Float[Tensor, "k b"]]:
        return self.dense()._k_best_trees(k)

    def _draw_trees(self, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        return op.sample_trees(*self._flat(self.potentials), count=count, seed=seed)

    def _span_marginals(self) -> Float[Tensor, "b n n nt"]:
        return op.span_marginals(*self._flat(self.potentials))

    def forest(self) -> Forest:
        """The chart as an explicit forest of trees with latent values, a goal for each element.

        Its relations are the potentials, expanded over the batch and flattened; gradients flow
        back to them. Items: left_child(e, i, j, r) and right_child, the sum over the symbols of
        i..j below a rule with this latent value; pair(e, i, j, r), the sum over the splits;
        beta(e, i, j, A). O(n³ r + n² (nt + pt) r) edges for an element.
        """
        expanded = self._expanded()
        used = self._real[..., None]
        expanded["preterminals"] = expanded["preterminals"].where(used, -torch.inf)
        b, n, nt, _ = self.size
        shapes = {name: (b, *self._part_shapes[name]) for name in expanded}
        latent = (b, n, n, self.rank)
        chart = {"beta": (b, n, n, nt), "left_child": latent, "right_child": latent, "pair": latent}
        items = BlockLabels(shapes | chart | {"goal": (b,)})
        return chart_forest(expanded, items, self._edges(items), batched=bool(self.batch_shape))

    def _edges(self, items: BlockLabels) -> list[Group]:
        b, _, nt, _ = self.size
        number = {name: items.numbers(name) for name in items.shapes}
        groups: list[Group] = []

        for e, length in enumerate(self.lengths.reshape(b).tolist()):
            if length < 2:
                continue
            word, (i, j) = np.arange(length), np.triu_indices(length, 1)
            for factor in ("left", "right"):
                child, table = number[f"{factor}_child"][e], number[factor][e]
                leaves = number["preterminals"][e, :length, None]
                groups.append(group(child[word, word][..., None], table[:, nt:], leaves))
                groups.append(
                    group(child[i, j][..., None], table[:, :nt], number["beta"][e, i, j][:, None])
                )
            x, k, z = split_places(length)
            lefts, rights = number["left_child"][e, x, k], number["right_child"][e, k + 1, z]
            groups.append(group(number["pair"][e, x, z], lefts, rights))
            pairs, betas = number["pair"][e, i, j], number["beta"][e, i, j]
            if "head" in number:
                groups.append(group(betas[..., None], number["head"][e], pairs[:, None]))
            else:
                groups.append(group(betas, pairs))
            top = number["beta"][e, 0, length - 1]
            groups.append(group(np.repeat(number["goal"][e], nt), number["root"][e], top))
        return groups


def _one_of(symbols: Int[Tensor, "*e"], size: int) -> Bool[Tensor, "*e size"]:
    """Which of so many symbols each is, none if below 0; also under torch.vmap."""
    return torch.arange(size, device=symbols.device) == symbols[..., None]


PCFG._factored = FactoredPCFG
