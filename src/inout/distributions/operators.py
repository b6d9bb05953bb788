"""Queries as operators of torch, for the graphs of torch.compile and torch.export.

A graph knows a distribution by its tensors and by a text: the family, the names of the potentials,
the options. Where an operator runs, the distribution is made again, with all its checks, and asked
as ever. One operator serves all families, all queries that are differentiable, and derivatives of
any order: that of order k + 1 is the derivative of that of order k.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from inout.distributions.arguments import refuse_non_tensors

if TYPE_CHECKING:
    from inout.distributions.base import StructuredDistribution

FAMILIES: dict[str, Callable[..., StructuredDistribution]] = {}

EXPANDED = "_log_partition"  # the query for log Z under potentials expanded over the batch

# Results of order 0 -> what was computed for them: it is there for the derivative, until either
# the result is freed or the derivative has used it up.
_kept: MutableMapping[Tensor, tuple[Sequence[Tensor], Sequence[Tensor]]]
_kept = WeakTensorKeyDictionary()


class _Recipe(NamedTuple):
    """How to make a distribution, and what to ask it."""

    family: Callable[..., StructuredDistribution]
    query: str
    names: tuple[str, ...]
    options: dict[str, Any]

    def named(self, potentials: Sequence[Tensor]) -> dict[str, Tensor]:
        """The potentials by name."""
        return dict(zip(self.names, potentials, strict=True))

    def distribution(self, lengths: Tensor, potentials: Sequence[Tensor]) -> StructuredDistribution:
        """The distribution, with all checks of its constructor."""
        return self.family(**self.named(potentials), lengths=lengths, **self.options)

    def answer(self, given: Sequence[Tensor], potentials: Sequence[Tensor]) -> Tensor:
        """The answer to a differentiable query; lengths come first of what is given.

        That to log Z under other potentials: its own come next.
        """
        lengths, *others = given
        if self.query == EXPANDED:
            own = self.distribution(lengths, others)
            found: Tensor = own._log_partition(self.named(potentials))
        else:
            own = self.distribution(lengths, potentials)
            found = getattr(own, self.query)(*others)
        return found

    def inputs(self, order: int) -> int:
        """How many tensors the derivative of this order takes, with the weights of its results.

        Each order has the tensors of the one before, and weights for the results of that.
        """
        return len(self.names) if order == 0 else self.inputs(order - 1) + self.results(order - 1)

    def results(self, order: int) -> int:
        """How many tensors the derivative of this order gives: one for each input before."""
        return 1 if order == 0 else self.inputs(order - 1)


@cache
def _recipe(text: str) -> _Recipe:
    family, query, names, options = text.split(" ")
    own = dict(option.split("=") for option in options.split(",")) if options else {}
    return _Recipe(
        FAMILIES[family],
        query,
        tuple(names.split(",")),
        {name: literal_eval(value) for name, value in own.items()},
    )


def register(cls: type[StructuredDistribution]) -> None:
    """Let operators make distributions of this class, if it is the one of its family."""
    if cls.__name__ == cls.family:
        FAMILIES[cls.family] = cls


def _text(d: StructuredDistribution, query: str) -> str:
    """The recipe as a text, which graphs can hold."""
    options = [f"{name}={getattr(d, name)!r}" for name in d.options]
    if d.tier == "reference":  # the others depend on the device
        options.append("tier='reference'")
    return f"{type(d).family} {query} {','.join(d.potentials)} {','.join(options)}"


@contextmanager
def _outside() -> Iterator[None]:
    """As outside of operators: within them autograd records nothing, whatever is enabled."""
    keys = torch._C._dispatch_tls_local_exclude_set().remove(
        torch._C.DispatchKey.AutogradFunctionality
    )
    included = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(included, keys), torch.inference_mode(False):
        yield


def _plain(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors without graphs; copies of inference tensors, which autograd refuses."""
    return [x.clone() if x.is_inference() else x.detach() for x in tensors]


