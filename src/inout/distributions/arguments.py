"""Checks and conversions of the families' arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from inout._core.errors import ArgumentError
from inout._core.tracing import in_graph, is_readable, numbers

Lengths = Int[Tensor, "*b"] | Sequence[Any] | int  # a number of positions for each element


_FEW = 1_000_000  # numbers: half a millisecond


def broadcasts(shape: torch.Size, wanted: Sequence[int]) -> bool:
    """Whether a tensor of `shape` can be expanded to the shape `wanted`."""
    own = [1] * (len(wanted) - len(shape)) + list(shape)
    return len(own) == len(wanted) and all(
        size == 1 or size == whole for size, whole in zip(own, wanted, strict=True)
    )


def checked_shape(name: str, shape: Any) -> torch.Size:
    """A shape that a caller gives; a single number is none, as everywhere in torch."""
    try:
        found = torch.Size(shape)
    except (TypeError, ValueError):
        found = torch.Size([-1])
    if any(size < 0 for size in found):
        raise ArgumentError(name, f"must be a shape such as (3,) or (). Got {shape!r:.80}")
    return found


def is_integer(x: Tensor) -> bool:
    """Whether a tensor holds integers."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def refuse_non_tensors(**arguments: Any) -> None:
    """Raise unless all arguments are tensors with their values in dense memory, or None."""
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Tensor):
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            raise ArgumentError(
                name, f"must be a tensor. Got a {kind}; torch.as_tensor({name}) makes one of it"
            )
        _refuse_unusual(name, value)


def _refuse_unusual(name: str, x: Tensor) -> None:
    """Raise for tensors that do not hold one plain value for each place.

    The fake tensors with which torch traces say that they are dense, and pass.
    """
    if x.is_nested:
        padded = f"torch.nested.to_padded_tensor({name}, 0)"
        kind, remedy = "nested", f"{padded} makes one of it, and lengths= says what is padding"
    elif isinstance(x, torch.masked.MaskedTensor):
        fill = "-torch.inf" if x.is_floating_point() else "-1"
        kind, remedy = "masked", f"{name}.to_tensor({fill}) makes one of it, {fill} where masked"
    elif x.is_quantized:
        kind, remedy = "quantised", f"{name}.dequantize() makes one of it"
    elif x.layout is not torch.strided:
        kind, remedy = "sparse", f"{name}.to_dense() makes one of it; what it lacks becomes 0"
    elif x.is_meta:
        kind, remedy = "meta", "it has no values. Make it on a device that computes"
    else:
        return
    raise ArgumentError(name, f"must be a dense tensor. Got a {kind} one; {remedy}")


def refuse_missing(**arguments: Any) -> None:
    """Raise if one of these is None."""
    for name, value in arguments.items():
        if value is None:
            raise ArgumentError(name, "must be a tensor. Got None")


def refuse_non_floats(name: str, potential: Tensor) -> None:
    """Raise unless a potential has floats."""
    if not potential.is_floating_point():
        raise ArgumentError(name, f"must be a float tensor. Got {potential.dtype}")


def refuse_bad_values(
    name: str, potential: Tensor, used: Tensor | Callable[[], Tensor] | None = None
) -> None:
    """Raise unless all values (those in the mask `used`, if given) are floats below +inf.

    A mask that takes time to make may be given as a function.
    """
    refuse_non_floats(name, potential)
    # One pass without extra memory in the normal case: the largest value is NaN if any is.
    if potential.numel() == 0 or not is_readable(potential) or _largest(potential) < torch.inf:
        return
    bad = torch.isnan(potential) | (potential == torch.inf)
    if used is not None:
        bad = bad & (used if isinstance(used, Tensor) else used())
    if bool(bad.any()):
        place = bad.nonzero()[0].tolist()
        value = potential.expand(bad.shape)[tuple(place)].item()
        raise ArgumentError(name, f"must be finite or -inf. Got {value} at {place}")


def seem_right(*potentials: Tensor) -> bool:
    """Whether all are floats below +inf; a GPU is waited for once. If not, or unknown, look again.

    A part of them may be padding, where anything is right.
    """
    if not all(x.is_floating_point() and x.numel() for x in potentials):
        return False
    if not is_readable(*potentials):
        return False
    if not all(x.is_cuda for x in potentials):
        return all(_largest(x) < torch.inf for x in potentials)
    return float(torch.stack([x.detach().amax() for x in potentials]).amax()) < torch.inf


