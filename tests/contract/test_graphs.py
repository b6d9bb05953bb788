"""Graphs of `torch.compile` and `torch.export`: the numbers and errors of eager code."""

from __future__ import annotations

import gc
import math
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported
from torch.autograd import grad
from torch.export import Dim, export

import inout
from inout import ArgumentError, InoutError, nn
from inout.constraints import bio
from inout.distributions import operators
from tests.support import assert_close

# torch hides them while it compiles, unless warnings are errors.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor:UserWarning", "ignore:`torch.jit:DeprecationWarning"
)

Make = Callable[[Tensor, Tensor], inout.StructuredDistribution]
COMPILER = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")


def linear_chain(x: Tensor, lengths: Tensor) -> inout.LinearChain:
    return inout.LinearChain(x, x[0, :2, :2] / 2, x[0, 0], x[:, 0], lengths)


def moving_chain(x: Tensor, lengths: Tensor) -> inout.LinearChain:
    return inout.LinearChain(x, x[:, 1:, :, None] + x[:, :-1, None] / 2, lengths=lengths)


def hmm(x: Tensor, lengths: Tensor) -> inout.HMM:
    symbols = torch.zeros(x.shape[:2], dtype=torch.long)
    return inout.HMM(x[0, 0], x[0, :2], x[1, :2].T, symbols, lengths)


def semi_markov(x: Tensor, lengths: Tensor) -> inout.SemiMarkov:
    return inout.SemiMarkov(x[:, :, None, None] + x[..., None, :, None], lengths)


def span_tree(x: Tensor, lengths: Tensor) -> inout.SpanTree:
    return inout.SpanTree(x[:, :, None] + x[:, None] / 2, lengths)


def pcfg(x: Tensor, lengths: Tensor) -> inout.PCFG:
    rules = x[None, 0, 0, 0] * torch.ones(1, 3, 3, dtype=x.dtype)
    return inout.PCFG(x[0, 0, :1], rules, x, lengths)


def projective(x: Tensor, lengths: Tensor) -> inout.DependencyTree:
    return inout.DependencyTree(x[..., :1] + x[..., 1:].mT, x[..., 0], lengths)


def labelled(x: Tensor, lengths: Tensor) -> inout.DependencyTree:
    arcs = x[:, :, None] + x[:, None] / 2
    return inout.DependencyTree(arcs, x, lengths, single_root=False, labelled=True)


def crossing(x: Tensor, lengths: Tensor) -> inout.DependencyTree:
    arcs = x[..., :1] + x[..., 1:].mT
    return inout.DependencyTree(arcs, x[..., 0], lengths, projective=False)


def spanning_tree(x: Tensor, lengths: Tensor) -> inout.SpanningTree:
    return inout.SpanningTree(x[..., :1] + x[..., 1:].mT, lengths)


FAMILIES: list[Make] = [
    linear_chain, moving_chain, hmm, semi_markov, span_tree, pcfg, projective, labelled, crossing,
    spanning_tree,
]  # fmt: skip
every_family = pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)