def _computed(
    recipe: _Recipe, order: int, given: Sequence[Tensor], tensors: Sequence[Tensor], graph: bool
) -> Sequence[Tensor]:
    """The results of this order, with a graph or without."""
    if order == 0:
        return [recipe.answer(given, tensors)]
    count = recipe.inputs(order - 1)
    inputs = [x if x.requires_grad else x.detach().requires_grad_() for x in tensors[:count]]
    results = _computed(recipe, order - 1, given, inputs, True)
    return _derivatives(results, inputs, tensors[count:], graph)


def _derivatives(
    results: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor], graph: bool
) -> Sequence[Tensor]:
    """Those of weights · results by the inputs, 0 where nothing depends on them."""
    used = [(x, w) for x, w in zip(results, weights, strict=True) if x.requires_grad]
    if not used:
        return [torch.zeros_like(x) for x in inputs]
    outputs, scales = zip(*used, strict=True)
    return torch.autograd.grad(outputs, inputs, scales, create_graph=graph, materialize_grads=True)


def _own(results: Sequence[Tensor], *others: Sequence[Tensor]) -> list[Tensor]:
    """The results as contiguous tensors that share no memory with each other or with others."""
    seen = {x.untyped_storage().data_ptr() for tensors in others for x in tensors}
    found = []
    for result in results:
        x = result.detach().contiguous()
        if x.untyped_storage().data_ptr() in seen:
            x = x.clone()
        seen.add(x.untyped_storage().data_ptr())
        found.append(x)
    return found


def _asked(
    text: str,
    order: int,
    shape: Sequence[int],
    keep: bool,
    given: Sequence[Tensor],
    tensors: Sequence[Tensor],
    before: Sequence[Tensor],
) -> list[Tensor]:
    """The operator: results of this order. Those `before`, of one order less, may help."""
    recipe = _recipe(text)
    with _outside(), torch.set_grad_enabled(keep or order > 0):
        known = _kept.pop(before[0], None) if before else None
        if known is not None:
            results = _derivatives(*known, tensors[recipe.inputs(0) :], False)
            return _own(results, given, tensors)
        others, inputs = _plain(given), _plain(tensors)
        if not keep:
            return _own(_computed(recipe, order, others, inputs, False), given, tensors)
        inputs = [x.requires_grad_() for x in inputs]
        results = _computed(recipe, 0, others, inputs, True)
        # No view: what saves it for the derivative would detach that, and not be recognised.
        found = results[0].detach().clone()
        _kept[found] = results, inputs
        return [found]


def _imagined(
    text: str,
    order: int,
    shape: Sequence[Any],
    keep: bool,
    given: Sequence[Tensor],
    tensors: Sequence[Tensor],
    before: Sequence[Tensor],
) -> list[Tensor]:
    """The shapes of the results."""
    if order == 0:
        return [tensors[0].new_empty(shape)]
    count = _recipe(text).results(order)
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in tensors[:count]]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    text, order, shape, keep, given, tensors, before = inputs
    ctx.text, ctx.order, ctx.empty = text, order, not len(shape)
    ctx.sizes = len(given), len(tensors), len(before)
    ctx.save_for_backward(*given, *tensors, *(output if order == 0 else []))


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    own, count, more = ctx.sizes
    saved = ctx.saved_tensors
    given, tensors, before = saved[:own], saved[own : own + count], saved[own + count :]
    found = query(
        ctx.text, ctx.order + 1, [], False, list(given), [*tensors, *gradients], list(before)
    )
    # An empty list is no leaf of torch's trees, so it must come back as one.
    return None, None, [] if ctx.empty else None, None, [None] * own, found, [None] * more


query = torch.library.custom_op(
    "inout::query",
    _asked,
    mutates_args=(),
    schema="(str text, int order, SymInt[] shape, bool keep, "
    "Tensor[] given, Tensor[] tensors, Tensor[] before) -> Tensor[]",
)
query.register_fake(_imagined)
query.register_autograd(_backward, setup_context=_remember)


