"""torch.func, forward mode, graphs and every query on a GPU, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence
from torch.func import grad, hessian, jacrev, jvp, vmap

import inout
from inout.constraints import bio
from tests.support import assert_close

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
    pytest.mark.filterwarnings(
        "ignore:The .grad attribute of a Tensor:UserWarning", "ignore:`torch.jit:DeprecationWarning"
    ),
]

N = 4


def chain(x: Tensor) -> inout.StructuredDistribution:
    return inout.LinearChain(x, x[0, :3] + x[-1, :3].T, lengths=lengths(x), tier=tier(x))


def moving_chain(x: Tensor) -> inout.StructuredDistribution:
    return inout.LinearChain(
        x, x[:, 1:, :, None] - x[:, :-1, None], lengths=lengths(x), tier=tier(x)
    )


def grammar(x: Tensor) -> inout.StructuredDistribution:
    left, right = x[0, 1:3].flatten()[:5], x[-1, :2].flatten()[1:]
    rules = x[0, 0, :2, None, None] + left[:, None] * right
    return inout.PCFG(x[0, 1, :2], rules, x, lengths(x), tier=tier(x))


def projective(x: Tensor) -> inout.StructuredDistribution:
    return inout.DependencyTree(x[..., :1] + x[..., 1:2].mT, x[..., 2], lengths(x), tier=tier(x))


def crossing(x: Tensor) -> inout.StructuredDistribution:
    arcs = x[..., :1] * 2 + x[..., 1:2].mT
    return inout.DependencyTree(arcs, x[..., 2], lengths(x), projective=False)


def lengths(x: Tensor) -> Tensor:
    """Ragged; the first is whole."""
    return torch.tensor([x.shape[1] - k % 3 for k in (0, 2, 1) * len(x)][: len(x)]).to(x.device)


def tier(x: Tensor) -> str | None:
    """Plain torch code on the CPU, where it can be: little is compiled there."""
    return None if x.is_cuda else "reference"


FAMILIES = [chain, moving_chain, grammar, projective, crossing]
every_family = pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)

Make = Callable[[Tensor], inout.StructuredDistribution]


def problem(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, N, 3, generator=generator, dtype=torch.float64)


def on_both(function: Callable[[Tensor], Any], *inputs: Tensor) -> None:
    """Fail unless a function gives the same on the GPU as on the CPU."""
    expected = function(*inputs)
    found = function(*(x.cuda() for x in inputs))
    if isinstance(expected, Tensor):
        expected, found = (expected,), (found,)
    for x, y in zip(found, expected, strict=True):
        assert x.is_cuda
        assert_close(x, y, rtol=1e-9, atol=1e-9)


@every_family
def test_torch_func(make: Make) -> None:
    x, u, several = problem(), problem(1), torch.stack([problem(2), problem(3)])

    def total(x: Tensor) -> Tensor:
        return make(x).log_partition().sum()

    on_both(grad(total), x)
    on_both(lambda x, u: jvp(total, (x,), (u,)), x, u)
    on_both(lambda x, u: jvp(grad(total), (x,), (u,)), x, u)
    on_both(vmap(total), several)
    on_both(vmap(grad(total)), several)
    on_both(jacrev(lambda x: make(x).log_partition()), x)


@pytest.mark.parametrize("make", [chain, grammar, projective, crossing], ids=lambda m: m.__name__)
def test_hessians(make: Make) -> None:
    x = problem()[:, :3]
    on_both(hessian(lambda x: make(x).log_partition()[0]), x)


@every_family
def test_gradients_of_each_sample(make: Make) -> None:
    """As differential privacy needs them: of a parameter that all sentences share."""
    x, scale = problem(), torch.ones(3, dtype=torch.float64)

    def loss(scale: Tensor, own: Tensor) -> Tensor:
        return make(own[None] * scale).log_partition().sum()

    on_both(lambda scale, x: vmap(grad(loss), (None, 0))(scale, x), scale, x[:, :3])


@every_family
def test_second_derivatives_by_autograd(make: Make) -> None:
    def twice(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(make(x).log_partition().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), x)
        return second

    on_both(twice, problem())


@every_family
def test_gradients_are_the_same_every_time(make: Make) -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(64, 33, 3, generator=generator).cuda().requires_grad_()

    def gradient() -> tuple[Tensor, Tensor]:
        log_z = make(x).log_partition()
        return log_z.detach(), torch.autograd.grad(log_z.sum(), x)[0]

    first = gradient()
    for _ in range(4):
        for one, other in zip(gradient(), first, strict=True):
            assert torch.equal(one, other)


@every_family
def test_queries(make: Make) -> None:
    x, y = problem(), problem(1)
    on_both(lambda x: make(x).entropy(), x)
    on_both(lambda x, y: make(x).cross_entropy(make(y)), x, y)
    on_both(lambda x, y: kl_divergence(make(x), make(y)), x, y)
    on_both(lambda x: make(x).mode, x)
    on_both(lambda x: make(x).min_risk(), x)
    on_both(lambda x: make(x).topk(5), x)
    on_both(lambda x: tuple(make(x).marginals().values()), x)
    on_both(lambda x: tuple(make(x).sparsemap().marginals.values()), x)

    def second(x: Tensor) -> tuple[Tensor, ...]:
        d = make(x)
        f = {name: p.detach().cos() for name, p in d.potentials.items()}
        name = next(iter(f))
        whole = {name: torch.where(f[name] > 0, 1.0, 0.0).to(x)}
        return (
            d.covariance(f, f),
            d.expectation(f),
            d.moments([f], (3,), kind="central").values,
            d.histogram(whole).probabilities,
        )

    on_both(second, x)


@every_family
def test_samples(make: Make) -> None:
    d = make(problem().cuda())
    events = d.sample((50,), generator=torch.Generator().manual_seed(3))
    assert events.is_cuda
    assert bool(d.support.check(events).all())
    assert bool((d.log_prob(events) > -torch.inf).all())
    distinct = d.sample_without_replacement(3, generator=torch.Generator().manual_seed(4))
    assert distinct.events.is_cuda
    assert bool((d.log_prob(distinct.events) > -torch.inf)[:, 0].all())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_loss_of_a_crf_in_one_graph(backend: str) -> None:
    """The layer itself, with hard constraints, and its gradients."""
    crf = inout.nn.CRF(5, bio(["O", "B-x", "I-x", "B-y", "I-y"])).cuda()
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 6, 5, generator=generator).cuda().requires_grad_()
    gold = torch.zeros(3, 6, dtype=torch.long, device="cuda")
    sizes = torch.tensor([6, 2, 4], device="cuda")

    def loss(scores: Tensor, gold: Tensor, sizes: Tensor) -> Tensor:
        return crf(2 * scores, gold, lengths=sizes)

    torch.compiler.reset()
    graph = torch.compile(loss, backend=backend, fullgraph=True)
    inputs = [scores, *crf.parameters()]
    found, expected = graph(scores, gold, sizes), loss(scores, gold, sizes)
    assert_close(found, expected)
    for x, y in zip(
        torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        assert_close(x, y)
