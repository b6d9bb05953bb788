"""Random grammars in Chomsky normal form and sentences drawn from them."""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch

from inout import Grammar
from inout.grammars import Rule, Terminal
from inout.grammars.sampling import iterate_trees
from inout.grammars.treebank import leaves

SYMBOLS = 20
WORDS = 200
TAGS = 20  # words that a symbol may become
BRANCHING = 0.45  # the share of binary rules: below one half, trees are finite


def random_grammar(num_binary: int, *, symbols: int = SYMBOLS, words: int = WORDS) -> Grammar:
    """A proper and consistent PCFG; of two sizes the smaller has some of the larger's rules."""
    random = np.random.default_rng(0)
    cells = random.permutation(symbols**3)
    # One of each left side first, so that no symbol is without.
    cells = np.concatenate([cells[cells // symbols**2 == a][:1] for a in range(symbols)] + [cells])
    _, first = np.unique(cells, return_index=True)
    chosen = cells[np.sort(first)][:num_binary]
    names = [f"N{a}" for a in range(symbols)]
    lefts, rights = chosen // symbols % symbols, chosen % symbols
    heads = chosen // symbols**2
    rules = [
        Rule(names[a], (names[b], names[c]))
        for a, b, c in zip(heads.tolist(), lefts.tolist(), rights.tolist(), strict=True)
    ]
    lexical = np.repeat(np.arange(symbols), min(TAGS, words))
    for a in range(symbols):
        spoken = random.permutation(words)[: min(TAGS, words)]
        rules += [Rule(names[a], (Terminal(f"w{w}"),)) for w in spoken.tolist()]
    mass = np.concatenate([random.exponential(size=symbols**3)[chosen], np.ones(len(lexical))])
    groups = np.concatenate([heads, lexical + symbols])
    mass /= np.bincount(groups, mass)[groups]
    mass *= np.where(groups < symbols, BRANCHING, 1 - BRANCHING)
    return Grammar(names[0], rules, np.log(mass))


def separate_grammar(num_binary: int, *, symbols: int = 60, words: int = 20) -> Grammar:
    """A grammar in which no two rules have the same right side and every span all symbols.

    So that the work is in proportion to the rules: otherwise rules with the same right side share
    work, and more rules make more spans possible.
    """
    random = np.random.default_rng(0)
    names = [f"N{a}" for a in range(symbols)]
    rules = [
        Rule(names[n % symbols], (names[pair // symbols], names[pair % symbols]))
        for n, pair in enumerate(random.permutation(symbols**2)[:num_binary].tolist())
    ]
    rules += [Rule(name, (Terminal(f"w{w}"),)) for name in names for w in range(words)]
    return rough(Grammar(names[0], rules))


def random_sentences(count: int, length: int, words: int = 20) -> list[list[str]]:
    """Words in any order, for a grammar that has trees for all."""
    drawn = np.random.default_rng(0).integers(words, size=(count, length)).tolist()
    return [[f"w{w}" for w in row] for row in drawn]


def sentences(grammar: Grammar, count: int, shortest: int, longest: int) -> list[list[str]]:
    """Sentences of the grammar of some lengths."""
    trees = iterate_trees(grammar, generator=torch.Generator().manual_seed(0))
    fitting = (s for s in map(leaves, trees) if shortest <= len(s) <= longest)
    return list(islice(fitting, count))


def rough(grammar: Grammar) -> Grammar:
    """The same rules with other weights, to learn from."""
    random = np.random.default_rng(1)
    mass = random.exponential(size=len(grammar))
    groups = grammar.distributions
    return grammar.with_log_weights(np.log(mass / np.bincount(groups, mass)[groups]))
