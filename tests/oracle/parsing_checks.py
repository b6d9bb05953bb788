"""What the passes of a case say, against its trees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout.kernels.sparse.cpu.passes import ParsingPasses
from tests.oracle.parsing_cases import Case, Tree, log_sum, possible_trees
from tests.support import assert_close

Array = NDArray[Any]


def check(case: Case, beam: float = 0.0) -> None:
    """log Z, counts and posteriors are those of the trees written out."""
    passes = case.passes(beam)
    counts = passes.expected_counts()
    binary, unary, words = (np.zeros_like(x) for x in case.weights())
    expected = {"binary": binary, "unary": unary, "word": words}
    logs = []
    for b, found in enumerate(possible_trees(case)):
        logs.append(log_sum(found))
        for x in found:
            for kind, number, i, _, j in x.parts:
                shared = expected[kind].ndim == 1
                place = number if shared else (case.cell[b, i, j], number)
                expected[kind][place] += math.exp(x.log_weight - logs[-1])
        check_posteriors(passes, case, b, found)
        check_rules(passes, b, found)
    assert_close(passes.log_partition(), np.array(logs))
    assert_close(counts.log_z, np.array(logs))
    assert_close(counts.binary, expected["binary"])
    assert_close(counts.unary, expected["unary"])
    assert_close(counts.words, expected["word"])


def check_posteriors(passes: ParsingPasses, case: Case, b: int, found: list[Tree]) -> None:
    n, s = len(case.sentences[b]), case.num_symbols
    above, below = np.zeros((n, n, s)), np.zeros((n, n, s))
    log_z = log_sum(found)
    for x in found:
        share = math.exp(x.log_weight - log_z)
        for i, j, head, child in x.nodes:
            above[i, j, head] += share
            below[i, j, child] += share
    posteriors = passes.posteriors(b)
    assert_close(posteriors.above, above)
    assert_close(posteriors.below, below)
    assert not np.isnan(posteriors.log_back + posteriors.log_after).any()


def check_rules(passes: ParsingPasses, b: int, found: list[Tree]) -> None:
    """Posteriors of rules over spans, and none for those in no tree."""
    log_z = log_sum(found)
    spans: dict[tuple[int, ...], float] = {}
    for x in found:
        for kind, r, i, _, j in x.parts:
            if kind == "binary":
                share = math.exp(x.log_weight - log_z)
                spans[r, i, j] = spans.get((r, i, j), 0.0) + share
    for threshold in (0.0, 0.25):
        check_sparse(passes.rule_posteriors(b, threshold), spans, threshold)


def check_sparse(found: Any, expected: dict[tuple[int, ...], float], threshold: float) -> None:
    *numbers, values = found
    places = list(zip(*(x.tolist() for x in numbers), strict=True))
    ours = dict(zip(places, values.tolist(), strict=True))
    assert len(ours) == len(places)
    assert (values > threshold).all()
    for place in {*ours, *expected}:
        value = expected.get(place, 0.0)
        if abs(value - threshold) > 1e-9:
            assert_close(ours.get(place, 0.0), value if value > threshold else 0.0)