def on_host(*given: Any) -> tuple[Any, ...]:
    """The same, integers of a GPU as tensors on the CPU, where checks wait for nothing."""
    there = [
        x for x in given
        if type(x) is Tensor and x.is_cuda and is_integer(x) and x.layout is torch.strided
    ]  # fmt: skip
    if not there or any(x.is_nested for x in there) or not is_readable(*there):
        return given
    flat = torch.cat([x.reshape(-1) for x in there]).cpu()  # one copy for all
    parts = {
        id(x): part.reshape(x.shape)
        for x, part in zip(there, torch.split(flat, [x.numel() for x in there]), strict=True)
    }
    return tuple(parts.get(id(x), x) for x in given)


def checked_lengths(
    lengths: Any, batch_shape: torch.Size, n: int, device: torch.device, name: str = "lengths"
) -> Int[Tensor, "*b"]:
    """The lengths, a tensor or a list, as 64-bit integers; all n if None."""
    if lengths is None:
        return torch.full(batch_shape, n, device=device)
    if isinstance(lengths, int | list | tuple):
        lengths = as_tensor(lengths)
    if not isinstance(lengths, Tensor):
        raise ArgumentError(name, f"must be integers {list(batch_shape)}. Got {lengths!r:.80}")
    _refuse_unusual(name, lengths)
    if lengths.shape != batch_shape or not is_integer(lengths):
        raise ArgumentError(
            name, f"must be integers {list(batch_shape)}. Got {lengths.dtype} {list(lengths.shape)}"
        )
    if is_readable(lengths) and bool(((lengths < 0) | (lengths > n)).any()):
        raise ArgumentError(name, f"must be in 0..{n}. Got {lengths.tolist()}")
    return lengths.to(device, torch.long, copy=True)  # the caller may modify theirs later


def as_tensor(integers: Any) -> Any:
    """A list as a tensor, or the list itself if that is impossible."""
    try:
        found = torch.tensor(integers)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return integers
    return found if found.numel() else found.long()  # torch makes floats of an empty list


def refuse_misfits(name: str, event: Any, wanted: list[int], fixed: int = 1) -> None:
    """Raise unless these are integers [*s *wanted], where all but the last `fixed` may expand."""
    refuse_non_tensors(**{name: event})
    samples = event.shape[: max(event.ndim - len(wanted), 0)]
    fits = list(event.shape[-fixed:]) == wanted[-fixed:]
    if not (fits and broadcasts(event.shape, [*samples, *wanted]) and is_integer(event)):
        raise ArgumentError(
            name,
            f"must be integers [..., {', '.join(map(str, wanted))}]. "
            f"Got {event.dtype} {list(event.shape)}",
        )


def checked_range(name: str, values: Tensor, lowest: int, end: int) -> Tensor:
    """The values, refused unless all are in lowest..end-1."""
    if in_graph():
        checked: Tensor = _in_range(name, values, lowest, end)
        return checked
    if (
        values.numel()
        and is_readable(values)
        and not (int(values.min()) >= lowest and int(values.max()) < end)
    ):
        raise ArgumentError(
            name, f"must be in {lowest}..{end - 1}. Got {int(values.min())}..{int(values.max())}"
        )
    return values


_in_range = torch.library.custom_op(
    "inout::in_range",
    lambda *arguments: checked_range(*arguments).clone(),
    mutates_args=(),
    schema="(str name, Tensor values, SymInt lowest, SymInt end) -> Tensor",
)
_in_range.register_fake(lambda name, values, lowest, end: torch.empty_like(values))


def of_one_dtype(potentials: dict[str, Tensor]) -> dict[str, Tensor]:
    """The potentials in one dtype that the kernels compute in: the widest, at least float32."""
    dtype = torch.float32
    for potential in potentials.values():
        dtype = torch.promote_types(dtype, potential.dtype)
    return {name: potential.to(dtype) for name, potential in potentials.items()}


def _largest(potential: Tensor) -> float:
    """The largest of its numbers, nan if any is nan.

    Small tensors go through numpy: torch would wake a thread, and wait for it on a busy core.
    """
    values = potential.detach()
    if values.is_cpu and values.numel() < _FEW and values.dtype in (torch.float32, torch.float64):
        return float(numbers(values).max())
    return float(values.amax())
