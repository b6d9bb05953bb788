"""`RuleFactors` and `TransitionFactors`: tables of log-weights given as products."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor


class RuleFactors(NamedTuple):
    """Rules of a `PCFG` through a latent value of r: for its argument `rules`.

    exp(rule[A, B, C]) = sum over r of exp(head[A, r] + left[r, B] + right[r, C]), with `head`
    [nt r] or [*b nt r], `left` and `right` [r nt+pt] or [*b r nt+pt]; -inf is allowed. If rows of
    all three are normalised, so are the rules: a head chooses r, and r each child.

    With `head` None, r is the head itself: `left` and `right` are [nt nt+pt], and the children are
    independent given their head, p(B, C | A) = p(B | A) p(C | A).

    >>> import torch
    >>> from inout import PCFG, RuleFactors
    >>> factors = RuleFactors(torch.zeros(2, 3), torch.zeros(3, 5), torch.zeros(3, 5))
    >>> PCFG(torch.zeros(2), factors, torch.zeros(4, 3)).log_partition().exp()
    tensor(87480.)

    Yang, Zhao & Tu, "PCFGs can do better: inducing probabilistic context-free grammars with many
    symbols" (2021), section 3; Liu et al., "Simple hardware-efficient PCFGs with independent left
    and right productions" (2023), section 3.
    """

    head: Float[Tensor, "*#b nt r"] | None
    left: Float[Tensor, "*#b r s"]
    right: Float[Tensor, "*#b r s"]


class TransitionFactors(NamedTuple):
    """Transitions of a `LinearChain` or `HMM` through a latent value of r.

    exp(transition[i, j]) = sum over r of exp(source[i, r] + target[r, j]), with `source` [s r] and
    `target` [r s], shared by all positions, or [*b n-1 s r] and [*b n-1 r s]; of an `HMM`, which
    has the same at all positions, or [*b s r] and [*b r s]. -inf is allowed.

    >>> import torch
    >>> from inout import LinearChain, TransitionFactors
    >>> factors = TransitionFactors(torch.zeros(3, 2), torch.zeros(2, 3))
    >>> LinearChain(torch.zeros(4, 3), factors).log_partition().exp()
    tensor(648.)

    Chiu, Deng & Rush, "Low-rank constraints for fast inference in structured models" (2021),
    section 3.
    """

    source: Float[Tensor, "*#b s r"]
    target: Float[Tensor, "*#b r s"]


class MayHaveFactors:
    """A family whose objects are of the class `_factored` if an argument is of this kind."""

    _kind_of_factors: ClassVar[type]
    _factored: ClassVar[type]

    def __new__(cls, *given: Any, **named: Any) -> Any:
        found = any(
            isinstance(argument, cls._kind_of_factors) for argument in (*given, *named.values())
        )
        return super().__new__(vars(cls).get("_factored", cls) if found else cls)
