"""`LinearChain` with factored transitions in the shared suites, and what only factors can show."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import kl_divergence

from inout import HMM, ArgumentError, LinearChain, TransitionFactors
from inout.distributions import FactoredHMM
from inout.kernels.lowrank import op, tables
from inout.kernels.lowrank.cpu.chain_passes import CpuFactoredChainPasses
from inout.kernels.lowrank.passes import TorchPasses
from tests.contract.batches_suite import on_batch
from tests.contract.distribution_suite import F32, F64, Case, Event, Part, seeded
from tests.contract.latent_suite import LatentSuite
from tests.contract.test_hmm import TestHMMOfOwnTables as OwnTables
from tests.contract.test_linear_chain import ChainSuite
from tests.support import assert_close

RANK = 2


class FactoredChainSuite(LatentSuite, ChainSuite):
    """Facts of label sequences with factors; a subclass says which potentials there are.

    An event is the labels, and the latent values between them.
    """

    def tables(self, s: int) -> dict[str, tuple[int, int]]:
        return {"source": (s, RANK), "target": (RANK, s)}

    def make(self, case: Case, tier: str | None = None) -> LinearChain:
        given = dict(case.arguments)
        factors = TransitionFactors(given.pop("source"), given.pop("target"))
        found = LinearChain(**given, transitions=factors, lengths=case.lengths, tier=tier)
        assert isinstance(found, LinearChain)
        return found

    def events(self, n: int, s: int) -> list[Event]:
        latent = list(product(range(RANK), repeat=max(n - 1, 0)))
        return list(product(product(range(s), repeat=n), latent))

    def count(self, n: int, s: int) -> int:
        return s**n * RANK ** max(n - 1, 0)

    def count_seen(self, n: int, s: int) -> int:
        return s**n

    def parts_of(self, event: Event) -> list[Part]:
        labels, latent = event
        parts: list[Part] = [("emissions", (t, y)) for t, y in enumerate(labels)]
        for t, r in enumerate(latent):
            step = () if self.stationary else (t,)
            parts.append(("source", (*step, labels[t], r)))
            parts.append(("target", (*step, r, labels[t + 1])))
        if self.ends and labels:
            parts += [("start", (labels[0],)), ("end", (labels[-1],))]
        return parts

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        return super().tensor(event[0] if event else (), n, s)

    def loss(self, guess: Event, truth: Event) -> float:
        return super().loss(guess[0], truth[0])

    def cut_short(self, name: str, x: Tensor) -> Tensor:
        # With a latent value less everywhere the source would do.
        return x[..., :-1, :] if name == "source" else x[..., :-1]


class TestFactors(FactoredChainSuite):
    one_in = 2
    stationary, ends = True, True


FAMILY = TestFactors()


@pytest.mark.exhaustive
class TestFactorsWithoutEnds(FactoredChainSuite):
    variant = True  # see tests/seeds.py
    stationary, ends = True, False


@pytest.mark.exhaustive
class TestFactorsOfEachPosition(FactoredChainSuite):
    variant = True  # see tests/seeds.py
    stationary, ends = False, True


OTHERS = [TestFactorsWithoutEnds(), TestFactorsOfEachPosition()]


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("family", OTHERS)
def test_enumeration_of_the_other_kinds(family, dtype):
    for case in (family.ragged(2, dtype), family.usual(3, dtype, batch=())):
        family.check(case)
        family.check(case, "reference")


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("depth", [10.0, 50.0, 200.0, 1e4])
def test_a_label_far_below_the_best_survives_alone(depth, dtype):
    """Label 0 leads until the last position, where only label 1 is possible; they never change."""
    case = FAMILY.case(seeded(3), (), 4, 2, dtype)
    given = case.arguments
    emissions = given["emissions"].clone()
    emissions[0, 0] += depth
    emissions[-1, 0] = -torch.inf
    same = torch.zeros(2, 2, dtype=dtype).fill_diagonal_(1.0).log()
    arguments = given | {"emissions": emissions, "source": same, "target": same}
    case = replace(case, arguments=arguments)
    FAMILY.check(case)
    chain = FAMILY.make(case)
    found = CpuFactoredChainPasses(*chain._flat(chain.potentials))
    lost = depth > (64 if dtype == F32 else 640)
    assert (found.fallback is not None) == lost
    if lost and dtype == F32:
        assert isinstance(found.fallback.fallback, TorchPasses) == (depth > 640)


@pytest.mark.parametrize("tier", ["cpu", "reference"])
def test_log_z_derivatives_and_samples_are_those_of_the_table(tier):
    """At sizes at which nothing can be enumerated, with impossible entries."""
    g = seeded(4)
    case = replace(FAMILY.case(g, (3,), 17, 23), lengths=torch.tensor([17, 1, 9]))
    case = case.changed(
        lambda n, x: x.masked_fill(torch.rand(x.shape, generator=g) < 0.3, -torch.inf)
    ).leaves()
    inputs = list(case.arguments.values())
    u = [torch.randn(x.shape, generator=g, dtype=F64) for x in inputs]
    chain = FAMILY.make(case, tier)
    found = []
    for d in (chain, chain.dense()):
        first = grad(d.log_partition().sum(), inputs, create_graph=True)
        second = grad(sum((x * y).sum() for x, y in zip(first, u, strict=True)), inputs)
        found.append([d.log_partition(), *first, *second, d.log_prob(d.mode)])
    for x, y in zip(*found, strict=True):
        assert_close(x, y)
    assert torch.equal(chain.mode, chain.dense().mode)
    drawn = chain.sample((4000,), generator=seeded(5))
    nodes = torch.nn.functional.one_hot(drawn.clamp(min=0), 23).double().mean(0)
    assert_close(
        nodes.where(drawn[0, ..., None] >= 0, 0.0), chain.marginals()["emissions"], atol=0.05
    )


def test_blocks_of_transitions_give_the_same_labels(monkeypatch):
    for family in (FAMILY, *OTHERS):
        chain = family.make(family.ragged(6))
        monkeypatch.setattr(tables, "LOWRANK_BLOCK", 6)  # two rows for one element, one for six
        blocks = list(tables.TransitionBlocks(*chain._flat(chain.potentials)[1:3]).at(1))
        assert len(blocks) > 1
        assert torch.equal(chain.mode, chain.dense().mode)


def test_torch_code_for_other_devices_gives_the_same_numbers():
    """It runs on GPUs, where there is no compiled kernel."""
    case = FAMILY.ragged(7)
    chain = FAMILY.make(case)
    *given, lengths = chain._flat(chain.potentials)
    ours = CpuFactoredChainPasses(*given, lengths)
    theirs = TorchPasses(op.reference_factored_chain, *given, lengths=lengths)
    g = seeded(8)
    weights = torch.randn(6, generator=g, dtype=F64)
    along = tuple(torch.randn(x.shape, generator=g, dtype=F64) for x in given)
    assert_close(ours.log_z, theirs.log_z)
    for x, y in zip(ours.gradients(weights), theirs.gradients(weights), strict=True):
        assert_close(x, y)
    for x, y in zip(ours.tangents(weights, along), theirs.tangents(weights, along), strict=True):
        assert_close(x, y)


def test_no_table_of_transitions_is_made():
    """It would take 80 GB."""
    s = 100_000
    g = seeded(9)
    factors = TransitionFactors(torch.randn(s, 3, generator=g), torch.randn(3, s, generator=g))
    chain = LinearChain(torch.randn(4, s, generator=g), TransitionFactors(*factors))
    counts = chain.marginals()
    assert_close(counts["source"].sum(), torch.tensor(3.0))
    assert chain.sample((3,), generator=g).shape == (3, 4)
    assert chain.min_risk().shape == (4,)


def test_hidden_markov_models_with_factors():
    g = seeded(10)
    initial, emission = (
        torch.randn(x, generator=g, dtype=F64).log_softmax(-1) for x in ((5,), (5, 3))
    )
    source, target = (
        torch.randn(x, generator=g, dtype=F64).log_softmax(-1) for x in ((5, 2), (2, 5))
    )
    inputs = [x.requires_grad_() for x in (initial, source, target, emission)]
    words = torch.randint(3, (2, 6), generator=g)
    factored = HMM(initial, TransitionFactors(source, target), emission, words, [6, 4])
    assert isinstance(factored, HMM)
    table = (source.exp() @ target.exp()).log()
    plain = HMM(initial, table, emission, words, [6, 4])
    assert_close(factored.log_partition(), plain.log_partition())
    ours, theirs = (grad(d.log_partition().sum(), inputs) for d in (factored, plain))
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)
    assert_close(factored.entropy(), plain.entropy())
    assert torch.equal(factored.mode, plain.mode)
    with pytest.raises(ArgumentError, match=r"^target must be \[2, 5\]"):
        HMM(initial, TransitionFactors(source, target[:, :4]), emission, words)


def factored_hmm(case: Case, factors: dict[str, Tensor]) -> HMM:
    """An HMM with the tables of a case, but for its transitions."""
    tables = {name: x for name, x in case.arguments.items() if name != "transition"}
    steps = TransitionFactors(**factors)
    return HMM(**tables, **case.others, transition=steps, lengths=case.lengths)


@pytest.mark.parametrize("own", [(), ("source",), ("source", "target")], ids=len)
def test_factors_of_each_element_of_an_hmm(own):
    """Compared with tables of its own, which other tests compare with enumeration."""
    g, suite = seeded(13), OwnTables()
    case = suite.ragged(14)
    shapes = {"source": (3, RANK), "target": (RANK, 3)}
    factors = {
        name: torch.randn(*(case.batch if name in own else ()), *shape, generator=g, dtype=F64)
        for name, shape in shapes.items()
    }
    factors["source"][..., 0, 0] = -torch.inf
    inputs = [x.requires_grad_() for x in factors.values()]
    table = (factors["source"].exp() @ factors["target"].exp()).log()
    whole = factored_hmm(case, factors)
    dense = suite.make(replace(case, arguments=case.arguments | {"transition": table}))
    assert isinstance(whole, FactoredHMM)
    event = dense.sample((5,), generator=g)
    for index in (slice(None), 1, (..., 0), case.lengths > 1):
        d, plain = whole[index], dense[index]
        assert isinstance(d.transition, TransitionFactors)
        assert_close(d.log_partition(), plain.log_partition())
        chosen = torch.stack([on_batch(index, x) for x in event])
        assert_close(d.log_prob(chosen), plain.log_prob(chosen))
        assert_close(d.entropy(), plain.entropy())
        assert torch.equal(d.mode, plain.mode)
        assert torch.equal(d.topk(3)[0], plain.topk(3)[0])
        first, second = (x.sample_without_replacement(3, generator=seeded(15)) for x in (d, plain))
        assert torch.equal(first.events, second.events)
        ours, theirs = (x.log_partition().sin().sum() for x in (d, plain))
        pairs = zip(
            grad(ours, inputs, create_graph=True, materialize_grads=True),
            grad(theirs, inputs, create_graph=True, materialize_grads=True),
            strict=True,
        )
        for x, y in pairs:
            assert_close(x, y)
    again = factored_hmm(
        replace(case, arguments={n: x[0] for n, x in case.arguments.items()}, batch=(3,),
                others={"observations": case.others["observations"][0]}, lengths=case.lengths[0]),
        whole[0].transition._asdict(),
    )  # fmt: skip
    assert_close(again.log_partition(), whole.log_partition()[0])
    for d in (whole.expand((2, 2, 3)), whole.to(F32), whole.detach()):
        log_z = whole.log_partition().to(d.potentials["source"].dtype)
        assert_close(d.log_partition(), log_z.expand(d.batch_shape))
        assert d.transition.source.dtype == log_z.dtype
        assert d.transition.source.requires_grad == d.log_partition().requires_grad
    assert_close(sum(whole.parts(whole.mode)["source"].sum((-2, -1)).flatten()),
                 (case.lengths - 1).clamp(min=0).sum().double())  # fmt: skip


def test_factors_of_a_chain_are_those_of_all_elements_or_of_each_position():
    """A batch as long as the chain has steps does not make one the other."""
    source, target = torch.zeros(3, 2), torch.zeros(2, 2, 3)
    with pytest.raises(ArgumentError, match=r"^target must be \[2, 3\] or \[2, 2, 2, 3\]"):
        LinearChain(torch.zeros(2, 3, 3), TransitionFactors(source, target))


def test_ranks_may_differ():
    p, q = (FAMILY.make(FAMILY.usual(seed)) for seed in (11, 12))
    source = torch.cat([q.potentials["source"], torch.full((3, 1), -torch.inf)], 1)
    target = torch.cat([q.potentials["target"], torch.zeros(1, 3)], 0)
    given = {n: x for n, x in q.potentials.items() if n not in ("source", "target")}
    wider = LinearChain(transitions=TransitionFactors(source, target), **given)
    assert_close(kl_divergence(p, wider), kl_divergence(p, q))
    assert_close(kl_divergence(q, wider), torch.zeros(2, 3, dtype=F64))


def test_a_limit_on_memory_is_refused():
    factors = TransitionFactors(torch.zeros(2, 1), torch.zeros(1, 2))
    with pytest.raises(ArgumentError, match=r"^memory must be None"):
        LinearChain(torch.zeros(3, 2), factors, memory="sqrt")
