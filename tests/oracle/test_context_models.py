"""Context sets and `ContextChain` against their definitions, and against Markov chains."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import ArgumentError, LinearChain
from inout.contexts import ContextChain, ContextSet
from tests.oracle.reified_contexts import Pattern, enumerated
from tests.support import assert_close

F64 = torch.float64


def sequences(pattern: Pattern, labels: int) -> frozenset[tuple[int, ...]]:
    """What a context stands for: the set itself."""
    each = [range(labels) if x is None else [x] for x in pattern]
    return frozenset(product(*each))


def random_patterns(rng: random.Random, length: int, labels: int) -> list[Pattern]:
    """Contexts with ⋆ anywhere."""
    choices = [*range(labels), None, None]
    return [tuple(rng.choice(choices) for _ in range(length)) for _ in range(rng.randint(0, 4))]


def random_sets(rng: random.Random, n: int, labels: int) -> list[ContextSet]:
    return [ContextSet.closed(random_patterns(rng, i, labels), i) for i in range(1, n)]


def random_scores(rng: random.Random, dead: float = 0.0) -> Any:
    """A table that is filled when it is asked."""
    table: dict[Any, float] = {}

    def score(*key: Any) -> float:
        if key not in table:
            table[key] = -float("inf") if rng.random() < dead else rng.gauss(0, 1)
        return table[key]

    return score


# ---------------------------------------------------------------------------- context sets


def test_closed_sets_are_the_least_that_are_closed() -> None:
    """As sets of sequences: every intersection is there or empty, and nothing can be left out."""
    for seed in range(40):
        rng = random.Random(seed)
        labels, length = rng.randint(2, 3), rng.randint(1, 3)
        given = random_patterns(rng, length, labels)
        found = ContextSet.closed(given, length)
        meant = {sequences(c, labels) for c in found}
        assert sequences((None,) * length, labels) in meant
        for a, b in product(meant, meant):
            assert not a & b or a & b in meant
        # Each one is an intersection of some of those that were given.
        least = {sequences((None,) * length, labels)}
        for own in (sequences(c, labels) for c in given):
            least |= {a & own for a in least if a & own}
        assert meant == least
        assert ContextSet(found.contexts) == found
        assert found.contexts[-1] == (None,) * length


def test_refine_is_the_intersection_of_all_that_contain_it() -> None:
    for seed in range(40):
        rng = random.Random(100 + seed)
        labels, length = rng.randint(2, 3), rng.randint(1, 2)
        before = ContextSet.closed(random_patterns(rng, length, labels), length)
        after = ContextSet.closed(random_patterns(rng, length + 1, labels), length + 1)
        for context, label in product(before, range(labels)):
            step = {(*y, label) for y in sequences(context, labels)}
            around = [sequences(c, labels) for c in after if step <= sequences(c, labels)]
            expected = frozenset.intersection(*around)
            assert sequences(before.refine(context, label, after), labels) == expected


def test_figure_2() -> None:
    """The example of the paper: contexts over a, b, c, d, and where they lead."""
    a, b, c, d = range(4)
    given = [(a, b, c), (None, b, c), (None, None, a), (None, None, c)]
    contexts = ContextSet.closed(given, 3)
    assert contexts.pictures("abcd") == ["⋆⋆a", "abc", "⋆bc", "⋆⋆c", "⋆⋆⋆"]
    assert contexts.smallest((a, b, c)) == (a, b, c)
    assert contexts.smallest((d, b, c)) == (None, b, c)
    assert contexts.smallest((None, d, a)) == (None, None, a)
    assert contexts.smallest((a, b, d)) == (None, None, None)


def test_sets_that_break_a_rule_are_refused_by_name() -> None:
    for contexts, message in (
        ([(0, 1)], "cover all sequences of length 2: ⋆⋆ is missing"),
        ([], "Got no contexts"),
        ([(None,), (None, None)], r"one length. Got \[1, 2\]"),
        ([(None, None), (0, None), (None, 1)], "have 01 in common, which is missing"),
        ([(None,), (-1,)], "at least 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            ContextSet(contexts)
    whole, after = ContextSet([(None,)]), ContextSet([(None, None)])
    with pytest.raises(ArgumentError, match="one of this set"):
        whole.refine((0,), 0, after)
    with pytest.raises(ArgumentError, match=r"length 2\. Got 1"):
        whole.refine((None,), 0, whole)
    with pytest.raises(ArgumentError, match="2 symbols"):
        after.smallest((0,))
    with pytest.raises(ArgumentError, match=r"sets\[0\] must have contexts of length 1. Got 2"):
        ContextChain.from_sets([after], lambda *_: 0.0, labels=2)
    with pytest.raises(ArgumentError, match=r"labels must be in 0\.\.1\. Got 2"):
        ContextChain.from_sets([ContextSet([(None,), (2,)])], lambda *_: 0.0, labels=2)


def test_sets_are_values() -> None:
    one = ContextSet([(None, None), (None, 0)])
    assert one == ContextSet([[None, 0], (None, None), (None, 0)])
    assert hash(one) == hash(ContextSet.closed([(None, 0)], 2))
    assert (None, 0) in one
    assert (0, 0) not in one
    assert len(one) == 2
    assert "⋆0 ⋆⋆" in repr(one)
    assert one.pictures(["left", "right"]) == ["⋆ left", "⋆⋆"]


# ----------------------------------------------------------------- distributions over (y, c)


@pytest.mark.parametrize("dead", [0.0, 0.1])
def test_random_sets_against_all_labellings(dead: float) -> None:
    for seed in range(25):
        rng = random.Random(200 + seed)
        labels, n = rng.randint(1, 3), rng.randint(1, 5)
        sets = random_sets(rng, n, labels)
        score = random_scores(rng, dead)
        truth = enumerated(labels, [s.contexts for s in sets], score)
        chain = ContextChain.from_sets(sets, score, labels=labels)
        assert_close(chain.log_partition(), truth.log_z)
        if truth.log_z == -float("inf"):
            continue
        assert_close(chain.label_marginals(), torch.tensor(truth.marginals, dtype=F64))
        assert_close(chain.entropy(), truth.entropy)
        assert tuple(chain.mode.tolist()) == truth.best
        mass = chain.context_mass()
        before = [ContextSet([()]), *sets]
        for i, contexts in enumerate(before):
            for number in range(mass.shape[1]):
                context = contexts.contexts[number] if number < len(contexts) else "none"
                assert_close(mass[i, number], truth.mass[i].get(context, 0.0))
        sizes = [[*c.sizes, *[99] * (mass.shape[1] - len(c))] for c in before]
        known = [len([x for x in c if x is not None]) * p for m in truth.mass for c, p in m.items()]
        assert_close(chain.mean_context_length(torch.tensor(sizes)), sum(known) / n)
        support = chain.enumerate_support()
        numbers = chain.contexts_of(support).tolist()
        logs = chain.log_prob(support).tolist()
        for y, own, log_prob in zip(support.tolist(), numbers, logs, strict=True):
            used = tuple(s.contexts[k] for s, k in zip(before, own, strict=True))
            assert used == truth.contexts[tuple(y)]
            assert_close(log_prob, truth.labellings[tuple(y)] - truth.log_z)
        order = sorted(truth.labellings.values(), reverse=True)[:4]
        alive = [x - truth.log_z for x in order if x > -float("inf")]
        assert_close(chain.topk(len(alive))[1], torch.tensor(alive, dtype=F64))


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_markov_sets_are_markov_chains(order: int) -> None:
    """With the contexts of an n-th order chain: equal to `LinearChain` over strings of labels."""
    labels, n = 3, 5
    rng = random.Random(order)
    sets = [ContextSet.markov(order, i, labels) for i in range(1, n)]
    assert [len(s) for s in sets] == [1 + labels ** min(order, i) for i in range(1, n)] or not order
    table: dict[Any, Tensor] = {}

    def score(position: int, context: Pattern, label: int) -> Tensor:
        known = tuple(x for x in context if x is not None)
        key = position, known, label
        if key not in table:
            table[key] = torch.tensor(rng.gauss(0, 1), dtype=F64, requires_grad=True)
        return table[key]

    chain = ContextChain.from_sets(sets, score, labels=labels)
    width = max(order, 1)
    states = list(product([*range(labels), -1], repeat=width))  # -1: before the beginning
    start = torch.full((len(states),), -torch.inf, dtype=F64)
    first = [(-1,) * (width - 1) + (y,) for y in range(labels)]
    rows = torch.tensor([states.index(s) for s in first])
    start = start.index_put((rows,), torch.stack([score(0, (), y) for y in range(labels)]))
    transitions = torch.full((n - 1, len(states), len(states)), -torch.inf, dtype=F64)
    places, values = [], []
    reached = set(first)
    for i in range(1, n):
        following = set()
        for state, y in product(reached, range(labels)):
            after = (*state[1:], y)
            known = tuple(x for x in state if x >= 0)[-order:] if order else ()
            places.append((i - 1, states.index(state), states.index(after)))
            values.append(score(i, known, y))
            following.add(after)
        reached = following
    index = torch.tensor(places).unbind(1)
    transitions = transitions.index_put(index, torch.stack(values))
    emissions = torch.zeros(n, len(states), dtype=F64)
    product_chain = LinearChain(emissions, transitions, start)
    last = torch.tensor([state[-1] for state in states])

    assert_close(chain.log_partition(), product_chain.log_partition())
    assert_close(chain.entropy(), product_chain.entropy())
    nodes = product_chain.marginals()["emissions"]
    by_label = torch.stack([nodes[:, last == y].sum(-1) for y in range(labels)], -1)
    assert_close(chain.label_marginals(), by_label)
    ours, theirs = chain.topk(10), product_chain.topk(10)
    assert torch.equal(ours[0], last[theirs[0]])
    assert_close(ours[1], theirs[1])
    assert torch.equal(chain.mode, last[product_chain.mode])
    leaves = list(table.values())
    mine = grad(chain.entropy(), leaves, materialize_grads=True)
    truth = grad(product_chain.entropy(), leaves, materialize_grads=True)
    assert_close(torch.stack(mine), torch.stack(truth))
    # ⋆…⋆ is there for coverage only.
    star = [0, *(s.numbers[(None,) * s.length] for s in sets)]
    mass = chain.context_mass()
    for i in range(1, n):
        assert_close(mass[i, star[i]], 1.0 if order == 0 else 0.0)


def test_nothing_has_probability_zero() -> None:
    """Coverage: with finite scores every labelling is possible, however few contexts there are."""
    rng = random.Random(7)
    for sets in ([ContextSet([(None,) * i]) for i in range(1, 5)], random_sets(rng, 5, 2)):
        chain = ContextChain.from_sets(sets, random_scores(rng), labels=2)
        assert bool(chain.log_prob(chain.enumerate_support()).isfinite().all())
