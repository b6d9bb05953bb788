"""Where spans side by side pay: how many pairs of symbols are likely to meet in a chart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout.kernels.limits import LANES_MEETING, LANES_SQUARES, LANES_SYMBOLS, LANES_WORK
from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays

Array = NDArray[Any]

# Wider spans have rather more symbols than those that are looked at.
WIDEST = 6
SAMPLE = 32
# The logarithm of what is left must be finite.
SURE = 1 - 1e-12


def pays(rules: RuleArrays, sentences: SentenceArrays) -> bool:
    """Whether `batched.sweep` is likely to be faster than `outside.sweep`."""
    squares = int((sentences.lengths**2).sum())
    if squares < LANES_SQUARES or squares * len(rules.grammar.pair_right) < LANES_WORK:
        return False
    if rules.num_symbols > LANES_SYMBOLS:
        return False
    return meeting_share(rules, sentences) * allowed_share(sentences) >= LANES_MEETING


def meeting_share(rules: RuleArrays, sentences: SentenceArrays) -> float:
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


def _with_unary(rules: RuleArrays, likely: Array) -> Array:
    if len(rules.grammar.unary_head) == 0:
        return likely
    missing = np.bincount(
        rules.grammar.unary_head, _log_not(likely[rules.grammar.unary_child]), len(likely)
    )
    result: Array = -np.expm1(missing + _log_not(likely))
    return result


def allowed_share(sentences: SentenceArrays) -> float:
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
