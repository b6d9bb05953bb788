"""What a symbol of skeletal trees says about the treebank's constituents."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from inout.grammars.treebank import original_label
from inout.latent.treebank import treebank_label

Constituents = Callable[[str, bool], Sequence[str]]
"""The labels of constituents that a nonterminal stands for, given whether it stands above words."""


def treebank_constituents(name: str, above_word: bool) -> Sequence[str]:
    """The constituents that `treebank_tree` makes of a symbol; tags and new nodes are none.

    >>> treebank_constituents("S+VP", False), treebank_constituents("NP+NN", True)
    (['S', 'VP'], ['NP'])
    >>> treebank_constituents("NP|<>", False), treebank_constituents("NN", True)
    ([], [])
    """
    label = original_label(name)
    if label is None:
        return []
    parts = [treebank_label(part) for part in label.split("+")]
    return parts[:-1] if above_word else parts


class ConstituentTable:
    """The constituents of each symbol in numbers, for sums over the items of a chart."""

    def __init__(self, nonterminals: Sequence[str], label: Constituents) -> None:
        numbers: dict[tuple[str, int], int] = {}
        # Symbol a has row 2a above others and row 2a + 1 above words: some stand above both.
        rows = [
            [numbers.setdefault(part, len(numbers)) for part in _counted(label(name, above_word))]
            for name in nonterminals
            for above_word in (False, True)
        ]
        self.count = len(numbers)
        self._sizes = np.array([len(row) for row in rows], np.int64)
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._sizes)])
        self._labels = np.array([part for row in rows for part in row], np.int64)

    def gains(
        self,
        symbols: NDArray[np.int32],
        spans: NDArray[np.int32],
        num_words: int,
        expected: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """For each item the sum of (posterior - 1/2) over its constituents.

        A constituent over a span is as likely as all symbols that hold it are together.
        """
        # In trees without unary rules what stands over one word stands above it.
        kinds = 2 * symbols.astype(np.int64) + (spans[:, 1] - spans[:, 0] == 1)
        sizes = self._sizes[kinds]
        owners = np.repeat(np.arange(len(symbols)), sizes)
        ends = np.cumsum(sizes)
        inner = np.arange(len(owners)) - np.repeat(ends - sizes, sizes)
        labels = self._labels[np.repeat(self._offsets[kinds], sizes) + inner]
        cells = spans[:, 0].astype(np.int64) * (num_words + 1) + spans[:, 1]
        keys = cells[owners] * max(self.count, 1) + labels
        places, where = np.unique(keys, return_inverse=True)
        totals = np.bincount(where, weights=expected[owners], minlength=len(places))
        gains = np.bincount(owners, weights=totals[where] - 0.5, minlength=len(symbols))
        return np.asarray(gains, np.float64)


def _counted(parts: Sequence[str]) -> list[tuple[str, int]]:
    """The parts, each with how many like it came before: the second NP of a chain is another."""
    return [(part, list(parts[:place]).count(part)) for place, part in enumerate(parts)]
