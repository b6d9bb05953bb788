"""`Likelihood`: log Z of a corpus as a function of the weights of a grammar."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.checks import as_log_weights
from inout._core.errors import ArgumentError
from inout.grammars.parser.normal_form import NormalForm
from inout.grammars.parser.sentences import Brackets, Words, check_words, compile_sentences, length
from inout.grammars.table import RuleTable
from inout.grammars.words import Vocabulary
from inout.kernels.sparse.op import Foresight, log_partition


class Likelihood:
    """log Z of each sentence as a function of the weights; sentences are compiled once.

    Called with log-weights [r] it gives log Z [b], −inf for sentences without a tree. Its gradient
    is expected counts, by an inside and an outside pass of each sentence, on all cores. O(entries)
    memory, and a chart of one sentence for each thread.
    """

    def __init__(
        self,
        table: RuleTable,
        sentences: Sequence[Words],
        brackets: Sequence[Brackets] | None = None,
        form: NormalForm | None = None,
    ) -> None:
        sentences = list(sentences)
        for words in sentences:
            check_words(words)
        if brackets is not None and len(brackets) != len(sentences):
            wanted = f"must be one list for each of {len(sentences)} sentences"
            raise ArgumentError("brackets", f"{wanted}. Got {len(brackets)}")
        self._size = len(table)
        self.form = NormalForm(table) if form is None else form
        vocabulary = Vocabulary.from_terminals(table.terminals)
        self.compiled = compile_sentences(
            sentences, self.form, vocabulary if vocabulary.classes else None, brackets
        )
        empty = [length(words) == 0 for words in sentences]
        self._empty = torch.tensor(empty, dtype=torch.bool)
        self._foresight = Foresight(len(sentences))

    def __call__(self, log_weights: Float[Tensor, " r"]) -> Float[Tensor, " b"]:
        log_weights = as_log_weights("log_weights", log_weights, self._size).cpu().double()
        weights = self.form.log_weights(log_weights)
        given = self.compiled.potentials(self.form, weights)
        arrays = self.form.arrays, self.compiled.arrays
        result = log_partition(*arrays, *given, foresight=self._foresight)
        if bool(self._empty.any()):
            result = torch.where(self._empty, self.form.log_empty(log_weights), result)
        return result
