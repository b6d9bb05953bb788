"""Sequences of numbers, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError


def checked_sequences(
    name: str, given: Iterable[Any], what: str, count: int
) -> list[NDArray[np.int64]]:
    """Each sequence as an array of numbers below `count`; they number labels, symbols, …"""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ArgumentError(name, f"must be a list of sequences. Got {given!r:.80}")
    found = []
    for place, sequence in enumerate(given):
        try:
            numbers = np.asarray(sequence)
        except (TypeError, ValueError):  # lists of different lengths
            numbers = np.array(np.nan)
        if not numbers.size:
            numbers = np.zeros(0, np.int64)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ArgumentError(
                name,
                f"must hold sequences of {what} numbers. Got {sequence!r:.80} as sequence {place}",
            )
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < count):
            bad = numbers.min() if numbers.min() < 0 else numbers.max()
            raise ArgumentError(
                name, f"must have {what}s in 0..{count - 1}. Got {bad} in sequence {place}"
            )
        found.append(numbers.astype(np.int64))
    return found
