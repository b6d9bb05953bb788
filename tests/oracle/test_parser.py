"""The parser against hand-written trees, Python's arithmetic and rules written at random."""

from __future__ import annotations

import logging
from pathlib import Path

import lark
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

import inout.deduction.reading
from inout._core.errors import ProgramError
from inout.deduction.reading import parse_program, parse_written
from inout.deduction.syntax import (
    NIL,
    Argument,
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
    Equation,
    ListTerm,
    Operand,
    PairEquation,
    Position,
    Term,
    Variable,
    WrittenAtom,
    WrittenComparison,
    WrittenRule,
)
from tests.oracle.rules import assert_inputs_are_bound, list_terms, operations, rule_of
from tests.seeds import examples

# The checked annotations look at random elements of tuples, also where a strategy builds a rule.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")

I, J, K, N, S, W, X, Y, Z = map(Variable, "IJKNSWXYZ")  # noqa: E741
ONE = Constant(1)


def conditions_of(text: str) -> list[str]:
    return list(map(str, rule_of(text).conditions))


def plus(left: Operand, right: Operand) -> BinaryOperation:
    return BinaryOperation("+", left, right)


def fresh(number: int) -> Variable:
    return Variable(f"${number}")


# What the language says


def test_the_program_of_the_design() -> None:
    program = parse_program(
        """
        % a comment
        goal        += beta("S", 0, N) * length(N).
        beta(X,I,K) += rule(X,Y,Z) * beta(Y,I,J) * beta(Z,J,K).  # another
        beta(X,I,K) += rule(X,W) * word(W,I,K).
        """,
        source="cky",
    )
    first, second, third = program.rules
    assert (first.head, first.body, first.conditions) == (
        Atom("goal", ()),
        (Atom("beta", (Constant("S"), Constant(0), N)), Atom("length", (N,))),
        (),
    )
    assert second.head == Atom("beta", (X, I, K))
    assert second.body == (
        Atom("rule", (X, Y, Z)),
        Atom("beta", (Y, I, J)),
        Atom("beta", (Z, J, K)),
    )
    assert third.body == (Atom("rule", (X, W)), Atom("word", (W, I, K)))
    assert first.position == Position(3, 9)
    assert first.body[1].position == Position(3, 42)
    assert first.text == 'goal        += beta("S", 0, N) * length(N).'
    assert str(first) == 'goal += beta("S", 0, N) * length(N).'
    assert program.derived == {"goal": 0, "beta": 3}
    assert {name: use.arities for name, use in program.used.items()} == {
        "beta": (3,),
        "length": (1,),
        "rule": (2, 3),
        "word": (3,),
    }
    assert program.source == "cky"


def test_condition_by_star_or_comma() -> None:
    rule = rule_of("f(K, Y) += f(I, X) * step(X, Y), K = I+1 * I < 10.")
    assert rule.conditions == (Equation(K, plus(I, ONE)), Comparison("<", I, Constant(10)))
    assert rule.body == (Atom("f", (I, X)), Atom("step", (X, Y)))


def test_equal_arguments_share_a_variable() -> None:
    rule = rule_of("g(I+1) += g(I) * word(_, I, I+1).")
    assert rule.head == Atom("g", (fresh(1),))
    assert rule.body == (Atom("g", (I,)), Atom("word", (Variable("_$2"), I, fresh(1))))
    assert rule.conditions == (Equation(fresh(1), plus(I, ONE)),)


def test_every_underscore_is_another_variable() -> None:
    (atom,) = rule_of("a += b(_, _, [_|_], _+1).").body
    assert len({v.name for v in atom.arguments if isinstance(v, Variable)}) == 4
    rule = rule_of("a += b(_x, _x, _).")
    assert rule.body[0].arguments[:2] == (Variable("_x"), Variable("_x"))


