"""`Batched`: indexing, expanding, moving and detaching of distributions, once for all families."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, NoReturn, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.distributions import Distribution

from inout._core.errors import ArgumentError, NotDifferentiableError
from inout._core.tracing import any_seen, untraced
from inout.distributions.arguments import as_tensor, broadcasts, of_one_dtype
from inout.kernels.tiers import Tier, choose_tier

D = TypeVar("D", bound="Batched")
# What becomes of a tensor, given how many dimensions of it lie behind those of the batch; None if
# it has none of the batch, because all elements share it.
Change = Callable[[Tensor, int | None], Tensor]


@untraced
class Batched(Distribution):
    """A distribution whose tensors are [*b ...], of which the batch may share some.

    Its tensors are `potentials` and `lengths`; a family that holds others names them in
    `_further_tensors`, with the number of dimensions that each has for one element. The results
    are views where torch can make views, and options (tier, memory, ...) carry over.
    """

    potentials: dict[str, Tensor]
    lengths: Int[Tensor, "*b"]
    tier: Tier
    _further_tensors: ClassVar[Mapping[str, int]] = {}
    _shareable: ClassVar[frozenset[str]] = frozenset()  # tensors that the batch may share

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        """Shape of each potential for one batch element; here of potentials that none share."""
        return {name: p.shape[len(self.batch_shape) :] for name, p in self.potentials.items()}

    def _tensors_changed(self) -> None:
        """Make again what the family derives from its tensors, after all of them changed."""

    def _changed(self: D, change: Change) -> D:
        """The same distribution with other tensors, whose batch shape is that of the lengths."""
        twin, shapes = copy(self), self._part_shapes

        def changed(name: str, x: Tensor, own: int) -> Tensor:
            shared = name in self._shareable and x.ndim == own
            return change(x, None if shared else own)

        potentials = self.potentials.items()
        twin.potentials = {name: changed(name, x, len(shapes[name])) for name, x in potentials}
        for name, own in self._further_tensors.items():
            if (x := getattr(self, name)) is not None:
                setattr(twin, name, changed(name, x, own))
        with torch.inference_mode(False):  # what autograd saves must be no inference tensor
            twin.lengths = change(self.lengths, 0).contiguous()  # kernels read them as they lie
        twin._batch_shape = twin.lengths.shape
        twin._tensors_changed()
        return twin

    def expand(self: D, batch_shape: torch.Size | Sequence[int], _instance: None = None) -> D:
        """The distribution with a larger batch: `batch_shape`, of more dimensions or of sizes 1.

        As in torch.distributions. Elements are not copied but repeated as views, and what the batch
        shared it still shares; samples of the copies are independent.

        >>> import torch
        >>> from inout import LinearChain
        >>> chain = LinearChain(torch.zeros(3, 2), torch.zeros(2, 2))
        >>> chain.expand((4, 5)).sample().shape
        torch.Size([4, 5, 3])
        """
        try:
            shape = torch.Size(batch_shape)
        except TypeError as error:
            raise ArgumentError("batch_shape", f"must be sizes. Got {batch_shape!r:.80}") from error
        if min(shape, default=0) < 0 or not broadcasts(self.batch_shape, shape):
            raise ArgumentError(
                "batch_shape",
                f"must be one to which {list(self.batch_shape)} expands. Got {list(shape)}",
            )
        return self._changed(
            lambda x, own: x if own is None else x.expand(shape + x.shape[x.ndim - own :])
        )

    def __getitem__(self: D, index: Any) -> D:
        """Some elements of the batch: `d[i]`, `d[2:5]`, `d[..., 0]`, `d[mask]`, `d[[4, 1]]`.

        As tensors are indexed, but the batch dimensions only. What the batch shares stays shared,
        and gradients flow to the potentials of the whole batch. Padding stays as long as it is.
        """
        if isinstance(index, list):
            index = as_tensor(index)
        self._refuse_bad_index(index)
        places = index if isinstance(index, tuple) else (index,)
        # Without an ellipsis the last dimensions are left alone anyway.
        behind = any(place is Ellipsis for place in places)
        batch_shape = self.batch_shape

        def chosen(x: Tensor, own: int | None) -> Tensor:
            if own is None:
                return x
            whole = x.expand(batch_shape + x.shape[x.ndim - own :])
            return whole[(*places, *[slice(None)] * (own * behind))]

        return self._changed(chosen)

    def _refuse_bad_index(self, index: Any) -> None:
        try:
            if isinstance(index, str | list):
                raise TypeError("these are no integers")
            self.lengths[index]
        except (IndexError, TypeError, ValueError, RuntimeError) as error:
            given = f"{index!r:.80}"
            message = f"must fit the batch shape {list(self.batch_shape)}. Got {given}: {error}"
            if not self.batch_shape:
                message = f": there is no batch to index. Got {given}"
            raise ArgumentError("index", message) from error

    def __iter__(self: D) -> Iterator[D]:
        """The distributions along the first batch dimension."""
        if not self.batch_shape:
            raise ArgumentError(None, "a distribution without a batch has no elements")
        return (self[i] for i in range(self.batch_shape[0]))

    def detach(self: D) -> D:
        """The same distribution, cut off from the graph of its potentials."""
        return self._changed(lambda x, _: x.detach())

    def to(
        self: D,
        *targets: torch.device | torch.dtype | str | int,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> D:
        """The distribution on another device, or with potentials in another dtype, or both.

        Differentiable. Half precision rounds the potentials, which are computed in float32. On
        another device the kernels are those of the device, unless the tier is "reference".
        """
        for target in targets:
            if isinstance(target, torch.dtype):
                dtype = target
            else:
                device = target
        if dtype is not None and not dtype.is_floating_point:
            raise ArgumentError("dtype", f"must be one of floats. Got {dtype}")
        where = self.lengths.device if device is None else _checked_device(device)

        def moved(x: Tensor, _: int | None) -> Tensor:
            return x.to(where, dtype if x.is_floating_point() else None)

        twin = self._changed(moved)
        if dtype is not None:
            for name, before in self.potentials.items():
                _refuse_overflow(name, before, twin.potentials[name])
        twin.potentials = of_one_dtype(twin.potentials)
        twin.tier = choose_tier(where, "reference" if self.tier == "reference" else None)
        return twin

    def rsample(self, *_: Any, **__: Any) -> NoReturn:
        """Not possible: raises. Samples are discrete, so they have no derivative."""
        raise NotDifferentiableError(
            f"samples of {type(self).__name__} are discrete and have no derivative. For that of an "
            "expected value use expectation(f), marginals() or moments(...), which are exact and "
            "differentiable; of any other function, its values at sample(...) times log_prob of "
            "them (the score-function estimator)"
        )


def _checked_device(device: Any) -> torch.device:
    """The device with its number, as tensors on it have it."""
    try:
        found = torch.empty(0, device=device).device
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        wanted = "must be a device of this machine"
        raise ArgumentError("device", f"{wanted}. Got {device!r:.80}: {error}") from error
    if found.type == "meta":
        raise ArgumentError("device", "must be one that computes. Got meta, which has no values")
    return found


def _refuse_overflow(name: str, before: Tensor, after: Tensor) -> None:
    """Raise if finite potentials became infinite."""
    if before.dtype == after.dtype:
        return
    lost = before.isfinite().to(after.device) & ~after.isfinite()
    if any_seen(lost):
        value = before[lost.to(before.device)][0].item()
        raise ArgumentError("dtype", f"must have room for {value} of {name}. Got {after.dtype}")
