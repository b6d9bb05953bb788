"""Random distributions of each dense family, and what is timed on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from inout import (
    CTC,
    HMM,
    PCFG,
    RNNT,
    Alignment,
    DependencyTree,
    LinearChain,
    RuleFactors,
    SemiMarkov,
    SpanTree,
    StructuredDistribution,
    TransitionFactors,
)

Gradient = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Problem:
    """A distribution as the function that makes it and the potentials to differentiate in."""

    name: str
    family: Callable[..., StructuredDistribution]
    potentials: Mapping[str, Tensor]
    batched: tuple[str, ...]  # the arguments with a row for each element of the batch
    others: Mapping[str, Tensor] = field(default_factory=dict)  # arguments without a gradient

    def make(self) -> StructuredDistribution:
        """The distribution, no gradient asked for."""
        return self.family(**self.potentials, **self.others)

    def leaves(self) -> dict[str, Tensor]:
        """The potentials as leaves of a new graph; nothing is copied."""
        return {name: p.detach().requires_grad_() for name, p in self.potentials.items()}

    def gradient(self) -> tuple[Tensor, Gradient]:
        """log Z [*b] and the gradient of its sum in every potential."""
        leaves = self.leaves()
        log_z = self.family(**leaves, **self.others).log_partition()
        found = torch.autograd.grad(log_z.sum(), list(leaves.values()))
        return log_z.detach(), dict(zip(leaves, found, strict=True))

    def hessian_product(self, direction: Mapping[str, Tensor]) -> Gradient:
        """The Hessian of log Z times a direction, by double backward; log Z and all included."""
        leaves = self.leaves()
        log_z = self.family(**leaves, **self.others).log_partition()
        first = torch.autograd.grad(log_z.sum(), list(leaves.values()), create_graph=True)
        along = sum((g * direction[name]).sum() for name, g in zip(leaves, first, strict=True))
        assert isinstance(along, Tensor)
        second = torch.autograd.grad(along, list(leaves.values()))
        return dict(zip(leaves, second, strict=True))

    def direction(self) -> dict[str, Tensor]:
        """A random direction, the same in each call."""
        generator = torch.Generator().manual_seed(1)
        return {name: _randn(generator, *p.shape).to(p) for name, p in self.potentials.items()}

    def moved(self, step: float, direction: Mapping[str, Tensor]) -> Problem:
        """The problem some way along a direction."""
        moved = {name: p + step * direction[name] for name, p in self.potentials.items()}
        return replace(self, potentials=moved)

    def to(self, kind: torch.dtype | torch.device | str) -> Problem:
        """The problem with its potentials in another precision, or all of it elsewhere."""
        others = {
            name: x if isinstance(kind, torch.dtype) else x.to(kind)
            for name, x in self.others.items()
        }
        potentials = {name: p.to(kind) for name, p in self.potentials.items()}
        return replace(self, potentials=potentials, others=others)

    def first(self, count: int | None) -> Problem:
        """The problem with fewer elements in the batch (None: with all)."""
        if count is None:
            return self

        def cut(arguments: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {
                name: x[:count].contiguous() if name in self.batched else x
                for name, x in arguments.items()
            }

        name = f"{self.name} (first {count})"
        return replace(self, name=name, potentials=cut(self.potentials), others=cut(self.others))

    @property
    def num_bytes(self) -> int:
        """The size of the potentials."""
        return sum(p.numel() * p.element_size() for p in self.potentials.values())


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, as a part of the largest number; inf between unequal shapes."""
    if ours.shape != theirs.shape:
        return float("inf")
    ours, theirs = ours.detach().double().cpu(), theirs.detach().double().cpu()
    return float((ours - theirs).abs().max() / theirs.abs().max())


def furthest_apart(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """The largest `apart` over the potentials of `theirs`."""
    return max(apart(ours[name], value) for name, value in theirs.items())


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator)


