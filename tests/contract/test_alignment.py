"""`Alignment` in the shared suite, in all its modes, and beside textbook recursions."""

from __future__ import annotations

from itertools import product
from math import comb
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import Alignment, ArgumentError, soft_dtw
from tests.contract.distribution_suite import F32, F64, Case, DistributionSuite, Event, Part, seeded
from tests.contract.misuse_suite import lengths_read
from tests.contract.support_suite import Known
from tests.support import assert_close

MATCH, DELETE, INSERT, SKIP_ROW, SKIP_COLUMN = range(5)
# Rows and columns that a step passes.
PASSED = {MATCH: (1, 1), DELETE: (1, 0), INSERT: (0, 1), SKIP_ROW: (1, 0), SKIP_COLUMN: (0, 1)}


def delannoy(n: int, m: int) -> int:
    """Paths by matches, deletions and insertions."""
    return sum(comb(n, k) * comb(m, k) * 2**k for k in range(min(n, m) + 1))


def walks(n: int, m: int, steps: tuple[int, ...]) -> list[Event]:
    """All sequences of steps over n rows and m columns."""
    if n == m == 0:
        return [()]
    found = []
    for step in steps:
        rows, columns = PASSED[step]
        if n >= rows and m >= columns:
            found += [(step, *rest) for rest in walks(n - rows, m - columns, steps)]
    return found


def places(event: Event) -> list[tuple[int, int, int]]:
    """Each step with the numbers of rows and columns before it."""
    found, i, j = [], 0, 0
    for step in event:
        found.append((step, i, j))
        i, j = i + PASSED[step][0], j + PASSED[step][1]
    return found


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor) and x.ndim > 0 and not x.is_nested


