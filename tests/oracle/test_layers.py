"""The layers against all structures one by one: losses, gradients, decoding, marginals."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import constraints, nn
from tests.oracle.layer_cases import CASES, LayerCase, Row, Tables
from tests.support import assert_close


def random(shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def made(case: LayerCase, constrained: bool, seed: int, scale: float = 1.0) -> nn.StructuredLayer:
    layer = case.make(case.allowed if constrained else None).double()
    for k, table in enumerate(layer.parameters()):
        table.data = scale * random(tuple(table.shape), seed + k)
    return layer


def scored(case: LayerCase, seed: int, scale: float = 1.0) -> Tensor:
    """Scores [3 ...], NaN in the padding."""
    scores = scale * random((len(case.lengths), *case.shape(case.lengths[0])), seed)
    for element, length in enumerate(case.lengths):
        real = [slice(size) for size in case.shape(length)]
        # Dimensions of labels and widths have one size for all lengths.
        padded = torch.full_like(scores[element], torch.nan)
        padded[tuple(real)] = scores[element][tuple(real)]
        scores[element] = padded
    return scores


def tables_of(layer: nn.StructuredLayer, allowed: Tables | None) -> Tables:
    tables = dict(layer.named_parameters())
    for name, mask in (allowed or {}).items():
        tables[name] = torch.where(mask, tables[name], -torch.inf)
    return tables


class Enumerated:
    """All structures of one element and their log-probabilities."""

    def __init__(self, case: LayerCase, scores: Tensor, tables: Tables, length: int) -> None:
        self.rows: list[Row] = list(case.rows(length))
        values = [case.score(row, scores, tables, length) for row in self.rows]
        # Those that are possible: torch cannot differentiate a sum with -inf twice.
        self.values = torch.stack(values)
        alive = self.values > -torch.inf
        self.log_z = self.values[alive].logsumexp(0)

    def log_prob(self, row: Row) -> Tensor:
        return self.values[self.rows.index(row)] - self.log_z

    @property
    def possible(self) -> list[Row]:
        pairs = zip(self.rows, self.values.tolist(), strict=True)
        return [row for row, value in pairs if value > -torch.inf]

    @property
    def best(self) -> Row:
        return self.rows[int(self.values.argmax())]


def enumerated(
    case: LayerCase, layer: nn.StructuredLayer, scores: Tensor, constrained: bool
) -> list[Enumerated]:
    allowed = case.allowed._asdict() if constrained and case.allowed else None
    tables = tables_of(layer, allowed)
    return [
        Enumerated(case, x, tables, length) for x, length in zip(scores, case.lengths, strict=True)
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("constrained", [False, True], ids=["free", "constrained"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.few(10)
def test_a_layer_agrees_with_enumeration(case: LayerCase, constrained: bool, scale: float):
    layer = made(case, constrained, 7, scale)
    scores = scored(case, 1, scale).requires_grad_()
    truth = enumerated(case, layer, scores, constrained)
    for one, row in zip(truth, layer.decode(scores, lengths=case.lengths), strict=True):
        best = one.values[one.rows.index(row)]  # there may be ties
        assert_close(best, one.values.max(), rtol=1e-12)
    gold = [one.possible[(5 * k + 3) % len(one.possible)] for k, one in enumerate(truth)]
    loss = layer(scores, gold, lengths=case.lengths, reduction="none")
    wanted = -torch.stack([one.log_prob(row) for one, row in zip(truth, gold, strict=True)])
    rounding = 1e-10 * scale
    assert_close(loss, wanted, rtol=1e-10, atol=rounding)
    log_probs = layer.log_prob(scores, gold, lengths=case.lengths)
    assert_close(log_probs, -wanted, rtol=1e-10, atol=rounding)
    inputs = [scores, *layer.parameters()]
    directions = [random(tuple(x.shape), 90 + k) for k, x in enumerate(inputs)]
    found, expected = (
        grad(x.sum(), inputs, create_graph=True, materialize_grads=True) for x in (loss, wanted)
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs.nan_to_num(), rtol=1e-9, atol=1e-10)
    if scale == 1.0:
        second = [
            grad(
                sum((g * d).nansum() for g, d in zip(first, directions, strict=True)),
                inputs,
                materialize_grads=True,
            )
            for first in (found, expected)
        ]
        for ours, theirs in zip(*second, strict=True):
            assert_close(ours, theirs.nan_to_num(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_marginals_are_expected_scores_differentiated(case: LayerCase):
    """Each probability is the derivative of log Z in the score of the part."""
    layer, scores = made(case, True, 3), scored(case, 4).requires_grad_()
    truth = enumerated(case, layer, scores, True)
    if case.name == "semi":  # its scores belong to positions, the marginals to segments
        found = layer.marginals(scores, lengths=case.lengths)
        for element, one in enumerate(truth):
            wanted = torch.zeros_like(found[element])
            for row, value in zip(one.rows, one.values, strict=True):
                for start, stop, label in row:
                    wanted[stop - 1, stop - start - 1, label] += (value - one.log_z).exp()
            assert_close(found[element], wanted, rtol=1e-10, atol=1e-10)
        return
    (wanted,) = grad(torch.stack([one.log_z for one in truth]).sum(), scores)
    found = layer.marginals(scores, lengths=case.lengths)
    assert_close(found, wanted.nan_to_num(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_single_precision(case: LayerCase):
    layer, scores = made(case, True, 3).float(), scored(case, 4).float()
    truth = enumerated(case, made(case, True, 3), scored(case, 4), True)
    gold = [one.best for one in truth]
    loss = layer(scores, gold, lengths=case.lengths, reduction="none")
    assert loss.dtype == torch.float32
    wanted = -torch.stack([one.log_prob(row) for one, row in zip(truth, gold, strict=True)])
    assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-5)


def test_segments_of_one_position_are_labels():
    """With width 1 a `SemiCRF` is a `CRF`, its widths aside."""
    semi, crf = nn.SemiCRF(3, 1).double(), nn.CRF(3).double()
    for name, table in crf.named_parameters():
        table.data = random(tuple(table.shape), len(name))
    semi.load_state_dict(crf.state_dict() | {"widths": torch.zeros(1, 3)})
    scores, labels = random((2, 5, 3), 1), torch.tensor([[0, 1, 2, 1, 0], [2, 2, 0, 0, 0]])
    assert_close(semi(scores, labels, lengths=[5, 3]), crf(scores, labels, lengths=[5, 3]))


def chunkings(n: int, kinds: str) -> list[list[tuple[int, int, str]]]:
    """All ways to mark disjoint chunks of these types in n positions."""
    if n <= 0:
        return [[]] if n == 0 else []
    found = list(chunkings(n - 1, kinds))
    for width, kind in product(range(1, n + 1), kinds):
        found += [[*rest, (n - width, n, kind)] for rest in chunkings(n - width, kinds)]
    return found


def written(chunks: list[tuple[int, int, str]], n: int, scheme: str) -> tuple[str, ...]:
    """The labels of chunks in a scheme."""
    labels, before = ["O"] * n, (-1, "")
    for start, stop, kind in chunks:
        letters = ["I"] * (stop - start)
        if scheme == "bioes":
            letters[0], letters[-1] = "B", "E"
            letters = letters if stop - start > 1 else ["S"]
        elif scheme == "bio" or before == (start, kind):
            letters[0] = "B"
        labels[start:stop] = [f"{letter}-{kind}" for letter in letters]
        before = stop, kind
    return tuple(labels)


@pytest.mark.parametrize("scheme", ["bio", "iob1", "bioes"])
def test_schemes_allow_just_what_chunks_look_like(scheme: str):
    letters = "BIES" if scheme == "bioes" else "BI"
    labels = ["O", *(f"{letter}-{kind}" for kind in "xy" for letter in letters)]
    allowed = getattr(constraints, scheme)(labels)
    for n in range(1, 5):
        truth = {written(chunks, n, scheme) for chunks in chunkings(n, "xy")}
        found = {
            tuple(labels[i] for i in row)
            for row in product(range(len(labels)), repeat=n)
            if allowed.start[row[0]]
            and allowed.end[row[-1]]
            and all(allowed.transitions[i, j] for i, j in pairwise(row))
        }
        assert found == truth
