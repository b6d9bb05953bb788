"""Every mistake a program can contain is reported at its place, in words a person understands."""

from __future__ import annotations

import re

import pytest

from inout._core.errors import InoutError, ProgramError
from inout.deduction.reading import parse_program
from tests.processes import python


def error_of(text: str) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        parse_program(text)
    return caught.value


# Each program marks the place of its mistake by a '^' on the line below it, in the same column.
SYNTAX = [
    ("no dot at the end of the file", "a += b\n      ^", "expected '.' to end the rule"),
    ("nor a final newline", "a += b(X),\n  c(X)\n      ^", "expected '.' to end the rule"),
    ("no dot before a rule", "a += b\n      ^\nc += d.", "expected '.' to end the rule"),
    ("no dot, comment", "a += b % c\n      ^\n\nc += d.", "expected '.' to end the rule"),
    ("no dot after a condition", "a += b(I), I < 3\n                ^\nc += d.", "expected '.' to"),
    ("two factors", "a += b c.\n       ^", "expected '.' to end the rule, or '*' or ','"),
    ("separator, then a rule", "a += b *\nc += d.\n  ^", "'.' to end the rule before the next"),
    ("two dots", "a += b..\n       ^", "expected a rule"),
    ("only a head", "a\n ^", "expected '+=' and a body after the head, found the end"),
    ("a fact", "a(1).\n    ^", "facts are given as data"),
    ("another operator", "a(X) = b(X).\n     ^", "expected '+='"),
    ("prolog", "a :- b.\n  ^", "a head and its body are joined by '+='"),
    ("no head", "+= b.\n^", "expected a rule, which starts with a relation's name in lower case"),
    ("upper-case head", "Goal += b.\n^", "expected a rule"),
    ("filter as head", "?a += b.\n^", "expected a rule"),
    ("no body", "a += .\n     ^", "expected a factor"),
    ("no body at the end", "a +=\n    ^", "found the end of the program"),
    ("separator at the end", "a += b * .\n         ^", "expected a factor"),
    ("separators in a row", "a += b, * c.\n        ^", "expected a factor"),
    ("filter of a variable", "a += ?X.\n      ^", "expected a relation's name in lower case"),
    ("filter twice", "a += ??b.\n      ^", "expected a relation's name"),
    ("a variable as factor", "a += b(X), X.\n           ^", "expected a factor"),
    ("a variable as relation", "a += B(X).\n     ^", "relation's name in lower case, found 'B'"),
    ("a string as relation", 'a += "b"(X).\n     ^', "relation's name in lower case"),
    ("product right", "a += b(K), K = 2*I.\n                 ^", "as in K = (2*I)"),
    ("product left", "a += b(I), 2*I = 4.\n           ^", "as in K = (2*I)"),
    ("product of sums", "a += b(I), I+1*I = 4.\n           ^", "as in K = (2*I)"),
    ("equals twice", "a += b(X), X == 3.\n             ^", "write '='"),
    ("prolog's at most", "a += b(X), X =< 3.\n             ^", "write '<='"),
    ("other unequal", "a += b(X), X <> 3.\n             ^", "write '!='"),
    ("spaced", "a += b(X), X = < 3.\n               ^", "expected a variable, an integer"),
    ("chained", "a += b(X), 1 < X < 3.\n                 ^", "cannot be chained"),
    ("compared relation", "a += b(X) = 3.\n          ^", "a relation has no value to compare"),
    ("half a condition", "a += b(X), X < .\n               ^", "expected a variable"),
    ("no comparison", "a += b(X), X Y.\n             ^", "expected a comparison such as '='"),
    ("open parenthesis", "a += b(X.\n        ^", "expected ',' or ')', found '.'"),
    ("open to the end", "a += b(X\n        ^", "found the end of the program"),
    ("open in the head", "a(X += b(X).\n    ^", "expected ',' or ')', found '+='"),
    ("open group", "a += b(X), X = (1+2.\n                   ^", "expected ')', found '.'"),
    ("closed twice", "a += b(X)).\n         ^", "there is no '(' for this ')'"),
    ("closing bracket", "a += b].\n      ^", "there is no '[' for this ']'"),
    ("no argument", "a += b(, X).\n       ^", "expected an argument or ')'"),
    ("comma at the end", "a += b(X,).\n         ^", "expected a variable"),
    ("compound term", "a += b(f(X)).\n        ^", "an argument cannot be a relation"),
    ("condition as argument", "a += b(X = 1).\n         ^", "expected ',' or ')'"),
    ("open list", "a += b([X).\n         ^", "expected ',', '|' or ']', found ')'"),
    ("no element", "a += b([|X]).\n        ^", "expected an element or ']'"),
    ("two tails", "a += b([X|Y,Z]).\n           ^", "expected ']'"),
    ("sum of lists", "a += b([X]+1).\n          ^", "expected ',' or ')'"),
    ("open string", 'a += b("S, 0).\n       ^', 'the string is not closed: expected another "'),
    ("open quoted atom", "a += b('S).\n       ^", "expected another ' on the same line"),
    ("string over lines", 'a += b("S\n       ^\n").', "the string is not closed"),
    ("string ends in escape", 'a += b("S\\").\n       ^', "the string is not closed"),
    ("unknown escape", 'a += b("S\\q").\n         ^', r"unknown escape '\q'"),
    ("other character", "a += b; c.\n      ^", "unexpected character ';'"),
    ("fresh name", "a += b($1).\n       ^", "unexpected character '$'"),
    ("control character", "a += b\x00.\n      ^", "unexpected character 'U+0000'"),
    ("division", "a += b(X/2).\n        ^", "integer division is written '//'"),
    ("negation", "a += !b.\n     ^", "'not equal' is written '!='"),
    ("long token", f"a += b {'c' * 100}.\n       ^", f"found '{'c' * 37}...'"),
    ("term over lines", "a += b(X), X\n           ^\n  +1.", "found 'X +1'"),
    ("sum without relations", "a += b(X).\n1 = .\n    ^", "expected a sum such as '1 = rule"),
    ("product in a sum", "a += b(X).\n1 = b(_) * b(_).\n         ^", "expected a sum such as"),
    ("sum without a dot", "a += b(X).\n1 = b(_)\n        ^", "found the end of the program"),
    ("open sum", "a += b(X).\n1 = b(_\n       ^", "expected ',' or ')'"),
    ("number as head", "a += b(X).\n1 += b(X).\n^", "expected a rule"),
    ("sum to two", "a += b(X).\n2 = b(_).\n^", "says what sums to one: '1 = start(_).'"),
    ("below one", "a += b(X).\n1 > b(_).\n^", "says what sums to one"),
    ("real number", "a += b(X), X < 1.5.\n                 ^", "expected a rule"),
]

