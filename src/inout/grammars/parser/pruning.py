"""`Pruning`: only the constituents that a coarser grammar finds likely enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.grammars.parser.analyses import Analyses
from inout.grammars.parser.normal_form import NormalForm
from inout.grammars.parser.sentences import Compiled, Words


@runtime_checkable
class Coarse(Protocol):
    """What pruning needs of the parser of the coarser grammar."""

    def given(self, words: Words) -> Analyses:
        """All trees of a sentence."""


class Pruning:
    """Keep a symbol over a span if its coarse symbol has an expected count of at least `threshold`.

    `label` names the coarse symbol of each fine one; None keeps it everywhere. Symbols that the
    coarse grammar does not have are an error: they would never be kept. All parts of long rules
    are kept, and a chain of unary rules may pass through a pruned symbol: only its ends are
    checked. A sentence without a coarse tree is not pruned.
    """

    def __init__(
        self, parser: Coarse, threshold: float = 1e-4, label: Callable[[str], str | None] = str
    ) -> None:
        expect(0 < threshold < 1, "threshold", "must be between 0 and 1", threshold)
        self.parser, self.threshold, self.label = parser, threshold, label

    def applied(self, words: Words, form: NormalForm, compiled: Compiled) -> Compiled:
        """The compiled sentence with a mask of what is allowed over each span."""
        analyses = self.parser.given(words)
        if analyses.log_z == -np.inf:
            return compiled
        found = analyses.marginals()
        places = {name: a for a, name in enumerate(found.labels)}
        n = int(compiled.arrays.lengths[0])
        likely = found.constituent_counts[:, 1:] >= self.threshold
        allowed = np.ones((n, n, len(form.table.nonterminals)), dtype=bool)
        for a, name in enumerate(form.table.nonterminals):
            coarse = self.label(name) if form.is_original[a] else None
            if coarse is None:
                continue
            if coarse not in places:
                raise ArgumentError(
                    "label", f"must give symbols of the coarse grammar. Got {coarse!r} for {name!r}"
                )
            allowed[:, :, a] = likely[:, :, places[coarse]]
        flat = allowed.reshape(n * n, -1)
        given = compiled.arrays.allowed
        arrays = compiled.arrays
        masked = type(arrays)(
            arrays.starts, arrays.offsets, arrays.symbols, arrays.arc_offsets, arrays.arc_symbols,
            flat & given if len(given) else flat,
        )  # fmt: skip
        return compiled._replace(arrays=masked)
