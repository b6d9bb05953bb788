"""Probabilities of prefixes in plain torch code: what carries their derivatives."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from inout.grammars.parser.normal_form import FormWeights, NormalForm
from inout.grammars.parser.sentences import Compiled
from inout.grammars.table import RuleTable
from inout.grammars.transforms.base import Vector
from inout.kernels.sparse.reference import LogWeights, inside_log_values, log_sums


def prefix_derivatives(
    form: NormalForm,
    log_weights: Float[Tensor, " r"],
    log_z: Vector,
    used: NDArray[np.bool_],
    given: Compiled,
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """`SentencePrefixes.log_probs`, differentiable twice in the grammar's log-weights.

    log_z [nt]: that of each symbol of the form; used [k]: which of its rules some tree has. The
    recursions are those of `SentencePrefixes`, with a dense inverse: O(nt³ + n³ · rules).
    """
    table, n = form.table, int(given.arrays.lengths[0])
    log_empty = form.log_empty(log_weights)
    binarised = form.binarisation.log_weights(form.selection.log_weights(log_weights))
    mask = torch.from_numpy(used)
    rules = torch.where(mask, form.removal.log_weights(binarised), -torch.inf)
    totals = _totals(table, rules, torch.from_numpy(log_z), mask)
    below = _children(table, totals, mask)
    inner = torch.where(mask, rules + below - _finite(totals)[_long(table.lhs)], -torch.inf)
    whole = totals[0] if len(rules) else log_empty.new_full((), -torch.inf)
    logs = torch.stack([whole, log_empty])
    log_both = logs - log_sums(logs, torch.zeros(2, dtype=torch.long), 1)
    weights = FormWeights(inner, form.closure.log_weights(inner))
    potentials = LogWeights(*given.potentials(form, weights))
    inside = inside_log_values(form.arrays, given.arrays, potentials)
    begins, sentences = [log_both[1] * 0.0], [log_both[1]]
    climb = _Climb(form, inner)
    for j in range(n):
        begins.append(log_both[0] + climb.prefix(inside, potentials.words, given, j))
        sentences.append(log_both[0] + inside[0, j, 0])
    return torch.stack(begins), torch.stack(sentences)


class _Climb:
    """(I − L)⁻¹, and the rules that split words from those that follow."""

    def __init__(self, form: NormalForm, logs: Float[Tensor, " k"]) -> None:
        table, self.size = form.table, len(form.table.nonterminals)
        firsts = table.rhs[table.offsets[:-1]]
        inner = np.flatnonzero(firsts >= 0)
        heads = _long(table.lhs[inner])
        flat = logs.new_zeros(self.size**2)
        flat = flat.index_add(0, heads * self.size + _long(firsts[inner]), logs[_long(inner)].exp())
        identity = torch.eye(self.size, dtype=logs.dtype)
        self.inverse = torch.linalg.inv(identity - flat.reshape(self.size, self.size))
        self.logs, binary = logs[_long(form.binary)], form.binary
        self.head = _long(table.lhs[binary])
        self.left, self.right = (_long(table.rhs[table.offsets[binary] + k]) for k in (0, 1))

    def prefix(self, inside: Tensor, entries: Tensor, given: Compiled, j: int) -> Tensor:
        """log of the probability that a tree of the start symbol begins with words 0..j."""
        symbols, offsets = _long(given.arrays.symbols), given.arrays.offsets
        own = slice(int(offsets[j]), int(offsets[j + 1]))
        after: dict[int, Tensor] = {}
        for i in range(j, -1, -1):
            values = [
                self.logs + inside[i, k][self.left] + after[k + 1][self.right] for k in range(i, j)
            ]
            places = [self.head] * (j - i)
            if i == j:
                values, places = [entries[own]], [symbols[own]]
            base = log_sums(torch.cat(values), torch.cat(places), self.size)
            after[i] = self._applied(base)
        return after[0][0]

    def _applied(self, logs: Float[Tensor, " s"]) -> Float[Tensor, " s"]:
        top = logs.detach().max()
        if top == -torch.inf:
            return logs
        sums = self.inverse @ torch.where(logs > -torch.inf, _finite(logs) - top, -torch.inf).exp()
        found = sums > 0
        return torch.where(found, torch.where(found, sums, 1.0).log() + top, -torch.inf)


def _totals(
    table: RuleTable,
    rules: Float[Tensor, " k"],
    known: Float[Tensor, " nt"],
    used: Bool[Tensor, " k"],
) -> Float[Tensor, " nt"]:  # fmt: skip
    """log Z of the symbols, with its derivatives: at the solution a step of Newton's changes
    nothing else, and one for each order carries them (as in `programs.left_corner`)."""
    heads, size = _long(table.lhs), len(known)
    seen = torch.zeros(size, dtype=torch.bool).index_fill(0, heads[used], True)
    totals = torch.where(seen, known, -torch.inf)
    owners, children = (_long(x[table.rhs >= 0]) for x in (table.owners, table.rhs))
    for _ in range(2):
        terms = torch.where(used, rules + _children(table, totals, used), -torch.inf)
        values = log_sums(terms, heads, size)
        shares = torch.where(used, (terms - _finite(values)[heads]).exp(), 0.0)
        flat = shares.new_zeros(size**2)
        flat = flat.index_add(0, heads[owners] * size + children, shares[owners])
        identity = torch.eye(size, dtype=rules.dtype)
        matrix = identity - flat.reshape(size, size)
        step = torch.linalg.solve(matrix, _finite(values) - _finite(totals))
        totals = torch.where(seen, _finite(totals) + step, -torch.inf)
    return totals


def _children(
    table: RuleTable, totals: Float[Tensor, " nt"], used: Bool[Tensor, " k"]
) -> Float[Tensor, " k"]:
    """Of each rule, the sum of the log-totals of its children."""
    owners, children = (_long(x[table.rhs >= 0]) for x in (table.owners, table.rhs))
    values = _finite(totals)[children]
    return totals.new_zeros(len(used)).index_add(0, owners, values)


def _finite(logs: Tensor) -> Tensor:
    """The logs with 0 for −inf, whose gradient is 0."""
    return torch.where(logs > -torch.inf, logs, 0.0)


def _long(numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(numbers, dtype=np.int64))