def problem(b: int, n: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Scores [b n 2] and ragged lengths."""
    x = torch.randn(b, n, 2, generator=torch.Generator().manual_seed(n), dtype=dtype)
    return x.requires_grad_(), torch.tensor([n, n - 1, 2, n][:b])


def asked(d: Any, event: Tensor) -> Tensor:
    """A loss of all that is differentiable in a graph."""
    total = (d.log_prob(event) - 0.5 * d.entropy()).sum() * 3 - d.log_partition().mean()
    for marginals in d.marginals().values():
        weights = torch.arange(marginals.numel(), dtype=marginals.dtype).sin()
        total = total + (marginals * weights.reshape(marginals.shape)).sum()
    return total


def in_place(d: Any) -> Any:
    """The distribution as graphs see it, but outside of one: its queries are operators."""

    class InGraph:
        def __getattr__(self, name: str) -> Any:
            instead = operators.IN_GRAPH[name]
            return lambda *arguments: instead(d, *arguments)

    return InGraph()


@every_family
@pytest.mark.few(4)
def test_operators_and_their_derivatives(make):
    x, lengths = problem(3, 4)
    d = make(x, lengths)
    event = d.mode
    other = in_place(d)
    assert torch.equal(other.mode(), event)
    assert torch.equal(other.min_risk(), d.min_risk())
    found, expected = asked(other, event), asked(d, event)
    assert_close(found, expected)
    several = torch.stack([event, event])
    assert_close(other.log_prob(several), d.log_prob(several))
    for _ in range(2):  # marginals and entropies are derivatives already
        (found,), (expected,) = (
            grad(y, x, create_graph=True, materialize_grads=True) for y in (found, expected)
        )
        assert_close(found, expected)
        found, expected = (found**2).sum(), (expected**2).sum()


@every_family
@pytest.mark.few(2)
def test_operators_in_half_and_single_precision(make):
    for dtype in (torch.float32, torch.bfloat16):
        x, lengths = problem(3, 4, dtype)
        d = make(x, lengths)
        event = d.mode
        found, expected = asked(in_place(d), event), asked(d, event)
        assert found.dtype == expected.dtype
        assert_close(found, expected)
        (own,) = grad(found, x, retain_graph=True)
        assert_close(own.float(), grad(expected, x)[0].float())


@every_family
def test_impossible_elements_and_far_potentials(make):
    """-inf and ±1e4 among the potentials; elements without any event."""
    x, lengths = problem(4, 5)
    with torch.no_grad():
        x[0] *= 1e4
        x[1] = -torch.inf
        x[2, 1, 0] = -torch.inf
    d = make(x, lengths)
    other = in_place(d)
    for name in ("log_partition", "entropy"):
        assert torch.equal(getattr(other, name)(), getattr(d, name)())
    for name, marginals in d.marginals().items():
        assert torch.equal(other.marginals(name)[name], marginals)
    event = d.mode
    assert torch.equal(other.log_prob(event), d.log_prob(event))
    assert torch.equal(other.mode(), event)


@every_family
def test_operators_refuse_bad_values(make):
    x, lengths = problem(3, 5)
    d = make(x.detach(), lengths)
    event = d.mode
    name, potential = next(iter(d.potentials.items()))
    d.potentials[name] = torch.where(torch.ones_like(potential) > 0, math.nan, potential)
    other = in_place(d)
    for query in (other.log_partition, other.entropy, other.mode, other.marginals):
        with pytest.raises(ArgumentError, match=f"^{name} must be finite or -inf. Got nan"):
            query()
    good = in_place(make(x.detach(), lengths))
    with pytest.raises(ArgumentError):
        good.log_prob(event + 100)


def compiled(function: Callable[..., Any], backend: str = "aot_eager") -> Callable[..., Any]:
    torch.compiler.reset()
    whole: Callable[..., Any] = torch.compile(
        function, backend=backend, fullgraph=True, dynamic=True
    )
    return whole


def log_loss(d: Any, event: Tensor) -> Tensor:
    found: Tensor = -d.log_prob(event).mean()
    return found


def check_full_graph(make: Make, backend: str, objective: Callable[..., Tensor]) -> None:
    def loss(x: Tensor, lengths: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        d = make(2 * x, lengths)
        return objective(d, event) * 0.5, d.mode

    graph = compiled(loss, backend)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for b, n in ((3, 5), (4, 6), (2, 7)):
            x, lengths = problem(b, n)
            event = make(2 * x, lengths).mode
            (expected, mode), (found, best) = (f(x, lengths, event) for f in (loss, graph))
            assert_close(found, expected)
            assert torch.equal(best, mode)
            assert_close(grad(found, x)[0], grad(expected, x)[0])


# Each compiles for seconds, and the next test has the same loss and more of every family.
@pytest.mark.parametrize("make", [moving_chain, spanning_tree])
def test_full_graphs_of_any_size(make):
    check_full_graph(make, "aot_eager", log_loss)


@pytest.mark.exhaustive
@every_family
def test_full_graphs_of_all_queries(make):
    check_full_graph(make, "aot_eager", asked)


@pytest.mark.exhaustive
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler, which inductor needs")
@pytest.mark.parametrize("make", [linear_chain, pcfg])
def test_full_graphs_by_inductor(make):
    check_full_graph(make, "inductor", asked)


@pytest.mark.exhaustive
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler, which inductor needs")
def test_the_derivative_uses_what_log_z_has_computed(monkeypatch):
    used = []
    own = operators._kept.pop

    def pop(key: Tensor, default: None) -> Any:
        found = own(key, default)
        used.append(found is not None)
        return found

    monkeypatch.setattr(operators._kept, "pop", pop)
    x, lengths = problem(3, 5)
    graph = compiled(lambda x: -linear_chain(x, lengths).log_partition().mean(), "inductor")
    for _ in range(2):
        graph(x).backward()
    assert used == [True, True]
    gc.collect()  # of other tests
    others = len(operators._kept)
    loss = graph(x)
    assert len(operators._kept) == others + 1
    del loss
    assert len(operators._kept) == others, "what no derivative asks for is freed with the loss"


def test_bad_values_in_a_graph():
    def loss(x: Tensor, lengths: Tensor, event: Tensor) -> Tensor:
        return inout.LinearChain(x, x[0, :2], lengths=lengths).log_prob(event).sum()

    graph = compiled(loss)
    x, lengths = problem(3, 5)
    x, event = x.detach(), torch.zeros(3, 5, dtype=torch.long)
    padding, bad = x.clone(), x.clone()
    padding[2, 4], bad[1, 2, 1] = math.nan, math.nan
    assert torch.equal(graph(padding, lengths, event), loss(x, lengths, event))
    for arguments, message in (
        ((bad, lengths, event), r"emissions must be finite or -inf. Got nan at \[1, 2, 1\]"),
        ((x, lengths + 1, event), r"lengths must be in 0..5. Got \[6, 5, 3\]"),
        ((x, lengths, event + 2), r"labels must be in 0..1. Got"),
    ):
        with pytest.raises(ArgumentError, match=message):
            graph(*arguments)


def test_a_distribution_that_leaves_a_graph_has_been_checked():
    graph = compiled(lambda x: inout.SemiMarkov(2 * x))
    x = torch.zeros(4, 2, 3, 3)
    assert torch.equal(graph(x).topk(2)[0], inout.SemiMarkov(2 * x).topk(2)[0])
    with pytest.raises(ArgumentError, match=r"^log_potentials must be finite or -inf\. Got nan"):
        graph(x * math.nan)


def test_observations_in_a_graph():
    def loss(x: Tensor, symbols: Tensor) -> Tensor:
        return inout.HMM(x[0, 0], x[0, :2], x[1, :2], symbols).log_partition().sum()

    graph, (x, _) = compiled(loss), problem(3, 5)
    symbols = torch.tensor([[0, 1, 1], [1, 0, 0]])
    assert_close(grad(graph(x, symbols), x)[0], grad(loss(x, symbols), x)[0])
    with pytest.raises(ArgumentError, match=r"observations must be in 0\.\.1"):
        graph(x, symbols + 1)


def test_distributions_made_outside():
    x, lengths = problem(3, 5)
    d = linear_chain(x.detach(), lengths)
    with torch.no_grad():
        expected = d.log_partition().sum() + d.entropy().sum()
        for graph in (
            compiled(lambda d: d.log_partition().sum() + d.entropy().sum()),
            lambda d: compiled(lambda: d.log_partition().sum() + d.entropy().sum())(),
        ):
            assert_close(graph(d), expected)


def test_inference_mode():
    """Also with lengths that are made in it."""
    x, lengths = problem(3, 5)

    def answers(x: Tensor) -> Tensor:
        d = linear_chain(x, lengths)
        found: Tensor = d.marginals("emissions")["emissions"] * d.entropy()[:, None, None]
        return found

    expected = answers(x.detach())
    with torch.inference_mode():
        for function in (answers, compiled(answers)):
            assert_close(function(x.detach().clone()), expected)


BREAKS = {
    "topk": lambda d: d.topk(2)[1].sum(),
    "covariance": lambda d: d.covariance(d.potentials, d.potentials).sum(),
    "cross_entropy": lambda d: d.cross_entropy(d).sum(),
    "forest": lambda d: d.forest().log_partition().sum(),
    "sample": lambda d: 0 * d.sample((3,)).sum(),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", BREAKS)
def test_what_is_no_operator_breaks_the_graph(name):
    x, lengths = problem(3, 5)

    def query(x: Tensor) -> Tensor:
        found: Tensor = BREAKS[name](linear_chain(2 * x, lengths))
        return found

    torch.compiler.reset()
    assert_close(torch.compile(query, backend="aot_eager")(x), query(x))
    with pytest.raises(Unsupported, match="inout runs it in plain Python"):
        compiled(lambda x: BREAKS[name](linear_chain(2 * x, lengths)))(x)


class Shifted(inout.LinearChain):
    """A subclass of a user: no operator knows it."""

    def log_partition(self) -> Tensor:
        return super().log_partition() + 1


def test_alignments_break_the_graph():
    """Their targets are no part of an operator."""
    x, target = torch.linspace(-1, 1, 12).reshape(4, 3), torch.tensor([1, 2])

    def log_z(x: Tensor) -> Tensor:
        return inout.CTC(2 * x, target).log_partition()

    torch.compiler.reset()
    assert_close(torch.compile(log_z, backend="aot_eager")(x), log_z(x))
    with pytest.raises(Unsupported, match="inout runs it in plain Python"):
        compiled(log_z)(x)


def test_subclasses_break_the_graph():
    x, _ = problem(3, 5)
    torch.compiler.reset()
    shifted = torch.compile(lambda x: Shifted(x, x[0, :2]).log_partition(), backend="aot_eager")
    assert torch.equal(shifted(x), inout.LinearChain(x, x[0, :2]).log_partition() + 1)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["chain", "hmm", "grammar"])
def test_factored_tables_break_the_graph(name):
    """There is no operator for them; nor is their table mistaken for a dense one."""
    g = torch.Generator().manual_seed(1)
    source, target = (torch.randn(s, generator=g, dtype=torch.float64) for s in ((3, 2), (2, 3)))
    words = torch.randint(3, (2, 4), generator=g)
    leaves = torch.randn(2, 4, 2, generator=g, dtype=torch.float64)

    def log_z(source: Tensor, target: Tensor) -> Tensor:
        steps = inout.TransitionFactors(source, target)
        if name == "chain":
            d: Any = inout.LinearChain((source @ target)[words], steps)
        elif name == "hmm":
            d = inout.HMM(source[:, 0], steps, source @ target, words)
        else:
            d = inout.PCFG(source[0, :1], inout.RuleFactors(None, target[:1], target[1:]), leaves)
        return d.log_partition()

    inputs = [source.requires_grad_(), target.requires_grad_()]
    torch.compiler.reset()
    found, expected = (f(*inputs) for f in (torch.compile(log_z, backend="aot_eager"), log_z))
    assert_close(found, expected)
    for x, y in zip(
        torch.autograd.grad(found.sum(), inputs),
        torch.autograd.grad(expected.sum(), inputs),
        strict=True,
    ):
        assert_close(x, y)
    with pytest.raises(Unsupported, match="inout runs it in plain Python"):
        compiled(log_z)(*inputs)


def test_errors_of_shapes_say_what_is_wrong(unchecked):
    def mistaken(x: Tensor) -> Tensor:
        return inout.LinearChain(x, x).log_partition()

    torch.compiler.reset()
    x, message = problem(3, 5)[0], r"'?transitions'?,? '?must be \[2, 2\] or \[3, 4, 2, 2\]"
    with pytest.raises(ArgumentError, match=message):
        torch.compile(mistaken, backend="aot_eager")(x)
    torch.compiler.reset()  # or it remembers to run that function eagerly
    with pytest.raises(Unsupported, match=message):
        torch.compile(mistaken, backend="aot_eager", fullgraph=True)(x)


class Tagger(torch.nn.Module):
    """A model with a layer: the loss, or the best events."""

    def __init__(self, layer: Any, size: int, scores: Callable[[Tensor], Tensor], how: str) -> None:
        super().__init__()
        self.layer, self.head, self.how = layer, torch.nn.Linear(4, size), how
        self.scores = scores

    def forward(self, x: Tensor, gold: Tensor, mask: Tensor) -> Tensor:
        scores = self.scores(self.head(x))
        found: Tensor
        if self.how == "mode":
            found = self.layer.distribution(scores, mask).mode
        elif self.how == "marginals":
            found = self.layer.marginals(scores, mask)
        else:
            found = self.layer(scores, gold, mask, reduction=self.how)
        return found


def of_spans(x: Tensor) -> Tensor:
    return x[:, :, None] + x[:, None].sin()


def of_heads(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(of_spans(x), (0, 0, 0, 0, 1, 0))


LAYERS: dict[str, Callable[[str], Tagger]] = {
    "crf": lambda how: Tagger(nn.CRF(3, bio(["O", "B", "I"])), 3, lambda x: x, how),
    "semi_crf": lambda how: Tagger(nn.SemiCRF(3, 2), 3, lambda x: x, how),
    "tree_crf": lambda how: Tagger(nn.TreeCRF(3), 3, of_spans, how),
    "dependency_crf": lambda how: Tagger(nn.DependencyCRF(), 1, lambda x: of_heads(x)[..., 0], how),
    "labelled": lambda how: Tagger(nn.DependencyCRF(3, projective=False), 3, of_heads, how),
}


def batch(model: Tagger, b: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, the best events as gold ones, and a mask."""
    x = torch.randn(b, n, 4, generator=torch.Generator().manual_seed(b))
    mask = torch.arange(n) < problem(b, n)[1][:, None]
    with torch.no_grad():
        return x, model.layer.distribution(model.scores(model.head(x)), mask).mode, mask


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["mean", "mode", "token_mean", "marginals"])
@pytest.mark.parametrize("name", LAYERS)
def test_exported_layers(name, how):
    model = LAYERS[name](how)
    inputs = batch(model, 3, 5)
    b, n = Dim("b", min=2), Dim("n", min=3)
    sizes = {0: b, 1: n}
    square = {**sizes, 2: n} if name == "tree_crf" else sizes
    program = export(model, inputs, dynamic_shapes=(sizes, square, sizes)).module()
    for size in ((3, 5), (4, 7), (2, 3)):
        inputs = batch(model, *size)
        assert torch.equal(program(*inputs), model(*inputs))
    x, gold, mask = inputs
    with pytest.raises(ArgumentError, match="mask must be True up to the length"):
        program(x, gold, mask.flip(-1))
    with pytest.raises(ArgumentError, match=r"must be finite or -inf\. Got nan"):
        program(x * math.nan, gold, mask)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", LAYERS)
