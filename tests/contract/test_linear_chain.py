"""`LinearChain` in the shared suite, and what only chains can show."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import ArgumentError, LinearChain
from inout.kernels.chain.cpu.passes import CpuPasses
from tests.contract.distribution_suite import F32, F64, Case, DistributionSuite, Event, Part, seeded
from tests.support import assert_close


class ChainSuite(DistributionSuite):
    """Facts of label sequences; a subclass says which potentials there are."""

    stationary: bool
    ends: bool

    def tables(self, s: int) -> dict[str, tuple[int, int]]:
        """The potentials of steps, and their shapes."""
        return {"transitions": (s, s)}

    def make(self, case: Case, tier: str | None = None) -> LinearChain:
        return LinearChain(**case.arguments, lengths=case.lengths, tier=tier)

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        steps = () if self.stationary else (*batch, max(n - 1, 0))
        shapes: dict[str, tuple[int, ...]] = {"emissions": (*batch, n, s)}
        shapes |= {name: (*steps, *own) for name, own in self.tables(s).items()}
        if self.ends:
            shapes |= {"start": (s,), "end": (*batch, s)}
        arguments = {
            name: torch.randn(shape, generator=generator, dtype=F64).to(dtype)
            for name, shape in shapes.items()
        }
        return Case(arguments, batch, n, s)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        steps = () if self.stationary else (max(case.n - 1, 0),)
        own = {"emissions": (case.n, case.s), "start": (case.s,), "end": (case.s,)}
        own |= {name: (*steps, *shape) for name, shape in self.tables(case.s).items()}
        return {n: x.expand(*case.batch, *own[n]) for n, x in case.arguments.items()}

    def events(self, n: int, s: int) -> list[Event]:
        return list(product(range(s), repeat=n))

    def count(self, n: int, s: int) -> int:
        return s**n

    def parts_of(self, event: Event) -> list[Part]:
        parts: list[Part] = [("emissions", (t, y)) for t, y in enumerate(event)]
        for t in range(1, len(event)):
            pair = event[t - 1], event[t]
            parts.append(("transitions", pair if self.stationary else (t - 1, *pair)))
        if self.ends and event:
            parts += [("start", (event[0],)), ("end", (event[-1],))]
        return parts

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        return torch.tensor([*event, *[-1] * (n - len(event))], dtype=torch.long)

    def padding(self, case: Case) -> dict[str, Tensor]:
        masks = {n: torch.zeros(x.shape, dtype=torch.bool) for n, x in case.arguments.items()}
        for element in case.elements():
            length = case.length(element)
            masks["emissions"][element][length:] = True
            for name in () if self.stationary else self.tables(case.s):
                masks[name][element][max(length - 1, 0) :] = True
        return masks

    def loss(self, guess: Event, truth: Event) -> float:
        return sum(g != t for g, t in zip(guess, truth, strict=True))

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        length = case.length(element)
        arguments = dict(case.arguments)
        arguments["emissions"] = arguments["emissions"][element][:length]
        for name in () if self.stationary else self.tables(case.s):
            arguments[name] = arguments[name][element][: max(length - 1, 0)]
        if self.ends:
            arguments["end"] = arguments["end"][element]
        return Case(arguments, (), length, case.s)


class TestStationaryChain(ChainSuite):
    stationary, ends = True, False


class TestStationaryChainWithEnds(ChainSuite):
    variant = True  # see tests/seeds.py
    one_in = 2
    stationary, ends = True, True


class TestPositionSpecificChain(ChainSuite):
    variant = True  # see tests/seeds.py
    one_in = 2
    stationary, ends = False, False


class TestPositionSpecificChainWithEnds(ChainSuite):
    stationary, ends = False, True


FAMILIES = [TestStationaryChain(), TestPositionSpecificChain()]


def in_log_space(case: Case) -> Tensor:
    """Which elements the scaled kernels give up, in the forward or in the backward pass."""
    chain = LinearChain(**{n: x.detach() for n, x in case.arguments.items()}, lengths=case.lengths)
    passes = CpuPasses(*chain._flat(chain.potentials))
    passes.gradients(torch.ones(len(passes.fits)))
    return torch.from_numpy(passes.fits).isnan()


def late_survivor(family: ChainSuite, depth: float, dtype: Any) -> Case:
    """Label 0 leads by `depth` nats until the last position, where only label 1 is possible.

    Labels never change but on the way from 0 to 1, which is impossible: so label 1 all along.
    """
    case = family.case(seeded(3), (), 5, 2, dtype)
    emissions = case.arguments["emissions"].clone()
    emissions[0, 0] += depth
    emissions[-1, 0] = -torch.inf
    transitions = case.arguments["transitions"].clone()
    transitions[..., 0, 1] = -torch.inf
    transitions[..., 1, 0] = -torch.inf
    return replace(case, arguments={"emissions": emissions, "transitions": transitions})


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("depth", [10.0, 50.0, 90.0, 200.0, 900.0, 1e4])
@pytest.mark.parametrize("family", FAMILIES, ids=["stationary", "specific"])
def test_a_label_far_below_the_best_survives_alone(family, depth, dtype):
    case = late_survivor(family, depth, dtype)
    family.check(case)
    lost = depth > (57 if dtype == F32 else 640)
    assert bool(in_log_space(case).any()) == lost


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("family", FAMILIES, ids=["stationary", "specific"])
def test_a_label_that_is_lost_and_catches_up_step_by_step(family, dtype):
    """It begins out of range, gains a little at each position, and loses it again at the end.

    Neither a forward nor a backward pass alone meets it, but it weighs as much as all the rest.
    """
    depth = 100.0 if dtype == F32 else 800.0
    case = family.case(seeded(4), (), 12, 2, dtype)
    emissions = torch.zeros_like(case.arguments["emissions"])
    emissions[0, 1], emissions[-1, 1] = -depth, -depth
    emissions[1:-1, 1] = 2 * depth / 10
    transitions = torch.zeros_like(case.arguments["transitions"])
    transitions[..., 0, 1] = transitions[..., 1, 0] = -torch.inf
    case = replace(case, arguments={"emissions": emissions, "transitions": transitions})
    family.check(case)
    chain = LinearChain(**case.arguments)
    assert_close(chain.marginals()["emissions"], torch.full((12, 2), 0.5, dtype=dtype))


@pytest.mark.parametrize("family", FAMILIES, ids=["stationary", "specific"])
def test_partial_underflow_is_noticed(family):
    """All that counts is near the smallest float: some terms of a sum vanish, others do not."""
    case = family.case(seeded(5), (), 3, 3, F32)
    transitions = torch.zeros_like(case.arguments["transitions"])
    transitions[..., 1, :] = -86.0  # what label 1 gives is kept, barely
    transitions[..., 2, :] = -88.0  # what label 2 gives is not
    emissions = torch.zeros_like(case.arguments["emissions"])
    emissions[0, 0] = -torch.inf  # label 0 sets the scale of the block, but is impossible
    emissions[1, 0] = -torch.inf
    family.check(replace(case, arguments={"emissions": emissions, "transitions": transitions}))


@pytest.mark.parametrize("family", FAMILIES, ids=["stationary", "specific"])
def test_small_scale_and_small_mass_together(family):
    """Each fits float32, their product does not: no infinite gradient comes of it.

    Label 0 is impossible everywhere, but sets the scale of the blocks and of the betas.
    """
    for gap in (20.0, 46.0, 80.0):
        case = family.case(seeded(6), (), 4, 3, F32)
        emissions = case.arguments["emissions"].clone()
        emissions[:, 0] = -torch.inf
        transitions = case.arguments["transitions"].clone()
        transitions[..., 0, 1:] += gap
        family.check(replace(case, arguments={"emissions": emissions, "transitions": transitions}))


def bio(types: int, forbidden: float) -> tuple[Tensor, Tensor]:
    """Transitions and start of the labels O, B-1, I-1, B-2, …: I-x only after B-x or I-x."""
    size = 2 * types + 1
    transitions, start = torch.zeros(size, size), torch.zeros(size)
    for inside in range(2, size, 2):
        for before in set(range(size)) - {inside, inside - 1}:
            transitions[before, inside] = forbidden
        start[inside] = forbidden
    return transitions, start


@pytest.mark.parametrize("forbidden", [-torch.inf, -1e4, -1e9, -100.0])
@pytest.mark.parametrize("family", FAMILIES, ids=["stationary", "specific"])
def test_masks_stay_in_scaled_arithmetic(family, forbidden):
    """-10000 for "never" is common in practice, and must not cost a pass in log space."""
    transitions, start = bio(3, forbidden)
    case = family.case(seeded(7), (4,), 30, 7, F32)
    arguments = case.arguments
    emissions = arguments["emissions"].masked_fill(
        torch.rand(arguments["emissions"].shape, generator=seeded(8)) < 0.4, forbidden
    )
    emissions[..., 0] = 0.0  # O is always possible
    arguments = {
        "emissions": emissions,
        "transitions": arguments["transitions"] + transitions,
        "start": start,
    }
    case = replace(case, arguments=arguments)
    assert not bool(in_log_space(case).any())
    case = case.leaves()
    ours = LinearChain(**case.arguments).log_partition()
    wide = case.changed(lambda _, x: x.detach().double()).leaves()
    truth = LinearChain(**wide.arguments, tier="reference").log_partition()
    assert_close(ours, truth)
    grads = grad(truth.sum(), wide.arguments.values())
    for x, y in zip(grad(ours.sum(), case.arguments.values()), grads, strict=True):
        assert_close(x, y)


def test_transitions_shared_over_the_batch():
    """[n-1 s s] for a batch counts for every element, and its gradient is their sum."""
    g = seeded(9)
    emissions = torch.randn(2, 3, 4, 3, generator=g, dtype=F64)
    shared = torch.randn(3, 3, 3, generator=g, dtype=F64).requires_grad_()
    partly = torch.randn(3, 3, 3, 3, generator=g, dtype=F64).requires_grad_()
    for transitions in (shared, partly):
        full = transitions.detach().expand(2, 3, 3, 3, 3).clone().requires_grad_()
        ours = LinearChain(emissions, transitions).log_partition()
        truth = LinearChain(emissions, full).log_partition()
        assert_close(ours, truth)
        (mine,) = grad(ours.sum(), transitions)
        (whole,) = grad(truth.sum(), full)
        assert_close(mine, whole.sum_to_size(mine.shape))


def test_marginals_do_not_copy_shared_transitions():
    chain = LinearChain(torch.zeros(50, 3, 4), torch.zeros(4, 4))
    _, transitions, _ = chain._flat(chain._expanded())
    assert transitions.shape == (50, 1, 4, 4)
    assert transitions.untyped_storage().nbytes() == 4 * 4 * 4


@pytest.mark.parametrize("shape", [(-1,), (2, -1)])
def test_a_shape_of_samples_that_is_none(shape):
    with pytest.raises(ArgumentError, match="sample_shape must be a shape"):
        LinearChain(torch.zeros(3, 2), torch.zeros(2, 2)).sample(shape)


def test_enumerate_support_refuses_what_it_cannot_do():
    with pytest.raises(ArgumentError, match="one length"):
        LinearChain(torch.zeros(2, 3, 2), torch.zeros(2, 2), lengths=[2, 3]).enumerate_support()
    with pytest.raises(ArgumentError, match="at most 10000000"):
        LinearChain(torch.zeros(24, 2), torch.zeros(2, 2)).enumerate_support()


def test_ties_go_to_smaller_labels():
    chain = LinearChain(torch.zeros(3, 2), torch.zeros(2, 2))
    assert chain.mode.tolist() == [0, 0, 0]
    assert chain.topk(8)[0].tolist()[0] == [0, 0, 0]
    assert len({tuple(labels) for labels in chain.topk(8)[0].tolist()}) == 8


def test_ties_go_to_the_smaller_label():
    chain = LinearChain(torch.zeros(3, 4), torch.zeros(4, 4))
    assert chain.mode.tolist() == [0, 0, 0]
    labels, _ = chain.topk(3)
    assert labels[0].tolist() == [0, 0, 0]
    assert len({tuple(row) for row in labels.tolist()}) == 3


def test_labels_of_the_forest():
    chain = LinearChain(torch.zeros(2, 2, 2), torch.zeros(2, 2), start=torch.zeros(2))
    names = {label.relation for label in chain.forest().labels}
    assert names == {"emissions", "transitions", "start", "alpha", "goal"}


def _log_z_in_a_child(queue: Any) -> None:
    torch.set_num_threads(2)
    queue.put(float(LinearChain(torch.zeros(4, 64, 32), torch.zeros(32, 32)).log_partition()[0]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_threads_after_a_fork():
    """A forked process has none of its parent's threads, and must start its own."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        LinearChain(torch.zeros(4, 64, 32), torch.zeros(32, 32)).log_partition()
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        child = context.Process(target=_log_z_in_a_child, args=(queue,))
        child.start()
        child.join(30)
        alive = child.is_alive()
        if alive:
            child.kill()
        assert not alive, "the child waits for threads that do not exist"
        assert_close(torch.tensor(queue.get(), dtype=F32), 64 * torch.tensor(32.0).log().item())
    finally:
        torch.set_num_threads(before)