STATIC = [
    ("head variable", "a(K) += b(I).\n  ^", "variable K of the head is not bound by the body; "),
    ("second one", "a(I, K) += b(I).\n     ^", "variable K of the head"),
    ("in arithmetic", "a(I+K) += b(I).\n    ^", "variable K of the head"),
    ("in a list", "a([I|K]) += b(I).\n     ^", "variable K of the head"),
    ("only in a comparison", "a(K) += b(I), I < K.\n  ^", "variable K of the head"),
    ("from an unknown", "a(K) += b(I), K = J+1.\n  ^", "variable K of the head"),
    ("through a product", "a(K) += b(I), I = (2*K).\n  ^", "solved through + and - only"),
    ("through a division", "a(K) += b(I), I = K//2.\n  ^", "variable K of the head"),
    ("used twice", "a(K) += b(I), I = K+K.\n  ^", "variable K of the head"),
    ("defined by itself", "a(K) += b(I), K = K+0.\n  ^", "variable K of the head"),
    ("list from nothing", "a(K) += b(I), K = [I|S].\n  ^", "variable K of the head"),
    ("only conditions", "a += X = Y.\n     ^", "variable X is not bound"),
    ("in a comparison", "a += b(I), I < K.\n               ^", "variable K is not bound"),
    ("left of it", "a += b(I), K != I.\n           ^", "variable K is not bound"),
    ("in an equation", "a += b(I), I = J+K.\n               ^", "variable J is not bound"),
    ("in an argument", "a += b(2*I).\n         ^", "variable I is not bound"),
    ("in a list of sums", "a += b(I), J != [I, K].\n           ^", "variable J is not bound"),
    ("in a list", "a += b(I), I != [I, K].\n                    ^", "variable K is not bound"),
    ("anonymous", "a += b(I), I < _.\n               ^", "variable _ is not bound"),
    ("anonymous again", "a += b(_), _ < 1.\n           ^", "variable _ is not bound"),
    ("_ in the head", "a(I, _) += b(I).\n     ^", "'_' is not allowed in the head"),
    ("_ deep in the head", "a([I, 1+_]) += b(I).\n        ^", "'_' is not allowed in the head"),
    ("string in a sum", 'a += b(I), I < 1+"x".\n                 ^', '"x" is a string'),
    ("string in an argument", "a += b(2*'x').\n         ^", '"x" is a string'),
    ("bare string in a sum", "a(I-x) += b(I).\n    ^", 'arithmetic needs integers, but "x"'),
    ("negative string", "a += b(I), I = -x.\n                ^", '"x" is a string'),
    ("sum is a string", 'a += b(I), I+1 = "x".\n                 ^', "arithmetic gives an integer"),
    ("sum is a list", "a += b(I), [I] != I+1.\n           ^", "but [I] is a list"),
    ("ordered strings", 'a += b(X), X < "x".\n               ^', "'<' compares integers"),
    ("ordered lists", "a += b(X), [] >= X.\n           ^", "but [] is a list"),
    ("constant is a list", "a += b(X), 3 = [X].\n           ^", "3 is never equal to the list"),
    ("division by zero", "a += b(I), I = I//(1-1).\n                  ^", "division by zero"),
    ("large", "a += b(9223372036854775808).\n       ^", "does not fit in 64 bits"),
    ("small", "a += b(-9223372036854775809).\n       ^", "does not fit in 64 bits"),
    ("product too large", "a += b(1, 2*(4611686018427387904)).\n          ^", "does not fit"),
    ("ten thousand digits", f"a += b({'9' * 10_000}).\n       ^", "does not fit in 64 bits"),
    ("arity of a use", "a(X) += b(X).\nc += a(X, X).\n     ^", "a has 2 arguments here, but 1"),
    ("of an earlier use", "c += a.\n     ^\na(X) += b(X).", "a has no arguments here, but 1"),
    ("of a filter", "c += ?a(1).\n      ^\na += b(X).", "a has 1 argument here, but none"),
    ("of a head", "a(X) += b(X).\n  a += c.\n  ^", "where it is defined (line 1, column 1)"),
    ("of a recursive use", "a(X) += a(X, X).\n        ^", "a has 2 arguments here, but 1"),
    ("unknown sum", "a += b(X).\n1 = c(_).\n    ^", "no rule uses c with 1 argument"),
    ("arity of a sum", "a += b(X).\n1 = b(_,_).\n    ^", "no rule uses b with 2 arguments"),
    ("sum twice", "a += b(X).\n1 = b(_).\n1 = b(X).\n    ^", "b with 1 argument is in two sums"),
    ("sum of one's own", "a += b(X).\n1 = b(3).\n    ^", "variables and '_' only"),
    ("variables of a sum", "a += b(X) * c(X).\n1 = b(X) + c(_).\n           ^", "same variables"),
    ("repeated variable", "a += b(X,Y).\n1 = b(X,X).\n    ^", "same variables, each once"),
    ("only sums", "1 = b(X).\n^", "no rules"),
    ("empty", "\n^", "no rules"),
    ("only comments", "% a += b.\n^\n# c += d.\n", "no rules"),
    ("byte order mark only", "\ufeff\n^", "no rules"),
]

