"""Syntax errors of programs in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from lark import Token

_SEPARATORS = ("STAR", "COMMA")
_OPENING = ("LPAR", "LSQB")
_CLOSING = {"RPAR": "(", "RSQB": "["}
_FACTOR = "a relation, '?' and a relation, or a comparison"
_RULE = "expected a rule, which starts with a relation's name in lower case"
_PRODUCT = "a product in a condition needs parentheses, as in K = (2*I)"
_FOREIGN_COMPARISONS = {"==": "=", "=<": "<=", "=>": ">=", "<>": "!="}


def complain_about_character(text: str, offset: int) -> str:
    """The message for a character that starts no token."""
    character = text[offset]
    if character in "\"'":
        return f"the string is not closed: expected another {character} on the same line"
    if text.startswith(":-", offset):
        return "unexpected ':-': a head and its body are joined by '+='"
    if character == "/":
        return "unexpected '/': integer division is written '//'"
    if character == "!":
        return "unexpected '!': 'not equal' is written '!='"
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    return f"unexpected character '{shown}'"


def complain_about_token(
    text: str, before: Sequence[Token], bad: Token, accepted: frozenset[str]
) -> tuple[str, int]:
    """The message for the token after `before`, and the offset in the text it is about.

    `accepted` are the names of the terminals that could have stood there instead.
    """
    at_end = bad.type == "$END"
    found = "the end of the program" if at_end else f"'{_shortened(bad)}'"
    here = _end(before[-1]) if at_end and before else _start(bad)
    if _last_line(before)[:1] == ["INTEGER"] and not accepted & {"RPAR", "RSQB"}:
        if len(_last_line(before)) == 1:  # no sum at all
            return f"{_RULE}, found '{_shortened(before[-1])}'", _start(before[-1])
        return f"expected a sum such as '1 = rule(X,_,_) + rule(X,_).', found {found}", here
    if "DOT" in accepted:
        return _after_factor(text, before, bad, found, here)
    if "COMPARISON" in accepted:
        return _after_left_side(text, before, bad, found, here)
    if "ADD_TO" in accepted:
        hint = "; facts are given as data, not written in the program" if bad.type == "DOT" else ""
        return f"expected '+=' and a body after the head, found {found}{hint}", here
    if "RPAR" in accepted or "RSQB" in accepted:
        return _in_brackets(bad, accepted, found), here
    if "QMARK" in accepted:
        return f"expected a factor ({_FACTOR}), found {found}", here
    if "VARIABLE" in accepted:
        return _instead_of_term(text, before, bad, found, here)
    if "$END" in accepted:
        return f"{_RULE}, found {found}", here
    return f"expected a relation's name in lower case, found {found}", here


def _after_factor(
    text: str, before: Sequence[Token], bad: Token, found: str, here: int
) -> tuple[str, int]:
    if bad.type == "ADD_TO":
        return "expected '.' to end the rule before the next one, found '+='", here
    if bad.type in _CLOSING:
        return f"there is no '{_CLOSING[bad.type]}' for this '{bad}'", here
    if bad.type == "COMPARISON":
        if any(token.type == "COMPARISON" for token in before[_factor_start(before) :]):
            return "comparisons cannot be chained; write I < J, J < K for I < J < K", here
        return "a relation has no value to compare; expected '*', ',' or '.'", here
    # What is missing is missing at the end of the line before, wherever the next rule starts.
    gap = text[_end(before[-1]) : _start(bad)]
    if bad.type == "$END" or len(gap.splitlines()) > 1 or gap.endswith(("\n", "\r")):
        return "expected '.' to end the rule", _end(before[-1])
    return f"expected '.' to end the rule, or '*' or ',' and another factor, found {found}", here


def _after_left_side(
    text: str, before: Sequence[Token], bad: Token, found: str, here: int
) -> tuple[str, int]:
    start = _factor_start(before)
    factor = before[start:]
    written = _shortened(text[_start(factor[0]) : _end(factor[-1])])
    if bad.type == "LPAR" and len(factor) == 1:
        return f"expected a relation's name in lower case, found '{written}'", _start(factor[0])
    if bad.type in (*_SEPARATORS, "DOT", "$END"):
        product = "STAR" in (bad.type, before[start - 1].type)
        hint = f"; {_PRODUCT}" if product else ""
        return f"expected a factor ({_FACTOR}), found '{written}'{hint}", _start(factor[0])
    return f"expected a comparison such as '=' or '<' after '{written}', found {found}", here


def _in_brackets(bad: Token, accepted: frozenset[str], found: str) -> str:
    closing = "')'" if "RPAR" in accepted else "']'"
    if "VARIABLE" in accepted:
        wanted = "an argument" if "RPAR" in accepted else "an element"
        return f"expected {wanted} or {closing}, found {found}"
    if bad.type == "LPAR":
        return "an argument cannot be a relation; use a list such as [f, X] for a compound term"
    marks = [m for name, m in (("COMMA", "','"), ("VBAR", "'|'")) if name in accepted]
    wanted = f"{', '.join(marks)} or {closing}" if marks else closing
    return f"expected {wanted}, found {found}"


def _instead_of_term(
    text: str, before: Sequence[Token], bad: Token, found: str, here: int
) -> tuple[str, int]:
    previous = before[-1]
    foreign = text[_start(previous) : _end(bad)] if bad.type == "COMPARISON" else ""
    if foreign in _FOREIGN_COMPARISONS:
        ours = _FOREIGN_COMPARISONS[foreign]
        return f"there is no comparison '{foreign}'; write '{ours}'", _start(previous)
    wanted = "expected a variable, an integer, a string, a list or a parenthesis"
    return f"{wanted} after '{_shortened(previous)}', found {found}", here


def _factor_start(before: Sequence[Token]) -> int:
    """The index of the first token of the factor that the last token belongs to."""
    depth = 0
    for index in range(len(before) - 1, -1, -1):
        kind = before[index].type
        depth += (kind in _CLOSING) - (kind in _OPENING)
        if depth == 0 and kind in (*_SEPARATORS, "ADD_TO"):
            return index + 1
    return 0


def _last_line(before: Sequence[Token]) -> list[str]:
    """The kinds of the tokens after the last dot."""
    kinds = [token.type for token in before]
    return kinds[len(kinds) - [*reversed(kinds), "DOT"].index("DOT") :]


def _shortened(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 40 else one_line[:37] + "..."


def _start(token: Token) -> int:
    return token.start_pos or 0


def _end(token: Token) -> int:
    return token.end_pos or 0
