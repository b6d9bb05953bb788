"""Viterbi, k-best and forward-filtering backward-sampling of semi-Markov chains.

Potentials as in `scaled.py`, in log space, with one comparison each. A segmentation is encoded as
labels [n]: a segment's label at its last position, -1 elsewhere, and 0 beyond the element's
length. If nothing is possible, every segment has width 1 and label 0.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled
from inout.kernels.chain.cpu.decode import merge_best
from inout.kernels.math.cpu.draws import add_up_logs, draw, next_uniform, stream


@compiled
def viterbi(potentials, lengths, lo, hi, labels, scores):
    """Fills labels [b n] and scores [b]; ties, from the end: smaller label, width, label before."""
    positions, widths, size = potentials.shape[1:4]
    best = np.empty((positions + 1, size))
    widths_before = np.empty((positions + 1, size), dtype=np.int32)
    labels_before = np.empty((positions + 1, size), dtype=np.int32)
    for b in range(lo, hi):
        best[0] = -np.inf
        best[0, 0] = 0
        for t in range(1, lengths[b] + 1):
            for j in range(size):
                best[t, j] = -np.inf
                widths_before[t, j], labels_before[t, j] = 1, 0
            for d in range(1, min(widths, t) + 1):
                for i in range(size):
                    if best[t - d, i] == -np.inf:
                        continue
                    for j in range(size):
                        score = best[t - d, i] + potentials[b, t - 1, d - 1, i, j]
                        if score > best[t, j]:
                            best[t, j] = score
                            widths_before[t, j], labels_before[t, j] = d, i
        for t in range(positions):
            labels[b, t] = -1 if t < lengths[b] else 0
        t, label = lengths[b], 0
        for j in range(1, size):
            if best[t, j] > best[t, label]:
                label = j
        scores[b] = best[t, label]
        if scores[b] == -np.inf:
            labels[b] = 0
            t = 0
        while t > 0:
            labels[b, t - 1] = label
            width = widths_before[t, label]
            label = labels_before[t, label]
            t -= width


@compiled
def kbest(potentials, lengths, lo, hi, k, labels, scores):
    """Fills labels [k b n] and scores [k b] in decreasing order; -inf if there are fewer.

    The k best ways to end a segment with each label, merged position by position: O(n w s² k).
    Position t is kept at row n - t, so that the positions t - 1, t - 2, ... are rows in order.
    """
    positions, widths, size = potentials.shape[1:4]
    best = np.empty(((positions + 1) * size, k))
    counts = np.zeros((positions + 1) * size, dtype=np.int64)
    origins = np.empty((positions + 1, size, k, 2), dtype=np.int32)
    end, end_origins = np.empty(k), np.empty((k, 2), dtype=np.int32)
    added = np.empty(max(widths, 1) * size)
    for b in range(lo, hi):
        start = positions * size
        counts[start : start + size] = 0
        counts[start], best[start, 0] = 1, 0.0
        for t in range(1, lengths[b] + 1):
            first = (positions - t + 1) * size
            widest = min(widths, t)
            last = first + widest * size
            for j in range(size):
                for d in range(widest):
                    for i in range(size):
                        added[d * size + i] = potentials[b, t - 1, d, i, j]
                counts[first - size + j] = merge_best(
                    best[first:last], counts[first:last], added, k,
                    best[first - size + j], origins[t, j],
                )  # fmt: skip
        added[:] = 0.0
        first = (positions - lengths[b]) * size
        found = merge_best(
            best[first : first + size], counts[first : first + size], added, k, end, end_origins
        )
        for rank in range(k):
            scores[rank, b] = end[rank] if rank < found else -np.inf
            for t in range(positions):
                labels[rank, b, t] = -1 if rank < found and t < lengths[b] else 0
            if rank >= found:
                continue
            t, label, place = lengths[b], end_origins[rank, 0], end_origins[rank, 1]
            while t > 0:
                labels[rank, b, t - 1] = label
                row, place = origins[t, label, place, 0], origins[t, label, place, 1]
                t -= row // size + 1
                label = row % size


@compiled
def sample(log_alphas, potentials, length, seed, first, labels):
    """Fills labels [m n] with samples of one element, drawn backwards from log_alphas [n+1 s].

    Sample i has its own random stream, which depends only on (seed, first + i). Returns whether
    there is anything to sample.
    """
    widths, size = potentials.shape[1], potentials.shape[2]
    weights = np.empty(widths * size)
    for m in range(labels.shape[0]):
        state = stream(seed, first + m)
        for t in range(labels.shape[1]):
            labels[m, t] = -1 if t < length else 0
        t, label = length, -1
        while t > 0:
            # The first draw is the last segment's label, the others (width, label before).
            widest = 0 if label < 0 else min(widths, t)
            rows = max(widest, 1) * size
            if label < 0:
                for j in range(size):
                    weights[j] = log_alphas[t, j]
            for d in range(1, widest + 1):
                for i in range(size):
                    weight = log_alphas[t - d, i]
                    if weight > -np.inf:
                        weight += potentials[t - 1, d - 1, i, label]
                    weights[(d - 1) * size + i] = weight
            if add_up_logs(weights, 0, rows) == 0.0:
                return False
            state, uniform = next_uniform(state)
            row = draw(weights, 0, rows, uniform)
            if label >= 0:
                t -= row // size + 1
            label = row % size
            if t > 0:
                labels[m, t - 1] = label
    return True
