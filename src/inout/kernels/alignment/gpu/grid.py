"""Paths through any lattice on a GPU: one Triton program for each batch element.

As on the CPU, nodes are done step by step; the forward pass leaves the share of each move in the
node that it leads to, and the backward pass divides the chances of nodes among the nodes before by
these shares. What each entry of a plane gets is added up for all nodes at once. Shares and chances
are stored by step and lane, so that what is read together lies together.

A program goes through blocks of lanes, and its nodes are in memory that its threads share: a
barrier between steps makes them visible. Numbers have exponents of their own (`arithmetic.py`).

p_ are pointers, b_ blocks in registers, o_ offsets, m_ masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.alignment.gpu.arithmetic import (
    MINUS_INF,
    brought_together,
    exponential,
    finite,
    logarithm,
    power,
    settled,
)
from inout.kernels.alignment.lattice import Lattice

# What is known of a move when kernels are compiled.
SOURCE, TARGET, STEPS, ROWS, COLUMNS, FIRST, SECOND = (tl.constexpr(k) for k in range(7))


Shapes = Sequence[tuple[int, int]]


class Forward(NamedTuple):
    """What the forward pass leaves."""

    log_z: Tensor  # [b], in double precision
    ends: Tensor  # [b layers], the chances of the last layers
    shares: Tensor  # [b moves cells], or [b moves 0]


@triton.jit
def read(
    planes, strides, PLANE: tl.constexpr, OFFSETS: tl.constexpr, b, o_i, o_j, n, m, m_j, missing
):  # fmt: skip
    """What nodes (i, j) read in a plane, `missing` where there is nothing."""
    row, column = o_i - OFFSETS[PLANE][0], o_j - OFFSETS[PLANE][1]
    real = (row >= 0) & (row < n + OFFSETS[PLANE][2])
    real = real & (column >= 0) & (column < m + OFFSETS[PLANE][3]) & m_j
    own = strides[PLANE]
    place = b * own[0] + row * own[1] + column * own[2]
    return tl.load(planes[PLANE] + place, mask=real, other=missing)


@triton.jit
def entries(planes, strides, PLANE: tl.constexpr, OFFSETS: tl.constexpr, b, o_i, o_j, n, m, m_j):
    """The same as numbers, 0 for nothing."""
    return exponential(read(planes, strides, PLANE, OFFSETS, b, o_i, o_j, n, m, m_j, float("-inf")))


@triton.jit
def lanes_at(s, n, m, SLOPE: tl.constexpr):
    """The first and the last lane of a step."""
    return tl.maximum(0, s - n) * SLOPE, tl.where(SLOPE == 1, tl.minimum(m, s), m)


@triton.jit
def term(
    planes, strides, p_nodes, MOVES: tl.constexpr, K: tl.constexpr, OFFSETS: tl.constexpr,
    LAYERS: tl.constexpr, b, s, o_j, o_i, n, m, m_j, lanes,
):  # fmt: skip
    """A move's source times its weights, for the lanes of step s."""
    m_source = m_j & (o_i >= MOVES[K][ROWS]) & (o_j >= MOVES[K][COLUMNS])
    row = ((s - MOVES[K][STEPS] + 3) % 3) * LAYERS + MOVES[K][SOURCE]
    p_node = p_nodes + row * 2 * lanes + o_j - MOVES[K][COLUMNS]
    b_m = tl.load(p_node, mask=m_source, other=0.0)
    b_e = tl.load(p_node + lanes, mask=m_source, other=MINUS_INF)
    if MOVES[K][FIRST] >= 0:
        own_m, own_e = entries(planes, strides, MOVES[K][FIRST], OFFSETS, b, o_i, o_j, n, m, m_j)
        b_m, b_e = settled(b_m * own_m, b_e + own_e)
    if MOVES[K][SECOND] >= 0:
        own_m, own_e = entries(planes, strides, MOVES[K][SECOND], OFFSETS, b, o_i, o_j, n, m, m_j)
        b_m, b_e = settled(b_m * own_m, b_e + own_e)
    return b_m, b_e