def test_lists() -> None:
    rule = rule_of("state([X|S], J) += state([Z,Y|S], J) * rule(X,Y,Z).")
    head, *_ = rule.head.arguments
    stack, *_ = rule.body[0].arguments
    pairs = {c.variable: (c.head, c.tail) for c in rule.conditions if isinstance(c, PairEquation)}
    assert len(pairs) == len(rule.conditions) == 3
    assert isinstance(head, Variable)
    assert isinstance(stack, Variable)
    assert pairs[head] == (X, S)
    first, rest = pairs[stack]
    assert first == Z
    assert isinstance(rest, Variable)
    assert pairs[rest] == (Y, S)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("[]", []),
        ("[a]", ["$1 = [a|[]]"]),
        ("[1|S]", ["$1 = [1|S]"]),
        ("[a,b]", ["$2 = [a|$1]", "$1 = [b|[]]"]),
        ("[a,b,c]", ["$3 = [a|$2]", "$2 = [b|$1]", "$1 = [c|[]]"]),
        ("[a,b,c|S]", ["$3 = [a|$2]", "$2 = [b|$1]", "$1 = [c|S]"]),
        ("[a|[b]]", ["$2 = [a|$1]", "$1 = [b|[]]"]),
        ("[a,b|[]]", ["$2 = [a|$1]", "$1 = [b|[]]"]),
        ("[[a],[]]", ["$3 = [$1|$2]", "$1 = [a|[]]", "$2 = [[]|[]]"]),
        ("[I+1|S]", ["$2 = [$1|S]", "I = $1-1"]),
        ("[a|3]", ["$1 = [a|3]"]),
    ],
)
def test_list_arguments(text: str, plain: list[str]) -> None:
    shown = [condition.replace('"', "") for condition in conditions_of(f"goal += p({text}).")]
    assert sorted(shown) == sorted(plain)


def test_nil_is_one_thing() -> None:
    assert rule_of("a([]) += b([], X), X = [].").head.arguments == (NIL,)
    assert rule_of("a += b(X), X = [].").conditions == (Equation(X, NIL),)
    others: list[Argument] = [Constant("[]"), Constant(0), X]
    assert NIL not in others


def test_filters() -> None:
    rule = rule_of("item(X,J) += active(X,J) * ?predicted(X,J).")
    assert [atom.is_filter for atom in rule.body] == [False, True]
    assert rule.body[1].relation == "predicted"
    only = rule_of("goal += ?a(X).")
    assert [atom.is_filter for atom in only.body] == [True]
    assert rule_of("goal(X) += X = 3.").body == ()
    assert Atom("a", (), is_filter=True) != Atom("a", ())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("007", 7),
        ("-1", -1),
        ("- 1", -1),
        ("--1", 1),
        ("-(1)", -1),
        ("2-1", 1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ('"S"', "S"),
        ("'S'", "S"),
        ("s", "s"),
        ("sBar_2", "sBar_2"),
        ("ß", "ß"),
        ("日本", "日本"),
        ("goal2", "goal2"),
        ("not", "not"),
        ('""', ""),
        ("''", ""),
        ('"a b"', "a b"),
        ('"% no comment # here"', "% no comment # here"),
        ('"it\'s"', "it's"),
        ("'say \"hi\"'", 'say "hi"'),
        (r'"\"\\\n\t\r\'"', "\"\\\n\t\r'"),
        (r"'it\'s'", "it's"),
        (r'"\\n"', r"\n"),
        ('"日本 🂡 é"', "日本 🂡 é"),
        ('"\u2028\x85"', "\u2028\x85"),
        ('"-1"', "-1"),
        ("'_'", "_"),
        ("'X'", "X"),
        ('"[]"', "[]"),
    ],
)
def test_constants(text: str, value: int | str) -> None:
    rule = rule_of(f"goal({text}) += a({text}, X), X != ({text}), X = {text}.")
    assert rule.head.arguments == (Constant(value),)
    assert rule.body[0].arguments == (Constant(value), X)
    assert Comparison("!=", X, Constant(value)) in rule.conditions
    assert Equation(X, Constant(value)) in rule.conditions
    for constant in (*rule.head.arguments, rule.body[0].arguments[0]):
        assert isinstance(constant, Constant)
        assert type(constant.value) is type(value)


@pytest.mark.parametrize("name", ["X", "Xs", "X1", "XY_z", "_x", "_X", "_1", "__", "Ä", "Ω2", "É"])
def test_variables(name: str) -> None:
    assert rule_of(f"goal({name}) += a({name}).").head.arguments == (Variable(name),)


@pytest.mark.parametrize("name", ["goal", "goal2", "a", "aB_c", "not", "in", "is", "β", "ß", "字"])
def test_relations(name: str) -> None:
    program = parse_program(f"{name} += {name}() * ?{name}.")
    assert program.derived == {name: 0}
    assert program.rules[0].head == Atom(name, ())
    assert program.rules[0].body == (Atom(name, ()), Atom(name, (), is_filter=True))


