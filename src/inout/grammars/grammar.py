"""`Grammar`: a weighted context-free grammar of any shape; `Transformed`: a transformed one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from inout._core.checks import as_log_weights, checked_log_weights, expect_shape, is_tensor
from inout._core.errors import ArgumentError
from inout._core.lazy import LazyModule, lazy_property
from inout.grammars import formats, transforms
from inout.grammars.derivations import leaves, rules_of, tree_of
from inout.grammars.expectations import proper_log_weights
from inout.grammars.formats import Duplicates, Format, Source
from inout.grammars.markovisation import Markovisation
from inout.grammars.partition import log_partitions
from inout.grammars.structure import reachable
from inout.grammars.table import Rule, RuleTable
from inout.grammars.tree import PlainTree, Tree, as_nltk
from inout.io.files import read_text, write_text

if TYPE_CHECKING:
    import torch

    from inout.forest import Forest
    from inout.grammars.parser.likelihood import Likelihood
    from inout.grammars.parser.normal_form import NormalForm
    from inout.grammars.parser.sentences import Brackets, Words
else:
    torch = LazyModule("torch")


class Grammar:
    """A start symbol, rules in order, and a log-weight for each rule; immutable.

    Rules have any shape: right sides of any length (also 0), of terminals, nonterminals or both,
    with cycles. Weights need not be probabilities. Duplicate rules are an error. (NLTK keeps both,
    and counts every tree that uses the rule twice; `duplicates="add"` adds up the weights.)

    >>> g = Grammar.from_text("S -> NP 'runs' [0.9] | [0.1]\\nNP -> 'she'")
    >>> g
    Grammar(start='S', 3 rules, 2 nonterminals, 2 terminals)
    >>> [str(rule) for rule in g.rules]
    ["S -> NP 'runs'", 'S ->', "NP -> 'she'"]
    >>> g.log_weights.exp()
    tensor([0.9000, 0.1000, 1.0000], dtype=torch.float64)
    """

    def __init__(
        self,
        start: str,
        rules: Iterable[Rule],
        log_weights: torch.Tensor | NDArray[np.float64] | Sequence[float] | None = None,
    ) -> None:
        if not isinstance(start, str):
            raise ArgumentError("start", f"must be a str. Got {start!r:.80}")
        self._table = RuleTable.of(start, rules)
        # A copy, so that later changes by the caller have no effect. Converted to a tensor lazily,
        # because many uses of grammars need no torch.
        self._given: torch.Tensor | NDArray[np.float64]
        if is_tensor(log_weights):
            weights = as_log_weights("log_weights", log_weights, len(self._table))
            self._given = weights.to(torch.float64, copy=True)
        else:
            self._given = checked_log_weights("log_weights", log_weights, len(self._table)).copy()

    @staticmethod
    def from_text(
        text: str,
        format: Format | None = None,
        source: str | None = None,
        *,
        start: str | None = None,
        duplicates: Duplicates = "error",
        log: bool | None = None,
    ) -> Grammar:
        """The grammar that a text describes in one of the formats nltk, lines, wsj and json.

        The format is detected by default. `source` is the name of the text in
        errors, `start` replaces the start symbol of the text, and `log` says whether the
        weights of lines are logs. Mistakes raise `GrammarError` with line, column and caret.

        >>> g = Grammar.from_text("0.5\\tS S S\\n0.5\\tS a\\n")
        >>> g.to_text("nltk")
        "%start S\\nS -> S S [0.5]\\nS -> 'a' [0.5]\\n"
        """
        if not isinstance(text, str):
            raise ArgumentError("text", f"must be a str. Got {type(text).__name__}")
        reading = formats.read(
            Source.of(text, source), format=format, start=start, duplicates=duplicates, log=log
        )
        return Grammar(reading.table.start, reading.table, reading.log_weights)

    @staticmethod
    def load(
        path: str | Path,
        format: Format | None = None,
        *,
        start: str | None = None,
        duplicates: Duplicates = "error",
        log: bool | None = None,
        encoding: str | None = None,
    ) -> Grammar:
        """The grammar in a file, which may be compressed by xz or gzip; see `from_text`.

        `encoding` is UTF-8 by default; bytes of another one in comments do not matter then.
        """
        text = read_text(path, encoding, "#")
        return Grammar.from_text(
            text, format, str(path), start=start, duplicates=duplicates, log=log
        )

    @staticmethod
    def from_treebank(
        trees: Iterable[Any],
        markovisation: Markovisation | None = None,
        *,
        unknown_threshold: int = 1,
        unknown_share: float = 0.5,
        start: str = "TOP",
        clean: bool = True,
    ) -> Grammar:
        """The PCFG of relative frequencies in a treebank of `nltk.Tree`s.

        Trees are cleaned and Markovised (`treebank.training_trees`; by default
        `Markovisation()`). Words seen at most `unknown_threshold` times are rare: `unknown_share`
        of their count goes to their class (`words.signature`: UNK-LC-ed) and the rest to the word
        itself, so that a sentence can contain the rare word or any word that looks like it. With
        share 1 rare words have no rule of their own; with share 0, or threshold 0, there are no
        classes. `treebank.restore` turns parses into trees of the treebank. O(number of nodes).

        >>> from nltk import Tree
        >>> tree = Tree.fromstring("(S (NP (DT the) (NN cat)) (VP (VBD saw)))")
        >>> print(Grammar.from_treebank([tree], Markovisation(vertical=1)).to_text("nltk"), end="")
        %start TOP
        TOP -> S [1]
        S -> NP VP [1]
        NP -> DT NN [1]
        VP -> VBD [1]
        DT -> 'UNK-LC' [0.5]
        DT -> 'the' [0.5]
        NN -> 'UNK-LC' [0.5]
        NN -> 'cat' [0.5]
        VBD -> 'UNK-LC' [0.5]
        VBD -> 'saw' [0.5]
        """
        # Imported here for the sake of start-up: nltk takes a second, and few grammars need it.
        from inout.grammars.treebank.induction import relative_frequencies, training_trees

        made = training_trees(trees, markovisation or Markovisation(), start=start, clean=clean)
        rules, log_weights = relative_frequencies(made, unknown_threshold, unknown_share)
        return Grammar(start, rules, log_weights)

    @staticmethod
    def from_forest(forest: Forest) -> Grammar:
        """The derivations of a forest with one goal as a PCFG (Eisner 2016, section 7).

        Items are nonterminals, axioms terminals, edges rules with their probabilities given their
        heads, `forest.local_probabilities()`; edges that are the same become one rule, and edges of
        weight zero none. So the trees of the grammar are the derivations, with their probabilities.
        Differentiable. O(e).

        >>> from inout import ForestBuilder
        >>> builder = ForestBuilder()
        >>> a, b = builder.axiom("a", log_weight=0.0), builder.axiom("b", log_weight=0.0)
        >>> for tails in ([a], [b, b], [a, b]):
        ...     builder.edge("S", tails)
        >>> print(Grammar.from_forest(builder.build(goal="S")).to_text("nltk"), end="")
        %start S
        S -> 'a' [0.3333333333333333]
        S -> 'b' 'b' [0.3333333333333333]
        S -> 'a' 'b' [0.3333333333333333]
        """
        # Imported here for the sake of start-up: it needs torch.
        from inout.grammars.forest_rules import forest_rules

        return Grammar(*forest_rules(forest))

    def to_text(self, format: Format, *, log: bool = False) -> str:
        """The text of the grammar in a format; `log` writes the log-weights of lines.

        JSON keeps everything exactly. The others keep weights (wsj: log-weights) exactly, and raise
        ArgumentError for symbols and rules that they cannot express; wsj puts the lexicon last.
        """
        return formats.write(self._table, self.numpy_log_weights, format, log=log)

    def save(self, path: str | Path, format: Format | None = None, *, log: bool = False) -> None:
        """Write `to_text` to a file, atomically; the format follows the suffix by default.

        `.cfg` and `.pcfg` are NLTK's format, `.tsv` lines, `.gr` wsj, `.json` json.
        """
        if str(path).endswith(".xz"):
            raise ArgumentError("path", f"must not end in .xz: files are written plain. Got {path}")
        chosen = formats.format_of_path(str(path)) if format is None else format
        write_text(path, self.to_text(chosen, log=log))

    @property
    def start(self) -> str:
        return self._table.start

    @property
    def rules(self) -> RuleTable:
        """The rules in order: a sequence of `Rule`, and the arrays behind it."""
        return self._table

    @property
    def log_weights(self) -> Float[torch.Tensor, " r"]:
        """The natural logs of the rules' weights, float64, in the order of the rules."""
        return self._log_weights

    @lazy_property
    def _log_weights(self) -> Float[torch.Tensor, " r"]:
        given = self._given
        return torch.from_numpy(given) if isinstance(given, np.ndarray) else given

    @cached_property
    def numpy_log_weights(self) -> NDArray[np.float64]:
        """A read-only, detached copy of the log-weights."""
        given = self._given
        array = given if isinstance(given, np.ndarray) else given.detach().cpu().numpy()
        values: NDArray[np.float64] = array.copy()
        values.flags.writeable = False
        return values

    @property
    def nonterminals(self) -> tuple[str, ...]:
        """The nonterminals: the start symbol, then the others in order of first use."""
        return self._table.nonterminals

    @property
    def terminals(self) -> tuple[str, ...]:
        """The terminals in order of first use."""
        return self._table.terminals

    @cached_property
    def rules_by_left_side(self) -> Mapping[str, NDArray[np.int64]]:
        """The numbers of the rules of each nonterminal, in order.

        >>> g = Grammar.from_text("S -> A 'b'\\nA -> 'a'\\nS -> A")
        >>> {name: numbers.tolist() for name, numbers in g.rules_by_left_side.items()}
        {'S': [0, 2], 'A': [1]}
        """
        order = np.argsort(self._table.lhs, kind="stable")
        order.flags.writeable = False
        bounds = np.searchsorted(self._table.lhs[order], np.arange(len(self.nonterminals) + 1))
        return MappingProxyType(
            {a: order[bounds[n] : bounds[n + 1]] for n, a in enumerate(self.nonterminals)}
        )

    @cached_property
    def lexical_rules(self) -> NDArray[np.int64]:
        """The numbers of the rules whose right side is exactly one terminal."""
        single = np.flatnonzero(self._table.arities == 1)
        return single[self._table.rhs[self._table.offsets[single]] < 0]

    def with_log_weights(
        self, log_weights: torch.Tensor | NDArray[np.float64] | Sequence[float]
    ) -> Grammar:
        """The same rules with other log-weights [r]; a tensor keeps its graph for gradients.

        >>> g = Grammar.from_text("S -> 'a' | 'b'")
        >>> g.with_log_weights([0.0, -1.0]).log_weights
        tensor([ 0., -1.], dtype=torch.float64)
        """
        return Grammar(self.start, self._table, log_weights)

    @property
    def distributions(self) -> NDArray[np.int64]:
        """The number of the left side of each rule: the rules of a left side are alternatives."""
        return self._table.lhs.astype(np.int64)

    def likelihood(
        self,
        sentences: Sequence[Words],
        brackets: Sequence[Brackets] | None = None,
        form: NormalForm | None = None,
    ) -> Likelihood:
        """A function of log-weights [r] that gives log Z of every sentence [b]; see `Likelihood`.

        >>> likelihood = Grammar.from_text("S -> S S | 'a'").likelihood([["a"], ["a", "a", "a"]])
        >>> likelihood(torch.tensor([0.5, 0.5], dtype=torch.float64).log()).exp()
        tensor([0.5000, 0.0625], dtype=torch.float64)
        """
        # Imported here for the sake of start-up: it needs the kernels, and reading a file does not.
        from inout.grammars.parser.likelihood import Likelihood

        return Likelihood(self._table, sentences, brackets, form)

    def trimmed(self) -> Transformed:
        """The grammar without useless rules, and the rules' numbers here.

        Removes unproductive symbols, then unreachable ones. Rules of weight zero stay: they may
        get another weight. Linear time.

        >>> g = Grammar.from_text("S -> A B | 'a'\\nA -> 'a'\\nB -> B 'b'")
        >>> [str(rule) for rule in g.trimmed().grammar.rules], g.trimmed().original_rules
        (["S -> 'a'"], array([1]))
        """
        return self._transformed(transforms.Selection.trimming(self._table))

    def binarised(self) -> Transformed:
        """Right sides of at most two symbols, terminals only alone; the same trees.

        >>> g = Grammar.from_text("S -> 'a' S 'b' S | 'c'")
        >>> for rule in g.binarised().grammar.rules:
        ...     print(rule)
        S -> ⟨'a'⟩ ⟨S 'b' S⟩
        S -> 'c'
        ⟨'a'⟩ -> 'a'
        ⟨'b'⟩ -> 'b'
        ⟨'b' S⟩ -> ⟨'b'⟩ S
        ⟨S 'b' S⟩ -> S ⟨'b' S⟩
        """
        return self._transformed(transforms.Binarisation(self._table))

    def without_empty_rules(self) -> Transformed:
        """Binarised and without empty rules; every non-empty sentence keeps its weight.

        The sums over all trees without words solve a polynomial system.

        >>> form = Grammar.from_text("S -> S S [0.2] | 'a' [0.5] | [0.3]").without_empty_rules()
        >>> [str(rule) for rule in form.grammar.rules], form.grammar.log_weights.exp()
        (['S -> S S', "S -> 'a'", 'S -> S'], tensor([0.2000, 0.5000, 0.1282], dtype=torch.float64))
        """
        short = transforms.Binarisation(self._table)
        return self._transformed(transforms.Composition(short, transforms.NullRemoval(short.table)))

    def without_unary_rules(self) -> Transformed:
        """Chains of unary rules folded into the rules at their ends, cycles added up exactly.

        >>> form = Grammar.from_text("S -> S [0.5] | A [0.25] | 'a' [0.25]\\nA -> 'a'")
        >>> [str(rule) for rule in form.without_unary_rules().grammar.rules]
        ["S -> 'a'"]
        >>> form.without_unary_rules().grammar.log_weights.exp()
        tensor([1.], dtype=torch.float64)
        """
        return self._transformed(transforms.UnaryRemoval(self._table))

    def cnf(self) -> Transformed:
        """Chomsky normal form: only A -> B C and A -> 'a', without useless rules.

        Every non-empty sentence keeps its weight; `log_empty` is that of the empty one. `restore`
        and `to_original` map trees and counts back to the original rules.

        >>> g = Grammar.from_text("S -> 'a' S 'b' [0.5] | A [0.5]\\nA -> A [0.5] | [0.5]")
        >>> for rule in g.cnf().grammar.rules:
        ...     print(rule)
        S -> ⟨'a'⟩ ⟨S 'b'⟩
        ⟨'a'⟩ -> 'a'
        ⟨'b'⟩ -> 'b'
        ⟨S 'b'⟩ -> S ⟨'b'⟩
        ⟨S 'b'⟩ -> 'b'
        """
        useful = transforms.Selection.trimming(self._table)
        short = transforms.Binarisation(useful.table)
        solid = transforms.NullRemoval(short.table)
        return self._transformed(
            transforms.Composition(useful, short, solid, transforms.UnaryRemoval(solid.table))
        )

    def _transformed(self, transform: transforms.Transform) -> Transformed:
        weights = transform.log_weights(self._log_weights)
        return Transformed(Grammar(self.start, transform.table, weights), self, transform)

    def normalised(self) -> Grammar:
        """The PCFG with the same rules in which a tree's probability is its weight divided by Z.

        p(A→α) = w(A→α) · Π over B in α of Z(B) / Z(A) (Chi 1999; Nederhof & Satta 2003). Rules
        used in no tree of positive weight get weight zero. Not differentiable. Raises
        ArgumentError if Z of the start symbol is zero or infinite.

        >>> Grammar.from_text("S -> S S [0.25] | 'a' [0.5]").normalised().log_weights.exp()
        tensor([0.1464, 0.8536], dtype=torch.float64)
        """
        log_z = log_partitions(self._table, self.numpy_log_weights)
        if not np.isfinite(log_z[0]):
            kind = "infinite" if log_z[0] > 0 else "zero"
            raise ArgumentError(
                None,
                f"the weights of the trees of {self.start} must have a finite, positive sum. "
                f"Got a grammar where it is {kind}",
            )
        proper = proper_log_weights(self._table, self.numpy_log_weights, log_z)
        seen = reachable(self._table, proper > -np.inf)
        proper = np.where(seen[self._table.lhs], proper, -np.inf)
        return self.with_log_weights(proper)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return (
            f"Grammar(start={self.start!r}, {len(self)} rules, "
            f"{len(self.nonterminals)} nonterminals, {len(self.terminals)} terminals)"
        )


