"""`LinearChain` and `HMM`: distributions over label sequences."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import product

import numpy as np
import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from inout._core.checks import at_least
from inout._core.errors import ArgumentError, ForestError
from inout.distributions.arguments import (
    broadcasts,
    checked_labels,
    checked_lengths,
    is_integer,
    of_one_dtype,
    random_seed,
    refuse_bad_values,
    refuse_non_floats,
)
from inout.distributions.base import Potentials, StructuredDistribution
from inout.forest import Forest, Item
from inout.forest.assembly import assemble
from inout.forest.labels import LazyLabels
from inout.kernels.chain import op
from inout.kernels.chain.generating import generating_function
from inout.kernels.chain.reference import reference_log_partition
from inout.kernels.tiers import choose_tier
from inout.series import Lanes


class LinearChain(StructuredDistribution):
    """Labels y of a sequence, p(y) proportional to exp(start + emissions + transitions + end).

    `emissions` [*b n s]; `transitions` [s s], the same everywhere, or [*b n-1 s s], previous
    label first; `start` and `end` [s] or [*b s]; `lengths` [*b]. Events are labels [*b n], of
    which those beyond an element's length do not count. Log-potentials, -inf allowed.

    log Z and its gradient cost O(b n s²) time, and memory O(b n s) besides the potentials and
    their gradients. Potentials in half precision are computed in float32. `tier="reference"`
    computes log Z and its derivatives in plain torch code instead of the compiled kernels. NaN
    and +inf are refused, at the latest by the first query (on a GPU by its backward pass).

    >>> import torch
    >>> chain = LinearChain(torch.zeros(3, 2), torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]))
    >>> chain.log_partition().exp()
    tensor(4.)
    >>> chain.topk(2)[0]
    tensor([[0, 0, 0],
            [1, 0, 0]])
    >>> chain.marginals()["emissions"]
    tensor([[0.2500, 0.7500],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])

    Lafferty, McCallum & Pereira, "Conditional random fields" (2001), section 3.
    """

    def __init__(
        self,
        emissions: Float[Tensor, "*b n s"],
        transitions: Float[Tensor, " ..."],
        start: Float[Tensor, "*#b s"] | None = None,
        end: Float[Tensor, "*#b s"] | None = None,
        lengths: Int[Tensor, "*b"] | None = None,
        *,
        tier: str | None = None,
    ) -> None:
        if emissions.ndim < 2 or emissions.shape[-1] == 0:
            raise ArgumentError(
                f"emissions must be [*b n s] with at least one label. Got {list(emissions.shape)}"
            )
        batch_shape, (n, s) = emissions.shape[:-2], emissions.shape[-2:]
        steps = max(n - 1, 0)
        self.stationary = transitions.ndim == 2
        wanted = (s, s) if self.stationary else (*batch_shape, steps, s, s)
        if transitions.shape[-2:] != (s, s) or not broadcasts(transitions.shape, wanted):
            raise ArgumentError(
                f"transitions must be {[s, s]} or {[*batch_shape, steps, s, s]} for these "
                f"emissions. Got {list(transitions.shape)}"
            )
        self.tier = choose_tier(emissions.device, tier)
        self.lengths = checked_lengths(lengths, batch_shape, n, emissions.device)
        if not self.stationary:  # one block may be given for all positions of an element
            transitions = transitions.expand(*transitions.shape[:-3], steps, s, s)
        potentials = {"emissions": emissions, "transitions": transitions}
        for name, potential in (("start", start), ("end", end)):
            if potential is None:
                continue
            if potential.shape[-1:] != (s,) or not broadcasts(potential.shape, (*batch_shape, s)):
                raise ArgumentError(
                    f"{name} must be {[s]} or {[*batch_shape, s]}. Got {list(potential.shape)}"
                )
            potentials[name] = potential
        super().__init__(batch_shape, torch.Size([n]), validate_args=False)
        for name, potential in potentials.items():
            refuse_non_floats(name, potential)
        self.potentials = of_one_dtype(potentials)
        self._values_checked = False
        if self.tier == "reference":
            self._refuse_bad_values(potentials)
        elif self.tier == "cpu":
            self._refuse_bad_values(
                name for name in potentials if self.stationary or name != "transitions"
            )

    def _refuse_bad_values(self, names: Iterable[str]) -> None:
        """Raise if one of these potentials has NaN or +inf where it counts.

        Reading position-specific transitions costs a tenth of log Z, and any answer from a GPU a
        wait: these are looked at only when log Z is NaN, or before the first decoding.
        """
        real = self._real[..., None]
        used = {"emissions": real}
        if not self.stationary:
            used["transitions"] = real[..., 1:, :, None]
        for name in names:
            refuse_bad_values(name, self.potentials[name], used.get(name))

    def _checked_flat(self) -> tuple[Tensor, Tensor, Tensor]:
        """As `_flat`, of the potentials, once they are known to be valid."""
        if not self._values_checked:
            self._refuse_bad_values(self.potentials)
            self._values_checked = True
        return self._flat(self.potentials)

    @property
    def size(self) -> tuple[int, int, int]:
        """(elements in all, positions, labels)."""
        n, s = self.potentials["emissions"].shape[-2:]
        return self.batch_shape.numel(), n, s

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        _, n, s = self.size
        pairs = (s, s) if self.stationary else (max(n - 1, 0), s, s)
        shapes = {"emissions": (n, s), "transitions": pairs, "start": (s,), "end": (s,)}
        return {name: torch.Size(shapes[name]) for name in self.potentials}

    def _flat(self, potentials: Potentials) -> tuple[Tensor, Tensor, Tensor]:
        """Emissions [b n s] with start and end in them, transitions [bt nt s s], lengths [b]."""
        b, n, s = self.size
        emissions = potentials["emissions"]
        if "start" in potentials or "end" in potentials:
            # What scatter_add does not touch costs a copy, and nothing on the way back.
            places = {"start": torch.zeros_like(self.lengths), "end": self.lengths - 1}
            some = (self.lengths > 0)[..., None, None]
            for name in [name for name in places if name in potentials]:
                place = places[name].clamp(min=0)[..., None, None]
                more = potentials[name][..., None, :].where(some, 0.0)
                emissions = emissions.scatter_add(-2, place.expand(more.shape)[..., :n, :], more)
        transitions = potentials["transitions"]
        block = (1, s, s) if self.stationary else (max(n - 1, 0), s, s)
        own_dims = 2 if self.stationary else 3
        shared = transitions.ndim == own_dims
        if not shared:
            whole = self.batch_shape + transitions.shape[-own_dims:]
            transitions = transitions if transitions.shape == whole else transitions.expand(whole)
        return (
            _shaped(emissions, (b, n, s)),
            _shaped(transitions, (1 if shared else b, *block)),
            _shaped(self.lengths, (b,)),
        )

    def _log_partition(self, potentials: Potentials) -> Float[Tensor, "*b"]:
        reference = self.tier == "reference"
        log_z = (reference_log_partition if reference else op.log_partition)(
            *self._flat(potentials)
        )
        if not self._values_checked:
            plain = log_z.detach()
            if log_z.requires_grad and log_z.is_cuda:
                # Nobody waits for the device now: the answer is there when the gradient comes.
                log_z.register_hook(lambda _: self._refuse_nan(plain))  # type: ignore[no-untyped-call]
            else:
                self._refuse_nan(plain)
        return _shaped(log_z, self.batch_shape)

    def _refuse_nan(self, log_z: Tensor) -> None:
        """Raise for the potential that made log Z NaN, if it is."""
        if bool(log_z.cpu().isnan().any()):
            self._refuse_bad_values(self.potentials)
        self._values_checked = True

    def _checked_labels(self, event: Tensor) -> Tensor:
        """Labels [*s *b n] with 0 beyond each element's length."""
        return checked_labels(event, self.batch_shape, self._real, self.size[-1])

    def _score(self, event: Int[Tensor, "*e n"]) -> Float[Tensor, "*sb"]:
        labels, real = self._checked_labels(event), self._real
        _, n, s = self.size

        def expanded(name: str) -> Tensor:
            return self.potentials[name].expand(labels.shape[:-1] + self._part_shapes[name])

        nodes = expanded("emissions").gather(-1, labels[..., None])[..., 0]
        score = nodes.where(real, 0.0).sum(-1)
        if n > 1:
            before, after = labels[..., :-1], labels[..., 1:]
            if self.stationary:
                pairs = self.potentials["transitions"][before, after]
            else:
                places = (before * s + after)[..., None]
                pairs = expanded("transitions").flatten(-2).gather(-1, places)[..., 0]
            score = score + pairs.where(real[..., 1:], 0.0).sum(-1)
        for name, place in (("start", torch.zeros_like(self.lengths)), ("end", self.lengths - 1)):
            if name in self.potentials and n > 0:
                at = place.clamp(min=0).expand(labels.shape[:-1])[..., None]
                value = expanded(name).gather(-1, labels.gather(-1, at))[..., 0]
                score = score + value.where(self.lengths > 0, 0.0)
        return score

    def parts(self, event: Int[Tensor, "*e n"]) -> Potentials:
        """Indicators of labels and label pairs; counts of pairs with shared transitions."""
        labels, real = self._checked_labels(event), self._real
        s, dtype = self.size[2], self.potentials["emissions"].dtype
        nodes = torch.nn.functional.one_hot(labels, s).to(dtype) * real[..., None]
        if self.stationary:
            # Counted, not multiplied: a product would round under autocast.
            places = labels[..., :-1] * s + labels[..., 1:]
            counts = nodes.new_zeros((*labels.shape[:-1], s * s))
            counts = counts.scatter_add(-1, places, real[..., 1:].expand(places.shape).to(dtype))
            pairs = counts.reshape(*counts.shape[:-1], s, s)
        else:
            pairs = nodes[..., :-1, :, None] * nodes[..., 1:, None, :]
        last = torch.arange(labels.shape[-1], device=labels.device) == self.lengths[..., None] - 1
        parts = {
            "emissions": nodes,
            "transitions": pairs,
            "start": nodes[..., :1, :].sum(-2),
            "end": (nodes * last[..., None]).sum(-2),
        }
        return {name: parts[name] for name in self.potentials}

    def _labels(self, labels: Tensor) -> Tensor:
        """Decoded labels [... b n] in the batch's shape, 0 beyond the lengths."""
        shaped = labels.reshape(labels.shape[:-2] + self.batch_shape + self.event_shape)
        return shaped.where(self._real, 0)

    @property
    def mode(self) -> Int[Tensor, "*b n"]:
        """The most probable labels (Viterbi), 0 where none are possible; O(b n s²).

        Ties go to smaller labels, the last position first.
        """
        return self._labels(op.best_labels(*self._checked_flat()))

    def topk(self, k: int) -> tuple[Int[Tensor, "k *b n"], Float[Tensor, " k *b"]]:
        """The k most probable labellings, best first, and their log-probabilities [k *b].

        Where an element has fewer than k, the rest is 0 with log-probability -inf. The
        log-probabilities are differentiable. O(k b n s²) time, O(k n s) memory for each thread.
        """
        k = at_least("k", k, 1)
        flat_labels, scores = op.k_best_labels(*self._checked_flat(), k)
        labels = self._labels(flat_labels)
        missing = scores.reshape(k, *self.batch_shape) == -torch.inf
        return labels, torch.where(missing, -torch.inf, self.log_prob(labels))

    def _sample(self, count: int, generator: torch.Generator) -> Int[Tensor, "m *b n"]:
        seed = random_seed(generator)
        labels = self._labels(op.sample_labels(*self._checked_flat(), count, seed))
        if bool((labels < 0).any()):
            raise ForestError("an element of the batch has no possible labelling to sample")
        return labels

    def min_risk(self) -> Int[Tensor, "*b n"]:
        """The labels with the least expected Hamming loss: each position's likeliest label.

        Costs as much as the marginals; 0 where no labelling is possible.
        """
        with torch.no_grad():
            labels = self.marginals()["emissions"].argmax(-1)
        return labels.where(self._real, 0)

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "m *b n"]:
        """All labellings [s**n *b n], in lexicographic order; for elements of full length only."""
        _, n, s = self.size
        if bool((self.lengths != n).any()):
            raise ArgumentError("enumerate_support needs all elements to have the full length")
        if n * np.log(max(s, 1)) > np.log(1e7):
            raise ArgumentError(f"there are {s}**{n} labellings, more than ten million")
        labels = torch.tensor(list(product(range(s), repeat=n)), dtype=torch.long)
        events = labels.reshape(-1, *(1,) * len(self.batch_shape), n).to(self.lengths.device)
        return events.expand(-1, *self.batch_shape, n) if expand else events

    def _generating(
        self, lanes: Lanes, values: dict[str, Tensor], shift: float
    ) -> tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]:
        # In double precision before start and end are added to the emissions.
        wide = {name: potential.double() for name, potential in self.potentials.items()}
        emissions, transitions, lengths = self._flat(wide)
        b, n, s = self.size
        nodes = self._node_values(values)
        pairs = values["transitions"]
        if not self.stationary:
            pairs = pairs.expand(-1, -1, max(n - 1, 0), s, s)
        else:
            pairs = pairs[:, :, None].expand(-1, -1, -1, s, s)
        some = pairs if pairs.requires_grad or bool(pairs.any()) else None
        given = emissions, transitions
        return generating_function(lanes, given, lengths, (nodes, some), shift)

    def _node_values(self, values: dict[str, Tensor]) -> Inexact[Tensor, "k b n s"]:
        """Values of labels at positions, those of the first and last label in their places."""
        b, n, s = self.size
        nodes = values["emissions"].expand(-1, b, n, s)
        lengths = self.lengths.reshape(b)
        position = torch.arange(n, device=lengths.device)
        for name, place in (("start", torch.zeros_like(lengths)), ("end", lengths - 1)):
            if name in values:
                here = (position == place[:, None])[..., None]
                nodes = nodes + torch.where(here, values[name].expand(-1, b, s)[:, :, None], 0.0)
        return nodes

    def forest(self) -> Forest:
        """The trellis as an explicit forest, one goal for each batch element.

        Its relations are the potentials, expanded over the batch and flattened; gradients flow
        back to them.
        """
        self._checked_flat()
        relations = {name: p.reshape(-1) for name, p in self._expanded().items()}
        builder = _Trellis(self, {name: len(rows) for name, rows in relations.items()})
        fields = assemble(*builder.edges(), relations, *builder.rest())
        return Forest(**fields, single_goal=not self.batch_shape)


