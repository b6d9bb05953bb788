"""`Forest`: an explicit, immutable set of weighted derivations, and every question about it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from inout._core.checks import as_log_weights, at_least, checked_memory
from inout._core.errors import ArgumentError, ForestError
from inout._core.randomness import random_seed
from inout.forest import assembly, decoding, distinct, expectations, export, generating
from inout.forest.decoding import LocalForest
from inout.forest.derivation import Derivation, Derivations
from inout.forest.distinct import DistinctSamples
from inout.forest.expectations import Marginals
from inout.kernels.forest import op
from inout.kernels.forest.arrays import ForestArrays
from inout.kernels.forest.outer import outside_log_values
from inout.kernels.forest.reference import reference_inside
from inout.kernels.recomputing import Memory
from inout.kernels.tiers import Tier
from inout.semirings import Counting, CountOverflowError, Log, Semiring
from inout.series import Histogram, Method, Moments, as_lists, histogram, moments
from inout.viz import page, svg, text

Elements = TypeVar("Elements")
Additive = Tensor | Mapping[str, Any] | Callable[[Hashable], complex]


@dataclass(frozen=True, eq=False)
class Forest:
    """All derivations of one or more goals, packed: items, edges between them, axiom weights.

    The weight of a derivation is the product of the weights of its axioms (its leaves), with
    repetition. With one goal a query returns a single result; with several (`Forest.batch`, or a
    program whose goals have arguments) it returns one per goal, in the order of `goals`.

    >>> from inout import ForestBuilder
    >>> builder = ForestBuilder()
    >>> a, b = builder.axiom("a", log_weight=0.0), builder.axiom("b", log_weight=0.0)
    >>> builder.edge("S", [a, a])
    >>> builder.edge("S", [b])
    >>> forest = builder.build(goal="S")
    >>> forest.count(), forest.log_partition().exp().item()
    (2, 2.0)
    >>> forest.marginals()["a"]
    1.0
    """

    arrays: ForestArrays
    relations: Mapping[str, Float[Tensor, " rows"]]
    axiom_rows: Int[Tensor, " a"]  # of every axiom: its row in the relations, one after another
    labels: Sequence[Hashable]
    single_goal: bool = True
    goal_of_item: Int[Tensor, " v"] | None = None  # where goals share no items (a batch)
    tier: Tier | None = None
    memory: Memory = None
    _constants: Float[Tensor, " a"] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        devices = {name: weights.device for name, weights in self.relations.items()}
        if len(set(devices.values())) > 1:
            raise ArgumentError(None, f"all log-weights must be on one device. Got {devices}")
        learned = any(weights.requires_grad for weights in self.relations.values())
        object.__setattr__(self, "_constants", None if learned else self._gathered())

    def _gathered(self) -> Float[Tensor, " a"]:
        rows = torch.cat(list(self.relations.values()))
        return rows[self.axiom_rows.to(rows.device)]

    @property
    def num_items(self) -> int:
        """Number of items, axioms included."""
        return self.arrays.num_items

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.arrays.num_edges

    @property
    def goals(self) -> list[Hashable]:
        """Labels of the goal items."""
        return [self.labels[int(goal)] for goal in self.arrays.goals]

    @cached_property
    def index(self) -> Mapping[Hashable, int]:
        """Number of the item with a given label (the last one, where labels repeat)."""
        return {label: i for i, label in enumerate(self.labels)}

    @property
    def log_weights(self) -> Float[Tensor, " a"]:
        """Log-weights of the axioms, by number."""
        # With a gradient they are taken from the relations anew: autograd walks back through a
        # graph only once, and every query needs one of its own.
        return self._gathered() if self._constants is None else self._constants

    @property
    def item_weights(self) -> Float[Tensor, " v"]:
        """Log-weights of all items: the axioms' own, 0 for derived items."""
        num_derived = self.arrays.num_items - self.arrays.num_axioms
        return torch.nn.functional.pad(self.log_weights, (0, num_derived))

    @property
    def goal_items(self) -> Int[Tensor, " g"]:
        """Numbers of the goal items."""
        return torch.from_numpy(self.arrays.goals).to(self.log_weights.device)

    def with_weights(self, **log_weights: Tensor) -> Forest:
        """The same derivations under new log-weights for some relations, row by row.

        Nothing is grounded or sorted again, so it suits training loops. Rows that had weight -inf
        when the program was grounded stay out.
        """
        relations = dict(self.relations)
        for name, values in log_weights.items():
            self._check_relation(name)
            relations[name] = as_log_weights(name, values, len(relations[name]))
        return replace(self, relations=relations)

    def with_tier(self, tier: Tier | None) -> Forest:
        """The same forest computed by "cpu", "gpu" or "reference" code (None: chosen by device)."""
        if tier not in (None, "cpu", "gpu", "reference"):
            raise ArgumentError("tier", f'must be "cpu", "gpu", "reference" or None. Got {tier!r}')
        return replace(self, tier=tier)

    def with_memory(self, memory: Memory) -> Forest:
        """The same forest, whose log Z and expected counts take less memory, on the CPU.

        By default they take 8 bytes an edge and 16 an item besides weights and gradients. "sqrt"
        cuts the items into blocks, as many as the root of the number of levels, keeps the values
        that later blocks use, and makes the others again on the way back; a number of bytes does
        so if needed, with enough blocks. Besides, the cut takes 4 bytes an item. Forests of
        sequences keep O(√n) values; in a chart almost every item is used much later.
        """
        return replace(self, memory=checked_memory(memory))

    def _check_relation(self, name: str) -> None:
        if name not in self.relations:
            known = ", ".join(self.relations)
            raise ArgumentError("name", f": no facts are called {name!r}; this forest has {known}")

    def log_partition(self) -> Float[Tensor, "*g"]:
        """log Z: the log of the total weight of all derivations, -inf if there are none.

        Differentiable twice (and more) with respect to every relation's log-weights; its
        gradient is the expected counts. O(e) time and memory.
        """
        how = self.tier, self.memory
        values = op.log_values(self.arrays, self.item_weights, self.goal_items, *how)
        return values[0] if self.single_goal else values

    def inside(self, relation: str | None = None) -> Float[Tensor, " n"]:
        """Log of the inside value of every item: the total weight of its derivations.

        With a relation: of its facts, that is, their log-weights. Differentiable. O(e).
        """
        if relation is not None:
            self._check_relation(relation)
            return self.relations[relation]
        items = torch.arange(self.num_items, device=self.log_weights.device)
        return op.log_values(self.arrays, self.item_weights, items, self.tier)

    def outside(self, relation: str | None = None) -> Float[Tensor, " n"]:
        """Log of the outside value of every item: ∂Z/∂(its inside value).

        It is defined where the inside value is zero, too: by how much Z would grow. With a
        relation: of its facts, -inf for those that no derivation uses. Z is the sum over several
        goals. Differentiable. O(e) (Eisner 2016, sections 3 and 5).

        >>> from inout import ForestBuilder
        >>> builder = ForestBuilder()
        >>> never = builder.axiom("never", log_weight=float("-inf"))
        >>> builder.edge("S", [never, builder.axiom("b", log_weight=-0.5)])
        >>> forest = builder.build(goal="S")
        >>> dict(zip(forest.labels, forest.outside().tolist()))
        {'never': -0.5, 'b': -inf, 'S': 0.0}
        """
        values = outside_log_values(self.arrays, self.log_weights, self.tier)
        return self._of_relation(values, relation, logs=True)

    def expected_counts(self, relation: str | None = None) -> Float[Tensor, " n"]:
        """Expected number of uses of every fact of a relation, in the order of its rows.

        Without a relation: of every item of the forest. Several goals: the sum over them.
        Differentiable. O(e): one inside and one outside pass (Eisner 2016, section 5).
        """
        return self._of_relation(self._item_counts(), relation)

    def _of_relation(
        self, values: Inexact[Tensor, " v"], relation: str | None, logs: bool = False
    ) -> Inexact[Tensor, " n"]:
        """Values of items as values of a relation's facts; axioms of the same fact add up."""
        if relation is None:
            return values
        self._check_relation(relation)
        sizes = [len(rows) for rows in self.relations.values()]
        rows, own = self.axiom_rows.to(values.device), values[: self.arrays.num_axioms]
        if logs:
            spread = Log(dtype=own.dtype, device=own.device).sum(own, rows, sum(sizes))
        else:
            spread = own.new_zeros(sum(sizes)).index_add(0, rows, own)
        return torch.split(spread, sizes)[list(self.relations).index(relation)]

    def _item_counts(self, goals: Tensor | None = None) -> Float[Tensor, " v"]:
        goals = self.goal_items if goals is None else goals
        weights = self.item_weights
        ones = torch.ones(len(goals), dtype=weights.dtype, device=weights.device)
        return op.item_counts(self.arrays, weights, goals, ones, self.tier, self.memory)

    def marginals(self) -> Marginals:
        """A mapping from every item's label to its expected count, axioms included."""
        return Marginals(self.labels, self.expected_counts())

    def log_prob(self, derivation: Derivation) -> Float[Tensor, ""]:
        """Log-probability of a derivation of this forest; differentiable."""
        if derivation.forest.arrays is not self.arrays:
            raise ForestError("this derivation belongs to another forest")
        used = [item for item, _ in derivation.walk() if item < self.arrays.num_axioms]
        root = torch.tensor([derivation.root], device=self.log_weights.device)
        log_z = op.log_values(self.arrays, self.item_weights, root, self.tier)[0]
        return self.log_weights[used].sum() - log_z

    def local_probabilities(self) -> Float[Tensor, " e"]:
        """Probability of every edge given its head, p(e) = prod(tails) / value(head).

        The edges of a head that has derivations sum to 1: the forest as a PCFG (Eisner 2016,
        equations 17 and 18). 0 below a head of weight zero. Differentiable. O(e).
        """
        return expectations.local_probabilities(self)

    def edge_counts(self) -> Float[Tensor, " e"]:
        """Expected number of uses of every edge: the anchored rules of a grammar.

        Several goals: the sum over them. Differentiable. O(e).
        """
        heads = torch.from_numpy(self.arrays.heads).long().to(self.log_weights.device)
        return self.local_probabilities() * self._item_counts()[heads]

    def entropy(self) -> Float[Tensor, "*g"]:
        """Entropy of the distribution over derivations, in nats; -inf if there are none.

        H = log Z - E[log weight]. Differentiable. O(e).
        """
        return expectations.entropy(self)

    def expectation(self, f: Additive) -> Float[Tensor, "*g"]:
        """E[F] of an additive function, F(derivation) = sum of f over its items. O(e).

        `f` is {relation: values, one for each row}, a tensor [v] over all items, or a function
        of an item's label. Differentiable in the weights and in f.
        """
        return expectations.expectation(self, f)

    def covariance(self, f: Additive, g: Additive) -> Float[Tensor, "*g"]:
        """Cov[F, G] of two additive functions: a second derivative of log Z. O(e)."""
        return expectations.covariance(self, f, g)

    def expected_product(self, f: Additive, g: Additive) -> Float[Tensor, "*g"]:
        """E[F G] of two additive functions (Li & Eisner 2009). O(e)."""
        return self.covariance(f, g) + self.expectation(f) * self.expectation(g)

    def moments(
        self,
        functions: Additive | Sequence[Additive],
        orders: int | Sequence[int],
        *,
        factors: Mapping[str, Tensor] | None = None,
        kind: str = "raw",
        method: Method = "auto",
        precision: float | None = 1e-8,
    ) -> Moments:
        """E[F₁^n₁ ⋯ F_K^n_K] of additive functions, for all orders up to the given ones at once.

        Functions are given as for `expectation`, real or complex; one function with one order
        needs no list. `kind` is "raw", "central" or "cumulants". The result's `values` are
        [*g 1+n₁ … 1+n_K] in double precision, differentiable to any order.

        `factors` {relation: numbers, one for each row} multiply the facts' weights and may be
        negative, complex or 0: φ = exp(log-weight) · factor. Sums come in units of Σ |φ ⋯ φ|,
        whose log is the result's `log_partition`; `kind` must be "raw".

        Methods: "polynomial", truncated power series, exact up to rounding, O(e Π(1+n_k)²);
        "circle", the generating function on circles with FFT, O(e Π(1+n_k)), with an error bound;
        one of the two for each function; "taylor", Taylor mode through log Z, slow, for checking;
        "auto" chooses. An order that does not reach this `precision`, relative to the absolute
        moment of that order, raises `PrecisionError`; None turns the check off. Goals that share
        items need a pass each.

        >>> from inout import ForestBuilder
        >>> builder = ForestBuilder()
        >>> a = builder.axiom("a", log_weight=0.0)
        >>> builder.edge("S", [a])
        >>> builder.edge("S", [a, a, a])
        >>> builder.build(goal="S").moments(lambda label: float(label == "a"), 3).values
        tensor([ 1.,  2.,  5., 14.], dtype=torch.float64)

        Azuma & Matsumoto, "A generalization of forward-backward algorithm", theorems 1 and 3.
        """
        several, numbers = as_lists(functions, orders)
        forest, angles = generating.with_factors(self, factors)
        values = generating.item_values(forest, several)
        function = generating.generating_function(forest, values, angles=angles)
        return moments(function, numbers, forest.log_partition(), kind, method, precision)

    def weighted_marginals(
        self,
        functions: Additive | Sequence[Additive],
        powers: int | Sequence[int],
        relation: str | None = None,
        *,
        factors: Mapping[str, Tensor] | None = None,
        kind: str = "raw",
        method: Method = "auto",
        precision: float = 1e-8,
    ) -> Inexact[Tensor, " n"]:
        """E[F₁^n₁ ⋯ F_K^n_K N_v] for every fact v of a relation, where N_v counts its uses.

        `expected_counts` weighted by powers of functions: without a relation for every item, and
        summed over several goals. With `kind="central"` the functions are centred. `factors`,
        `method` and `precision` are those of `moments`. One forward and one backward pass (Azuma
        & Matsumoto, theorem 2; with method "circle" theorem 4). Differentiable.
        """
        several, numbers = as_lists(functions, powers)
        how = factors, kind, method, precision
        counts = generating.weighted_counts(self, several, numbers, *how)
        return self._of_relation(counts, relation)

    def histogram(self, f: Additive) -> Histogram:
        """The probability of every value of an additive function with integer values.

        From the generating function at roots of unity: the probabilities [*g m] have absolute
        errors of some 1e-15 and add up to 1 as closely. Differentiable. O(e m).

        >>> from inout import ForestBuilder
        >>> builder = ForestBuilder()
        >>> a = builder.axiom("a", log_weight=0.0)
        >>> builder.edge("S", [a])
        >>> builder.edge("S", [a, a])
        >>> builder.build(goal="S").histogram(lambda label: float(label == "a")).probabilities
        tensor([0.5000, 0.5000], dtype=torch.float64)
        """
        values = generating.item_values(self, [f])
        lowest, highest = generating.value_range(self, values[0])
        function = generating.generating_function(self, values)
        probabilities = histogram(function, lowest, highest)
        return Histogram(lowest, probabilities[0] if self.single_goal else probabilities)

    def evaluate(
        self,
        semiring: Semiring[Elements],
        values: Inexact[Tensor, "a d"] | None = None,
        *,
        every_item: bool = False,
    ) -> Elements:
        """The values of the goals (or of every item) in any semiring: a batch of its elements.

        Leaves are `semiring.lift(log_weights)`; semirings that carry functions (expectation,
        polynomial) also take their `values` at the axioms. Level by level in torch, O(e).
        """
        device = self.log_weights.device
        leaves = semiring.lift(self.log_weights, values)
        result = reference_inside(self.arrays, semiring, leaves, device=device)
        return result if every_item else semiring.take(result, self.goal_items)

    def count(self) -> int | list[int]:
        """Exact number of derivations whose weight is not zero, as a Python integer.

        >>> from inout import ForestBuilder
        >>> builder = ForestBuilder()
        >>> one = builder.axiom("one")
        >>> for level in range(100):
        ...     below = one if level == 0 else level - 1
        ...     builder.edge(level, [below])
        ...     builder.edge(level, [below, one])
        >>> builder.build(goal=99).count() == 2**100
        True
        """
        device = self.log_weights.device
        try:
            result = self.evaluate(Counting(exact=False, device=device))
        except CountOverflowError:
            result = self.evaluate(Counting(exact=True, device=device))
        counts = [int(x) for x in result]
        return counts[0] if self.single_goal else counts

    def _per_goal(self, query: Callable[[int], Any]) -> Any:
        results = [query(int(goal)) for goal in self.arrays.goals]
        return results[0] if self.single_goal else results

    def argmax(self) -> Derivation | list[Derivation | None] | None:
        """The heaviest derivation (Viterbi), None if there is none. O(e)."""
        best = decoding.viterbi(self)
        return self._per_goal(lambda goal: next(iter(decoding.kbest(self, goal, 1, best)), None))  # type: ignore[no-any-return]

    def kbest(self, k: int) -> Derivations | list[Derivations]:
        """The k heaviest derivations in decreasing weight, fewer if there are fewer.

        Exact, lazy, without duplicates; ties come in a fixed order (Huang & Chiang 2005,
        algorithm 3). O(e + k |tree| log k).
        """
        k = at_least("k", k, 0)
        best = decoding.viterbi(self)
        return self._per_goal(lambda goal: decoding.kbest(self, goal, k, best))  # type: ignore[no-any-return]

    def derivations(self) -> Iterator[Derivation]:
        """All derivations of a single goal, lazily, in decreasing weight."""
        if not self.single_goal:
            raise ForestError("derivations() needs a forest with one goal; use kbest(k) on a batch")
        return decoding.derivations(self, int(self.arrays.goals[0]))

    def min_risk(self, gain: Additive | None = None) -> Derivation | list[Derivation | None] | None:
        """The derivation with the highest expected gain, None if there is none. O(e).

        The gain of answering T when T' is right is the sum of `gain` over the items of T that
        T' has too, so its expectation weighs each item by its expected count (Goodman 1996).
        Default: one point for each derived item. The result's `log_weight` is still its weight.
        """
        found = decoding.min_risk(self, gain)
        return found[0] if self.single_goal else found

    @property
    def normalised(self) -> LocalForest:
        """The locally normalised forest with alias tables, for quick sampling.

        Made once, and again only when a relation's weights were changed in place, as optimizers do.
        """
        versions = [weights._version for weights in self.relations.values()]
        kept = self.__dict__.get("_normalised")
        if kept is None or kept[0] != versions:
            kept = self.__dict__["_normalised"] = (versions, LocalForest.of(self))
        local: LocalForest = kept[1]
        return local

    def sample(
        self, n: int, *, generator: torch.Generator | None = None
    ) -> Derivations | list[Derivations]:
        """n independent derivations, each with probability weight / Z.

        `generator` makes them reproducible, on any number of threads; without it they come from
        torch's default generator. O(e) once, then O(size of the tree) per sample.
        """
        n = at_least("n", n, 0)
        return self._per_goal(lambda goal: self.normalised.sample(goal, n, generator))  # type: ignore[no-any-return]

    def sample_without_replacement(
        self, k: int, *, generator: torch.Generator | None = None
    ) -> DistinctSamples | list[DistinctSamples]:
        """k different derivations, as if drawn one by one from those that are left; with weights.

        Gumbel top-k: their `events`, differentiable `log_probs`, `keys` in decreasing order and the
        `threshold`, the next key; fewer if there are fewer. `weights()` are those of unbiased
        estimates. The seed decides, on any number of threads, and a smaller k gives a prefix.
        O(e) once, then O(k d (w + log k)) for derivations of d items with at most w edges each.

        >>> import torch
        >>> from inout import ForestBuilder
        >>> builder = ForestBuilder()
        >>> for word, log_weight in (("a", 0.0), ("b", -1.0), ("c", -2.0)):
        ...     builder.edge("S", [builder.axiom(word, log_weight=log_weight)])
        >>> generator = torch.Generator().manual_seed(0)
        >>> found = builder.build(goal="S").sample_without_replacement(3, generator=generator)
        >>> sorted(tree.axioms[0] for tree in found.events), round(found.weights().sum().item(), 6)
        (['a', 'b', 'c'], 1.0)

        Kool, van Hoof & Welling, "Stochastic beams and where to find them" (2019), section 4.
        """
        seed = random_seed(generator)
        found = distinct.sample_without_replacement(self, at_least("k", k, 0), seed)
        return found[0] if self.single_goal else found

    def prune(self, threshold: float) -> Forest:
        """The forest of the edges used with posterior probability of at least `threshold`.

        A new forest: its log Z is at most this one's, and its derivatives are those of the pruned
        sum. Gradients still reach the same relations. O(e).
        """
        return assembly.prune(self, threshold)

    @staticmethod
    def batch(forests: Sequence[Forest]) -> Forest:
        """The disjoint union of forests, whose queries answer for all their goals in one pass.

        Relations of the same name are concatenated, in the order of the forests.
        """
        return assembly.batch(forests)

    def to_json(self) -> str:
        """The forest as JSON text: axioms, items, edges, goals; `Forest.from_json` reads it."""
        return export.to_json(self)

    @staticmethod
    def from_json(document: str) -> Forest:
        """The forest that `to_json` wrote."""
        return Forest(**export.from_json(document))

    def to_graphviz(self) -> str:
        """The forest in Graphviz's language: items as boxes, edges as points."""
        return export.to_graphviz(self)

    def to_text(self, max_items: int = 40) -> str:
        """A picture for the terminal: items from the goals down, their edges, probabilities."""
        return text.forest(export.as_graph(self), max_items)

    def to_html(self) -> str:
        """A picture for a web page: the hypergraph as SVG, shaded by expected counts."""
        return page.fragment(page.paragraph(repr(self)), svg.forest(export.as_graph(self)))

    def _repr_html_(self) -> str:
        return self.to_html()

    def __repr__(self) -> str:
        goals = "1 goal" if self.single_goal else f"{len(self.arrays.goals)} goals"
        return (
            f"Forest({goals}, {self.num_items:,} items of which {self.arrays.num_axioms:,} "
            f"axioms, {self.num_edges:,} edges)"
        )
