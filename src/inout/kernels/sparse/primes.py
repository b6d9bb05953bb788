"""Primes below 2**31, and numbers from their remainders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

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


def _descending() -> Iterator[int]:
    return (x for x in range(2**31 - 1, 11, -2) if _is_prime(x))


@cache
def _known() -> tuple[list[int], Iterator[int]]:
    return [], _descending()


def primes(count: int) -> list[int]:
    """The largest primes below 2**31, so many of them.

    >>> primes(3)
    [2147483647, 2147483629, 2147483587]
    """
    known, rest = _known()
    while len(known) < count:
        known.append(next(rest))
    return known[:count]


def from_remainders(remainders: Sequence[int], moduli: Sequence[int]) -> int:
    """The number below the product of the moduli, primes, that leaves these remainders.

    Garner's algorithm.

    >>> from_remainders([10**20 % p for p in primes(3)], primes(3))
    100000000000000000000
    """
    number, modulus = 0, 1
    for remainder, prime in zip(remainders, moduli, strict=True):
        number += modulus * ((remainder - number) * pow(modulus, -1, prime) % prime)
        modulus *= prime
    return number