@pytest.mark.exhaustive
class TestAlignment(DistributionSuite):
    """Global alignments; insertions are scored by both places."""

    sizes = (3, 2)
    lengths = ((3, 1, 0), (2, 3, 1))
    blank = -1
    mode, gap = "global", "linear"
    # By name: "" for one number, "own" for one of each row or column, "full" for all corners.
    gaps: ClassVar[dict[str, str]] = {"delete": "own", "insert": "full"}

    def columns(self, n: int, s: int) -> int:
        """The number of columns of an element with n rows."""
        return max(s - (n + 1) % 2, 0)

    def make(self, case: Case, tier: str | None = None) -> Alignment:
        sizes = torch.tensor([self.columns(n, case.s) for n in lengths_read(case)]).long()
        sizes = sizes.reshape(case.batch)
        most = case.arguments["match"].shape[-1] if _is_tensor(case.arguments["match"]) else case.s
        return Alignment(
            **case.arguments, lengths=case.lengths, target_lengths=sizes.clamp(max=most),
            mode=self.mode, gap=self.gap, tier=tier,
        )  # fmt: skip

    def shape(self, name: str, n: int, m: int) -> tuple[int, ...]:
        if name == "match":
            return n, m
        row = name.startswith("delete")
        kinds: dict[str, tuple[int, ...]] = {
            "": (1,), "own": (n if row else m,), "full": (n, m + 1) if row else (n + 1, m),
        }  # fmt: skip
        return kinds[self.gaps[name]]

    def case(
        self, generator: torch.Generator, batch: tuple[int, ...], n: int, s: int, dtype: Any = F64
    ) -> Case:
        arguments = {}
        for name in ("match", *self.gaps):
            shape = self.shape(name, n, s)
            own = () if self.gaps.get(name) == "" else (*batch, *shape)
            arguments[name] = torch.randn(own, generator=generator, dtype=F64).to(dtype)
        return Case(arguments, batch, n, s)

    def potentials(self, case: Case) -> dict[str, Tensor]:
        return {
            name: x.expand(case.batch + self.shape(name, case.n, case.s))
            for name, x in case.arguments.items()
        }

    def events(self, n: int, s: int) -> list[Event]:
        return walks(n, self.columns(n, s), (MATCH, DELETE, INSERT))

    def count(self, n: int, s: int) -> int:
        return delannoy(n, self.columns(n, s))

    def parts_of(self, event: Event) -> list[Part]:
        parts, before = [], None
        for step, i, j in places(event):
            name = {MATCH: "match", DELETE: "delete", INSERT: "insert"}.get(step)
            if name in ("delete", "insert"):
                longer = self.gap == "affine" and step == before
                name = f"{name}_extend" if longer else name
                own = (i if step == DELETE else j,)
                kinds: dict[str, tuple[int, ...]] = {"": (0,), "own": own, "full": (i, j)}
                parts.append((name, kinds[self.gaps[name]]))
            elif name:
                parts.append((name, (i, j)))
            before = step
        return parts

    def tensor(self, event: Event, n: int, s: int) -> Tensor:
        size = n if self.mode == "monotone" else n + s
        return torch.tensor([*event, *[-1] * (size - len(event))], dtype=torch.long)

    def padding(self, case: Case) -> dict[str, Tensor]:
        masks = {name: torch.zeros(x.shape, dtype=torch.bool) for name, x in case.arguments.items()}
        for element in case.elements():
            n = case.length(element)
            m = self.columns(n, case.s)
            masks["match"][element][n:] = True
            masks["match"][element][:, m:] = True
            for name, kind in self.gaps.items():
                row, mask = name.startswith("delete"), masks[name]
                if kind == "own":
                    mask[element][n if row else m :] = True
                elif kind == "full":
                    mask[element][n if row else n + 1 :] = True
                    mask[element][:, m + 1 if row else m :] = True
        return masks

    def in_padding(self, d: Any) -> Tensor:
        steps = d.lengths + (0 if self.mode == "monotone" else d.target_lengths)
        return torch.arange(d.event_shape[0]) >= steps[..., None]

    def loss(self, guess: Event, truth: Event) -> float:
        return -len(set(self.correct(guess)) & set(self.correct(truth)))

    def correct(self, event: Event) -> list[Any]:
        """What may be right or wrong."""
        return [place for place in places(event) if place[0] in (MATCH, DELETE, INSERT)]

    def cut(self, case: Case, element: tuple[int, ...]) -> Case:
        n = case.length(element)
        m = self.columns(n, case.s)
        arguments = {}
        for name, x in case.arguments.items():
            own = tuple(map(slice, self.shape(name, n, m)))
            arguments[name] = x[element][own] if x.ndim else x
        return Case(arguments, (), n, case.s)

    def cut_short(self, name: str, x: Tensor) -> Tensor:
        return x[..., :-1] if x.ndim else torch.zeros(7, dtype=x.dtype)

    def members(self, known: Known, d: Any, events: Tensor) -> Tensor:
        """What stands behind the last step is padding."""
        passed = torch.tensor([*PASSED.values(), (0, 0)])
        i, j = passed[events.clamp(-1, SKIP_COLUMN)].cumsum(-2).unbind(-1)
        n, m = d.lengths[..., None], d.target_lengths[..., None]
        before = torch.nn.functional.pad((i < n) | (j < m), (1, 0), value=True)[..., :-1]
        return super().members(known, d, events.where(before & (n + m > 0), -1))

    def test_number_of_events(self):
        for n, s in product(range(5), (1, 2, 3)):
            assert len(self.events(n, s)) == self.count(n, s)
            case = self.case(seeded(), (), n, s).changed(lambda _, x: torch.zeros_like(x))
            log_count = torch.tensor(float(self.count(n, s)), dtype=F64).log()
            assert_close(self.make(case).log_partition(), log_count)

    def test_decoded_events_are_the_number_of_their_paths(self):
        """Enumerated by the library as well."""
        d = self.make(self.usual(3, batch=(2,)))
        assert len(d.enumerate_support()) == self.count(*self.sizes)


class Linear(TestAlignment):
    """The same, for the checks of every kind."""


