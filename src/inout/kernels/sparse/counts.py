"""`count_trees`: the exact number of trees of each sentence, from remainders modulo primes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from inout._core.errors import ArgumentError
from inout.kernels.sparse.arrays import Problem, Residues, Weights
from inout.kernels.sparse.cpu.inside import remainder
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.trees import Array, for_each_sentence

# Miller's test with these bases errs for no number below 3,215,031,751 (Pomerance, Selfridge &
# Wagstaff 1980).
_BASES = (2, 3, 5, 7)


def _is_prime(number: int) -> bool:
    """Whether an odd number from 11 to 2**31 is prime."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in _BASES:
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        if not any((power := power * power % number) == number - 1 for _ in range(twos - 1)):
            return False
    return True


@cache
def _prime_below(number: int) -> int:
    """The largest prime below an odd number."""
    return next(x for x in range(number - 2, 11, -2) if _is_prime(x))


def primes(count: int) -> list[int]:
    """The largest primes below 2**31, so many of them.

    >>> primes(3)
    [2147483647, 2147483629, 2147483587]
    """
    found = [2**31 + 1]
    for _ in range(count):
        found.append(_prime_below(found[-1]))
    return found[1:]


def from_remainders(remainders: Sequence[int], moduli: Sequence[int]) -> int:
    """The number below the product of the moduli, primes, that leaves these remainders.

    Garner's algorithm.

    >>> from_remainders([10**20 % p for p in primes(3)], primes(3))
    100000000000000000000
    """
    number, modulus = 0, 1
    for rest, prime in zip(remainders, moduli, strict=True):
        number += modulus * ((rest - number) * pow(modulus, -1, prime) % prime)
        modulus *= prime
    return number


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
        raise ArgumentError(f"multiplicities of {what}", f"must be integers. Got {numbers.dtype}")
    if (numbers < 0).any():
        raise ArgumentError(f"multiplicities of {what}", f"must be 0 or more. Got {numbers.min()}")
    return numbers


def _plain(rows: Array) -> Array:
    """[r] where there is one row for all cells."""
    return rows[0] if len(rows) == 1 else rows


def _logs(numbers: Array) -> Array:
    """Logarithms in float64, -inf of 0, of ints of any size."""
    if numbers.dtype != object:
        with np.errstate(divide="ignore"):
            logs: Array = np.log(numbers.astype(np.float64))
        return logs
    flat = [math.log(x) if x else -math.inf for x in numbers.ravel().tolist()]
    return np.array(flat, np.float64).reshape(numbers.shape)


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
    order = np.empty_like(rules.ways.order)
    order[rules.ways.order] = np.arange(len(order))
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
    # Nobody asks for numbers of trees below unary rules.
    grammar = rules.grammar._replace(num_unary_symbols=0)
    found: list[list[int]] = [[] for _ in lengths]
    for turn, prime in enumerate(moduli):
        rests = (np.ascontiguousarray(x % prime, np.int64) for x in numbers)
        binary_rest, unary_rest, word_rest = rests
        binary_rest = np.ascontiguousarray(np.atleast_2d(binary_rest)[:, rules.ways.order])
        weights = Weights(binary_rest, np.atleast_2d(unary_rest))
        problem = Problem(grammar, Residues(prime), weights, sentences.words(word_rest))

        def count(b: int, turn: int = turn, problem: Problem = problem) -> None:
            if needed[b] > turn:
                found[b].append(int(remainder(problem, int(starts[b]), int(lengths[b]))))

        for_each_sentence(passes, count)
    return [from_remainders(x, moduli[: len(x)]) for x in found]
