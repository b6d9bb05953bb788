"""log |Z| of a block graph in plain torch: readable, and differentiable to any order."""

from __future__ import annotations

from collections import defaultdict

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.latent.arrays import BlockGraph, BlockRules


def log_partitions(
    rules: BlockRules, graph: BlockGraph, parameters: Float[Tensor, " p"]
) -> Float[Tensor, " z"]:
    """log |Z| of each tree or sentence [owners]: -inf, with zero gradient, where Z is 0.

    value(v)[h] = Σ over groups and edges of v of block[h, i, j] · value(left)[i] · value(right)[j].
    Each vector is divided by its largest entry, a constant for the gradient, whose logarithm is
    added in the end: this changes no derivative of log |Z|. Entries 10³⁰⁰ times smaller than that
    are lost (not so in `op.py`). The slow twin of `op.py`, m³ for each edge; takes as many steps as
    there are pairs of a height and a rule.
    """
    vectors: dict[int, Tensor] = {}  # of items that can be made
    scales: dict[int, float] = {}  # and the logarithms of what they were divided by
    sizes = rules.sizes[graph.symbols].tolist()
    for item, offset in zip(graph.leaves.tolist(), graph.leaf_offsets.tolist(), strict=True):
        _keep(vectors, scales, item, parameters[offset : offset + sizes[item]], 0.0)
    for groups in _by_height(graph):
        terms: dict[int, list[tuple[Tensor, float]]] = defaultdict(list)
        for rule, edges in groups.items():
            _add_products(rules, parameters, rule, edges, vectors, scales, terms)
        for head, found in terms.items():
            _keep(vectors, scales, head, *_total(found))
    masses: list[list[tuple[Tensor, float]]] = [[] for _ in range(graph.num_owners)]
    roots = zip(
        graph.roots.tolist(), graph.root_offsets.tolist(), graph.owners.tolist(), strict=True
    )
    for root, offset, owner in roots:
        if root in vectors:
            own = parameters[offset : offset + sizes[root]]
            masses[owner].append((own @ vectors[root], scales[root]))
    nothing = parameters[:0].sum() - torch.inf  # with a gradient, of zeros
    return torch.stack([nothing, *(_log(found, nothing) for found in masses)])[1:]


def _by_height(graph: BlockGraph) -> list[dict[int, list[tuple[int, int, int]]]]:
    """The edges (head, left, right) of each rule, for each height of their heads."""
    heights: dict[int, int] = {}
    found: dict[int, dict[int, list[tuple[int, int, int]]]] = {}
    ends, lefts, rights = graph.ends.tolist(), graph.lefts.tolist(), graph.rights.tolist()
    edges: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    # Groups of one item are side by side, behind those that make its children.
    for g, (head, rule) in enumerate(zip(graph.heads.tolist(), graph.rules.tolist(), strict=True)):
        for e in range(ends[g], ends[g + 1]):
            edges[head].append((rule, head, lefts[e], rights[e]))
            below = max(heights.get(lefts[e], 0), heights.get(rights[e], 0))
            heights[head] = max(heights.get(head, 0), 1 + below)
    for head, own in edges.items():
        level = found.setdefault(heights[head], {})
        for rule, *edge in own:
            level.setdefault(rule, []).append((edge[0], edge[1], edge[2]))
    return [found[height] for height in sorted(found)]


def _add_products(
    rules: BlockRules,
    parameters: Tensor,
    rule: int,
    edges: list[tuple[int, int, int]],
    vectors: dict[int, Tensor],
    scales: dict[int, float],
    terms: dict[int, list[tuple[Tensor, float]]],
) -> None:
    """Adds block · left · right of each edge of a rule to the terms of its head."""
    made = [edge for edge in edges if edge[1] in vectors and edge[2] in vectors]
    if not made:
        return
    block = parameters[int(rules.offsets[rule]) : int(rules.offsets[rule + 1])]
    found = torch.einsum(
        "hij,ei,ej->eh",
        block.reshape(rules.sizes[rules.rules[rule]].tolist()),
        torch.stack([vectors[left] for _, left, _ in made]),
        torch.stack([vectors[right] for _, _, right in made]),
    )
    for (head, left, right), product in zip(made, found.unbind(), strict=True):
        terms[head].append((product, scales[left] + scales[right]))


def _total(terms: list[tuple[Tensor, float]]) -> tuple[Tensor, float]:
    """Σ of terms with a logarithm of a scale each, and the logarithm of its own."""
    scales = torch.tensor([scale for _, scale in terms], dtype=torch.float64)
    stacked = torch.stack([x for x, _ in terms])
    # A term that is zero may have derivatives, but no say in the scale.
    some = stacked.detach().flatten(1).ne(0).any(1) if stacked.ndim > 1 else stacked.detach().ne(0)
    largest = (scales[some] if some.any() else scales).max()
    factors = (scales - largest).clamp(max=600.0).exp().to(stacked)
    return torch.tensordot(factors, stacked, 1), float(largest)


def _keep(
    vectors: dict[int, Tensor], scales: dict[int, float], item: int, found: Tensor, scale: float
) -> None:
    """Stores a vector, scaled."""
    largest = found.detach().abs().max()
    if largest == 0:
        vectors[item], scales[item] = found, scale
        return
    root = largest.sqrt()  # in two steps: the reciprocal of a denormal number is infinite
    vectors[item], scales[item] = found / root / root, scale + float(largest.log())


def _log(masses: list[tuple[Tensor, float]], nothing: Tensor) -> Tensor:
    """log |Σ of masses|."""
    if not masses:
        return nothing
    total, scale = _total(masses)
    return nothing if total == 0 else total.abs().log() + scale
