"""Numbers formatted for people and for JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

# Larger integers would silently lose digits in JSON readers that use float64.
_LARGEST_NUMBER = 2**53


def whole(number: int) -> str:
    """An exact count with separators, or its magnitude if it is huge.

    >>> whole(1234567)
    '1,234,567'
    >>> whole(2**200) == "about 1.607 × 10^60"
    True
    """
    if number < 10**15:
        return f"{number:,}"
    # str() of a very long integer takes quadratic time, and Python refuses it beyond 4,300 digits.
    exponent = int((number.bit_length() - 1) * math.log10(2)) - 17
    leading, _, more = f"{number // 10**exponent:.3e}".partition("e")
    return f"about {leading} × 10^{exponent + int(more)}"


def log(value: float) -> str:
    """A logarithm.

    >>> log(-1.5), log(-math.inf)
    ('-1.5000', '-inf')
    """
    return f"{value:.4f}" if math.isfinite(value) else "-inf"


def probability(log_probability: float) -> str:
    """A probability from its logarithm, with significant digits, however small.

    >>> probability(math.log(0.25)), probability(math.log(0.0125)), probability(-50.0)
    ('0.2500', '0.0125', '1.929e-22')
    >>> probability(-10000.0), probability(-math.inf)
    ('exp(-10000.00)', '0')
    """
    if log_probability == -math.inf:
        return "0"
    if not -700 < log_probability < 700:
        return f"exp({log_probability:.2f})"
    value = math.exp(log_probability)
    if 0.1 <= value < 1e6:
        return f"{value:.4f}"
    return f"{value:.4g}" if 1e-4 <= value < 0.1 else f"{value:.3e}"


def number(value: float | None) -> float | str | None:
    """A float, with infinities as strings, for JSON.

    >>> number(0.5), number(float("-inf"))
    (0.5, '-inf')
    """
    return str(value) if value in (math.inf, -math.inf) else value


def json_line(document: Mapping[str, Any]) -> str:
    """A document as one line of JSON."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def exact(count: int) -> int | str:
    """An integer, as a string of digits if a float64 could not hold it."""
    if count <= _LARGEST_NUMBER:
        return count
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return str(count)
    finally:
        sys.set_int_max_str_digits(limit)


def plural(number: int, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "edge"), plural(2000, "edge")
    ('1 edge', '2,000 edges')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A duration for people.

    >>> duration(0.25), duration(12.4), duration(75.0), duration(3700.0)
    ('0.2 s', '12 s', '1 min 15 s', '1 h 1 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