def test_bare_word_is_a_constant_next_to_an_operator() -> None:
    rule = rule_of("goal += np * a(X), np != X, X = vp * vp.")
    assert [atom.relation for atom in rule.body] == ["np", "a", "vp"]
    np, vp = Constant("np"), Constant("vp")
    assert rule.conditions == (Comparison("!=", np, X), Equation(X, vp))


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
def test_comparisons(operator: str) -> None:
    (condition,) = rule_of(f"goal += a(I, J), I+1{operator}-J.").conditions
    assert isinstance(condition, Comparison)
    assert condition.operator == operator
    assert condition.left == plus(I, ONE)
    assert condition.right == BinaryOperation("-", Constant(0), J)


@pytest.mark.parametrize(
    "text",
    [
        "a(X)+=b(X).",
        "a(X)+=b(X).\n",
        "  a ( X )  +=\tb\n(\nX\n)\n.  ",
        "a(X) += b(X). % comment at the end of the file",
        "%\n#\n%% a.\na(X) % (\n += # ]\n b(X).",
        "\ufeffa(X) += b(X).",
        "a(X)\u00a0+= b(X).",
        "a(X) +=\r\n  b(X).\r\n% x\r\n",
        "a(X) +=\r% old mac\rb(X).\r",
        "a(X) += (b(X)).".replace("(b(X))", "b((X))"),
    ],
)
def test_layout_does_not_matter(text: str) -> None:
    rule = rule_of(text)
    assert (rule.head, rule.body, rule.conditions) == (Atom("a", (X,)), (Atom("b", (X,)),), ())


def test_rules_are_told_apart_without_spaces() -> None:
    program = parse_program("a+=b(1).c+=d(-1).e+=f(I),I<-1.")
    assert [rule.text for rule in program.rules] == ["a+=b(1).", "c+=d(-1).", "e+=f(I),I<-1."]


def test_sums_to_one() -> None:
    text = "1 = r(Y,X,_) + r(X,Y).a += r(X,Y)*r(X,Y,Z)*s.\n1=s.  % any place\n"
    program = parse_program(text)
    first, second = program.totals
    assert first.conditions == {("r", 3): (1, 0), ("r", 2): (0, 1)}  # of X and of Y
    assert second.conditions == {("s", 0): ()}
    assert str(program).splitlines()[1:] == ["1 = r(Y, X, _) + r(X, Y).", "1 = s."]
    assert parse_program(str(program)).totals == program.totals
    assert program.rules == parse_program(text).rules


def test_a_rule_written_twice_is_two_rules() -> None:
    program = parse_program("a += b.\na += b.")
    assert len(set(program.rules)) == 2
    assert program.rules[0].body == program.rules[1].body


def test_everything_is_immutable_and_hashable() -> None:
    program = parse_program("a([X|S], I+1) += b(X, S, I), I < 3.")
    hash(program)
    with pytest.raises(AttributeError):
        program.rules[0].head.relation = "c"  # type: ignore[misc]


def test_the_grammar_has_no_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    # Lark resolves shift/reduce conflicts in silence, except in its debugging log.
    grammar = Path(inout.deduction.reading.__file__).with_name("grammar.lark").read_text("utf-8")
    lark_logger = logging.getLogger("lark")
    level = lark_logger.level
    lark_logger.setLevel(logging.DEBUG)
    lark_logger.addHandler(caplog.handler)
    try:
        lark.Lark(grammar, parser="lalr", lexer="basic", debug=True)
        assert not [r for r in caplog.records if "onflict" in r.getMessage()]
        lark.Lark('start: "a" | "b" start | "b" start "c" start', parser="lalr", debug=True)
        assert [r for r in caplog.records if "onflict" in r.getMessage()], "the log is not seen"
    finally:
        lark_logger.removeHandler(caplog.handler)
        lark_logger.setLevel(level)


