"""`Parse`: a tree of a sentence; `Analyses`: all its trees, and every query about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.checks import at_least, expect, expect_shape
from inout._core.errors import ArgumentError
from inout._core.lazy import lazy_property
from inout.grammars.derivations import rules_of, tree_of
from inout.grammars.parser.counting import count
from inout.grammars.parser.marginals import Marginals
from inout.grammars.parser.problem import Problem
from inout.grammars.parser.ranking import kbest
from inout.grammars.parser.recall import Label, most_recalled
from inout.grammars.parser.restoring import (
    Choice,
    Leaf,
    Nodes,
    best_choices,
    random_choices,
    restored,
)
from inout.grammars.parser.sentences import Lattice, Words, arcs_of
from inout.grammars.transforms.pieces import random_numbers
from inout.grammars.tree import PlainTree, Tree, as_nltk
from inout.kernels.sparse.max_rule import max_rule
from inout.kernels.sparse.op import log_partition
from inout.kernels.sparse.reference import LogWeights, inside_log_values, outside_log_values
from inout.kernels.sparse.sample import sample
from inout.kernels.sparse.trees import best_trees

if TYPE_CHECKING:
    from inout.forest import Forest

METHODS = ("viterbi", "min_risk", "max_rule")


@dataclass(frozen=True, eq=False)
class Parse:
    """A tree of a sentence and its weight; without a tree, the reason why there is none."""

    words: tuple[str, ...]
    """The words as they were given."""

    plain_tree: PlainTree | None
    """The tree, with the words as given for leaves."""

    log_weight: float
    """The sum of the log-weights of its rules; −inf if the grammar does not derive it."""

    rules: tuple[int, ...] | None = None
    """The numbers of its rules as a leftmost derivation; None if the grammar does not derive it."""

    reason: str | None = None
    """Why there is no tree."""

    unknown: tuple[str, ...] = ()
    """The words of the sentence that the grammar does not know, ignoring classes."""

    log_partition: Callable[[], float] = field(default=lambda: -np.inf, repr=False)
    """The log of the weight of all trees of the sentence, computed when called."""

    @lazy_property
    def tree(self) -> Tree | None:
        """The tree as an `nltk.Tree`."""
        return None if self.plain_tree is None else as_nltk(self.plain_tree)

    @property
    def log_prob(self) -> float:
        """The log of the probability of the tree given the sentence."""
        return -np.inf if self.plain_tree is None else self.log_weight - self.log_partition()

    def __str__(self) -> str:
        return str(self.tree) if self.plain_tree is not None else f"no tree: {self.reason}"


@dataclass(frozen=True, eq=False)
class Analyses:
    """The trees of a sentence under a grammar; `Parser.given` makes it.

    Answers are computed lazily, and charts are cached.
    """

    words: Words
    problem: Problem
    known: tuple[str, ...]  # the words, or their classes
    constrained: bool = False

    @property
    def unknown(self) -> tuple[str, ...]:
        """The words that the grammar does not know, ignoring classes."""
        lexicon = self.problem.form.lexicon
        return tuple(arc.word for arc in arcs_of(self.words) if arc.word not in lexicon)

    def log_partition(self) -> Float[Tensor, ""]:
        """The log of the total weight of all trees, −inf without any.

        Twice differentiable with respect to the grammar's log-weights and the rule scores.
        """
        problem, base = self.problem, self.problem.base
        if problem.n == 0:
            return problem.form.log_empty(base)
        potentials = problem.potentials(problem.weights(base))
        arrays = problem.form.arrays, problem.compiled.arrays
        return log_partition(*arrays, *potentials, problem.beam)[0]

    @lazy_property
    def log_z(self) -> float:
        """`log_partition` as a number."""
        if self.problem.n == 0:
            return float(self.problem.form.log_empty(self.problem.base.detach()))
        return float(self.problem.passes.log_partition()[0])

    def lost_mass(self) -> float:
        """The share of the weight of all trees that brackets, pruning and beam removed.

        Exact: the sentence is parsed once more without them.
        """
        compiled = self.problem.compiled.unrestricted()
        whole = replace(self, problem=replace(self.problem, compiled=compiled, beam=0.0))
        if whole.log_z == -np.inf:
            return 0.0
        return float(-np.expm1(min(self.log_z - whole.log_z, 0.0)))

    def _later_log_z(self) -> Callable[[], float]:
        """log Z without the beam, for parses, which must not keep charts and passes alive."""
        if "log_z" in vars(self) and not self.problem.beam:
            known = self.log_z
            return lambda: known
        light = replace(self, problem=replace(self.problem, beam=0.0))
        return cache(lambda: replace(light, problem=replace(light.problem)).log_z)

    def expected_counts(self) -> Float[Tensor, " r"]:
        """The expected number of uses of each rule in a tree of the sentence.

        The gradient of log Z with respect to the rules' log-weights. Zeros without a tree.
        """
        problem = self.problem
        base = problem.base.detach().clone().requires_grad_()
        if problem.n == 0:
            outputs, gradients = [problem.form.log_empty(base)], [torch.ones(()).double()]
            found = bool(outputs[0] > -torch.inf)
        else:
            log_z, *counts = problem.passes.expected_counts()
            outputs = list(problem.potentials(problem.weights(base)))
            gradients, found = [torch.from_numpy(x) for x in counts], log_z[0] > -np.inf
        used = [pair for pair in zip(outputs, gradients, strict=True) if pair[0].requires_grad]
        if not found or not used:
            return torch.zeros_like(base).detach()
        (result,) = torch.autograd.grad([x for x, _ in used], base, [g for _, g in used])
        return result

    def category_counts(self) -> Float[Tensor, " a"]:
        """The expected number of nodes of each of `grammar.nonterminals` in a tree.

        Those of its rules, added up (Prescher 2001, lemma 1). Empty constituents count as well.
        """
        uses, table = self.expected_counts(), self.problem.grammar.rules
        lhs = torch.from_numpy(table.lhs.astype(np.int64))
        return uses.new_zeros(len(table.nonterminals)).index_add(0, lhs, uses)

    def marginals(self) -> Marginals:
        """Expected numbers of constituents and of rules over each span of at least one word."""
        return Marginals(self.problem)

    def inside(self) -> Float[Tensor, "n m labels"]:
        """Logs of the inside values [n n+1 labels]: start, end, label, as in `marginals().labels`.

        The weight of all trees of a label over words i..j−1; −inf if there are none, or if
        brackets, pruning or the beam do not allow them. Differentiable by the grammar's
        log-weights and the rule scores. In plain torch code: O(n³ · rules).
        """
        return self._log_values(inside_log_values)

    def outside(self) -> Float[Tensor, "n m labels"]:
        """Logs of the outside values [n n+1 labels]: ∂Z/∂(inside value) of a label over a span.

        The weight of all that can surround such a node, also if it has no tree itself. inside +
        outside − log Z is the log of the expected number of nodes, also where that underflows
        (but pruned symbols, which chains of unary rules may pass through, have none). See `inside`.
        """
        return self._log_values(outside_log_values)

    def _log_values(self, values: Callable[..., Tensor]) -> Tensor:
        problem, form = self.problem, self.problem.form
        logs = LogWeights(*problem.potentials(problem.weights(problem.base)))
        found = values(form.arrays, problem.compiled.arrays, logs, problem.beam)
        # Ends come after the last word of a span: no span ends at 0.
        found = found[..., torch.from_numpy(form.is_original)]
        return torch.nn.functional.pad(found, (0, 0, 1, 0), value=-torch.inf)

    def forest(self, split_scores: Float[Tensor, "m m m r"] | None = None) -> Forest:
        """All trees as a `Forest`, whose answers are differentiable; see `forests.forest`.

        For grammars without cycles, and for sentences without brackets and pruning. Its rules
        have the sentence's `rule_scores`, and `split_scores` [n+1 n+1 n+1 r] are added to the
        log-weight of rule r from i to k whose second symbol begins at j: [i, j, k, r], where j = k
        for rules with one symbol. Such a CRF over trees has features of split points, which the
        passes of the parser do not know.
        """
        if self.constrained or self.problem.beam:
            raise ArgumentError(None, "a forest has no brackets, pruning or beam. Got some")
        # Imported here: the deduction engine takes a while, and forests are rare.
        from inout.grammars.parser.forests import forest

        if split_scores is not None:
            shape = [self.problem.n + 1] * 3 + [len(self.problem.grammar)]
            expect_shape("split_scores", split_scores, tuple(shape))
            i, j, k = torch.meshgrid(*[torch.arange(shape[0])] * 3, indexing="ij")
            mask = ((i <= j) & (j <= k))[..., None]
            split_scores = torch.where(mask, split_scores.cpu().double(), 0.0)
            bad = split_scores.isnan() | split_scores.isposinf()
            expect(not bool(bad.any()), "split_scores", "must be finite or -inf", "NaN or +inf")
        return forest(self.problem, arcs_of(self.words), self.known, split_scores)

    def count(self) -> int | float:
        """The number of trees of weight above 0: an exact int, or `math.inf`."""
        return count(self.problem)

    def parse(self, method: str = "viterbi", label: Label | None = None) -> Parse:
        """The best tree by the given method: `best`, `max_rule` or `min_risk`."""
        choices = ", ".join(map(repr, METHODS))
        expect(method in METHODS, "method", f"must be one of {choices}", method)
        if method == "min_risk":
            return self.min_risk(label)
        return self.best() if method == "viterbi" else self.max_rule()

    def best(self) -> Parse:
        """The tree with the largest weight (Viterbi)."""
        if self.problem.n == 0:
            return next(iter(self._ranked_empty(1)), self._none())
        return self._of_nodes(best_trees(self.problem.best_passes).nodes[0])

    def kbest(self, k: int) -> list[Parse]:
        """The k best trees, or all if there are fewer, in order."""
        k = at_least("k", k, 1)
        if self.problem.n == 0:
            return self._ranked_empty(k)
        return [self._of_rules(found.rules, found.leaves) for found in kbest(self.problem, k)]

    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> list[Parse]:
        """n independent samples of the trees given the sentence; none without a tree.

        `generator` makes them reproducible; by default torch's own is used.
        """
        n, problem = at_least("n", n, 0), self.problem
        if self.log_z == -np.inf:
            return []
        random = random_numbers(generator)
        if problem.n == 0:
            trees = problem.form.removal.nulls.trees(problem.shared.base)
            return self._of_empty(trees.sample(0, random) for _ in range(n))
        seed = int(random.integers(2**62))
        choices = random_choices(problem.setting, random)
        return [self._of_nodes(x, choices) for x in sample(problem.passes, n, seed)[0].nodes]

    def max_rule(self) -> Parse:
        """The tree with the largest product of the posteriors of its anchored rules.

        Petrov & Klein (2007). A chain of unary rules counts as one, the best such chain.
        """
        if self.problem.n == 0:
            return self.best()
        return self._of_nodes(max_rule(self.problem.passes).nodes[0])

    def min_risk(self, label: Label | None = None) -> Parse:
        """The tree with the most expected correct labelled brackets (Goodman 1996).

        Brackets are those of binary trees: parts of long rules, and symbols without a label, count
        as brackets when the tree is chosen, and are then removed. (Otherwise unlikely labels would
        take their places.) The grammar need not derive it.
        `label` maps the grammar's symbols to the labels that count, None for those that do not.
        """
        if isinstance(self.words, Lattice):
            raise ArgumentError("words", "must be a sentence for min_risk. Got a lattice")
        if self.problem.n == 0:
            return self.best()
        marginals, grammar = self.marginals(), self.problem.grammar
        if marginals.log_z == -np.inf:
            return self._none()
        tree = most_recalled(marginals, list(self.words), grammar.start, label)
        rules = rules_of(grammar.rules, tree, self.known)
        if rules is None:
            return self._parse(self.words, tree, -np.inf, None)
        leaves = [Leaf(word, i, i + 1, 0.0) for i, word in enumerate(self.words)]
        return self._parse(self.words, tree, self.problem.log_weight(rules, leaves), rules)

    def _ranked_empty(self, k: int) -> list[Parse]:
        ranked = self.problem.form.removal.nulls.trees(self.problem.shared.base).ranked(0, k)
        return self._of_empty(derivation for _, derivation in ranked)

    def _of_empty(self, binarised: Iterable[list[int]]) -> list[Parse]:
        form = self.problem.form
        return [self._of_rules(form.original_derivation(d), []) for d in binarised]

    def _of_nodes(self, nodes: Nodes, choices: tuple[Choice, Choice] | None = None) -> Parse:
        """The parse that a kernel's tree stands for, by default with the best pieces."""
        if not len(nodes):
            return self._none()
        rule, chain = choices or best_choices(self.problem.setting)
        found = restored(self.problem.form, self.problem.compiled, nodes, rule, chain)
        return self._of_rules(found.rules, found.leaves)

    def _of_rules(self, rules: Sequence[int], leaves: Sequence[Leaf]) -> Parse:
        words = [leaf.word for leaf in leaves]
        tree = tree_of(self.problem.grammar.rules, rules, words)
        return self._parse(words, tree, self.problem.log_weight(rules, leaves), rules)

    def _parse(
        self, words: Sequence[str], tree: PlainTree, log_weight: float, rules: Sequence[int] | None
    ) -> Parse:
        return Parse(
            tuple(words),
            tree,
            log_weight,
            None if rules is None else tuple(rules),
            unknown=self.unknown,
            log_partition=self._later_log_z(),
        )

    def _none(self) -> Parse:
        words = () if isinstance(self.words, Lattice) else tuple(self.words)
        return Parse(words, None, -np.inf, None, self._reason(), self.unknown)

    def _reason(self) -> str:
        if self.problem.n == 0:
            return "the grammar has no empty tree"
        lexicon, arcs = self.problem.form.lexicon, arcs_of(self.words)
        lost = [a.word for a, word in zip(arcs, self.known, strict=True) if word not in lexicon]
        if lost:
            return "the grammar does not know " + ", ".join(dict.fromkeys(lost))
        if self.constrained or self.problem.beam:
            return "no tree of the grammar agrees with the conditions"
        known = "the words are known" if not self.unknown else "all words have a class"
        return f"{known}, but no tree of the grammar has them in this order"
