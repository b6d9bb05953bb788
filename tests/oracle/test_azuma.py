"""Azuma & Matsumoto: theorems 1, 2 and 4 with complex φ on the DAG of figures 1 and 2; section 4.

The drawing of figure 1 is not in the text, which says that the trellis encodes seven sequences.
This one does.
"""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Mapping, Sequence

import pytest
import torch

from inout import Facts, Forest, LinearChain, Program, SemiMarkov
from inout import moments as objectives
from tests.seeds import seeds
from tests.support import assert_close

# Labels of each position, and which follow which.
TRELLIS = [
    {"A": ["A", "B"], "B": ["B", "C"]},
    {"A": ["A", "B"], "B": ["A", "B"], "C": ["B"]},
    {"A": [], "B": []},
]
Node = tuple[object, ...]
Numbers = Mapping[Node, complex]


def dag() -> tuple[list[Node], list[tuple[Node, Node]]]:
    """Figure 2: nodes for labels and for adjacent pairs, in topological order, and arcs."""
    nodes: list[Node] = [("src",)]
    arcs: list[tuple[Node, Node]] = []
    for t, column in enumerate(TRELLIS):
        for label, following in column.items():
            here: Node = (t, label)
            nodes.append(here)
            if t == 0:
                arcs.append((("src",), here))
            if t == len(TRELLIS) - 1:
                arcs.append((here, ("snk",)))
            for other in following:
                pair: Node = (t, label, other)
                nodes.append(pair)
                arcs += [(here, pair), (pair, (t + 1, other))]
    order = {"src": -1, "snk": 99}
    nodes.append(("snk",))
    nodes.sort(key=lambda v: (order.get(str(v[0]), v[0]), len(v)))
    return nodes, arcs


def paths(nodes: list[Node], arcs: list[tuple[Node, Node]]) -> list[list[Node]]:
    """Ψ(G)."""
    found, agenda = [], [[nodes[0]]]
    while agenda:
        path = agenda.pop()
        if path[-1] == ("snk",):
            found.append(path)
        agenda += [[*path, v] for u, v in arcs if u == path[-1]]
    return found


def forward(
    phi: Numbers, f: Sequence[Numbers], orders: Sequence[int]
) -> dict[Node, dict[tuple[int, ...], complex]]:
    """α of theorem 1, equation 5."""
    nodes, arcs = dag()
    alpha: dict[Node, dict[tuple[int, ...], complex]] = {}
    for v in nodes:
        before = [u for u, w in arcs if w == v]
        alpha[v] = {}
        for n in itertools.product(*(range(1 + order) for order in orders)):
            if v == ("src",):
                alpha[v][n] = phi[v] * math.prod(fk[v] ** nk for fk, nk in zip(f, n, strict=True))
                continue
            total = 0j
            for m in itertools.product(*(range(1 + nk) for nk in n)):
                term = math.prod(
                    math.comb(nk, mk) * fk[v] ** mk for nk, mk, fk in zip(n, m, f, strict=True)
                )
                rest = tuple(nk - mk for nk, mk in zip(n, m, strict=True))
                total += term * sum(alpha[u][rest] for u in before)
            alpha[v][n] = phi[v] * total
    return alpha


def backward(
    phi: Numbers, f: Sequence[Numbers], orders: Sequence[int]
) -> dict[Node, dict[tuple[int, ...], complex]]:
    """β of theorem 2, equation 9."""
    nodes, arcs = dag()
    beta: dict[Node, dict[tuple[int, ...], complex]] = {}
    for v in reversed(nodes):
        beta[v] = {}
        for n in itertools.product(*(range(1 + order) for order in orders)):
            if v == ("snk",):
                beta[v][n] = float(not any(n))
                continue
            total = 0j
            for w in (w for u, w in arcs if u == v):
                for m in itertools.product(*(range(1 + nk) for nk in n)):
                    term = math.prod(
                        math.comb(nk, mk) * fk[w] ** mk for nk, mk, fk in zip(n, m, f, strict=True)
                    )
                    rest = tuple(nk - mk for nk, mk in zip(n, m, strict=True))
                    total += phi[w] * term * beta[w][rest]
            beta[v][n] = total
    return beta


def at_nodes(
    alpha: Mapping[Node, Mapping[tuple[int, ...], complex]],
    beta: Mapping[Node, Mapping[tuple[int, ...], complex]],
    n: Sequence[int],
) -> dict[Node, complex]:
    """What equation 8 multiplies f̂(v) by."""
    found = dict.fromkeys(alpha, 0j)
    for v in alpha:
        for m in itertools.product(*(range(1 + nk) for nk in n)):
            rest = tuple(nk - mk for nk, mk in zip(n, m, strict=True))
            ways = math.prod(math.comb(nk, mk) for nk, mk in zip(n, m, strict=True))
            found[v] += ways * alpha[v][m] * beta[v][rest]
    return found