@triton.jit
def forward_kernel(
    planes, strides, p_sizes, p_nodes, p_shares, p_ends, p_log_z, lanes, cells,
    MOVES: tl.constexpr, COUNT: tl.constexpr, OFFSETS: tl.constexpr, LAST: tl.constexpr,
    LAYERS: tl.constexpr, SLOPE: tl.constexpr, LANES: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """log Z [b], the chances of the last layers, and shares; `p_nodes` [b 3 LAYERS 2 lanes]."""
    b = tl.program_id(0).to(tl.int64)
    n, m = tl.load(p_sizes + 2 * b), tl.load(p_sizes + 2 * b + 1)
    p_nodes += b * 3 * LAYERS * 2 * lanes
    dtype = p_nodes.dtype.element_ty
    for start in range(0, m + 1, LANES):  # step 0
        o_j = start + tl.arange(0, LANES)
        for layer in tl.static_range(LAYERS):
            alive = (o_j == 0) & (layer == 0)
            p_node = p_nodes + layer * 2 * lanes + o_j
            tl.store(p_node, tl.where(alive, 1.0, 0.0).to(dtype), mask=o_j <= m)
            tl.store(p_node + lanes, tl.where(alive, 0.0, MINUS_INF).to(dtype), mask=o_j <= m)
    steps = n + SLOPE * m
    for s in range(1, steps + 1):
        tl.debug_barrier()
        low, high = lanes_at(s, n, m, SLOPE)
        for start in range(low, high + 1, LANES):
            o_j = start + tl.arange(0, LANES)
            m_j, o_i = o_j <= high, s - SLOPE * o_j
            for layer in tl.static_range(LAYERS):
                b_m = tl.zeros([LANES], dtype=dtype)
                b_e = b_m + MINUS_INF
                for k in tl.static_range(COUNT):
                    if MOVES[k][TARGET] == layer:
                        own_m, own_e = term(
                            planes, strides, p_nodes, MOVES, k, OFFSETS, LAYERS,
                            b, s, o_j, o_i, n, m, m_j, lanes,
                        )  # fmt: skip
                        b_m, own_m, b_e = brought_together(b_m, b_e, own_m, own_e)
                        b_m += own_m
                if KEEP:
                    for k in tl.static_range(COUNT):
                        if MOVES[k][TARGET] == layer:
                            own_m, own_e = term(
                                planes, strides, p_nodes, MOVES, k, OFFSETS, LAYERS,
                                b, s, o_j, o_i, n, m, m_j, lanes,
                            )  # fmt: skip
                            own_m *= power(own_e - finite(b_e))
                            b_share = own_m / tl.where(b_m > 0, b_m, 1.0)
                            b_share = tl.where(own_m == b_m, 1.0, b_share)
                            b_share = tl.where(b_m > 0, b_share, 0.0)
                            p_share = p_shares + (b * COUNT + k) * cells + s * lanes + o_j
                            tl.store(p_share, b_share, mask=m_j)
                b_m, b_e = settled(b_m, b_e)
                p_node = p_nodes + ((s % 3) * LAYERS + layer) * 2 * lanes + o_j
                tl.store(p_node, b_m, mask=m_j)
                tl.store(p_node + lanes, b_e, mask=m_j)
    tl.debug_barrier()
    p_node = p_nodes + (steps % 3) * LAYERS * 2 * lanes + m
    total, top = tl.zeros([], dtype=dtype), tl.zeros([], dtype=dtype) + MINUS_INF
    for layer in tl.static_range(LAYERS):
        if LAST[layer]:
            own_m, own_e = (
                tl.load(p_node + 2 * layer * lanes),
                tl.load(p_node + (2 * layer + 1) * lanes),
            )
            total, own_m, top = brought_together(total, top, own_m, own_e)
            total += own_m
    tl.store(p_log_z + b, logarithm(total, top))
    for layer in tl.static_range(LAYERS):
        end = tl.zeros([], dtype=dtype)
        if LAST[layer]:
            own_m, own_e = (
                tl.load(p_node + 2 * layer * lanes),
                tl.load(p_node + (2 * layer + 1) * lanes),
            )
            own_m *= power(own_e - finite(top))
            end = tl.where(own_m == total, 1.0, own_m / tl.where(total > 0, total, 1.0))
            end = tl.where(total > 0, end, 0.0)
        tl.store(p_ends + b * LAYERS + layer, end)


@triton.jit
def backward_kernel(
    p_sizes, p_weights, p_ends, p_shares, p_counts, lanes, cells,
    MOVES: tl.constexpr, COUNT: tl.constexpr, LAYERS: tl.constexpr, SLOPE: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """weights[b] times the chances of nodes, [b LAYERS cells]."""
    b = tl.program_id(0).to(tl.int64)
    n, m = tl.load(p_sizes + 2 * b), tl.load(p_sizes + 2 * b + 1)
    weight = tl.load(p_weights + b)
    p_counts += b * LAYERS * cells
    p_shares += b * COUNT * cells
    dtype = p_counts.dtype.element_ty
    steps = n + SLOPE * m
    for back in range(steps + 1):
        s = steps - back
        tl.debug_barrier()
        low, high = lanes_at(s, n, m, SLOPE)
        for start in range(low, high + 1, LANES):
            o_j = start + tl.arange(0, LANES)
            m_j, o_i = o_j <= high, s - SLOPE * o_j
            for layer in tl.static_range(LAYERS):
                end = weight * tl.load(p_ends + b * LAYERS + layer)
                b_count = tl.where((s == steps) & (o_j == m), end, 0.0).to(dtype)
                for k in tl.static_range(COUNT):
                    if MOVES[k][SOURCE] == layer:
                        m_target = (
                            m_j & (o_i + MOVES[k][ROWS] <= n) & (o_j + MOVES[k][COLUMNS] <= m)
                        )
                        place = (s + MOVES[k][STEPS]) * lanes + o_j + MOVES[k][COLUMNS]
                        p_count = p_counts + MOVES[k][TARGET] * cells + place
                        b_target = tl.load(p_count, mask=m_target, other=0.0)
                        b_count += b_target * tl.load(
                            p_shares + k * cells + place, mask=m_target, other=0.0
                        )
                tl.store(p_counts + layer * cells + s * lanes + o_j, b_count, mask=m_j)


@triton.jit
def value_of(
    directions, strides, MOVES: tl.constexpr, K: tl.constexpr, OFFSETS: tl.constexpr,
    b, o_i, o_j, n, m, m_j, LANES: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """The sum of a move's entries in tables like the planes, by the nodes that it leads to."""
    b_value = tl.zeros([LANES], dtype=dtype)
    if MOVES[K][FIRST] >= 0:
        b_value += read(directions, strides, MOVES[K][FIRST], OFFSETS, b, o_i, o_j, n, m, m_j, 0.0)
    if MOVES[K][SECOND] >= 0:
        b_value += read(directions, strides, MOVES[K][SECOND], OFFSETS, b, o_i, o_j, n, m, m_j, 0.0)
    return b_value


@triton.jit
def means_kernel(
    directions, strides, p_sizes, p_shares, p_means, lanes, cells,
    MOVES: tl.constexpr, COUNT: tl.constexpr, OFFSETS: tl.constexpr, LAYERS: tl.constexpr,
    SLOPE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """E[U so far | node], [b LAYERS cells]; U is the sum of the directions over a path's moves."""
    b = tl.program_id(0).to(tl.int64)
    n, m = tl.load(p_sizes + 2 * b), tl.load(p_sizes + 2 * b + 1)
    p_means += b * LAYERS * cells
    p_shares += b * COUNT * cells
    dtype = p_means.dtype.element_ty
    for s in range(n + SLOPE * m + 1):
        tl.debug_barrier()
        low, high = lanes_at(s, n, m, SLOPE)
        for start in range(low, high + 1, LANES):
            o_j = start + tl.arange(0, LANES)
            m_j, o_i = o_j <= high, s - SLOPE * o_j
            for layer in tl.static_range(LAYERS):
                b_mean = tl.zeros([LANES], dtype=dtype)
                for k in tl.static_range(COUNT):
                    if MOVES[k][TARGET] == layer:
                        m_source = m_j & (o_i >= MOVES[k][ROWS]) & (o_j >= MOVES[k][COLUMNS])
                        place = (s - MOVES[k][STEPS]) * lanes + o_j - MOVES[k][COLUMNS]
                        p_mean = p_means + MOVES[k][SOURCE] * cells + place
                        b_value = value_of(
                            directions, strides, MOVES, k, OFFSETS, b, o_i, o_j, n, m, m_source,
                            LANES, dtype,
                        ) + tl.load(p_mean, mask=m_source, other=0.0)  # fmt: skip
                        p_share = p_shares + k * cells + s * lanes + o_j
                        b_share = tl.load(p_share, mask=m_source, other=0.0)
                        b_mean += tl.where(b_share > 0, b_share * b_value, 0.0)
                tl.store(p_means + layer * cells + s * lanes + o_j, b_mean, mask=m_j)


@triton.jit
def changes_kernel(
    directions, strides, p_sizes, p_weights, p_ends, p_shares, p_means, p_counts, p_changes,
    p_moved, p_expected, lanes, cells,
    MOVES: tl.constexpr, COUNT: tl.constexpr, OFFSETS: tl.constexpr, LAYERS: tl.constexpr,
    SLOPE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """weights[b] Cov[move, U] of moves by the nodes they lead to [b COUNT cells], and E[U] [b].

    Counts and changes [b LAYERS cells] are scratch memory.
    """
    b = tl.program_id(0).to(tl.int64)
    n, m = tl.load(p_sizes + 2 * b), tl.load(p_sizes + 2 * b + 1)
    weight = tl.load(p_weights + b)
    p_counts += b * LAYERS * cells
    p_changes += b * LAYERS * cells
    p_means += b * LAYERS * cells
    p_shares += b * COUNT * cells
    p_moved += b * COUNT * cells
    dtype = p_counts.dtype.element_ty
    steps = n + SLOPE * m
    expected = tl.zeros([], dtype=dtype)
    for layer in tl.static_range(LAYERS):
        end = tl.load(p_ends + b * LAYERS + layer)
        expected += end * tl.load(p_means + layer * cells + steps * lanes + m)
    tl.store(p_expected + b, expected)
    for back in range(steps + 1):
        s = steps - back
        tl.debug_barrier()
        low, high = lanes_at(s, n, m, SLOPE)
        for start in range(low, high + 1, LANES):
            o_j = start + tl.arange(0, LANES)
            m_j, o_i = o_j <= high, s - SLOPE * o_j
            for layer in tl.static_range(LAYERS):
                o_node = layer * cells + s * lanes + o_j
                b_mean = tl.load(p_means + o_node, mask=m_j, other=0.0)
                chance = weight * tl.load(p_ends + b * LAYERS + layer)
                b_count = tl.where((s == steps) & (o_j == m), chance, 0.0).to(dtype)
                b_change = b_count * (b_mean - expected)
                for k in tl.static_range(COUNT):
                    if MOVES[k][SOURCE] == layer:
                        to_i, to_j = o_i + MOVES[k][ROWS], o_j + MOVES[k][COLUMNS]
                        m_to = m_j & (to_i <= n) & (to_j <= m)
                        place = (s + MOVES[k][STEPS]) * lanes + to_j
                        o_to = MOVES[k][TARGET] * cells + place
                        b_value = b_mean + value_of(
                            directions, strides, MOVES, k, OFFSETS, b, to_i, to_j, n, m, m_to,
                            LANES, dtype,
                        )  # fmt: skip
                        b_value -= tl.load(p_means + o_to, mask=m_to, other=0.0)
                        b_share = tl.load(p_shares + k * cells + place, mask=m_to, other=0.0)
                        b_to = tl.load(p_counts + o_to, mask=m_to, other=0.0)
                        b_moved = tl.load(p_changes + o_to, mask=m_to, other=0.0) + b_to * b_value
                        b_moved = tl.where(b_share > 0, b_share * b_moved, 0.0)
                        tl.store(p_moved + k * cells + place, b_moved, mask=m_to)
                        b_count += b_share * b_to
                        b_change += b_moved
                tl.store(p_counts + o_node, b_count, mask=m_j)
                tl.store(p_changes + o_node, b_change, mask=m_j)


@triton.jit
def uses_kernel(
    p_sizes, p_shares, p_counts, p_out, rows, columns, lanes, cells, DIVIDED: tl.constexpr,
    PLANE: tl.constexpr, OFFSETS: tl.constexpr, MOVES: tl.constexpr, COUNT: tl.constexpr,
    LAYERS: tl.constexpr, SLOPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What the moves that read a plane give to each of its entries, [b rows columns].

    DIVIDED: they give shares of the counts [b LAYERS cells], not what is in `p_shares` itself.
    """
    b = tl.program_id(1).to(tl.int64)
    n, m = tl.load(p_sizes + 2 * b), tl.load(p_sizes + 2 * b + 1)
    o_place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o_i = o_place // columns + OFFSETS[PLANE][0]
    o_j = o_place % columns + OFFSETS[PLANE][1]
    m_table = o_place < rows * columns
    # Step 0 has no moves that lead to it.
    m_node = m_table & (o_i <= n) & (o_j <= m) & (o_i + o_j > 0)
    o_cell = (o_i + SLOPE * o_j) * lanes + o_j
    b_sum = tl.zeros([BLOCK], dtype=p_out.dtype.element_ty)
    for k in tl.static_range(COUNT):
        if (MOVES[k][FIRST] == PLANE) | (MOVES[k][SECOND] == PLANE):
            m_target = m_node & (o_i >= MOVES[k][ROWS]) & (o_j >= MOVES[k][COLUMNS])
            p_share = p_shares + (b * COUNT + k) * cells + o_cell
            b_share = tl.load(p_share, mask=m_target, other=0.0)
            if DIVIDED:
                p_count = p_counts + (b * LAYERS + MOVES[k][TARGET]) * cells + o_cell
                b_share *= tl.load(p_count, mask=m_target, other=0.0)
            b_sum += b_share
    tl.store(p_out + b * rows * columns + o_place, b_sum, mask=m_table)


def constants(lattice: Lattice) -> dict[str, Any]:
    """What kernels are compiled for."""
    moves, offsets, _, _ = lattice.arrays
    return {
        "MOVES": tuple(tuple(row[:7]) for row in moves.tolist()),
        "COUNT": len(lattice.moves),
        "OFFSETS": tuple(map(tuple, offsets.tolist())),
        "LAYERS": lattice.layers,
        "SLOPE": lattice.slope,
    }


def strides_of(tables: Sequence[Tensor]) -> tuple[tuple[int, int, int], ...]:
    """How far elements, rows and columns are apart; 0 where a table does not depend on them."""
    return tuple(
        (x.stride(0), x.stride(1) * (x.shape[1] > 1), x.stride(2) * (x.shape[2] > 1))
        for x in tables
    )


class Batch:
    """A batch of grids: sizes [b 2], and the steps and lanes of the largest."""

    def __init__(self, lattice: Lattice, sizes: Int[Tensor, "b 2"], rows: int, columns: int):
        self.lattice, self.sizes, self.size = lattice, sizes.contiguous(), len(sizes)
        self.lanes = columns + 1
        self.cells = (lattice.steps(rows, columns) + 1) * self.lanes
        self.known = constants(lattice)
        self.without = {name: x for name, x in self.known.items() if name != "OFFSETS"}
        block = min(1024, max(32, triton.next_power_of_2(self.lanes)))
        self.how = {"LANES": block, "num_warps": max(1, min(8, block // 64))}

    @property
    def _room(self) -> tuple[int, int]:
        return self.lanes, self.cells

    def _nodes(self, like: Tensor) -> Tensor:
        return like.new_empty((self.size, self.lattice.layers, self.cells))

    def forward(self, planes: Sequence[Tensor], keep: bool) -> Forward:
        """log Z; shares with `keep`."""
        like, b, layers = planes[0], self.size, self.lattice.layers
        nodes = like.new_empty((b, 3, layers, 2, self.lanes))
        made = Forward(
            like.new_empty(b, dtype=torch.float64),
            like.new_empty((b, layers)),
            like.new_empty((b, len(self.lattice.moves), self.cells if keep else 0)),
        )
        last = tuple(layer in self.lattice.last for layer in range(layers))
        if b:
            forward_kernel[(b,)](
                tuple(planes), strides_of(planes), self.sizes, nodes, made.shares, made.ends,
                made.log_z, *self._room, LAST=last, KEEP=keep, **self.known, **self.how,
            )  # fmt: skip
        return made

    def uses(self, made: Forward, weights: Tensor, shapes: Shapes) -> tuple[Tensor, ...]:
        """weights[b] times the expected uses of the entries of each plane, [b rows columns]."""
        counts = self._nodes(made.shares)
        if self.size:
            backward_kernel[(self.size,)](
                self.sizes, weights, made.ends, made.shares, counts, *self._room,
                **self.without, **self.how,
            )  # fmt: skip
        return self._entries(made.shares, counts, shapes)

    def tangents(
        self, made: Forward, weights: Tensor, directions: Sequence[Tensor], shapes: Shapes
    ) -> tuple[tuple[Tensor, ...], Float[Tensor, " b"]]:
        """weights[b] times the covariances of the entries' uses with U, and E[U] [b]."""
        means, counts, changes = (self._nodes(made.shares) for _ in range(3))
        moved, expected = torch.empty_like(made.shares), torch.empty_like(weights)
        if self.size:
            given = tuple(directions), strides_of(directions), self.sizes
            how = {**self.known, **self.how}
            means_kernel[(self.size,)](*given, made.shares, means, *self._room, **how)
            changes_kernel[(self.size,)](
                *given, weights, made.ends, made.shares, means, counts, changes, moved, expected,
                *self._room, **how,
            )  # fmt: skip
        return self._entries(moved, None, shapes), expected

    def _entries(
        self, of_moves: Tensor, counts: Tensor | None, shapes: Shapes
    ) -> tuple[Tensor, ...]:
        """Numbers of moves, times counts if there are any, added up for the entries of planes."""
        found = []
        for p, (rows, columns) in enumerate(shapes):
            out = of_moves.new_empty((self.size, rows, columns))
            if out.numel():
                uses_kernel[(triton.cdiv(rows * columns, 256), self.size)](
                    self.sizes, of_moves, of_moves if counts is None else counts, out,
                    rows, columns, *self._room, DIVIDED=counts is not None, PLANE=p, BLOCK=256,
                    **self.known,
                )  # fmt: skip
            found.append(out)
        return tuple(found)
