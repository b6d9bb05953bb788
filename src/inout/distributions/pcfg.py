"""`PCFG`: distributions over the trees of a weighted grammar in Chomsky normal form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import checked_memory, expect
from inout._core.errors import ArgumentError
from inout._core.tracing import any_seen
from inout.distributions import arguments
from inout.distributions.charts import Group, chart_forest
from inout.distributions.derivatives import Potentials
from inout.distributions.distinct import Used
from inout.distributions.factors import MayHaveFactors, RuleFactors
from inout.distributions.trees import BinaryTreeDistribution, split_places, unrelated_zero
from inout.forest import Forest
from inout.forest.labels import BlockLabels
from inout.kernels.pcfg import op
from inout.kernels.pcfg.generating import generating_function
from inout.kernels.pcfg.reference import reference_grammar_log_partition
from inout.kernels.recomputing import Memory
from inout.series.lanes import Lanes


class SymbolsUsed(NamedTuple):
    """Symbols that trees use, -1 where there is none."""

    event: Int[Tensor, "*e n n"]
    top: Int[Tensor, "*e 1"]
    head: Int[Tensor, "*e spans"]  # of the rule over each span, all n*n of them
    left: Int[Tensor, "*e spans"]  # its children, if there is a rule
    right: Int[Tensor, "*e spans"]
    words: Int[Tensor, "*e n"]  # preterminals, counted from 0; below 0 where there is none


class PCFG(MayHaveFactors, BinaryTreeDistribution):
    """Trees of a weighted grammar over sentences, p(tree) proportional to its rules' weights.

    `root` [nt] or [*b nt]: log-weight of each nonterminal at the top; `rules` [nt nt+pt nt+pt],
    shared by the batch, or [*b nt nt+pt nt+pt]: A -> B C, nonterminals numbered before
    preterminals; `preterminals` [*b n pt]: log-weight of each preterminal over each word. They
    need not be normalised; -inf is allowed. `lengths` [*b].

    Preterminals cover single words and nonterminals two or more, so an element of fewer than two
    words has no tree: log Z = -inf. Events are integers [*b n n]: the symbol of
    each span of the tree (0..nt-1 nonterminals, nt..nt+pt-1 preterminals) and -1 elsewhere.

    log Z and its gradient take O(n³ nt² + n² nt³ + n nt pt (nt + pt)) time per element.
    Half precision is computed in float32; `tier="reference"` runs plain torch code instead of the
    compiled kernels. `memory` limits what they take besides potentials and gradients: a number of
    bytes, or "sqrt". Charts are then made for as many elements as fit, or √b of them, discarded,
    and made again in the backward pass. A single chart cannot be kept in part.

    Rules may be given as `RuleFactors`, of which the table is never made: see `FactoredPCFG`.

    >>> import torch
    >>> grammar = PCFG(torch.zeros(1), torch.zeros(1, 2, 2), torch.zeros(4, 1))
    >>> grammar.log_partition().exp()  # ways to bracket four words
    tensor(5.0000)
    >>> grammar.mode
    tensor([[ 1, -1, -1,  0],
            [-1,  1, -1,  0],
            [-1, -1,  1,  0],
            [-1, -1, -1,  1]])
    """

    family = "PCFG"
    options = ("memory",)
    _kind_of_factors = RuleFactors
    _shareable = frozenset({"root", "rules"})

    def __init__(
        self,
        root: Float[Tensor, "*#b nt"],
        rules: Float[Tensor, "*#b nt s s"] | RuleFactors,
        preterminals: Float[Tensor, "*b n pt"],
        lengths: arguments.Lengths | None = None,
        *,
        tier: str | None = None,
        memory: Memory = None,
    ) -> None:
        arguments.refuse_non_tensors(root=root, preterminals=preterminals)
        if root.ndim < 1 or preterminals.ndim < 2:
            raise ArgumentError(
                None,
                "root must be [.. nt] and preterminals [*b n pt]. "
                f"Got {list(root.shape)} and {list(preterminals.shape)}",
            )
        nt, (n, pt) = root.shape[-1], preterminals.shape[-2:]
        batch_shape = preterminals.shape[:-2]
        if nt == 0 or pt == 0:
            raise ArgumentError(
                None, f"there must be nonterminals and preterminals. Got nt = {nt}, pt = {pt}"
            )
        tables = {"root": (root, (nt,))} | self._tables(rules, nt, pt)
        for name, (given, own) in tables.items():
            wanted = (*batch_shape, *own)
            good = given.shape[-len(own) :] == own and arguments.broadcasts(given.shape, wanted)
            kinds = f"for {nt} nonterminals and {pt} preterminals"
            expect(good, name, f"must be {list(own)} or {list(wanted)} {kinds}", list(given.shape))
        self._set_shape(batch_shape, (n, n), lengths, tier, preterminals.device)
        self.memory = checked_memory(memory)
        potentials = {name: given for name, (given, _) in tables.items()}
        for name, given in potentials.items():
            arguments.refuse_bad_values(name, given)
        arguments.refuse_bad_values("preterminals", preterminals, self._real[..., None])
        self.potentials = arguments.of_one_dtype(potentials | {"preterminals": preterminals})

    def _tables(self, rules: Any, nt: int, pt: int) -> dict[str, tuple[Tensor, tuple[int, ...]]]:
        """The potentials of rules, and the shape of each for one element."""
        arguments.refuse_non_tensors(rules=rules)
        return {"rules": (rules, (nt, nt + pt, nt + pt))}

    @property
    def size(self) -> tuple[int, int, int, int]:
        """(elements in all, words, nonterminals, preterminals)."""
        n, pt = self.potentials["preterminals"].shape[-2:]
        return self.batch_shape.numel(), n, self.potentials["root"].shape[-1], pt

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        n, pt = self.potentials["preterminals"].shape[-2:]
        nt = self.potentials["root"].shape[-1]
        s = nt + pt
        return {
            "root": torch.Size([nt]),
            "rules": torch.Size([nt, s, s]),
            "preterminals": torch.Size([n, pt]),
        }

    @property
    def _needs(self) -> tuple[int, int]:
        _, n, nt, pt = self.size
        rules, size = self.potentials["rules"], self.potentials["rules"].element_size()
        pairs = nt if self.tier == "gpu" else 2  # kept for each nonterminal over a span
        each = n * n * nt * pairs + 2 * n * nt * (2 * nt + pt) + 4 * n * pt
        own = nt * (nt + pt) ** 2
        shared = rules.ndim == 3
        each += own if shared else 6 * own
        return size * each + 32 * n * n, 6 * size * own if shared else 0

    def _flat(self, potentials: Potentials) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """root [b nt], rules [b nt s s] or [1 nt s s], preterminals [b n pt], lengths [b] >= 1."""
        b, n, nt, pt = self.size
        root, rules = potentials["root"], potentials["rules"]
        if rules.ndim > 3:
            rules = rules.expand(self.batch_shape + rules.shape[-3:])
        return (
            root.expand(*self.batch_shape, nt).reshape(b, nt),
            rules.reshape(-1, *rules.shape[-3:]),
            # Padding may be anything; an empty element must not be mistaken for one word.
            potentials["preterminals"].where(self._real[..., None], 0.0).reshape(b, n, pt),
            self._flat_lengths,
        )

    def _log_partition_at_once(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        if self._empty or self.event_shape[0] < 2:
            nothing = potentials["preterminals"].new_full(self.batch_shape, -torch.inf)
            return nothing + unrelated_zero(potentials)
        log_z: Tensor = self._kernel(*self._flat(potentials))
        return log_z.reshape(self.batch_shape)

    @property
    def _kernel(self) -> Callable[..., Tensor]:
        """log Z as a function of flat potentials."""
        return reference_grammar_log_partition if self.tier == "reference" else op.log_partition

    def _generating(
        self, lanes: Lanes, values: Potentials, shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        b = self.size[0]
        if b == 0:
            nothing = values["root"].new_zeros(len(values["root"]), 0)
            return lanes.exponential(nothing) + unrelated_zero(self.potentials), nothing
        whole = {n: v.expand(-1, b, *self._part_shapes[n]) for n, v in values.items()}
        # Shared values are multiplied with the rules once.
        own = values["rules"][:, : 1 if _same_for_all(values["rules"]) else b]
        matters = own.requires_grad or bool(own.any())
        rules = own.expand(-1, -1, *self._part_shapes["rules"]) if matters else None
        functions = whole["root"], rules, whole["preterminals"]
        given, lengths = self._flat(self.potentials)[:3], self.lengths.reshape(-1)
        return generating_function(lanes, given, lengths, functions, shift)

    def _right_kinds(self, event: Int[Tensor, "*sb n n"]) -> Bool[Tensor, "*sb"]:
        """Whether words have preterminals and longer spans nonterminals."""
        nt = self.size[2]
        word = torch.eye(event.shape[-1], dtype=torch.bool, device=event.device)
        return ((event < 0) | ((event >= nt) == word)).flatten(-2).all(-1)

    def _is_event(self, event: Int[Tensor, "*sb n n"]) -> Bool[Tensor, "*sb"]:
        _, _, nt, pt = self.size
        tree = self._is_tree(event, labels=nt + pt)
        return tree & self._right_kinds(event) & (self.lengths > 1)

    def _decomposed(self, event: Tensor) -> SymbolsUsed:
        """The event, expanded and checked, and the symbols of its root, rules and words."""
        _, n, nt, pt = self.size
        event, splits = self._checked_tree(event, labels=nt + pt)
        place = torch.arange(n, device=event.device)
        words = event.diagonal(0, -2, -1)
        inner = event.where(place[:, None] != place, -1)
        if any_seen(~self._right_kinds(event)):
            raise ArgumentError(
                "event",
                f": spans of one word must have preterminals {nt}..{nt + pt - 1}, longer ones "
                f"nonterminals 0..{nt - 1}",
            )
        flat = event.flatten(-2)
        whole = (self.lengths - 1).clamp(min=0).expand(event.shape[:-2])[..., None]
        top = flat.gather(-1, whole) if n else torch.full_like(whole, -1)
        splits = splits.clamp(min=0)
        left = flat.gather(-1, (place[:, None] * n + splits).flatten(-2))
        right_places = ((splits + 1).clamp(max=n - 1) * n + place).flatten(-2)
        right = flat.gather(-1, right_places)
        top = top.where(top < nt, -1)
        return SymbolsUsed(event, top, inner.flatten(-2), left, right, words - nt)

    def _used(self, event: Tensor) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """The event, expanded; for each potential the rows it uses, as (index, mask).

        Root: [*s *b 1]; rules: [*s *b n*n], one for each span; preterminals: [*s *b n].
        """
        _, n, nt, pt = self.size
        s, used = nt + pt, self._decomposed(event)
        rule = (used.head * s + used.left) * s + used.right
        branching = used.head >= 0
        word = torch.arange(n, device=rule.device) * pt + used.words
        return used.event, {
            "root": (used.top.clamp(min=0), used.top >= 0),
            "rules": (rule.where(branching, 0), branching),
            "preterminals": (word.where(used.words >= 0, 0), used.words >= 0),
        }

    def _score(self, event: Int[Tensor, "*e n n"]) -> Float[Tensor, "*sb"]:
        event, used_rows = self._used(event)
        b = self.size[0]
        score = self.potentials["root"].new_zeros(())
        flat = dict(zip(self.potentials, self._flat(self.potentials)[:3], strict=True))
        element = torch.arange(b, device=score.device).reshape(*self.batch_shape, 1)
        for name, (rows, used) in used_rows.items():
            # One index into the stored values, so that nothing is expanded over samples.
            size = self._part_shapes[name].numel()
            places = rows + element * size if len(flat[name]) == b else rows
            values = flat[name].reshape(-1)[places]
            score = score + values.where(used, 0.0).sum(-1)
        # One word has no tree; neither has an event without spans.
        impossible = self._no_tree(event) | (self.lengths < 2)
        return torch.where(impossible, -torch.inf, score)

    def parts(self, event: Int[Tensor, "*e n n"]) -> Potentials:
        """How often an event uses each root symbol, rule, and preterminal over each word."""
        dtype = self.potentials["root"].dtype
        event, used_rows = self._used(event)
        result = {}
        for name, (rows, used) in used_rows.items():
            shape = self._part_shapes[name]
            counts = self.potentials["root"].new_zeros((*event.shape[:-2], shape.numel()))
            counts.scatter_add_(-1, rows, used.to(dtype))
            result[name] = counts.reshape(*event.shape[:-2], *shape)
        return result

    @property
    def mode(self) -> Int[Tensor, "*b n n"]:
        """The most probable tree (Viterbi); ties go to the first split, then smaller symbols."""
        if self._empty:
            return self._nothing()
        return self._events(op.best_trees(*self._flat(self.potentials)))

    def _k_best_trees(self, k: int) -> tuple[Int[Tensor, "k b n n"], Float[Tensor, "k b"]]:
        return op.k_best_trees(*self._flat(self.potentials), k)

    def _draw_trees(self, count: int, seed: int) -> Int[Tensor, "m b n n"]:
        return op.sample_trees(*self._flat(self.potentials), count, seed)

    def _write_events(self, events: NDArray[np.int64], used: Used) -> None:
        *places, symbol = used["beta"]
        events[tuple(places)] = symbol
        rank, element, word, symbol = used["preterminals"]
        events[rank, element, word, word] = self.size[2] + symbol

    def _span_marginals(self) -> Float[Tensor, "b n n nt"]:
        return op.span_marginals(*self._flat(self.potentials))

    def min_risk(self) -> Int[Tensor, "*b n n"]:
        """The tree with the most expected correct labelled spans (Goodman 1996, section 3).

        It maximises the sum of the marginals of its labelled spans, words included. If the grammar
        does not derive it, its `log_prob` is -inf.
        """
        if self._empty:
            return self._nothing()
        b, n, nt, _ = self.size
        with torch.no_grad():
            gains, labels = self._span_marginals().max(-1)
            words = self.marginals("preterminals")["preterminals"].reshape(b, n, -1).max(-1)
            gains.diagonal(0, 1, 2).copy_(words.values)
            labels.diagonal(0, 1, 2).copy_(words.indices + nt)
            shape = self.batch_shape + self.event_shape
            return self._best_recall(gains.reshape(shape), labels.reshape(shape))

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "m *b n n"]:
        """All trees [Catalan(n-1) nt**(n-1) pt**n, *b n n], if all lengths are the same."""
        n = self._one_length()
        _, _, nt, pt = self.size
        if n < 2:
            return self._support(torch.empty(0, n, n, dtype=torch.long), expand)
        return self._support(self._labelled(n, range(nt), range(nt, nt + pt)), expand)

    def forest(self) -> Forest:
        """The chart as an explicit forest, one goal for each batch element.

        Its relations are the potentials, expanded over the batch and flattened; gradients flow
        back to them. Items: pair(e, i, j, B, C), the sum over the splits of i..j with these
        children, and beta(e, i, j, A). O(n³ s²) edges for an element.
        """
        expanded = self._expanded()
        used = self._real[..., None]
        expanded["preterminals"] = expanded["preterminals"].where(used, -torch.inf)
        b, n, nt, pt = self.size
        shapes = {name: (b, *self._part_shapes[name]) for name in expanded}
        chart = {"beta": (b, n, n, nt), "pair": (b, n, n, nt + pt, nt + pt), "goal": (b,)}
        items = BlockLabels(shapes | chart)
        return chart_forest(expanded, items, self._edges(items), batched=bool(self.batch_shape))

    def _edges(self, items: BlockLabels) -> list[Group]:
        b, _, nt, _ = self.size
        root, rules, words, betas, pairs, goals = (items.numbers(name) for name in items.shapes)
        groups: list[Group] = []
        for e, length in enumerate(self.lengths.reshape(b).tolist()):
            if length < 2:
                continue
            i, k, j = split_places(length)
            for left_word in (True, False):
                for right_word in (True, False):
                    here = ((i == k) == left_word) & ((k + 1 == j) == right_word)
                    x, y, z = i[here], k[here], j[here]
                    left = words[e, x] if left_word else betas[e, x, y]
                    right = words[e, z] if right_word else betas[e, y + 1, z]
                    rows = slice(nt, None) if left_word else slice(nt)
                    columns = slice(nt, None) if right_word else slice(nt)
                    heads = pairs[e, x, z][:, rows, columns]
                    tails = np.broadcast_arrays(left[:, :, None], right[:, None, :])
                    groups.append((heads.reshape(-1), [t.reshape(-1) for t in tails]))
            i, j = np.triu_indices(length, 1)
            shape = (len(i), *rules.shape[1:])
            heads = np.broadcast_to(betas[e, i, j][:, :, None, None], shape)
            below = np.broadcast_to(pairs[e, i, j][:, None], shape)
            own = np.broadcast_to(rules[e], shape)
            groups.append((heads.reshape(-1), [own.reshape(-1), below.reshape(-1)]))
            groups.append((np.repeat(goals[e], nt), [root[e], betas[e, 0, length - 1]]))
        return groups


def _same_for_all(values: Inexact[Tensor, "k b ..."]) -> bool:
    """Whether all elements share the same values, and the same derivatives."""
    return not values.requires_grad and bool((values == values[:, :1]).all())
