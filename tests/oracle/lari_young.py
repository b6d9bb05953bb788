"""Inside-outside as Prescher (2001) prints it, section 2, after Lari & Young (1990).

e(s, t, A), f(s, t, A) and the counts C_w with words numbered from 1, both ends of a span
included; Chomsky normal form. The outside base case holds for the whole span only: f(1, n, A) is
1 if A = S, else 0, and sums are over the rules there are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

Rule = tuple[str, ...]  # (A, B, C) for A -> B C, (A, a) for A -> a
Probabilities = Mapping[Rule, float]
Chart = dict[tuple[int, int, str], float]
Counts = dict[Rule, float]


def categories(p: Probabilities) -> list[str]:
    """The left sides of the rules."""
    return list(dict.fromkeys(rule[0] for rule in p))


def inside(p: Probabilities, w: Sequence[str]) -> Chart:
    """e(s, t, A) = p(A ⇒* w_s … w_t), narrow spans first."""
    n, e = len(w), Chart()
    for width in range(1, n + 1):
        for s in range(1, n - width + 2):
            t = s + width - 1
            for category in categories(p):
                if s == t:
                    e[s, s, category] = p.get((category, w[s - 1]), 0.0)
                    continue
                total = 0.0
                for rule, probability in p.items():
                    if len(rule) == 3 and rule[0] == category:
                        _, b, c = rule
                        for r in range(s, t):
                            left, right = e.get((s, r, b), 0.0), e.get((r + 1, t, c), 0.0)
                            total += probability * left * right
                e[s, t, category] = total
    return e


def outside(p: Probabilities, e: Chart, n: int, start: str) -> Chart:
    """f(s, t, A) = p(S ⇒* w_1 … w_{s−1} A w_{t+1} … w_n), wide spans first."""
    f = Chart()
    for width in range(n, 0, -1):
        for s in range(1, n - width + 2):
            t = s + width - 1
            for category in categories(p):
                if (s, t) == (1, n):
                    f[s, t, category] = 1.0 if category == start else 0.0
                    continue
                total = 0.0
                for rule, probability in p.items():
                    if len(rule) != 3:
                        continue
                    c = rule[0]
                    if rule[2] == category:  # C -> B A
                        for r in range(1, s):
                            total += f[r, t, c] * probability * e.get((r, s - 1, rule[1]), 0.0)
                    if rule[1] == category:  # C -> A B
                        for r in range(t + 1, n + 1):
                            total += f[s, r, c] * probability * e.get((t + 1, r, rule[2]), 0.0)
                f[s, t, category] = total
    return f


def counts(
    p: Probabilities, w: Sequence[str], start: str
) -> tuple[float, Counts, dict[str, float]]:
    """P, and the counts C_w(r) of rules and C_w(A) of categories, each by its own formula."""
    n = len(w)
    e = inside(p, w)
    probability = e.get((1, n, start), 0.0)
    of_rules: Counts = dict.fromkeys(p, 0.0)
    of_categories: dict[str, float] = dict.fromkeys(categories(p), 0.0)
    if probability == 0.0:
        return 0.0, of_rules, of_categories
    f = outside(p, e, n, start)
    for category in categories(p):
        for s in range(1, n + 1):
            for t in range(s, n + 1):
                of_categories[category] += e[s, t, category] * f[s, t, category] / probability
    for rule in p:
        if len(rule) == 2:
            category, a = rule
            for t in range(1, n + 1):
                if w[t - 1] == a:
                    of_rules[rule] += e[t, t, category] * f[t, t, category] / probability
            continue
        category, b, c = rule
        for s in range(1, n):
            for t in range(s + 1, n + 1):
                for r in range(s, t):
                    both = e.get((s, r, b), 0.0) * e.get((r + 1, t, c), 0.0)
                    of_rules[rule] += p[rule] * both * f[s, t, category] / probability
    return probability, of_rules, of_categories


def lari_young_step(
    p: Probabilities,
    corpus: Sequence[Sequence[str]],
    start: str,
    frequencies: Sequence[float] | None = None,
) -> tuple[Counts, float]:
    """(p̂, log-likelihood under p): Σ_w C_w(r) over Σ_w C_w(A), and unused categories as before."""
    rules: dict[Rule, float] = defaultdict(float)
    above: dict[str, float] = defaultdict(float)
    log_likelihood = 0.0
    for w, often in zip(corpus, frequencies or [1.0] * len(corpus), strict=True):
        probability, of_rules, of_categories = counts(p, w, start)
        if probability == 0.0:
            continue
        log_likelihood += often * math.log(probability)
        for rule, count in of_rules.items():
            rules[rule] += often * count
        for category, count in of_categories.items():
            above[category] += often * count
    new = {rule: rules[rule] / above[rule[0]] if above[rule[0]] else p[rule] for rule in p}
    return new, log_likelihood
