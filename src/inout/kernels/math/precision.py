"""Matrix products through torch in the precision of their dtype."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def exact_products(tensor: Tensor) -> Iterator[None]:
    """Full float32 in products, whatever the user chose for their own; and the tensor's device."""
    matmul: Any = torch.backends.cuda.matmul
    # Since torch 2.9 the precision has a name, and reading the old switch may fail.
    named = hasattr(matmul, "fp32_precision")
    name, exact = ("fp32_precision", "ieee") if named else ("allow_tf32", False)
    before = getattr(matmul, name)
    reduced = before in ("tf32", True)
    if reduced:
        setattr(matmul, name, exact)
    try:
        device = torch.cuda.device_of(tensor)  # type: ignore[no-untyped-call]
        with device, torch.autocast(tensor.device.type, enabled=False):
            yield
    finally:
        if reduced:
            setattr(matmul, name, before)
