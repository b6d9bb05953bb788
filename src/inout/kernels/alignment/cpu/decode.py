"""Best paths, the k best, and samples. A path is the numbers of its moves, -1 after the last.

Elements without a path have -1 everywhere. Ties go to the move that comes first, from the end
backwards.
"""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner
from inout.kernels.alignment.cpu import grid as grids
from inout.kernels.alignment.cpu.grid import COLUMNS, FIRST, ROWS, SECOND, SOURCE, STEPS, TARGET
from inout.kernels.math.cpu.draws import next_uniform, stream


@inner
def node_of(i, j, n, m, slope):
    """The number of a node among the cells of an element."""
    s = i + slope * j
    return grids.first_cell(s, n, m, slope) + j - grids.lanes_at(s, n, m, slope)[0]


@inner(forceinline=True)
def weigh(grid, b, s, weights, logs):
    """Log-weights [moves lanes] of all moves at the lanes of a step, from 0 on.

    `logs` [planes lanes] is scratch.
    """
    n, m = grid.sizes[b, 0], grid.sizes[b, 1]
    lo, hi = grids.lanes_at(s, n, m, grid.slope)
    count = hi - lo + 1
    for p in range(grid.offsets.shape[0]):
        flat, offset = grid.planes[p][b], grid.offsets[p]
        grids.read(flat, offset, s, n, m, grid.slope, -np.inf, logs[p, :count])
    for k in range(grid.moves.shape[0]):
        own, first, second = weights[k, :count], grid.moves[k, FIRST], grid.moves[k, SECOND]
        if first < 0:
            grids.fill(0.0, own)
        else:
            grids.assign(logs[first], own)
        if second >= 0:
            grids.increase(logs[second], own)


@inner
def compare(before, weight, number, best, pointers):
    """Takes a move where it is better."""
    for k in range(best.shape[0]):
        score = before[k] + weight[k]
        better = score > best[k]
        best[k] = score if better else best[k]
        pointers[k] = number if better else pointers[k]


