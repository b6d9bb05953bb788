"""`Settings`: the kind of a context model."""

from __future__ import annotations

from dataclasses import dataclass

from inout._core.checks import at_least
from inout._core.errors import ArgumentError
from inout.kernels.lattice.arrays import Streams


@dataclass(frozen=True)
class Settings:
    """The kind of a context model."""

    order: int = 4
    """Features are n-grams of up to this many labels; contexts remember all but one of them."""

    size: int = 10
    """The number of contexts kept per position, besides ⋆…⋆."""

    memory: int | None = 3
    """How many labels a context can remember; None: all, as in the paper."""

    beam: bool = False
    """Whether only whole histories are kept, as in beam search; pruned ones go into ⋆…⋆, at the
    cost of the escape weight."""

    shorter: bool = True
    """Whether n-grams of all lengths up to `order` are features, or those of that length only."""

    end: bool = False
    """Whether the end of a sequence is a label that n-grams see."""

    history_features: tuple[tuple[str, int], ...] = ()
    """The names and lengths of features by functions: see `HistoryFeature`."""

    def __post_init__(self) -> None:
        at_least("order", self.order, 1)
        at_least("size", self.size, 0)
        least = max(self.order - 1, 1)
        if self.memory is not None and at_least("memory", self.memory, 0) < least:
            raise ArgumentError(
                "memory",
                f"must be at least {least}, for n-grams of order {self.order}; None: no "
                f"bound. Got {self.memory}",
            )
        for name, length in self.history_features:
            if self.memory is not None and self.memory < length:
                raise ArgumentError(
                    "memory",
                    f"must be at least {length}, for the history feature {name}; None: no "
                    f"bound. Got {self.memory}",
                )
        if self.beam and self.memory is not None:
            raise ArgumentError(
                "memory", f"must be None with a beam, which remembers everything. Got {self.memory}"
            )

    def streams(self, labels: int) -> Streams:
        """The features of contexts over so many labels."""
        lengths = range(self.order) if self.shorter else [self.order - 1]
        further = [length for _, length in self.history_features]
        return Streams.labels(labels, lengths, end=self.end, further=further)
