"""Every ArgumentError of the sources names its argument, or is known to concern none alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

import inout
from inout._core import errors

SOURCES = Path(inout.__file__).parent
# What makes or raises the error, and where its argument's name stands.
NAMES = {
    "_DivergenceError": 0,
    "ArgumentError": 0,
    "ChartTooLargeError": 0,
    "at_least": 0,
    "expect": 1,
    "expect_one_of": 0,
    "expect_shape": 0,
}

# How the messages that name no argument begin, and why they name none.
OF_SEVERAL = """\
--html and --svg must be different files
--sentence and --facts word=... both give
X and y must have the same number
a forest has no brackets, pruning
all log-weights must be on one device
both distributions must be of one family
both distributions must have the same lengths
both distributions must have the same target lengths
both distributions must have the same targets
cannot be --weighted and --unweighted
confidences and correct must be lists
d1 and d2 must be at least 0
faint and dashed must name lines
give either --text TEXT or --transcript
give --prior or --alpha
use --sentence or files, not both
inputs and outputs must have the same length
missing argument GRAMMAR, or --model
model and skeletal must have the same
only one input can be standard input
only one of GOLD and PARSES
root must be [.. nt] and preterminals
the whole must be at least its part
there must be inputs, with an output
there must be nonterminals and preterminals
there must be one parse (or None) for each
two distributions with the same ordering
two distributions with the same successors
"""
OF_THE_OBJECT_ITSELF = """\
enumerate_support lists at most
enumerate_support needs elements of one length
a distribution without a batch has no elements
enumerate_support needs elements with the same
every nonterminal that is met must have
only a model of order 1 without end
only the rules of trimmed() have numbers
prefixes have probabilities only if
the expected number of rules in a tree
the probabilities of all finite trees
the weights of chains of unary rules
the weights of the rules of each left side
the weights of the sentences sum to infinity
the weights of the trees of
the weights of the trees without words
there is no best tree
"""
OF_FILES = {"history_rows"}  # arrays that a file holds
UNNAMED = (OF_SEVERAL + OF_THE_OBJECT_ITSELF).splitlines()


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in SOURCES.rglob("*.py"):
        yield path, ast.parse(path.read_text())


def message(node: ast.expr) -> str:
    """The constant text at the beginning of a message."""
    if isinstance(node, ast.BinOp):
        return message(node.left)
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) for p in node.values if isinstance(p, ast.Constant)).strip()
    return ""


def test_every_argument_error_names_an_argument():
    parameters, named, unnamed = set(), [], []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                parameters.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                parameters.add(node.target.id)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", None) in NAMES:
                given, place = node.args[NAMES[node.func.id]], f"{path.name}:{node.lineno}"
                if not isinstance(given, ast.Constant):
                    continue
                if given.value is None:
                    unnamed.append((place, message(node.args[1])))
                else:
                    named.append((place, given.value))
    known = [start for start in UNNAMED if any(text.startswith(start) for _, text in unnamed)]
    assert known == UNNAMED, "what nothing says any more is no exception"
    assert not [u for u in unnamed if not u[1].startswith(tuple(UNNAMED))]
    # Options begin with a dash, arguments of commands are in capitals.
    words = {(place, name.split(".")[0]) for place, name in named if not name.startswith("-")}
    parameters |= OF_FILES
    assert not [w for w in words if w[1] not in parameters and not w[1].isupper()]
    assert len(named) > 300


@pytest.mark.parametrize(
    ("message", "text"),
    [("must be 1. Got 2", "k must be 1. Got 2"), (": one is too few", "k: one is too few")],
)
def test_the_text_begins_with_the_argument(message, text):
    assert str(errors.ArgumentError("k", message)) == text
    assert str(errors.ArgumentError(None, message[2:])) == message[2:]


@pytest.mark.parametrize(
    "error",
    [
        errors.ArgumentError("k", "must be 1", remedy=errors.Remedy.DIAGNOSE),
        errors.CycleError(["a", "b"]),
        errors.ProgramError("no such rule", "goal += x.", 1, 9, "p.dyna"),
    ],
)
def test_errors_can_be_made_again(error):
    # Both ways through __reduce__, as from one process to another.
    again = deepcopy(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
