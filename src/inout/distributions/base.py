"""`StructuredDistribution`: every query that follows from log Z, once for all families."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from inspect import Signature, signature
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions.kl import register_kl

from inout._core.checks import at_least
from inout._core.errors import ArgumentError, ForestError, InoutError
from inout._core.randomness import random_seed
from inout._core.tracing import is_readable, is_transformed, untraced
from inout.distributions import distinct, generating, sparsemap
from inout.distributions.arguments import checked_shape
from inout.distributions.charts import chart_values
from inout.distributions.derivatives import Derivatives, Potentials
from inout.distributions.generating import Functions
from inout.distributions.operators import IN_GRAPH, checked_when_made, register
from inout.distributions.sparsemap import SparseMAP
from inout.distributions.support import EventConstraint
from inout.forest import Forest
from inout.forest.distinct import DistinctSamples
from inout.forest.expectations import not_negative
from inout.series import Histogram, Lanes, Method, Moments, as_lists, histogram, moments


@partial(untraced, instead=IN_GRAPH)
class StructuredDistribution(Derivatives):
    """A distribution p(event) = exp(score(event)) / Z with an inside algorithm for log Z.

    The score is the sum of the log-potentials of the event's parts. A family supplies its
    `potentials` by name, `_log_partition` as a function of them, scoring of events (`_score`,
    `parts`) and decoding (`mode`, `_k_best`, `_draw`). Everything else is here.

    Events are integers. Decoding pads them with -1 beyond an element's length; scoring ignores
    the padding. An element without any possible event has log Z = -inf with gradient 0, and
    log-probability -inf for every event; only sampling from it is an error.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_enumerate_support = True
    event_name: ClassVar[str] = "event"
    _blank: ClassVar[int] = 0  # at real positions of an event that does not exist
    most_events: ClassVar[int] = 10**7  # that `enumerate_support` lists
    # Of a class that graphs can hold, see `operators`: the class that makes it again from
    # `potentials` and `lengths`, by its name, and options of its constructor.
    family: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    in_graphs: ClassVar[bool] = False
    __signature__: ClassVar[Signature]

    def __init_subclass__(cls) -> None:
        # Help shows what `__init__` takes, also where `__new__` chooses among classes.
        own = signature(cls.__init__)
        cls.__signature__ = own.replace(parameters=list(own.parameters.values())[1:])
        cls.in_graphs = "family" in vars(cls)  # what inherits it may differ
        if not cls.in_graphs:
            untraced(cls)
            return
        register(cls)
        untraced(cls, IN_GRAPH | {"__init__": checked_when_made(cls)})

    @property
    def _real(self) -> Bool[Tensor, "*b n"]:
        """Which positions are within their element's length."""
        positions = torch.arange(self.event_shape[0], device=self.lengths.device)
        return positions < self.lengths[..., None]

    @property
    def _real_entries(self) -> Bool[Tensor, "*b ..."]:
        """Which entries of an event are no padding; all its dimensions are positions."""
        real = self._real
        for _ in self.event_shape[1:]:
            real = real[..., None] & real[..., None, :]
        return real

    @abstractmethod
    def _is_event(self, event: Int[Tensor, "*sb ..."]) -> Bool[Tensor, "*sb"]:
        """Whether integers [*s *b ...], -1 in the padding, have the structure of events."""

    @property
    def _event_kind(self) -> Any:
        """Distributions of one family and shape are over the same events if this is the same."""
        return self._part_shapes

    @abstractmethod
    def _score(self, event: Tensor) -> Float[Tensor, "*sb"]:
        """Sum of the log-potentials of an event's parts."""

    @abstractmethod
    def parts(self, event: Tensor) -> Potentials:
        """How often an event [*s *b ...] uses each part: [*s *b ...] for each potential."""

    @property
    @abstractmethod
    def mode(self) -> Tensor:
        """The most probable event."""

    @abstractmethod
    def _k_best(self, k: int) -> tuple[Tensor, Float[Tensor, "k b"]]:
        """The k best events [k b ...] and their scores, -inf where there are fewer."""

    @abstractmethod
    def _draw(self, count: int, seed: int) -> tuple[Tensor, Bool[Tensor, " b"]]:
        """`count` independent events [count b ...], and which elements have any."""

    def _draw_distinct(
        self, k: int, seed: int
    ) -> tuple[Tensor, Float[Tensor, "k b"], Float[Tensor, " b"]]:
        """k events without replacement [k b ...], their keys, -inf if fewer, and the next keys."""
        return distinct.by_forest(self, k, seed)

    def _write_events(self, events: NDArray[np.int64], used: distinct.Used) -> None:
        """Fill events [k b ...], all -1, from the items {block of `forest`: places} they use."""
        raise NotImplementedError

    @abstractmethod
    def min_risk(self) -> Tensor:
        """The event with the least expected loss, for the family's usual loss."""

    @abstractmethod
    def forest(self) -> Forest:
        """The same distribution as an explicit forest, one goal for each batch element."""

    @abstractmethod
    def _generating(
        self, lanes: Lanes, values: dict[str, Tensor], shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        """Sum of weight * exp(z . (F - centres)) over events, in units of Z; and the centres.

        `values` [k b ...] of K additive functions for each potential, the batch flattened, with
        size 1 in dimensions they do not depend on. The centres are constants near the means;
        `shift` moves them. See `inout.series.Generating`.
        """

    def _log_series(self, orders: tuple[int, ...], values: Potentials) -> Inexact[Tensor, "l b"]:
        """log of the sum of weight * exp(z . F) as a power series, as slowly as need be."""
        return generating.log_series(self, orders, values)

    def log_prob(self, event: Tensor) -> Float[Tensor, "*sb"]:
        """Log-probability of an event [*s *b ...], score - log Z; differentiable."""
        log_z = self.log_partition()
        return torch.where(log_z == -torch.inf, -torch.inf, self._score(event) - log_z)

    def _events(self, found: Int[Tensor, ...]) -> Int[Tensor, ...]:
        """Decoded events [... b ...] in the batch's shape, with -1 in the padding."""
        leading = found.shape[: found.ndim - 1 - len(self.event_shape)]
        events = found.reshape(leading + self.batch_shape + self.event_shape)
        return events.where(self._real_entries, -1)

    @property
    def support(self) -> EventConstraint:
        """Which integers are events: `support.check(event)` [*s *b]; see `EventConstraint`."""
        return EventConstraint(self)

    def topk(
        self, k: int, *, normalised: bool = True
    ) -> tuple[Int[Tensor, ...], Float[Tensor, " k *b"]]:
        """The k most probable events [k *b ...], best first, and their log-probabilities [k *b].

        If an element has fewer than k, the rest have log-probability -inf. The log-probabilities
        are differentiable. `normalised=False` gives scores instead, which do not need log Z.
        """
        k = at_least("k", k, 1)
        with torch.no_grad():
            found, scores = self._k_best(k)
        events = self._events(found)
        missing = scores.reshape(k, *self.batch_shape) == -torch.inf
        values = self.log_prob(events) if normalised else self._score(events)
        return events, torch.where(missing, -torch.inf, values)

    def sample(  # type: ignore[override]  # torch's has no generator
        self,
        sample_shape: torch.Size | tuple[int, ...] = (),
        *,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, ...]:
        """Independent events [*sample_shape *b ...].

        `generator` makes them reproducible, on any number of threads; without it they come from
        torch's default generator, which `torch.manual_seed` sets.
        """
        shape = checked_shape("sample_shape", sample_shape)
        seed, count = random_seed(generator), shape.numel()
        with torch.no_grad():
            found, possible = self._draw(count, seed)
        if count > 0 and not bool(possible.all()):
            raise ForestError(
                f"an element of the batch has no possible {self.event_name} to sample"
            )
        return self._events(found).reshape(shape + self.batch_shape + self.event_shape)

    def sample_without_replacement(
        self, k: int, *, generator: torch.Generator | None = None
    ) -> DistinctSamples:
        """k different events, as if drawn one by one from those that are left; with weights.

        Gumbel top-k: the `events` [k *b ...], their differentiable `log_probs` [k *b], their `keys`
        [k *b] in decreasing order, and the `threshold` [*b], the next key. `weights()` are those of
        unbiased estimates. Where there are fewer, events are as in `topk`. The seed decides, on any
        number of threads, and a smaller k gives a prefix. O(k) walks, after log Z or `forest()`.

        >>> import torch
        >>> from inout import LinearChain
        >>> coins = LinearChain(torch.zeros(2, 2), torch.zeros(2, 2))
        >>> found = coins.sample_without_replacement(4, generator=torch.Generator().manual_seed(0))
        >>> sorted(found.events.tolist()), found.log_probs.exp()
        ([[0, 0], [0, 1], [1, 0], [1, 1]], tensor([0.2500, 0.2500, 0.2500, 0.2500]))

        Kool, van Hoof & Welling, "Stochastic beams and where to find them" (2019), section 4.
        """
        k, seed = at_least("k", k, 1), random_seed(generator)
        with torch.no_grad():
            found, keys, threshold = self._draw_distinct(k, seed)
        return distinct.as_samples(self, found, keys, threshold)

    def _one_length(self) -> int:
        """The common length of all elements, for `enumerate_support`."""
        lengths = sorted(set(self.lengths.reshape(-1).tolist()))
        if len(lengths) > 1:
            raise ArgumentError(
                None, f"enumerate_support needs elements of one length. Got the lengths {lengths}"
            )
        return int(lengths[0]) if lengths else self.event_shape[0]

    def _refuse_many(self, count: int) -> None:
        if count > self.most_events:
            raise ArgumentError(
                None,
                f"enumerate_support lists at most {self.most_events} events. There are {count}",
            )

    def _support(self, events: Int[Tensor, "m ..."], expand: bool) -> Int[Tensor, "m ..."]:
        """Events [m ...] of one length as [m *b ...], or with sizes of 1 for the batch."""
        short = [whole - own for whole, own in zip(self.event_shape, events.shape[1:], strict=True)]
        room = [x for missing in reversed(short) for x in (0, missing)]
        events = torch.nn.functional.pad(events, room, value=-1)
        events = events.reshape(len(events), *(1,) * len(self.batch_shape), *self.event_shape)
        events = events.to(self.lengths.device)
        return events.expand(-1, *self.batch_shape, *self.event_shape) if expand else events

    def sparsemap(
        self, *names: str, precision: float = 1e-12, max_iterations: int = 10_000
    ) -> SparseMAP:
        """The marginals mu that maximise <potentials, mu> - |mu|²/2, and a few events with them.

        SparseMAP lies between `mode` and `marginals`: the `events` [m *b ...] are few, their
        `weights` [m *b] add up to 1, and the `marginals` are the weighted mean of their parts. The
        quadratic term is over the potentials of these names, all of them by default. Weights and
        marginals are differentiable, by the linear system that the weights solve: piecewise linear
        in the potentials.

        By the active set method, to a duality gap of `precision`, relative to the score of the best
        event if that is above 1; a `PrecisionError` says if it takes more iterations. An iteration
        costs one mode of the whole batch and O(m³) for an element with m events.

        >>> import torch
        >>> from inout import LinearChain
        >>> coins = LinearChain(torch.tensor([[1.0, 0.5], [4.0, 0.0]]), torch.zeros(2, 2))
        >>> found = coins.sparsemap("emissions")
        >>> found.events, found.weights
        (tensor([[0, 0],
                [1, 0]]), tensor([0.7500, 0.2500]))
        >>> found.marginals["emissions"]
        tensor([[0.7500, 0.2500],
                [1.0000, 0.0000]])

        Niculae, Martins, Blondel & Cardie, "SparseMAP: differentiable sparse structured inference"
        (2018).
        """
        self.refuse_unknown("sparsemap", names)
        return sparsemap.sparsemap(
            self, names, precision, at_least("max_iterations", max_iterations, 1)
        )

    def inside(self) -> Potentials:
        """Logs of the inside values of the items of the chart: {item: [*b ...]}.

        Chains have alpha [*b n s], the weight of all labels up to a position that end with this
        one; segments alpha [*b n s], that of all segmentations up to a position that end with a
        segment of this label; span trees beta [*b n n], that of all trees over a span; grammars
        beta [*b n n nt], with this nonterminal on top, and pair [*b n n s s], with these children;
        projective dependency trees right, left, gap and arc [*b n+1 n+1], see their `forest`;
        alignments alpha [*b l n+1 m+1], that of all paths to a node (layer, row, column).
        And goal [*b] is log Z. -inf in the padding and where nothing is possible. Differentiable.

        They come from `forest()`, with its time and memory: more than those of `marginals`.
        """
        forest = self.forest()
        found = chart_values(forest, forest.inside(), self.batch_shape)
        return {name: values for name, values in found.items() if name not in self.potentials}

    def outside(self) -> Potentials:
        """Logs of the outside values, ∂Z/∂(inside value), of all parts and items: {name: [*b ...]}.

        Names are those of `inside`, and of the potentials: the inside value of a part is its own
        weight. Where that is zero (-inf) the outside value says by how much Z would grow. -inf
        where no event, however unlikely, has the part. inside + outside - log Z is the log of the
        expected count, also where that underflows. Differentiable; costs three times `inside`.

        >>> import torch
        >>> from inout import LinearChain
        >>> chain = LinearChain(torch.tensor([[0.0, -torch.inf], [1.0, 2.0]]), torch.zeros(2, 2))
        >>> chain.inside()["alpha"][0], chain.outside()["alpha"][0]  # the backward messages
        (tensor([0., -inf]), tensor([2.3133, 2.3133]))
        """
        forest = self.forest()
        return chart_values(forest, forest.outside(), self.batch_shape)

    def entropy(self) -> Float[Tensor, "*b"]:
        """Entropy in nats, log Z - E[score]; differentiable. -inf if no event is possible.

        The error is that of rounding log Z, however large the potentials; never negative.
        """
        return self.cross_entropy(self)

    def cross_entropy(self, other: StructuredDistribution) -> Float[Tensor, "*b"]:
        """-E[log q(event)] under this distribution, for another one q over the same events.

        log Z of q minus the expected score under q; computed in float64, because it is a
        difference of large numbers. +inf if q lacks a possible event, however improbable.
        """
        self._refuse_other_events(other)
        mine, its = self._in_double(), other._in_double()
        log_z = its.log_partition()
        none = log_z == -torch.inf
        result = not_negative(torch.where(none, 0.0, log_z) - mine.expectation(its.potentials))
        if other is not self:
            result = torch.where(self._has_event_outside(other), torch.inf, result)
        if not is_readable(none) or bool(none.any()):
            # A distribution without events gives all of ours probability 0.
            some = mine.log_partition() > -torch.inf
            result = torch.where(none, torch.where(some, torch.inf, -torch.inf), result)
        return result.to(next(iter(self.potentials.values())).dtype)

    def _refuse_other_events(self, other: StructuredDistribution) -> None:
        same = (
            type(other) is type(self)
            and other.batch_shape == self.batch_shape
            and other._event_kind == self._event_kind
        )
        if not same:
            raise ArgumentError(
                None, f"both distributions must be of one family and shape. Got {self} and {other}"
            )
        if not torch.equal(self.lengths, other.lengths):
            raise ArgumentError(
                None,
                "both distributions must have the same lengths. "
                f"Got {self.lengths.tolist()} and {other.lengths.tolist()}",
            )

    @torch.no_grad()
    def _has_event_outside(self, other: StructuredDistribution) -> Bool[Tensor, "*b"]:
        """Whether an event is possible here and not in `other`.

        Not seen from marginals, which may underflow: the event with the most parts that are -inf
        in `other` has one.
        """
        mine, its = self._expanded(), other._expanded()
        missing = {name: p == -torch.inf for name, p in its.items()}
        if not any(bool((missing[name] & (mine[name] > -torch.inf)).any()) for name in mine):
            return torch.zeros_like(self.lengths, dtype=torch.bool)
        gains = {name: x.to(mine[name].dtype) for name, x in missing.items()}
        uses = self._total(self._best_parts(gains), gains)
        return (uses > 0) & (self.log_partition() > -torch.inf)

    def _supported(self, scores: Potentials) -> StructuredDistribution:
        """The same possible events with other scores of their parts [*b ...]."""
        twin = copy(self)
        twin.potentials = {
            name: torch.where(p.detach() == -torch.inf, -torch.inf, scores[name])
            for name, p in self._expanded().items()
        }
        return twin

    def _best_parts(self, scores: Potentials) -> Potentials:
        """How often the possible event with the best sum of other scores uses each part."""
        return self.parts(self._supported(scores).mode)

    def _in_double(self) -> StructuredDistribution:
        twin = copy(self)
        twin.potentials = {name: p.double() for name, p in self.potentials.items()}
        return twin

    def moments(
        self,
        functions: Functions,
        orders: int | Sequence[int],
        *,
        factors: Mapping[str, Tensor] | None = None,
        kind: str = "raw",
        method: Method = "auto",
        precision: float | None = 1e-8,
    ) -> Moments:
        """E[F₁^n₁ ⋯ F_K^n_K] of additive functions, for all orders up to the given ones at once.

        A function maps names of potentials to values of their shapes (or shapes that expand to
        them, or sparse tensors), real or complex; one function with one order needs no list.
        `kind` is "raw", "central" or "cumulants". The result's `values` are [*b 1+n₁ … 1+n_K] in
        double precision, differentiable to any order in potentials and functions.

        `factors`, given like a function, multiply the weights of parts, and may be negative or
        complex: φ = exp(potential) · factor. The sums of φ ⋯ φ F₁^n₁ ⋯ F_K^n_K are in units of
        that of |φ ⋯ φ|, whose log is the result's `log_partition`. `kind` must be "raw".

        Methods: "polynomial", truncated power series, exact up to rounding, O(Π(1+n_k)²) per
        product; "circle", the generating function on circles with FFT, O(Π(1+n_k)), with an error
        bound; one of the two for each function; "taylor", Taylor mode through log Z, slow, for
        checking; "auto" chooses. An order that does not reach this `precision`, relative to the
        absolute moment of that order, raises `PrecisionError`; None turns the check off.

        >>> import torch
        >>> from inout import LinearChain
        >>> coins = LinearChain(torch.zeros(3, 2), torch.zeros(2, 2))
        >>> heads = {"emissions": torch.tensor([0.0, 1.0])}
        >>> coins.moments(heads, 2, kind="central").values  # 1, 0 and the variance 3/4
        tensor([1.0000, 0.0000, 0.7500], dtype=torch.float64)

        Azuma & Matsumoto, "A generalization of forward-backward algorithm", theorems 1 and 3.
        """
        self._refuse_transforms("moments", functions)
        several, numbers = as_lists(functions, orders)
        weighted, angles = generating.with_factors(self, factors)
        function = generating.generating_function(weighted, several, angles)
        return moments(function, numbers, weighted.log_partition(), kind, method, precision)

    def weighted_marginals(
        self,
        functions: Functions,
        powers: int | Sequence[int],
        *,
        factors: Mapping[str, Tensor] | None = None,
        kind: str = "raw",
        method: Method = "auto",
        precision: float = 1e-8,
    ) -> Potentials:
        """E[F₁^n₁ ⋯ F_K^n_K N_v] for every part v, where N_v counts its uses.

        `marginals` weighted by powers of functions: one forward and one backward pass, which
        differentiates the sum without N_v (Azuma & Matsumoto, theorem 2; by circles, theorem 4).
        Options as for `moments`; `kind` is "raw" or "central". Differentiable.
        """
        self._refuse_transforms("weighted marginals", functions)
        several, numbers = as_lists(functions, powers)
        how = factors, kind, method, precision
        return generating.weighted_marginals(self, several, numbers, *how)

    def expected_products(
        self, functions: Functions, powers: Any, others: Mapping[str, Tensor], **options: Any
    ) -> Inexact[Tensor, "*b j"]:
        """E[F₁^n₁ ⋯ F_K^n_K G_j] for many further functions G_1, …, G_J at once.

        `others` maps names of potentials to values [j ...] for one element, dense or sparse
        (torch.sparse), like a feature table. All of them cost one forward and one backward pass,
        and a product with the table. `options` are those of `weighted_marginals`.
        """
        generating.refuse_misfits(self, others)
        weighted = self.weighted_marginals(functions, powers, **options)
        return generating.expected_products(self, weighted, others)

    def histogram(self, f: Mapping[str, Tensor]) -> Histogram:
        """The probability of every value of an additive function with integer values.

        From the generating function at roots of unity: the probabilities [*b m], and their sum,
        have absolute errors of about 1e-15. Differentiable in the potentials.

        >>> import torch
        >>> from inout import LinearChain
        >>> coins = LinearChain(torch.zeros(3, 2), torch.zeros(2, 2))
        >>> coins.histogram({"emissions": torch.tensor([0.0, 1.0])}).probabilities
        tensor([0.1250, 0.3750, 0.3750, 0.1250], dtype=torch.float64)
        """
        self._refuse_transforms("histograms", f)
        function = generating.generating_function(self, [f])
        (values,) = function.functions
        generating.refuse_fractions(values)
        lowest, highest = generating.value_range(self, values)
        probabilities = histogram(function, lowest, highest)
        return Histogram(lowest, probabilities.reshape(*self.batch_shape, highest - lowest + 1))

    def _refuse_transforms(self, what: str, functions: Functions) -> None:
        """Raise if torch.func or forward mode follows, of which the answer would know nothing."""
        several = functions if isinstance(functions, list | tuple) else [functions]
        values = [x for f in several if isinstance(f, Mapping) for x in f.values()]
        given = [x for x in values if isinstance(x, Tensor)]
        if is_transformed(*self.potentials.values(), *given):
            raise InoutError(
                f"{what} go through neither torch.func nor forward mode; use torch.autograd"
            )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{n}: {list(p.shape)}" for n, p in self.potentials.items())
        return f"{type(self).__name__}({shapes})"


@register_kl(StructuredDistribution, StructuredDistribution)  # type: ignore[no-untyped-call, untyped-decorator]
def _kl(p: StructuredDistribution, q: StructuredDistribution) -> Float[Tensor, "*b"]:
    """KL[p || q] = E[log p - log q] under p, +inf if q lacks an event of p, 0 if p has none."""
    p._refuse_other_events(q)
    mine, its = p._in_double(), q._in_double()
    entropy = mine.entropy()
    none = entropy == -torch.inf
    result = torch.where(none, 0.0, mine.cross_entropy(its) - torch.where(none, 0.0, entropy))
    return not_negative(result).to(next(iter(p.potentials.values())).dtype)