class _Trellis(LazyLabels):
    """Edges and labels of a chain's forest; items are numbered axioms, alphas, goals."""

    def __init__(self, chain: LinearChain, rows: dict[str, int]) -> None:
        self.chain, self.rows = chain, rows
        self.firsts = dict(zip(rows, np.cumsum([0, *rows.values()]), strict=False))
        self.num_axioms = sum(rows.values())
        b, n, s = chain.size
        self.first_goal = self.num_axioms + b * n * s

    def __len__(self) -> int:
        return self.first_goal + self.chain.size[0]

    def label(self, index: int) -> Hashable:
        """The part, or the state alpha(element, position, label), or the goal."""
        b, n, s = self.chain.size
        if index >= self.first_goal:
            return Item("goal", (index - self.first_goal,))
        if index >= self.num_axioms:
            place = np.unravel_index(index - self.num_axioms, (b, n, s))
            return Item("alpha", tuple(int(x) for x in place))
        name = [n for n, first in self.firsts.items() if first <= index and self.rows[n]][-1]
        shape = (b, *self.chain._part_shapes[name])
        place = np.unravel_index(index - self.firsts[name], shape)
        return Item(name, tuple(int(x) for x in place))

    def edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(heads, tail_offsets, tails) of all edges."""
        b, n, s = self.chain.size
        lengths = self.chain.lengths.reshape(-1).cpu().numpy()
        alphas = self.num_axioms + np.arange(b * n * s).reshape(b, n, s)
        part = {
            name: self.firsts[name] + np.arange(rows).reshape(b, *self.chain._part_shapes[name])
            for name, rows in self.rows.items()
        }
        groups: list[tuple[np.ndarray, list[np.ndarray]]] = []
        for k in range(b):
            length = int(lengths[k])
            goal = np.array([self.first_goal + k])
            if length == 0:
                groups.append((goal, []))
                continue
            start = [part["start"][k]] if "start" in part else []
            groups.append((alphas[k, 0], [*start, part["emissions"][k, 0]]))
            for t in range(1, length):
                pairs = part["transitions"][k]
                block = pairs if self.chain.stationary else pairs[t - 1]
                before = np.repeat(alphas[k, t - 1], s)
                after = np.tile(alphas[k, t], s)
                emitted = np.tile(part["emissions"][k, t], s)
                groups.append((after, [before, block.reshape(-1), emitted]))
            end = [part["end"][k]] if "end" in part else []
            groups.append((np.repeat(goal, s), [alphas[k, length - 1], *end]))
        none = np.empty(0, int)  # for a batch without elements
        heads = np.concatenate([none, *(h for h, _ in groups)]).astype(np.int32)
        arity = np.concatenate([none, *(np.full(len(h), len(t)) for h, t in groups)])
        tails = [np.stack(t, axis=1).reshape(-1) for _, t in groups if t]
        offsets = np.concatenate([[0], np.cumsum(arity)]).astype(np.int64)
        return heads, offsets, np.concatenate([none, *tails]).astype(np.int32)

    def rest(self) -> tuple[np.ndarray, np.ndarray, _Trellis]:
        """(axiom rows, goals, labels)."""
        goals = self.first_goal + np.arange(self.chain.size[0])
        return np.arange(self.num_axioms), goals, self


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x in another shape; itself, without a node for autograd, if it has that one."""
    return x if x.shape == shape else x.reshape(shape)


