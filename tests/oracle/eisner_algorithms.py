"""Algorithms 1 to 7 of Eisner (2016), *Inside-Outside and Forward-Backward Algorithms Are Just
Backprop*, transcribed line by line.

The numbers in the comments are the paper's line numbers. Algorithm 7 has the correction listed in
the notes on the paper: its line 13 reads α[A → w_n] += α[A^n], and lines 12-13 stand outside the
loop over j. Rules are tuples, ("A", "B", "C") for A → B C and ("A", "w") for A → w; `G` gives
every rule its weight (0 where it has none) and `N` lists the nonterminals. Nothing is skipped or
vectorised, and nothing is shared with the library.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Table = defaultdict[Any, float]
ROOT = "ROOT"


def zeros() -> Table:
    return defaultdict(float)


@dataclass
class Result:
    """What an algorithm computes; `anchored` are the expected counts of anchored rules."""

    Z: float
    beta: Table
    c: Table = field(default_factory=zeros)  # expected counts of rules
    alpha: Table = field(default_factory=zeros)  # outer weights of anchored nonterminals, rules
    constituents: Table = field(default_factory=zeros)  # c(A_i^k), where the algorithm has it
    anchored: Table = field(default_factory=zeros)


class Grammar:
    """A weighted grammar in Chomsky normal form over given symbols."""

    def __init__(self, weights: Mapping[tuple[str, ...], float], nonterminals: Sequence[str]):
        self.weights, self.N = weights, nonterminals

    def G(self, *rule: str) -> float:
        return self.weights.get(rule, 0.0)

    @property
    def rules(self) -> list[tuple[str, ...]]:
        return list(self.weights)


def inside(grammar: Grammar, w: Sequence[str]) -> tuple[float, Table]:
    """Algorithm 1."""
    G, N, n = grammar.G, grammar.N, len(w)
    beta = zeros()  # 2
    for k in range(1, n + 1):  # 3
        for A in N:  # 4
            beta[A, k - 1, k] += G(A, w[k - 1])  # 5
    for width in range(2, n + 1):  # 6
        for i in range(n - width + 1):  # 7
            k = i + width  # 8
            for j in range(i + 1, k):  # 9
                for A in N:  # 10
                    for B in N:
                        for C in N:
                            beta[A, i, k] += G(A, B, C) * beta[B, i, j] * beta[C, j, k]  # 11
    return beta[ROOT, 0, n], beta  # 12


def inside_outside_2(grammar: Grammar, w: Sequence[str]) -> Result:
    """Algorithm 2: the adjoints of Z."""
    G, N, n = grammar.G, grammar.N, len(w)
    Z, beta = inside(grammar, w)  # 2
    alpha = zeros()  # 3
    alpha[ROOT, 0, n] += 1  # 4
    for width in range(n, 1, -1):  # 5
        for i in range(n - width + 1):  # 6
            k = i + width  # 7
            for j in range(i + 1, k):  # 8
                for A in N:  # 9
                    for B in N:
                        for C in N:
                            a = alpha[A, i, k]
                            alpha["rule", A, B, C] += a * beta[B, i, j] * beta[C, j, k]  # 10
                            alpha[B, i, j] += G(A, B, C) * a * beta[C, j, k]  # 11
                            alpha[C, j, k] += G(A, B, C) * beta[B, i, j] * a  # 12
    for k in range(1, n + 1):  # 13
        for A in N:  # 14
            alpha["rule", A, w[k - 1]] += alpha[A, k - 1, k]  # 15
    result = Result(Z, beta, alpha=alpha)
    for R in grammar.rules:  # 16
        result.c[R] = alpha["rule", *R] * G(*R) / Z  # 17
    return result


def inside_outside_3(grammar: Grammar, w: Sequence[str]) -> Result:
    """Algorithm 3: the adjoints of log Z, in exactly the reverse order of algorithm 1."""
    G, N, n = grammar.G, grammar.N, len(w)
    Z, beta = inside(grammar, w)  # 2
    ratio = zeros()  # 3
    ratio[ROOT, 0, n] += 1 / Z  # 4
    for width in range(n, 1, -1):  # 5
        for i in range(n - width, -1, -1):  # 6
            k = i + width  # 7
            for j in range(k - 1, i, -1):  # 8
                for A in N:  # 9
                    for B in N:
                        for C in N:
                            a = ratio[A, i, k]
                            ratio["rule", A, B, C] += a * beta[B, i, j] * beta[C, j, k]  # 10
                            ratio[B, i, j] += G(A, B, C) * a * beta[C, j, k]  # 11
                            ratio[C, j, k] += G(A, B, C) * beta[B, i, j] * a  # 12
    for k in range(n, 0, -1):  # 13
        for A in N:  # 14
            ratio["rule", A, w[k - 1]] += ratio[A, k - 1, k]  # 15
    result = Result(Z, beta)
    for R in grammar.rules:  # 16
        result.c[R] = ratio["rule", *R] * G(*R)  # 17
    # Section 7.3: the same recovers c(x) = ratio[x] · β[x] for all anchored nonterminals.
    for x, b in list(beta.items()):
        result.constituents[x] = ratio[x] * b
    return result


def inside_outside_4(grammar: Grammar, w: Sequence[str]) -> Result:
    """Algorithm 4: the traditional form, which sums the anchored rules' counts."""
    G, N, n = grammar.G, grammar.N, len(w)
    Z, beta = inside(grammar, w)  # 2
    alpha = zeros()  # 3
    result = Result(Z, beta, alpha=alpha)
    alpha[ROOT, 0, n] += 1  # 4
    for width in range(n, 1, -1):  # 5
        for i in range(n - width + 1):  # 6
            k = i + width  # 7
            for j in range(i + 1, k):  # 8
                for A in N:  # 9
                    for B in N:
                        for C in N:
                            a = alpha[A, i, k]
                            summand = a * G(A, B, C) * beta[B, i, j] * beta[C, j, k] / Z
                            result.c[A, B, C] += summand  # 10, 11
                            result.anchored[A, B, C, i, j, k] = summand  # section 6.2
                            alpha[B, i, j] += G(A, B, C) * a * beta[C, j, k]  # 12
                            alpha[C, j, k] += G(A, B, C) * beta[B, i, j] * a  # 13
    for k in range(1, n + 1):  # 14
        for A in N:  # 15
            summand = alpha[A, k - 1, k] * G(A, w[k - 1]) / Z
            result.c[A, w[k - 1]] += summand  # 16
            result.anchored[A, w[k - 1], k - 1, k] = summand
    return result  # 17


