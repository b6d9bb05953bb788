"""Samples of a grammar, printed one after the other."""

from __future__ import annotations

import json
from itertools import islice

import torch

from inout._core.errors import ArgumentError
from inout.cli.grammars.trees import tree_node
from inout.cli.paper import Paper
from inout.cli.trees import draw
from inout.grammars import Grammar
from inout.grammars.sampling import check_samplable, iterate_trees
from inout.grammars.treebank import format_tree, leaves
from inout.viz.labels import clean


def prepare(grammar: Grammar, normalise: bool) -> Grammar:
    """The grammar to draw from; an error says which option helps where it is not one."""
    made = grammar.normalised() if normalise else grammar
    try:
        check_samplable(made)
    except ArgumentError as error:
        text = str(error).replace("grammar.normalised() makes", "--normalise makes")
        raise ArgumentError(text) from None
    return made


def print_samples(grammar: Grammar, samples: int, seed: int | None, shape: str) -> None:
    """Draw and print: words, bracketed trees or JSON a line each, or drawings."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    paper = Paper()
    for position, tree in enumerate(islice(iterate_trees(grammar, generator=generator), samples)):
        match shape:
            case "words":
                print(clean(" ".join(leaves(tree))))
            case "bracketed":
                print(format_tree(tree))
            case "json":
                document = {"words": leaves(tree), "tree": format_tree(tree)}
                print(json.dumps(document, ensure_ascii=False))
            case _:
                if position:
                    paper.line()
                paper.line(draw(tree_node(tree), paper.width))
