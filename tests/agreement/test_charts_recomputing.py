"""Trees of a batch whose charts are discarded and computed again, a few at a time."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from inout import ArgumentError
from inout.distributions import PCFG, SpanTree
from inout.kernels.autograd import differentiable_log_partition
from inout.kernels.recomputing import group_size
from inout.kernels.spans.cpu.passes import CpuTreePasses
from tests.seeds import seeds
from tests.support import assert_close


def draw(family: str, seed: int, dtype: torch.dtype):
    """A family, its potentials, with some masked, of any range, and uneven lengths, also 0."""
    generator = torch.Generator().manual_seed(seed)
    n, s, nt = (int(torch.randint(1, most, (), generator=generator)) for most in (8, 4, 4))
    n += family != "spans"  # a grammar has no tree over one word
    batch = [(5,), (2, 3), (9,), (1, 4)][seed % 4]
    spread = [1.0, 50.0, 1.0, 1e4][seed // 4 % 4]

    def normal(*shape: int) -> torch.Tensor:
        values = torch.randn(shape, generator=generator, dtype=dtype) * spread
        masked = torch.rand(shape, generator=generator) < 0.1 * (seed % 3)
        return values.masked_fill(masked, -torch.inf)

    lengths = torch.randint(0, n + 1, batch, generator=generator)
    if family == "spans":
        return SpanTree, [normal(*batch, n, n, s)], lengths
    rules = (nt, nt + s, nt + s)
    own = {"shared": rules, "expanded": (*(1 for _ in batch), *rules), "own": (*batch, *rules)}
    return PCFG, [normal(nt), normal(*own[family]), normal(*batch, n, s)], lengths


def derivatives(made, potentials):
    """log Z, its gradient, and that of the sum of the gradient's squares."""
    own = [x.clone().requires_grad_() for x in potentials]
    log_z = made(*own).log_partition()
    total = log_z.where(log_z > -torch.inf, 0.0)
    weights = torch.linspace(-1.0, 2.0, total.numel(), dtype=total.dtype).reshape(total.shape)
    first = torch.autograd.grad(total, own, weights, create_graph=True, materialize_grads=True)
    squares = sum((x**2).sum() for x in first)
    options = {"materialize_grads": True, "allow_unused": True}
    return log_z.detach(), *first, *torch.autograd.grad(squares, own, **options)


@pytest.mark.parametrize("family", ["spans", "shared", "expanded", "own"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("seed", seeds(32, few=16))
@pytest.mark.few(24)
def test_numbers_and_derivatives_are_the_same(seed, dtype, family):
    kind, potentials, lengths = draw(family, seed, dtype)
    plain = derivatives(lambda *x: kind(*x, lengths=lengths), potentials)
    ours = derivatives(lambda *x: kind(*x, lengths=lengths, memory="sqrt"), potentials)
    assert torch.equal(ours[0], plain[0])
    for found, expected in zip(ours[1:], plain[1:], strict=True):
        assert found.dtype == expected.dtype
        exact = dtype == torch.float64
        assert_close(found, expected, rtol=1e-12 if exact else 1e-4, atol=1e-11 if exact else 1e-4)
    # What belongs to one element is the same to the last digit.
    assert torch.equal(ours[len(potentials)], plain[len(potentials)])


@pytest.mark.parametrize("family", ["spans", "shared"])
def test_third_derivatives_and_the_reference(family):
    kind, potentials, lengths = draw(family, 2, torch.float64)
    found = []
    for options in ({}, {"memory": "sqrt"}, {"memory": "sqrt", "tier": "reference"}):
        own = [x.clone().requires_grad_() for x in potentials]
        trees = kind(*own, lengths=lengths.clamp(min=2), **options)
        log_z = trees.log_partition().sum()
        for _ in range(2):
            log_z = sum(
                (x.nan_to_num(0.0) ** 2).sum()
                for x in torch.autograd.grad(log_z, own, create_graph=True)
            )
        found.append(torch.autograd.grad(log_z, own))
    for other in found[1:]:
        for x, y in zip(other, found[0], strict=True):
            assert_close(x, y, rtol=1e-9, atol=1e-9)


def test_marginals_and_entropy():
    kind, potentials, lengths = draw("shared", 0, torch.float64)
    lengths = lengths.clamp(min=2)
    plain, ours = (kind(*potentials, lengths=lengths, memory=m) for m in (None, "sqrt"))
    assert_close(ours.entropy(), plain.entropy(), rtol=1e-12, atol=1e-12)
    for name, expected in plain.marginals().items():
        assert_close(ours.marginals()[name], expected, rtol=1e-12, atol=1e-12)


def test_at_most_a_group_is_alive(monkeypatch):
    made: list[weakref.ref[CpuTreePasses]] = []
    begin, most = CpuTreePasses.__init__, [0]

    def counted(self, scores, lengths):
        begin(self, scores, lengths)
        made.append(weakref.ref(self))
        most[0] = max(most[0], sum(len(x().scores) for x in made if x() is not None))

    monkeypatch.setattr(CpuTreePasses, "__init__", counted)
    potentials = torch.zeros(16, 4, 4, 1, requires_grad=True)
    gc.disable()  # nothing may wait for it
    try:
        log_z = SpanTree(potentials, memory="sqrt").log_partition().sum()
        assert not any(x() is not None for x in made)
        log_z.backward()
    finally:
        gc.enable()
    assert most[0] == 4
    assert not any(x() is not None for x in made)


def test_a_discarded_loss_takes_its_passes_along():
    """Without the help of Python's garbage collector, which may come late."""
    potentials = torch.zeros(1, 3, 3, dtype=torch.float64, requires_grad=True)
    passes = CpuTreePasses(potentials, torch.tensor([3]))
    alive, made = weakref.ref(passes), [passes]
    log_z = differentiable_log_partition(lambda _: made.pop(), torch.Tensor.sum, potentials)
    gc.disable()
    try:
        del passes
        assert alive() is not None
        del log_z
        assert alive() is None
    finally:
        gc.enable()


def test_a_budget_in_bytes():
    assert group_size(None, 7, 100) == 7
    assert group_size("sqrt", 7, 100) == 3
    assert [group_size(m, 7, 100, 50) for m in (150, 349, 350, 10**6)] == [1, 2, 3, 7]
    assert group_size(10, 0, 100) == 0
    potentials = torch.zeros(3, 5, 5, 2, requires_grad=True)
    with pytest.raises(ArgumentError, match="at least 3400 bytes"):
        SpanTree(potentials, memory=3399).log_partition()
    assert SpanTree(potentials, memory=3400).log_partition().shape == (3,)
    for bad in (0, -1, True, "little"):
        with pytest.raises(ArgumentError, match="memory"):
            SpanTree(potentials, memory=bad)


@pytest.mark.parametrize("family", ["spans", "shared"])
def test_vmap_over_batches(family):
    kind, potentials, lengths = draw(family, 0, torch.float64)

    def log_z(scale, memory):
        own = [x * scale for x in potentials]
        return kind(*own, lengths=lengths, memory=memory).log_partition()

    scales = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    truth = torch.stack([log_z(scale, None) for scale in scales])
    assert_close(torch.func.vmap(lambda scale: log_z(scale, "sqrt"))(scales), truth)