def forest_of_paths(phi: Numbers) -> Forest:
    """alpha(v) of the paths to v, with |φ| for the weights of nodes."""
    nodes, arcs = dag()
    names = [str(v) for v in nodes]
    logs = [math.log(abs(phi[v])) for v in nodes]
    program = Program(
        "alpha(V) += first(V) * node(V).\n"
        "alpha(V) += alpha(U) * arc(U, V) * node(V).\n"
        "goal += alpha(V) * last(V)."
    )
    return program.ground(
        {
            "node": Facts([(x,) for x in names], torch.tensor(logs, dtype=torch.float64)),
            "arc": Facts([(str(u), str(v)) for u, v in arcs], torch.zeros(len(arcs)).double()),
            "first": Facts([("('src',)",)], torch.zeros(1).double()),
            "last": Facts([("('snk',)",)], torch.zeros(1).double()),
        }
    )


def drawn(seed: int, complex_weights: bool) -> tuple[Numbers, list[Numbers]]:
    nodes, _ = dag()
    x = torch.randn(len(nodes), 5, generator=torch.Generator().manual_seed(seed)).double().tolist()
    phi = {}
    for v, row in zip(nodes, x, strict=True):
        sign = cmath.exp(2j * row[1]) if complex_weights else math.copysign(1.0, row[1])
        phi[v] = math.exp(row[0]) * sign
    f = {v: row[2] for v, row in zip(nodes, x, strict=True)}
    g = {v: complex(row[3], row[4]) for v, row in zip(nodes, x, strict=True)}
    return phi, [f, g]


def exactly(values: Sequence[complex]) -> torch.Tensor:
    """Numbers in double precision, real if they are."""
    real = all(isinstance(x, float) for x in values)
    return torch.tensor(values, dtype=torch.float64 if real else torch.complex128)


METHODS = ("polynomial", "circle", ("circle", "polynomial"), ("polynomial", "circle"))


@pytest.mark.parametrize("complex_weights", [False, True])
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.few(2)
def test_figures_1_and_2_sums_of_complex_weights_over_seven_sequences(
    seed: int, complex_weights: bool
):
    phi, (f, g) = drawn(seed, complex_weights)
    nodes, arcs = dag()
    every = paths(nodes, arcs)
    assert len(every) == 7
    assert len(nodes) == 7 + 9 + 2  # labels, pairs, source and sink
    forest = forest_of_paths(phi)
    assert forest.count() == 7
    orders = (4, 2)
    alpha, beta = forward(phi, [f, g], orders), backward(phi, [f, g], orders)
    factors = {"node": exactly([phi[v] / abs(phi[v]) for v in nodes])}
    functions = [{"node": exactly([h[v] for v in nodes])} for h in (f, g)]
    total = sum(abs(math.prod(phi[v] for v in path)) for path in every)
    truth = torch.zeros(5, 3, dtype=torch.complex128)
    for n in itertools.product(range(5), range(3)):
        truth[n] = sum(
            math.prod(phi[v] for v in path)
            * sum(f[v] for v in path) ** n[0]
            * sum(g[v] for v in path) ** n[1]
            for path in every
        )
        assert cmath.isclose(alpha["snk",][n], complex(truth[n]), rel_tol=1e-9, abs_tol=1e-9)
    weighted = at_nodes(alpha, beta, orders)
    expected = exactly([weighted[v] for v in nodes]) / total
    for method in METHODS:
        found = forest.moments(functions, orders, factors=factors, method=method)
        assert_close(found.log_partition, math.log(total))
        size = float(truth.abs().max()) / total
        assert_close(found.values + 0j, truth / total, rtol=1e-9, atol=1e-9 * size)
        ours = forest.weighted_marginals(functions, orders, "node", factors=factors, method=method)
        assert_close(ours + 0j, expected, rtol=1e-9, atol=1e-9 * size)
        real = forest.weighted_marginals(functions[0], 4, "node", factors=factors, method="circle")
        assert real.is_complex() == complex_weights


