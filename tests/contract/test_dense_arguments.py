"""Tensors with other layouts than dense ones: each kind has its error, and tracing none."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from inout import ArgumentError, LinearChain
from inout.distributions.arguments import checked_lengths, refuse_non_tensors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Tensor.to_sparse, r"^x must be a dense tensor. Got a sparse one; x\.to_dense\(\) makes"),
        (Tensor.to_sparse_csr, r"Got a sparse one; x\.to_dense\(\)"),
        (Tensor.to_mkldnn, r"Got a sparse one; x\.to_dense\(\)"),
        (
            lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged),
            r"Got a nested one; torch\.nested\.to_padded_tensor\(x, 0\) makes one of it",
        ),
    ],
)
def test_a_hint_for_each_layout(make: Callable[[Tensor], Tensor], message: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # prototypes
        x = make(torch.zeros(2, 3))
    with pytest.raises(ArgumentError, match=message):
        refuse_non_tensors(x=x)


def test_hints_help():
    """What the messages propose gives a distribution."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # prototypes
        rows = torch.nested.nested_tensor([torch.ones(3, 2), torch.ones(1, 2)])
        padded = torch.nested.to_padded_tensor(rows, 0)
        mask = torch.tensor([[[True, False]] * 3, [[True, True]] * 3])
        masked = torch.masked.masked_tensor(padded, mask).to_tensor(-torch.inf)
    pairs = torch.zeros(2, 2).to_sparse().to_dense()
    d = LinearChain(masked, pairs, lengths=[3, 1])
    assert d.log_partition().tolist() == pytest.approx([3.0, 1.0 + torch.tensor(2.0).log().item()])


def test_fake_tensors_pass():
    """torch.compile and torch.export trace with them: they say that they are dense."""
    with FakeTensorMode() as mode:
        floats, integers = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
        refuse_non_tensors(floats=floats, integers=integers)
        refuse_non_tensors(made=mode.from_tensor(torch.empty(2, 3)))
        assert checked_lengths(None, torch.Size([2]), 3, torch.device("cpu")).shape == (2,)
