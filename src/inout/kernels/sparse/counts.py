"""`count_trees`: the exact number of trees of each sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from inout._core.errors import ArgumentError
from inout.kernels.sparse.cpu import residues
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.primes import from_remainders, primes
from inout.kernels.sparse.trees import Array, for_each_sentence

_remainder: Callable[..., Any] = residues.remainder


def _multiplicities(given: ArrayLike | None, log_weights: Array, what: str) -> Array:
    """Numbers of ways as an array of ints, Python's if they are large; 1 where not given."""
    if given is None:
        return (log_weights > -np.inf).astype(np.int64)
    numbers = np.asarray(given)
    if numbers.dtype == object or numbers.dtype.kind == "u":
        numbers = np.array(numbers, object)
        small = all(-(2**63) <= x < 2**63 for x in numbers.flat)
        numbers = numbers.astype(np.int64) if small else numbers
    elif numbers.size == 0:
        numbers = numbers.astype(np.int64)
    if numbers.dtype != object and numbers.dtype.kind not in "ib":
        raise ArgumentError(f"multiplicities of {what} must be integers. Got {numbers.dtype}")
    if (numbers < 0).any():
        raise ArgumentError(f"multiplicities of {what} must be 0 or more. Got {numbers.min()}")
    return numbers


def _plain(rows: Array) -> Array:
    """[r] where there is one row for all cells."""
    return rows[0] if len(rows) == 1 else rows


def _logs(numbers: Array) -> Array:
    """Logarithms in float64, -inf of 0, of ints of any size."""
    flat = [math.log(x) if x else -math.inf for x in numbers.ravel().tolist()]
    return np.array(flat, np.float64).reshape(numbers.shape)


def _remainders(numbers: Array, prime: int) -> Array:
    return np.ascontiguousarray(numbers % prime, np.int64)


def count_trees(
    passes: ParsingPasses,
    binary: ArrayLike | None = None,
    unary: ArrayLike | None = None,
    words: ArrayLike | None = None,
) -> list[int]:
    """The number of trees of each sentence, exactly, however large.

    binary [r] or [cells r], unary [u] or [cells u] and words [entries] say how many ways a rule or
    entry stands for, ints of any size from 0 on; without, 1 where its weight is above 0, which is
    all that weights are used for. A beam is not used.

    An inside pass modulo each of so many primes below 2**31 that their product is above the number
    of trees, which is bounded by an inside pass in floating point.

    >>> from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    >>> rules = RuleArrays.compile(1, 0, np.array([[0, 0, 0]]), np.empty((0, 2), int))
    >>> words = SentenceArrays(np.array([0, 50]), np.arange(51), np.zeros(50, np.int32))
    >>> passes = ParsingPasses(rules, words, np.zeros(1), np.empty(0), np.zeros(50))
    >>> count_trees(passes)
    [509552245179617138054608572]
    >>> count_trees(passes, binary=[10]) == [509552245179617138054608572 * 10**49]
    True
    """
    rules, sentences = passes.rules, passes.sentences
    lengths, starts = sentences.lengths, sentences.starts
    order = np.empty_like(rules.order)
    order[rules.order] = np.arange(len(order))
    numbers = [
        _multiplicities(binary, _plain(passes.binary[:, order]), "binary rules"),
        _multiplicities(unary, _plain(passes.unary), "unary rules"),
        _multiplicities(words, passes.words, "entries"),
    ]
    binary_logs, unary_logs, word_logs = (_logs(x) for x in numbers)
    bounds = ParsingPasses(rules, sentences, binary_logs, unary_logs, word_logs).log_partition()
    bits = np.where(bounds > -np.inf, bounds, 0.0) * (1 + 1e-9) / math.log(2) + 1
    # Each prime has more than 30.99 bits.
    needed = np.where(bounds > -np.inf, np.ceil(bits / 30.99), 0).astype(np.int64)
    moduli = primes(int(needed.max(initial=0)))
    found: list[list[int]] = [[] for _ in lengths]
    for turn, prime in enumerate(moduli):
        binary_rest, unary_rest, word_rest = (_remainders(x, prime) for x in numbers)
        binary_rest = np.ascontiguousarray(np.atleast_2d(binary_rest)[:, rules.order])
        given = (sentences.offsets, sentences.symbols, word_rest, *sentences.spans)
        weights = rules.structure, binary_rest, np.atleast_2d(unary_rest), given

        def count(b: int, prime: int = prime, turn: int = turn, weights: Any = weights) -> None:
            if needed[b] > turn:
                size = int(starts[b]), int(lengths[b]), rules.root
                found[b].append(int(_remainder(*weights, *size, np.int64(prime))))

        for_each_sentence(passes, count)
    return [from_remainders(x, moduli[: len(x)]) for x in found]
