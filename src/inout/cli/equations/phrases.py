"""Derivations as trees to draw: with all their facts, or as a sentence's phrase structure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from inout.forest import Derivation, Forest, Item
from inout.forest.export import as_graph
from inout.viz import Graph, HyperEdge, TreeNode

WORD = "word"  # word(W,I,K) is a word of the sentence from I to K


def phrase_tree(derivation: Derivation) -> TreeNode:
    """The derivation without its facts other than words, as a phrase-structure tree.

    Words are leaves. An item of the form beta(X,I,K) is labelled X if no other relation of the
    tree has that form; a goal without arguments is left out. A derivation without words is
    unchanged.
    """
    labels = derivation.items
    if not any(_is_word(label) for label in labels):
        return derivation.tree()
    num_axioms = derivation.forest.arrays.num_axioms
    nodes = list(zip(derivation.walk(), labels, strict=True))
    spans = {
        label.relation
        for (item, _), label in nodes
        if item >= num_axioms and _is_span(label) and isinstance(label, Item)
    }
    short = len(spans) == 1
    # Children come after their parent in preorder, so fold the nodes from the last one up.
    pending: list[tuple[int, TreeNode]] = []
    for (item, depth), label in reversed(nodes):
        children = []
        while pending and pending[-1][0] == depth + 1:
            children.append(pending.pop()[1])
        if item >= num_axioms:
            name = _first(label) if short and _is_span(label) else str(label)
            pending.append((depth, TreeNode(name, tuple(children))))
        elif _is_word(label):
            pending.append((depth, TreeNode(_first(label), kind="axiom")))
    root = pending[0][1]
    plain_goal = isinstance(nodes[0][1], Item) and not nodes[0][1].arguments
    return root.children[0] if plain_goal and len(root.children) == 1 else root


def phrase_graph(forest: Forest) -> Graph:
    """The likely part of a forest, to draw, without facts other than words.

    beta(X,I,K) is labelled X[I,K] under the same condition as in `phrase_tree`. Words and such
    items stand in the order of the sentence.
    """
    graph = as_graph(forest)
    labels = {node.id: forest.labels[int(node.id)] for node in graph.nodes}
    if not any(_is_word(label) for label in labels.values()):
        return graph
    items = [labels[node.id] for node in graph.nodes if node.kind == "item"]
    short = len({item.relation for item in items if isinstance(item, Item) and _is_span(item)}) == 1
    nodes = []
    for node in graph.nodes:
        label = labels[node.id]
        if node.kind == "axiom" and not _is_word(label):
            continue
        name, place = str(label), None
        match label:
            case Item(arguments=(str(), int(first), int(last))) if short or _is_word(label):
                name, place = f"{_first(label)}[{first},{last}]", (first + last) / 2
        if _is_word(label):
            name = _first(label)
        nodes.append(replace(node, label=name, place=place))
    kept = {node.id for node in nodes}
    edges = [
        HyperEdge(edge.head, tuple(tail for tail in edge.tails if tail in kept), edge.weight)
        for edge in graph.edges
    ]
    goals = [goal for goal in graph.goals if goal in kept]
    if graph.items_in_all == len(graph.nodes) and graph.edges_in_all == len(graph.edges):
        return Graph(nodes, edges, goals)
    return Graph(nodes, edges, goals, graph.items_in_all, graph.edges_in_all)


def _is_word(label: Hashable) -> bool:
    return isinstance(label, Item) and label.relation == WORD and len(label.arguments) == 3


def _is_span(label: Hashable) -> bool:
    """Whether an item is a symbol over two positions."""
    match label:
        case Item(arguments=(str(), int(), int())):
            return True
        case _:
            return False


def _first(label: Hashable) -> str:
    assert isinstance(label, Item)
    return str(label.arguments[0])
