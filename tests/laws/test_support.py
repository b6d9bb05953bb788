"""assert_close itself: what must pass passes, and what must fail fails."""

from __future__ import annotations

import pytest
import torch

from tests.support import assert_close

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([1.0, -INF], [1.0, -INF]),
        ([1.0 + 1e-11], [1.0]),
        ([1e5 + 1e-6], [1e5]),
        (torch.tensor([1.00005]), [1.0]),
        ([1 + 1e-11j], [1 + 0j]),
        ([3, 4], [3, 4]),
        ([], []),
    ],
)
def test_accepts(actual, expected):
    assert_close(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([1.0, NAN], [1.0, NAN]),
        ([NAN], [1.0]),
        ([1.0], [NAN]),
        ([INF], [-INF]),
        ([-INF], [-1e300]),
        ([0.0], [-INF]),
        ([1.0 + 1e-9], [1.0]),
        (torch.tensor([1.0005]), [1.0]),
        ([1 + 1e-9j], [1 + 0j]),
        ([complex(0, NAN)], [0j]),
        ([1.0, 1.0], [1.0]),
        ([[1.0]], [1.0]),
        ([3], [4]),
        ([3], [3.5]),
    ],
)
def test_refuses(actual, expected):
    with pytest.raises(AssertionError):
        assert_close(actual, expected)
