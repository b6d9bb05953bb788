"""Plain evaluations of a forest that share nothing with the library: oracles and peers."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.forest.generator import Edges

# For each derived item, in order: its number and the tails of each of its edges.
Grouped = list[tuple[int, list[list[int]]]]


def group(edges: Edges) -> Grouped:
    """The edges of every derived item, tails before heads."""
    by_head: dict[int, list[list[int]]] = defaultdict(list)
    for e, head in enumerate(edges.heads.tolist()):
        first, last = edges.tail_offsets[e : e + 2]
        by_head[head].append(edges.tails[first:last].tolist())
    return sorted(by_head.items())


def python_inside_outside(edges: Edges, grouped: Grouped) -> tuple[float, list[float]]:
    """log Z and the expected count of every item, by loops over Python's own numbers."""
    inside = [math.exp(w) for w in edges.log_weights.tolist()]
    inside += [0.0] * (edges.num_items - len(inside))
    for head, ways in grouped:
        total = 0.0
        for tails in ways:
            product = 1.0
            for tail in tails:
                product *= inside[tail]
            total += product
        inside[head] = total
    outside = [0.0] * edges.num_items
    outside[-1] = 1.0
    for head, ways in reversed(grouped):
        for tails in ways:
            for place, tail in enumerate(tails):
                product = outside[head]
                for other, sibling in enumerate(tails):
                    if other != place:
                        product *= inside[sibling]
                outside[tail] += product
    z = inside[-1]
    return math.log(z), [a * b / z for a, b in zip(outside, inside, strict=True)]


@dataclass(frozen=True)
class Oracle:
    """Answers about a small forest."""

    log_z: float
    counts: NDArray[np.float64]  # [v], expected
    num_derivations: int
    kbest: NDArray[np.float64]  # log-weights of the k best derivations


def oracle(edges: Edges, k: int) -> Oracle:
    """The answers in extended precision, exact integers, and eager lists of the k best."""
    num_axioms = len(edges.log_weights)
    inside = np.zeros(edges.num_items, dtype=np.longdouble)
    inside[:num_axioms] = np.exp(edges.log_weights.astype(np.longdouble))
    derivations = [1] * num_axioms + [0] * (edges.num_items - num_axioms)
    best = [np.array([w]) for w in edges.log_weights]
    best += [np.empty(0)] * (edges.num_items - num_axioms)
    grouped = group(edges)
    for head, ways in grouped:
        inside[head] = sum(np.prod(inside[tails]) for tails in ways)
        derivations[head] = sum(math.prod(derivations[t] for t in tails) for tails in ways)
        lists = []
        for tails in ways:
            sums = np.zeros(1)
            for tail in tails:
                sums = np.sort((sums[:, None] + best[tail]).ravel())[::-1][:k]
            lists.append(sums)
        best[head] = np.sort(np.concatenate(lists))[::-1][:k]
    outside = np.zeros_like(inside)
    outside[-1] = 1
    for head, ways in reversed(grouped):
        for tails in ways:
            for place, tail in enumerate(tails):
                siblings = tails[:place] + tails[place + 1 :]
                outside[tail] += outside[head] * np.prod(inside[siblings])
    return Oracle(
        float(np.log(inside[-1])),
        (inside * outside / inside[-1]).astype(np.float64),
        derivations[-1],
        best[-1],
    )
