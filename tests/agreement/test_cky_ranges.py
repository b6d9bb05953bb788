"""Grammars whose weights span many orders of magnitude, against the reference in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout.distributions.pcfg import PCFG
from inout.kernels.cky import op
from tests.support import assert_close

INF = torch.inf
F32, F64 = torch.float32, torch.float64
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])

Potentials = tuple[Tensor, ...]


def derivatives(given: Potentials, tier: str | None = None) -> list[Tensor]:
    """log Z, its gradients, and its Hessian times a fixed direction, of root, rules and words."""
    own = [x.detach().requires_grad_() for x in given]
    log_z = PCFG(*own, tier=tier).log_partition()
    some = log_z.where(log_z > -INF, 0.0)
    first = grad(some.sum(), own, create_graph=True)
    along = [torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape) for x in own]
    change = sum((x * u).sum() for x, u in zip(first, along, strict=True))
    second = grad(change, own, materialize_grads=True)
    return [log_z, *first, *second]


def span_marginals(given: Potentials) -> Tensor:
    """Of all nonterminals over all spans, as the compiled passes give them."""
    grammar = PCFG(*given)
    return op.span_marginals(*grammar._flat(grammar.potentials))


def span_masses(given: Potentials) -> Tensor:
    """The same by the explicit forest."""
    grammar = PCFG(*(x.double() for x in given))
    _, n, nt, _ = grammar.size
    masses = torch.zeros(len(grammar._flat_lengths), n, n, nt, dtype=F64)
    forest = grammar.forest()
    for label, mass in zip(forest.labels, forest.marginals().tolist(), strict=True):
        if label.relation == "beta":
            masses[label.arguments] = mass
    return masses


def check(given: Potentials) -> None:
    """Values and derivatives are those of the reference, for the same numbers."""
    truth = derivatives(tuple(x.double() for x in given), "reference")
    for own, other in zip(derivatives(given), truth, strict=True):
        assert_close(own, other)
    assert_close(
        span_marginals(given), span_masses(given), atol=1e-4 if given[0].dtype == F32 else None
    )


def impossible_and_large(depth: float, dtype: torch.dtype) -> Potentials:
    """One tree S(T(P(v w) w) w) with two rules `depth` nats below the others.

    X and Y, which would be so much better there, are impossible for want of a rule: their outside
    values are exp(2 depth) times those of anything in the tree.
    """
    P, X, T, Y, S, v, w = range(7)  # noqa: N806
    rules = torch.full((5, 7, 7), -INF, dtype=dtype)
    for head, left, right, score in (
        (P, v, w, 0), (T, P, w, -depth), (T, X, w, 0), (Y, X, w, 0), (S, Y, w, 0), (S, T, w, -depth)
    ):  # fmt: skip
        rules[head, left, right] = score
    root = torch.full((5,), -INF, dtype=dtype)
    root[S] = 0
    words = torch.tensor([[[0, -INF], [-INF, 0], [-INF, 0], [-INF, 0]]], dtype=dtype)
    return root, rules, words


@pytest.mark.parametrize(
    ("depth", "dtype"), [(30.0, F32), (46.0, F32), (60.0, F32), (60.0, F64), (400.0, F64)]
)
def test_an_impossible_symbol_may_have_an_infinite_outside_value(depth, dtype):
    given = impossible_and_large(depth, dtype)
    check(given)
    assert_close(span_marginals(given)[0].sum((0, 1)), torch.tensor([1, 0, 1, 0, 1], dtype=F64))
