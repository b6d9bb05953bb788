"""k-best trees of grammars against all trees, at random sizes, lengths, masks, ties and ranges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inout.distributions.pcfg import PCFG
from inout.kernels.pcfg import op
from tests.contract.tree_suite import catalan
from tests.seeds import seeds
from tests.support import assert_close

INF = torch.inf


def ties(x: Tensor, g: torch.Generator) -> Tensor:
    return torch.randint(-2, 3, x.shape, generator=g).to(x)


def masks(x: Tensor, g: torch.Generator) -> Tensor:
    return x.masked_fill(torch.rand(x.shape, generator=g) < 0.4, -INF)


def nevers(x: Tensor, g: torch.Generator) -> Tensor:
    return masks(x, g).masked_fill(torch.rand(x.shape, generator=g) < 0.4, -1e4)


def extremes(x: Tensor, g: torch.Generator) -> Tensor:
    x = x.masked_fill(torch.rand(x.shape, generator=g) < 0.3, 1e4)
    return x.masked_fill(torch.rand(x.shape, generator=g) < 0.3, -1e4)


def unchanged(x: Tensor, g: torch.Generator) -> Tensor:
    return x


def random_grammar(seed: int, change) -> PCFG:
    """One to three elements with as many words as leave at most 5000 trees."""
    g = torch.Generator().manual_seed(seed)
    nt, pt, b, own = (int(torch.randint(1, 4, (), generator=g)) for _ in range(4))
    n = 5
    while catalan(n - 1) * nt ** (n - 1) * pt**n > 5000:
        n -= 1
    each = (b,) if own == 1 else ()
    shapes = ((*each, nt), (*each, nt, nt + pt, nt + pt), (b, n, pt))
    given = [torch.randn(x, generator=g, dtype=torch.float64) for x in shapes]
    lengths = torch.randint(1, n + 1, (b,), generator=g)
    lengths[0] = n
    return PCFG(*(change(x, g) for x in given), lengths=lengths)


@pytest.mark.parametrize("change", [unchanged, ties, masks, nevers, extremes])
@pytest.mark.parametrize("k", [1, 7, 60])
@pytest.mark.few(5)
def test_k_best_are_the_first_of_all_trees(change, k):
    for seed in seeds(8):
        grammar = random_grammar(seed, change)
        root, rules, words, lengths = grammar._flat(grammar.potentials)
        events, scores = op.k_best_trees(root, rules, words, lengths, k)
        assert torch.equal(grammar.mode, events[0])
        for e, length in enumerate(lengths.tolist()):
            alone = PCFG(root[e], rules[e if len(rules) > 1 else 0], words[e, :length])
            truth = alone._score(alone.enumerate_support()).sort(descending=True).values
            truth = truth[truth > -INF][:k]
            found = len(truth)
            assert int((scores[:, e] > -INF).sum()) == found
            assert_close(scores[:found, e], truth)
            assert bool((scores[:found, e].diff() <= 0).all())
            trees = events[:found, e, :length, :length]
            if found:
                assert_close(alone._score(trees), truth)
                assert len(torch.unique(trees.flatten(1), dim=0)) == found
            assert int((events[:, e] >= 0).sum()) == found * (2 * length - 1)


def test_ties_go_to_the_first_split_then_to_smaller_symbols():
    grammar = PCFG(torch.zeros(3), torch.zeros(3, 5, 5), torch.zeros(6, 2))
    mode = torch.full((6, 6), -1)
    for i in range(6):
        mode[i, i], mode[i, 5] = 3, 0
    mode[5, 5] = 3
    assert torch.equal(grammar.mode, mode)


def test_the_order_of_ties_does_not_depend_on_k():
    grammar = PCFG(torch.zeros(2), torch.zeros(2, 4, 4), torch.zeros(5, 2))
    trees, scores = grammar.topk(400)
    assert (scores == scores[0]).all()
    for k in (2, 7, 150):
        assert torch.equal(grammar.topk(k)[0], trees[:k])
    # By the top's symbol, its split and its children's symbols.
    tops = [
        (tree[0][4], k, tree[0][k], tree[k + 1][4])
        for tree in trees.tolist()
        for k in range(4)
        if tree[0][k] >= 0 and tree[k + 1][4] >= 0
    ]
    assert len(tops) == 400
    assert tops == sorted(tops)


def test_sizes_that_are_no_multiples_of_anything():
    """Against the forest, at sizes around the multiples of 4 that the kernel pads to."""
    g = torch.Generator().manual_seed(1)
    for nt in (1, 3, 4, 5, 8, 9):
        for n, pt in ((2, 1), (3, 5), (7, 4), (8, 6), (13, 3)):
            shapes = ((nt,), (nt, nt + pt, nt + pt), (n, pt))
            grammar = PCFG(*(torch.randn(x, generator=g, dtype=torch.float64) for x in shapes))
            _, scores = op.k_best_trees(*grammar._flat(grammar.potentials), 20)
            best = [tree.log_weight for tree in grammar.forest().kbest(20)]
            best += [-INF] * (20 - len(best))
            assert_close(scores[:, 0], torch.tensor(best, dtype=torch.float64))
            assert_close(grammar._score(grammar.mode), scores[0, 0])