# Which side of an equation is the unknown


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("g(K) += f(I), K = I+1.", ["K = I+1"]),
        ("g(I) += f(K), K = I+1.", ["I = K-1"]),
        ("g(I) += f(K), K = I - 1.", ["I = K+1"]),
        ("g(I) += f(K), K = I-1.", ["I = K+1"]),
        ("g(I) += f(K), K = 1-I.", ["I = 1-K"]),
        ("g(I) += f(K), K = -I.", ["I = -K"]),
        ("g(I) += f(K), K = 3-(J-I), J = 2.", ["J = 2", "I = J-(3-K)"]),
        ("g(I) += f(K), I+1 = K.", ["I = K-1"]),
        ("g(I) += f(K), K+1 = I-1.", ["I = K+1+1"]),
        ("g(I) += f(K), 5 = I+K.", ["I = 5-K"]),
        ("g(I) += f(K), I = K.", ["I = K"]),
        ("g(I) += f(K), K = I.", ["I = K"]),
        ("g(I) += f(K), 3 = I.", ["I = 3"]),
        ("g(I) += f(K, I), K = I+1.", ["K = I+1"]),
        ("g(I) += f(K, I), K+1 = I-1.", ["K+1 = I-1"]),
        ("g(I) += f(K, I), K = (2*I).", ["K = (2*I)"]),
        ("g(I) += f(I, I+1).", ["$1 = I+1"]),
        ("g(I) += f(I+1).", ["I = $1-1"]),
        ("g(I) += f(I+1, K), K = I.", ["I = $1-1", "K = I"]),
        # The order in the text is kept where it can be, and changed where it must be.
        ("g(K) += f(I), K = J+1, J = I+1.", ["J = I+1", "K = J+1"]),
        ("g(K) += f(I), K < 9, K = J+1, J < 8, J = I+1.", None),
        ("g(K) += K = [I|S], f(I), S = [I].", ["S = [I|[]]", "K = [I|S]"]),
        ("g(I) += f(K), K = [_,I|_].", None),
        ("g(I) += f(K), [I|_] = K.", None),
        ("g(I) += f([[I]|_]), [I] != [].", None),
    ],
)
def test_order_and_direction(text: str, conditions: list[str] | None) -> None:
    rule = rule_of(text)
    assert_inputs_are_bound(rule)
    if conditions is not None:
        assert list(map(str, rule.conditions)) == conditions


# Precedence, against Python's own reading of the same text

NUMBERS = st.integers(0, 9).map(str)


def arithmetic(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    space = st.sampled_from(["", " "])
    operator = st.sampled_from(["+", "-", "*", "//"])
    return (
        st.tuples(inner, space, operator, space, inner).map("".join)
        | inner.map("({})".format)
        | inner.map("-{}".format)
    )


@given(st.recursive(NUMBERS, arithmetic, max_leaves=12))
@example("1-2-3")
@example("1-2*3//2")
@example("-7//2")
@example("2*-7//-2")
def test_arithmetic_groups_as_in_python(text: str) -> None:
    try:
        value = eval(text)
    except ZeroDivisionError:
        with pytest.raises(ProgramError, match="division by zero"):
            parse_program(f"a({text}) += b.")
        return
    assert rule_of(f"a({text}) += b.").head.arguments == (Constant(value),)
    assert rule_of(f"a([{text}]) += b.").conditions[0] == PairEquation(
        fresh(1), Constant(value), NIL
    )
    assert rule_of(f"a(X) += X = ({text}).").conditions == (Equation(X, Constant(value)),)
    if "*" not in text:
        assert rule_of(f"a(X) += X = {text}.").conditions == (Equation(X, Constant(value)),)
        assert rule_of(f"a += b(X), {text} < X.").conditions == (
            Comparison("<", Constant(value), X),
        )


# Random rules: what they print is what they are

NAMES = st.from_regex(r"[a-zß][a-zA-Z0-9_é]{0,3}", fullmatch=True)
VARIABLES = st.from_regex(r"[A-ZÄ][a-zA-Z0-9_]{0,2}|_\w{0,2}", fullmatch=True).map(Variable)
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | NAMES
CONSTANTS = (INTEGERS | STRINGS).map(Constant)


LEAVES: st.SearchStrategy[Operand] = VARIABLES | CONSTANTS
OPERANDS: st.SearchStrategy[Operand] = st.recursive(LEAVES, operations, max_leaves=6)


TERMS: st.SearchStrategy[Term] = st.recursive(OPERANDS, list_terms, max_leaves=4)
ARGUMENTS = st.lists(TERMS, max_size=3).map(tuple)
COMPARISONS = st.builds(
    WrittenComparison, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), TERMS, TERMS
)
ATOMS = st.builds(WrittenAtom, NAMES, ARGUMENTS, is_filter=st.booleans())
HEADS = st.builds(WrittenAtom, NAMES, ARGUMENTS)
FACTORS = st.lists(ATOMS | COMPARISONS, min_size=1, max_size=4).map(tuple)
RULES = st.builds(WrittenRule, HEADS, FACTORS)


@given(st.lists(RULES, min_size=1, max_size=3))
def test_printed_rules_are_read_back(rules: list[WrittenRule]) -> None:
    text = "\n".join(map(str, rules))
    assert parse_written(text) == tuple(rules)
    assert parse_written(text.replace("\n", "")) == tuple(rules)


