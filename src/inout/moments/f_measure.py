"""Expected F-measure: a ratio of two additive functions, by exact quadrature or by a series."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb, factorial

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from inout._core.checks import at_least, expect, expect_one_of
from inout._core.errors import ArgumentError
from inout.distributions.arguments import broadcasts
from inout.distributions.base import StructuredDistribution
from inout.distributions.chain import LinearChain
from inout.distributions.derivatives import Potentials
from inout.distributions.generating import generating_function
from inout.distributions.semi_markov import SemiMarkov
from inout.distributions.span_tree import SpanTree
from inout.moments.quadrature import enough_nodes, jacobi_rule
from inout.moments.ratio import Ratio, expected_ratio, probability_of_none
from inout.moments.tilting import tilted, without_copies
from inout.series import Truncated

METHODS = ("quadrature", "series")


def expected_f(
    d: StructuredDistribution,
    correct: Mapping[str, Tensor],
    size: Mapping[str, Tensor],
    gold_size: Tensor | float,
    gamma: float = 1.0,
    *,
    method: str = "quadrature",
    nodes: int | None = None,
    order: int = 15,
    centre: float | None = None,
) -> Float[Tensor, "*b"]:
    """E[(1 + gamma²) l / (|π| + gamma² L)], the expected F-measure; to be maximised.

    l(event) is the sum of `correct` over the event's parts: how many are right. |π| is the sum of
    `size`, whole numbers: how many of its parts count. L is `gold_size` [*b]: how many gold parts
    there are. Both functions are given as for `expectation`. gamma = 1 is F1, gamma = 0 precision;
    a larger gamma weighs recall more. If L = 0, an event without counted parts is right: the
    probability of |π| = 0 is added. 0 if no event is possible.

    `method="quadrature"`: 1 / (|π| + c) is the integral over t in [0, 1] of t^(|π| + c - 1), and
    E[l t^|π|] is E[l] of a distribution with tilted potentials, times its Z, divided by ours.
    Gauss-Jacobi quadrature is exact up to rounding for 2 `nodes` > |π|, and to 13 digits with the
    default number of nodes (about 3 times the root of the largest |π|). Each node costs one log Z
    and its gradient; if a gradient is needed, also one Hessian-vector product, already in the
    forward pass, whose memory does not grow with the nodes.

    `method="series"`: the first `order` + 1 terms of the power series of the denominator about
    |π| = `centre` (equation 52), from the joint moments of |π| and l. It converges if
    ||π| - centre| < centre + gamma² L for every event that has something right; the default is
    the mean of |π|, or half of one more than the largest |π| if that is more, with which it does.
    Its error falls like a power of the largest ratio of these two: prefer quadrature if |π| can
    be much larger than L.

    Differentiable in the potentials and in `correct`, to any order. In float32 the result has only
    as many digits as exp(log Z): use float64 potentials for more.

    >>> import torch
    >>> from inout import LinearChain
    >>> chain = LinearChain(torch.zeros(2, 2), torch.zeros(2, 2))  # label 1 is counted
    >>> gold = {"emissions": torch.tensor([[0.0, 1.0], [0.0, 0.0]])}  # it belongs at position 0
    >>> expected_f(chain, gold, {"emissions": torch.tensor([0.0, 1.0])}, 1.0)  # (0 + 0 + 1 + 2/3)/4
    tensor(0.4167)

    Azuma & Matsumoto, "A generalization of forward-backward algorithm", equations 49-53; Jansche,
    "Maximum expected F-measure training of logistic regression models" (2005).
    """
    expect_one_of("method", method, METHODS)
    expect(0 <= gamma <= 1e100, "gamma", "must be a number from 0 to 1e100", gamma)
    right, counted = d._checked("correct", correct), d._checked("size", size)
    _refuse_uncountable(correct, size)
    gold = _checked_gold(d, gold_size)
    offsets = gamma**2 * gold
    counts_all = _counts_what_is_right(correct, size)
    if not counts_all and bool((offsets == 0).any()):
        raise ArgumentError(
            "size",
            "must count all parts where correct is not 0, if gamma² gold_size is 0: "
            "an event that counts nothing would divide by 0",
        )
    if method == "quadrature":
        ratio = _quadrature(d, size, offsets, nodes, counts_all)
        result = expected_ratio(d, right, ratio)
    else:
        order = at_least("order", order, 0)
        result = _series(d, right, counted, offsets, order, centre)
    result = (1 + gamma**2) * result
    nothing_there = gold == 0
    if bool(nothing_there.any()):
        none = probability_of_none(d, size)
        result = result + torch.where(nothing_there, none, 0.0)
    return result


def expected_f_of_event(
    d: StructuredDistribution,
    event: Tensor,
    gamma: float = 1.0,
    counted: Bool[Tensor, " s"] | None = None,
    *,
    method: str = "quadrature",
    nodes: int | None = None,
    order: int = 15,
    centre: float | None = None,
) -> Float[Tensor, "*b"]:
    """Expected F-measure against a gold event [*b ...]; see `expected_f`.

    What is right: in a `LinearChain` or `HMM`, a position with its gold label; in a `SemiMarkov`,
    a segment with the gold one's start, end and label, whatever comes before it; in a `SpanTree`,
    a span of the gold tree with its label. `counted` [s] says which labels count, by default
    all; leave out those that do not, such as a label "outside".

    >>> import torch
    >>> from inout import SemiMarkov
    >>> segments = SemiMarkov(torch.zeros(3, 2, 1, 1))  # 1+1+1, 1+2, 2+1: F1 of 2/5, 1, 0
    >>> expected_f_of_event(segments, torch.tensor([0, -1, 0]))
    tensor(0.4667)
    """
    if isinstance(d, LinearChain):
        name = "emissions"
    elif isinstance(d, SemiMarkov | SpanTree):
        name = "log_potentials"
    else:
        wanted = ": the parts of this family do not say what is right; use expected_f"
        raise ArgumentError("d", f"{wanted}. Got {d}")
    gold = d.parts(event)[name]
    s = gold.shape[-1]
    single = event.ndim == len(d.batch_shape) + len(d.event_shape)
    expect(single, "event", "must be one gold event for each element", list(event.shape))
    if counted is None:
        counted = torch.ones(s, dtype=torch.bool, device=gold.device)
    fits = counted.shape == (s,) and counted.dtype == torch.bool
    expect(fits, "counted", f"must be {s} booleans", counted)
    gold = gold * counted
    if isinstance(d, SemiMarkov):
        gold = gold.sum(-2, keepdim=True)  # whatever the label before
    gold_size = gold.flatten(len(d.batch_shape)).sum(-1)
    return expected_f(
        d,
        {name: gold},
        {name: counted.to(gold.dtype)},
        gold_size,
        gamma,
        method=method,
        nodes=nodes,
        order=order,
        centre=centre,
    )


def _refuse_uncountable(correct: Mapping[str, Tensor], size: Mapping[str, Tensor]) -> None:
    """Raise unless sizes are whole numbers that are not negative, and all values finite."""
    for name, values in size.items():
        whole = (values >= 0) & (values < torch.inf) & (values == values.round())
        if not bool(whole.all()):
            wanted = "must be whole numbers of at least 0"
            raise ArgumentError(f"size[{name!r}]", f"{wanted}. Got {values[~whole][0].item()}")
    for name, values in correct.items():
        if not bool(values.detach().isfinite().all()):
            raise ArgumentError(f"correct[{name!r}]", "must be finite")


def _checked_gold(d: StructuredDistribution, gold_size: Tensor | float) -> Float[Tensor, "*b"]:
    """The gold sizes [*b] in float64."""
    gold = torch.as_tensor(gold_size, dtype=torch.float64, device=d.lengths.device).detach()
    fits = broadcasts(gold.shape, d.batch_shape)
    expect(fits, "gold_size", f"must be {list(d.batch_shape)}", list(gold.shape))
    if not bool(((gold >= 0) & (gold < torch.inf)).all()):
        raise ArgumentError("gold_size", f"must be at least 0. Got {gold.min().item()}")
    return gold.expand(d.batch_shape)


def _counts_what_is_right(correct: Mapping[str, Tensor], size: Mapping[str, Tensor]) -> bool:
    """Whether every part that may be right is counted: then l = 0 where |π| = 0."""
    nothing = torch.zeros(())
    return not any(
        bool(((values != 0) & (size.get(name, nothing).to(values.device) == 0)).any())
        for name, values in correct.items()
    )


def largest_size(d: StructuredDistribution, size: Mapping[str, Tensor]) -> int:
    """The largest |π| of a possible event of any element: the score of a best one, by Viterbi."""
    if d.batch_shape.numel() == 0:
        return 0
    with torch.no_grad():
        reach = {
            name: torch.where(p > -torch.inf, size.get(name, p.new_zeros(())).to(p), -torch.inf)
            for name, p in d.potentials.items()
        }
        best = tilted(d, reach).mode
        return int(d._total(d.parts(best), d._checked("size", size)).max())


def _quadrature(
    d: StructuredDistribution,
    size: Mapping[str, Tensor],
    offsets: Float[Tensor, "*b"],
    nodes: int | None,
    counts_all: bool,
) -> Ratio:
    """1 / (|π| + offset) of each element as a sum over nodes of weight * node^|π|.

    If l = 0 where |π| = 0, t^(|π| - 1) is integrated with the weight t^offset, which is as smooth
    at offset 0 as elsewhere.
    """
    spared = 1 if counts_all else 0
    distinct, inverse = np.unique(offsets.reshape(-1).cpu().numpy(), return_inverse=True)
    if nodes is None:
        degree = max(largest_size(d, size) - spared, 0)
        count = max([1, *(enough_nodes(c - 1 + spared, degree) for c in distinct.tolist())])
    else:
        count = at_least("nodes", nodes, 1)
    rules = [jacobi_rule(c - 1 + spared, count) for c in distinct.tolist()]
    points = np.array([t for t, _ in rules]).reshape(-1, count)[inverse]
    weights = np.array([w / t**spared for t, w in rules]).reshape(-1, count)[inverse]

    def by_node(values: np.ndarray) -> Tensor:
        shaped = torch.from_numpy(np.ascontiguousarray(values.T))
        return shaped.reshape(count, *d.batch_shape).to(d.lengths.device)

    return Ratio(size, by_node(np.log(points)), by_node(weights))


def _series(
    d: StructuredDistribution,
    correct: Potentials,
    size: Potentials,
    offsets: Float[Tensor, "*b"],
    order: int,
    centre: float | None,
) -> Float[Tensor, "*b"]:
    """Truncated series of E[l / (|π| + offset)] about |π| = centre.

    With r = (|π| - centre) / (centre + offset) it is the sum over m of E[l (-r)^m], divided by
    centre + offset. The moments are those about a constant near the mean, shifted afterwards:
    powers of |π| itself would cancel.
    """
    twin = d._in_double()
    most = largest_size(d, size)
    # Kernels exploit that `correct` and `size` depend on few dimensions of a part.
    functions = [
        {name: without_copies(x).double() for name, x in f.items()} for f in (size, correct)
    ]
    generating = generating_function(twin, functions)
    with torch.no_grad():
        mean = twin.expectation(functions[0])
    about = mean.clamp(min=(most + 1) / 2) if centre is None else torch.full_like(offsets, centre)
    scale = about + offsets
    if bool((scale <= 0).any()):
        wanted = ": centre + gamma² gold_size must be above 0"
        expect(centre is None, "centre", wanted, centre)
        scale = torch.where(scale <= 0, 1.0, scale)  # no part ever counts, so none is right
    lanes = Truncated((order, 1))
    units = torch.stack([scale, torch.ones_like(scale)]).reshape(2, -1)
    x, centres = generating(lanes, units)
    # E[l (|π| - c)^i / i!] with a constant c near the mean, in units of the scale.
    moments = x.reshape(order + 1, 2, -1)
    joint = moments[:, 1] + centres[1] * moments[:, 0]
    shift = (centres[0] - (about / scale).flatten()).expand(order + 1, -1)
    powers = torch.cat([torch.ones_like(shift[:1]), shift[1:]]).cumprod(0)
    result = torch.zeros_like(joint[0])
    for m in range(order + 1):
        for i in range(m + 1):  # the binomial theorem; i! of a moment is in its coefficient
            times = float((-1) ** m * comb(m, i) * factorial(i))
            result = result + times * powers[m - i] * joint[i]
    dtype = next(iter(d.potentials.values())).dtype
    return (result / scale.flatten()).reshape(d.batch_shape).to(dtype)
