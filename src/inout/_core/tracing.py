"""Classes whose public methods torch.compile and torch.export do not trace, or not as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import _functorch
from torch.autograd import forward_ad

from inout._core.errors import InoutError

Class = TypeVar("Class", bound=type)
Instead = Mapping[str, Callable[..., Any] | None]

# New in torch 2.7; before, this is true while torch exports, and while it compiles.
_exporting: Callable[[], bool] = getattr(
    torch.compiler, "is_exporting", torch.compiler.is_compiling
)


def in_graph() -> bool:
    """Whether torch.compile or torch.export records what this thread calls."""
    if torch.compiler.is_dynamo_compiling():
        return True
    # The flag is that of all threads, the stack of modes that record is our own.
    return _exporting() and torch._C._len_torch_dispatch_stack() > 0


def untraced(cls: Class, instead: Instead | None = None) -> Class:
    """The class, with public methods that torch.compile calls and torch.jit.trace refuses.

    Their kernels and checks read values, which torch.compile cannot trace: it would warn, and
    compile the pieces in between one by one. torch.jit.trace would record the result for one
    input as a constant.

    `instead` has what a graph has in place of some methods, None for these as they are: they read
    no values. It counts for objects whose class has a true `in_graphs`.
    """
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name != "__init__":
            continue
        own: Callable[..., Any] | None = None
        if instead is not None and name in instead:
            own = instead[name]
            own = _whole(member) if own is None else own
        if isinstance(member, property):
            setattr(cls, name, member.getter(called(_whole(member), own)))
        elif isinstance(member, classmethod | staticmethod):
            setattr(cls, name, type(member)(called(member.__func__)))
        elif callable(member) and not isinstance(member, type):
            setattr(cls, name, called(member, own))
    return cls


def _whole(member: Any) -> Callable[..., Any]:
    """The function of a method or a property."""
    found: Callable[..., Any] = getattr(member, "fget", member)
    return found


def called(
    function: Callable[..., Any], instead: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """The function, called but never traced; in a graph, what stands there instead."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if in_graph():
            if instead is not None and type(args[0]).in_graphs:
                return instead(*args, **kwargs)
            if not torch.compiler.is_dynamo_compiling():
                raise InoutError(
                    f"torch.export cannot record {function.__qualname__}: it reads values. "
                    "Call it on the results of the exported program"
                )
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


def may_be_transformed() -> bool:
    """Whether torch.func or forward-mode differentiation follow anything now."""
    return _functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def is_transformed(*tensors: Tensor) -> bool:
    """Whether torch.func or forward-mode differentiation follows what is computed from these."""
    if not may_be_transformed():
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
    """Whether their values can be read: not while torch.vmap has many of them, or in a graph."""
    if in_graph():
        return False
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
