"""`PCFG` in the shared suite, and what only grammars can show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import ArgumentError
from inout.distributions.pcfg import PCFG
from inout.kernels.limits import ByDtype
from inout.kernels.math import underflow
from inout.kernels.pcfg import op
from inout.kernels.pcfg.cpu.passes import CpuGrammarPasses
from tests.contract.distribution_suite import F32, F64, Case, Event, Part, seeded
from tests.contract.tree_suite import TreeSuite, catalan, trees
from tests.support import assert_close


def symbols(s: int) -> tuple[int, int]:
    """Nonterminals and preterminals of a case of size s."""
    return s, min(s, 2)


class GrammarSuite(TreeSuite):
    """Facts of grammars; a subclass says whether all elements share their rules.

    An event is the number of nonterminals, then the spans.
    """

    lengths = ((4, 2, 3), (3, 2, 4))
    shared: bool

    def make(self, case: Case, tier: str | None = None) -> PCFG:
        return PCFG(**case.arguments, lengths=case.lengths, tier=tier)

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        nt, pt = symbols(s)
        own = () if self.shared else batch
        shapes = {
            "root": (*own, nt),
            "rules": (*own, nt, nt + pt, nt + pt),
            "preterminals": (*batch, n, pt),
        }
        arguments = {
            name: torch.randn(shape, generator=generator, dtype=F64).to(dtype)
            for name, shape in shapes.items()
        }
        return Case(arguments, batch, n, s)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        own = {"root": 1, "rules": 3, "preterminals": 2}
        return {
            name: x.expand(*case.batch, *x.shape[x.ndim - own[name] :])
            for name, x in case.arguments.items()
        }

    def events(self, n: int, s: int) -> list[Event]:
        nt, pt = symbols(s)
        found = trees(0, n - 1, range(nt), range(nt, nt + pt)) if n > 1 else []
        return [(nt, *event) for event in found]

    def count(self, n: int, s: int) -> int:
        nt, pt = symbols(s)
        return catalan(n - 1) * nt ** (n - 1) * pt**n if n > 1 else 0

    def parts_of(self, event: Event) -> list[Part]:
        nt, *spans = event
        parts: list[Part] = [("root", (spans[0][2],))]

        def read() -> int:
            """Takes one subtree off the list in preorder: its symbol."""
            i, j, symbol = spans.pop(0)
            if i == j:
                parts.append(("preterminals", (i, symbol - nt)))
            else:
                left = read()
                parts.append(("rules", (symbol, left, read())))
            return symbol

        read()
        return parts

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        return super().tensor(event[1:], n, s)

    def loss(self, guess: Event, truth: Event) -> float:
        return super().loss(guess[1:], truth[1:])

    def padding(self, case: Case) -> dict[str, Tensor]:
        masks = {n: torch.zeros(x.shape, dtype=torch.bool) for n, x in case.arguments.items()}
        for element in case.elements():
            masks["preterminals"][element][case.length(element) :] = True
        return masks

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        length = case.length(element)
        arguments = dict(case.arguments)
        if not self.shared:
            arguments = {name: x[element] for name, x in arguments.items()}
            arguments["preterminals"] = arguments["preterminals"][:length]
        else:
            arguments["preterminals"] = arguments["preterminals"][element][:length]
        return Case(arguments, (), length, case.s)

    def one_too_few(self, case: Case) -> dict[str, Tensor]:
        return {name: x[..., :-1] for name, x in case.arguments.items()}

    @pytest.mark.parametrize("tier", ["cpu", "reference"])
    @pytest.mark.parametrize("n", [4])
    def test_padding_changes_nothing(self, tier, n):
        super().test_padding_changes_nothing(tier, n)


class TestSharedRules(GrammarSuite):
    shared = True


class TestRulesOfEachElement(GrammarSuite):
    variant = True  # see tests/seeds.py
    one_in = 2
    shared = False


FAMILY = TestSharedRules()


def far_below(depth: float, dtype: Any) -> Case:
    """Nonterminal 0 leads by `depth` nats in spans of two words, but cannot be at the root.

    Nor can it be anywhere below it: only 1 -> 1 1, 1 -> 1 word and 1 -> word 1 lead there.
    """
    case = FAMILY.case(seeded(3), (), 4, 2, dtype)
    rules = case.arguments["rules"].clone()
    rules[0, 2:, 2:] += depth
    rules[1, 0, :] = rules[1, :, 0] = -torch.inf
    root = torch.tensor([-torch.inf, 0.0], dtype=dtype)
    return replace(case, arguments=case.arguments | {"rules": rules, "root": root})


@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("depth", [10.0, 50.0, 90.0, 200.0, 900.0, 1e4])
def test_a_symbol_far_below_the_best_survives_alone(depth, dtype):
    case = far_below(depth, dtype)
    FAMILY.check(case)
    grammar = FAMILY.make(case)
    found = CpuGrammarPasses(*grammar._flat(grammar.potentials))
    # A nonterminal made of two others by a rule is three times as far below.
    assert (found.fallback is not None) == (3 * depth > (64 if dtype == F32 else 640))
    if dtype == F32 and 3 * depth > 64:
        assert isinstance(found.fallback, CpuGrammarPasses)
        assert (found.fallback.fallback is not None) == (3 * depth > 640)


@pytest.mark.few(1)
@pytest.mark.parametrize("family", [TestSharedRules(), TestRulesOfEachElement()])
def test_log_space_gives_the_same_numbers(family, monkeypatch):
    """With a bound that nothing meets, every element is done in log space, or in float64 first."""
    for limits in (underflow.GRAMMAR_TINY._replace(float32=2.0), ByDtype(2.0, 2.0)):
        monkeypatch.setattr(underflow, "GRAMMAR_TINY", limits)
        for dtype in (F32, F64):
            case = family.ragged(4, dtype)
            grammar = family.make(case)
            found = CpuGrammarPasses(*grammar._flat(grammar.potentials))
            if limits.of(dtype) == 2.0:
                assert found.bad.tolist() == list(range(6))
            family.check(case)
            samples = grammar.sample((2000,), generator=seeded(5))
            counts = {n: p.mean(0) for n, p in grammar.parts(samples).items()}
            for name, m in grammar.marginals().items():
                assert_close(counts[name], m, atol=0.08)
        family.test_min_risk()


def test_masks_of_minus_infinity_stay_in_scaled_arithmetic():
    g = seeded(6)
    case = replace(FAMILY.case(g, (3,), 12, 6, F32), lengths=torch.tensor([12, 5, 9]))
    sparse = case.changed(
        lambda _, x: x.masked_fill(torch.rand(x.shape, generator=g) < 0.6, -torch.inf)
    )
    grammar = FAMILY.make(sparse)
    found = CpuGrammarPasses(*grammar._flat(grammar.potentials))
    assert bool(found.chart.low.any())
    assert found.fallback is None


def test_shared_rules_are_not_copied():
    grammar = PCFG(torch.zeros(3), torch.zeros(3, 5, 5), torch.zeros(50, 4, 2))
    assert grammar._flat(grammar.potentials)[1].shape == (1, 3, 5, 5)


def test_rules_shared_over_part_of_the_batch():
    g = seeded(7)
    words = torch.randn(2, 3, 4, 2, generator=g, dtype=F64)
    rules = torch.randn(3, 2, 4, 4, generator=g, dtype=F64).requires_grad_()
    full = rules.detach().expand(2, 3, 2, 4, 4).clone().requires_grad_()
    root = torch.randn(2, 1, 2, generator=g, dtype=F64)
    ours = PCFG(root, rules, words).log_partition()
    truth = PCFG(root, full, words).log_partition()
    assert_close(ours, truth)
    assert_close(grad(ours.sum(), rules)[0], grad(truth.sum(), full)[0].sum(0))


def test_symbols_must_stand_where_they_can():
    grammar = PCFG(torch.zeros(2), torch.zeros(2, 4, 4), torch.zeros(3, 2))
    word, phrase = grammar.mode.clone(), grammar.mode.clone()
    word[0, 0] = 1
    phrase[0, 2] = 3
    for wrong in (word, phrase):
        with pytest.raises(ArgumentError, match=r"preterminals 2\.\.3"):
            grammar.log_prob(wrong)


def test_min_risk_takes_the_best_symbol_of_each_span():
    """Whether or not the grammar has a rule that joins them."""
    grammar = FAMILY.make(FAMILY.usual(8, batch=()))
    gains = op.span_marginals(*grammar._flat(grammar.potentials))[0]
    event = grammar.min_risk()
    for i, j in (event >= 0).nonzero().tolist():
        if i < j:
            assert int(event[i, j]) == int(gains[i, j].argmax())


def test_labels_of_the_forest():
    forest = PCFG(torch.zeros(1), torch.zeros(1, 2, 2), torch.zeros(2, 3, 1)).forest()
    names = {label.relation for label in forest.labels}
    assert names == {"root", "rules", "preterminals", "beta", "pair", "goal"}