class Affine(TestAlignment):
    """Some scores depend on both places, some on none."""

    gap = "affine"
    gaps: ClassVar[dict[str, str]] = {
        "delete": "full", "insert": "own", "delete_extend": "own", "insert_extend": ""
    }  # fmt: skip


class Local(Affine):
    """With steps that leave out rows and columns, rows first."""

    mode = "local"

    def events(self, n: int, s: int) -> list[Event]:
        m, found = self.columns(n, s), []
        for i, j in product(range(n + 1), range(m + 1)):
            for k, width in product(range(n + 1 - i), range(m + 1 - j)):
                before = (SKIP_ROW,) * i + (SKIP_COLUMN,) * j
                after = (SKIP_ROW,) * (n - i - k) + (SKIP_COLUMN,) * (m - j - width)
                for walk in walks(k, width, (MATCH, DELETE, INSERT)):
                    if walk and walk[0] == walk[-1] == MATCH:
                        found.append(before + walk + after)
        return [*found, (SKIP_ROW,) * n + (SKIP_COLUMN,) * m]

    def count(self, n: int, s: int) -> int:
        m, total = self.columns(n, s), 1
        for k, width in product(range(1, n + 1), range(1, m + 1)):
            inner = int(k == width == 1) + (delannoy(k - 2, width - 2) if min(k, width) > 1 else 0)
            total += (n - k + 1) * (m - width + 1) * inner
        return total


class LocalLinear(Local):
    gap = "linear"
    gaps: ClassVar[dict[str, str]] = {"delete": "", "insert": "own"}


class Warping(TestAlignment):
    """Rows and columns may both be repeated."""

    mode, gap = "warping", "linear"
    gaps: ClassVar[dict[str, str]] = {}
    steps = (MATCH, DELETE, INSERT)

    def columns(self, n: int, s: int) -> int:
        return max(s - (n + 1) % 2, 1) if n else 0

    def events(self, n: int, s: int) -> list[Event]:
        rest = walks(n - 1, self.columns(n, s) - 1, self.steps) if n else []
        return [(MATCH, *walk) for walk in rest] if n else [()]

    def count(self, n: int, s: int) -> int:
        return delannoy(n - 1, self.columns(n, s) - 1) if n else 1

    def cells(self, event: Event) -> list[tuple[int, int]]:
        return [(i + PASSED[step][0] - 1, j + PASSED[step][1] - 1) for step, i, j in places(event)]

    def parts_of(self, event: Event) -> list[Part]:
        return [("match", cell) for cell in self.cells(event)]

    def correct(self, event: Event) -> list[Any]:
        return self.cells(event)


class Monotone(Warping):
    """Each row has one column."""

    mode = "monotone"
    steps = (MATCH, DELETE)
    sizes = (4, 3)
    lengths = ((4, 1, 0), (3, 2, 4))

    def columns(self, n: int, s: int) -> int:
        return min(n, max(s - n % 2, 1))

    def count(self, n: int, s: int) -> int:
        return comb(n - 1, self.columns(n, s) - 1) if n else 1


KINDS = [Linear, Affine, Local, LocalLinear, Warping, Monotone]


