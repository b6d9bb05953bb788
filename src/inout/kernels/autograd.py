"""log Z as a torch function, for any number of potentials, differentiable to any order.

Also used for (possibly complex) values of generating functions. A family supplies its passes (log
Z, gradient, Hessian-vector product) and a slow twin in plain torch code, for third and higher
derivatives. Reverse and forward mode, and torch.func: `vmap` becomes a larger batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from inout._core.errors import InoutError
from inout._core.tracing import is_transformed, may_be_transformed
from inout.kernels.recording import freeing

LogPartition = Callable[..., Tensor]


@runtime_checkable
class Passes(Protocol):
    """A batch at one setting of its potentials; all tensors are on their device."""

    @property
    def log_z(self) -> Tensor:
        """log Z [b] in float64; results are in the first potential's dtype unless complex."""

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Gradient of weights [b] . log Z by each potential."""

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Hessian of weights . log Z times the directions, and last E[U] [b].

        U is the sum of the directions over the parts of a structure. They may be expanded, so
        not contiguous.
        """


class Evaluation:
    """log Z of one batch: how to make its passes, the twin, and the passes once they are made.

    Both take the potentials and, in families with a batch that can grow, the lengths [b].
    """

    def __init__(self, make: Callable[..., Passes], twin: LogPartition) -> None:
        self.make, self.twin = make, twin
        self._passes: Passes | None = None

    def passes(self, lengths: Tensor | None, potentials: Sequence[Tensor]) -> Passes:
        """The passes at these potentials; they are always the same ones."""
        if self._passes is None:
            self._passes = self.make(*potentials, *_given(lengths))
        return self._passes

    def again(self) -> Evaluation:
        """The same functions, for another batch."""
        return Evaluation(self.make, self.twin)

    def twin_of(self, lengths: Tensor | None) -> LogPartition:
        """The twin as a function of the potentials alone."""
        return lambda *potentials: self.twin(*potentials, *_given(lengths))


def _given(lengths: Tensor | None) -> tuple[Tensor, ...]:
    return () if lengths is None else (lengths,)


class _LogPartition(torch.autograd.Function):
    """(lengths, potentials) -> log Z [b]."""

    @staticmethod
    def forward(evaluation: Evaluation, lengths: Tensor | None, *potentials: Tensor) -> Tensor:
        return _log_z(evaluation, lengths, potentials)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.evaluation, *tensors = inputs
        ctx.shape = output.shape
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors  # refused if they were changed: passes read them again
        lengths, *potentials = tensors
        if torch.is_grad_enabled() or is_transformed(*gradients, *potentials):
            # There may be second derivatives.
            results = _apply(_Gradient, ctx.evaluation, lengths, gradients[0], *potentials)
        else:
            results = _gradients(ctx.evaluation, lengths, gradients[0], potentials)
        return None, None, *results

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        lengths, *potentials = ctx.saved_tensors
        directions = _directions(tangents[2:], potentials)
        ones = potentials[0].new_ones(ctx.shape)
        found = _apply(_Tangent, ctx.evaluation, lengths, ones, *potentials, *directions)
        expected: Tensor = found[-1]
        return expected

    @staticmethod
    def vmap(info: Any, in_dims: Any, evaluation: Evaluation, *tensors: Any) -> Any:
        if tensors[0] is None:
            return _one_by_one(_LogPartition, info, in_dims, evaluation.again, *tensors)
        batch = _Larger.of(info.batch_size, in_dims[1:], tensors)
        log_z = _apply(_LogPartition, evaluation.again(), *batch.flat(share=True))
        return log_z.reshape(info.batch_size, -1), 0


class _Plain(torch.autograd.Function):
    """The same without torch.func and forward mode, which costs torch less time to set up."""

    @staticmethod
    def forward(
        ctx: Any, evaluation: Evaluation, lengths: Tensor | None, *potentials: Tensor
    ) -> Tensor:
        output = _LogPartition.forward(evaluation, lengths, *potentials)
        _LogPartition.setup_context(ctx, (evaluation, lengths, *potentials), output)
        return output

    backward = staticmethod(_LogPartition.backward)


