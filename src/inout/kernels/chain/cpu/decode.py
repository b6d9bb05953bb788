"""Viterbi, k-best and forward-filtering backward-sampling of linear chains.

Shapes as in `scaled.py`; in log space, with one comparison per pair of labels. Labels beyond an
element's length are 0.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.chain.cpu.logspace import block_at
from inout.kernels.math.cpu.draws import add_up_logs, draw, next_uniform, stream


@compiled
def viterbi(emissions, transitions, lengths, lo, hi, labels, scores):
    """Fills labels [b n] and scores [b]; ties go to the smaller label, from the end backwards.

    If no labelling is possible the score is -inf and the labels are 0.
    """
    size = emissions.shape[2]
    best, following = np.empty(size), np.empty(size)
    pointers = np.empty((emissions.shape[1], size), dtype=np.int32)
    for b in range(lo, hi):
        for t in range(emissions.shape[1]):
            labels[b, t] = 0
        scores[b] = 0.0
        if lengths[b] == 0:
            continue
        for j in range(size):
            best[j] = emissions[b, 0, j]
        for t in range(1, lengths[b]):
            block = block_at(transitions, b, t)
            for j in range(size):
                following[j] = -np.inf
                pointers[t, j] = 0
            for i in range(size):
                for j in range(size):
                    score = best[i] + block[i, j]
                    if score > following[j]:
                        following[j] = score
                        pointers[t, j] = i
            for j in range(size):
                best[j] = following[j] + emissions[b, t, j]
        label = 0
        for j in range(1, size):
            if best[j] > best[label]:
                label = j
        scores[b] = best[label]
        if scores[b] == -np.inf:
            continue
        for t in range(lengths[b] - 1, -1, -1):
            labels[b, t] = label
            if t > 0:
                label = pointers[t, label]


@inner
def merge_best(scores, counts, added, k, merged, origin):
    """The k best of scores[i, :counts[i]] + added[i] over all i, best first; how many there are.

    Rows are sorted; `origin` [k 2] receives (i, place in row i). Ties: smaller i, then place.
    """
    heads = np.zeros(scores.shape[0], dtype=np.int64)
    found = 0
    while found < k:
        winner, best = -1, -np.inf
        for i in range(scores.shape[0]):
            if heads[i] < counts[i]:
                score = scores[i, heads[i]] + added[i]
                if score > best:
                    winner, best = i, score
        if winner < 0:
            break
        merged[found] = best
        origin[found, 0], origin[found, 1] = winner, heads[winner]
        heads[winner] += 1
        found += 1
    return found


@compiled
def kbest(emissions, transitions, lengths, lo, hi, k, labels, scores):
    """Fills labels [k b n] and scores [k b] in decreasing order; -inf if there are fewer.

    The k best ways to reach each label, merged position by position: O(n s² k).
    """
    length_max, size = emissions.shape[1], emissions.shape[2]
    best = np.empty((2, size, k))
    counts = np.zeros((2, size), dtype=np.int64)
    origins = np.empty((length_max + 1, size, k, 2), dtype=np.int32)
    added, final = np.empty(size), np.empty(k)
    for b in range(lo, hi):
        for rank in range(k):
            scores[rank, b] = -np.inf
            for t in range(length_max):
                labels[rank, b, t] = 0
        if lengths[b] == 0:
            scores[0, b] = 0.0
            continue
        for j in range(size):
            best[0, j, 0] = emissions[b, 0, j]
            counts[0, j] = 1 if emissions[b, 0, j] > -np.inf else 0
        now = 0
        for t in range(1, lengths[b]):
            block = block_at(transitions, b, t)
            for j in range(size):
                for i in range(size):
                    added[i] = block[i, j] + emissions[b, t, j]
                counts[1 - now, j] = merge_best(
                    best[now], counts[now], added, k, best[1 - now, j], origins[t, j]
                )
            now = 1 - now
        added[:] = 0.0
        last = lengths[b]
        found = merge_best(best[now], counts[now], added, k, final, origins[last, 0])
        for rank in range(found):
            scores[rank, b] = final[rank]
            label, place = 0, rank
            for t in range(last, 0, -1):
                label, place = origins[t, label, place, 0], origins[t, label, place, 1]
                labels[rank, b, t - 1] = label


@compiled
def sample(log_alphas, transitions, length, b, seed, first, labels):
    """Fills labels [m n] with samples of element b, drawn backwards from log_alphas [n s].

    Sample i has its own random stream, which depends only on (seed, first + i). Returns whether
    there is anything to sample.
    """
    size = log_alphas.shape[1]
    weights = np.empty(size)
    for i in range(labels.shape[0]):
        state = stream(seed, first + i)
        label = 0
        for t in range(labels.shape[1] - 1, -1, -1):
            labels[i, t] = 0
            if t >= length:
                continue
            for j in range(size):
                weights[j] = log_alphas[t, j]
                if t + 1 < length:
                    weights[j] += block_at(transitions, b, t + 1)[j, label]
            if add_up_logs(weights, 0, size) == 0.0:
                return False
            state, uniform = next_uniform(state)
            label = draw(weights, 0, size, uniform)
            labels[i, t] = label
    return True
