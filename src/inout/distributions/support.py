"""`EventConstraint`: what the events of a distribution are, as torch.distributions says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.distributions.constraints import Constraint

from inout.distributions.arguments import is_integer, refuse_misfits, refuse_non_tensors

if TYPE_CHECKING:
    from inout.distributions.base import StructuredDistribution


class EventConstraint(Constraint):
    """The structure of the events: labels in range, segments not too wide, trees that are trees.

    In the support is what `enumerate_support` lists, for each element in its own length; anything
    may stand in the padding. It does not depend on potentials: an event of probability zero is in
    the support. Of an element without any events, such as a tree over no words, nothing is.

    >>> import torch
    >>> from inout import LinearChain
    >>> d = LinearChain(torch.zeros(2, 3, 4), torch.zeros(4, 4), lengths=[3, 2])
    >>> d.support.check(torch.tensor([[0, 3, 1], [2, 4, 9]]))
    tensor([ True, False])
    """

    is_discrete = True

    def __init__(self, distribution: StructuredDistribution) -> None:
        self._distribution = distribution
        self.event_dim = len(distribution.event_shape)
        super().__init__()

    def check(self, value: Tensor) -> Bool[Tensor, "*sb"]:
        """Whether each of these events [*s *b ...] is in the support; of no integers, none is."""
        d = self._distribution
        refuse_non_tensors(value=value)
        integers = value if is_integer(value) else torch.zeros_like(value, dtype=torch.long)
        wanted = [*d.batch_shape, *d.event_shape]
        refuse_misfits("value", integers, wanted, fixed=self.event_dim)
        samples = value.shape[: max(value.ndim - len(wanted), 0)]
        found = d._is_event(integers.long().expand(*samples, *wanted).where(d._real_entries, -1))
        return found & is_integer(value)

    def __repr__(self) -> str:
        return f"EventConstraint({self._distribution.event_name} of {self._distribution!r})"