@pytest.mark.parametrize("tier", ["cpu", "reference"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(8)
def test_every_kind_against_enumeration(kind, tier):
    """Values, derivatives and decoding; potentials that are -inf, far apart, or padding."""
    family = kind()
    for dtype in (F64, F32):
        for case in family.cases(dtype):
            family.check(case, tier)
        g = seeded(1)
        family.check(
            family.ragged(2, dtype).changed(
                lambda _, x, g=g: x.masked_fill(torch.rand(x.shape, generator=g) < 0.3, -torch.inf)
            ),
            tier,
        )
        family.check(family.ragged(3, dtype).changed(lambda _, x: 1e4 * x), tier)
    case = family.ragged(4)
    masks = family.padding(case)
    spoilt = case.changed(lambda name, x: x.masked_fill(masks[name], torch.nan)).leaves()
    family.check(case.leaves(), tier)
    plain, d = family.make(case, tier), family.make(spoilt, tier)
    assert torch.equal(d.log_partition(), plain.log_partition())
    for name, x in d.marginals().items():
        assert torch.equal(x, plain.marginals()[name])
    assert torch.equal(d.mode, plain.mode)


@pytest.mark.parametrize("query", [
    "number_of_events", "min_risk", "forest_is_the_same_distribution", "third_derivatives",
    "moments_under_hard_constraints", "samples_have_the_right_frequencies",
    "log_prob_is_normalised_and_adds_up_the_parts",
    "what_stands_in_the_padding_of_an_event_does_not_matter",
    "support_is_what_is_enumerated", "corrupted_events_are_outside_unless_they_are_events",
    "indexing", "sparsemap", "distinct_samples_of_impossible_and_of_huge_potentials",
])  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(8)
def test_queries_of_every_kind(kind, query):
    getattr(kind(), f"test_{query}")()


def needleman_wunsch(match: Tensor, delete: float, insert: float) -> float:
    """The best score, by the textbook's recursion."""
    n, m = match.shape
    best = {(0, 0): 0.0}
    for i, j in product(range(n + 1), range(m + 1)):
        ways = [best[i - 1, j] + delete] if i else []
        ways += [best[i, j - 1] + insert] if j else []
        ways += [best[i - 1, j - 1] + float(match[i - 1, j - 1])] if i and j else []
        best[i, j] = max(ways, default=0.0)
    return best[n, m]


def smith_waterman(match: Tensor, delete: float, insert: float) -> float:
    """The best score of a local alignment."""
    n, m = match.shape
    best = {}
    for i, j in product(range(n + 1), range(m + 1)):
        ways = [0.0]
        if i and j:
            ways += [best[i - 1, j] + delete, best[i, j - 1] + insert]
            ways += [best[i - 1, j - 1] + float(match[i - 1, j - 1])]
        best[i, j] = max(ways)
    return max(best.values())


def dynamic_time_warping(costs: Tensor, temperature: float) -> float:
    """Soft-DTW by its recursion (Cuturi & Blondel, algorithm 1); at temperature 0 the minimum."""
    n, m = costs.shape
    least = {(i, j): float("inf") for i in range(n + 1) for j in range(m + 1)}
    least[0, 0] = 0.0
    for i, j in product(range(1, n + 1), range(1, m + 1)):
        ways = torch.tensor([least[i - 1, j], least[i, j - 1], least[i - 1, j - 1]], dtype=F64)
        soft = -temperature * (-ways / temperature).logsumexp(0) if temperature else ways.min()
        least[i, j] = float(costs[i - 1, j - 1]) + float(soft)
    return least[n, m]


def test_the_modes_score_is_that_of_the_textbooks():
    match = torch.randn(9, 7, generator=seeded(5), dtype=F64)
    delete, insert = torch.tensor(-0.4, dtype=F64), torch.tensor(-0.3, dtype=F64)
    for mode, best in (("global", needleman_wunsch), ("local", smith_waterman)):
        d = Alignment(match, delete, insert, mode=mode)
        assert_close(d._score(d.mode), best(match, -0.4, -0.3))
    d = Alignment(match[:4], delete, insert, mode="local")
    assert_close(
        Alignment(match[:4] - 9, delete, insert, mode="local").log_partition().exp() > 1,
        torch.tensor(True),
    )
    assert torch.equal(Alignment(match[:1] * 0 - 1, delete, insert, mode="local").mode,
                       torch.tensor([3, 4, 4, 4, 4, 4, 4, 4]))  # fmt: skip
    assert d.cells(d.mode).shape == (11, 2)


@pytest.mark.parametrize("temperature", [1.0, 0.1, 1e-3, 0.0])
def test_soft_dtw(temperature):
    """And its limit; costs over temperature are far outside what exp can represent."""
    costs = torch.rand(2, 12, 9, generator=seeded(6), dtype=F64).requires_grad_()
    found = soft_dtw(costs, temperature)
    truth = torch.tensor([dynamic_time_warping(x, temperature) for x in costs.detach()], dtype=F64)
    assert_close(found, truth)
    (slope,) = grad(found.sum(), costs)
    if temperature == 0:
        path = Alignment.dtw(costs.detach()).mode
        assert_close(slope, Alignment.dtw(costs.detach()).parts(path)["match"])


def test_long_sequences_lose_nothing():
    """A valley along the border that only a late entry makes the best: 3000 nats below the rest."""
    costs = torch.full((300, 300), 50.0)
    costs[0, :], costs[:, -1] = 20.0, 0.0
    costs[0, -1] = -30.0  # no tie
    d = Alignment.dtw(costs)
    path = d.parts(d.mode)["match"]
    assert bool((path[0] == 1).all())
    assert bool((path[:, -1] == 1).all())
    (slope,) = grad(soft_dtw(costs.requires_grad_()), costs)
    assert_close(slope, path)


def test_monotonic_alignment_search():
    scores = torch.tensor([[3.0, 0, 0], [3, 1, 0], [0, 2, 0], [9, 1, 0], [0, 0, 1]])
    d = Alignment(scores, mode="monotone")
    assert d.cells(d.mode).tolist() == [[0, 0], [1, 0], [2, 1], [3, 1], [4, 2]]
    with pytest.raises(ArgumentError, match=r"^delete must be None"):
        Alignment(scores, scores[:, 0], mode="monotone")


def test_columns_without_a_row_have_no_alignment():
    d = Alignment(torch.zeros(2, 1, 2), lengths=[0, 0], target_lengths=[2, 0], mode="monotone")
    assert d.log_prob(d.mode).tolist() == [-torch.inf, 0.0]


def test_one_column_has_one_monotone_alignment():
    for tier in ("cpu", "reference"):
        assert Alignment(torch.zeros(3, 1), mode="monotone", tier=tier).log_partition() == 0


def test_arguments_that_make_no_sense_are_refused():
    match, one = torch.zeros(3, 4), torch.tensor(0.0)
    for arguments, message in (
        ({}, "^delete must be given"),
        ({"delete": one, "insert": one, "gap": "affine"}, "^delete_extend must be given"),
        ({"delete": one, "insert": one, "insert_extend": one}, "^insert_extend must be None"),
        ({"delete": one, "insert": one, "mode": "glocal"}, "^mode must be one of global, local"),
        ({"delete": one, "insert": one, "gap": "convex"}, "^gap must be one of linear, affine"),
        ({"delete": torch.zeros(4), "insert": one}, r"^delete must be \[3\], \[\] or \[3, 5\]"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Alignment(match, **arguments)
    with pytest.raises(ArgumentError, match=r"^temperature must be a positive number"):
        Alignment.dtw(match, -1.0)
    d = Alignment(match, one, one)
    for wrong in ([0, 0, 0, -1, -1, -1, -1], [0, 0, 0, 0, 2, 2, 2], [3, 0, 0, 2, 2, -1, -1]):
        with pytest.raises(ArgumentError, match="steps from the first row and column"):
            d.log_prob(torch.tensor(wrong))
    warping = Alignment(match, mode="warping")
    for wrong in ([2, 0, 0, 0, -1, -1, -1], [1, 0, 0, 2, 2, -1, -1]):  # before the first match
        with pytest.raises(ArgumentError, match="steps from the first row and column"):
            warping.log_prob(torch.tensor(wrong))
    assert d.log_prob(torch.tensor([0, 0, 0, 2, 7, 7, 7])) == d.log_prob(
        torch.tensor([0, 0, 0, 2, -1, -1, -1])
    )


def test_scores_that_a_batch_shares_stay_shared():
    d = Alignment(torch.zeros(4, 3, 2), torch.tensor(-1.0), torch.zeros(2))
    for other in (d[1:3], d[2], d.expand((5, 4))):
        for name in ("delete", "insert"):
            assert other.potentials[name] is d.potentials[name]
        assert_close(other.log_partition(), d.log_partition()[0].expand(other.batch_shape))