AWKWARD = [
    ("tabs", "a +=\t\tb(I),\t\tJ < 1.\n    \t\t     \t\t^", "variable J"),
    ("unicode before it", 'a += b("日本", "ß", I), J < 1.\n                      ^', "variable J"),
    ("astral plane", 'a += b("🂡🂢", I), J < 1.\n                 ^', "variable J"),
    ("upper case everywhere", "a(Ä) += b(X).\n  ^", "variable Ä of the head"),
    ("windows", "c += b(X).\r\na(K) += b(X).\r\n  ^\r\n", "variable K of the head"),
    ("windows string", 'a += b("x\r\n       ^\r\n', "the string is not closed"),
    ("windows dot", "a += b\r\n      ^\r\n\r\nc += d.\r\n", "expected '.' to end the rule"),
    ("old mac", "a += b.\r% x\ra += c d.\r       ^", "expected '.' to end the rule, or"),
    ("comment in a body", "a += b(X), % c(Y).\n  Y < 3.\n  ^", "variable Y"),
    ("two errors", "a(K) += b.\n  ^\nc(J) += d.\n", "variable K"),
    ("two in a rule", "a += b(I), J < K.\n           ^", "variable J"),
    ("two kinds", "a += c(1, 2).\n     ^\nc(K) += d.", "c has 2 arguments here"),
    ("syntax goes first", "a(K) += b.\nc += d e.\n       ^", "expected '.'"),
]