class _Gradient(torch.autograd.Function):
    """(lengths, g [b], potentials) -> gradients of g . log Z."""

    @staticmethod
    def forward(
        evaluation: Evaluation, lengths: Tensor | None, weights: Tensor, *potentials: Tensor
    ) -> tuple[Tensor, ...]:
        return _gradients(evaluation, lengths, weights, potentials)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.evaluation, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        lengths, weights, *potentials = ctx.saved_tensors
        directions = _directions(gradients, potentials)
        results = _apply(_Tangent, ctx.evaluation, lengths, weights, *potentials, *directions)
        return None, None, results[-1], *results[:-1]

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
        lengths, weights, *potentials = ctx.saved_tensors
        directions = _directions(tangents[3:], potentials)
        found = _apply(_Tangent, ctx.evaluation, lengths, weights, *potentials, *directions)[:-1]
        if tangents[2] is None:
            return tuple(found)
        more = _apply(_Gradient, ctx.evaluation, lengths, tangents[2], *potentials)
        return tuple(x + y for x, y in zip(found, more, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, evaluation: Evaluation, *tensors: Any) -> Any:
        lengths, _, *potentials = tensors
        if _all_fixed(in_dims[1], *in_dims[3:]):
            return _one_by_one(_Gradient, info, in_dims, lambda: evaluation, *tensors)
        if lengths is None:
            return _one_by_one(_Gradient, info, in_dims, evaluation.again, *tensors)
        batch = _Larger.of(info.batch_size, in_dims[1:], tensors)
        found = _apply(_Gradient, evaluation.again(), *batch.flat(share=False))
        return batch.apart(found, potentials), tuple(0 for _ in found)


class _Tangent(torch.autograd.Function):
    """(lengths, g, potentials, directions) -> (Hessian of g . log Z times them, E[U] [b])."""

    @staticmethod
    def forward(
        evaluation: Evaluation, lengths: Tensor | None, weights: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        count = len(rest) // 2
        *second, expected = freeing(
            lambda: evaluation.passes(lengths, rest[:count]).tangents(weights, rest[count:])
        )
        return *second, expected.to(weights.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.evaluation, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, outputs = _tangents_with_graph(ctx)
        higher = torch.is_grad_enabled()
        results = torch.autograd.grad(
            outputs, inputs, gradients, create_graph=higher, materialize_grads=True
        )
        return None, None, *results

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
        inputs, outputs = _tangents_with_graph(ctx)
        # A product with the transpose of the Jacobian is linear in its factors: differentiated by
        # them, it is a product with the Jacobian.
        factors = [torch.zeros_like(x).requires_grad_() for x in outputs]
        with torch.enable_grad():
            back = torch.autograd.grad(
                outputs, inputs, factors, create_graph=True, materialize_grads=True
            )
        along = [
            torch.zeros_like(x) if u is None else u
            for u, x in zip(tangents[2:], inputs, strict=True)
        ]
        used = [(x, u) for x, u in zip(back, along, strict=True) if x.requires_grad]
        found, directions = zip(*used, strict=True)
        return torch.autograd.grad(found, factors, directions, materialize_grads=True)

    @staticmethod
    def vmap(info: Any, in_dims: Any, evaluation: Evaluation, *tensors: Any) -> Any:
        lengths, _, *rest = tensors
        count = len(rest) // 2
        if _all_fixed(in_dims[1], *in_dims[3 : 3 + count]):
            return _one_by_one(_Tangent, info, in_dims, lambda: evaluation, *tensors)
        if lengths is None:
            return _one_by_one(_Tangent, info, in_dims, evaluation.again, *tensors)
        batch = _Larger.of(info.batch_size, in_dims[1:], tensors)
        *second, expected = _apply(_Tangent, evaluation.again(), *batch.flat(share=False))
        results = *batch.apart(second, rest[:count]), expected.reshape(info.batch_size, -1)
        return results, tuple(0 for _ in results)


for _own in (_LogPartition, _Gradient, _Tangent):
    # torch binds the arguments by it at every call; finding it out takes longer.
    _own.forward.__signature__ = signature(_own.forward)  # type: ignore[union-attr]


def _tangents_with_graph(ctx: Any) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Inputs and outputs of `_Tangent`, computed again by the twin, with a graph in between."""
    lengths, *saved = ctx.saved_tensors
    if is_transformed(*saved):
        raise InoutError(
            'third and higher derivatives by torch.func need tier="reference", '
            "or torch.autograd instead of torch.func"
        )
    with torch.enable_grad():
        # Aliases: if one input depends on another, the caller's graph handles it.
        inputs = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in saved]
        count = len(inputs) // 2
        outputs = tangents_by(
            ctx.evaluation.twin_of(lengths),
            inputs[0], inputs[1 : count + 1], inputs[count + 1 :], graph=True,
        )  # fmt: skip
    return inputs, outputs


class _Larger(NamedTuple):
    """A batch of batches [v b ...], for torch.vmap: tensors, and which dimension of each is v."""

    copies: int
    dims: tuple[int | None, ...]
    tensors: tuple[Tensor, ...]  # lengths [b] or [b ...] first
    size: int  # b

    @classmethod
    def of(cls, copies: int, dims: Sequence[int | None], tensors: Sequence[Tensor]) -> _Larger:
        lengths, dim = tensors[0], dims[0]  # [b], or more numbers for each element
        size = len(lengths) if dim is None else lengths.movedim(dim, 0).shape[1]
        return cls(copies, tuple(dims), tuple(tensors), size)

    def flat(self, *, share: bool) -> list[Tensor]:
        """All tensors as one batch [v * b, ...]; with `share`, what all elements share stays so."""
        found = []
        for tensor, dim in zip(self.tensors, self.dims, strict=True):
            if share and dim is None and tensor.shape[0] != self.size:
                found.append(tensor)
                continue
            whole = (
                tensor.expand(self.copies, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            )
            whole = whole.expand(self.copies, self.size, *whole.shape[2:])
            found.append(whole.flatten(0, 1))
        return found

    def apart(self, found: Sequence[Tensor], potentials: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Gradients [v * b, ...] as [v b ...], added up where the elements share a potential."""
        dims = self.dims[2 : 2 + len(potentials)]  # behind those of the lengths and weights
        results = []
        for gradient, potential, dim in zip(found, potentials, dims, strict=True):
            own = potential.shape[0] if dim is None else potential.movedim(dim, 0).shape[1]
            whole = gradient.reshape(self.copies, self.size, *gradient.shape[1:])
            results.append(whole if own == self.size else whole.sum(1, keepdim=True))
        return tuple(results)


def _all_fixed(*dims: int | None) -> bool:
    """Whether torch.vmap runs over none of these: lengths and potentials, and so the passes."""
    return all(dim is None for dim in dims)


def _one_by_one(
    function: type[torch.autograd.Function],
    info: Any,
    in_dims: Any,
    evaluation: Callable[[], Evaluation],
    *tensors: Any,
) -> Any:
    """The function of each slice, in a loop."""
    dims, slices = in_dims[1:], []
    for place in range(info.batch_size):
        own = [
            x if dim is None else x.select(dim, place) for x, dim in zip(tensors, dims, strict=True)
        ]
        slices.append(_apply(function, evaluation(), *own))
    if isinstance(slices[0], Tensor):
        return torch.stack(slices), 0
    results = tuple(torch.stack(found) for found in zip(*slices, strict=True))
    return results, tuple(0 for _ in results)


def _directions(given: Sequence[Tensor | None], potentials: Sequence[Tensor]) -> list[Tensor]:
    """Directions, with one expanded zero where there is none: passes can see that it is zero."""
    return [
        potential.new_zeros(()).expand(potential.shape) if direction is None else direction
        for direction, potential in zip(given, potentials, strict=True)
    ]


def tangents_by(
    twin: LogPartition,
    weights: Tensor,
    potentials: Sequence[Tensor],
    directions: Sequence[Tensor],
    *,
    graph: bool = False,
) -> tuple[Tensor, ...]:
    """As `Passes.tangents`, by differentiating `twin` twice; differentiable with `graph`."""
    with torch.enable_grad():
        own = [x if x.requires_grad else x.detach().requires_grad_() for x in potentials]
        scales = weights if weights.requires_grad else weights.detach().requires_grad_()
        log_z = twin(*own)
        log_z = torch.where(log_z == -torch.inf, 0.0, log_z)
        first = torch.autograd.grad(log_z, own, scales, create_graph=True, materialize_grads=True)
        # What log Z does not depend on at all has a gradient without a graph.
        used = [(x, u) for x, u in zip(first, directions, strict=True) if x.requires_grad]
        outputs, along = zip(*used, strict=True)
        return torch.autograd.grad(
            outputs, [*own, scales], along, create_graph=graph, materialize_grads=True
        )


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`, which torch leaves untyped."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def _log_z(evaluation: Evaluation, lengths: Tensor | None, potentials: Sequence[Tensor]) -> Tensor:
    log_z = freeing(lambda: evaluation.passes(lengths, potentials).log_z)
    # A copy: a result that the passes hold would hold them through its graph, a cycle.
    return log_z.to(log_z.dtype if log_z.is_complex() else potentials[0].dtype, copy=True)


def _gradients(
    evaluation: Evaluation, lengths: Tensor | None, weights: Tensor, potentials: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    return freeing(lambda: evaluation.passes(lengths, potentials).gradients(weights))


def gradient_wanted(*potentials: Tensor) -> bool:
    """Whether derivatives will be needed, so that passes must keep their charts."""
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in potentials)
    return wanted or is_transformed(*potentials)


def differentiable_log_partition(
    make: Callable[..., Passes],
    twin: LogPartition,
    *potentials: Tensor,
    lengths: Tensor | None = None,
) -> Tensor:
    """log Z [b] with a graph. `make` gives the passes, `twin` the slow log Z, of the potentials.

    With `lengths` [b], which both get last, the potentials are [b ...] or [1 ...], and torch.vmap
    makes one larger batch of many; without it, a loop.
    """
    evaluation = Evaluation(make, twin)
    if not (gradient_wanted(*potentials) or is_transformed(*_given(lengths))):
        return _log_z(evaluation, lengths, potentials)
    if lengths is not None and lengths.is_inference():
        lengths = lengths.clone()  # autograd saves no inference tensors
    function = _LogPartition if may_be_transformed() else _Plain
    result: Tensor = _apply(function, evaluation, lengths, *potentials)
    return result


def differentiable_gradients(
    passes: Passes, twin: LogPartition, weights: Tensor, *potentials: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of weights . log Z by each potential, themselves with a graph."""
    evaluation = Evaluation(lambda *_: passes, twin)
    results: tuple[Tensor, ...] = _apply(_Gradient, evaluation, None, weights, *potentials)
    return results
