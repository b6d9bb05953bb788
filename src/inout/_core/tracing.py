"""Classes whose public methods run eagerly when torch compiles the caller."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import _functorch
from torch.autograd import forward_ad

from inout._core.errors import InoutError

Class = TypeVar("Class", bound=type)


def untraced(cls: Class) -> Class:
    """The class, with public methods that torch.compile calls and torch.jit.trace refuses.

    Their kernels and checks read values, which torch.compile cannot trace: it would warn, and
    compile the pieces in between one by one. torch.jit.trace would record the result for one
    input as a constant.
    """
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, property):
            setattr(cls, name, member.getter(_called(member.fget)))  # type: ignore[arg-type]
        elif isinstance(member, classmethod | staticmethod):
            setattr(cls, name, type(member)(_called(member.__func__)))
        elif callable(member) and not isinstance(member, type):
            setattr(cls, name, _called(member))
    return cls


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called but never traced."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            # Importing torch._dynamo takes a second: only where it has been imported anyway.
            from inout._core.eager import run

            return run(function, args, kwargs)
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            raise InoutError(
                f"torch.jit.trace cannot record {function.__qualname__}: its result would become "
                "a constant. Use torch.compile, or trace only what computes the potentials"
            )
        return function(*args, **kwargs)

    # A separate code object, because torch.compile keeps its guards per code object.
    call.__code__ = call.__code__.replace(co_name=function.__name__)  # type: ignore[attr-defined]
    return call


def is_transformed(*tensors: Tensor) -> bool:
    """Whether torch.func or forward-mode differentiation follows what is computed from these."""
    if _functorch.peek_interpreter_stack() is None and forward_ad._current_level < 0:
        return False
    return any(_functorch.is_functorch_wrapped_tensor(x) or _has_tangent(x) for x in tensors)


def is_in_torch_func(*tensors: Tensor) -> bool:
    """Whether torch.func follows what is computed from these; not forward mode on its own."""
    if _functorch.peek_interpreter_stack() is None:
        return False
    return any(map(_functorch.is_functorch_wrapped_tensor, tensors))


def without_graph(tensor: Tensor) -> Tensor:
    """As `detach`, which also drops the tangent of forward mode."""
    primal, tangent = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
    if tangent is None:
        return tensor.detach()
    found: Tensor = forward_ad.make_dual(primal.detach(), tangent.detach())  # type: ignore[no-untyped-call]
    return found


def _has_tangent(tensor: Tensor) -> bool:
    found = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
    return found.tangent is not None


def is_readable(*tensors: Tensor) -> bool:
    """Whether their values can be read: not while torch.vmap has many of them at once."""
    if _functorch.peek_interpreter_stack() is None:
        return True
    return not any(_functorch.is_batchedtensor(_unwrapped(x)) for x in tensors)


def any_seen(mask: Tensor) -> bool:
    """Whether a mask is true anywhere, as far as it can be read."""
    return is_readable(mask) and bool(mask.any())


def numbers(tensor: Tensor) -> NDArray[Any]:
    """Its values as an array, which may share their memory; not under torch.vmap."""
    with torch._C._DisableFuncTorch():
        found: NDArray[Any] = _unwrapped(tensor).detach().cpu().numpy()
        return found


def _unwrapped(tensor: Tensor) -> Tensor:
    """The tensor with the same values below torch.func's levels, except those of torch.vmap."""
    while _functorch.is_functorch_wrapped_tensor(tensor) and not _functorch.is_batchedtensor(
        tensor
    ):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor
