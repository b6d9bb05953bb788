"""`LabelSequence`: the common part of distributions with one label per position."""

from __future__ import annotations

from abc import abstractmethod
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout.distributions.arguments import checked_range, refuse_misfits
from inout.distributions.base import StructuredDistribution


class LabelSequence(StructuredDistribution):
    """Labels [*b n] of the positions of each element, -1 in the padding."""

    event_name = "labelling"

    @property
    @abstractmethod
    def size(self) -> tuple[int, ...]:
        """(elements in all, positions, ..., labels)."""

    @abstractmethod
    def label_marginals(self) -> Float[Tensor, "*b n s"]:
        """Probability of every label at every position; differentiable."""

    def _is_event(self, event: Int[Tensor, "*sb n"]) -> Bool[Tensor, "*sb"]:
        return (((event >= 0) & (event < self.size[-1])) | ~self._real).all(-1)

    def _checked_labels(self, event: Int[Tensor, "*e n"]) -> Int[Tensor, "*sb n"]:
        """Labels [*s *b n] with the padding set to 0."""
        refuse_misfits("labels", event, [*self.batch_shape, *self.event_shape])
        return checked_range("labels", torch.where(self._real, event, 0).long(), 0, self.size[-1])

    def min_risk(self) -> Int[Tensor, "*b n"]:
        """The labels with the least expected Hamming loss: each position's likeliest label.

        Costs as much as the marginals; 0 if no labelling is possible.
        """
        with torch.no_grad():
            return self.label_marginals().argmax(-1).where(self._real, -1)

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "m *b n"]:
        """All labellings [s**n *b n] in lexicographic order, if all lengths are the same."""
        n, s = self._one_length(), self.size[-1]
        self._refuse_many(s**n)
        labels = torch.tensor(list(product(range(s), repeat=n)), dtype=torch.long)
        return self._support(labels.reshape(-1, n), expand)