def _decoded(
    text: str, shape: Sequence[int], given: Sequence[Tensor], potentials: Sequence[Tensor]
) -> Tensor:
    """The operator: events, or the lengths of a distribution that has been checked."""
    recipe = _recipe(text)
    with _outside(), torch.no_grad():
        found = getattr(recipe.distribution(given[0], _plain(potentials)), recipe.query)
        (events,) = _own([found if isinstance(found, Tensor) else found()], given, potentials)
        return events


decode = torch.library.custom_op(
    "inout::decode",
    _decoded,
    mutates_args=(),
    schema="(str text, SymInt[] shape, Tensor[] given, Tensor[] potentials) -> Tensor",
)
decode.register_fake(lambda text, shape, given, potentials: given[0].new_empty(shape))


def _query(d: StructuredDistribution, name: str, shape: Sequence[int], *given: Tensor) -> Tensor:
    """A differentiable query in a graph."""
    potentials = list(d.potentials.values())
    keep = torch.is_grad_enabled() and any(x.requires_grad for x in potentials)
    (found,) = query(_text(d, name), 0, list(shape), keep, [d.lengths, *given], potentials, [])
    result: Tensor = found
    return result


def _events(d: StructuredDistribution, name: str) -> Tensor:
    potentials = [x.detach() for x in d.potentials.values()]
    found: Tensor = decode(
        _text(d, name), [*d.batch_shape, *d.event_shape], [d.lengths], potentials
    )
    return found


def _log_partition(self: StructuredDistribution) -> Tensor:
    return _query(self, "log_partition", self.batch_shape)


def _entropy(self: StructuredDistribution) -> Tensor:
    return _query(self, "entropy", self.batch_shape)


def _log_prob(self: StructuredDistribution, event: Tensor) -> Tensor:
    refuse_non_tensors(event=event)
    ndim = len(self.batch_shape) + len(self.event_shape)
    samples = event.shape[: max(event.ndim - ndim, 0)]
    return _query(self, "log_prob", [*samples, *self.batch_shape], event)


def _marginals(self: StructuredDistribution, *names: str) -> dict[str, Tensor]:
    """The derivative of log Z, like any other."""
    self.refuse_unknown("marginals", names)
    asked = [name for name in self.potentials if not names or name in names]
    expanded = self._expanded()
    tensors = [expanded[name] if name in asked else p for name, p in self.potentials.items()]
    ones = tensors[0].new_ones(self.batch_shape)
    given = [self.lengths, *[x.detach() for x in self.potentials.values()]]
    found = query(_text(self, EXPANDED), 1, [], False, given, [*tensors, ones], [])
    named = dict(zip(self.potentials, found, strict=True))
    return {name: named[name] for name in asked}


def _mode(self: StructuredDistribution) -> Tensor:
    return _events(self, "mode")


def _min_risk(self: StructuredDistribution) -> Tensor:
    return _events(self, "min_risk")


IN_GRAPH: dict[str, Callable[..., Any] | None] = {
    "log_partition": _log_partition,
    "log_prob": _log_prob,
    "entropy": _entropy,
    "marginals": _marginals,
    "mode": _mode,
    "min_risk": _min_risk,
    # These read no values themselves.
    "size": None,
    "refuse_unknown": None,
    "expectation": None,
    "label_marginals": None,
}


def checked_when_made(cls: type[StructuredDistribution]) -> Callable[..., None]:
    """`__init__` in a graph: values are checked by the operator that the lengths come from."""
    make = cls.__init__

    @wraps(make)
    def init(self: StructuredDistribution, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if type(self) is cls:
            potentials = [x.detach() for x in self.potentials.values()]
            self.lengths = decode(
                _text(self, "lengths"), self.batch_shape, [self.lengths], potentials
            )

    return init
