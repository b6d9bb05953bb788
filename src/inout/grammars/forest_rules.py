"""The derivations of a forest as the rules of a probabilistic grammar."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inout._core.errors import ForestError
from inout.forest import Forest
from inout.grammars.table import Rule, Terminal
from inout.semirings import Log


def forest_rules(forest: Forest) -> tuple[str, list[Rule], Float[Tensor, " r"]]:
    """(start symbol, rules, log-probabilities); see `Grammar.from_forest`."""
    arrays = forest.arrays
    if len(arrays.goals) != 1:
        raise ForestError(f"a grammar needs a forest with one goal. Got {len(arrays.goals)}")
    goal, inside = int(arrays.goals[0]), forest.inside()
    if inside[goal] == -torch.inf:
        raise ForestError("a grammar needs a forest with a derivation. Got an empty one")
    names = _names(forest)
    if goal < arrays.num_axioms:  # a derivation without edges
        return names[goal], [Rule(names[goal], (Terminal(names[goal]),))], inside.new_zeros(1)
    # The probability of an edge given its head, in logs, so that none underflows.
    tails = torch.from_numpy(arrays.tails).long().to(inside.device)
    edges = np.repeat(np.arange(arrays.num_edges), np.diff(arrays.tail_offsets))
    owners, heads = (torch.from_numpy(x).long().to(tails.device) for x in (edges, arrays.heads))
    products = inside.new_zeros(arrays.num_edges).index_add(0, owners, inside[tails])
    possible = products > -torch.inf
    logs = torch.where(possible, products - inside[heads], -torch.inf)
    symbols = [Terminal(n) if i < arrays.num_axioms else n for i, n in enumerate(names)]
    numbers: dict[Rule, int] = {}
    places = []
    for edge in possible.nonzero()[:, 0].tolist():
        below = arrays.tails[arrays.tail_offsets[edge] : arrays.tail_offsets[edge + 1]].tolist()
        rule = Rule(names[int(arrays.heads[edge])], tuple(symbols[tail] for tail in below))
        places.append(numbers.setdefault(rule, len(numbers)))
    log = Log(dtype=logs.dtype, device=logs.device)
    sums = log.sum(logs[possible], torch.tensor(places, device=logs.device), len(numbers))
    return names[goal], list(numbers), sums


def _names(forest: Forest) -> list[str]:
    """The items' labels as text; the number of the item is added where two are the same."""
    labels = [str(label) for label in forest.labels]
    shared = {name for name, count in Counter(labels).items() if count > 1}
    return [f"{name}#{i}" if name in shared else name for i, name in enumerate(labels)]