def inside_outside_5(grammar: Grammar, w: Sequence[str]) -> Result:
    """Algorithm 5: hitting probabilities in the forest PCFG of section 7."""
    G, N, n = grammar.G, grammar.N, len(w)
    Z, beta = inside(grammar, w)  # 2
    result = Result(Z, beta)
    hit, anchored, c = result.constituents, result.anchored, result.c  # 3
    hit[ROOT, 0, n] += 1  # 4
    for width in range(n, 1, -1):  # 5
        for i in range(n - width + 1):  # 6
            k = i + width  # 7
            for j in range(i + 1, k):  # 8
                for A in N:  # 9
                    for B in N:
                        for C in N:
                            # Footnote 7: where β is 0 the anchored nonterminal is never hit.
                            share = (
                                G(A, B, C) * beta[B, i, j] * beta[C, j, k] / beta[A, i, k]
                                if beta[A, i, k] > 0
                                else 0.0
                            )  # equation 17
                            anchored[A, B, C, i, j, k] = hit[A, i, k] * share  # 10
                            c[A, B, C] += anchored[A, B, C, i, j, k]  # 11
                            hit[B, i, j] += anchored[A, B, C, i, j, k]  # 12
                            hit[C, j, k] += anchored[A, B, C, i, j, k]  # 13
    for k in range(1, n + 1):  # 14
        for A in N:  # 15
            anchored[A, w[k - 1], k - 1, k] = hit[A, k - 1, k]  # 16
            c[A, w[k - 1]] += anchored[A, w[k - 1], k - 1, k]  # 17
    return result  # 18, 19


class TaggingGrammar:
    """A right-branching grammar: rules (ROOT, A), (A, w, B) and (A, w)."""

    def __init__(
        self,
        starts: Mapping[str, float],
        transitions: Mapping[tuple[str, str, str], float],
        stops: Mapping[tuple[str, str], float],
        nonterminals: Sequence[str],
    ):
        self.starts, self.transitions, self.stops = starts, transitions, stops
        self.N = nonterminals


def backward(grammar: TaggingGrammar, w: Sequence[str]) -> tuple[float, Table]:
    """Algorithm 6."""
    N, n = grammar.N, len(w)
    beta = zeros()  # 2
    for A in N:  # 3
        beta[A, n] += grammar.stops.get((A, w[n - 1]), 0.0)  # 4
    for j in range(n - 1, 0, -1):  # 5
        for A in N:  # 6
            for B in N:
                beta[A, j] += grammar.transitions.get((A, w[j - 1], B), 0.0) * beta[B, j + 1]  # 7
    for A in N:  # 8
        beta[ROOT, 0] += grammar.starts.get(A, 0.0) * beta[A, 1]  # 9
    return beta[ROOT, 0], beta  # 10


def forward_backward(grammar: TaggingGrammar, w: Sequence[str]) -> Result:
    """Algorithm 7, corrected."""
    N, n = grammar.N, len(w)
    Z, beta = backward(grammar, w)  # 2
    alpha = zeros()  # 3
    alpha[ROOT, 0] += 1  # 4
    for A in N:  # 5
        alpha["start", A] += alpha[ROOT, 0] * beta[A, 1]  # 6
        alpha[A, 1] += alpha[ROOT, 0] * grammar.starts.get(A, 0.0)  # 7
    for j in range(1, n):  # 8
        for A in N:  # 9
            for B in N:
                weight = grammar.transitions.get((A, w[j - 1], B), 0.0)
                alpha["rule", A, w[j - 1], B] += alpha[A, j] * beta[B, j + 1]  # 10
                alpha[B, j + 1] += alpha[A, j] * weight  # 11
    for A in N:  # 12, outside the loop over j
        alpha["stop", A, w[n - 1]] += alpha[A, n]  # 13, not the weight of the rule
    result = Result(Z, beta, alpha=alpha)
    for A, weight in grammar.starts.items():  # 14
        result.c["start", A] = alpha["start", A] * weight / Z  # 15
    for rule, weight in grammar.transitions.items():
        result.c["rule", *rule] = alpha["rule", *rule] * weight / Z
    for rule, weight in grammar.stops.items():
        result.c["stop", *rule] = alpha["stop", *rule] * weight / Z
    for x, b in list(beta.items()):
        result.constituents[x] = alpha[x] * b / Z
    return result