@dataclass(frozen=True, eq=False)
class Transformed:
    """A grammar with other rules that gives each sentence the same weight.

    A new rule stands for pieces of original trees, and its weight is the sum of theirs, so sums
    over trees do not change; only empty sentences may be missing, see `log_empty`.
    """

    grammar: Grammar
    original: Grammar
    transform: transforms.Transform

    @property
    def original_rules(self) -> np.ndarray:
        """The number of each rule in the original; only kept rules have one."""
        if isinstance(self.transform, transforms.Selection):
            return self.transform.kept
        raise ArgumentError(None, "only the rules of trimmed() have numbers in the original")

    @property
    def log_empty(self) -> float:
        """The log-weight of the empty sentence, if the new grammar has no empty rules.

        >>> Grammar.from_text("S -> 'a' S [0.75] | [0.25]").cnf().log_empty
        -1.3862943611198906
        """
        parts = getattr(self.transform, "transforms", (self.transform,))
        weights = self.original.log_weights.detach()
        for part in parts:
            if isinstance(part, transforms.NullRemoval):
                return float(part.log_empty(weights))
            weights = part.log_weights(weights)
        return -np.inf

    def to_original(self, counts: Float[torch.Tensor, " k"]) -> Float[torch.Tensor, " r"]:
        """(Expected) counts of the new rules [k] mapped to the original rules [r].

        A use of a new rule counts as the expected number of uses of each original rule in its
        pieces: the derivative of its log-weight with respect to theirs.

        >>> trimmed = Grammar.from_text("S -> A\\nS -> 'a'").trimmed()
        >>> trimmed.to_original(torch.tensor([2.0]))
        tensor([0., 2.])
        """
        expect_shape("counts", counts, (len(self.grammar),))
        base = self.original.log_weights.detach().clone().requires_grad_()
        new = self.transform.log_weights(base)
        if not new.requires_grad:
            return counts.new_zeros(len(base))
        # The gradient of a rule of weight zero is 0 by definition, and so are its counts.
        (found,) = torch.autograd.grad(new, base, counts.to(base), allow_unused=True)
        return counts.new_zeros(len(base)) if found is None else found.to(counts.dtype)

    def restore(self, tree: Tree) -> Tree:
        """The best original tree that a tree by the new rules stands for.

        >>> from inout import Parser
        >>> form = Grammar.from_text("S -> A 'b' 'c'\\nA -> B\\nB -> 'a'").cnf()
        >>> print(Parser(form.grammar).parse(["a", "b", "c"]))
        (S (A a) (⟨'b' 'c'⟩ (⟨'b'⟩ b) (⟨'c'⟩ c)))
        >>> print(form.restore(Parser(form.grammar).parse(["a", "b", "c"]).tree))
        (S (A (B a)) b c)
        """
        return self._tree(tree, self._way_back.best(self._rules(tree)))

    def restore_sample(self, tree: Tree, generator: torch.Generator | None = None) -> Tree:
        """A random original tree that a tree by the new rules stands for.

        `generator` makes it reproducible; by default torch's own is used.
        """
        random = transforms.random_numbers(generator)
        return self._tree(tree, self._way_back.sample(self._rules(tree), random))

    @cached_property
    def _way_back(self) -> transforms.WayBack:
        return self.transform.way_back(self.original.log_weights.detach().numpy())

    def _rules(self, tree: Tree) -> list[int]:
        rules = rules_of(self.grammar.rules, tree)
        if rules is None:
            raise ArgumentError("tree", "must be one by the rules of the transformed grammar")
        return rules

    def _tree(self, tree: Tree, rules: list[int]) -> Tree:
        made = tree_of(self.original.rules, rules, leaves(tree))
        return made if isinstance(tree, PlainTree) else as_nltk(made)

    def __repr__(self) -> str:
        return f"Transformed({self.grammar!r}, from {len(self.original)} rules)"
