"""Batches of sentences under a sparse grammar: scaled arithmetic, and log space where it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout.kernels.parsing import cpu
from inout.kernels.parsing.arrays import RuleArrays, SentenceArrays
from inout.kernels.parsing.logspace import cpu as logspace
from inout.kernels.threads import GROUPS, over_batch

Array = NDArray[Any]
Kernel = Callable[..., Any]

# numba's dispatchers have no types for starred arguments.
_sweep: Kernel = cpu.sweep
_log_sweep: Kernel = logspace.sweep
_viterbi: Kernel = logspace.viterbi

_LOG2 = float(np.log(2.0))


class Counts(NamedTuple):
    """Expected counts, which are the gradients of log Z by the log-weights, and log Z [b]."""

    log_z: Array
    binary: Array  # [r]
    unary: Array  # [u]
    words: Array  # [entries]


class Posteriors(NamedTuple):
    """Probabilities [n n symbols] that a span i..j (both inclusive) has a symbol."""

    above: Array  # after the unary rules
    below: Array  # before them


class BestTrees(NamedTuple):
    """Log-weights [b] of the best trees, and their nodes, parents first, left before right.

    nodes[b] [2n-1 5]: start, end (exclusive), symbol above the unary rule, number of the unary rule
    or -1, number of the binary rule or, for a word, of its entry. [0 5] without a tree.
    """

    scores: Array
    nodes: list[Array]


def _scaled(logs: Array, exponents: Array) -> Array:
    """exp(logs) / 2**exponents, above 0 where logs is above -inf."""
    values = np.exp(logs - exponents * _LOG2)
    return np.where(logs > -np.inf, np.maximum(values, cpu.SPECK), 0.0)


def _exponent(logs: Array) -> int:
    """The binary exponent of the largest exp(logs), 0 if there is none."""
    top = logs.max(initial=-np.inf)
    return int(np.ceil(top / _LOG2)) if top > -np.inf else 0


class ParsingPasses:
    """Sentences under a grammar at one setting of the log-weights, float64 arrays.

    binary_log_weights [r] and unary_log_weights [u] in the order in which the rules were given,
    word_log_weights [entries]. No chart is kept: each method makes what it needs, one sentence at a
    time in each thread, O(symbols n²) numbers of 8 bytes, twice that for expected counts.

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
        rules: RuleArrays,
        sentences: SentenceArrays,
        binary_log_weights: Array,
        unary_log_weights: Array,
        word_log_weights: Array,
    ) -> None:
        self.rules, self.sentences = rules, sentences
        self.binary: Array = np.ascontiguousarray(binary_log_weights[rules.order], np.float64)
        self.unary: Array = np.ascontiguousarray(unary_log_weights, np.float64)
        self.words: Array = np.ascontiguousarray(word_log_weights, np.float64)
        # Dealt out by length, so that every range of a few sentences has short and long ones.
        by_length = np.argsort(sentences.lengths, kind="stable")
        self._groups: list[Array] = [by_length[k::GROUPS] for k in range(GROUPS)]
        self._groups = [x for x in self._groups if len(x)]
        lengths = sentences.lengths.astype(np.float64)
        pairs = len(rules.pair_right) + rules.num_symbols
        self._work = int((lengths**2).sum() * (pairs + len(rules.unary_head)))

    def _scaled_arguments(self) -> tuple[Any, ...]:
        """(grammar, weights, words, starts) for the scaled kernel."""
        rule_exponent, unary_exponent = _exponent(self.binary), max(_exponent(self.unary), 0)
        weights = (
            _scaled(self.binary, np.asarray(rule_exponent)),
            _scaled(self.unary, np.asarray(unary_exponent)),
            rule_exponent,
            unary_exponent,
            float(np.ldexp(1.0, -unary_exponent)),
        )
        offsets = self.sentences.offsets
        counts = np.diff(offsets)
        tops = np.full(len(counts), -np.inf)
        np.maximum.at(tops, np.repeat(np.arange(len(counts)), counts), self.words)
        exponents = np.ceil(np.where(tops > -np.inf, tops, 0.0) / _LOG2).astype(np.int64)
        values = _scaled(self.words, np.repeat(exponents, counts))
        words = (offsets, self.sentences.symbols, values, exponents)
        return self.rules.structure, weights, words, self.sentences.starts

    def _log_arguments(self) -> tuple[Any, ...]:
        """(grammar, rules, unary, words, starts) for the kernels in log space."""
        words = (self.sentences.offsets, self.sentences.symbols, self.words)
        return self.rules.structure, self.binary, self.unary, words, self.sentences.starts

    def _run(
        self,
        factors: Array,
        posteriors: tuple[Array, Array] | None = None,
    ) -> tuple[Array, list[Array]]:
        """log Z [b] and the counts of rules (in the passes' order), unary rules and words."""
        b = len(self.sentences)
        slots = len(self._groups)
        log_z, low = np.full(b, -np.inf), np.zeros(b, np.bool_)
        binary = np.zeros((slots, len(self.binary)))
        unary = np.zeros((slots, len(self.unary)))
        words = np.zeros(len(self.words))
        outputs = posteriors or (np.empty((0, 0, 0)), np.empty((0, 0, 0)))
        size = self.rules.root, self.rules.num_unary_symbols
        scaled = self._scaled_arguments()

        def run(
            which: list[Array], raised: float, skip_low: bool, weights: Array, logs: Array
        ) -> None:
            def part(lo: int, hi: int) -> None:
                for g in range(lo, hi):
                    _sweep(
                        *scaled, which[g], 0, len(which[g]), *size, raised, skip_low, weights,
                        logs, low, binary[g], unary[g], words, *outputs,
                    )  # fmt: skip

            over_batch(part, len(which), self._work)

        def run_log(which: list[Array]) -> None:
            given = self._log_arguments()

            def part(lo: int, hi: int) -> None:
                for g in range(lo, hi):
                    _log_sweep(
                        *given, which[g], 0, len(which[g]), *size, factors, log_z,
                        binary[g], unary[g], words, *outputs,
                    )  # fmt: skip

            over_batch(part, len(which), self._work)

        run(self._groups, 0.0, True, factors, log_z)
        if low.any():
            left = [x[low[x]] for x in self._groups]
            bounds = np.full(b, -np.inf)
            run(left, cpu.RAISED, True, np.zeros(b), bounds)
            fits = bounds <= log_z + cpu.SLACK
            # The scaled outside pass of those that fit was left out; it has to be made now.
            if factors.any():
                run([x[fits[x]] for x in left], 0.0, False, factors, log_z)
            run_log([x[~fits[x]] for x in left])
        return log_z, [binary.sum(0), unary.sum(0), words]

    def log_partition(self) -> Array:
        """log Z [b], the log of the sum of the weights of all trees with the root's symbol."""
        log_z, _ = self._run(np.zeros(len(self.sentences)))
        return log_z

    def expected_counts(self, factors: Array | None = None) -> Counts:
        """Expected counts, summed over the sentences with these factors [b] (1 if not given).

        Sentences without a tree add nothing.
        """
        if factors is None:
            factors = np.ones(len(self.sentences))
        log_z, (binary, unary, words) = self._run(np.ascontiguousarray(factors, np.float64))
        counts = np.empty_like(binary)
        counts[self.rules.order] = binary
        return Counts(log_z, counts, unary, words)

    def posteriors(self, sentence: int) -> Posteriors:
        """Posteriors of the symbols over the spans of one sentence; 0 without a tree."""
        only, entries = self.sentences.select(np.array([sentence]))
        binary = np.empty_like(self.binary)
        binary[self.rules.order] = self.binary
        passes = ParsingPasses(self.rules, only, binary, self.unary, self.words[entries])
        n = int(only.lengths[0])
        above = np.zeros((n, n, self.rules.num_symbols))
        result = Posteriors(above, np.zeros_like(above))
        passes._run(np.ones(1), (result.above, result.below))
        return result

    def best(self) -> BestTrees:
        """The best tree of each sentence.

        Ties go to no unary rule, then to the first rule, then to the first split.
        """
        rules, b = self.rules, len(self.sentences)
        offsets = np.append(0, np.maximum(2 * self.sentences.lengths - 1, 0).cumsum())
        scores, nodes = np.full(b, -np.inf), np.zeros((int(offsets[-1]), 5), np.int64)
        ways = rules.rule_left, rules.rule_right, rules.head_offsets, rules.head_rules
        grammar, *given = self._log_arguments()

        def part(lo: int, hi: int) -> None:
            for g in range(lo, hi):
                _viterbi(
                    grammar, ways, *given, self._groups[g], 0, len(self._groups[g]), rules.root,
                    rules.num_unary_symbols, rules.order, offsets, scores, nodes,
                )  # fmt: skip

        over_batch(part, len(self._groups), self._work)
        found = scores > -np.inf
        ends = np.where(found, offsets[1:], offsets[:-1])
        return BestTrees(scores, [nodes[x:y] for x, y in zip(offsets[:-1], ends, strict=True)])
