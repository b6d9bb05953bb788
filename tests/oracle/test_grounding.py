"""The grounder against one that tries everything, and its errors."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from inout import (
    ArgumentError,
    CycleError,
    Facts,
    Forest,
    GroundingError,
    Item,
    Program,
    ProgramError,
)
from inout.deduction import engine
from tests.oracle.naive_grounder import (
    ANY,
    Atom,
    Compare,
    Lst,
    Op,
    Rule,
    Var,
    ground,
    has_cycle,
    text,
)
from tests.seeds import seeds
from tests.support import assert_close

X, Y, Z, S, T, I, J, K = (Var(name) for name in "XYZSTIJK")  # noqa: E741


def library_edges(forest: Forest) -> Counter[Any]:
    """Edges (head, tails) as the naive grounder writes them."""
    arrays = forest.arrays
    names = [(name, row) for name, w in forest.relations.items() for row in range(len(w))]
    rows = forest.axiom_rows.tolist()

    def item(number: int) -> Any:
        if number < arrays.num_axioms:
            return ("fact", *names[rows[number]])
        label = forest.labels[number]
        return (label.relation, label.arguments)

    return Counter(
        (
            item(head),
            tuple(
                item(int(t))
                for t in arrays.tails[arrays.tail_offsets[edge] : arrays.tail_offsets[edge + 1]]
            ),
        )
        for edge, head in enumerate(arrays.heads.tolist())
    )


def compare(rules: list[Rule], facts: dict[str, list[tuple[Any, bool]]]) -> Forest | None:
    """Ground both ways; the library's forest, None where both find a cycle."""
    expected = ground(rules, facts)
    assert expected is not None, "the test is too large"
    edges = expected.reachable("goal")
    program = Program(text(rules))
    weights = {
        name: Facts([row for row, _ in rows], [0.0 if live else -math.inf for _, live in rows])
        for name, rows in facts.items()
    }
    if has_cycle(edges):
        with pytest.raises(CycleError):
            program.ground(weights)
        return None
    forest = program.ground(weights)
    assert library_edges(forest) == edges
    wanted = {item for item in expected.items if item[0] == "goal"}
    if not forest.single_goal:
        assert {(g.relation, g.arguments) for g in forest.goals} == wanted
        assert len(forest.goals) == len(wanted)
    else:
        assert (forest.count() > 0) == bool(wanted)
    return forest


# ----------------------------------------------------------------------- random programs

# Columns are typed, because arithmetic on strings is an error: i for integers, s for strings.
SCHEMA = {"e": "ii", "f": "i", "s": "si", "n": "", "p": "i", "q": "ii", "r": "si"}
GIVEN = ["e", "f", "s", "n"]


