"""`Alignment`: pairwise alignments, global, local and monotone, and time warping."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Inexact, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import expect, expect_one_of
from inout._core.errors import ArgumentError
from inout.distributions import arguments
from inout.distributions.paths import NO_EVENT, PathDistribution, Planes
from inout.forest.labels import BlockLabels
from inout.kernels.alignment.lattice import BOTH, COLUMN, ROW, Lattice, Move

MATCH, DELETE, INSERT, SKIP_ROW, SKIP_COLUMN = range(5)
GAPS = ("delete", "insert")
EXTENSIONS = ("delete_extend", "insert_extend")
MODES = ("global", "local", "monotone", "warping")


def _core(first: int, sources: tuple[int, ...], affine: bool) -> tuple[list[Move], int]:
    """Matches, deletions and insertions in layers from `first` on; how many layers.

    Layers are the last step: a match, a deletion, an insertion; the last two are one where all
    steps of a gap weigh the same. Matches may also come from other `sources`. Planes are match,
    delete, insert, and their extensions.
    """
    match, gaps = first, (first + 1, first + 2) if affine else (first + 1, first + 1)
    layers = sorted({match, *gaps})
    moves = [Move(source, match, 1, 1, (0,)) for source in (*sources, *layers)]
    for gap in sorted(set(gaps)):
        for source in layers:
            if gap == gaps[0]:
                longer = affine and source == gap
                moves.append(Move(source, gap, 1, 0, (3 if longer else 1,)))
            if gap == gaps[1]:
                longer = affine and source == gap
                moves.append(Move(source, gap, 0, 1, (4 if longer else 2,)))
    return moves, len(layers)


@cache
def lattice_of(mode: str, affine: bool) -> Lattice:
    """The lattice of a kind of alignment."""
    if mode == "monotone":
        return Lattice((Move(0, 0, 1, 1, (0,)), Move(0, 0, 1, 0, (0,))), (BOTH,), (0,))
    if mode == "warping":
        moves = Move(0, 0, 1, 1, (0,)), Move(0, 0, 1, 0, (0,)), Move(0, 0, 0, 1, (0,))
        return Lattice(moves, (BOTH,), (0,))
    planes = (BOTH, ROW, COLUMN, ROW, COLUMN)[: 5 if affine else 3]
    if mode == "global" and not affine:
        moves = Move(0, 0, 1, 1, (0,)), Move(0, 0, 1, 0, (1,)), Move(0, 0, 0, 1, (2,))
        return Lattice(moves, planes, (0,))
    if mode == "global":
        core, count = _core(0, (), affine)
        return Lattice(tuple(core), planes, tuple(range(count)))
    # Layers 0 and 1 skip rows, then columns before the first match; the last two those after the
    # last match. So each alignment is one path.
    core, count = _core(2, (0, 1), affine)
    rows, columns = 2 + count, 3 + count
    before = [Move(0, 0, 1, 0), Move(0, 1, 0, 1), Move(1, 1, 0, 1)]
    after = [Move(2, rows, 1, 0), Move(rows, rows, 1, 0)]
    after += [Move(source, columns, 0, 1) for source in (2, rows, columns)]
    return Lattice((*before, *core, *after), planes, (0, 1, 2, rows, columns))


def _shape_of(name: str, value: Tensor, batch: torch.Size, sizes: tuple[int, int]) -> torch.Size:
    """The shape of one element's potentials, [1] for one number."""
    n, m = sizes
    if name == "match":
        return torch.Size([n, m])
    row = name in ("delete", "delete_extend")
    own, full = [n if row else m], [n, m + 1] if row else [n + 1, m]
    if value.ndim == len(batch) + 2 and list(value.shape[-2:]) == full:
        shape = full
    else:
        shape = [1] if value.shape == (1,) else own
    good = list(value.shape[value.ndim - len(shape) :]) == shape
    good = good and arguments.broadcasts(value.shape, [*batch, *shape])
    wanted = f"must be {[*batch, *own]}, [] or {[*batch, *full]} for this match"
    expect(good, name, wanted, list(value.shape))
    return torch.Size(shape)


