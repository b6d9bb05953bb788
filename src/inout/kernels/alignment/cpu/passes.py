"""Paths through a grid on the CPU: the compiled passes, divided among threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inout._core.tracing import numbers
from inout.kernels.alignment.cpu import decode, linear, marginals, monotone, shares
from inout.kernels.alignment.cpu.grid import MOST_PLANES, Array, Grid
from inout.kernels.alignment.lattice import Lattice
from inout.kernels.limits import ALIGNMENT_SLACK
from inout.kernels.threads import over_batch

NODE = 8  # elementary operations, about, that a move costs at a node


class CpuPaths:
    """A batch of grids for the compiled code: planes of one dtype and sizes [b 2]."""

    def __init__(self, lattice: Lattice, planes: Sequence[Tensor], sizes: Int[Tensor, "b 2"]):
        self.lattice, self.planes, self.dtype = lattice, planes, planes[0].dtype
        self.sizes = np.ascontiguousarray(numbers(sizes), np.int64)
        self.size, self.shapes = len(self.sizes), [x.shape for x in planes]
        rows, columns = self.sizes.max(0, initial=0).tolist()
        self.rows, self.columns = rows, columns
        self.steps = lattice.steps(rows, columns)
        self.cells = (rows + 1) * (columns + 1)
        self.work = NODE * self.size * self.cells * len(lattice.moves)

    @cached_property
    def grid(self) -> Grid:
        """The batch in the dtype of the planes."""
        return self._grid(self.dtype)

    @cached_property
    def wide(self) -> Grid:
        """The same in float64: most code is compiled for that alone."""
        return self.grid if self.dtype == torch.float64 else self._grid(torch.float64)

    def _grid(self, dtype: torch.dtype) -> Grid:
        moves, offsets, last, common = self.lattice.arrays
        strides = [(c * (r > 1), int(c > 1)) for _, r, c in self.shapes]
        offsets = np.concatenate([offsets, np.array(strides, np.int64)], 1)
        slope, layers = self.lattice.slope, self.lattice.layers
        tables = self._tables(self.planes, dtype)
        return Grid(tables, moves, offsets, last, common, self.sizes, slope, layers)

    def _tables(self, planes: Sequence[Tensor], dtype: torch.dtype) -> tuple[Array, ...]:
        """Tensors like the planes as contiguous arrays of one dtype, then empty ones."""
        found = [
            np.ascontiguousarray(numbers(x.to(dtype))).reshape(len(x), x.shape[1] * x.shape[2])
            for x in planes
        ]
        none = np.empty((0, 0), found[0].dtype)
        return (*found, *[none] * (MOST_PLANES - len(found)))

    def _tensors(self, tables: tuple[Array, ...]) -> tuple[Tensor, ...]:
        """Tables like the planes as tensors like the planes."""
        shaped = (x.reshape(shape) for x, shape in zip(tables, self.shapes, strict=False))
        return tuple(torch.from_numpy(x).to(self.dtype) for x in shaped)

    def best(self) -> Int[Tensor, "b p"]:
        """The best path of each element, -1 if there is none."""
        paths = np.full((self.size, self.steps), -1, np.int64)
        _, rows, columns = self.shapes[0]
        if self.lattice.is_monotone and min(rows, columns) > 1:
            match = self.grid.planes[0]

            def part(lo: int, hi: int) -> None:
                monotone.search(match, columns, self.sizes, lo, hi, paths)
        else:
            grid = self.wide

            def part(lo: int, hi: int) -> None:
                decode.viterbi(grid, lo, hi, self.cells, paths)

        over_batch(part, self.size, self.work // 4)
        return torch.from_numpy(paths)

    def k_best(self, k: int) -> tuple[Int[Tensor, "k b p"], Float[Tensor, "k b"]]:
        """The k best paths of each element and their scores, -1 and -inf if there are fewer."""
        paths, scores = np.full((self.size, k, self.steps), -1, np.int64), np.empty((self.size, k))
        grid = self.wide
        over_batch(
            lambda lo, hi: decode.kbest(grid, lo, hi, self.cells, paths, scores),
            self.size,
            k * self.work,
        )
        return torch.from_numpy(paths.swapaxes(0, 1).copy()), torch.from_numpy(scores.T.copy())


def finite_weights(log_z: Tensor, weights: Tensor) -> Array:
    """Weights of the elements in float64, 0 where there is no path."""
    return np.where(log_z.numpy() == -np.inf, 0.0, np.asarray(numbers(weights), np.float64))


class CpuShares(CpuPaths):
    """The share of each move in the node it leads to, in float64, and what follows from shares."""

    def __init__(
        self, lattice: Lattice, planes: Sequence[Tensor], sizes: Int[Tensor, "b 2"], *, wanted: bool
    ) -> None:
        super().__init__(lattice, planes, sizes)
        log_z, self.ends = np.empty(self.size), np.empty((self.size, lattice.layers))
        cells, grid = self.cells if wanted else 0, self.wide
        self.shares = np.empty((self.size, len(lattice.moves), cells))
        over_batch(
            lambda lo, hi: shares.forward(grid, lo, hi, log_z, self.ends, self.shares),
            self.size,
            self.work,
        )
        self.log_z = torch.from_numpy(log_z)

    def _zeros(self) -> tuple[Array, ...]:
        return tuple(np.zeros_like(x) for x in self.wide.planes)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * the expected number of uses of each entry of the planes."""
        found, own = self._zeros(), finite_weights(self.log_z, weights)
        over_batch(
            lambda lo, hi: marginals.backward(
                self.wide, lo, hi, own, self.ends, self.shares, found
            ),
            self.size,
            self.work // 2,
        )
        return self._tensors(found)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[use, U] of each entry of the planes, and E[U] [b]."""
        found, own, expected = (
            self._zeros(),
            finite_weights(self.log_z, weights),
            np.empty(self.size),
        )
        along = self._tables(directions, torch.float64)
        over_batch(
            lambda lo, hi: marginals.tangents(
                self.wide, lo, hi, own, self.ends, self.shares, along, expected, found
            ),
            self.size,
            2 * self.work,
        )
        return *self._tensors(found), torch.from_numpy(expected)

    def sample(self, count: int, seed: int) -> tuple[Int[Tensor, "m b p"], Bool[Tensor, " b"]]:
        """`count` independent paths of each element, and which elements have any."""
        paths = np.full((self.size, count, self.steps), -1, np.int64)
        over_batch(
            lambda lo, hi: decode.sample(
                self.wide, lo, hi, np.uint64(seed), self.ends, self.shares, paths
            ),
            self.size,
            NODE * self.size * count * self.steps,
        )
        return torch.from_numpy(paths.swapaxes(0, 1).copy()), self.log_z > -torch.inf

    def shares_of_nodes(self) -> tuple[Float[Tensor, "b m r c"], Float[Tensor, "b l"]]:
        """The chance of each move given its target, for all nodes; those of the last layers."""
        shape = (self.size, len(self.lattice.moves), self.rows + 1, self.columns + 1)
        out = np.empty(shape)
        decode.spread(self.wide, 0, self.size, self.shares, out)
        return torch.from_numpy(out), torch.from_numpy(self.ends)


class CpuPathPasses:
    """log Z at one setting of the planes, and its derivatives if they will be `wanted`.

    In linear space where nothing is lost there; shares only of the other elements, and for what
    needs them. All is computed when it is first asked for.
    """

    def __init__(
        self, lattice: Lattice, planes: Sequence[Tensor], sizes: Int[Tensor, "b 2"], *, wanted: bool
    ) -> None:
        self.lattice, self.planes, self.sizes, self.wanted = lattice, planes, sizes, wanted

    def _solve(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """log Z [b], and the expected uses of each entry of the planes."""
        paths = CpuPaths(self.lattice, self.planes, self.sizes)
        grid, slack, log_z = paths.grid, ALIGNMENT_SLACK.of(paths.dtype), np.empty(paths.size)
        counts = tuple(np.zeros(x.shape if self.wanted else (0, 0), x.dtype) for x in grid.planes)
        over_batch(
            lambda lo, hi: linear.solve(grid, lo, hi, slack, self.wanted, log_z, counts),
            paths.size,
            paths.work,
        )
        found = torch.from_numpy(log_z), paths._tensors(counts) if self.wanted else ()
        lost = torch.from_numpy(np.flatnonzero(np.isnan(log_z)))
        if len(lost):
            own = [x.detach()[lost] for x in self.planes]
            exact = CpuShares(self.lattice, own, self.sizes[lost], wanted=self.wanted)
            found[0][lost] = exact.log_z
            if self.wanted:
                uses = exact.gradients(torch.ones(len(lost)))
                for table, other in zip(found[1], uses, strict=True):
                    table[lost] = other
        return found

    @cached_property
    def log_z(self) -> Tensor:
        """log Z [b]."""
        found, self._counts = self._solve()
        return found

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * the expected number of uses of each entry of the planes."""
        own = torch.from_numpy(finite_weights(self.log_z, weights))[:, None, None]
        counts, self._counts = self._counts, ()  # the first caller's: made again for others
        return tuple(x.mul_(own.to(x.dtype)) for x in counts or self._solve()[1])

    @cached_property
    def _shares(self) -> CpuShares:
        return CpuShares(self.lattice, self.planes, self.sizes, wanted=True)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[use, U] of each entry of the planes, and E[U] [b]."""
        return self._shares.tangents(weights, directions)

    def sample(self, count: int, seed: int) -> tuple[Int[Tensor, "m b p"], Bool[Tensor, " b"]]:
        """`count` independent paths of each element, and which elements have any."""
        return self._shares.sample(count, seed)

    def shares_of_nodes(self) -> tuple[Float[Tensor, "b m r c"], Float[Tensor, "b l"]]:
        """The chance of each move given its target, for all nodes; those of the last layers."""
        return self._shares.shares_of_nodes()