def random_rule(
    rng: np.random.Generator,
    head: str,
    relations: list[str],
    columns: str | None = None,
    most: int = 3,
) -> Rule:
    """A rule whose head is bound by its body, of at most so many relations."""
    integers, strings = [I, J, K], [S, T]
    body: list[Any] = []
    bound: dict[str, set[Var]] = {"i": set(), "s": set()}
    for _ in range(int(rng.integers(1, most + 1))):
        relation = str(rng.choice(relations))
        arguments = []
        for kind in SCHEMA[relation]:
            pool = integers if kind == "i" else strings
            choice = rng.random()
            if choice < 0.06:
                arguments.append(
                    int(rng.integers(0, 4)) if kind == "i" else str(rng.choice(["a", "b"]))
                )
            elif choice < 0.16:
                arguments.append(ANY)
            else:
                variable = pool[int(rng.integers(len(pool)))]
                arguments.append(variable)
                bound[kind].add(variable)
        body.append(Atom(relation, tuple(arguments), bool(rng.random() < 0.25)))
    if all(atom.is_filter for atom in body) and rng.random() < 0.5:
        body[0] = Atom(body[0].relation, body[0].arguments)
    known = sorted(bound["i"], key=lambda v: v.name)

    def integer() -> Any:
        if not known or rng.random() < 0.15:
            return int(rng.integers(0, 4))
        return known[int(rng.integers(len(known)))]

    for _ in range(int(rng.integers(0, 5)) // 2):
        kind = rng.random()
        if not known:
            break
        if kind < 0.5:
            operator = str(rng.choice(["<", "<=", ">", ">=", "!=", "="]))
            body.append(Compare(operator, integer(), Op("+", integer(), int(rng.integers(0, 2)))))
        elif kind < 0.75:
            operator = str(rng.choice(["+", "-", "*", "//"]))
            left, right = integer(), integer() if operator != "//" else 2
            body.append(Compare("=", X, Op(operator, left, right)))
            known.append(X)
        else:
            # Solved for the unknown: Y + c = I.
            unknown = Op("+", Y, 1) if rng.random() < 0.5 else Op("-", 3, Y)
            body.append(Compare("=", unknown, integer()))
            known.append(Y)
    arguments = []
    for kind in SCHEMA[head] if columns is None else columns:
        if kind == "s":
            choices = sorted(bound["s"], key=lambda v: v.name)
            arguments.append(choices[0] if choices else "a")
            continue
        value = integer()
        if isinstance(value, Var):
            # What is derived stays small, so that every program comes to an end.
            body += [Compare(">=", value, 0), Compare("<", value, 4)]
            if rng.random() < 0.3:
                value = Op("+", value, 1)
        arguments.append(value)
    return Rule(Atom(head, tuple(arguments)), tuple(body))


def random_facts(rng: np.random.Generator) -> dict[str, list[tuple[Any, bool]]]:
    """A few rows each, some of them twice, some of weight zero."""
    facts: dict[str, list[tuple[Any, bool]]] = {}
    upwards = rng.random() < 0.6  # edges that go up only give fewer cycles
    for name in GIVEN:
        rows = []
        for _ in range(int(rng.integers(2, 9))):
            row: tuple[Any, ...] = tuple(
                int(rng.integers(0, 4)) if kind == "i" else str(rng.choice(["a", "b"]))
                for kind in SCHEMA[name]
            )
            if upwards and name == "e":
                row = tuple(sorted(row))
                if row[0] == row[1]:
                    continue
            rows.append((row, bool(rng.random() > 0.15)))
        facts[name] = rows[:2] if name == "n" else rows
    return facts


def random_program(
    seed: int, most: int = 3
) -> tuple[list[Rule], dict[str, list[tuple[Any, bool]]]]:
    rng = np.random.default_rng(seed)
    derived = ["p", "q", "r"]
    rules = [
        random_rule(
            rng, str(head), GIVEN if rng.random() < 0.4 else [*GIVEN[:3], *derived], most=most
        )
        for head in [*derived, *rng.choice(derived, int(rng.integers(0, 3)))]
    ]
    # Without these most programs would derive nothing.
    bases = [
        Rule(Atom("p", (I,)), (Atom("f", (I,)),)),
        Rule(Atom("q", (I, J)), (Atom("e", (I, J)),)),
        Rule(Atom("r", (S, I)), (Atom("s", (S, I)),)),
    ]
    rules += [base for base in bases if rng.random() < 0.7]
    rules += [rule for rule in rules if rng.random() < 0.1]  # some stand there twice
    columns = "" if rng.random() < 0.5 else "i"
    for _ in range(int(rng.integers(1, 3))):
        rules.append(random_rule(rng, "goal", [*derived, "e"], columns, most))
    rng.shuffle(rules)  # type: ignore[arg-type]
    facts = random_facts(rng)
    if rng.random() < 0.4:  # given and derived at once
        facts["p"] = [((int(i),), bool(rng.random() > 0.2)) for i in rng.integers(0, 4, 2)]
    used = {f.relation for rule in rules for f in rule.body if isinstance(f, Atom)}
    used |= {rule.head.relation for rule in rules}
    return rules, {name: rows for name, rows in facts.items() if name in used}


@pytest.mark.parametrize("block", seeds(12))
def test_random_programs(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if block == 0:  # every join by the engine that is meant for large ones
        monkeypatch.setattr(engine, "LARGE", 0)
    for seed in range(25 * block, 25 * block + 25):
        rules, facts = random_program(seed)
        try:
            compare(rules, facts)
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n{text(rules)}\n{facts}") from error


def test_random_programs_are_of_all_kinds() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(0, 300, 3):
        rules, facts = random_program(seed)
        forest = ground(rules, facts)
        assert forest is not None
        edges = forest.reachable("goal")
        kinds["cyclic" if has_cycle(edges) else "empty" if not edges else "some"] += 1
        kinds["large"] += len(edges) > 15
        kinds["double"] += any(n > 1 for n in edges.values())
        kinds["filter"] += any(f.is_filter for r in rules for f in r.body if isinstance(f, Atom))
    assert min(kinds[k] for k in ("cyclic", "empty", "some", "large", "double", "filter")) >= 5, (
        kinds
    )


# --------------------------------------------------------------------- programs by hand


def live(*rows: Any) -> list[tuple[Any, bool]]:
    return [(row if isinstance(row, tuple) else (row,), True) for row in rows]


def filtered(relation: str, *arguments: Any) -> Atom:
    return Atom(relation, arguments, is_filter=True)


def atom(relation: str, *arguments: Any) -> Atom:
    return Atom(relation, arguments)


GOAL = Atom("goal")
PROGRAMS: dict[str, tuple[list[Rule], dict[str, list[tuple[Any, bool]]]]] = {
    "repeated variables": (
        [Rule(atom("goal", X), (atom("e", X, X), atom("t", X, Y, X)))],
        {"e": live((1, 1), (1, 2), (2, 2), (2, 2)), "t": live((1, 5, 1), (2, 1, 2), (1, 1, 2))},
    ),
    "anonymous twice": (
        [Rule(GOAL, (atom("e", ANY, ANY), atom("e", ANY, 2)))],
        {"e": live((1, 1), (1, 2), (2, 2))},
    ),
    "product of unrelated atoms": (
        [Rule(GOAL, (atom("f", X), atom("f", Y), Compare("<", X, Y)))],
        {"f": live(1, 2, 3, 3)},
    ),
    "nullary facts": (
        [Rule(GOAL, (atom("n"), atom("f", X), atom("n")))],
        {"n": [((), True), ((), True), ((), False)], "f": live(1, 2)},
    ),
    "no facts at all": ([Rule(atom("goal", X), (atom("f", X),))], {"f": []}),
    "a rule twice": ([Rule(GOAL, (atom("f", X),)), Rule(GOAL, (atom("f", X),))], {"f": live(1, 2)}),
    "only filters": (
        [Rule(atom("goal", X), (filtered("e", X, ANY), filtered("e", ANY, X)))],
        {"e": live((1, 2), (2, 1), (3, 1), (1, 2))},
    ),
    "a filter that repeats its own variable": (
        [
            Rule(GOAL, (atom("f", X), filtered("e", Y, Y))),
            Rule(GOAL, (atom("f", X), filtered("d", Y, Y))),
            Rule(atom("d", X, Y), (atom("e", X, Y),)),
        ],
        {"f": live(1, 2), "e": live((1, 1), (2, 2), (1, 2))},
    ),
    "filters that share a variable": (
        [Rule(GOAL, (atom("f", X), filtered("e", X, Y), filtered("e", Y, ANY)))],
        {"f": live(1, 2), "e": live((1, 2), (1, 3), (2, 3), (3, 3))},
    ),
    "a filter and a condition": (
        [Rule(GOAL, (atom("f", X), filtered("e", X, Y), Compare("<", Y, 4)))],
        {"f": live(1, 2), "e": live((1, 2), (1, 3), (2, 4))},
    ),
    "a filter and arithmetic": (
        [
            Rule(
                atom("goal", Z),
                (atom("f", X), filtered("e", X, Y), Compare("=", Z, Op("//", Y, 2))),
            )
        ],
        {"f": live(1, 2), "e": live((1, 2), (1, 3), (2, 4), (2, 5), (2, 7))},
    ),
    "a filter on a list": (
        [
            Rule(atom("l", Lst((X, Y))), (atom("e", X, Y),)),
            Rule(GOAL, (atom("f", X), filtered("l", Lst((X,), ANY)))),
        ],
        {"f": live(1, 2), "e": live((1, 2), (1, 3), (3, 3))},
    ),
    "cyclic filters": (
        [
            Rule(atom("p", X), (atom("f", X), Compare("=", X, 0))),
            Rule(atom("p", X), (atom("f", X), filtered("q", Y), Compare("=", X, Op("+", Y, 1)))),
            Rule(atom("q", X), (atom("f", X), filtered("p", X))),
            Rule(GOAL, (atom("p", ANY), atom("q", ANY))),
        ],
        {"f": live(0, 1, 2, 2, 4, 5)},
    ),
    "a filter on itself": (
        [
            Rule(atom("p", X), (atom("f", X), Compare("<", X, 2))),
            Rule(atom("p", X), (atom("f", X), filtered("p", Y), Compare("<", Y, X))),
            Rule(GOAL, (atom("p", X),)),
        ],
        {"f": live(1, 2, 3)},
    ),
    "given and derived": (
        [
            Rule(atom("p", X), (atom("p", Y), atom("e", Y, X))),
            Rule(atom("goal", X), (atom("p", X),)),
        ],
        {"p": [((0,), True), ((0,), True), ((2,), True), ((3,), False)], "e": live((0, 1), (1, 2))},
    ),
    "a goal that is given": (
        [Rule(GOAL, (atom("f", X), filtered("goal")))],
        {"goal": [((), True)], "f": live(1, 2)},
    ),
    "two recursive atoms": (
        [
            Rule(atom("b", I, J), (atom("e", I, J),)),
            Rule(atom("b", I, K), (atom("b", I, J), atom("b", J, K))),
            Rule(GOAL, (atom("b", 0, 4),)),
        ],
        {"e": live((0, 1), (1, 2), (2, 3), (3, 4), (1, 3), (2, 3))},
    ),
    "three recursive atoms": (
        [
            Rule(atom("b", I, J), (atom("e", I, J),)),
            Rule(atom("b", I, Z), (atom("b", I, J), atom("b", J, K), atom("b", K, Z))),
            Rule(GOAL, (atom("b", 0, 5),)),
        ],
        {"e": live((0, 1), (1, 2), (2, 3), (3, 4), (4, 5))},
    ),
    "mutual recursion": (
        [
            Rule(atom("p", Op("+", X, 1)), (atom("q", X), Compare("<", X, 6))),
            Rule(atom("q", Op("+", X, 1)), (atom("p", X), atom("f", ANY))),
            Rule(atom("p", 0), (atom("f", 1),)),
            Rule(atom("goal", X), (atom("p", X), Compare(">", X, 2))),
        ],
        {"f": live(1, 1, 2)},
    ),
    "constants in heads": (
        [
            Rule(atom("p", 0, "a"), (atom("f", X),)),
            Rule(atom("p", -3, "b"), (atom("f", 1),)),
            Rule(atom("goal", X, S), (atom("p", X, S),)),
        ],
        {"f": live(1, 2)},
    ),
    "strings and integers in one column": (
        [Rule(atom("goal", X, Y), (atom("g", X), atom("g", Y), Compare("!=", X, Y)))],
        {"g": live(1, "1", "a", -4)},
    ),
    "arithmetic everywhere": (
        [
            Rule(atom("goal", Op("*", X, Op("-", X, 3))), (atom("e", X, Op("+", X, 1)),)),
            Rule(
                atom("goal", Op("//", Y, -2)),
                (atom("f", X), Compare("=", Op("-", 7, Op("-", Y, 2)), Op("*", 2, X))),
            ),
        ],
        {"e": live((1, 2), (2, 3), (3, 3), (-1, 0)), "f": live(1, 2, -5)},
    ),
    "lists built and taken apart": (
        [
            Rule(atom("stack", Lst(()), 0), (atom("n"),)),
            Rule(
                atom("stack", Lst((X,), S), Op("+", J, 1)),
                (atom("stack", S, J), atom("word", X, J)),
            ),
            Rule(
                atom("stack", Lst((Z,), S), J),
                (atom("stack", Lst((Y, X), S), J), atom("rule", Z, X, Y)),
            ),
            Rule(GOAL, (atom("stack", Lst(("s",)), 3),)),
        ],
        {
            "n": [((), True)],
            "word": live(("a", 0), ("b", 1), ("a", 2)),
            "rule": live(("s", "a", "b"), ("s", "s", "a"), ("t", "b", "a"), ("s", "a", "t")),
        },
    ),
    "lists among other things": (
        [
            Rule(atom("m", X), (atom("g", X),)),
            Rule(atom("m", Lst((X,))), (atom("g", X),)),
            Rule(atom("m", Lst(())), (atom("g", 0),)),
            Rule(atom("goal", X, S), (atom("m", Lst((X,), S)),)),
            Rule(atom("goal", 7, X), (atom("m", X), atom("m", Lst((X,))))),
            Rule(atom("goal", 8, X), (atom("m", X), Compare("=", X, Lst(())))),
        ],
        {"g": live(0, 5, "a")},
    ),
    "lists in lists": (
        [
            Rule(atom("l", Lst((X, Lst((Y, X))))), (atom("e", X, Y),)),
            Rule(
                atom("goal", Y, S), (atom("l", Lst((X,), S)), atom("l", Lst((ANY, Lst((Y,), ANY)))))
            ),
        ],
        {"e": live((1, 2), (3, 4), (1, 1))},
    ),
    "lists as equations": (
        [
            Rule(atom("l", S), (atom("e", X, Y), Compare("=", S, Lst((X, Y))))),
            Rule(atom("goal", X), (atom("l", S), Compare("=", S, Lst((X, X))))),
            Rule(atom("goal", T), (atom("l", S), Compare("=", Lst((ANY,), T), S))),
        ],
        {"e": live((1, 2), (2, 2), (3, 3))},
    ),
    "several arities": (
        [
            Rule(atom("b", X, I, K), (atom("rule", X, S), atom("word", S, I, K))),
            Rule(
                atom("b", X, I, K), (atom("rule", X, Y, Z), atom("b", Y, I, J), atom("b", Z, J, K))
            ),
            Rule(GOAL, (atom("b", "s", 0, 3),)),
        ],
        {
            "rule": live(("s", "s", "s"), ("s", "a"), ("s", "b"), ("s", "s", "s")),
            "word": live(("a", 0, 1), ("b", 1, 2), ("a", 2, 3), ("b", 2, 3)),
        },
    ),
    "a cycle": (
        [
            Rule(atom("p", X), (atom("p", Y), atom("e", Y, X))),
            Rule(atom("p", X), (atom("f", X),)),
            Rule(GOAL, (atom("p", 1),)),
        ],
        {"e": live((0, 1), (1, 0)), "f": live(0)},
    ),
    "a cycle that the goal does not need": (
        [
            Rule(atom("p", X), (atom("p", Y), atom("e", Y, X))),
            Rule(atom("p", X), (atom("f", X),)),
            Rule(GOAL, (atom("p", 0),)),
        ],
        {"e": live((0, 1), (1, 2), (2, 1)), "f": live(0)},
    ),
    "a relation that is used and never found": (
        [
            Rule(GOAL, (atom("f", X), atom("p", X))),
            Rule(atom("p", X), (atom("f", X), Compare(">", X, 9))),
        ],
        {"f": live(1)},
    ),
    "a filter on a fact without weight": (
        [Rule(GOAL, (atom("f", X), filtered("g", X)))],
        {"f": live(1, 2), "g": [((1,), False), ((2,), True), ((2,), True)]},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_by_hand(name: str) -> None:
    compare(*PROGRAMS[name])


def test_the_comparison_notices_a_missing_edge() -> None:
    rules, facts = PROGRAMS["two recursive atoms"]
    fewer = {"e": facts["e"][:-1]}
    program = Program(text(rules))
    forest = program.ground({"e": [row for row, _ in fewer["e"]]})
    expected = ground(rules, facts)
    assert expected is not None
    assert library_edges(forest) != expected.reachable("goal")


def test_goals_are_ordered_by_value() -> None:
    program = Program("goal(X) += g(X). goal([X,Y]) += g(X) * g(Y), X != Y.")
    forest = program.ground({"g": [("b",), (10,), ("a",), (-2,), (9,)]})
    values = [g.arguments[0] for g in forest.goals]
    numbers = [-2, 9, 10]
    assert values[:5] == [*numbers, "a", "b"]
    order = [*numbers, "a", "b"]
    assert values[5:] == [(x, y) for x in order for y in order if x != y]


def test_facts_in_all_their_forms() -> None:
    program = Program("goal(X) += e(X, Y) * f(Y).")
    expected = None
    for rows in ([(1, 2), (3, 2)], [[1, 2], [3, 2]], np.array([[1, 2], [3, 2]])):
        forest = program.ground({"e": rows, "f": {(2,): -0.5}})
        edges = library_edges(forest)
        assert expected is None or edges == expected
        expected = edges
    alone = program.ground({"e": [(1, 2)], "f": {2: -0.5}})
    assert_close(alone.log_partition(), [-0.5])


def test_weights_follow_the_rows() -> None:
    # Expected counts line up with the rows given, unused and dead ones included.
    weights = torch.tensor([0.5, -math.inf, 0.25, 0.0], dtype=torch.float64, requires_grad=True)
    rows = [("b",), ("a",), ("a",), ("never",)]
    program = Program('goal += g(X) * word(X). goal += g("b").')
    forest = program.ground({"word": [("a",), ("b",)], "g": Facts(rows, weights)})
    expected = math.log(2 * math.exp(0.5) + math.exp(0.25))
    assert_close(forest.log_partition(), expected)
    counts = [2 * math.exp(0.5 - expected), 0.0, math.exp(0.25 - expected), 0.0]
    assert_close(forest.expected_counts("g"), counts)
    forest.log_partition().backward()
    assert_close(weights.grad, counts)
    assert_close(forest.expected_counts("word"), [counts[2], counts[0] / 2])


@pytest.mark.parametrize("large", [10**9, 1000])
def test_large_joins(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Beyond some number of rows another engine does the joins.
    monkeypatch.setattr(engine, "LARGE", large)
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 40, (3000, 2)), rng.integers(0, 40, (3000, 2))
    program = Program("goal += e(X, Y) * d(Y, Z), X != Z.")
    forest = program.ground({"e": left, "d": right})
    expected = sum(int(((right[:, 0] == y) & (right[:, 1] != x)).sum()) for x, y in left.tolist())
    assert expected > 100_000
    assert forest.num_edges == expected
    per_row = [int(((right[:, 0] == y) & (right[:, 1] != x)).sum()) for x, y in left.tolist()]
    assert_close(forest.expected_counts("e") * expected, np.array(per_row, dtype=float))


def test_wide_keys() -> None:
    # Keys of many large columns do not fit into one number of 64 bits at once.
    rng = np.random.default_rng(4)
    base = rng.integers(-(2**39), 2**39, (50, 4))
    # Some rows miss by one, in one column each.
    near = [base - np.eye(4, dtype=np.int64)[c] for c in range(4)]
    nearer = [base - 2 * np.eye(4, dtype=np.int64)[c] for c in range(4)]
    left = np.concatenate([base, rng.integers(-(2**39), 2**39, (50, 4)), *near])
    right = np.concatenate([base[::-1], base[:5], rng.integers(0, 9, (20, 4)), *nearer])
    program = Program("goal(A,B,C,D) += e(A,B,C,D) * d(A,B,C,D).")
    forest = program.ground({"e": left, "d": right})
    assert {g.arguments for g in forest.goals} == {tuple(row) for row in base.tolist()}
    assert forest.num_edges == 55


def test_no_fact_has_any_weight() -> None:
    forest = Program("goal += f(X).").ground({"f": {(1,): -math.inf}})
    assert forest.count() == 0
    assert_close(forest.expected_counts("f"), [0.0])


# ------------------------------------------------------------------------------- errors

COUNTER = Program("n(0) += start. n(I+1) += n(I). goal += n(5).")
PAIRS = Program("goal += f(X) * f(Y).")


def test_a_program_that_counts_without_end() -> None:
    with pytest.raises(GroundingError, match=r"after 50 rounds.*n\(5\d\).*max_rounds"):
        COUNTER.ground({"start": [()]}, max_rounds=50)
    with pytest.raises(GroundingError, match="edges"):
        COUNTER.ground({"start": [()]}, max_edges=100)
    doubling = Program("n(1) += start. n(I*2) += n(I). goal += n(8).")
    with pytest.raises(GroundingError, match=r"range of integers, ±2\*\*40"):
        doubling.ground({"start": [()]})
    lists = Program("l([]) += start. l([1|S]) += l(S). goal += l([1]).")
    with pytest.raises(GroundingError, match="after 20 rounds"):
        lists.ground({"start": [()]}, max_rounds=20)
    filters = Program("n(0) += start. n(I+1) += ?n(I). goal += start * ?n(3).")
    with pytest.raises(GroundingError, match="after 20 rounds"):
        filters.ground({"start": [()]}, max_rounds=20)


@pytest.mark.parametrize("num_facts", [4, 200])
def test_limits_on_edges_are_exact(num_facts: int) -> None:
    rows = [(i,) for i in range(num_facts)]
    assert PAIRS.ground({"f": rows}, max_edges=num_facts**2).num_edges == num_facts**2
    with pytest.raises(GroundingError, match=rf"limit of {num_facts**2 - 1:,} edges.*line 1") as e:
        PAIRS.ground({"f": rows}, max_edges=num_facts**2 - 1)
    assert "max_edges" in str(e.value)
    single = Program("goal += f(X).")
    assert single.ground({"f": rows}, max_edges=num_facts).num_edges == num_facts
    with pytest.raises(GroundingError, match="limit of 3 edges"):
        single.ground({"f": rows}, max_edges=3)
    twice = Program("goal += f(X). goal += f(X).")
    assert twice.ground({"f": rows}, max_edges=2 * num_facts).num_edges == 2 * num_facts
    with pytest.raises(GroundingError, match=f"{num_facts} so far, and the rule in line 1"):
        twice.ground({"f": rows}, max_edges=2 * num_facts - 1)


def test_a_product_that_would_fill_memory_stops_at_once() -> None:
    rows = np.arange(200_000)[:, None]
    with pytest.raises(GroundingError, match="40,000,000,000"):
        PAIRS.ground({"f": rows})


@pytest.mark.parametrize("limit", [0, -1, True])
def test_limits_must_be_positive(limit: int) -> None:
    for name in ("max_edges", "max_rounds"):
        with pytest.raises(ArgumentError, match=f"{name} must be an integer of at least 1"):
            PAIRS.ground({"f": [(1,)]}, **{name: limit})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("goal(K) += g(X), K = X+1.", "X must be an integer here, but can be 'a'"),
        ("goal += g(X), X < 3.", "X must be an integer here, but can be 'a'"),
        ("goal(K) += g(X), K = 3 // (X-X).", "must be an integer"),
        ("goal(K) += h(X), K = 3 // X.", r"division by zero in 3//X \(line 1"),
        ("goal(K) += h(X), K = (X * 1000000 * 1000000).", "leaves the range of integers"),
        ("goal(K) += h(X), K = X * 2.", None),
        ("goal += h(1099511627776).", r"smaller than 2\*\*40"),
        ("goal(X + 1099511627776) += h(X).", r"smaller than 2\*\*40"),
        ("goal += l(S), S < 3. l([X]) += h(X).", r"S must be an integer here, but can be \(0,\)"),
    ],
)
def test_values_that_do_not_fit(program: str, message: str | None) -> None:
    if message is None:
        with pytest.raises(ProgramError):
            Program(program)
        return
    facts = {"g": [("a",), (1,)], "h": [(0,), (5,)]}
    parsed = Program(program)
    with pytest.raises(GroundingError, match=message):
        parsed.ground({name: facts[name] for name in parsed.inputs})


FACTS = Program("goal(X) += e(X, Y).")


@pytest.mark.parametrize(
    ("facts", "error", "message"),
    [
        ({}, ProgramError, "e is neither given as facts nor derived"),
        ({"e": [], "f": []}, ArgumentError, "no rule uses the facts 'f'; the program needs e"),
        ({"e": [(1,)]}, ArgumentError, r"rows of 'e' must have 2 values.*Got 1 in row 0: \(1,\)"),
        ({"e": [(1, 2), (1, 2, 3)]}, ArgumentError, "Got 3 in row 1"),
        ({"e": [(1, 2.5)]}, ArgumentError, "strings and integers. Got 2.5 at row 0"),
        ({"e": [(1, None)]}, ArgumentError, "strings and integers. Got None at row 0"),
        ({"e": [(1, True)]}, ArgumentError, "strings and integers. Got True at row 0"),
        ({"e": ["ab"]}, ArgumentError, "must be a tuple of values. Got 'ab' at row 0"),
        ({"e": [3]}, ArgumentError, "must be a tuple of values. Got 3 at row 0"),
        ({"e": np.array([3, 4])}, ArgumentError, "must be a tuple of values"),
        ({"e": [(1, 2**40)]}, ArgumentError, r"smaller than 2\*\*40 in size. Got 1099511627776"),
        ({"e": np.array([[1, -(2**40)]])}, ArgumentError, r"smaller than 2\*\*40"),
        ({"e": {(1, 2): math.nan}}, ArgumentError, "log_weights must be finite or -inf. Got nan"),
        ({"e": {(1, 2): math.inf}}, ArgumentError, "log_weights must be finite or -inf. Got inf"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_facts_that_do_not_fit(facts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FACTS.ground(facts)


@pytest.mark.usefixtures("unchecked")
def test_log_weights_that_do_not_fit() -> None:
    for weights in ([0.0], torch.zeros(3), torch.zeros(2, 1)):
        with pytest.raises(ArgumentError, match=r"log_weights must have shape \[2\]"):
            Facts([(1, 2), (3, 4)], weights)
    with pytest.raises(ArgumentError, match="log_weights must be a float tensor"):
        Facts([(1, 2)], torch.zeros(1, dtype=torch.int64))
    with pytest.raises(ArgumentError, match="log_weights must be numbers"):
        Facts([(1, 2)], ["heavy"])  # type: ignore[list-item]


def test_progress_is_reported() -> None:
    seen: list[tuple[int, int]] = []
    rules, facts = PROGRAMS["two recursive atoms"]
    rows = {name: [row for row, _ in rows] for name, rows in facts.items()}
    Program(text(rules)).ground(rows, progress=lambda items, edges: seen.append((items, edges)))
    assert seen == sorted(seen)
    assert seen[-1][1] >= 6


def test_labels_are_what_was_derived() -> None:
    forest = Program("l([X,Y]) += e(X,Y). goal += l(S).").ground({"e": [(1, "a")]})
    assert set(forest.labels) == {Item("e", (1, "a")), Item("l", ((1, "a"),)), Item("goal", ())}
    assert str(forest.argmax()).splitlines()[0] == "goal"
    assert 'l([1,"a"])' in forest.to_text()
