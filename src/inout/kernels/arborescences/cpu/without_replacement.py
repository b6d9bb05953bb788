"""Arborescences as a tree of choices: the head and the label of each word, from the last word on.

The chance of a head, given those of later words, needs one elimination of all words but the one in
question: what is left of the others are the shares of their heads. An arc from i is in a tree with
its own weight times the chance that the way up from i, by these shares, ends at the root and not at
the word, which a substitution in the opposite order gives. Nothing is subtracted. Words whose heads
are known have one share only and cost O(n²), so a choice costs O(m³ + n²) for m words that are
still open.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.arborescences.cpu.sampling import eliminate_word, log_total
from inout.kernels.math.cpu import without_replacement as tree
from inout.kernels.math.cpu.exponential import exp_below


class ArborescenceChoices(NamedTuple):
    """One element, and room. A choice is head * labels + label; the next one is that of a word."""

    potentials: NDArray[np.float64]  # [h n s], more rows and columns than there are words
    scores: NDArray[np.float64]  # [h n], of all labels together
    n: int
    single: bool
    table: NDArray[np.float64]  # [n+1 n]
    ways: NDArray[np.float64]  # [n+1]


@inner
def fill_table(forest, nodes, node, word):
    """Fills the table with the arcs into the words, those of later words being known.

    The word in question stands first, in exchange for word 0.
    """
    n, table = forest.n, forest.table
    for i in range(n + 1):
        for j in range(n):
            table[i, j] = forest.scores[i, j] if j <= word and i != j + 1 else -np.inf
    known = node
    for j in range(word + 1, n):
        # The last choice is that of the word after this one.
        head = nodes.links[known, tree.CHOICE] // forest.potentials.shape[2]
        table[head, j] = forest.scores[head, j]
        known = nodes.links[known, tree.PARENT]
    for j in range(n):
        table[1, j], table[word + 1, j] = table[word + 1, j], table[1, j]
    for i in range(n + 1):
        table[i, 0], table[i, word] = table[i, word], table[i, 0]


@inner
def only_dependent(table, n, k):
    """Makes the word k the only dependent of the root: the log of the weight of its arc.

    It has no other head left, and the root no other dependent then.
    """
    weight = table[0, k]
    for j in range(n):
        table[0, j] = -np.inf
    table[0, k] = weight
    return weight


@inner
def ways_to_root(table, n, single, ways):
    """Fills ways [n+1] with the logs of the chances to get to the root before word 0.

    If the root has one dependent, they are relative to its infinitesimal weights, but for the root
    itself: -inf there if word 0 cannot hang on it. Whether there are trees.
    """
    ways[0] = 0.0
    for k in range(n - 1, 0, -1):
        pivot = log_total(table, 1 if single else 0, k + 1, k)
        if single and pivot == -np.inf:
            pivot, single = only_dependent(table, n, k), False
            ways[0] = -np.inf
        if pivot == -np.inf:
            return False
        eliminate_word(table, k, pivot)
    ways[1] = -np.inf
    for k in range(1, n):
        top = table[0, k]
        for i in range(1, k + 1):
            top = max(top, table[i, k] + ways[i])
        ways[k + 1] = top
        if top > -np.inf:
            total = exp_below(table[0, k] - top)
            for i in range(1, k + 1):
                total += exp_below(table[i, k] + ways[i] - top)
            ways[k + 1] = top + np.log(total)
    return True


@tree.choices.on(ArborescenceChoices)
def _(forest, nodes, node, logits, codes):
    word, labels, count = nodes.links[node, tree.NEXT], forest.potentials.shape[2], 0
    fill_table(forest, nodes, node, word)
    if not ways_to_root(forest.table, forest.n, forest.single, forest.ways):
        return 0
    for i in range(forest.n + 1):
        # The word in question has changed places with word 0.
        way = forest.ways[word + 1] if i == 1 else forest.ways[i]
        if i == word + 1 or way == -np.inf:
            continue
        for label in range(labels):
            logits[count] = forest.potentials[i, word, label] + way
            codes[count] = i * labels + label
            count += 1
    return count


@tree.enter.on(ArborescenceChoices)
def _(forest, nodes, node):
    links, parent = nodes.links, nodes.links[node, tree.PARENT]
    before = forest.n if parent == tree.NOTHING else links[parent, tree.NEXT]
    links[node, tree.NEXT] = before - 1 if before > 0 else tree.NOTHING


@compiled
def search(problem, nodes, search, seed, number):
    """Arborescences of an element; see `search_leaves`."""
    return tree.search_leaves(problem, nodes, search, seed, number)
