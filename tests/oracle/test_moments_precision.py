"""How many digits moments have: against exact rationals, at high orders, where parts cancel."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
import torch

from inout import LinearChain, PrecisionError
from inout.series import Moments
from tests.oracle.exact_chains import Table, exact_moments, printed_theorem_3

METHODS = ("polynomial", "circle", "auto")


def integer_chain(n: int, s: int, seed: int, offset: int = 0) -> tuple[Table, Table, Table]:
    """Whole weights of labels and pairs, some of them 0, and whole values."""
    draw = random.Random(seed)
    nodes = [[draw.randint(1 if y == 0 else 0, 9) for y in range(s)] for _ in range(n)]
    pairs = [[draw.choice([1, 1, 2, 50]) for _ in range(s)] for _ in range(s)]
    values = [[offset + draw.randint(-3, 3) for _ in range(s)] for _ in range(n)]
    return nodes, pairs, values


def chain(nodes: Table, pairs: Table) -> LinearChain:
    return LinearChain(
        torch.tensor(nodes, dtype=torch.float64).log(),
        torch.tensor(pairs, dtype=torch.float64).log(),
    )


def of_labels(values: Table) -> dict[str, torch.Tensor]:
    return {"emissions": torch.tensor(values, dtype=torch.float64)}


def worst(found: Moments, truth: list[Fraction]) -> float:
    """The largest error, relative to the absolute moment (odd: at least the even norm below)."""
    errors = []
    for n, true in enumerate(truth):
        even = n - n % 2
        scale = float(truth[even]) ** (n / even) if even else max(1.0, abs(float(true)))
        errors.append(float(abs(Fraction(float(found[n])) - true)) / scale)
    return max(errors)


@pytest.mark.few(3)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (1, 0), (2, 100), (3, -1000)])
def test_order_20_on_200_words_has_8_digits(method: str, seed: int, offset: int) -> None:
    nodes, pairs, values = integer_chain(200, 3, seed, offset)
    d, f = chain(nodes, pairs), of_labels(values)
    raw, central = exact_moments(nodes, pairs, values, 20)
    for kind, truth in (("raw", raw), ("central", central)):
        found = d.moments(f, 20, kind=kind, method=method)
        assert worst(found, truth) < 1e-8
        assert float(found.error.max()) < 1e-8
        for n in range(2, 21, 2):  # where the error's scale is the moment itself
            off = abs(Fraction(float(found[n])) - truth[n]) / truth[n]
            assert float(off) <= float(found.error[n]), (n, float(off))


def test_theorem_3_as_printed_aliases_and_the_circle_does_not() -> None:
    """Six nodes, three labels: the errors that 2N points make, which no rounding explains."""
    nodes, pairs, values = integer_chain(6, 3, seed=5)
    raw, _ = exact_moments(nodes, pairs, values, 15)
    d, f = chain(nodes, pairs), of_labels(values)
    for size, least in ((4, 1e-3), (8, 1e-9)):
        printed = printed_theorem_3(nodes, pairs, values, size)
        printed = printed / printed[0]
        truth = [float(x) for x in raw[:size]]
        wrong = max(abs(p - t) / max(1.0, abs(t)) for p, t in zip(printed, truth, strict=True))
        assert wrong > least, size
        found = d.moments(f, size - 1, method="circle").values.tolist()
        right = max(abs(x - t) / max(1.0, abs(t)) for x, t in zip(found, truth, strict=True))
        assert right < 1e-8, size


@pytest.mark.parametrize("method", METHODS)
def test_sums_whose_parts_cancel(method: str) -> None:
    """F is a small difference of large parts: either the digits are there, or an error is."""
    n, s = 40, 2
    nodes, pairs, _ = integer_chain(n, s, seed=7)
    nodes = [[1 + x for x in row] for row in nodes]
    # Labels hardly ever change, and the values of one half are minus those of the other.
    pairs = [[10**6, 1], [1, 10**6]]
    values = [[(1 if t < n // 2 else -1) * (-1) ** y * 1000 for y in range(s)] for t in range(n)]
    _, central = exact_moments(nodes, pairs, values, 16)
    try:
        found = chain(nodes, pairs).moments(of_labels(values), 16, kind="central", method=method)
    except PrecisionError:
        assert method != "auto", "one of the ways must manage"
        return
    assert worst(found, central) < 1e-8


@pytest.mark.parametrize("method", METHODS)
def test_rare_labels_of_great_value(method: str) -> None:
    """High moments are made by events that hardly ever happen."""
    nodes = [[10**12, 1] for _ in range(30)]
    pairs, values = [[1, 1], [1, 1]], [[0, 10**4] for _ in range(30)]
    raw, central = exact_moments(nodes, pairs, values, 12)
    for kind, truth in (("raw", raw), ("central", central)):
        try:
            found = chain(nodes, pairs).moments(of_labels(values), 12, kind=kind, method=method)
        except PrecisionError:
            assert method == "circle"
            continue
        assert worst(found, truth) < 1e-8


@pytest.mark.few(1)
@pytest.mark.parametrize("order", [40, 80, 150])
def test_high_orders_are_right_or_refused(order: int) -> None:
    nodes, pairs, values = integer_chain(60, 2, seed=11)
    _, central = exact_moments(nodes, pairs, values, order)
    refused = 0
    for method in METHODS:
        try:
            found = chain(nodes, pairs).moments(
                of_labels(values), order, kind="central", method=method
            )
        except PrecisionError:
            refused += 1
        else:
            assert worst(found, central) < 1e-8, method
    assert refused < len(METHODS)


def test_what_cannot_be_had_is_an_error_that_says_what_to_do() -> None:
    nodes, pairs, values = integer_chain(50, 3, seed=13)
    d, f = chain(nodes, pairs), of_labels(values)
    with pytest.raises(PrecisionError, match=r"order \d+ .*precision=1e-15.*set precision="):
        d.moments(f, 20, precision=1e-15)
    with pytest.raises(PrecisionError, match="histogram"):
        d.moments(f, 151)
    huge = {"emissions": f["emissions"] * 1e200}
    with pytest.raises(PrecisionError, match="range of floats"):
        d.moments(huge, 3)
    # Large functions are no matter as long as the moments are numbers.
    small = d.moments(f, 4, kind="central").values
    large = d.moments({"emissions": f["emissions"] * 2.0**200}, 4, kind="central").values
    powers = torch.tensor([2.0**200], dtype=torch.float64) ** torch.arange(5)
    torch.testing.assert_close(large, small * powers, rtol=1e-12, atol=0.0)


def test_cumulants_of_a_long_chain() -> None:
    """Independent labels: cumulants are sums over positions, of a Bernoulli variable each."""
    chance, n = 0.3, 500
    emissions = torch.tensor([1 - chance, chance], dtype=torch.float64).log().expand(n, 2)
    d = LinearChain(emissions, torch.zeros(2, 2, dtype=torch.float64))
    f = {"emissions": torch.tensor([0.0, 1.0], dtype=torch.float64)}
    p, q = chance, 1 - chance
    truth = [0.0, p, p * q, p * q * (q - p), p * q * (1 - 6 * p * q)]
    for method in ("polynomial", "circle"):
        found = d.moments(f, 4, kind="cumulants", method=method).values
        scale = torch.tensor([n * x for x in truth], dtype=torch.float64)
        torch.testing.assert_close(found, scale, rtol=1e-6, atol=1e-9)


def test_a_constant_has_no_spread() -> None:
    """The number of labels of a chain: all central moments vanish, to rounding."""
    nodes, pairs, _ = integer_chain(100, 3, seed=17)
    d = chain(nodes, pairs)
    for method in METHODS:
        one = {"emissions": torch.ones(1, dtype=torch.float64)}
        found = d.moments(one, 12, kind="central", method=method).values
        assert float(found[1:].abs().max()) < 1e-12
        raw = d.moments(one, 12, method=method).values
        powers = torch.tensor(100.0, dtype=torch.float64) ** torch.arange(13)
        torch.testing.assert_close(raw, powers, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("offset", [1e9, 1e10, 1e12])
def test_large_offsets_cost_no_digits(offset: float) -> None:
    """Values are divided by powers of two only, which is exact."""
    d = LinearChain(torch.zeros(1, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64))
    f = {"emissions": torch.tensor([offset, offset + 3], dtype=torch.float64)}
    for method in METHODS:
        found = d.moments(f, 4, kind="central", method=method).values
        truth = torch.tensor([1.0, 0.0, 2.25, 0.0, 2.25**2], dtype=torch.float64)
        torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-9)


def test_rare_labels_of_single_precision_count() -> None:
    emissions = torch.zeros(3, 2)
    emissions[:, 1] = -110.0  # beyond the range of float32 as a probability
    f = {"emissions": torch.tensor([0.0, 1.0])}
    found = LinearChain(emissions, torch.zeros(2, 2)).moments(f, 2)
    rare = 3 * torch.tensor(-110.0, dtype=torch.float64).exp()
    torch.testing.assert_close(found[1], rare, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(found[2], rare, rtol=1e-9, atol=0.0)


def test_moments_too_small_for_floats_are_refused() -> None:
    d = LinearChain(torch.zeros(1, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64))
    tiny = {"emissions": torch.tensor([0.0, 1e-300], dtype=torch.float64)}
    torch.testing.assert_close(float(d.moments(tiny, 1)[1]), 5e-301, rtol=1e-12, atol=0.0)
    with pytest.raises(PrecisionError, match="range of floats"):
        d.moments(tiny, 2)