def chain(b: int, n: int, s: int) -> Problem:
    """A linear chain with transitions for each element and position."""
    generator = torch.Generator().manual_seed(0)
    potentials = {
        "emissions": _randn(generator, b, n, s),
        "transitions": _randn(generator, b, n - 1, s, s),
    }
    return Problem(f"chain [{b},{n},{s}]", LinearChain, potentials, tuple(potentials))


def shared_chain(b: int, n: int, s: int) -> Problem:
    """A linear chain with one matrix of transitions, and with start and end."""
    generator = torch.Generator().manual_seed(0)
    potentials = {
        "emissions": _randn(generator, b, n, s),
        "transitions": _randn(generator, s, s),
        "start": _randn(generator, s),
        "end": _randn(generator, s),
    }
    return Problem(f"shared transitions [{b},{n},{s}]", LinearChain, potentials, ("emissions",))


def hmm(b: int, n: int, s: int, v: int) -> Problem:
    """A hidden Markov model with s states and v symbols, and b sequences of n symbols."""
    generator = torch.Generator().manual_seed(0)
    potentials = {
        "initial": _randn(generator, s).log_softmax(-1),
        "transition": _randn(generator, s, s).log_softmax(-1),
        "emission": _randn(generator, s, v).log_softmax(-1),
    }
    observations = torch.randint(v, (b, n), generator=generator)
    name = f"HMM {s:,} states, {v:,} symbols, {b}x{n} tokens"
    return Problem(name, HMM, potentials, ("observations",), {"observations": observations})


def factored_hmm(b: int, n: int, s: int, r: int, v: int) -> Problem:
    """As `hmm`, with transitions through a latent value of r."""
    generator = torch.Generator().manual_seed(0)
    potentials = {
        "initial": _randn(generator, s).log_softmax(-1),
        "source": _randn(generator, s, r).log_softmax(-1),
        "target": _randn(generator, r, s).log_softmax(-1),
        "emission": _randn(generator, s, v).log_softmax(-1),
    }
    observations = torch.randint(v, (b, n), generator=generator)

    def make(initial: Tensor, source: Tensor, target: Tensor, **others: Tensor) -> HMM:
        return HMM(initial, TransitionFactors(source, target), **others)

    name = f"HMM {s:,} states, rank {r:,}, {v:,} symbols, {b}x{n} tokens"
    return Problem(name, make, potentials, ("observations",), {"observations": observations})


def semi_markov(b: int, n: int, w: int, s: int) -> Problem:
    """Segmentations of n positions into segments at most w wide, with s labels."""
    potentials = {"log_potentials": _randn(torch.Generator().manual_seed(0), b, n, w, s, s)}
    name = f"semi-Markov {b}x{n}, widths <= {w}, {s} labels"
    return Problem(name, SemiMarkov, potentials, tuple(potentials))


def pcfg(b: int, n: int, nt: int, pt: int) -> Problem:
    """Trees over n words of a grammar that the b elements share."""
    generator = torch.Generator().manual_seed(0)
    s = nt + pt
    potentials = {
        "root": _randn(generator, nt).log_softmax(-1),
        "rules": _randn(generator, nt, s * s).log_softmax(-1).reshape(nt, s, s),
        "preterminals": _randn(generator, b, n, pt),
    }
    return Problem(f"PCFG {b}x{n}, {nt}+{pt}", PCFG, potentials, ("preterminals",))


def factored_pcfg(b: int, n: int, nt: int, pt: int, r: int) -> Problem:
    """As `pcfg`, with rules through a latent value of r."""
    generator = torch.Generator().manual_seed(0)
    s = nt + pt
    potentials = {
        "root": _randn(generator, nt).log_softmax(-1),
        "head": _randn(generator, nt, r).log_softmax(-1),
        "left": _randn(generator, r, s).log_softmax(-1),
        "right": _randn(generator, r, s).log_softmax(-1),
        "preterminals": _randn(generator, b, n, pt),
    }

    def make(root: Tensor, head: Tensor, left: Tensor, right: Tensor, preterminals: Tensor) -> PCFG:
        return PCFG(root, RuleFactors(head, left, right), preterminals)

    return Problem(f"PCFG {b}x{n}, {nt:,}+{pt:,}, rank {r:,}", make, potentials, ("preterminals",))