def _step_of(move: Move) -> int:
    """The code of a move's step."""
    if move.rows and move.columns:
        return MATCH
    if move.rows:
        return DELETE if move.planes else SKIP_ROW
    return INSERT if move.planes else SKIP_COLUMN


class Alignment(PathDistribution):
    """Alignments of n rows with m columns, p proportional to exp(sum of the scores of their steps).

    A path leads from the corner before the first row and column to the corner behind the last ones.
    Its steps are *matches* of a row and a column, scored by `match` [*b n m], *deletions* of a row
    and *insertions* of a column. `delete` is [*b n], or [] for all rows, or [*b n m+1]: by the
    number of columns before it. `insert` is [*b m], or [], or [*b n+1 m]: by the number of rows
    before it. [] makes one part, [1]. `lengths` and `target_lengths` [*b] say how many rows and
    columns are real.

    `gap="affine"` scores the first step of a gap by `delete` or `insert`, and those that follow it
    by `delete_extend` or `insert_extend`, of the same shapes. The constructor's `mode` is
    - "global": all rows and columns are aligned (Needleman-Wunsch; the pair-HMM);
    - "local": a part of them, from the first match to the last (Smith-Waterman). The rows and
      columns before and behind cost nothing; the alignment without a match has score 0;
    - "monotone": each row is matched with one column, the next row with the same or the next one,
      all columns in turn (monotonic alignment search); there are no gaps;
    - "warping": rows and columns may both be repeated: every step matches the row and the column
      that it leads to, and the first step leads to both first ones; see `Alignment.dtw`.
    The property `mode` is, as everywhere, the most probable event.

    Events are the steps [*b n+m], or [*b n] of "monotone": 0 for a step over a row and a column, 1
    over a row alone, 2 over a column alone, in local alignments 3 for a row that is left out and 4
    for a column (before the first match and after the last: rows first), and -1 behind the last
    step. `cells` says where steps lead. O(b n m) time and memory for all queries; half precision is
    computed in float32; `tier="reference"` runs plain torch code.

    >>> import torch
    >>> alike = (torch.tensor([1, 2, 3])[:, None] == torch.tensor([1, 3])).float()
    >>> gap = torch.tensor(-1.0)
    >>> alignment = Alignment(2 * alike - 1, gap, gap)
    >>> alignment.mode  # a match, a deletion, a match
    tensor([ 0,  1,  0, -1, -1])
    >>> alignment.marginals("match")["match"].round(decimals=2)
    tensor([[0.7900, 0.0000],
            [0.0900, 0.0900],
            [0.0000, 0.7900]])

    Durbin et al., "Biological sequence analysis" (1998), chapters 2 and 4.
    """

    event_name = "alignment"
    _wanted = "steps from the first row and column to the last"
    _shareable = frozenset({*GAPS, *EXTENSIONS})

    def __init__(
        self,
        match: Float[Tensor, "*b n m"],
        delete: Float[Tensor, " ..."] | None = None,
        insert: Float[Tensor, " ..."] | None = None,
        lengths: arguments.Lengths | None = None,
        target_lengths: arguments.Lengths | None = None,
        *,
        gap: str = "linear",
        mode: str = "global",
        delete_extend: Float[Tensor, " ..."] | None = None,
        insert_extend: Float[Tensor, " ..."] | None = None,
        tier: str | None = None,
    ) -> None:
        expect_one_of("mode", mode, MODES)
        expect_one_of("gap", gap, ("linear", "affine"))
        given = {
            "match": match, "delete": delete, "insert": insert,
            "delete_extend": delete_extend, "insert_extend": insert_extend,
        }  # fmt: skip
        arguments.refuse_non_tensors(**given)
        expect(match.ndim >= 2, "match", "must be [*b n m]", list(match.shape))
        self.kind, self.affine = mode, gap == "affine"
        needed = ("match",) + (GAPS if mode in ("global", "local") else ())
        needed += EXTENSIONS if self.affine and len(needed) > 1 else ()
        for name, value in given.items():
            if (value is None) == (name in needed):
                wanted = "must be given" if name in needed else "must be None"
                raise ArgumentError(name, f'{wanted} with mode="{mode}" and gap="{gap}"')
        self.lattice = lattice_of(mode, self.affine)
        batch_shape, sizes = match.shape[:-2], (match.shape[-2], match.shape[-1])
        potentials = {
            name: value if value.ndim else value[None]
            for name, value in given.items()
            if value is not None
        }
        self._shapes = {
            name: _shape_of(name, x, batch_shape, sizes) for name, x in potentials.items()
        }
        self._set_sizes(batch_shape, sizes, lengths, target_lengths, tier, match.device)
        self._set_event(batch_shape, self.lattice.steps(*sizes))
        for p, (name, value) in enumerate(potentials.items()):
            arguments.refuse_bad_values(name, value, partial(self._real_part, p, name))
        self.potentials = arguments.of_one_dtype(potentials)

    @classmethod
    def dtw(
        cls,
        costs: Float[Tensor, "*b n m"],
        temperature: float = 1.0,
        lengths: arguments.Lengths | None = None,
        target_lengths: arguments.Lengths | None = None,
        *,
        tier: str | None = None,
    ) -> Alignment:
        """Time warping paths by their costs: p proportional to exp(-cost / temperature).

        -temperature * log_partition() is soft-DTW, see `soft_dtw`; the path of least cost is the
        `mode`, at any temperature.

        >>> import torch
        >>> d = Alignment.dtw(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
        >>> d.mode, -d.log_partition()
        (tensor([ 0,  0, -1, -1]), tensor(-0.4076))
        """
        positive = isinstance(temperature, int | float) and 0 < temperature < float("inf")
        expect(positive, "temperature", "must be a positive number", temperature)
        arguments.refuse_non_tensors(costs=costs)
        arguments.refuse_non_floats("costs", costs)
        match = -costs / temperature
        return cls(match, None, None, lengths, target_lengths, mode="warping", tier=tier)

    @property
    def _part_shapes(self) -> dict[str, torch.Size]:
        return self._shapes

    def _real_part(self, p: int, name: str) -> Bool[Tensor, "*b ..."]:
        """Which entries of a potential are not padding; p is the number of its plane."""
        shape = self._shapes[name]
        table = self._as_plane(name, torch.empty(shape, device="meta")).shape
        return self._real_plane(p, table).reshape(self.batch_shape + shape)

    def _as_plane(self, name: str, value: Tensor) -> Tensor:
        """Values of one potential as a table [... rows columns]."""
        if len(self._shapes[name]) == 2:
            return value
        return value[..., None] if name.startswith("delete") else value[..., None, :]

    def _planes(self, values: Mapping[str, Inexact[Tensor, ...]]) -> Planes:
        return [self._as_plane(name, value) for name, value in values.items()]

    def _plane_items(self, items: BlockLabels) -> list[NDArray[np.int64]]:
        return [
            self._as_plane(name, torch.from_numpy(items.numbers(name))).numpy()
            for name in self._shapes
        ]

    def _moves_of(self, event: Int[Tensor, "*sb p"]) -> tuple[Tensor, Bool[Tensor, "*sb"]]:
        device, steps = event.device, event.clamp(NO_EVENT, SKIP_COLUMN)
        alone = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 0], [0, 1], [0, 0]], device=device)
        i, j = alone[steps].cumsum(-2).unbind(-1)
        n, m = self.lengths[..., None], self.target_lengths[..., None]
        here = torch.nn.functional.pad((i >= n) & (j >= m), (1, 0))
        arrived = here[..., :-1] | ((n == 0) & (m == 0))
        by_step, after = (x.to(device) for x in _automaton(self.lattice))
        matched = (steps == MATCH).long().cummax(-1).values if steps.shape[-1] else steps
        layers = after[steps, matched]
        before = torch.nn.functional.pad(layers[..., :-1], (1, 0))
        moves = by_step[before.clamp(min=0), steps]
        wrong = (steps != event) | (steps < 0) | (i > n) | (j > m) | (moves < 0)
        if not {*GAPS} & {*self._shapes}:  # every step matches a row and a column
            wrong = wrong | (i == 0) | (j == 0)
        last = torch.tensor(self.lattice.last, device=device)
        at_end = ~arrived & here[..., 1:] & (layers[..., None] != last).all(-1)
        never = ~here[..., -1] & ((n > 0) | (m > 0))[..., 0]
        bad = ((wrong & ~arrived) | at_end).any(-1) | never
        return moves.where(~arrived, NO_EVENT), bad

    def _of_moves(self, paths: Int[Tensor, "*m b p"]) -> Int[Tensor, "*m b p"]:
        steps = [_step_of(move) for move in self.lattice.moves]
        if steps == list(range(len(steps))):
            return paths
        codes = torch.tensor(steps, device=paths.device)
        return codes[paths.clamp(min=0)].where(paths >= 0, NO_EVENT)

    def _events(self, found: Int[Tensor, ...]) -> Int[Tensor, ...]:
        # The padding is -1 already.
        return found.reshape(*found.shape[:-2], *self.batch_shape, *self.event_shape)

    def cells(self, event: Int[Tensor, "*sb p"]) -> Int[Tensor, "*sb p 2"]:
        """The row and the column, from 0, that each step has last passed, -1 for none.

        For a match, "monotone" and "warping" that is the pair that it matches. -1 in the padding.
        """
        moves, _ = self._checked_moves(event)
        table = torch.from_numpy(self.lattice.arrays[0]).to(moves.device)[:, 3:5]
        passed = (table[moves.clamp(min=0)] * (moves >= 0)[..., None]).cumsum(-2) - 1
        return passed.where((moves >= 0)[..., None], NO_EVENT)

    def _whole(self, planes: Planes) -> Planes:
        whole = []
        for plane, table in zip(self.lattice.planes, planes, strict=True):
            n, m = self.sizes[0] + plane.more_rows, self.sizes[1] + plane.more_columns
            whole.append(table.expand(len(table), n, m))
        return whole

    def _gains(self, uses: Planes) -> Planes:
        if not self.affine:
            return uses
        match, *gaps = uses
        both = gaps[0] + gaps[2], gaps[1] + gaps[3]
        return [match, *both, *both]


