"""Answers about sentences as text: drawings for a person, brackets for other programs."""

from __future__ import annotations

import math
from collections import Counter

from rich.text import Text

from inout.cli import formats
from inout.cli.grammars.answers import Answer, Found
from inout.cli.grammars.forests import tree_node
from inout.cli.paper import Paper, draw
from inout.grammars.treebank import format_tree
from inout.viz.labels import clean

NO_TREE = "(())"  # a sentence without a parse, for evaluation
NOT_OF_THE_GRAMMAR = "the best constituents, which are not a tree of the grammar"
NOT_OF_THE_MODEL = "without probability in the model"
# By `LatentParse.source`: how a tree was found, and what is said of all such trees together.
FALLBACKS = {
    "negative": "found by its posteriors anyway, which are ratios",
    "wider": "found with less pruning: the first chart had no tree with positive posteriors",
    "unpruned": "found without pruning: pruned charts had no tree with positive posteriors",
    "skeletal": "found by the skeletal rules: the model had no tree with positive posteriors",
    "steps": "found with unary chains taken apart: the rules of the model derive none",
}
_COUNTED = {
    "negative": "the model's probability was negative (posteriors used anyway)",
    "wider": "parsed with less pruning",
    "unpruned": "parsed without pruning",
    "skeletal": "parsed by the skeletal rules alone",
    "steps": "parsed with unary chains taken apart",
}


def print_drawings(paper: Paper, answer: Answer) -> None:
    """Print the sentence, its numbers, its best trees and its samples."""
    paper.line(Text(clean(" ".join(answer.words)) or "(no words)", style="bold"))
    if answer.reason is not None:
        paper.sentence(f"no tree: {clean(answer.reason)}", "yellow")
        paper.line()
        return
    parts = [" ".join(mass(answer))]
    if answer.count is not None:
        parts.append(f"{trees(answer.count)}")
    if answer.unknown:
        parts.append(f"unknown: {clean(' '.join(answer.unknown))}")
    paper.line(" · ".join(parts), "dim")
    if answer.found_by in FALLBACKS:
        paper.sentence(FALLBACKS[answer.found_by], "yellow")
    paper.line()
    for rank, found in enumerate(answer.trees, 1):
        _print_tree(paper, f"{rank}", found)
    for rank, found in enumerate(answer.samples, 1):
        _print_tree(paper, f"sample {rank}", found)


def _print_tree(paper: Paper, name: str, found: Found) -> None:
    if found.log_prob == -math.inf:
        paper.line(Text.assemble((name, "bold"), (f"  {without_probability(found)}", "dim")))
        paper.line()
    else:
        share = math.exp(min(found.log_prob, 0.0)) if found.sign > 0 else 0.0
        paper.ranked(name, probability(found), share, formats.log(found.log_weight))
    paper.drawing(draw(tree_node(found.tree), paper.width - 3), "--format bracketed has all")
    paper.line()


def fallback_notes(found_by: Counter[str | None], sentences: int) -> list[str]:
    """How often each fallback was used.

    >>> fallback_notes(Counter(latent=297, negative=2, skeletal=1), 300)[1]
    '1 of 300 sentences: parsed by the skeletal rules alone'
    """
    of = f"of {formats.plural(sentences, 'sentence')}"
    return [f"{found_by[by]:,} {of}: {text}" for by, text in _COUNTED.items() if found_by[by]]


def mass(answer: Answer) -> tuple[str, str]:
    """The name of a sentence's log-probability, and its value."""
    value = formats.log(answer.log_partition)
    if answer.found_by is None:
        return "log Z", value
    if answer.sign < 0:
        return "log |p(x)|", f"{value}, p(x) is negative"
    return "log p(x)", value


def probability(found: Found) -> str:
    """The probability of a tree; a spectral model may make it negative."""
    return ("" if found.sign > 0 else "-") + formats.probability(found.log_probability)


def without_probability(found: Found) -> str:
    """A remark on a tree with probability 0."""
    return NOT_OF_THE_GRAMMAR if found.sign else NOT_OF_THE_MODEL


def trees(count: float) -> str:
    """A number of trees, in words.

    >>> trees(1), trees(14), trees(math.inf)
    ('1 tree', '14 trees', 'infinitely many trees')
    """
    if count == math.inf:
        return "infinitely many trees"
    return f"{formats.whole(int(count))} tree{'' if count == 1 else 's'}"


def print_brackets(answer: Answer, several: bool) -> None:
    """Print the best tree on a line, as in treebanks; with several trees, tab-separated fields.

    The fields are the sentence number, the rank (s1, s2, … for samples), the log-probability, and
    the tree.
    """
    if not several:
        print(format_tree(answer.trees[0].tree) if answer.trees else NO_TREE, flush=True)
        return
    ranked = [(str(rank), found) for rank, found in enumerate(answer.trees, 1)]
    ranked += [(f"s{rank}", found) for rank, found in enumerate(answer.samples, 1)]
    if not ranked:
        print(f"{answer.line.number}\t-\t-inf\t{NO_TREE}")
    for rank, found in ranked:
        print(f"{answer.line.number}\t{rank}\t{found.log_prob:.6f}\t{format_tree(found.tree)}")
