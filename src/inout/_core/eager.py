"""What torch.compile runs instead of tracing it; imported only while it is at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


@torch.compiler.disable(reason="inout runs it in plain Python, because it reads values")  # type: ignore[no-untyped-call, untyped-decorator]
def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """function(*args, **kwargs), in plain Python."""
    return function(*args, **kwargs)
