"""Samples from a grammar, printed in turn."""

from __future__ import annotations

from itertools import islice

import torch

from inout.cli.formats import json_line
from inout.cli.grammars.forests import tree_node
from inout.cli.paper import Paper, draw
from inout.grammars import Grammar
from inout.grammars.derivations import leaves
from inout.grammars.sampling import check_samplable, iterate_trees
from inout.grammars.treebank.reading import format_tree
from inout.viz.labels import clean


def prepare(grammar: Grammar, normalise: bool) -> Grammar:
    """The grammar to draw from."""
    made = grammar.normalised() if normalise else grammar
    check_samplable(made)
    return made


def print_samples(grammar: Grammar, samples: int, seed: int, shape: str) -> None:
    """Draw and print: words, bracketed trees or JSON, one per line; or drawings."""
    generator = torch.Generator().manual_seed(seed)
    paper = Paper()
    for position, tree in enumerate(islice(iterate_trees(grammar, generator=generator), samples)):
        match shape:
            case "words":
                print(clean(" ".join(leaves(tree))))
            case "bracketed":
                print(format_tree(tree))
            case "json":
                document = {"words": leaves(tree), "tree": format_tree(tree)}
                print(json_line(document))
            case _:
                if position:
                    paper.line()
                paper.line(draw(tree_node(tree), paper.width))
