"""Paths through a grid on the CPU: the compiled passes, divided among threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout._core.tracing import numbers
from inout.kernels.alignment.cpu import decode, marginals, scaled
from inout.kernels.alignment.cpu.grid import MOST_PLANES, Array, Grid
from inout.kernels.alignment.lattice import Lattice
from inout.kernels.threads import over_batch

NODE = 8  # elementary operations, about, that a move costs at a node


class CpuPaths:
    """A batch of grids for the compiled code: planes of one dtype and sizes [b 2]."""

    def __init__(self, lattice: Lattice, planes: Sequence[Tensor], sizes: Int[Tensor, "b 2"]):
        self.lattice, self.dtype = lattice, planes[0].dtype
        self.sizes = np.ascontiguousarray(numbers(sizes), np.int64)
        self.size, self.shapes = len(self.sizes), [x.shape for x in planes]
        moves, offsets, last, common = lattice.arrays
        strides = [(c * (r > 1), int(c > 1)) for _, r, c in self.shapes]
        offsets = np.concatenate([offsets, np.array(strides, np.int64)], 1)
        tables = self._tables(planes)
        self.grid = Grid(
            tables, moves, offsets, last, common, self.sizes, lattice.slope, lattice.layers
        )
        rows, columns = self.sizes.max(0, initial=0).tolist()
        self.rows, self.columns = rows, columns
        self.steps = lattice.steps(rows, columns)
        self.cells = (rows + 1) * (columns + 1)
        self.work = NODE * self.size * self.cells * len(lattice.moves)

    def _tables(self, planes: Sequence[Tensor]) -> tuple[Array, ...]:
        """Tensors like the planes as contiguous arrays of one dtype, then empty ones."""
        found = [
            np.ascontiguousarray(numbers(x.to(self.dtype))).reshape(len(x), x.shape[1] * x.shape[2])
            for x in planes
        ]
        none = np.empty((0, 0), found[0].dtype)
        return (*found, *[none] * (MOST_PLANES - len(found)))

    def _zeros(self) -> tuple[Array, ...]:
        return tuple(np.zeros_like(x) for x in self.grid.planes)

    def best(self) -> Int[Tensor, "b p"]:
        """The best path of each element, -1 if there is none."""
        paths = np.full((self.size, self.steps), -1, np.int64)
        over_batch(
            lambda lo, hi: decode.viterbi(self.grid, lo, hi, self.cells, paths),
            self.size,
            self.work // 4,
        )
        return torch.from_numpy(paths)

    def k_best(self, k: int) -> tuple[Int[Tensor, "k b p"], Float[Tensor, "k b"]]:
        """The k best paths of each element and their scores, -1 and -inf if there are fewer."""
        paths, scores = np.full((self.size, k, self.steps), -1, np.int64), np.empty((self.size, k))
        over_batch(
            lambda lo, hi: decode.kbest(self.grid, lo, hi, self.cells, paths, scores),
            self.size,
            k * self.work,
        )
        return torch.from_numpy(paths.swapaxes(0, 1).copy()), torch.from_numpy(scores.T.copy())


class CpuPathPasses(CpuPaths):
    """log Z at one setting of the planes, and shares of moves if they will be `wanted`."""

    def __init__(
        self, lattice: Lattice, planes: Sequence[Tensor], sizes: Int[Tensor, "b 2"], *, wanted: bool
    ) -> None:
        super().__init__(lattice, planes, sizes)
        log_z, self.ends = np.empty(self.size), np.empty((self.size, lattice.layers))
        cells = self.cells if wanted else 0
        shares = (self.size, len(lattice.moves), cells)
        self.shares = np.empty(shares, self.grid.planes[0].dtype)
        over_batch(
            lambda lo, hi: scaled.forward(self.grid, lo, hi, log_z, self.ends, self.shares),
            self.size,
            self.work,
        )
        self.log_z = torch.from_numpy(log_z)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * the expected number of uses of each entry of the planes."""
        found, own = self._zeros(), self._weights(weights)
        over_batch(
            lambda lo, hi: marginals.backward(
                self.grid, lo, hi, own, self.ends, self.shares, found
            ),
            self.size,
            self.work // 2,
        )
        return self._tensors(found)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[use, U] of each entry of the planes, and E[U] [b]."""
        found, own, expected = self._zeros(), self._weights(weights), np.empty(self.size)
        along = self._tables(directions)
        over_batch(
            lambda lo, hi: marginals.tangents(
                self.grid, lo, hi, own, self.ends, self.shares, along, expected, found
            ),
            self.size,
            2 * self.work,
        )
        return *self._tensors(found), torch.from_numpy(expected)

    def _tensors(self, tables: tuple[Array, ...]) -> tuple[Tensor, ...]:
        shaped = (x.reshape(shape) for x, shape in zip(tables, self.shapes, strict=False))
        return tuple(map(torch.from_numpy, shaped))

    def _weights(self, weights: Tensor) -> Array:
        """Weights of the elements, 0 where there is no path."""
        given = np.asarray(numbers(weights), np.float64)
        return np.where(self.log_z.numpy() == -np.inf, 0.0, given)

    def sample(self, count: int, seed: int) -> tuple[Int[Tensor, "m b p"], Bool[Tensor, " b"]]:
        """`count` independent paths of each element, and which elements have any."""
        paths = np.full((self.size, count, self.steps), -1, np.int64)
        over_batch(
            lambda lo, hi: decode.sample(
                self.grid, lo, hi, np.uint64(seed), self.ends, self.shares, paths
            ),
            self.size,
            NODE * self.size * count * self.steps,
        )
        return torch.from_numpy(paths.swapaxes(0, 1).copy()), self.log_z > -torch.inf

    def shares_of_nodes(self) -> tuple[Float[Tensor, "b m r c"], Float[Tensor, "b l"]]:
        """The chance of each move given its target, for all nodes; those of the last layers."""
        shape = (self.size, len(self.lattice.moves), self.rows + 1, self.columns + 1)
        out = np.empty(shape, self.shares.dtype)
        decode.spread(self.grid, 0, self.size, self.shares, out)
        return torch.from_numpy(out), torch.from_numpy(self.ends)