def span_tree(b: int, n: int, s: int) -> Problem:
    """Binary trees over n positions with s labels."""
    potentials = {"log_potentials": _randn(torch.Generator().manual_seed(0), b, n, n, s)}
    return Problem(f"span trees {b}x{n}, {s} labels", SpanTree, potentials, tuple(potentials))


def dependency_tree(b: int, n: int, projective: bool = True) -> Problem:
    """Dependency trees over n words with one root word."""
    generator = torch.Generator().manual_seed(0)
    potentials = {"arcs": _randn(generator, b, n, n), "root": _randn(generator, b, n)}
    name = f"{'' if projective else 'non-'}projective dependency trees {b}x{n}"
    make = partial(DependencyTree, projective=projective)
    return Problem(name, make, potentials, tuple(potentials))


def ctc(b: int, t: int, u: int, v: int) -> Problem:
    """Labels of t frames that spell u of v - 1 labels; log-softmax outputs."""
    generator = torch.Generator().manual_seed(0)
    potentials = {"log_probs": _randn(generator, b, t, v).log_softmax(-1)}
    targets = {"targets": torch.randint(1, v, (b, u), generator=generator)}
    return Problem(f"CTC {b}x{t}x{v}, {u} labels", CTC, potentials, ("log_probs",), targets)


def transducer(b: int, t: int, u: int) -> Problem:
    """The frames at which u labels are emitted in t frames."""
    generator = torch.Generator().manual_seed(0)
    potentials = {name: -_randn(generator, b, t, u + 1).exp() for name in ("blank", "labels")}
    return Problem(f"RNNT {b}x{t}x{u}", RNNT, potentials, tuple(potentials))


def joint_transducer(b: int, t: int, u: int, v: int) -> Problem:
    """A transducer from joint outputs: t frames, u labels of v - 1."""
    generator = torch.Generator().manual_seed(0)
    logits = _randn(generator, b, t, u + 1, v)
    targets = torch.randint(1, v, (b, u), generator=generator)
    name = f"RNNT from logits {b}x{t}x{u}x{v}"
    return Problem(
        name, RNNT.from_logits, {"logits": logits}, ("logits", "targets"), {"targets": targets}
    )


def added_transducer(b: int, t: int, u: int, v: int) -> Problem:
    """A transducer from an additive joiner: t frames, u labels of v - 1."""
    generator = torch.Generator().manual_seed(0)
    parts = {"encoder": _randn(generator, b, t, v), "predictor": _randn(generator, b, u + 1, v)}
    targets = torch.randint(1, v, (b, u), generator=generator)
    name = f"RNNT from an additive joiner {b}x{t}x{u}x{v}"
    return Problem(name, RNNT.from_joiner, parts, (*parts, "targets"), {"targets": targets})


def warping(b: int, n: int, m: int) -> Problem:
    """Time warping of series of n and m numbers, their squared differences being the costs."""
    generator = torch.Generator().manual_seed(0)
    rows, columns = _randn(generator, b, n, 1), _randn(generator, b, 1, m)
    make = partial(Alignment, mode="warping")
    return Problem(f"soft-DTW {b}x{n}x{m}", make, {"match": -(rows - columns).square()}, ("match",))


def monotone(b: int, n: int, m: int) -> Problem:
    """Monotonic alignment of n frames and m tokens."""
    potentials = {"match": _randn(torch.Generator().manual_seed(0), b, n, m)}
    make = partial(Alignment, mode="monotone")
    return Problem(f"monotonic alignment {b}x{n}x{m}", make, potentials, ("match",))
