"""Expected numbers of constituents and of rules over the spans of a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from inout._core.lazy import lazy_property
from inout.grammars.parser.problem import Problem
from inout.kernels.sparse.cpu.passes import ParsingPasses, Posteriors

Vector = NDArray[np.float64]
Columns = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Marginals:
    """Expected numbers of nodes and rules over each span of at least one word.

    These are probabilities, except with unary cycles, which may put a label over a span twice.
    Spans i..j exclude word j. Empty constituents have no span and are left out.
    """

    _problem: Problem

    @property
    def log_z(self) -> float:
        """The log of the sum of the weights of all trees."""
        return self._posteriors.log_z if self._problem.n else -np.inf

    @property
    def labels(self) -> tuple[str, ...]:
        """The nonterminals used in some tree of the grammar."""
        form = self._problem.form
        names = zip(form.table.nonterminals, form.is_original, strict=True)
        return tuple(name for name, own in names if own)

    @lazy_property
    def constituent_counts(self) -> Vector:
        """The expected number of nodes [n n+1 labels]: start, end, label."""
        return self._nodes(self._problem.form.is_original)

    @lazy_property
    def other_counts(self) -> Vector:
        """The expected number [n n+1] of parts of long rules, which are not constituents."""
        counts: Vector = self._nodes(~self._problem.form.is_original).sum(axis=2)
        return counts

    def _nodes(self, symbols: NDArray[np.bool_]) -> Vector:
        n = self._problem.n
        counts = np.zeros((n, n + 1, int(symbols.sum())))
        if n:
            chart = self._posteriors
            counts[:, 1:] = np.exp(chart.log_back[:, :, symbols] + chart.log_after[:, :, symbols])
        return counts

    @lazy_property
    def _passes(self) -> ParsingPasses:
        """Passes of its own, whose charts live as long as this object."""
        return self._problem.passes_of(self._problem.sums, self._problem.beam)

    @lazy_property
    def _posteriors(self) -> Posteriors:
        return self._passes.posteriors(0)

    @lazy_property
    def constituents(self) -> dict[tuple[str, int, int], float]:
        """{(label, start, end): expected number}, those above 0."""
        starts, ends, labels = np.nonzero(self.constituent_counts)
        values = self.constituent_counts[starts, ends, labels].tolist()
        names = self.labels
        places = zip(labels.tolist(), starts.tolist(), ends.tolist(), strict=True)
        return {(names[a], i, j): v for (a, i, j), v in zip(places, values, strict=True)}

    @lazy_property
    def log_values(self) -> dict[tuple[str, int, int], tuple[float, float]]:
        """{(label, start, end): logs of its inside and outside value}, of these constituents.

        Constituents that no tree has are left out; `Analyses.inside` and `outside` have all.
        """
        if not self._problem.n:
            return {}
        chart, own = self._posteriors, self._problem.form.is_original
        units = chart.units[:, :, None]
        inside = (chart.log_after + units)[:, :, own]
        outside = (chart.log_back - units + self.log_z)[:, :, own]
        places = {name: a for a, name in enumerate(self.labels)}
        return {
            (label, i, j): (float(inside[at]), float(outside[at]))
            for label, i, j in self.constituents
            for at in [(i, j - 1, places[label])]
        }

    @lazy_property
    def tags(self) -> dict[tuple[str | None, int, int], float]:
        """The probability that a word is the only child of a label.

        None stands for all rules that have the word beside other symbols.
        """
        grammar = self._problem.grammar
        found: dict[tuple[str | None, int, int], float] = {}
        for rule, i, j, value in zip(*(x.tolist() for x in self._lexical), strict=True):
            label = grammar.nonterminals[grammar.rules.lhs[rule]] if rule >= 0 else None
            found[label, i, j] = found.get((label, i, j), 0.0) + value
        return found

    @lazy_property
    def unary_steps(self) -> dict[tuple[int, int], dict[tuple[str, str], float]]:
        """{(start, end): {(label above, label below): expected number}} over the same words."""
        closure, names = self._problem.form.closure, self._problem.form.table.nonterminals
        found: dict[tuple[int, int], dict[tuple[str, str], float]] = {}
        for step, (_, starts, ends, values) in zip(
            self._unary_origins.values(), self._unary, strict=True
        ):
            pair = names[closure.heads[step]], names[closure.children[step]]
            for i, j, value in zip(starts.tolist(), ends.tolist(), values.tolist(), strict=True):
                over = found.setdefault((i, j), {})
                over[pair] = over.get(pair, 0.0) + value
        return found

    @lazy_property
    def rules(self) -> dict[tuple[int, int, int], float]:
        """{(number of the rule, start, end): expected number}, those above 0."""
        rule, start, end, value = (x.tolist() for x in self.anchored_rules)
        return dict(zip(zip(rule, start, end, strict=True), value, strict=True))

    @lazy_property
    def anchored_rules(self) -> Columns:
        """The same as arrays: numbers of rules, starts, ends, expected numbers; each once."""
        if self._problem.n == 0:
            none = np.empty(0, np.int64)
            return none, none, none, np.empty(0)
        parts = [self._binary, self._lexical, *self._unary]
        rule, start, end, value = (np.concatenate(x) for x in zip(*parts, strict=True))
        known = (rule >= 0) & (value > 0)
        size = self._problem.n + 1
        keys = (rule[known].astype(np.int64) * size + start[known]) * size + end[known]
        places, where = np.unique(keys, return_inverse=True)
        totals = np.bincount(where, weights=value[known], minlength=len(places))
        return places // size**2, places // size % size, places % size, totals

    @property
    def _binary(self) -> Columns:
        """Original rules (−1 for parts of them), starts, ends, expected numbers."""
        form = self._problem.form
        found = self._passes.rule_posteriors(0)
        rules = form.original_rules[form.binary[found.rules]]
        return rules, found.starts, found.ends + 1, found.values

    @lazy_property
    def _lexical(self) -> Columns:
        problem, n = self._problem, max(self._problem.n, 1)
        rules = problem.form.original_rules[problem.compiled.rules]
        starts, ends = problem.compiled.cells // n, problem.compiled.cells % n + 1
        words = self._posteriors.words if problem.n else np.empty(0)
        return rules, starts, ends, words

    @property
    def _unary_origins(self) -> dict[int, int]:
        """{number of an origin of a unary rule of the form: its step in the closure}."""
        form, removal = self._problem.form, self._problem.form.removal
        step_of = np.full(len(form.table), -1)
        step_of[form.closure.rules] = np.arange(len(form.closure.rules))
        steps = step_of[removal.new_rules]
        places = np.flatnonzero(steps >= 0)
        return dict(zip(places.tolist(), steps[places].tolist(), strict=True))

    @lazy_property
    def _unary(self) -> list[Columns]:
        """Steps of chains: A -> B over a span is used exp(back(A) + w + after(B)) times.

        A step may have several origins among the rules, each with a weight of its own.
        """
        problem, chart = self._problem, self._posteriors
        form, removal, closure = problem.form, problem.form.removal, problem.form.closure
        base = problem.base.detach()
        weights = form.binarisation.log_weights(form.selection.log_weights(problem.original(base)))
        sums = removal.nulls.log_sums(torch.from_numpy(problem.shared.base)).numpy()
        kept = np.append(form.selection.kept, -1)
        found: list[Columns] = []
        for origin, step in self._unary_origins.items():
            rule, gone = int(removal.origin_rules[origin]), int(removal.origin_nulls[origin])
            logs = weights[..., rule].detach().numpy() + (sums[gone] if gone >= 0 else 0.0)
            logs = logs.reshape(problem.n, problem.n) if logs.ndim else logs
            above, below = closure.heads[step], closure.children[step]
            uses = np.exp(chart.log_back[:, :, above] + logs + chart.log_after[:, :, below])
            starts, ends = np.nonzero(uses)
            original = np.full(len(starts), kept[form.binarisation.original[rule]])
            found.append((original, starts, ends + 1, uses[starts, ends]))
        return found
