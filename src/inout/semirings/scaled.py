"""Any algebra with an exponent per element: no overflow, no underflow, signs preserved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Inexact, Int
from torch import Tensor

from inout.semirings.algebra import Algebra
from inout.semirings.base import LogWeights, Semiring, Values, segment_max

# log 2 in two parts; the first ends in 21 zero bits, so that its integer multiples are exact.
_LOG2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LOG2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


class ScaledElements(NamedTuple):
    """A batch of elements mantissa · 2^exponent.

    The largest coefficient of each mantissa has an absolute value in [½, 1), so that equal
    elements look equal; only 0 may have any exponent. Exponents are whole numbers, kept as
    float64, and constants to autograd: gradients flow through the mantissas.
    """

    mantissa: Inexact[Tensor, "n ..."]
    exponent: Float64[Tensor, " n"]


@dataclass(frozen=True)
class Scaled(Semiring[ScaledElements]):
    """The algebra `base` with elements mantissa · 2^exponent, of practically unlimited range.

    Scaling by powers of two is exact: ⊕ and ⊗ give what they give in `base` wherever `base`
    neither overflows nor underflows. Within one element, and within one sum, what is smaller
    than the largest coefficient by more than the range of `base.dtype` counts as 0.

    >>> import torch
    >>> from inout.semirings import Expectation
    >>> scaled = Scaled(Expectation(1))
    >>> x = scaled.lift(torch.tensor([1e4, 1e4]), torch.tensor([[1.0], [2.0]]))
    >>> total = scaled.sum(scaled.times(x, x), torch.tensor([0, 0]), 1)
    >>> scaled.log_abs(total), scaled.ratio(total)
    (tensor([20000.6931], dtype=torch.float64), tensor([[1., 3.]], dtype=torch.float64))
    """

    base: Algebra

    def zero(self, size: int) -> ScaledElements:
        return self.scale(self.base.zero(size))

    def one(self, size: int) -> ScaledElements:
        return self.scale(self.base.one(size))

    def plus(self, x: ScaledElements, y: ScaledElements) -> ScaledElements:
        size = len(x.exponent)
        rows = torch.arange(size, device=x.exponent.device)
        return self.sum(self.cat([x, y]), rows.repeat(2), size)

    def times(self, x: ScaledElements, y: ScaledElements) -> ScaledElements:
        return _normalised(self.base.times(x.mantissa, y.mantissa), x.exponent + y.exponent)

    def sum(self, x: ScaledElements, index: Int[Tensor, " n"], size: int) -> ScaledElements:
        # All terms are brought to the exponent of the largest. A term that is 0 by cancellation
        # has no say in that, but keeps its exponent: its gradient is not 0.
        some = segment_max(torch.where(_is_zero(x), -torch.inf, x.exponent), index, size)
        every = segment_max(x.exponent, index, size)
        shift = torch.where(some.isneginf(), every, some)
        shift = torch.where(shift.isneginf(), 0, shift)
        aligned = _ldexp(x.mantissa, x.exponent - shift[index])
        return _normalised(self.base.sum(aligned, index, size), shift)

    def take(self, x: ScaledElements, index: Int[Tensor, " m"]) -> ScaledElements:
        return ScaledElements(x.mantissa.index_select(0, index), x.exponent.index_select(0, index))

    def cat(self, batches: Sequence[ScaledElements]) -> ScaledElements:
        mantissas, exponents = zip(*batches, strict=True)
        return ScaledElements(torch.cat(mantissas), torch.cat(exponents))

    def lift(self, log_weights: LogWeights, values: Values = None) -> ScaledElements:
        """Elements of weight exp(log_weights), whose real parts may be far outside ±700."""
        wide = torch.promote_types(log_weights.dtype, torch.float64)
        log_weights = log_weights.to(dtype=wide, device=self.base.device)
        real = log_weights.real.detach()
        exponent = torch.where(real.isneginf(), 0, (real / _LOG2_HIGH).round())
        rest = log_weights - exponent * _LOG2_HIGH - exponent * _LOG2_LOW
        return _normalised(self.base.lift(rest, values), exponent)

    def scale(self, x: Inexact[Tensor, "n ..."]) -> ScaledElements:
        """Elements of `base`, of any sign, as scaled elements; the inverse of `value`."""
        return _normalised(x, torch.zeros(len(x), dtype=torch.float64, device=x.device))

    def value(self, x: ScaledElements) -> Inexact[Tensor, "n ..."]:
        """The elements in `base`, where they may overflow to ±inf or underflow to 0."""
        half = (x.exponent / 2).floor()  # 2^exponent may overflow where the product does not
        return _ldexp(_ldexp(x.mantissa, half), x.exponent - half)

    def log_abs(self, x: ScaledElements) -> Float[Tensor, " n"]:
        """log |weight| of every element; −inf, with gradient 0, where the weight is 0."""
        weight = self.base.weight(x.mantissa)
        empty = weight == 0
        log_mantissa = torch.where(empty, 1, weight).abs().log()
        total = x.exponent * _LOG2_HIGH + (x.exponent * _LOG2_LOW + log_mantissa)
        return torch.where(empty, -torch.inf, total.to(log_mantissa.dtype))

    def ratio(self, x: ScaledElements) -> Inexact[Tensor, "n ..."]:
        """Every element divided by its weight, in `base`; NaN where the weight is 0."""
        return self.base.ratio(x.mantissa)


def _normalised(mantissa: Tensor, exponent: Tensor) -> ScaledElements:
    """mantissa · 2^exponent in the normal form of `ScaledElements`."""
    largest = mantissa.detach().abs()
    if largest.dim() > 1:
        largest = largest.flatten(1).amax(1)
    # Below the normal range 2^−excess would overflow; such a mantissa stays short of ½.
    excess = torch.frexp(largest).exponent.clamp(min=-_max_exponent(mantissa)).double()
    return ScaledElements(_ldexp(mantissa, -excess), exponent + excess)


def _ldexp(mantissa: Tensor, exponent: Tensor) -> Tensor:
    """mantissa · 2^exponent, exactly; beyond the range of the dtype 0 · 2^exponent is still 0."""
    factor = torch.exp2(exponent.clamp(max=_max_exponent(mantissa))).to(mantissa.dtype)
    return mantissa * factor[(..., *[None] * (mantissa.dim() - 1))]


def _max_exponent(mantissa: Tensor) -> int:
    """The largest e for which 2^e and 2^−e are normal numbers of the dtype."""
    return -round(math.log2(torch.finfo(mantissa.dtype).tiny))


def _is_zero(x: ScaledElements) -> Bool[Tensor, " n"]:
    zero = x.mantissa == 0
    return zero if zero.dim() == 1 else zero.flatten(1).all(1)
