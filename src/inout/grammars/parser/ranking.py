"""The k best derivations, also where chains of unary rules have many ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout.grammars.parser.problem import Problem
from inout.grammars.parser.restoring import Restored, restored
from inout.grammars.transforms.pieces import Piece
from inout.kernels.sparse.arrays import RuleArrays
from inout.kernels.sparse.cpu.passes import ParsingPasses
from inout.kernels.sparse.kbest import kbest as kernel_kbest

_FIRST = 3  # ways of a chain to begin with
_GROWTH = 4


def kbest(problem: Problem, k: int) -> list[Restored]:
    """The k best derivations of the sentence, or all if there are fewer, in order.

    A chain A ⇒⁺ B stands for all its ways; for k trees, its k best ways count as so many rules.
    Few are ever needed: a tree with the w-th best way of a chain has w − 1 better trees. So a few
    ways are given to the kernel, and more to those chains of which one of the k best trees uses
    the last. When none does, no other way could have made a better tree.
    """
    count = len(problem.form.closure.pairs)
    limits = np.full(count, min(_FIRST, k))
    while True:
        ways = [_ways(problem, pair, int(limit)) for pair, limit in enumerate(limits)]
        chains = np.repeat(np.arange(count), [len(found) for found in ways])
        found = kernel_kbest(_with_ways(problem, chains, ways), k)[0]
        flat = [piece for pair in ways for _, piece in pair]
        firsts = np.searchsorted(chains, np.arange(count))
        wanted = set()
        for nodes in found.nodes:
            for way in nodes[nodes[:, 3] >= 0, 3].tolist():
                pair = int(chains[way])
                if way - firsts[pair] + 1 == limits[pair] < k:
                    wanted.add(pair)
        if not wanted:
            break
        for pair in wanted:
            limits[pair] = min(limits[pair] * _GROWTH, k)

    def rule(cell: int, number: int) -> Piece:
        return problem.setting(cell).pieces.best(number)

    def chain(cell: int, number: int) -> Piece:
        if problem.is_uniform:
            return flat[number]
        pair = int(chains[number])
        rank = number - int(firsts[pair])
        return problem.setting(cell).chains.ranked(pair, int(limits[pair]))[rank][1]

    return [restored(problem.form, problem.compiled, x, rule, chain) for x in found.nodes]


def _ways(problem: Problem, pair: int, limit: int) -> list[tuple[float, Piece]]:
    """The best ways of a chain; over several settings, as many as the richest has."""
    if problem.is_uniform:
        return problem.shared.chains.ranked(pair, limit)
    settings = (problem.setting(cell) for cell in _spans(problem))
    return max((x.chains.ranked(pair, limit) for x in settings), key=len)


def _spans(problem: Problem) -> list[int]:
    """The cells that are spans."""
    n = problem.n
    return [i * n + j for i in range(n) for j in range(i, n)]


def _with_ways(
    problem: Problem, chains: NDArray[Any], ways: list[list[tuple[float, Piece]]]
) -> ParsingPasses:
    """The passes with a unary rule for each way of each chain."""
    arrays, passes = problem.form.arrays, problem.best_passes
    pairs = problem.form.closure.pairs[chains]
    binary, _, entries = (x.numpy() for x in problem.potentials(problem.best))
    rules = _unary_replaced(arrays, pairs)
    if problem.is_uniform:
        weights = np.array([log for found in ways for log, _ in found])
    else:
        weights = np.full((problem.n**2, len(chains)), -np.inf)
        firsts = np.searchsorted(chains, np.arange(len(ways)))
        for cell in _spans(problem):
            for pair, found in enumerate(ways):
                ranked = problem.setting(cell).chains.ranked(pair, len(found))
                for rank, (log, _) in enumerate(ranked):
                    weights[cell, firsts[pair] + rank] = log
    return ParsingPasses(rules, passes.sentences, binary, weights, entries)


def _unary_replaced(arrays: RuleArrays, pairs: NDArray[Any]) -> RuleArrays:
    """The same binary rules with these unary rules [u 2]."""
    heads, children = (np.ascontiguousarray(x, np.int32) for x in pairs.T)
    return replace(arrays, grammar=arrays.grammar._replace(unary_head=heads, unary_child=children))
