"""The number of trees of a sentence, exactly."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from inout.grammars.parser.normal_form import NormalForm
from inout.grammars.parser.sentences import Compiled
from inout.kernels.sparse.counts import count_trees
from inout.kernels.sparse.cpu.passes import ParsingPasses

Number = int | float  # an int, or math.inf


def count(form: NormalForm, compiled: Compiled) -> Number:
    """The number of trees of the only sentence, regardless of weights; or math.inf."""
    nulls = null_counts(form)
    if int(compiled.arrays.lengths[0]) == 0:
        return nulls[0]
    rules = rule_counts(form, nulls)
    chains = chain_counts(form, rules)
    binary, unary, words = map(np.zeros, (len(form.binary), len(chains), len(compiled.rules)))
    passes = ParsingPasses(form.arrays, compiled.arrays, binary, unary, words)
    barred = barred_chain_counts(form, rules) if compiled.barred is not None else chains

    def ways(endless: int) -> NDArray[np.object_]:
        """The numbers of ways, with a number for the endless ones; by cell where they differ."""
        free, few = (
            np.array([endless if x == math.inf else int(x) for x in found], dtype=object)
            for found in (chains, barred)
        )
        return free if compiled.barred is None else np.where(compiled.barred[:, None], few, free)

    once = count_trees(passes, unary=ways(1))[0]
    if math.inf in chains and count_trees(passes, unary=ways(2))[0] != once:
        return math.inf  # a tree has a chain that has no end
    return once


def null_counts(form: NormalForm) -> list[Number]:
    """The number of empty trees of each binarised symbol."""
    nulls = form.removal.nulls
    table = nulls.table
    found: list[Number] = [0] * len(table.nonterminals)
    rules = np.flatnonzero(nulls.rules).tolist()
    rhs, offsets = table.rhs.tolist(), table.offsets.tolist()
    # After as many rounds as there are symbols, only numbers fed by a cycle still change.
    rounds = int(nulls.symbols.sum())
    for attempt in range(2 * rounds + 1):
        new: list[Number] = [0] * len(found)
        for rule in rules:
            below = [found[c] for c in rhs[offsets[rule] : offsets[rule + 1]]]
            new[table.lhs[rule]] += 0 if 0 in below else math.prod(below)
        if new == found:
            break
        if attempt >= rounds:
            new = [math.inf if a != b else b for a, b in zip(found, new, strict=True)]
        found = new
    return found


def rule_counts(form: NormalForm, nulls: list[Number]) -> list[Number]:
    """The number of pieces of each rule of the form."""
    removal = form.removal
    found: list[Number] = [0] * len(form.table)
    for rule, gone in zip(removal.new_rules.tolist(), removal.origin_nulls.tolist(), strict=True):
        found[rule] += 1 if gone < 0 else nulls[gone]
    return found


def chain_counts(form: NormalForm, rules: list[Number]) -> list[Number]:
    """The number of ways of each chain of unary rules."""
    closure = form.closure
    found: list[Number] = []
    for head, target in closure.pairs.tolist():
        # Pairs stand after those that their chains go on with.
        total: Number = 0
        if closure.on_cycle[head]:
            total = math.inf
        else:
            for step in closure.steps(head):
                ways, child = rules[closure.rules[step]], int(closure.children[step])
                further: Number = int(child == target)
                pair = closure.find(child, target)
                if pair is not None:
                    further += found[pair]
                total += ways * further if further else 0
        found.append(total)
    return found


def barred_chain_counts(form: NormalForm, rules: list[Number]) -> list[Number]:
    """The number of ways of each chain that leads to no constituent.

    Steps between parts of long rules make them shorter, so these chains have no cycles.
    """
    closure = form.closure

    @cache
    def ways(head: int, target: int) -> Number:
        total: Number = 0
        for step in closure.steps(head):
            child = int(closure.children[step])
            barred = form.is_original[child] or form.is_original[head]
            further = 0 if barred else int(child == target) + ways(child, target)
            total += rules[closure.rules[step]] * further if further else 0
        return total

    return [ways(head, target) for head, target in closure.pairs.tolist()]
