"""What families check and change about their arguments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from inout._core.errors import ArgumentError


def broadcasts(shape: torch.Size, wanted: Sequence[int]) -> bool:
    """Whether a tensor of `shape` can be expanded to the shape `wanted`."""
    own = [1] * (len(wanted) - len(shape)) + list(shape)
    return len(own) == len(wanted) and all(
        size in (1, whole) for size, whole in zip(own, wanted, strict=True)
    )


def is_integer(x: Tensor) -> bool:
    """Whether a tensor holds integers."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def refuse_non_floats(name: str, potential: Tensor) -> None:
    """Raise unless a potential has floats."""
    if not potential.is_floating_point():
        raise ArgumentError(f"{name} must be a float tensor. Got {potential.dtype}")


def refuse_bad_values(name: str, potential: Tensor, used: Tensor | None = None) -> None:
    """Raise unless all values (those in the mask `used`, if given) are floats below +inf."""
    refuse_non_floats(name, potential)
    # One pass without memory of its own when all is well: the largest value is NaN if any is.
    if potential.numel() == 0 or bool(potential.detach().amax() < torch.inf):
        return
    bad = torch.isnan(potential) | (potential == torch.inf)
    if used is not None:
        bad = bad & used
    if bool(bad.any()):
        place = bad.nonzero()[0].tolist()
        value = potential.expand(bad.shape)[tuple(place)].item()
        raise ArgumentError(f"{name} must be finite or -inf. Got {value} at {place}")


def checked_lengths(
    lengths: Tensor | None, batch_shape: torch.Size, n: int, device: torch.device
) -> Int[Tensor, "*b"]:
    """The lengths as 64-bit integers; all n if None."""
    if lengths is None:
        return torch.full(batch_shape, n, device=device)
    if not isinstance(lengths, Tensor):
        raise ArgumentError(f"lengths must be a tensor of integers. Got {lengths!r}")
    if lengths.shape != batch_shape or not is_integer(lengths):
        raise ArgumentError(
            f"lengths must be integers {list(batch_shape)}. "
            f"Got {lengths.dtype} {list(lengths.shape)}"
        )
    if bool(((lengths < 0) | (lengths > n)).any()):
        raise ArgumentError(f"lengths must be in 0..{n}. Got {lengths.tolist()}")
    return lengths.to(device, torch.long, copy=True)  # what happens to the caller's does not matter


def refuse_other_shapes(name: str, event: Tensor, wanted: list[int]) -> None:
    """Raise unless these are integers [*s *wanted], which may be broadcast but for the last one."""
    samples = event.shape[: max(event.ndim - len(wanted), 0)]
    fits = event.shape[-1:] == (wanted[-1],) and broadcasts(event.shape, [*samples, *wanted])
    if not fits or not is_integer(event):
        raise ArgumentError(
            f"{name} must be integers [..., {', '.join(map(str, wanted))}]. "
            f"Got {event.dtype} {list(event.shape)}"
        )


def checked_labels(event: Tensor, batch_shape: torch.Size, real: Tensor, labels: int) -> Tensor:
    """Labels [*s *b n] with 0 where `real` [*b n] says that they are beyond an element's length."""
    refuse_other_shapes("labels", event, [*batch_shape, real.shape[-1]])
    found = torch.where(real, event, 0).long()
    if found.numel() and not (int(found.min()) >= 0 and int(found.max()) < labels):
        raise ArgumentError(
            f"labels must be in 0..{labels - 1}. Got {int(found.min())}..{int(found.max())}"
        )
    return found


def of_one_dtype(potentials: dict[str, Tensor]) -> dict[str, Tensor]:
    """The potentials in one dtype that the kernels compute in: the widest, at least float32."""
    dtype = torch.float32
    for potential in potentials.values():
        dtype = torch.promote_types(dtype, potential.dtype)
    return {name: potential.to(dtype) for name, potential in potentials.items()}


def random_seed(generator: torch.Generator) -> int:
    """64 bits from the generator."""
    bits = torch.randint(-(2**63), 2**63 - 1, (), generator=generator, device=generator.device)
    return int(bits) % 2**64