def test_compiled_layers(name):
    model = LAYERS[name]("mean")
    graph = compiled(model)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for size in ((3, 5), (4, 7), (2, 6)):
            inputs = batch(model, *size)
            own = list(model.parameters())
            expected, found = model(*inputs), graph(*inputs)
            assert torch.equal(found, expected)
            for x, y in zip(grad(found, own), grad(expected, own), strict=True):
                assert_close(x, y)


def test_gold_events_that_break_constraints_in_a_graph():
    """The loss is +inf; a graph says nothing about it."""
    crf = nn.CRF(3, bio(["O", "B", "I"]))
    graph = compiled(lambda x, gold: crf(x, gold, reduction="none"))
    losses = graph(torch.zeros(2, 3, 3), torch.tensor([[0, 2, 0], [1, 2, 0]]))
    assert losses.isinf().tolist() == [True, False]


@pytest.mark.exhaustive
def test_lists_are_no_part_of_a_graph():
    crf = nn.CRF(3)
    x = torch.zeros(1, 3, 3)
    torch.compiler.reset()
    assert_close(torch.compile(crf, backend="aot_eager")(x, [[0, 1, 2]]), crf(x, [[0, 1, 2]]))
    for function in (lambda x: crf(x, [[0, 1, 2]]), lambda x: crf.decode(2 * x)):
        with pytest.raises(Unsupported, match="inout runs it in plain Python"):
            compiled(function)(x)


class Best(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return inout.LinearChain(x, x).topk(2)[0]


def test_export_refuses_what_is_no_operator():
    with pytest.raises(InoutError, match=r"torch\.export cannot record .*topk: it reads values"):
        export(Best(), (torch.zeros(2, 2),))
