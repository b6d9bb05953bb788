"""What training functions check about their arguments, before any work."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import expect, expect_shape
from inout._core.errors import ArgumentError, InoutError
from inout._core.randomness import checked_generator
from inout.learning.model import Parameters, as_array


def checked_corpus(corpus: Any) -> Sized:
    """The corpus as a non-empty collection that can be iterated repeatedly."""
    sentences: Any = corpus
    # What has a length and no items, as `SkeletalTrees`, is its model's to go through.
    if isinstance(corpus, Iterable) or not isinstance(corpus, Sized):
        if isinstance(corpus, str | bytes | Mapping) or not isinstance(corpus, Iterable):
            raise ArgumentError("corpus", f"must be a sequence of sentences. Got {corpus!r:.80}")
        if not (hasattr(corpus, "__len__") and hasattr(corpus, "__getitem__")):
            sentences = list(corpus)
    if not len(sentences):
        raise ArgumentError("corpus", "must contain at least one sentence. Got none")
    return sentences  # type: ignore[no-any-return]


def checked_array(name: str, values: Any, wanted: str) -> NDArray[np.float64]:
    """A float64 copy of numbers of any kind; anything else is an error about `name`."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(name, f"{wanted}. Got {values!r:.80}") from None


def checked_frequencies(
    frequencies: Any, size: int, name: str = "frequencies"
) -> Float[np.ndarray, " b"]:
    """How often each sentence occurs, as an array; once each if None."""
    if frequencies is None:
        return np.ones(size)
    array = checked_array(name, frequencies, "must be numbers")
    expect_shape(name, array, (size,))
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        raise ArgumentError(name, f"must be finite and at least 0. Got {array[place]} at {place}")
    if not array.any():
        raise ArgumentError(name, "must not all be 0")
    return array


def checked_starts(
    starts: Any, parameters: Parameters, *, same_zeros: bool
) -> list[Float[np.ndarray, " p"]]:
    """The log-weights of each further starting point; `same_zeros`: as those of the model."""
    fine = isinstance(starts, Sequence) and not isinstance(starts, Tensor | str | Mapping)
    expect(fine, "starts", "must be a list of log-weights or models", starts)
    size, found = len(parameters.log_weights), []
    for number, start in enumerate(starts):
        name = f"starts[{number}]"
        weights = as_array(name, getattr(start, "log_weights", start), size)
        # Densities over different sets of parameters cannot be compared.
        if same_zeros and not np.array_equal(weights == -np.inf, parameters.log_weights == -np.inf):
            raise ArgumentError(name, "must have its zeros where the model has them")
        found.append(weights)
    return found


def checked_number(name: str, value: Any, least: float, *, above: bool = False) -> float:
    """`value` as a finite float of at least `least` (or `above` it)."""
    fine = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if fine else math.nan
    if not (math.isfinite(number) and (number > least if above else number >= least)):
        wanted = "above" if above else "of at least"
        raise ArgumentError(name, f"must be a finite number {wanted} {least:g}. Got {value!r:.80}")
    return number


@contextmanager
def naming_examples(name: Callable[[int], str]) -> Iterator[None]:
    """Errors about corpus[i] that are raised in this context call it by this name instead."""
    try:
        yield
    except InoutError as error:
        for field in ("argument", "message"):
            text = getattr(error, field)
            if text is not None:
                named = re.sub(r"\bcorpus\[(\d+)\]", lambda found: name(int(found[1])), text)
                setattr(error, field, named)
        raise


def generator_or_fixed(generator: Any) -> torch.Generator:
    """The caller's generator, or one with seed 0, so that training is reproducible."""
    return torch.Generator().manual_seed(0) if generator is None else checked_generator(generator)