class HMM(LinearChain):
    """Hidden states of observed sequences: p(states | observations).

    `initial` [s], `transition` [s s] (from, to) and `emission` [s v] are log-probabilities (or any
    log-weights), `observations` [*b n] symbols in 0..v-1. `log_partition` is the log-likelihood
    of each sequence, and its gradients in the three are the expected counts that EM needs. As a
    `LinearChain` its potentials are `start`, `transitions` and the `emissions` of what was
    observed. O(b n s²) time.

    >>> import torch
    >>> stay, switch = torch.tensor([0.9, 0.1]).log()
    >>> transition = torch.stack([torch.stack([stay, switch]), torch.stack([switch, stay])])
    >>> emission = torch.tensor([[0.5, 0.5], [0.0, 1.0]]).log().requires_grad_()
    >>> hmm = HMM(torch.tensor([0.5, 0.5]).log(), transition, emission, torch.tensor([1, 0]))
    >>> hmm.log_partition().exp()
    tensor(0.1375, grad_fn=<ExpBackward0>)
    >>> torch.autograd.grad(hmm.log_partition(), emission)[0]  # expected emissions
    tensor([[1.0000, 0.8182],
            [0.0000, 0.1818]])

    Rabiner, "A tutorial on hidden Markov models" (1989), section III.
    """

    def __init__(
        self,
        initial: Float[Tensor, " s"],
        transition: Float[Tensor, "s s"],
        emission: Float[Tensor, "s v"],
        observations: Int[Tensor, "*b n"],
        lengths: Int[Tensor, "*b"] | None = None,
        *,
        tier: str | None = None,
    ) -> None:
        if emission.ndim != 2 or 0 in emission.shape:
            raise ArgumentError(f"emission must be [s v]. Got {list(emission.shape)}")
        s, v = emission.shape
        if initial.shape != (s,):
            raise ArgumentError(f"initial must be {[s]}. Got {list(initial.shape)}")
        if transition.shape != (s, s):
            raise ArgumentError(f"transition must be {[s, s]}. Got {list(transition.shape)}")
        for name, given in (
            ("initial", initial),
            ("transition", transition),
            ("emission", emission),
        ):
            refuse_bad_values(name, given)
        if observations.ndim < 1 or not is_integer(observations):
            raise ArgumentError(
                "observations must be integers [*b n]. "
                f"Got {observations.dtype} {list(observations.shape)}"
            )
        *batch_shape, n = observations.shape
        lengths = checked_lengths(lengths, torch.Size(batch_shape), n, observations.device)
        inside = torch.arange(n, device=lengths.device) < lengths[..., None]
        symbols = observations.where(inside, 0).long()
        if symbols.numel() and not (int(symbols.min()) >= 0 and int(symbols.max()) < v):
            raise ArgumentError(
                f"observations must be in 0..{v - 1}. "
                f"Got {int(symbols.min())}..{int(symbols.max())}"
            )
        self.initial, self.transition, self.emission = initial, transition, emission
        self.observations = observations
        emissions = torch.nn.functional.embedding(symbols, emission.T.contiguous())
        super().__init__(emissions, transition, initial, None, lengths, tier=tier)