def test_theorem_4_of_one_function_of_high_order():
    phi, (f, _) = drawn(5, complex_weights=False)
    nodes, arcs = dag()
    forest = forest_of_paths(phi)
    function = {"node": exactly([f[v] for v in nodes])}
    every = paths(nodes, arcs)
    weights = [abs(math.prod(phi[v] for v in path)) for path in every]
    for order in (1, 7, 40):
        sums = dict.fromkeys(nodes, 0.0)
        for path, weight in zip(every, weights, strict=True):
            for v in path:
                sums[v] += weight / sum(weights) * sum(f[u] for u in path) ** order
        expected = exactly([sums[v] for v in nodes])
        for method in ("auto", "circle", "polynomial"):
            found = forest.weighted_marginals(function, order, "node", method=method)
            assert_close(found, expected, rtol=1e-8, atol=1e-8 * float(expected.abs().max()))


def test_factors_of_zero_and_of_any_size_are_weights():
    generator = torch.Generator().manual_seed(3)
    emissions, transitions = (
        torch.randn(5, 3, generator=generator),
        torch.randn(3, 3, generator=generator),
    )
    chain = LinearChain(emissions.double(), transitions.double())
    factors = torch.randn(5, 3, generator=generator, dtype=torch.complex128) * 40
    factors[2, 1] = 0.0
    factors[0] = factors[0] * 1e-30
    f = {"emissions": torch.randn(5, 3, generator=generator).double()}
    phi, sums = [], []
    for labels in itertools.product(range(3), repeat=5):
        terms = [emissions[t, y] for t, y in enumerate(labels)]
        terms += [transitions[a, b] for a, b in itertools.pairwise(labels)]
        factor = math.prod(complex(factors[t, y]) for t, y in enumerate(labels))
        phi.append(factor * math.exp(float(torch.stack(terms).double().sum())))
        sums.append(sum(float(f["emissions"][t, y]) for t, y in enumerate(labels)))
    whole = sum(map(abs, phi))
    truth = [sum(p * x**n for p, x in zip(phi, sums, strict=True)) / whole for n in range(4)]
    for method in ("polynomial", "circle"):
        found = chain.moments(f, 3, factors={"emissions": factors}, method=method)
        assert_close(found.values, exactly(truth), rtol=1e-9, atol=1e-9)
        assert_close(found.log_partition, math.log(whole))
    again = chain.forest().moments(
        {"emissions": f["emissions"].flatten()}, 3, factors={"emissions": factors.flatten()}
    )
    assert_close(again.values, exactly(truth), rtol=1e-9, atol=1e-9)
    extreme = LinearChain(emissions.double() * 1e4, transitions.double())
    small = extreme.moments(f, 3, factors={"emissions": torch.full((5, 3), -1.0)})
    assert_close(small.values, -extreme.moments(f, 3).values)  # five signs
    single = LinearChain(emissions, transitions)
    narrow = single.moments(f, 3, factors={"emissions": factors})
    assert_close(narrow.values, exactly(truth), rtol=1e-4, atol=1e-4)


def test_sums_of_signed_weights_have_derivatives():
    generator = torch.Generator().manual_seed(4)
    emissions = torch.randn(4, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    transitions = torch.randn(2, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    factors = torch.randn(4, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    f = {"emissions": torch.randn(4, 2, generator=generator).double()}

    def sums(*given: torch.Tensor) -> torch.Tensor:
        e, t, c = given
        found = LinearChain(e, t).moments(f, 2, factors={"emissions": c})
        return found.values * found.log_partition.exp()

    def weighted(*given: torch.Tensor) -> torch.Tensor:
        e, t, c = given
        return LinearChain(e, t).weighted_marginals(f, 2, factors={"emissions": c})["emissions"]

    given = emissions, transitions, factors
    assert torch.autograd.gradcheck(sums, given)
    assert torch.autograd.gradgradcheck(sums, given, fast_mode=True)
    assert torch.autograd.gradcheck(weighted, given)


def test_section_4_fifteen_terms_suffice_for_nodes_of_length_5():
    """M ≈ 15 in equation 52, trellises whose nodes have lengths up to 5: value and gradient."""
    generator = torch.Generator().manual_seed(0)
    n, width, s = 20, 5, 2
    potentials = torch.randn(n, width, s, s, generator=generator, dtype=torch.float64)
    potentials.requires_grad_()
    gold = torch.full((n,), -1)  # labels at the ends of segments
    for end, label in ((2, 0), (3, 1), (8, 1), (10, 0), (15, 1), (19, 0)):
        gold[end] = label
    d = SemiMarkov(potentials)
    exact = objectives.expected_f_of_event(d, gold)
    (slope,) = torch.autograd.grad(exact, potentials)
    off = []
    for order in (3, 7, 15):
        found = objectives.expected_f_of_event(d, gold, method="series", order=order)
        (gradient,) = torch.autograd.grad(found, potentials)
        off.append(float((found - exact).detach().abs() + (gradient - slope).abs().max()))
    assert off[0] > off[1] > off[2]
    assert off[2] < 1e-6
