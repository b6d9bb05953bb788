"""`Parser`: queries about sentences under a grammar, which is compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout._core.pipeline import in_threads
from inout.grammars.grammar import Grammar
from inout.grammars.parser.analyses import Analyses, Parse
from inout.grammars.parser.marginals import Marginals
from inout.grammars.parser.normal_form import NormalForm, Setting
from inout.grammars.parser.prefixes import SentencePrefixes
from inout.grammars.parser.problem import Problem
from inout.grammars.parser.recall import Label
from inout.grammars.parser.sentences import (
    Brackets,
    Compiled,
    Lattice,
    Words,
    check_words,
    compile_sentences,
    known_form,
)
from inout.grammars.words import Vocabulary

if TYPE_CHECKING:
    from inout.forest import Forest


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


class Parser:
    """All queries about the trees of sentences, in terms of the rules of any grammar.

    The grammar is compiled once into a form with short rules; trees, counts and gradients refer
    to the original rules. Chains and cycles of unary rules are summed exactly. An unknown word is
    replaced by its class (`UNK`, `UNK-LC-s`, …, see `grammars.words`) if the grammar has
    terminals of these names.

    Every query takes a sentence (a sequence of words) or a `Lattice`. A sentence without a tree
    is not an error: log Z is −inf, and a `Parse` says why.

    >>> grammar = Grammar.from_text("S -> S S [0.4] | 'a' [0.6]")
    >>> parser = Parser(grammar)
    >>> parser.count("a a a a".split())
    5
    >>> print(parser.parse("a a".split()))
    (S (S a) (S a))
    >>> parser.expected_counts("a a a".split())
    tensor([2., 3.], dtype=torch.float64)
    """

    def __init__(self, grammar: Grammar) -> None:
        if not isinstance(grammar, Grammar):
            raise ArgumentError("grammar", f"must be a Grammar. Got {type(grammar).__name__}")
        self.grammar = grammar
        self.form = NormalForm(grammar.rules)
        vocabulary = Vocabulary.from_terminals(grammar.terminals)
        self.vocabulary = vocabulary if vocabulary.classes else None

    @cached_property
    def _setting(self) -> Setting:
        return self.form.setting(self.grammar.numpy_log_weights)

    def given(
        self,
        words: Words,
        *,
        brackets: Brackets | None = None,
        rule_scores: Float[Tensor, "n n r"] | None = None,
        pruning: Pruning | None = None,
        beam: float = 0.0,
    ) -> Analyses:
        """All trees of a sentence, for several queries or under further conditions.

        brackets: pairs (i, j) around words i to j−1 that no constituent may cross (Pereira &
        Schabes 1992). rule_scores: added to the log-weight of rule r over words i..j (both
        inclusive), which makes the grammar a CRF; log Z is differentiable in them. pruning: only
        constituents that a coarser grammar finds likely enough. beam: symbols whose inside weight
        is below this share of the largest of their span are dropped from sums, samples and
        posteriors; best trees stay exact. `lost_mass()` is the share that is lost.
        """
        check_words(words)
        if not isinstance(beam, int | float) or not 0 <= beam < 1:
            raise ArgumentError("beam", f"must be at least 0 and less than 1. Got {beam!r}")
        brackets = None if brackets is None else list(brackets)
        compiled = compile_sentences(
            [words], self.form, self.vocabulary, None if brackets is None else [brackets]
        )
        if pruning is not None:
            compiled = pruning.applied(words, self.form, compiled)
        if rule_scores is not None:
            rule_scores = self._checked(rule_scores, int(compiled.arrays.lengths[0]))
        return Analyses(
            words,
            Problem(self.grammar, self.form, self._setting, compiled, rule_scores, beam),
            tuple(known_form(words, self.form, self.vocabulary)),
            bool(brackets) or pruning is not None,
        )

    def _checked(self, scores: Tensor, n: int) -> Tensor:
        shape = (n, n, len(self.grammar))
        if not isinstance(scores, Tensor) or tuple(scores.shape) != shape:
            got = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ArgumentError("rule_scores", f"must be a tensor {list(shape)}. Got {got}")
        upper = scores.detach()[torch.triu(torch.ones(n, n, dtype=torch.bool))]
        if bool((upper.isnan() | upper.isposinf()).any()):
            raise ArgumentError("rule_scores", "must be finite or -inf. Got NaN or +inf")
        # Entries below the diagonal are not spans and must be ignored.
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool))[:, :, None]
        return torch.where(mask, scores.cpu().double(), 0.0)

    def log_partition(self, words: Words) -> Float[Tensor, ""]:
        """The log of the total weight of all trees; differentiable in the log-weights.

        O(n³ · rules) at worst, usually far less: only pairs of symbols that occur are visited.
        """
        return self.given(words).log_partition()

    def log_partitions(self, sentences: Sequence[Words]) -> Float[Tensor, " b"]:
        """`log_partition` of many sentences at once, on all cores."""
        return self.grammar.likelihood(sentences, form=self.form)(self.grammar.log_weights)

    def parse(self, words: Words, method: str = "viterbi", *, label: Label | None = None) -> Parse:
        """The best tree: with the largest weight (viterbi), the most expected correct labelled
        brackets (min_risk, see `Analyses.min_risk`, also for `label`), or the largest product of
        rule posteriors (max_rule)."""
        return self.given(words).parse(method, label)

    def parse_each(
        self, sentences: Iterable[Words], method: str = "viterbi", *, label: Label | None = None
    ) -> Iterator[Parse]:
        """`parse` of many sentences on all cores, yielded in order as soon as possible."""
        # The kernels release the GIL.
        parse = partial(self.parse, method=method, label=label)
        return in_threads(parse, sentences, torch.get_num_threads())

    def parse_all(
        self, sentences: Iterable[Words], method: str = "viterbi", *, label: Label | None = None
    ) -> list[Parse]:
        """`parse` of many sentences, on all cores."""
        return list(self.parse_each(sentences, method, label=label))

    def kbest(self, words: Words, k: int) -> list[Parse]:
        """The k best trees, or all if there are fewer, in order."""
        return self.given(words).kbest(k)

    def sample(
        self, words: Words, n: int = 1, generator: torch.Generator | None = None
    ) -> list[Parse]:
        """n independent samples of the trees given the sentence.

        `generator` makes them reproducible; by default torch's own is used.
        """
        return self.given(words).sample(n, generator)

    def min_risk(self, words: Words, label: Label | None = None) -> Parse:
        """The tree with the most expected correct labelled brackets (Goodman 1996)."""
        return self.given(words).min_risk(label)

    def marginals(self, words: Words) -> Marginals:
        """Expected numbers of constituents and of rules over each span."""
        return self.given(words).marginals()

    def inside(self, words: Words) -> Float[Tensor, "n m labels"]:
        """Logs of the inside values of labels over spans; see `Analyses.inside`.

        >>> parser = Parser(Grammar.from_text("S -> A A [1]\\nA -> A A [0.5] | 'a' [0.5]"))
        >>> labels = parser.marginals(["a", "a"]).labels
        >>> inside, outside = parser.inside(["a", "a"]), parser.outside(["a", "a"])
        >>> inside.exp()[0, 2].tolist(), outside.exp()[0, 2].tolist(), labels
        ([0.25, 0.125], [1.0, 0.0], ('S', 'A'))
        """
        return self.given(words).inside()

    def outside(self, words: Words) -> Float[Tensor, "n m labels"]:
        """Logs of the outside values of labels over spans; see `Analyses.outside`."""
        return self.given(words).outside()

    def expected_counts(self, words: Words) -> Float[Tensor, " r"]:
        """The expected number of uses of each rule in a tree of the sentence."""
        return self.given(words).expected_counts()

    def category_counts(self, words: Words) -> Float[Tensor, " a"]:
        """The expected number of nodes of each of `grammar.nonterminals` in a tree.

        >>> parser = Parser(Grammar.from_text("S -> S S | A | 'b'\\nA -> 'b'"))
        >>> parser.category_counts("b b".split())
        tensor([3., 1.], dtype=torch.float64)
        """
        return self.given(words).category_counts()

    def forest(
        self, words: Words, *, split_scores: Float[Tensor, "m m m r"] | None = None
    ) -> Forest:
        """All trees as a `Forest`, for grammars without cycles; see `Analyses.forest`.

        >>> import torch
        >>> parser = Parser(Grammar.from_text("S -> S S | 'a'"))
        >>> scores = torch.zeros(4, 4, 4, 2)
        >>> scores[0, 1, 3, 0] = 2.0  # S -> S S over three words, split after the first
        >>> round(parser.forest(["a"] * 3, split_scores=scores).log_partition().item(), 4)
        2.1269
        """
        return self.given(words).forest(split_scores)

    def count(self, words: Words) -> int | float:
        """The number of trees of weight above 0: an exact int, or `math.inf`."""
        return self.given(words).count()

    def prefix_log_probs(self, words: Sequence[str]) -> Float[Tensor, " m"]:
        """log P(a sentence begins with the first i words), i = 0 … n: [n+1], the first is 0.

        P(sentence) is the weight of its trees divided by that of all trees, which must be finite.
        −inf if no sentence begins like that. O(n³ · rules) at worst, usually far less (Jelinek &
        Lafferty 1991). Differentiable in the log-weights: if they want a gradient, it takes as long
        as `inside`, and an inverse of size nonterminals × nonterminals.

        >>> parser = Parser(Grammar.from_text("S -> S S [0.25] | 'a' [0.75]"))
        >>> parser.prefix_log_probs("a a b".split()).exp()
        tensor([1.0000, 1.0000, 0.2500, 0.0000], dtype=torch.float64)
        """
        return self._begins(words)[0]

    def surprisals(self, words: Sequence[str], *, end: bool = False) -> Float[Tensor, " m"]:
        """−log P(word | the words before it) of each word, in nats: [n] (Hale 2001).

        With `end` [n+1], the last being −log P(the sentence ends here | its words). +inf for an
        impossible word and for every word after it. Unknown words have the surprisal of their
        class, if there is one. See `prefix_log_probs`.

        >>> parser = Parser(Grammar.from_text("S -> S S [0.25] | 'a' [0.75]"))
        >>> (-parser.surprisals("a a".split(), end=True)).exp()
        tensor([1.0000, 0.2500, 0.5625], dtype=torch.float64)
        """
        begins, sentences = self._begins(words)
        logs = torch.cat([begins, sentences[-1:]]) if end else begins
        finite = torch.where(logs > -torch.inf, logs, 0.0)
        return torch.where(logs[1:] > -torch.inf, finite[:-1] - finite[1:], torch.inf)

    def _begins(self, words: Sequence[str]) -> tuple[Tensor, Tensor]:
        check_words(words)
        if isinstance(words, Lattice):
            raise ArgumentError("words", "must be a sentence to have prefixes. Got a lattice")
        compiled = compile_sentences([words], self.form, self.vocabulary)
        return self._prefixes.differentiable_log_probs(compiled, self.grammar.log_weights)

    @cached_property
    def _prefixes(self) -> SentencePrefixes:
        return SentencePrefixes(self.form, self.grammar.log_weights)

    def __repr__(self) -> str:
        return f"Parser({self.grammar!r})"
