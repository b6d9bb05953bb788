"""`HMM` in the shared suite, and its gradients as the expected counts of EM."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import HMM, ArgumentError
from tests.contract.distribution_suite import F32, F64, Case, DistributionSuite, Event, Part, seeded
from tests.support import assert_close

SYMBOLS = 5


class TestHMM(DistributionSuite):
    own = False  # elements have tables of their own

    def make(self, case: Case, tier: str | None = None) -> HMM:
        return HMM(**case.arguments, **case.others, lengths=case.lengths, tier=tier)

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        first = batch if self.own else ()
        arguments = {
            name: torch.randn(*first, *shape, generator=generator, dtype=F64).to(dtype)
            for name, shape in {
                "initial": (s,), "transition": (s, s), "emission": (s, SYMBOLS)
            }.items()
        }  # fmt: skip
        symbols = torch.randint(SYMBOLS, (*batch, n), generator=generator)
        return Case(arguments, batch, n, s, others={"observations": symbols})

    def potentials(self, case: Case) -> dict[str, Tensor]:
        symbols, batch = case.others["observations"].clamp(0, SYMBOLS - 1), case.batch
        own = {"initial": (case.s,), "transition": (case.s, case.s), "emission": (case.s, SYMBOLS)}
        tables = {name: x.expand(*batch, *own[name]) for name, x in case.arguments.items()}
        # One-hot symbols times emission probabilities would do; -inf asks for a selection.
        columns = [
            tables["emission"][element][:, int(x)]
            for element in case.elements()
            for x in symbols[element]
        ]
        observed = torch.stack(columns or [case.arguments["emission"].new_zeros(case.s)])
        return {
            "emissions": observed[: len(columns)].reshape(*batch, case.n, case.s),
            "transitions": tables["transition"],
            "start": tables["initial"],
        }

    def events(self, n: int, s: int) -> list[Event]:
        return list(product(range(s), repeat=n))

    def count(self, n: int, s: int) -> int:
        return s**n

    def parts_of(self, event: Event) -> list[Part]:
        parts: list[Part] = [("emissions", (t, y)) for t, y in enumerate(event)]
        parts += [("transitions", (event[t - 1], event[t])) for t in range(1, len(event))]
        return parts + ([("start", (event[0],))] if event else [])

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        return torch.tensor([*event, *[-1] * (n - len(event))], dtype=torch.long)

    def padding(self, case: Case) -> dict[str, Tensor]:
        """Parameters have no padding; that of the observations has its own test."""
        return {n: torch.zeros(x.shape, dtype=torch.bool) for n, x in case.arguments.items()}

    def loss(self, guess: Event, truth: Event) -> float:
        return sum(g != t for g, t in zip(guess, truth, strict=True))

    def cut_short(self, name: str, x: Tensor) -> Tensor:
        return x[:-1]

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        length = case.length(element)
        others = {"observations": case.others["observations"][element][:length]}
        arguments = case.arguments
        if self.own:
            arguments = {name: x[element] for name, x in arguments.items()}
        return Case(arguments, (), length, case.s, others=others)

    @pytest.mark.parametrize("tier", ["cpu", "reference"])
    def test_padding_changes_nothing(self, tier):
        case = self.ragged(41).leaves()
        found = []
        for garbage in (0, -7, 10**9):
            symbols = case.others["observations"].clone()
            for element in case.elements():
                symbols[element][case.length(element) :] = garbage
            d = self.make(replace(case, others={"observations": symbols}), tier)
            grads = grad(d.log_partition().sum(), case.arguments.values())
            found.append([d.log_partition(), *grads, d.mode, d.entropy()])
        for others in found[1:]:
            for x, y in zip(found[0], others, strict=True):
                assert torch.equal(x, y)


@pytest.mark.exhaustive
class TestHMMOfOwnTables(TestHMM):
    variant = True  # see tests/seeds.py
    own = True

    def cut_short(self, name: str, x: Tensor) -> Tensor:
        return x[..., :-1] if name == "initial" else x[..., :-1, :]


@pytest.mark.parametrize("tier", ["cpu", "reference"])
def test_tables_of_each_element(tier):
    """What the suite checks of them by default."""
    suite = TestHMMOfOwnTables()
    for dtype in (F64, F32):
        suite.test_enumeration(dtype, tier)
        suite.test_nothing_is_possible(dtype, tier)
    suite.test_derivatives_by_finite_differences(tier)
    suite.test_marginals_of_some_parts(tier)
    suite.test_no_tier_takes_bad_values(tier)
    if tier == "cpu":
        suite.test_third_derivatives()
        suite.test_huge_potentials_and_mixtures(F32)
        suite.test_log_prob_is_normalised_and_adds_up_the_parts()
        suite.test_log_prob_of_ragged_events()
        suite.test_indexing()


def test_tables_of_some_dimensions_of_the_batch():
    """Shared along the batch dimensions that they lack, or where these have size 1."""
    suite = TestHMMOfOwnTables()
    case = suite.usual(150)
    given = case.arguments
    mixed = {
        "initial": given["initial"][:1],
        "transition": given["transition"][0],
        "emission": given["emission"][:, :1],
    }
    suite.check(replace(case, arguments=mixed))
    for name, x in given.items():
        suite.check(replace(case, arguments=given | {name: x[0, 0]}))


def test_each_element_is_an_hmm_of_its_own():
    suite = TestHMMOfOwnTables()
    case = suite.ragged(151).leaves()
    d, inputs = suite.make(case), list(case.arguments.values())
    first = grad(d.log_partition().sum(), inputs)
    for element in case.elements():
        tables = {n: x.detach()[element].requires_grad_() for n, x in case.arguments.items()}
        symbols, length = case.others["observations"][element], case.length(element)
        alone = HMM(**tables, observations=symbols, lengths=length)
        assert_close(d.log_partition()[element], alone.log_partition())
        assert torch.equal(d.mode[element], alone.mode)
        own = grad(alone.log_partition(), tables.values())
        for x, y in zip(first, own, strict=True):
            assert_close(x[element], y)


@pytest.mark.parametrize("own", [False, True])
def test_what_an_hmm_holds_goes_along(own: bool):
    """A part of a batch, or a larger one, can be made again from its tables and observations."""
    suite = TestHMMOfOwnTables() if own else TestHMM()
    whole = suite.make(suite.ragged(152, F32).leaves())
    for d in (whole[0], whole[1, 2], whole.expand((2, 2, 3)), whole.to(F64), whole.detach()):
        tables = {"initial": d.initial, "transition": d.transition, "emission": d.emission}
        again = HMM(**tables, observations=d.observations, lengths=d.lengths)
        assert again.batch_shape == d.batch_shape
        assert torch.equal(again.log_partition(), d.log_partition())
        for name, table in tables.items():
            assert table.requires_grad == d.log_partition().requires_grad
            assert table.ndim == getattr(whole, name).ndim + own * (len(d.batch_shape) - 2)


@pytest.mark.parametrize("impossible", [False, True])
def test_gradients_are_the_expected_counts_of_em(impossible):
    """The E-step, counted out over all state sequences in plain Python."""
    g = seeded(1)
    s, lengths = 3, [5, 0, 1, 4]
    initial = torch.rand(s, generator=g, dtype=F64)
    transition = torch.rand(s, s, generator=g, dtype=F64)
    emission = torch.rand(s, SYMBOLS, generator=g, dtype=F64)
    if impossible:
        initial[0] = 0
        transition[1, 2] = transition[2, 2] = 0
        emission[0, 3] = emission[2, 1] = 0
    initial, transition, emission = (
        x / x.sum(-1, keepdim=True) for x in (initial, transition, emission)
    )
    symbols = torch.randint(SYMBOLS, (len(lengths), 5), generator=g)
    counts: list[Any] = [torch.zeros_like(x) for x in (initial, transition, emission)]
    likelihoods = []
    for words, length in zip(symbols.tolist(), lengths, strict=True):
        paths = []
        for path in product(range(s), repeat=length):
            weight = 1.0
            for t, state in enumerate(path):
                before = initial[state] if t == 0 else transition[path[t - 1], state]
                weight *= float(before) * float(emission[state, words[t]])
            paths.append((weight, path))
        total = math.fsum(weight for weight, _ in paths)
        likelihoods.append(math.log(total))
        for weight, path in paths:
            for t, state in enumerate(path):
                counts[2][state, words[t]] += weight / total
                if t == 0:
                    counts[0][state] += weight / total
                else:
                    counts[1][path[t - 1], state] += weight / total
    logs = [x.log().requires_grad_() for x in (initial, transition, emission)]
    hmm = HMM(*logs, symbols, lengths=torch.tensor(lengths))
    assert_close(hmm.log_partition(), torch.tensor(likelihoods, dtype=F64))
    for ours, truth in zip(grad(hmm.log_partition().sum(), logs), counts, strict=True):
        assert_close(ours, truth)


def test_observations_are_checked(unchecked):
    logs = torch.zeros(2), torch.zeros(2, 2), torch.zeros(2, 3)
    for wrong in (torch.tensor([0, 3]), torch.tensor([-1, 0])):
        with pytest.raises(ArgumentError, match=r"^observations must be in 0\.\.2"):
            HMM(*logs, wrong)
    both = torch.zeros(2, 2, 3)
    with pytest.raises(ArgumentError, match=r"^emission must have shape \[2, 3\] or \[4, 2, 3\]"):
        HMM(*logs[:2], both, torch.zeros(4, 5, dtype=torch.long))
    with pytest.raises(
        ArgumentError, match=r"^emission must have shape \[2, 3\]\. Got \[2, 2, 3\]"
    ):
        HMM(*logs[:2], both, torch.zeros(5, dtype=torch.long))
    for wrong in (torch.tensor([0.0, 1.0]), torch.tensor(0), torch.tensor([True])):
        with pytest.raises(ArgumentError, match=r"^observations must be integers"):
            HMM(*logs, wrong)
