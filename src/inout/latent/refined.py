"""A latent-variable grammar of probabilities as an ordinary grammar, one symbol for each value."""

from __future__ import annotations

import numpy as np

from inout._core.errors import ArgumentError
from inout.grammars.grammar import Grammar
from inout.grammars.table import Rule, Terminal
from inout.latent.model import LPCFG


def refined_grammar(model: LPCFG, start: str = "TOP") -> Grammar:
    """The grammar with the rules start → a_h, a_h → b_i c_j and a_h → x of positive weight.

    A nonterminal with a single value keeps its name. A tree of the model has the sum of the
    weights of its refined trees. Negative parameters raise ArgumentError.

    >>> from inout.latent.layout import Layout
    >>> from inout.latent.skeleton import Skeleton
    >>> skeleton = Skeleton.of([("S", "A", "A")], [("A", "x")])
    >>> model = LPCFG(Layout(skeleton, [1, 2]), np.array([1, 0, 0, 0.5, 1, 0, 1, 0, 0], float))
    >>> print(refined_grammar(model).to_text("nltk"), end="")
    %start TOP
    TOP -> S [1]
    A_0 -> 'x' [0.5]
    A_1 -> 'x' [1]
    S -> A_0 A_1 [1]
    """
    model.refuse_negative("to be an ordinary grammar")
    if start in model.skeleton.nonterminals:
        raise ArgumentError("start", f"must not be a nonterminal of the model. Got {start!r}")
    layout, skeleton = model.layout, model.skeleton
    names = [
        [name] if size == 1 else [f"{name}_{h}" for h in range(size)]
        for name, size in zip(skeleton.nonterminals, layout.sizes.tolist(), strict=True)
    ]
    every = [start, *(name for group in names for name in group)]
    if len(set(every)) < len(every):
        name = next(name for name in every if every.count(name) > 1)
        wanted = ": the refined symbols must have different names"
        raise ArgumentError("model", f"{wanted}. Got {name} twice")
    parameters, rules = model.parameters, list[Rule]()
    for a, group in enumerate(names):
        for (h,) in np.argwhere(layout.root(parameters, a) > 0).tolist():
            rules.append(Rule(start, (group[h],)))
    for number, (a, x) in enumerate(skeleton.lexical.tolist()):
        for (h,) in np.argwhere(layout.lexical(parameters, number) > 0).tolist():
            rules.append(Rule(names[a][h], (Terminal(skeleton.words[x]),)))
    for number, (a, b, c) in enumerate(skeleton.binary.tolist()):
        for h, i, j in np.argwhere(layout.block(parameters, number) > 0).tolist():
            rules.append(Rule(names[a][h], (names[b][i], names[c][j])))
    return Grammar(start, rules, np.log(parameters[parameters > 0]))
