"""Dependency trees one by one: the edges of their forest, its best derivations, all trees."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from math import comb

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.distributions.charts import Group, Items
from inout.distributions.trees import split_places, used_rows
from inout.forest import Forest
from inout.forest.labels import BlockLabels
from inout.kernels.dependencies import op

Arc = tuple[int, int]  # head, dependent


def edges(items: BlockLabels, lengths: Sequence[int], single_root: bool) -> list[Group]:
    """The edges of Eisner's algorithm; see `inout.kernels.dependencies.cpu.chart`."""
    numbers = {name: items.numbers(name) for name in items.shapes}
    groups: list[Group] = []
    for e, length in enumerate(lengths):
        if length > 0:
            groups += _edges({name: x[e] for name, x in numbers.items()}, length, single_root)
    return groups


def _edges(own: dict[str, Items], length: int, single_root: bool) -> list[Group]:
    """The edges of one element."""
    gap, arc, right, left = (own[name] for name in ("gap", "arc", "right", "left"))
    axioms = np.concatenate([own["root"][None], own["arcs"]])
    h, d = np.nonzero(~np.eye(length + 1, dtype=bool))
    h, d = h[d > 0], d[d > 0]
    groups: list[Group] = []
    if "link" in own:
        link, labels = own["link"], axioms.shape[-1]
        groups.append((np.repeat(link[h, d], labels), [axioms[h, d - 1].reshape(-1)]))
    else:
        link = np.pad(axioms, ((0, 0), (1, 0)))
    place = np.arange(length + 1)
    groups += [(right[place, place], []), (left[place, place], [])]
    i, k, j = split_places(length + 1)
    first = (i > 0) | (k == 0) | (not single_root)
    groups.append(
        (gap[i, j][first], [right[i, k][first], left[np.minimum(k + 1, length), j][first]])
    )
    groups.append((right[i, j], [arc[i, k + 1], right[k + 1, j]]))
    word = i > 0
    i, k, j = i[word], k[word], j[word]
    groups.append((left[i, j], [left[i, k], arc[j, k]]))
    if "siblings" in own:
        groups += _sibling_edges(own, link, h, d, single_root)
    else:
        groups.append((arc[h, d], [link[h, d], gap[np.minimum(h, d), np.maximum(h, d)]]))
    groups.append((own["goal"].reshape(1), [right[0, length].reshape(1)]))
    return groups


def _sibling_edges(
    own: dict[str, Items], link: Items, heads: Items, words: Items, single_root: bool
) -> list[Group]:
    """The edges of arcs with siblings."""
    gap, arc, right, left = (own[name] for name in ("gap", "arc", "right", "left"))
    last = gap.shape[0] - 1
    ahead = heads < words
    half = np.where(
        ahead, left[np.minimum(heads + 1, last), words], right[words, np.maximum(heads - 1, 0)]
    )
    groups: list[Group] = [(arc[heads, words], [link[heads, words], half])]
    low, high = np.minimum(heads, words), np.maximum(heads, words)
    chosen = [(x, k) for x in range(len(low)) for k in range(low[x] + 1, high[x])]
    x, k = np.array(chosen, np.int64).reshape(-1, 2).T
    h, d = heads[x], words[x]
    gaps = gap[np.minimum(k, d), np.maximum(k, d)]
    w = h > 0
    pair = own["siblings"][h[w] - 1, d[w] - 1, k[w] - 1]
    groups.append((arc[h, d][w], [link[h, d][w], pair, arc[h, k][w], gaps[w]]))
    if not single_root:
        groups.append((arc[h, d][~w], [link[h, d][~w], arc[h, k][~w], gaps[~w]]))
    return groups


def used_heads(
    forest: Forest, k: int, b: int, n: int, s: int
) -> tuple[Int[Tensor, "k b n"], Int[Tensor, "k b n"], Float[Tensor, "k b"]]:
    """Heads, labels and scores of the k best derivations of each goal; -1 and -inf if fewer."""
    heads, labels = np.full((2, k, b, n), -1, np.int64)
    scores = np.full((k, b), -np.inf)
    arcs, roots = b * n * n * s, b * n * s
    for element, found in enumerate(used_rows(forest, k)):
        for rank, (score, rows) in enumerate(found):
            scores[rank, element] = score
            inner, outer = rows[rows < arcs], rows[(rows >= arcs) & (rows < arcs + roots)] - arcs
            word = inner // s % n
            heads[rank, element, word] = inner // (n * s) % n + 1
            labels[rank, element, word] = inner % s
            heads[rank, element, outer // s % n] = 0
            labels[rank, element, outer // s % n] = outer % s
    return torch.from_numpy(heads), torch.from_numpy(labels), torch.from_numpy(scores)


def count_of(n: int, projective: bool, single_root: bool) -> int:
    """The number of trees over n words."""
    if n == 0:
        return 0
    if projective:
        return comb(3 * n - 2, n - 1) // n if single_root else comb(3 * n, n) // (2 * n + 1)
    return int((n if single_root else n + 1) ** (n - 1))


def all_heads(n: int, projective: bool, single_root: bool) -> Int[Tensor, "m n"]:
    """The heads of all trees over n words."""
    if n == 0:
        return torch.empty(0, 0, dtype=torch.long)
    if not projective:
        several = torch.tensor(list(product(range(n + 1), repeat=n)))
        found = op.faults(several, torch.full((len(several),), n))
        return several[(found & (3 if single_root else 1)) == 0]
    if single_root:
        trees = [((0, top), *arcs) for top, arcs in _subtrees(1, n)]
    else:
        trees = list(_sequences(1, n, 0))
    heads = [[head for head, _ in sorted(tree, key=lambda arc: arc[1])] for tree in trees]
    return torch.tensor(heads)


@cache
def _subtrees(i: int, j: int) -> tuple[tuple[int, tuple[Arc, ...]], ...]:
    """All projective trees over words i..j: the top word, and the arcs."""
    return tuple(
        (top, (*before, *after))
        for top in range(i, j + 1)
        for before in _sequences(i, top - 1, top)
        for after in _sequences(top + 1, j, top)
    )


@cache
def _sequences(i: int, j: int, head: int) -> tuple[tuple[Arc, ...], ...]:
    """All ways to divide words i..j into trees below a head that is not among them."""
    if i > j:
        return ((),)
    return tuple(
        ((head, top), *arcs, *rest)
        for k in range(i, j + 1)
        for top, arcs in _subtrees(i, k)
        for rest in _sequences(k + 1, j, head)
    )
