"""The number of trees of a sentence, exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout.grammars.parser.problem import Problem
from inout.grammars.parser.ways import Number
from inout.kernels.sparse.counts import count_trees
from inout.kernels.sparse.cpu.passes import ParsingPasses


def count(problem: Problem) -> Number:
    """The number of trees of weight above 0 of the only sentence; or math.inf."""
    form, compiled, n = problem.form, problem.compiled, problem.n
    if n == 0:
        return problem.shared.ways.nulls[0]
    # A setting for all cells, or one for each; cells below the diagonal are no spans.
    cells = [0] if problem.is_uniform else [c if c // n <= c % n else 0 for c in range(n * n)]
    settings = [problem.setting(cell).ways for cell in cells]
    rules = _rows([x.log_exists for x in settings])
    words = rules[..., compiled.cells, compiled.rules] if rules.ndim > 1 else rules[compiled.rules]
    passes = ParsingPasses(
        form.arrays,
        compiled.arrays,
        rules[..., form.binary],
        np.zeros(len(form.closure.pairs)),
        words + np.minimum(compiled.log_weights, 0.0),
    )
    once = count_trees(passes, unary=_rows([x.finite_chains[0] for x in settings]))[0]
    if any(x.is_endless for x in settings):
        twice = count_trees(passes, unary=_rows([x.finite_chains[1] for x in settings]))[0]
        if twice != once:
            return math.inf  # a tree has a chain that has no end
    return once


def _rows(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """[k], or [cells k] of several."""
    return parts[0] if len(parts) == 1 else np.stack(parts)
