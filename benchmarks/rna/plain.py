"""The recursions of the Pfold grammar written out by hand: the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from benchmarks.rna.pfold import Tables

Add = Callable[[Iterable[float]], float]
Forbidden = tuple[int, int] | None


def value(tables: Tables, bases: str, add: Add = sum, forbidden: Forbidden = None) -> float:
    """The sum (or with `add=max` the largest) of the weights of all structures.

    Without those in which the bases `forbidden` are a pair.
    """
    rules, n = tables.rules, len(bases)
    s, loop, stem = (np.zeros((n + 1, n + 1)) for _ in range(3))
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width - 1
            pair = tables.pair[bases[i] + bases[j]] if (i, j) != forbidden else 0.0
            inner = stem[i + 1, j - 1] * pair if width > 2 else 0.0
            single = tables.single[bases[i]] if width == 1 else 0.0
            parts = [loop[i, k] * s[k + 1, j] for k in range(i, j)]
            both = add([0.0, *parts])
            loop[i, j] = add([rules["L -> s"] * single, rules["L -> d F d"] * inner])
            stem[i, j] = add([rules["F -> d F d"] * inner, rules["F -> L S"] * both])
            s[i, j] = add([rules["S -> L S"] * both, rules["S -> L"] * loop[i, j]])
    return float(s[0, n - 1])
