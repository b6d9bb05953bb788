"""The number of trees of a sentence, exactly."""

from __future__ import annotations

import math

import numpy as np

from inout.grammars.parsing.normal_form import NormalForm
from inout.grammars.parsing.sentences import Compiled
from inout.kernels.parsing.decoding.counting.op import count_trees
from inout.kernels.parsing.passes import ParsingPasses

Number = int | float  # an int, or math.inf


def count(form: NormalForm, compiled: Compiled) -> Number:
    """How many trees the only sentence has by the rules, whatever their weights; or math.inf."""
    nulls = null_counts(form)
    if int(compiled.arrays.lengths[0]) == 0:
        return nulls[0]
    chains = chain_counts(form, rule_counts(form, nulls))
    # Any weights will do to see which chains a tree of this sentence can have.
    binary, unary, words = map(np.zeros, (len(form.binary), len(chains), len(compiled.rules)))
    passes = ParsingPasses(form.arrays, compiled.arrays, binary, unary, words)
    endless = [n for n, x in enumerate(chains) if x == math.inf]
    if endless:
        if passes.expected_counts().unary[endless].any():
            return math.inf
        chains = [0 if x == math.inf else x for x in chains]
    return count_trees(passes, unary=chains)[0]


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
