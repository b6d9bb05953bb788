"""Batches of sentences under a sparse grammar: scaled arithmetic, and log space where it fails."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.lazy import lazy_property
from inout.kernels import limits
from inout.kernels.sparse import arrays
from inout.kernels.sparse.cpu import anchored, batched, outside
from inout.kernels.sparse.cpu.chart import NOTHING
from inout.kernels.sparse.cpu.outside import Counts, Outer
from inout.kernels.threads import GROUPS, over_batch

Array = NDArray[Any]

_LOG2 = float(np.log(2.0))


class Posteriors(NamedTuple):
    """Posteriors [n n symbols] of symbols over spans i..j (both inclusive).

    Chains of unary rules are already closed in the rules; what happens inside them is had from a
    symbol's value after the unary rules and the gradient of log Z by its value before them:
    exp(log_back[i, j, A] + log_after[i, j, A]) is the expected number of nodes A over the span,
    exp(log_back[i, j, A] + w + log_after[i, j, B]) that of uses of a single step A -> B of
    log-weight w. The unit of a span is whatever suits it: only these sums have a meaning, and
    log_after + units and log_back - units + log Z, the inside and outside values of nodes.
    """

    log_z: float
    above: Array  # probability that the span has the symbol after the unary rules
    below: Array  # and before them
    log_after: Array
    log_back: Array
    words: Array  # [entries] probability that a word is read as an entry says
    units: Array  # [n n]


class RulePosteriors(NamedTuple):
    """Posteriors of binary rules over spans, both inclusive, by start and end; all [count]."""

    rules: Array
    starts: Array
    ends: Array
    values: Array


def _in_scale(logs: Array, exponents: Array) -> Array:
    """exp(logs) / 2**exponents, above 0 where logs is above -inf."""
    values = np.exp(logs - exponents * _LOG2)
    return np.where(logs > -np.inf, np.maximum(values, limits.SPARSE_SPECK), 0.0)


def _exponents(tops: Array, nothing: int) -> Array:
    """Binary exponents of exp(tops); `nothing` where that is 0."""
    found = tops > -np.inf
    return np.where(found, np.ceil(np.where(found, tops, 0.0) / _LOG2), nothing).astype(np.int64)


def _entry_exponents(logs: Array, offsets: Array) -> tuple[Array, Array]:
    """(binary exponents of the entries of each place, the entries in that scale)."""
    counts = np.diff(offsets)
    tops, found = np.full(len(counts), -np.inf), counts > 0
    if found.any():
        tops[found] = np.maximum.reduceat(logs[: offsets[-1]], offsets[:-1][found])
    exponents = _exponents(tops, NOTHING)
    return exponents, _in_scale(logs, np.repeat(exponents, counts))


class _Sweeps:
    """Runs of the kernels over groups of sentences, and the arrays that they fill together."""

    def __init__(self, passes: ParsingPasses, outer: Outer | None) -> None:
        self.passes = passes
        self.lanes = passes.lanes and outer is None
        self.outer = outer or Outer(*(np.empty((0, 0, 0)),) * 4, np.empty((0, 0)))
        self.low = np.zeros(len(passes.sentences), np.bool_)
        # One slot for each group, or for all of them where the rows are cells: nobody else's.
        slots = [1 if x else len(passes.groups) for x in passes.anchored]
        self.binary = np.zeros((slots[0], *passes.binary.shape))
        self.unary = np.zeros((slots[1], *passes.unary.shape))
        self.words = np.zeros(len(passes.words))

    def scaled(
        self, which: list[Array], raised: float, skip_low: bool, factors: Array, log_z: Array
    ) -> None:
        problem = self.passes.scaled_problem(raised)
        sweep = batched.sweep if self.lanes else outside.sweep
        self._over(partial(sweep, problem), which, skip_low, factors, self.low, log_z)

    def in_logs(self, which: list[Array], factors: Array, log_z: Array) -> None:
        sweep = partial(outside.sweep, self.passes.log_problem)
        self._over(sweep, which, False, factors, np.empty_like(self.low), log_z)

    def _over(
        self, sweep: Any, which: list[Array], skip_low: bool, factors: Array, low: Array,
        log_z: Array,
    ) -> None:  # fmt: skip
        starts = self.passes.sentences.starts

        def part(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                if len(which[g]) == 0:  # calling the kernel could compile it for nothing
                    continue
                binary, unary = self.binary[g % len(self.binary)], self.unary[g % len(self.unary)]
                counts = Counts(log_z, binary, unary, self.words)
                sweep(starts, which[g], skip_low, factors, low, counts, self.outer)

        over_batch(part, len(which), self.passes.work)


class ParsingPasses:
    """Sentences under a grammar at one setting of the log-weights, float64 arrays.

    binary_log_weights [r] and unary_log_weights [u] in the order in which the rules were given,
    or [cells r] and [cells u]: what a rule weighs over each span. word_log_weights [entries]. With
    a beam, a symbol whose value after the unary rules is less than beam times the largest of its
    span is dropped: log Z, which is then less than it was, and all else are those of what is left.

    No chart is kept: each method makes what it needs, one sentence at a time in each thread,
    O(symbols n²) numbers of 8 bytes, twice that for expected counts.

    >>> from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    >>> rules = RuleArrays.compile(2, 0, np.array([[0, 0, 1]]), np.array([[0, 1]]))
    >>> words = SentenceArrays(np.array([0, 2]), np.array([0, 1, 2]), np.array([1, 1], np.int32))
    >>> half = np.log(0.5)
    >>> passes = ParsingPasses(rules, words, np.array([half]), np.array([half]), np.zeros(2))
    >>> float(np.exp(passes.log_partition()[0]))
    0.25
    >>> passes.expected_counts().binary
    array([1.])
    """

    def __init__(
        self,
        rules: arrays.RuleArrays,
        sentences: arrays.SentenceArrays,
        binary_log_weights: Array,
        unary_log_weights: Array,
        word_log_weights: Array,
        beam: float = 0.0,
    ) -> None:
        self.rules, self.sentences, self.beam = rules, sentences, beam
        self.anchored = binary_log_weights.ndim == 2, unary_log_weights.ndim == 2
        # One row for all cells or one for each; rules in the passes' order.
        ordered = np.atleast_2d(binary_log_weights)[:, rules.ways.order]
        self.binary: Array = np.ascontiguousarray(ordered, np.float64)
        self.unary: Array = np.ascontiguousarray(np.atleast_2d(unary_log_weights), np.float64)
        self.words: Array = np.ascontiguousarray(word_log_weights, np.float64)
        # Dealt out by length, to and fro, so that all groups have about as much to do.
        by_length = np.argsort(sentences.lengths, kind="stable")
        self.groups: list[Array] = [
            np.append(by_length[k :: 2 * GROUPS], by_length[2 * GROUPS - 1 - k :: 2 * GROUPS])
            for k in range(GROUPS)
        ]
        # Those of the same length next to each other: they can be done side by side.
        self.groups = [x[np.argsort(sentences.lengths[x], kind="stable")] for x in self.groups]
        self.groups = [x for x in self.groups if len(x)]
        lengths = sentences.lengths.astype(np.float64)
        pairs = len(rules.grammar.pair_right) + rules.num_symbols
        self.work = int((lengths**2).sum() * (pairs + len(rules.grammar.unary_head)))

    @lazy_property
    def lanes(self) -> bool:
        """Whether the scaled passes do spans side by side: they can, and most pairs meet."""
        plain = not any(self.anchored) and self.beam == 0 and len(self.sentences.arc_offsets) == 0
        return plain and lanes_pay(self.rules, self.sentences)

    @lazy_property
    def _scaled_weights(self) -> arrays.Weights:
        rule_exponents = _exponents(self.binary.max(axis=1, initial=-np.inf), 0)
        unary_exponents = _exponents(self.unary.max(axis=1, initial=-np.inf), 0).clip(min=0)
        return arrays.Weights(
            _in_scale(self.binary, rule_exponents[:, None]),
            _in_scale(self.unary, unary_exponents[:, None]),
            rule_exponents,
            unary_exponents,
            np.ldexp(1.0, -unary_exponents),
        )

    @lazy_property
    def _scaled_words(self) -> arrays.Words:
        sentences, size = self.sentences, len(self.sentences.symbols)
        exponents, values = _entry_exponents(self.words[:size], sentences.offsets)
        arc_exponents = np.empty(0, np.int64)
        if len(sentences.arc_offsets):
            arc_exponents, arcs = _entry_exponents(self.words[size:], sentences.arc_offsets)
            values = np.append(values, arcs)
        return sentences.words(values, exponents, arc_exponents)

    def scaled_problem(self, raised: float = 0.0) -> arrays.Problem:
        """For the kernels in scaled arithmetic, with what values that are too small become."""
        numbers = arrays.Scaled(float(self.beam), raised)
        return arrays.Problem(self.rules.grammar, numbers, self._scaled_weights, self._scaled_words)

    @property
    def log_problem(self) -> arrays.Problem:
        """For the kernels in log space that add up."""
        return self._problem_in(arrays.Logs)

    @property
    def best_problem(self) -> arrays.Problem:
        """For those that take maxima."""
        return self._problem_in(arrays.Best)

    def _problem_in(self, kind: type[arrays.Logs | arrays.Best]) -> arrays.Problem:
        numbers = kind(float(np.log(self.beam)) if self.beam > 0 else -np.inf)
        weights, words = arrays.Weights(self.binary, self.unary), self.sentences.words(self.words)
        return arrays.Problem(self.rules.grammar, numbers, weights, words)

    def only(self, sentence: int) -> ParsingPasses:
        """The passes of one sentence alone."""
        if len(self.sentences) == 1 and sentence == 0:
            return self
        chosen, entries, cells = self.sentences.select(np.array([sentence]))
        binary = np.empty_like(self.binary)
        binary[:, self.rules.ways.order] = self.binary
        binary = binary[cells] if self.anchored[0] else binary[0]
        unary = self.unary[cells] if self.anchored[1] else self.unary[0]
        return ParsingPasses(self.rules, chosen, binary, unary, self.words[entries], self.beam)

    def _run(self, factors: Array, outer: Outer | None = None) -> tuple[Array, list[Array], Array]:
        """log Z [b], counts of rules (in the passes' order), unary rules and words, which in logs.

        The last [b] says which sentences had to be done in log space.
        """
        b = len(self.sentences)
        log_z, in_logs = np.full(b, -np.inf), np.zeros(b, np.bool_)
        sweeps = _Sweeps(self, outer)
        sweeps.scaled(self.groups, 0.0, True, factors, log_z)
        low = sweeps.low.copy()
        if outer and self._clipped_unary:
            # What a chain hands on to its middle would be wrong by as much.
            low |= log_z > -np.inf
        if low.any():
            left = [x[low[x]] for x in self.groups]
            if self.beam > 0 or outer:
                # A raised value might push others out of the beam: it would give no bound. And a
                # symbol that is too small after the unary rules may be in the midst of a chain.
                in_logs |= low
            else:
                bounds = np.full(b, -np.inf)
                sweeps.scaled(left, limits.SPARSE_RAISED, True, np.zeros(b), bounds)
                in_logs |= bounds > log_z + limits.SPARSE_SLACK
            # The scaled outside pass of those that fit was left out; it has to be made now.
            if factors.any():
                sweeps.scaled([x[~in_logs[x]] for x in left], 0.0, False, factors, log_z)
            sweeps.in_logs([x[in_logs[x]] for x in left], factors, log_z)
        return log_z, [sweeps.binary.sum(0), sweeps.unary.sum(0), sweeps.words], in_logs

    def log_partition(self) -> Array:
        """log Z [b], the log of the sum of the weights of all trees with the root's symbol."""
        log_z, _, _ = self._run(np.zeros(len(self.sentences)))
        return log_z

    def expected_counts(self, factors: Array | None = None) -> Counts:
        """Expected counts, summed over the sentences with these factors [b] (1 if not given).

        Sentences without a tree add nothing.
        """
        if factors is None:
            factors = np.ones(len(self.sentences))
        log_z, (binary, unary, words), _ = self._run(np.ascontiguousarray(factors, np.float64))
        counts = np.empty_like(binary)
        counts[:, self.rules.ways.order] = binary
        binary = counts if self.anchored[0] else counts[0]
        return Counts(log_z, binary, unary if self.anchored[1] else unary[0], words)

    @property
    def _clipped_unary(self) -> bool:
        """Whether some unary rule is too small for its scale."""
        scaled = self._scaled_weights.unary
        return bool(((scaled <= limits.SPARSE_SPECK) & (self.unary > -np.inf)).any())

    @lazy_property
    def _outside(self) -> tuple[float, Outer, Array, bool]:
        """(log Z, what is known of spans, posteriors of entries, whether in logs)."""
        n = int(self.sentences.lengths[0])
        shape = n, n, self.rules.num_symbols
        outer = Outer(*(np.zeros(shape if k < 4 else (n, n)) for k in range(5)))
        log_z, (_, _, words), in_logs = self._run(np.ones(1), outer)
        return float(log_z[0]), outer, words, bool(in_logs[0])

    def posteriors(self, sentence: int) -> Posteriors:
        """Posteriors of the symbols over the spans of one sentence; 0 without a tree."""
        only = self.only(sentence)
        log_z, (above, below, after, back, units), words, in_logs = only._outside
        if log_z == -np.inf:
            after, back = (np.full_like(x, -np.inf) for x in (after, back))
        elif not in_logs:
            n = len(above)
            exponents = only._scaled_weights.unary_exponents
            exponents = np.broadcast_to(exponents, n * n).reshape(n, n, 1)
            with np.errstate(divide="ignore"):
                after, back = np.log(after) + exponents * _LOG2, np.log(back)
        return Posteriors(log_z, above, below, after, back, words, units)

    def rule_posteriors(self, sentence: int, threshold: float = 0.0) -> RulePosteriors:
        """Posteriors above the threshold of binary rules over spans, summed over splits."""
        only = self.only(sentence)
        log_z, outer, _, in_logs = only._outside
        if log_z == -np.inf:
            nothing = np.empty(0, np.int64)
            return RulePosteriors(nothing, nothing, nothing, np.empty(0))
        problem = only.log_problem if in_logs else only.scaled_problem()
        n = int(only.sentences.lengths[0])
        numbers, values = anchored.collect(problem, n, outer.back, float(threshold))
        rules, starts, ends = numbers.T
        return RulePosteriors(self.rules.ways.order[rules], starts, ends, values)


# Wider spans have rather more symbols than those that are looked at.
WIDEST = 6
SAMPLE = 32
# The logarithm of what is left must be finite.
SURE = 1 - 1e-12


def lanes_pay(rules: arrays.RuleArrays, sentences: arrays.SentenceArrays) -> bool:
    """Whether `batched.sweep` is likely to be faster than `outside.sweep`."""
    squares = int((sentences.lengths**2).sum())
    work = squares * len(rules.grammar.pair_right)
    if squares < limits.LANES_SQUARES or work < limits.LANES_WORK:
        return False
    if rules.num_symbols > limits.LANES_SYMBOLS:
        return False
    return meeting_share(rules, sentences) * allowed_share(sentences) >= limits.LANES_MEETING


def meeting_share(rules: arrays.RuleArrays, sentences: arrays.SentenceArrays) -> float:
    """The expected share of pairs that meet in a span, as if symbols came independently.

    O(rules) for each of a few widths.
    """
    lengths = sentences.lengths.astype(np.float64)
    widest = int(min(WIDEST, np.ceil(np.average(lengths, weights=lengths**2))))
    if widest < 2:
        return 0.0
    s, left = rules.num_symbols, rules.ways.rule_left[rules.grammar.rule_offsets[:-1]]
    pairs = np.repeat(np.arange(len(left)), np.diff(rules.grammar.rule_offsets))
    found = np.bincount(sentences.symbols, minlength=s) / max(1, len(sentences.offsets) - 1)
    likely = [_with_unary(rules, np.minimum(found, 1.0))]
    meeting, spans = 0.0, 0
    for w in range(1, widest):
        apart = np.zeros(len(left))
        for d in range(w):
            apart += _log_not(likely[d][left] * likely[w - 1 - d][rules.grammar.pair_right])
        meet = -np.expm1(apart)
        missing = np.bincount(rules.grammar.rule_head, _log_not(meet[pairs]), s)
        likely.append(_with_unary(rules, -np.expm1(missing)))
        meeting += (widest - w) * float(meet.mean())
        spans += widest - w
    return meeting / spans


def _log_not(shares: Array) -> Array:
    result: Array = np.log1p(-np.minimum(shares, SURE))
    return result


def _with_unary(rules: arrays.RuleArrays, likely: Array) -> Array:
    if len(rules.grammar.unary_head) == 0:
        return likely
    missing = np.bincount(
        rules.grammar.unary_head, _log_not(likely[rules.grammar.unary_child]), len(likely)
    )
    result: Array = -np.expm1(missing + _log_not(likely))
    return result


def allowed_share(sentences: arrays.SentenceArrays) -> float:
    """The share of what some of the sentences allow, of spans with at least two words."""
    if len(sentences.allowed) == 0:
        return 1.0
    allowed, spans = 0.0, 0
    step = -(-len(sentences) // SAMPLE)
    for b in range(0, len(sentences), step):
        n = int(sentences.lengths[b])
        cells = sentences.allowed[sentences.cell_starts[b] :][: n * n]
        above = np.triu(cells.mean(axis=1).reshape(n, n), 1)
        allowed, spans = allowed + float(above.sum()), spans + n * (n - 1) // 2
    return allowed / spans if spans else 0.0