ALL = SYNTAX + STATIC + AWKWARD


def split_marked(marked: str) -> tuple[str, int, int]:
    """The program without its marker line, and the place the marker points at."""
    lines = re.findall(r"[^\r\n]*(?:\r\n|\n|\r|$)", marked)
    for number, line in enumerate(lines):
        if line.strip() == "^":
            program = "".join(lines[:number] + lines[number + 1 :])
            return program, number, line.index("^") + 1
    raise AssertionError(f"no marker in {marked!r}")


@pytest.mark.parametrize(
    ("marked", "message"), [pytest.param(marked, message, id=name) for name, marked, message in ALL]
)
def test_mistake_is_reported_at_its_place(marked: str, message: str) -> None:
    text, line, column = split_marked(marked)
    # A missing dot must be missed at the end of a text with and without a last newline.
    for program in {text, text.rstrip("\r\n")}:
        error = error_of(program)
        assert message in error.message
        assert (error.line, error.column) == (line, column)


@pytest.mark.parametrize("text", ["a += b", "a += b % c", "a += b\n", "a += b\nc += d."])
def test_missing_dot_says_no_more_than_that(text: str) -> None:
    assert error_of(text).message == "expected '.' to end the rule"


@pytest.mark.parametrize("marked", [marked for _, marked, _ in ALL])
def test_messages_speak_to_people(marked: str) -> None:
    message = error_of(split_marked(marked)[0]).message
    assert not re.search(r"\b(ANON|[A-Z]{2}[A-Z_]*)\b", message), "a terminal of the grammar"
    assert "Token" not in message
    assert "\n" not in message


def test_shows_source_line_and_caret() -> None:
    with pytest.raises(ProgramError) as caught:
        parse_program("a += b.\n\tc(K) += d(I).\n", source="cky.dyna")
    shown = str(caught.value).splitlines()
    assert shown[0].startswith("cky.dyna:2:4: variable K of the head")
    assert shown[1:] == ["  \tc(K) += d(I).", "  \t  ^"]
    assert caught.value.source == "cky.dyna"
    assert isinstance(caught.value, InoutError)
    assert isinstance(caught.value, ValueError)
    # The parser's own exception would only be noise in the traceback.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"])
def test_caret_is_right_after_odd_line_separators(separator: str) -> None:
    error = error_of(f"a += b('x{separator}').\nc += b(X) d.")
    assert str(error).splitlines()[1:] == ["  c += b(X) d.", "            ^"]


def test_facts_may_have_several_arities() -> None:
    program = parse_program("b(X) += rule(X, Y, Z) * b(Y) * b(Z).\nb(X) += rule(X, W) * word(W).")
    use = program.used["rule"]
    assert use.arities == (2, 3)
    assert [(p.line, p.column) for p in use.positions] == [(2, 9), (1, 9)]
    assert (use.position.line, use.position.column) == (1, 9)
    assert program.derived == {"b": 1}


def test_undefined_relation_can_be_reported() -> None:
    program = parse_program("a += b.\na += c(1) * d.")
    error = program.error("relation c is neither given nor defined", program.used["c"].position)
    assert (error.line, error.column) == (2, 6)
    assert str(error).endswith("  a += c(1) * d.\n       ^")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a += b(" + "[" * 5000 + "X" + "]" * 5000 + ").", 8),
        ("a += b(" + "(" * 5000 + "X" + ")" * 5000 + "), c(Y), Z = 1, W < 2.", 10_025),
        ("a += b(" + "-" * 5000 + "X).", 8),
        ("a += b(X" + "+X" * 5000 + ").", 8),
    ],
    ids=["lists", "groups", "minus", "sum"],
)
def test_deep_nesting_is_no_crash(text: str, column: int) -> None:
    assert error_of(text).column == column


def test_import_does_not_build_the_parser() -> None:
    code = (
        "import lark, inout.deduction.reading as p\n"
        "assert p._lark.cache_info().currsize == 0\n"
        "p.parse_program('a += b.'); p.parse_program('a += b.')\n"
        "assert p._lark.cache_info().misses == 1"
    )
    python("-c", code, check=True)