@inner
def reverse(path, length):
    """Turns the first moves of a path around, and sets the others to -1."""
    for p in range(length // 2):
        path[p], path[length - 1 - p] = path[length - 1 - p], path[p]
    for p in range(length, path.shape[0]):
        path[p] = -1


@compiled
def viterbi(grid, lo, hi, cells, paths):
    """Fills paths [b steps]."""
    width = grid.sizes[:, 1].max() + 3
    best = np.empty((3, grid.layers, width))
    logs = np.empty((grid.offsets.shape[0], width))
    weights = np.empty((grid.moves.shape[0], width))
    pointers = np.empty((grid.layers, cells), np.int8)
    for b in range(lo, hi):
        n, m = grid.sizes[b, 0], grid.sizes[b, 1]
        steps = n + grid.slope * m
        best[:] = -np.inf
        best[0, 0, 1] = 0.0
        for s in range(1, steps + 1):
            first, last = grids.lanes_at(s, n, m, grid.slope)
            cell = grids.first_cell(s, n, m, grid.slope)
            weigh(grid, b, s, weights, logs)
            best[s % 3] = -np.inf
            lanes = last - first + 1
            for k in range(grid.moves.shape[0]):
                own = grid.moves[k]
                begin = first + 1 - own[COLUMNS]
                compare(
                    best[(s - own[STEPS]) % 3, own[SOURCE], begin : begin + lanes],
                    weights[k, :lanes], np.int8(k),
                    best[s % 3, own[TARGET], first + 1 : last + 2],
                    pointers[own[TARGET], cell : cell + lanes],
                )  # fmt: skip
        layer, top = -1, -np.inf
        for other in grid.last:
            if best[steps % 3, other, m + 1] > top:
                layer, top = other, best[steps % 3, other, m + 1]
        i, j, length = n, m, 0
        while layer >= 0 and i + j > 0:
            own = grid.moves[pointers[layer, node_of(i, j, n, m, grid.slope)]]
            paths[b, length] = pointers[layer, node_of(i, j, n, m, grid.slope)]
            layer, i, j, length = own[SOURCE], i - own[ROWS], j - own[COLUMNS], length + 1
        reverse(paths[b], length)


@inner
def merge(scores, counts, weights, moves, first, end, s, j, heads, found, origins):
    """The k best of the paths that moves first:end bring to a node; how many there are.

    `scores` [3 layers lanes k] and `counts` [3 layers lanes] are those of the nodes before;
    `weights` [moves] those of the moves.
    """
    k = found.shape[0]
    heads[:] = 0
    for rank in range(k):
        winner, top = -1, -np.inf
        for other in range(first, end):
            row, layer = (s - moves[other, STEPS]) % 3, moves[other, SOURCE]
            lane = j - moves[other, COLUMNS]
            if heads[other] < counts[row, layer, lane]:
                score = scores[row, layer, lane, heads[other]] + weights[other]
                if score > top:
                    winner, top = other, score
        if winner < 0:
            return rank
        found[rank] = top
        origins[rank] = heads[winner] * moves.shape[0] + winner
        heads[winner] += 1
    return k


@inner
def best_ends(scores, counts, last, heads, total, ends):
    """The k best of the last nodes: scores in total, and ends [k 2], layer and rank; how many."""
    heads[:] = 0
    for rank in range(total.shape[0]):
        winner, top = -1, -np.inf
        for layer in last:
            if heads[layer] < counts[layer] and scores[layer, heads[layer]] > top:
                winner, top = layer, scores[layer, heads[layer]]
        if winner < 0:
            return rank
        total[rank] = top
        ends[rank, 0], ends[rank, 1] = winner, heads[winner]
        heads[winner] += 1
    return total.shape[0]


@compiled
def kbest(grid, lo, hi, cells, paths, totals):
    """Fills paths [b k steps] and totals [b k], best first; -inf if there are fewer.

    O(k) time and memory for each node.
    """
    lanes, k = grid.sizes[:, 1].max() + 3, paths.shape[1]
    moves = grid.moves
    scores = np.empty((3, grid.layers, lanes, k))
    counts = np.zeros((3, grid.layers, lanes), np.int64)
    weights = np.empty((moves.shape[0], lanes))
    logs = np.empty((grid.offsets.shape[0], lanes))
    origins = np.empty((grid.layers, cells, k), np.int32)
    heads = np.zeros(max(moves.shape[0], grid.layers), np.int64)
    total, ends = np.empty(k), np.empty((k, 2), np.int64)
    for b in range(lo, hi):
        n, m = grid.sizes[b, 0], grid.sizes[b, 1]
        steps = n + grid.slope * m
        counts[:] = 0
        counts[0, 0, 1], scores[0, 0, 1, 0] = 1, 0.0
        for s in range(1, steps + 1):
            first, last = grids.lanes_at(s, n, m, grid.slope)
            cell = grids.first_cell(s, n, m, grid.slope) - first - 1
            weigh(grid, b, s, weights, logs)
            counts[s % 3] = 0
            begin = 0
            for layer in range(grid.layers):
                end = begin
                while end < moves.shape[0] and moves[end, TARGET] == layer:
                    end += 1
                for j in range(first + 1, last + 2):
                    counts[s % 3, layer, j] = merge(
                        scores, counts, weights[:, j - first - 1], moves, begin, end, s, j, heads,
                        scores[s % 3, layer, j], origins[layer, cell + j],
                    )  # fmt: skip
                begin = end
        row = steps % 3
        count = best_ends(
            scores[row, :, m + 1], counts[row, :, m + 1], grid.last, heads, total, ends
        )
        for rank in range(k):
            totals[b, rank] = total[rank] if rank < count else -np.inf
            layer, place = ends[rank, 0], ends[rank, 1]
            i, j, length = n, m, 0
            while rank < count and i + j > 0:
                origin = origins[layer, node_of(i, j, n, m, grid.slope), place]
                own = moves[origin % moves.shape[0]]
                paths[b, rank, length] = origin % moves.shape[0]
                layer, place = own[SOURCE], origin // moves.shape[0]
                i, j, length = i - own[ROWS], j - own[COLUMNS], length + 1
            reverse(paths[b, rank], length)


@inner
def choose(weights, uniform):
    """The first place at which the running total exceeds its share `uniform`; -1 if all are 0."""
    total, place = 0.0, -1
    for k in range(weights.shape[0]):
        total += weights[k]
    target = uniform * total
    for k in range(weights.shape[0]):
        if weights[k] > 0:
            place = k
            target -= weights[k]
            if target < 0:
                break
    return place


@compiled
def sample(grid, lo, hi, seed, ends, shares, paths):
    """Fills paths [b count steps], drawn backwards by the shares.

    Each sample has its own random stream, which depends on the seed and its number only.
    """
    moves, count = grid.moves, paths.shape[1]
    weights = np.empty(moves.shape[0])
    for b in range(lo, hi):
        n, m = grid.sizes[b, 0], grid.sizes[b, 1]
        for number in range(count):
            state, uniform = next_uniform(stream(seed, b * count + number))
            layer = choose(ends[b], uniform)
            i, j, length = n, m, 0
            while layer >= 0 and i + j > 0:
                cell = node_of(i, j, n, m, grid.slope)
                for k in range(moves.shape[0]):
                    weights[k] = shares[b, k, cell] if moves[k, TARGET] == layer else 0.0
                state, uniform = next_uniform(state)
                k = choose(weights, uniform)
                paths[b, number, length] = k
                layer, i, j = moves[k, SOURCE], i - moves[k, ROWS], j - moves[k, COLUMNS]
                length += 1
            reverse(paths[b, number], length)


@compiled
def spread(grid, lo, hi, shares, out):
    """Copies shares [b moves cells] to tables [b moves rows columns] of nodes, 0 elsewhere."""
    for b in range(lo, hi):
        n, m = grid.sizes[b, 0], grid.sizes[b, 1]
        out[b] = 0.0
        for k in range(out.shape[1]):
            for i in range(n + 1):
                for j in range(m + 1):
                    out[b, k, i, j] = shares[b, k, node_of(i, j, n, m, grid.slope)]
