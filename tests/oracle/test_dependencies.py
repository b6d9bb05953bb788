"""Projective dependency trees against Eisner's algorithm as in the textbooks, and the program."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inout import DependencyTree, programs
from tests.seeds import seeds
from tests.support import assert_close

F64 = torch.float64


Spans = dict[tuple[int, int, str], Tensor]


def textbook(arcs: Tensor, root: Tensor, single_root: bool) -> tuple[Tensor, Spans, Spans]:
    """log Z, complete and incomplete spans by Eisner (1996), in log space.

    Several root words: the root is a word before the first. One: it takes one of the heads of the
    whole sentence.
    """
    n = len(root)
    scores = torch.full((n + 1, n + 1), -torch.inf, dtype=F64)
    scores = scores.index_put((torch.tensor(0), torch.arange(1, n + 1)), root)
    rows = torch.arange(1, n + 1)
    scores = scores.index_put((rows[:, None], rows), arcs)
    nothing = torch.zeros((), dtype=F64)
    complete: Spans = {}
    incomplete: Spans = {}
    first = 1 if single_root else 0
    for i in range(n + 1):
        complete[i, i, "right"] = complete[i, i, "left"] = nothing

    def total(terms: list[Tensor]) -> Tensor:
        stacked = torch.stack(terms)
        alive = stacked.detach() > -torch.inf
        return stacked[alive].logsumexp(0) if bool(alive.any()) else nothing - torch.inf

    for width in range(1, n + 1 - first):
        for i in range(first, n + 1 - width):
            j = i + width
            both = total(
                [complete[i, k, "right"] + complete[k + 1, j, "left"] for k in range(i, j)]
            )
            incomplete[i, j, "right"] = both + scores[i, j]
            incomplete[i, j, "left"] = both + scores[j, i]
            complete[i, j, "right"] = total(
                [incomplete[i, k, "right"] + complete[k, j, "right"] for k in range(i + 1, j + 1)]
            )
            complete[i, j, "left"] = total(
                [complete[i, k, "left"] + incomplete[k, j, "left"] for k in range(i, j)]
            )
    if not single_root:
        return complete[0, n, "right"], complete, incomplete
    tops = [complete[1, r, "left"] + complete[r, n, "right"] + root[r - 1] for r in range(1, n + 1)]
    return total(tops), complete, incomplete


def drawn(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*s, generator=generator, dtype=F64) for s in ((n, n), (n,)))


def check(arcs: Tensor, root: Tensor, single_root: bool) -> None:
    inputs = arcs.clone().requires_grad_(), root.clone().requires_grad_()
    truth = textbook(*inputs, single_root)[0]
    log_z = DependencyTree(*inputs, single_root=single_root).log_partition()
    assert_close(log_z, truth)
    if bool(truth > -torch.inf):
        ours, theirs = (grad(x, inputs, materialize_grads=True) for x in (log_z, truth))
        for x, y in zip(ours, theirs, strict=True):
            assert_close(x, y)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 9, 24])
@pytest.mark.few(4)
def test_as_in_the_textbooks(n, single_root):
    for seed in seeds(5):
        arcs, root = drawn(n, seed)
        check(arcs, root, single_root)
        dead = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < 0.4
        check(arcs.masked_fill(dead, -torch.inf), root, single_root)


def test_every_range_of_scores():
    """From scores for which real arithmetic does, through those for which it almost does, on."""
    arcs, root = drawn(24, 7)
    for scale in (3, 30, 45, 50, 55, 57, 57.5, 58, 58.5, 59, 100, 1e4):
        check(scale * arcs, scale * root, True)


def test_a_long_way_from_the_best_heads():
    """The best heads of words form circles; what trees there are weighs exp(-20 n) of them."""
    for n in (8, 20, 30):
        arcs, root = drawn(n, n)
        for word in range(0, n - 1, 2):
            arcs[word, word + 1] += 40
            arcs[word + 1, word] += 40
        check(arcs, root, True)
        check(arcs, root - 600, False)


def test_more_words_than_real_arithmetic_is_for():
    """All trees weigh the same: their number is known."""
    for n in (60, 699, 701):
        log_z = DependencyTree(torch.zeros(n, n, dtype=F64), torch.zeros(n, dtype=F64))
        known = torch.tensor([3 * n - 1, n, 2 * n], dtype=F64).lgamma()
        log_count = known[0] - known[1] - known[2] - torch.tensor(float(n)).double().log()
        assert_close(log_z.log_partition(), log_count, rtol=1e-12)


@pytest.mark.parametrize("single_root", [True, False])
def test_inside_and_outside_values(single_root):
    n = 6
    arcs, root = drawn(n, 11)
    d = DependencyTree(arcs, root, single_root=single_root)
    inside, outside = d.inside(), d.outside()
    log_z, complete, incomplete = textbook(arcs, root, single_root)
    assert_close(inside["goal"], log_z)
    for (i, j, side), truth in complete.items():
        if side == "right" or i > 0:
            assert_close(inside[side][i, j], truth)
    for (i, j, side), truth in incomplete.items():
        h, m = (i, j) if side == "right" else (j, i)
        if m > 0:
            assert_close(inside["arc"][h, m], truth)
    counts = (inside["arc"] + outside["arc"] - log_z).exp()
    assert_close(counts[1:, 1:], d.marginals()["arcs"])
    assert_close(counts[0, 1:], d.marginals()["root"])


@pytest.mark.parametrize("labels", [1, 2])
def test_the_program_gives_the_same(labels):
    n = 5
    generator = torch.Generator().manual_seed(labels)
    arcs = torch.randn(n, n, labels, generator=generator, dtype=F64)
    root = torch.randn(n, labels, generator=generator, dtype=F64)
    facts = {
        "root": {(d + 1, str(s)): root[d, s].item() for d in range(n) for s in range(labels)},
        "arc": {
            (h + 1, d + 1, str(s)): arcs[h, d, s].item()
            for h in range(n)
            for d in range(n)
            for s in range(labels)
            if h != d
        },
        "length": [(n,)],
    }
    forest = programs.projective_dependency.ground(facts)
    trees = DependencyTree(arcs, root, labelled=True)
    assert_close(trees.log_partition(), forest.log_partition())
    counts = forest.expected_counts("arc")
    for (h, d, s), count in zip(facts["arc"], counts, strict=True):
        assert_close(trees.marginals()["arcs"][h - 1, d - 1, int(s)], count)


def test_labels_or_a_batch():
    """Sizes that fit both are a batch, unless one says so."""
    arcs, root = torch.zeros(3, 3, 3), torch.zeros(3, 3)
    assert DependencyTree(arcs, root).batch_shape == (3,)
    assert DependencyTree(arcs, root, labelled=True).batch_shape == ()
    assert DependencyTree(torch.zeros(3, 3, 2), torch.zeros(3, 2)).event_shape == (3, 2)
