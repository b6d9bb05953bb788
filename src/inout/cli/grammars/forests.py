"""Trees of grammars (`nltk.Tree`) as trees to draw, and packed into one graph to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from inout.cli.grammars.answers import Found
from inout.grammars.treebank import rebuild
from inout.viz import Graph, HyperEdge, Node, TreeNode

Key = tuple[str, int, int, bool]  # label or word, span, whether it is a word


def tree_node(tree: Any) -> TreeNode:
    """The same tree to draw, with words as leaves.

    >>> from inout.grammars.treebank import parse_trees
    >>> tree_node(next(parse_trees("(S (VB go))"))).children[0].children[0]
    TreeNode(label='go', note='', kind='axiom')
    """

    def made(node: Any, children: list[Any]) -> list[Any]:
        below = (
            TreeNode(child, kind="axiom") if isinstance(child, str) else child for child in children
        )
        return [TreeNode(node.label(), tuple(below))]

    root: TreeNode = rebuild(tree, made)[0]
    return root


def packed(found: Sequence[Found]) -> Graph | None:
    """The constituents of all trees, each drawn once, with the ways to build them.

    Numbers are sums of the trees' probabilities. None if a constituent contains one with the same
    label and span: they cannot be ordered.

    >>> from inout.grammars.treebank import parse_trees
    >>> trees = parse_trees("(S (A a) (S (A a))) (S (B a) (S (A a)))")
    >>> graph = packed([Found(tree, 0.0, math.log(0.5)) for tree in trees])
    >>> [(node.label, node.weight) for node in graph.nodes]
    [('a', 1.0), ('A[0,1]', 0.5), ('a', 1.0), ('A[1,2]', 1.0), ('S[1,2]', 1.0),
     ('S[0,2]', 1.0), ('B[0,1]', 0.5)]
    """
    nodes: dict[Key, float] = {}
    edges: dict[tuple[Key, tuple[Key, ...]], float] = {}
    levels: dict[Key, int] = {}
    goals: dict[Key, None] = {}
    for one in found:
        probability = math.exp(min(one.log_prob, 0.0))
        parts = _nodes(one.tree)
        for key, tails in parts:
            nodes[key] = nodes.get(key, 0.0) + probability
            if not key[3]:
                edges[key, tails] = edges.get((key, tails), 0.0) + probability
        goals[parts[-1][0]] = None
    # Children come before their parents in every tree, but not in all trees together.
    changed = True
    while changed:
        changed = False
        for head, tails in edges:
            level = 1 + max((levels.get(tail, 0) for tail in tails), default=0)
            if level > len(nodes):
                return None
            if level > levels.get(head, 0):
                levels[head], changed = level, True
    names = {key: str(number) for number, key in enumerate(nodes)}
    return Graph(
        [
            Node(
                names[key],
                key[0] if key[3] else f"{key[0]}[{key[1]},{key[2]}]",
                "axiom" if key[3] else "item",
                weight,
                levels.get(key, 0),
                (key[1] + key[2]) / 2,
            )
            for key, weight in nodes.items()
        ],
        [
            HyperEdge(names[head], tuple(names[tail] for tail in tails), weight)
            for (head, tails), weight in edges.items()
        ],
        [names[goal] for goal in goals],
    )


def _nodes(tree: Any) -> list[tuple[Key, tuple[Key, ...]]]:
    """The nodes of a tree in postorder, each with its children."""
    made: list[tuple[Key, tuple[Key, ...]]] = []
    position = 0
    done: list[Key] = []
    agenda: list[tuple[Any, int, bool]] = [(tree, 0, False)]
    while agenda:
        node, start, ready = agenda.pop()
        if isinstance(node, str):
            key = (node, position, position + 1, True)
            position += 1
            tails: tuple[Key, ...] = ()
        elif not ready:
            agenda.append((node, position, True))
            agenda.extend((child, 0, False) for child in reversed(node))
            continue
        else:
            tails = tuple(done[len(done) - len(node) :])
            del done[len(done) - len(node) :]
            key = (node.label(), start, position, False)
        made.append((key, tails))
        done.append(key)
    return made
