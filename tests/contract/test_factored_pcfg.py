"""`PCFG` with factored rules in the shared suites, and what only factors can show."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import kl_divergence

from inout import PCFG, ArgumentError, RuleFactors
from inout.kernels.limits import ByDtype
from inout.kernels.lowrank import op, tables
from inout.kernels.lowrank.cpu.grammar_passes import CpuFactoredGrammarPasses, torch_span_marginals
from inout.kernels.lowrank.passes import TorchPasses
from inout.kernels.math import underflow
from tests.contract.distribution_suite import F32, F64, Case, Event, Part, seeded
from tests.contract.latent_suite import LatentSuite
from tests.contract.test_pcfg import GrammarSuite
from tests.contract.tree_suite import catalan, trees
from tests.support import assert_close

RANK = 2


def symbols(s: int) -> tuple[int, int]:
    """Nonterminals and preterminals of a case of size s."""
    return s, max(s - 1, 1)


class FactoredGrammarSuite(LatentSuite, GrammarSuite):
    """Facts of grammars with factors; a subclass says what the latent value is, and what is shared.

    An event is the number of nonterminals, the latent values of its rules in preorder (none if
    they are the heads), and the spans.
    """

    simple: bool

    def make(self, case: Case, tier: str | None = None) -> PCFG:
        given = case.arguments
        factors = RuleFactors(given.get("head"), given["left"], given["right"])
        found = PCFG(given["root"], factors, given["preterminals"], case.lengths, tier=tier)
        assert isinstance(found, PCFG)
        return found

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        nt, pt = symbols(s)
        rank = nt if self.simple else RANK
        own = () if self.shared else batch
        shapes: dict[str, tuple[int, ...]] = {"root": (*own, nt)}
        if not self.simple:
            shapes["head"] = (*own, nt, rank)
        shapes |= {"left": (*own, rank, nt + pt), "right": (*own, rank, nt + pt)}
        shapes["preterminals"] = (*batch, n, pt)
        arguments = {
            name: torch.randn(shape, generator=generator, dtype=F64).to(dtype)
            for name, shape in shapes.items()
        }
        return Case(arguments, batch, n, s)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        own = {"root": 1, "head": 2, "left": 2, "right": 2, "preterminals": 2}
        return {
            name: x.expand(*case.batch, *x.shape[x.ndim - own[name] :])
            for name, x in case.arguments.items()
        }

    def events(self, n: int, s: int) -> list[Event]:
        nt, pt = symbols(s)
        found = trees(0, n - 1, range(nt), range(nt, nt + pt)) if n > 1 else []
        several = [()] if self.simple else list(product(range(RANK), repeat=max(n - 1, 0)))
        return [(nt, latent, *event) for event in found for latent in several]

    def count(self, n: int, s: int) -> int:
        return self.count_seen(n, s) * (1 if self.simple or n < 2 else RANK ** (n - 1))

    def count_seen(self, n: int, s: int) -> int:
        nt, pt = symbols(s)
        return catalan(n - 1) * nt ** (n - 1) * pt**n if n > 1 else 0

    def parts_of(self, event: Event) -> list[Part]:
        nt, latent, *spans = event
        parts: list[Part] = [("root", (spans[0][2],))]
        values = list(latent)

        def read() -> int:
            """Takes one subtree off the list in preorder: its symbol."""
            i, j, symbol = spans.pop(0)
            if i == j:
                parts.append(("preterminals", (i, symbol - nt)))
            else:
                r = symbol
                if not self.simple:
                    r = values.pop(0)
                    parts.append(("head", (symbol, r)))
                parts.append(("left", (r, read())))
                parts.append(("right", (r, read())))
            return symbol

        read()
        return parts

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        return super().tensor(event[1:], n, s)

    def loss(self, guess: Event, truth: Event) -> float:
        return super().loss(guess[1:], truth[1:])

    def one_too_few(self, case: Case) -> dict[str, Tensor]:
        found = super().one_too_few(case)
        # With no preterminals less there would be none.
        return found | {"preterminals": case.arguments["preterminals"].repeat_interleave(2, -1)}


class TestSharedFactors(FactoredGrammarSuite):
    one_in = 2
    shared, simple = True, False


FAMILY = TestSharedFactors()


@pytest.mark.exhaustive
class TestFactorsOfEachElement(FactoredGrammarSuite):
    variant = True  # see tests/seeds.py
    shared, simple = False, False


@pytest.mark.exhaustive
class TestIndependentChildren(FactoredGrammarSuite):
    variant = True  # see tests/seeds.py
    shared, simple = True, True


OTHERS = [TestFactorsOfEachElement(), TestIndependentChildren()]


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("family", OTHERS)
def test_enumeration_of_the_other_kinds(family, dtype):
    for case in (family.ragged(2, dtype), family.usual(3, dtype, batch=())):
        family.check(case)
        family.check(case, "reference")
    family.test_samples_have_the_right_frequencies()


def far_below(depth: float, dtype: Any) -> Case:
    """Nonterminal 0 leads by `depth` nats in spans of two words, but cannot be at the root.

    Nor can it be below it: the latent value of nonterminal 1 is 1, whose children 1 and words are.
    """
    case = FAMILY.case(seeded(3), (), 4, 2, dtype)
    left, right = (case.arguments[name].clone() for name in ("left", "right"))
    head = torch.zeros(2, 2, dtype=dtype).fill_diagonal_(1.0).log()
    left[0, :2] = right[0, :2] = -torch.inf
    left[0, 2:] += depth
    left[1, 0] = right[1, 0] = -torch.inf
    root = torch.tensor([-torch.inf, 0.0], dtype=dtype)
    changed = {"root": root, "head": head, "left": left, "right": right}
    return replace(case, arguments=case.arguments | changed)


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("depth", [10.0, 50.0, 200.0, 1e4])
def test_a_symbol_far_below_the_best_survives_alone(depth, dtype):
    case = far_below(depth, dtype)
    FAMILY.check(case)
    grammar = FAMILY.make(case)
    found = CpuFactoredGrammarPasses(*grammar._flat(grammar.potentials))
    limit = 64 if dtype == F32 else 640
    # A nonterminal made of others by three rules is three times as far below.
    assert (found.fallback is not None) == (3 * depth > limit)
    if dtype == F32 and 3 * depth > limit:
        assert isinstance(found.fallback.fallback, TorchPasses) == (3 * depth > 640)


@pytest.mark.few(1)
@pytest.mark.parametrize("family", [FAMILY, *OTHERS])
def test_log_space_gives_the_same_numbers(family, monkeypatch):
    """With a bound that nothing meets, every element is done in log space, or in float64 first."""
    for limits in (underflow.GRAMMAR_TINY._replace(float32=2.0), ByDtype(2.0, 2.0)):
        monkeypatch.setattr(underflow, "GRAMMAR_TINY", limits)
        for dtype in (F32, F64):
            case = family.ragged(4, dtype)
            grammar = family.make(case)
            found = CpuFactoredGrammarPasses(*grammar._flat(grammar.potentials))
            if limits.of(dtype) == 2.0:
                assert found.bad.tolist() == list(range(6))
            family.check(case)
        family.test_min_risk()
        family.test_samples_have_the_right_frequencies()


def test_everything_is_that_of_the_table():
    """At sizes at which nothing can be enumerated, with impossible entries."""
    g = seeded(5)
    lengths = torch.tensor([9, 4, 6])
    case = replace(FAMILY.case(g, (3,), 9, 7), lengths=lengths)
    case = case.changed(
        lambda n, x: x.masked_fill(torch.rand(x.shape, generator=g) < 0.1, -torch.inf)
    ).leaves()
    inputs = list(case.arguments.values())
    u = [torch.randn(x.shape, generator=g, dtype=F64) for x in inputs]
    grammar, found = FAMILY.make(case), []
    assert bool((grammar.log_partition() > -torch.inf).all())
    for d in (grammar, grammar.dense()):
        first = grad(d.log_partition().sum(), inputs, create_graph=True)
        second = grad(sum((x * y).sum() for x, y in zip(first, u, strict=True)), inputs)
        found.append([d.log_partition(), *first, *second, d.log_prob(d.mode)])
    for x, y in zip(*found, strict=True):
        assert_close(x, y)
    assert torch.equal(grammar.mode, grammar.dense().mode)
    assert torch.equal(grammar.min_risk(), grammar.dense().min_risk())


def test_blocks_of_rules_give_the_same_trees(monkeypatch):
    for family in (FAMILY, *OTHERS):
        grammar = family.make(family.ragged(6))
        whole = grammar.mode
        for size in (1, 10):  # one head, for one element and for six at a time
            monkeypatch.setattr(tables, "LOWRANK_BLOCK", size)
            monkeypatch.setattr(op, "LOWRANK_BLOCK", size)
            assert len(list(tables.RuleBlocks(*grammar._flat(grammar.potentials)[1:4]))) > 1
            assert torch.equal(grammar.mode, whole)


def test_torch_code_for_other_devices_gives_the_same_numbers():
    """It runs on GPUs, where there is no compiled kernel."""
    for family in (FAMILY, OTHERS[1]):
        grammar = family.make(family.ragged(7))
        *given, lengths = grammar._flat(grammar.potentials)
        ours = CpuFactoredGrammarPasses(*given, lengths)
        theirs = TorchPasses(op.reference_factored_grammar, *given, lengths=lengths)
        g = seeded(8)
        weights = torch.randn(6, generator=g, dtype=F64)
        along = tuple(torch.randn(x.shape, generator=g, dtype=F64) for x in given)
        assert_close(ours.log_z, theirs.log_z)
        pairs = zip(ours.gradients(weights), theirs.gradients(weights), strict=True)
        second = zip(ours.tangents(weights, along), theirs.tangents(weights, along), strict=True)
        for x, y in (*pairs, *second):
            assert_close(x, y)
        assert_close(ours.span_marginals(), torch_span_marginals(*given, lengths))


def test_no_table_of_rules_is_made():
    """It would take 2 TB."""
    g = seeded(9)
    nt, pt, rank = 4000, 8000, 4
    shapes = (nt,), (nt, rank), (rank, nt + pt), (rank, nt + pt), (3, pt)
    root, head, left, right, words = (torch.randn(x, generator=g) for x in shapes)
    grammar = PCFG(root, RuleFactors(head, left, right), words)
    assert_close(grammar.marginals()["head"].sum(), torch.tensor(2.0))
    assert grammar.sample((3,), generator=g).shape == (3, 3, 3)
    assert bool((grammar.log_prob(grammar.min_risk()) > -torch.inf).all())


def test_memory_may_be_limited():
    case = FAMILY.ragged(10).leaves()
    given, inputs = case.arguments, list(case.arguments.values())
    factors = RuleFactors(given["head"], given["left"], given["right"])
    found = []
    for memory in (None, "sqrt", 10**5):
        grammar = PCFG(given["root"], factors, given["preterminals"], case.lengths, memory=memory)
        log_z = grammar.log_partition()
        found.append([log_z, *grad(log_z.sum(), inputs)])
    for others in found[1:]:
        for x, y in zip(found[0], others, strict=True):
            assert_close(x, y)


def test_ranks_may_differ():
    p, q = (FAMILY.make(FAMILY.usual(seed)) for seed in (11, 12))
    given = q.potentials
    head = torch.cat([given["head"], torch.full((2, 1), -torch.inf)], 1)
    left, right = (torch.cat([given[name], torch.zeros(1, 3)]) for name in ("left", "right"))
    wider = PCFG(given["root"], RuleFactors(head, left, right), given["preterminals"])
    assert_close(kl_divergence(p, wider), kl_divergence(p, q))
    assert_close(kl_divergence(q, wider), torch.zeros(2, 3, dtype=F64))


def test_independent_children_are_a_head_of_their_own():
    """The same grammar with an identity as the head."""
    case = OTHERS[1].usual(13)
    given, nt = case.arguments, case.s
    simple = OTHERS[1].make(case)
    head = torch.eye(nt, dtype=F64).log()
    factors = RuleFactors(head, given["left"], given["right"])
    whole = PCFG(given["root"], factors, given["preterminals"])
    assert_close(simple.log_partition(), whole.log_partition())
    table = given["left"][:, :, None] + given["right"][:, None, :]
    assert_close(simple.dense().potentials["rules"], table)
    assert_close(whole.dense().potentials["rules"], table)


def test_factors_that_do_not_fit_are_refused_by_name():
    root, words = torch.zeros(2), torch.zeros(3, 3)
    head, left = torch.zeros(2, 4), torch.zeros(4, 5)
    for factors, message in (
        (RuleFactors(head, left[:3], left), r"^left must be \[4, 5\] .* Got \[3, 5\]"),
        (RuleFactors(head, left, left[:, 1:]), r"^right must be \[4, 5\] .* Got \[4, 4\]"),
        (RuleFactors(head[:1], left, left), r"^head must be \[2, 4\] .* Got \[1, 4\]"),
        (RuleFactors(None, left, left), r"^left must be \[2, 5\] .* Got \[4, 5\]"),
        (RuleFactors(head[:, :0], left, left), r"^head must be \[\.\. nt r\], r >= 1"),
        (RuleFactors(head, left, None), r"^right must be a tensor\. Got None"),
    ):
        with pytest.raises(ArgumentError, match=message):
            PCFG(root, factors, words)
