"""From the kernels' trees back to derivations by the original rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout.grammars.parser.normal_form import NormalForm, Setting
from inout.grammars.parser.sentences import Compiled
from inout.grammars.table import RuleTable
from inout.grammars.transforms.pieces import Piece, filled, spliced
from inout.kernels.sparse.trees import leaves

Nodes = NDArray[Any]
# (cell of the node, number of the rule or chain) -> the piece chosen
Choice = Callable[[int, int], Piece]


class Leaf(NamedTuple):
    """A word of a tree, where it stands, and the log-weight that it has by itself."""

    word: str
    start: int
    end: int
    log_weight: float


class Restored(NamedTuple):
    """A derivation by original rules, and its words."""

    rules: list[int]
    leaves: list[Leaf]


def restored(
    form: NormalForm, compiled: Compiled, nodes: Nodes, rule: Choice, chain: Choice
) -> Restored:
    """The derivation that a kernel's tree of the only sentence stands for; O(length · depth)."""
    n = int(compiled.arrays.lengths[0])
    is_leaf = leaves(nodes).tolist()
    stack: list[list[int]] = []
    words: list[Leaf] = []
    # From the end, the children of a node are the last ones made, the left one on top.
    for row, leaf in zip(reversed(nodes.tolist()), reversed(is_leaf), strict=True):
        start, end, _, unary, number = row
        cell = start * n + end - 1
        if leaf:
            log_weight = float(compiled.log_weights[number])
            words.append(Leaf(compiled.words[number], start, end, log_weight))
            core, children = rule(cell, int(compiled.rules[number])), []
        else:
            core = rule(cell, int(form.binary[number]))
            children = [stack.pop(), stack.pop()]
        piece = core if unary < 0 else filled(chain(cell, unary), [core])
        stack.append(spliced(piece, children))
    (binarised,) = stack
    return Restored(form.original_derivation(binarised), words[::-1])


def best_choices(setting: Callable[[int], Setting]) -> tuple[Choice, Choice]:
    """The best piece of rules and of chains, at the setting of each cell."""
    return (
        lambda cell, rule: setting(cell).pieces.best(rule),
        lambda cell, chain: setting(cell).chains.best(chain),
    )


def random_choices(
    setting: Callable[[int], Setting], random: np.random.Generator
) -> tuple[Choice, Choice]:
    """Pieces drawn in proportion to their weights."""
    return (
        lambda cell, rule: setting(cell).pieces.sample(rule, random),
        lambda cell, chain: setting(cell).chains.sample(chain, random),
    )


def anchored(
    table: RuleTable, rules: Sequence[int], words: Sequence[Leaf]
) -> Iterator[tuple[int, int, int]]:
    """(rule, start, end) of each rule of a derivation, children first."""
    remaining = list(words)[::-1]
    # What is still to come: symbols, and the ends of rules. An empty rule stands where the word
    # before it ended.
    agenda: list[tuple[str, int, int]] = [("symbol", 0, 0)]
    numbers, place = iter(rules), 0
    while agenda:
        kind, number, start = agenda.pop()
        if kind == "close":
            yield number, start, place
        elif number < 0:
            place = remaining.pop().end
        else:
            rule = next(numbers)
            agenda.append(("close", rule, place))
            agenda.extend(("symbol", child, 0) for child in reversed(table.right_side(rule)))
