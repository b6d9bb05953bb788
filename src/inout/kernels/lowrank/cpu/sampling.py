"""Top-down sampling of trees, and backward sampling of labels, from factored models.

The latent value of a rule or a transition is drawn with the rest and dropped: what remains has the
probabilities of the sums over it. Everything is in float64, as logarithms.
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.lowrank.cpu.chain import block_at
from inout.kernels.lowrank.cpu.grammar import own
from inout.kernels.math.cpu.draws import add_up_logs, draw, next_uniform, stream
from inout.kernels.math.cpu.stack import push_children
from inout.kernels.pcfg.cpu.decode import push_root


@inner
def draw_split(head, chart, i, j, a, target):
    """(k, latent value) below symbol a over i..j where the cumulated probability passes target."""
    betas, lefts, rights = chart
    first, last = 0, lefts.shape[2]
    if head.shape[0] == 0:  # the latent value is the head
        first, last = a, a + 1
    passed, choice = 0.0, (-1, -1)
    for k in range(i, j):
        for r in range(first, last):
            rule = head[a, r] if head.shape[0] > 0 else 0.0
            log_share = rule + lefts[i, k, r] + rights[k + 1, j, r] - betas[i, j, a]
            if log_share > -np.inf:
                choice = (k, r)
                passed += math.exp(log_share)
                if passed > target:
                    return choice
    return choice  # the last possible one, where rounding left the sum below 1


@inner
def draw_symbol(child, betas, words, i, j, shares, uniform):
    """A symbol over i..j given its latent value, whose weights are child [s]."""
    nt, s = betas.shape[2], child.shape[0]
    first, last = (nt, s) if i == j else (0, nt)
    for a in range(first, last):
        shares[a] = child[a] + (words[i, a - nt] if i == j else betas[i, j, a])
    add_up_logs(shares, first, last)
    return draw(shares, first, last, uniform)


@compiled
def sample_trees(given, log_chart, lengths, log_z, lo, hi, seed, events):
    """Fills events [b m n n] with samples, given the potentials and their log chart.

    Sample i of element e has its own random stream, which depends only on (seed, e m + i).
    O(n (n r + s)) for a sample.
    """
    root, heads, lefts, rights, words = given
    n, count = words.shape[1], events.shape[1]
    stack, shares = np.empty((n + 1, 3), np.int64), np.empty(lefts.shape[2])
    for b in range(lo, hi):
        head, left, right = (
            heads[own(heads, b)], lefts[own(lefts, b)], rights[own(rights, b)],
        )  # fmt: skip
        chart = (log_chart.betas[b], log_chart.lefts[b], log_chart.rights[b])
        length, betas = lengths[b], log_chart.betas[b]
        events[b] = -1
        if length < 2 or log_z[b] == -np.inf:
            continue
        for m in range(count):
            state = stream(seed, b * count + m)
            state, uniform = next_uniform(state)
            depth = push_root(stack, root[b], betas[0, length - 1], length, shares, uniform)
            while depth > 0:
                depth -= 1
                i, j, a = stack[depth]
                events[b, m, i, j] = a
                if i < j:
                    state, uniform = next_uniform(state)
                    k, r = draw_split(head, chart, i, j, a, uniform)
                    state, uniform = next_uniform(state)
                    p = draw_symbol(left[r], betas, words[b], i, k, shares, uniform)
                    state, uniform = next_uniform(state)
                    q = draw_symbol(right[r], betas, words[b], k + 1, j, shares, uniform)
                    depth = push_children(stack, depth, i, k, j, p, q)


@inner
def draw_before(logs, more, stride, shares, uniform):
    """A place by exp(logs[x] + more[x, stride])."""
    for x in range(logs.shape[0]):
        shares[x] = logs[x] + more[x, stride]
    add_up_logs(shares, 0, logs.shape[0])
    return draw(shares, 0, logs.shape[0], uniform)


@compiled
def sample_labels(given, log_chart, lengths, log_z, lo, hi, seed, labels):
    """Fills labels [m b n] with samples, given the potentials and their log chart; from the end.

    Sample i of element e has its own random stream, which depends only on (seed, e m + i).
    O(n (s + r)) for a sample.
    """
    count, n, size = labels.shape[0], labels.shape[2], given.nodes.shape[2]
    shares = np.empty(max(size, given.source.shape[3]))
    for b in range(lo, hi):
        last = lengths[b] - 1
        for m in range(count):
            for t in range(n):
                labels[m, b, t] = -1
            if last < 0 or log_z[b] == -np.inf:
                continue
            state = stream(seed, b * count + m)
            for x in range(size):
                shares[x] = log_chart.alphas[b, last, x]
            add_up_logs(shares, 0, size)
            state, uniform = next_uniform(state)
            label = draw(shares, 0, size, uniform)
            labels[m, b, last] = label
            for t in range(last, 0, -1):
                target, source = block_at(given.target, b, t), block_at(given.source, b, t)
                state, uniform = next_uniform(state)
                r = draw_before(log_chart.latent[b, t], target, label, shares, uniform)
                state, uniform = next_uniform(state)
                label = draw_before(log_chart.alphas[b, t - 1], source, r, shares, uniform)
                labels[m, b, t - 1] = label
