"""`Ties`: histories that share a row of weights, because a function gives them the same key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.kernels.lattice.arrays import Integers, Nodes, Slots, Streams

if TYPE_CHECKING:
    from inout.kernels.lattice.histories import Histories

KeyOf = Callable[..., str | None]

# What stands in place of the row of a history that has none.
NEW, NO_KEY, UNKNOWN_KEY = -1, -2, -3

BEGIN, STAR = -1, -2  # beside 0, 1, … in histories

# Threads that ask one model add to the same table.
LOCK = RLock()


class Ties:
    """Functions that say which histories of a stream are the same to it; a row for each key.

    functions[s] gets a history of stream s, its symbols from the oldest to the latest with `BEGIN`
    and `STAR`, and where the stream shows the next input, that too; None: every history of this
    stream has a row of its own. It is called once for each history, after the selection that met
    it: so there is no Python in the kernel.
    """

    def __init__(
        self, functions: Sequence[KeyOf | None], rows: Sequence[dict[str, int]] | None = None
    ) -> None:
        self.functions = tuple(functions)
        self.rows = [dict(one) for one in rows or [{}] * len(self.functions)]
        """Where the weights of each key begin, by stream."""

    def lengths(self, streams: Streams) -> Iterator[tuple[int, int]]:
        """(stream, the length of its histories) of all streams that have a function."""
        if len(self.functions) != len(streams.widths):
            raise ArgumentError(
                "functions", f"must be {len(streams.widths)}, as streams. Got {len(self.functions)}"
            )
        own = np.arange(streams.num_actions)
        for s in self.streams:
            used = np.flatnonzero(streams.lengths[s])
            if len(used) != 1 or streams.pairs[s] or not np.array_equal(streams.symbols[s], own):
                raise ArgumentError(
                    "functions",
                    f": stream {s} has a function: it must show all actions as they are, with "
                    "histories of one length",
                )
            yield s, int(used[0])

    @property
    def streams(self) -> list[int]:
        """The numbers of the streams that have a function."""
        return [s for s, function in enumerate(self.functions) if function is not None]

    def settle(
        self, histories: Histories, nodes: Nodes, slots: Slots, inputs: Integers, grow: bool
    ) -> bool:
        """Give histories that were not met before the rows of their keys; whether one has a row.

        With `grow`, keys that are new get a row of zeros; without, they count 0.
        """
        has_rows = False
        depth = histories.streams.depth + 1
        for s, length in self.lengths(histories.streams):
            f, sees_input = s * depth + length, bool(histories.streams.next_input[s])
            if sees_input:
                contexts = slots.nodes[: slots.offsets[-1]]
                starts = slots.rows[: len(contexts), f]
            else:
                contexts = np.arange(nodes.offsets[-1], dtype=np.int32)
                starts = histories.starts(nodes.history[contexts, f])
            met = np.flatnonzero((starts == NEW) | ((starts == UNKNOWN_KEY) & grow))
            if not len(met):
                continue
            own, given = nodes.history[contexts[met], f], None
            if sees_input:
                given = np.repeat(inputs, np.diff(slots.offsets))[met]
                own = histories.before(s, own, given)
            found, firsts = np.unique(own, return_index=True)
            function = self.functions[s]
            assert function is not None
            shown = map(tuple, _symbols(nodes, contexts[met[firsts]], length).tolist())
            if given is None:
                keys = [function(one) for one in shown]
            else:
                keys = list(map(function, shown, given[firsts].tolist()))
            known = len(self.rows[s])
            rows = np.array([self._row(histories, s, key, grow) for key in keys], np.int64)
            histories.tie(found, rows)
            if len(self.rows[s]) > known:
                histories.untie(UNKNOWN_KEY, NEW)  # their keys may be among those that are new
            has_rows |= bool((rows >= 0).any())
        return has_rows

    def _row(self, histories: Histories, stream: int, key: str | None, grow: bool) -> int:
        if key is None:
            return NO_KEY
        start = self.rows[stream].get(key)
        if start is None:
            if not grow:
                return UNKNOWN_KEY
            start = self.rows[stream][key] = histories.new_row(stream)
        return start

    def copy(self) -> Ties:
        """The same functions, with a table of keys of its own."""
        return Ties(self.functions, self.rows)


def _symbols(nodes: Nodes, contexts: NDArray[Any], length: int) -> NDArray[np.int64]:
    """The last symbols of contexts, from the oldest to the latest: [v k]."""
    anchored = nodes.is_anchored[contexts]
    remembered = nodes.lens[contexts] - anchored
    before = np.where(anchored, BEGIN, STAR)
    found = np.empty((len(contexts), length), np.int64)
    for k in range(length):
        found[:, length - 1 - k] = np.where(k < remembered, nodes.symbols[contexts], before)
        contexts = np.where(k < remembered, nodes.parents[contexts], contexts)
    return found