class Scribe:
    """Writes rules down with random layout, sharing no code with the printer."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def one_of(self, *choices: str) -> str:
        return self.data.draw(st.sampled_from(choices))

    def join(self, *tokens: str) -> str:
        gap = ("", "", "", " ", "\t", "\r\n", " % x. \n", "#\n", "\n\n")
        return "".join(self.one_of(*gap) + token for token in tokens)

    def rule(self, rule: WrittenRule) -> str:
        body = [self.factor(rule.factors[0])]
        for factor in rule.factors[1:]:
            body += [self.one_of("*", ","), self.factor(factor)]
        return self.join(self.atom(rule.head), "+=", *body, ".")

    def factor(self, factor: WrittenAtom | WrittenComparison) -> str:
        if isinstance(factor, WrittenAtom):
            return self.atom(factor)
        sides = [
            self.operand(side, "()") if isinstance(side, BinaryOperation) else self.term(side)
            for side in (factor.left, factor.right)
        ]
        return self.join(sides[0], factor.operator, sides[1])

    def atom(self, atom: WrittenAtom) -> str:
        tokens = ["?"] * atom.is_filter + [atom.relation]
        if atom.arguments or self.one_of("goal", "goal()") == "goal()":
            tokens += ["(", self.sequence(atom.arguments), ")"]
        return self.join(*tokens)

    def sequence(self, terms: tuple[Term, ...]) -> str:
        return self.join(*[token for term in terms for token in (",", self.term(term))][1:])

    def term(self, term: Term) -> str:
        if isinstance(term, ListTerm):
            tail = [] if term.tail is None else ["|", self.term(term.tail)]
            return self.join("[", self.sequence(term.elements), *tail, "]")
        return self.operand(term, self.one_of("", "()"))

    def operand(self, term: Operand, brackets: str) -> str:
        match term:
            case Variable(name):
                text = name
            case Constant(int(value)):
                text = str(value)
            case Constant(str(value)):
                text = self.string(value)
            case BinaryOperation(operator, left, right):
                # Operands in parentheses: no precedence to get wrong here.
                sides = [self.operand(side, "()") for side in (left, right)]
                text = self.join(sides[0], operator, sides[1])
        return self.join(brackets[:1], text, brackets[1:])

    def string(self, value: str) -> str:
        mark = self.one_of('"', "'")
        for plain, escaped in (("\\", r"\\"), ("\n", r"\n"), ("\r", r"\r"), (mark, "\\" + mark)):
            value = value.replace(plain, escaped)
        return mark + value.replace("\t", self.one_of("\t", r"\t")) + mark


@given(st.lists(RULES, min_size=1, max_size=3), st.data())
def test_rules_are_read_in_any_layout(rules: list[WrittenRule], data: st.DataObject) -> None:
    scribe = Scribe(data)
    text = scribe.join(*map(scribe.rule, rules))
    read = parse_written(text)
    assert read == tuple(rules)
    for rule in read:
        lines = text.splitlines()
        assert rule.text in text
        assert lines[rule.position.line - 1][rule.position.column - 1 :].startswith(
            rule.head.relation
        )
    try:
        program = parse_program(text)
    except ProgramError:
        event("refused")
        return
    event("accepted")
    assert list(map(str, program.rules)) == list(map(str, rules))
    again = parse_program(str(program))
    for first, second in zip(program.rules, again.rules, strict=True):
        assert_inputs_are_bound(first)
        assert (first.head, first.body, first.conditions) == (
            second.head,
            second.body,
            second.conditions,
        )


FRAGMENTS = st.text(st.sampled_from("aX_1\"'\\()[]|+=-*/<>!?.,% \n\r\t$;"), max_size=4)
PROGRAM = """goal += beta("S", 0) * ?length(N).
beta([X|S], I+1) += rule(X, 'y', []), I = (2*K)-1, word(_, [K,I|S], K) * I <= -3."""


@given(st.lists(st.tuples(st.integers(0, len(PROGRAM)), st.integers(0, 3), FRAGMENTS), max_size=3))
@example([(0, len(PROGRAM), "")])
@settings(max_examples=examples(500))
def test_any_text_is_a_program_or_a_program_error(edits: list[tuple[int, int, str]]) -> None:
    text = PROGRAM
    for start, removed, added in edits:
        text = text[:start] + added + text[start + removed :]
    try:
        program = parse_program(text)
    except ProgramError as caught:
        error = caught
    else:
        event("a program")
        assert parse_written(str(program)) == parse_written(text)
        return
    event(error.message[:30])
    lines = text.splitlines() or [""]
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
