"""The parser: program text -> syntax trees -> checked, desugared rules."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError
from lark.visitors import Transformer_NonRecursive, v_args

from inout._core.errors import ProgramError
from inout.deduction.complaints import complain_about_character, complain_about_token
from inout.deduction.desugar import (
    Mistake,
    arity_mistakes,
    check_totals,
    desugar,
    order_conditions,
    refuse_anonymous_head,
)
from inout.deduction.syntax import (
    ArithmeticOperator,
    BinaryOperation,
    ComparisonOperator,
    Constant,
    ListTerm,
    Operand,
    ParsedProgram,
    Position,
    Rule,
    Term,
    Total,
    Variable,
    WrittenAtom,
    WrittenComparison,
    WrittenRule,
)


def parse_program(text: str, source: str = "<program>") -> ParsedProgram:
    """The program in the text, every rule desugared and checked; ProgramError if it is wrong.

    Syntax is checked first, for the whole text; after that, the first error in the text is
    reported. Time: linear in the text.

    >>> program = parse_program("goal += count(I), I+1 < 3.")
    >>> print(program.rules[0].body[0], "|", program.rules[0].conditions[0])
    count(I) | I+1 < 3
    """
    places = _Places(text)
    try:
        written, totals = _read(text, places)
        if not written:
            raise Mistake("no rules: the program is empty", Position(1, 1))
        program = ParsedProgram(_checked(written), text, source, totals)
        check_totals(program.used, totals)
        return program
    except Mistake as mistake:
        line, column = mistake.position.line, mistake.position.column
        raise ProgramError(mistake.message, text, line, column, source) from None


def parse_written(text: str) -> tuple[WrittenRule, ...]:
    """The rules of the text as written, neither desugared nor checked; a Mistake on bad syntax."""
    return _read(text, _Places(text))[0]


def parse_totals(texts: Iterable[str], program: ParsedProgram) -> tuple[Total, ...]:
    """Sums such as `rule(X,_,_) + rule(X,_)` of a program's facts; a Mistake where one is wrong.

    Positions are those within the text of a sum, which may begin with `1 =` and end with a dot.
    """
    found: list[Total] = []
    for text in texts:
        whole = text if text.lstrip().startswith("1") else f"1 = {text}"
        whole = whole if whole.rstrip().endswith(".") else f"{whole}."
        rules, totals = _read(whole, _Places(whole))
        if rules or len(totals) != 1:
            raise Mistake(f"expected one sum of relations. Got {text!r:.80}", Position(1, 1))
        found += totals
    check_totals(program.used, found)
    return tuple(found)


def _checked(written: tuple[WrittenRule, ...]) -> tuple[Rule, ...]:
    mistakes = list(arity_mistakes(written))
    rules = []
    for rule in written:
        try:
            refuse_anonymous_head(rule)
            plain = desugar(rule)
            conditions = order_conditions(rule, plain)
        except Mistake as mistake:
            mistakes.append(mistake)
        else:
            rules.append(Rule(plain.head, plain.body, conditions, rule.position, rule.text, rule))
    if mistakes:
        raise min(mistakes, key=lambda mistake: mistake.position)
    return tuple(rules)


def _read(text: str, places: _Places) -> tuple[tuple[WrittenRule, ...], tuple[Total, ...]]:
    lark = _lark()
    try:
        tree = lark.parse(text)
    except UnexpectedToken as error:
        message, offset = _complaint(lark, text, error.token)
        raise Mistake(message, places.position(offset)) from None
    except UnexpectedCharacters as error:
        offset = cast(int, error.pos_in_stream)
        raise Mistake(complain_about_character(text, offset), places.position(offset)) from None
    try:
        return _Builder(text, places).transform(tree)
    except VisitError as error:
        raise error.orig_exc from None


def _complaint(lark: Lark, text: str, bad: Token) -> tuple[str, int]:
    """The message for an unexpected token and the offset in the text it is about."""
    interactive = lark.parse_interactive(text)
    before: list[Token] = []
    for token in interactive.lexer_thread.lex(interactive.parser_state):  # type: ignore[no-untyped-call]
        if bad.type != "$END" and token.start_pos == bad.start_pos:
            break
        interactive.feed_token(token)
        before.append(token)
    accepted = interactive.accepts()  # type: ignore[no-untyped-call]
    return complain_about_token(text, before, bad, frozenset(accepted))


@cache
def _lark() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        maybe_placeholders=False,
        lexer_callbacks={"NAME": _name_or_variable},
    )


def _name_or_variable(token: Token) -> Token:
    return token.update(type="VARIABLE") if token[0].isupper() else token


class _Places:
    """Lines and columns of offsets in a text, with the same idea of a line as ProgramError."""

    def __init__(self, text: str) -> None:
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def position(self, offset: int) -> Position:
        # The last start is the end of the text: no line of its own.
        line = bisect_right(self.starts, offset, hi=max(1, len(self.starts) - 1))
        return Position(line, offset - self.starts[line - 1] + 1)

    def offset(self, position: Position) -> int:
        return self.starts[position.line - 1] + position.column - 1


_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}


def _operation(operator: ArithmeticOperator) -> Callable[[_Builder, Operand, Operand], Operand]:
    def method(self: _Builder, left: Operand, right: Operand) -> Operand:
        return BinaryOperation(operator, left, right, position=left.position)

    return method


@v_args(inline=True)
class _Builder(Transformer_NonRecursive[Token, tuple[tuple[WrittenRule, ...], tuple[Total, ...]]]):
    """Turns lark's tree into ours; each method is named after a rule of the grammar."""

    def __init__(self, text: str, places: _Places) -> None:
        super().__init__()
        self._text = text
        self._places = places

    def _at(self, token: Token) -> Position:
        assert token.start_pos is not None
        return self._places.position(token.start_pos)

    def start(
        self, *lines: WrittenRule | Total
    ) -> tuple[tuple[WrittenRule, ...], tuple[Total, ...]]:
        rules = tuple(line for line in lines if isinstance(line, WrittenRule))
        return rules, tuple(line for line in lines if isinstance(line, Total))

    def total(self, one: Constant, equals: Token, *parts: WrittenAtom | Token) -> Total:
        if one.value != 1 or equals != "=":
            wanted = "a line that begins with a number says what sums to one: '1 = start(_).'"
            raise Mistake(wanted, one.position)
        atoms = tuple(part for part in parts if isinstance(part, WrittenAtom))
        return Total(atoms, position=one.position)

    def rule(
        self,
        head: WrittenAtom,
        _: Token,
        body: tuple[WrittenAtom | WrittenComparison, ...],
        dot: Token,
    ) -> WrittenRule:
        text = self._text[self._places.offset(head.position) : dot.end_pos]
        return WrittenRule(head, body, position=head.position, text=text)

    def body(
        self, *factors: WrittenAtom | WrittenComparison
    ) -> tuple[WrittenAtom | WrittenComparison, ...]:
        return factors

    def filter(self, atom: WrittenAtom) -> WrittenAtom:
        return replace(atom, is_filter=True)

    def comparison(self, left: Term, operator: Token, right: Term) -> WrittenComparison:
        return WrittenComparison(
            cast(ComparisonOperator, operator.value), left, right, position=left.position
        )

    def atom(self, name: Token, arguments: tuple[Term, ...] = ()) -> WrittenAtom:
        return WrittenAtom(name.value, arguments, position=self._at(name))

    def arguments(self, *terms: Term) -> tuple[Term, ...]:
        return terms

    def list(self, opening: Token, *parts: Token | tuple[Term, ...] | Term) -> ListTerm:
        # '[' ']' or '[' elements ']' or '[' elements '|' tail ']'
        elements = parts[0] if isinstance(parts[0], tuple) else ()
        tail = cast(Term, parts[2]) if len(parts) == 4 else None
        return ListTerm(elements, tail, position=self._at(opening))

    add = _operation("+")
    subtract = _operation("-")
    multiply = _operation("*")
    floor_divide = _operation("//")

    def negative(self, minus: Token, operand: Operand) -> Operand:
        position = self._at(minus)
        if isinstance(operand, Constant) and isinstance(operand.value, int):
            return Constant(-operand.value, position=position)
        return BinaryOperation("-", Constant(0, position=position), operand, position=position)

    def group(self, opening: Token, expression: Operand, _: Token) -> Operand:
        return replace(expression, position=self._at(opening))

    def bare_string(self, name: Token) -> Constant:
        return Constant(name.value, position=self._at(name))

    def VARIABLE(self, token: Token) -> Variable:
        return Variable(token.value, position=self._at(token))

    def INTEGER(self, token: Token) -> Constant:
        position = self._at(token)
        # Python refuses to read integers of thousands of digits; no such one is useful here.
        if len(token) > 100:
            raise Mistake("the integer does not fit in 64 bits", position)
        return Constant(int(token), position=position)

    def STRING(self, token: Token) -> Constant:
        position = self._at(token)

        def unescaped(match: re.Match[str]) -> str:
            if match[1] not in _ESCAPED:
                raise Mistake(
                    f"unknown escape '{match[0]}' in a string; there are \\n \\t \\r \\\" \\' \\\\",
                    Position(position.line, position.column + 1 + match.start()),
                )
            return _ESCAPED[match[1]]

        return Constant(
            re.sub(r"\\(.)", unescaped, token[1:-1], flags=re.DOTALL), position=position
        )
