"""`SentencePrefixes`: probabilities that sentences of a grammar begin with given words."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.errors import ArgumentError, Remedy
from inout._core.graphs import strong_components
from inout.grammars.expectations import proper_log_weights
from inout.grammars.parser.normal_form import FormWeights, NormalForm
from inout.grammars.parser.prefix_derivatives import prefix_derivatives
from inout.grammars.parser.sentences import Compiled
from inout.grammars.partition import log_partitions
from inout.grammars.structure import reachable
from inout.grammars.table import RuleTable
from inout.grammars.transforms.base import Vector
from inout.kernels.autograd import gradient_wanted
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.prefix import Prefixes, Steps, elimination, prefix_log_probs


class SentencePrefixes:
    """The distribution over sentences given by the weights of trees; made once per grammar.

    Jelinek & Lafferty (1991), Stolcke (1995). The rules of the normal form get probabilities, so
    that all trees of a symbol sum to 1 (`Grammar.normalised`). Then a tree of A begins with words
    i..j if some left corner of it, any number of steps down, splits or ends them:

        base(A, i, j) = [i = j] p(A → w_i) + Σ p(A → B C) inside(B, i, k) prefix(C, k+1, j)
        prefix(·, i, j) = (I − L)⁻¹ base(·, i, j),  L(A, B) = Σ over C of p(A → B C) + p(A → B)

    The inverse is full even where L is not: L of a treebank grammar with 3,000 symbols has 10,000
    pairs, the inverse 6 million. So it is never made: strongly connected components of L are
    eliminated symbol by symbol, which leaves 18,000 sums and products for a span.
    """

    def __init__(self, form: NormalForm, log_weights: Float[Tensor, " r"]) -> None:
        with torch.no_grad():
            log_empty = float(form.log_empty(log_weights))
            # Without chains, which may have no sum yet where no tree has them.
            binarised = form.binarisation.log_weights(form.selection.log_weights(log_weights))
            rules = form.removal.log_weights(binarised).numpy()
            log_z = log_partitions(form.table, rules)
            log_whole = float(log_z[0]) if len(rules) else -np.inf
            total = np.logaddexp(log_whole, log_empty)
            if not np.isfinite(total):
                kind = "have no tree" if total == -np.inf else "sum to infinity"
                raise ArgumentError(
                    None,
                    "prefixes have probabilities only if the weights of all trees have a finite, "
                    f"positive sum. Those of this grammar {kind}; smaller weights of recursive "
                    "rules may help",
                    remedy=Remedy.DIAGNOSE,
                )
            self.form = form
            self.log_empty = log_empty - total  # of the empty sentence
            self.log_nonempty = log_whole - total
            self.log_z, probabilities = log_z, _probabilities(form.table, rules, log_z)
            self.steps = left_corner_steps(form.table, probabilities)
            rule_logs = torch.from_numpy(probabilities)
            self._weights = FormWeights(rule_logs, form.closure.log_weights(rule_logs))

    def differentiable_log_probs(
        self, compiled: Compiled, log_weights: Float[Tensor, " r"]
    ) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """`log_probs` as tensors, twice differentiable if the log-weights want a gradient."""
        found = [torch.from_numpy(logs) for logs in self.log_probs(compiled)]
        if gradient_wanted(log_weights):
            used = self._weights.rules.numpy() > -np.inf
            slopes = prefix_derivatives(
                self.form, log_weights.cpu().double(), self.log_z, used, compiled
            )
            # The values are those of the compiled passes, which lose no digits.
            found = [
                x + torch.where((x > -torch.inf) & y.isfinite(), y - y.detach(), 0.0)
                for x, y in zip(found, slopes, strict=True)
            ]
        return found[0], found[1]

    def log_probs(self, compiled: Compiled) -> Prefixes:
        """Log-probabilities [n+1] of beginning with the first 0 to n words, and of being these."""
        given = compiled.potentials(self.form, self._weights)
        binary, chains, entries = (x.numpy() for x in given)
        passes = ParsingPasses(self.form.arrays, compiled.arrays, binary, chains, entries)
        found = prefix_log_probs(passes, self.steps)
        # A longer prefix is never more likely, nor the sentence that ends there, but by rounding.
        begins = np.minimum.accumulate(np.append(0.0, self.log_nonempty + found.begins))
        sentences = np.append(self.log_empty, self.log_nonempty + found.sentences)
        return Prefixes(begins, np.minimum(begins, sentences))


def _probabilities(table: RuleTable, log_weights: Vector, log_z: Vector) -> Vector:
    """The log-probabilities of rules given their left sides, −inf for those in no tree: [r]."""
    logs = proper_log_weights(table, log_weights, log_z)
    seen = reachable(table, logs > -np.inf)
    logs = np.where(seen[table.lhs], logs, -np.inf)
    # At a critical point Z has only half of its digits; probabilities still have to sum to 1.
    sums = _log_sums(logs, table.lhs, len(table.nonterminals))[table.lhs]
    return logs - np.where(logs > -np.inf, sums, 0.0)


def _log_sums(logs: Vector, places: np.ndarray, size: int) -> Vector:
    result = np.full(size, -np.inf)
    np.logaddexp.at(result, places, logs)
    return result


def left_corner_steps(table: RuleTable, log_probabilities: Vector) -> Steps:
    """(I − L)⁻¹ as sums one after the other, for rules whose probabilities sum to 1 or to 0.

    One strongly connected component after the other, so that what is filled in by elimination
    stays inside of it.
    """
    size = len(table.nonterminals)
    used = log_probabilities > -np.inf
    heads, logs = table.lhs[used], log_probabilities[used]
    firsts = table.rhs[table.offsets[:-1][used]].astype(np.int64)
    inner = firsts >= 0
    pairs = heads[inner].astype(np.int64) * size + firsts[inner]
    codes, places = np.unique(pairs, return_inverse=True)
    values = _log_sums(logs[inner], places, len(codes))
    rows, columns = codes // size, codes % size  # by rows
    bounds = np.searchsorted(rows, np.arange(size + 1))
    ends = _log_sums(logs[~inner], heads[~inner], size)
    local = np.full(size, -1)
    parts = [Steps(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))]
    for part in strong_components(size, rows, columns):
        local[part] = np.arange(len(part))
        pairs = np.concatenate([np.arange(bounds[a], bounds[a + 1]) for a in part])
        own = local[columns[pairs]] >= 0
        out, pairs = pairs[~own], pairs[own]
        parts.append(Steps(rows[out].astype(np.int32), columns[out].astype(np.int32), values[out]))
        if len(pairs):
            matrix = np.full((len(part), len(part)), -np.inf)
            matrix[local[rows[pairs]], local[columns[pairs]]] = values[pairs]
            leaving = ends[part]
            np.logaddexp.at(leaving, local[rows[out]], values[out])
            steps = elimination(matrix, leaving)
            symbols = part.astype(np.int32)
            parts.append(Steps(symbols[steps.targets], symbols[steps.sources], steps.factors))
        local[part] = -1
    return Steps(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
