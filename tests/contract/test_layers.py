"""The layers as torch modules: masks, reductions, warnings, constraints, state, transforms."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

import inout
from inout import constraints, nn
from inout._core.errors import ArgumentError
from tests.oracle.layer_cases import CASES, LayerCase
from tests.support import assert_close

BIO = constraints.bio(["O", "B-x", "I-x"])


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def filled(layer: Any) -> Any:
    """The layer in float64 with random tables."""
    layer = layer.double()
    for k, table in enumerate(layer.parameters()):
        table.data = random(*table.shape, seed=k + 1)
    return layer


def batch(case: LayerCase, layer: Any) -> tuple[Tensor, list[Any]]:
    """Scores of two sentences of four positions, and a possible structure for each."""
    scores = random(2, *case.shape(4))
    return scores, layer.decode(random(2, *case.shape(4), seed=9))


def test_agreement_with_pytorch_crf():
    theirs = pytest.importorskip("torchcrf").CRF(5, batch_first=True).double()
    ours = filled(nn.CRF(5))
    theirs.transitions.data = ours.transitions.data.clone()
    theirs.start_transitions.data = ours.start.data.clone()
    theirs.end_transitions.data = ours.end.data.clone()
    scores = random(3, 6, 5).requires_grad_()
    labels = torch.tensor([[0, 1, 2, 3, 4, 0], [4, 4, 1, 0, 0, 0], [2, 0, 0, 0, 0, 0]])
    mask = torch.arange(6) < torch.tensor([6, 3, 1])[:, None]
    for reduction in ("none", "sum", "mean", "token_mean"):
        found = ours(scores, labels, mask, reduction=reduction)
        wanted = -theirs(scores, labels, mask, reduction=reduction)
        assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    pairs = zip(
        torch.autograd.grad(found, [scores, ours.transitions, ours.start, ours.end]),
        torch.autograd.grad(
            wanted, [scores, theirs.transitions, theirs.start_transitions, theirs.end_transitions]
        ),
        strict=True,
    )
    for one, other in pairs:
        assert_close(one, other, rtol=1e-10, atol=1e-12)
    assert ours.decode(scores, mask) == theirs.decode(scores, mask)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
class TestEveryLayer:
    def test_masks_are_lengths(self, case: LayerCase):
        layer = filled(case.make(case.allowed))
        scores = random(2, *case.shape(4))
        mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
        gold = layer.decode(scores, mask)
        assert gold == layer.decode(scores, lengths=[4, 3])
        one, other = layer(scores, gold, mask), layer(scores, gold, lengths=torch.tensor([4, 3]))
        assert torch.equal(one, other)
        assert torch.equal(layer.marginals(scores, mask), layer.marginals(scores, lengths=[4, 3]))

    def test_reductions(self, case: LayerCase):
        layer = filled(case.make(None))
        scores = random(2, *case.shape(4))
        gold = layer.decode(scores, lengths=[4, 3])

        def loss(reduction: str) -> Tensor:
            found: Tensor = layer(scores, gold, lengths=[4, 3], reduction=reduction)
            return found

        each = loss("none")
        assert each.shape == (2,)
        assert_close(each, -layer.log_prob(scores, gold, lengths=[4, 3]))
        assert_close(loss("sum"), each.sum())
        assert_close(loss("mean"), each.mean())
        assert_close(loss("token_mean"), each.sum() / 7)
        assert torch.equal(layer(scores, gold, lengths=[4, 3]), loss("mean"))
        with pytest.raises(ArgumentError, match="reduction must be one of none, sum, mean, token"):
            loss("average")

    def test_gold_as_lists_and_as_tensors(self, case: LayerCase):
        layer = filled(case.make(case.allowed))
        scores, _ = batch(case, layer)
        events = layer.distribution(scores, lengths=[4, 3]).mode
        gold = layer.decode(scores, lengths=[4, 3])
        assert_close(
            layer(scores, events, lengths=[4, 3]), layer(scores, gold, lengths=[4, 3]), rtol=0
        )
        assert [layer.decode(scores[:1])[0]] == layer.decode(scores[:1])
        assert layer.decode(scores[0]) == layer.decode(scores)[0]
        assert layer.decode(scores[None]) == [layer.decode(scores)]
        with pytest.raises(ArgumentError, match="gold must have 2 elements"):
            layer(scores, gold[:1], lengths=[4, 3])

    def test_state_and_copies(self, case: LayerCase):
        layer = filled(case.make(case.allowed))
        scores, gold = batch(case, layer)
        loss = layer(scores, gold)
        assert set(layer.state_dict()) == {name for name, _ in layer.named_parameters()}
        other = case.make(case.allowed).double()
        other.load_state_dict(layer.state_dict())
        saved = io.BytesIO()
        torch.save(layer, saved)
        saved.seek(0)
        loaded = torch.load(saved, weights_only=False)  # noqa: TID251  # what users may do
        for twin in (other, copy.deepcopy(layer), loaded):
            assert torch.equal(twin(scores, gold), loss)
        single = copy.deepcopy(layer).to(torch.float32)
        assert single(scores.float(), gold).dtype == torch.float32
        assert str(layer).startswith(type(layer).__name__)
        layer.reset_parameters()
        assert not any(bool(table.any()) for table in layer.parameters())

    def test_per_sample_gradients(self, case: LayerCase):
        layer = filled(case.make(case.allowed))
        scores, gold = batch(case, layer)
        events = torch.stack([layer._events(row, layer.distribution(scores[0])) for row in gold])
        tables = {name: table.detach() for name, table in layer.named_parameters()}

        def loss(tables: dict[str, Tensor], scores: Tensor, event: Tensor) -> Tensor:
            found: Tensor = functional_call(layer, tables, (scores, event))
            return found

        found = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, 0, 0))(tables, scores, events)
        for k in range(2):
            own = scores[k].clone().requires_grad_()
            inputs = {"scores": own, **dict(layer.named_parameters())}
            wanted = torch.autograd.grad(layer(own, events[k]), list(inputs.values()))
            by_name = dict(zip(inputs, wanted, strict=True))
            assert_close(found[1][k], by_name.pop("scores"))
            for name, gradient in by_name.items():
                assert_close(found[0][name][k], gradient)

    def test_gradcheck(self, case: LayerCase):
        layer = filled(case.make(case.allowed))
        scores, gold = batch(case, layer)

        def loss(scores: Tensor) -> Tensor:
            found: Tensor = layer(scores, gold, reduction="sum")
            return found

        assert torch.autograd.gradcheck(loss, scores[..., :].requires_grad_())

    def test_training_finds_the_gold(self, case: LayerCase):
        layer = case.make(case.allowed).double()
        scores, gold = batch(case, layer)
        scores = torch.zeros_like(scores).requires_grad_()
        optimiser = torch.optim.Adam([scores, *layer.parameters()], lr=0.3)
        for _ in range(40):
            optimiser.zero_grad()
            loss = layer(scores, gold)
            loss.backward()
            optimiser.step()
        assert loss.item() < 0.5
        assert layer.decode(scores) == gold

    @pytest.mark.usefixtures("unchecked")
    def test_shapes_are_checked(self, case: LayerCase):
        layer = case.make(None).double()
        with pytest.raises(ArgumentError, match=r"scores must be \[\*b n"):
            layer.decode(torch.zeros(2, 9, 8, 6, dtype=torch.float64))
        with pytest.raises(ArgumentError, match="scores must be a tensor"):
            layer.distribution([[0.0]])


@pytest.mark.usefixtures("unchecked")
class TestMisuse:
    def test_masks(self):
        crf, scores = nn.CRF(3), torch.zeros(2, 4, 3)
        hole = torch.tensor([[True] * 4, [True, False, True, True]])
        with pytest.raises(ArgumentError, match=r"mask must be True up to .*before True"):
            crf.decode(scores, hole)
        with pytest.raises(ArgumentError, match=r"at \[1, 1\]"):
            crf.decode(scores, hole)
        with pytest.raises(ArgumentError, match="up to the length"):
            crf.decode(scores, ~torch.tensor([[True, False, False, False]] * 2))
        with pytest.raises(ArgumentError, match="mask must be of bools"):
            crf.decode(scores, hole.long())
        with pytest.raises(ArgumentError, match=r"mask must have shape \[2, 4\]. Got \[2, 3\]"):
            crf.decode(scores, hole[:, :3])
        with pytest.raises(ArgumentError, match="mask must be None if lengths are given"):
            crf.decode(scores, ~hole, [4, 4])
        with pytest.raises(ArgumentError, match="lengths must be in"):
            crf.decode(scores, lengths=[4, 5])

    def test_constraints(self):
        with pytest.raises(ArgumentError, match="constraints must be SequenceConstraints, as in"):
            nn.CRF(3, constraints.arcs(["root", "x"]))
        with pytest.raises(ArgumentError, match="constraints must be SequenceConstraints"):
            nn.CRF(3, torch.ones(3, 3))
        with pytest.raises(ArgumentError, match=r"transitions must have shape \[4, 4\]"):
            nn.CRF(4, BIO)
        with pytest.raises(ArgumentError, match="constraints must be None"):
            nn.DependencyCRF(constraints=constraints.arcs(["root", "x"]))
        with pytest.raises(ArgumentError, match="num_labels must be"):
            nn.CRF(0)

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (["O", "X-a"], "labels must be O or one of B, I, with a type"),
            (["O", "E-a"], "labels must be O or one of B, I, with a type"),
            (["O-a"], "labels must be O or one of B, I"),
            (["O", ""], "labels must be O or one of"),
            (["O", "BI-a"], "labels must be O or one of"),
            (["O", "O"], "labels must be all different"),
            ("BIO", "labels must be a list of strings"),
            ([], "labels must be a list of strings"),
            ([1, 2], "labels must be a list of strings"),
        ],
    )
    def test_labels(self, labels: Any, message: str):
        with pytest.raises(ArgumentError, match=message):
            constraints.bio(labels)

    def test_names_of_labels(self):
        with pytest.raises(ArgumentError, match=r"root must be among the labels. Got \['TOP'\]"):
            constraints.spans(["S", "NP"], root=["TOP"])
        with pytest.raises(ArgumentError, match="root must be among the labels"):
            constraints.arcs(["nsubj"])

    def test_gold_lists(self):
        with pytest.raises(ArgumentError, match=r"gold must have 3 positions here. Got 2"):
            nn.CRF(2)(torch.zeros(1, 3, 2), [[0, 1]])
        with pytest.raises(ArgumentError, match=r"gold must have segments that cover 0..3"):
            nn.SemiCRF(2, 3)(torch.zeros(1, 3, 2), [[(0, 1, 0), (2, 3, 0)]])
        with pytest.raises(ArgumentError, match=r"gold must have spans within 0..2"):
            nn.TreeCRF(1)(torch.zeros(2, 2, 1), [(0, 3, 0)])


class TestWarnings:
    def test_gold_that_breaks_a_constraint(self):
        crf = filled(nn.CRF(3, BIO))
        scores = random(3, 3, 3).requires_grad_()
        labels = torch.tensor([[0, 0, 1], [0, 2, 0], [1, 2, 2]])
        with pytest.warns(UserWarning, match=r"1 of 3 gold .* at \[1\] by transitions\[0, 2\]"):
            loss = crf(scores, labels, reduction="none")
        assert loss.isinf().tolist() == [False, True, False]
        loss.sum().backward()  # of what is possible
        assert scores.grad is not None
        assert all(bool(x.isfinite().all()) for x in (scores.grad, crf.transitions.grad))
        assert crf.log_prob(scores, labels)[1] == -torch.inf

    def test_one_warning_for_a_call(self):
        crf = nn.CRF(3, BIO)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            crf(torch.zeros(2, 2, 3), torch.tensor([[2, 2], [2, 0]]))
        (warning,) = seen
        said = str(warning.message)
        assert said.startswith("2 of 2 gold events are impossible, the first at [0] by start[2]")

    def test_scores_of_one_input_forbid_too(self):
        crf, scores = nn.CRF(2), torch.zeros(1, 3, 2)
        scores[0, 1, 0] = -torch.inf
        with pytest.warns(UserWarning, match=r"by emissions\[1, 0\]"):
            crf(scores, torch.zeros(1, 3, dtype=torch.long))

    @pytest.mark.parametrize(
        ("layer", "shape", "gold"),
        [
            (nn.SemiCRF(3, 2, BIO), (2, 3), [(0, 1, 0), (1, 2, 2)]),
            (
                nn.TreeCRF(2, constraints.spans(["S", "X"], words=["X"])),
                (2, 2, 2),
                [(0, 1, 0), (0, 2, 0), (1, 2, 1)],
            ),
            (nn.DependencyCRF(2, constraints.arcs(["root", "x"])), (3, 2, 2), [(0, 0), (1, 0)]),
        ],
        ids=["semi", "tree", "dependency"],
    )
    def test_other_layers(self, layer: Any, shape: tuple[int, ...], gold: Any):
        with pytest.warns(UserWarning, match=r"1 of 1 gold events are impossible.* by \w+\["):
            assert layer(torch.zeros(shape), gold) == torch.inf

    def test_padding_breaks_nothing(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss = nn.CRF(3, BIO)(torch.zeros(1, 3, 3), torch.tensor([[1, 2, -100]]), lengths=[2])
        assert bool(loss.isfinite())


def test_constraints_move_with_the_layer():
    crf = nn.CRF(3, BIO, dtype=torch.float64)
    assert crf.transitions.dtype == torch.float64
    assert crf.allowed_transitions.dtype == torch.bool
    on_meta = crf.to("meta")
    assert on_meta.allowed_transitions.device.type == "meta"


def test_decoding_obeys_the_constraints():
    labels = ["O", "B-x", "I-x", "B-y", "I-y"]
    crf = nn.CRF(5, constraints.bio(labels))
    scores = 5 * torch.randn(50, 12, 5, generator=torch.Generator().manual_seed(0))
    events = crf.distribution(scores).sample((3,), generator=torch.Generator().manual_seed(1))
    for row in [*crf.decode(scores), *events.flatten(0, 1).tolist()]:
        before = "O"
        for label in (labels[i] for i in row):
            assert not label.startswith("I") or before[2:] == label[2:]
            before = label


def test_every_query_of_the_distribution():
    chain = nn.CRF(3, BIO).distribution(torch.zeros(2, 4, 3), lengths=[4, 2])
    assert isinstance(chain, inout.LinearChain)
    assert chain.entropy().shape == (2,)
    assert chain.topk(3)[0].shape == (3, 2, 4)


def test_empty_batches_and_sentences():
    crf = nn.CRF(3)
    assert crf.decode(torch.zeros(0, 4, 3)) == []
    assert crf(torch.zeros(0, 4, 3), [], reduction="none").shape == (0,)
    assert crf.decode(torch.zeros(2, 4, 3), lengths=[0, 2]) == [[], [0, 0]]
    assert crf(torch.zeros(2, 4, 3), [[], [0, 0]], lengths=[0, 2], reduction="sum") > 0
    assert nn.SemiCRF(3, 2).decode(torch.zeros(2, 4, 3), lengths=[0, 4])[0] == []


def test_a_compiled_loss():
    crf = filled(nn.CRF(3, BIO))
    head = torch.nn.Linear(4, 3).double()
    x, labels = random(2, 5, 4), torch.tensor([[0, 1, 2, 0, 0], [1, 2, 2, 0, 0]])

    def loss(x: Tensor) -> Tensor:
        found: Tensor = crf(head(x), labels, lengths=[5, 3])
        return found

    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager")
    # What torch itself says about its own work is hidden by torch, unless warnings are errors.
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert torch.equal(compiled(x), loss(x))
    assert not said


def test_inference_mode():
    """Also of layers whose parameters are inference tensors."""
    scores = torch.randn(2, 4, 3)
    crf = nn.CRF(3)
    expected = crf.marginals(scores).detach()
    with torch.inference_mode():
        for layer in (crf, nn.CRF(3)):
            assert_close(layer.marginals(scores.clone()), expected)


@pytest.mark.parametrize(
    ("layer", "gold"),
    [(nn.CRF(3), ["a", "b", "c"]), (nn.CRF(3), [0.5, 1.0, 2.0]), (nn.SemiCRF(3, 3), [(0, 3)])],
)
def test_gold_that_is_no_list_of_labels_is_refused(layer, gold):
    with pytest.raises(ArgumentError, match="gold must be"):
        layer(torch.zeros(3, 3), gold)
