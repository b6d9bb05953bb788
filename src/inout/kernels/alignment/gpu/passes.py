"""Paths through a grid on a GPU, at one setting of their scores; see `grid.py` and `ctc.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from inout.kernels.alignment.lattice import Lattice
from inout.kernels.limits import CTC_GPU_LANES

if TYPE_CHECKING:
    from inout.kernels.alignment.gpu.ctc import Chances


class GpuPathPasses:
    """log Z at one setting of the planes, and shares of moves if they will be `wanted`."""

    def __init__(
        self, lattice: Lattice, planes: Sequence[Tensor], sizes: Int[Tensor, "b 2"], *, wanted: bool
    ) -> None:
        # Here, because triton is only where GPUs are.
        from inout.kernels.alignment.gpu import grid

        rows, columns = map(int, sizes.amax(0).tolist()) if len(sizes) else (0, 0)
        self.planes = [x.detach() for x in planes]
        self.batch = grid.Batch(lattice, sizes, rows, columns)
        self.made = self.batch.forward(self.planes, wanted)
        # Tables of uses: as large as the planes, or as the nodes where all share an entry.
        self.shapes = []
        for plane, table in zip(lattice.planes, self.planes, strict=True):
            r, c = table.shape[1:]
            whole = rows + plane.more_rows, columns + plane.more_columns
            self.shapes.append((whole[0] if r == 1 else r, whole[1] if c == 1 else c))

    @property
    def log_z(self) -> Tensor:
        """log Z [b] in float64."""
        return self.made.log_z

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * the expected number of uses of each entry of the planes."""
        found = self.batch.uses(self.made, self._scales(weights), self.shapes)
        return self._summed(found)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[use, U] of each entry of the planes, and E[U] [b]."""
        along = [x.detach().to(self.planes[0].dtype) for x in directions]
        found, expected = self.batch.tangents(self.made, self._scales(weights), along, self.shapes)
        return *self._summed(found), expected

    def _scales(self, weights: Tensor) -> Tensor:
        return weights.detach().to(self.planes[0].dtype).contiguous()

    def _summed(self, found: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Tables added up over the dimensions that the planes do not depend on."""
        results = []
        for x, like in zip(found, self.planes, strict=True):
            dims = [d for d in (1, 2) if like.shape[d] == 1 and x.shape[d] != 1]
            results.append(x.sum(dims, keepdim=True) if dims else x)
        return tuple(results)


class GpuCTCPasses:
    """log Z of CTC at one setting of the scores [b t v]; `given` [b 2+u] has sizes and targets.

    `planes_of(scores, targets)` are those of the lattice, for long targets and second derivatives.
    """

    def __init__(
        self,
        lattice: Lattice,
        scores: Tensor,
        given: Int[Tensor, "b _"],
        blank: int,
        planes_of: Callable[[Tensor, Tensor], Sequence[Tensor]],
        *,
        wanted: bool,
    ) -> None:
        from inout.kernels.alignment.gpu import ctc

        self.ctc, self.lattice, self.blank, self.planes_of = ctc, lattice, blank, planes_of
        self.scores, self.given, self.wanted = scores.detach(), given.contiguous(), wanted
        self.paths = self._paths() if given.shape[1] - 1 > CTC_GPU_LANES else None
        if self.paths is None:
            self.log_z, self._chances = ctc.forward(self.scores, self.given, blank, wanted)
        else:
            self.log_z = self.paths.log_z

    def _paths(self) -> GpuPathPasses:
        """The same by the planes of its lattice."""
        planes = self.planes_of(self.scores, self.given[:, 2:])
        return GpuPathPasses(self.lattice, planes, self.given[:, :2], wanted=self.wanted)

    def gradients(self, weights: Tensor) -> tuple[Tensor, ...]:
        """weights[b] * P(label) of each label at each frame; always added up in one order."""
        scales = weights.detach().to(self.scores.dtype)
        if self.paths is not None:
            return (self._by_label(self.paths.gradients(scales)),)
        assert self._chances is not None
        return (self._added_up(self._chances, scales),)

    def tangents(self, weights: Tensor, directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """weights[b] * Cov[label, U] of each label at each frame, and E[U] [b]."""
        paths = self._paths() if self.paths is None else self.paths
        along = self.planes_of(directions[0].detach(), self.given[:, 2:])
        *found, expected = paths.tangents(weights, (*along[:2], torch.zeros_like(along[2])))
        return self._by_label(found), expected

    def _by_label(self, found: Sequence[Tensor]) -> Tensor:
        """Numbers of blanks [b t 1] and labels [b t u], added up for each label."""
        of_blank, of_labels = found[:2]
        none = torch.zeros_like(of_labels)
        behind = (
            torch.cat([of_blank, none], 2),
            torch.cat([torch.zeros_like(of_blank), of_labels], 2),
        )
        both = torch.stack(behind, 2)  # [b t 2 u+1], as the kernels for CTC have them
        found = self.ctc.linked(both, self.given, self.scores.shape[2])
        return self._added_up(found, both.new_ones(len(both)))

    def _added_up(self, found: Chances, weights: Tensor) -> Tensor:
        return self.ctc.by_label(found, self.given, weights, self.scores.shape[2], self.blank)