@cache
def _automaton(lattice: Lattice) -> tuple[Tensor, Tensor]:
    """Moves [layer step] that make a step in a layer, and layers [step 2] that steps lead to.

    Before and after the first match; -1 for none, and for the step -1.
    """
    moves = torch.full((lattice.layers, 6), -1)
    layers = torch.full((6, 2), -1)
    before = {0, 1} if any(not move.planes for move in lattice.moves) else set()
    for number, move in enumerate(lattice.moves):
        step = _step_of(move)
        moves[move.source, step] = number
        if not before:
            layers[step] = move.target
        else:
            layers[step, int(move.target not in before)] = move.target
    return moves, layers


def soft_dtw(
    costs: Float[Tensor, "*b n m"],
    temperature: float = 1.0,
    lengths: arguments.Lengths | None = None,
    target_lengths: arguments.Lengths | None = None,
) -> Float[Tensor, "*b"]:
    """The soft minimum of the costs of all time warping paths, +inf if there is none.

    -temperature * log of the sum of exp(-cost / temperature); at temperature 0 exactly the least
    cost, whose gradient is 1 at the cells of the best path. O(b n m) time and memory, any length.

    >>> import torch
    >>> costs = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    >>> soft_dtw(costs), soft_dtw(costs, temperature=0.0)
    (tensor(-0.4076), tensor(0.))

    Cuturi & Blondel, "Soft-DTW: a differentiable loss function for time-series" (ICML 2017).
    """
    if temperature != 0:
        paths = Alignment.dtw(costs, temperature, lengths, target_lengths)
        return -temperature * paths.log_partition()
    paths = Alignment.dtw(costs, 1.0, lengths, target_lengths)
    return 0.0 - paths._score(paths.mode)
