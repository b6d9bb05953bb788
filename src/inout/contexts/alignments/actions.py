"""Alignments as sequences of actions: the columns, streams and targets for the context kernels.

Each action adds one edge. With v letters they are numbered

    a          NEXT: the next symbol of the input, with a new letter a
    v + a      SAME: the same symbol, with one more letter a
    2v         SHARE: the next symbol shares the last letter
    2v + 1     END: no edge; behind the last symbol of the input
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import at_least
from inout._core.errors import ArgumentError
from inout.contexts.alignments.alignment import NEXT, SAME, SHARE, Alignment
from inout.kernels.lattice.arrays import Columns, Integers, Numbers, Streams, Targets

MOST_LETTERS = 3


def alignment_columns(
    inputs: Sequence[Sequence[int] | Integers],
    letters: int,
    *,
    most_letters: int = MOST_LETTERS,
    many_to_many: bool = False,
) -> Columns:
    """The columns of all monotone alignments of each input, with outputs of any letters.

    Symbol j of an input has a column (j, k) for each number k of letters that it can have, up to
    `most_letters`, and (j, shared) where it shares the letter of the symbol before it. NEXT leads
    to (j, 1) from all columns of j-1, SAME to (j, k) from (j, k-1), SHARE to (j, shared) from
    (j-1, 1) and (j-1, shared). With `many_to_many` a symbol can share a letter and have others
    too: SHARE comes from all columns of j-1, and SAME from (j, shared) as well. Symbol j of all
    inputs together is row j of the matrix of emission scores.

    >>> columns = alignment_columns([[0, 1], [1]], letters=26, most_letters=2)
    >>> columns.firsts.tolist()
    [0, 7, 11]
    >>> columns.inputs.tolist()
    [-1, 0, 0, 1, 1, 1, -1, -1, 1, 1, -1]
    """
    at_least("letters", letters, 1)
    at_least("most_letters", most_letters, 1)
    lengths = [len(symbols) for symbols in inputs]
    if 0 in lengths:
        raise ArgumentError("inputs", f"must not be empty. Got an empty one at {lengths.index(0)}")
    plans = [_plan(length, letters, most_letters, many_to_many) for length in lengths]
    firsts = _offsets([plan.size for plan in plans])
    symbols = [np.append(np.asarray(given, np.int32), np.int32(-1)) for given in inputs]
    starts = _offsets(lengths)[:-1]
    return Columns(
        firsts=firsts,
        source_offsets=_offsets(
            _joined(np.diff(plan.source_offsets).astype(np.int32) for plan in plans)
        ),
        sources=_joined(
            plan.sources + np.int32(first) for plan, first in zip(plans, firsts[:-1], strict=True)
        ),
        first_actions=_joined(plan.first_actions for plan in plans),
        end_actions=_joined(plan.end_actions for plan in plans),
        # The rows of a plan are places in its input, -1 the place behind it.
        inputs=_joined(
            given[plan.emission_rows] for plan, given in zip(plans, symbols, strict=True)
        ),
        emission_rows=_joined(
            np.where(plan.emission_rows < 0, -1, plan.emission_rows + start).astype(np.int32)
            for plan, start in zip(plans, starts, strict=True)
        ),
    )


@lru_cache(maxsize=1024)
def _plan(length: int, letters: int, most_letters: int, many_to_many: bool) -> Columns:
    """The columns of one input of this length, whose symbols are 0 .. length-1."""
    sources: list[list[int]] = [[]]
    actions = [(0, 0)]
    rows = [-1]
    before = [0]  # the columns of the symbol before
    sharing = [0]  # those of them that SHARE comes from

    def add(comes_from: list[int], first: int, end: int, row: int) -> int:
        sources.append(comes_from)
        actions.append((first, end))
        rows.append(row)
        return len(sources) - 1

    share, end = 2 * letters, 2 * letters + 1
    for j in range(length):
        last = [add(before, 0, letters, j)]
        ours, stars = list(last), list(last)
        if j > 0:
            shared = add(sharing, share, end, j)
            ours.append(shared)
            stars.append(shared)
            if many_to_many:
                last.append(shared)
        for _ in range(1, most_letters):
            last = [add(last, letters, share, j)]
            ours += last
        before, sharing = ours, ours if many_to_many else stars
    add(before, end, end + 1, -1)
    return Columns(
        firsts=np.array([0, len(sources)], np.int64),
        source_offsets=_offsets([len(some) for some in sources]),
        sources=np.array([c for some in sources for c in some], np.int32),
        first_actions=np.array([first for first, _ in actions], np.int32),
        end_actions=np.array([end for _, end in actions], np.int32),
        inputs=np.array(rows, np.int32),
        emission_rows=np.array(rows, np.int32),
    )


def alignment_streams(
    inputs: int, letters: int, letter_lengths: Iterable[int], edge_lengths: Iterable[int]
) -> Streams:
    """Two streams: the letters of the output, and the edges with the symbols of the input.

    Lengths are those of the histories that have weights: 0 to 4 for all n-grams up to 5. The end
    is one more letter, and no edge.
    """
    at_least("inputs", inputs, 1)
    at_least("letters", letters, 1)
    each = np.arange(letters, dtype=np.int32)
    actions = np.arange(2 * letters + 1, dtype=np.int32)
    chosen = [sorted(set(letter_lengths)), sorted(set(edge_lengths))]
    if any(length < 0 for lengths in chosen for length in lengths):
        raise ArgumentError("letters", f": lengths of histories must be 0 or more. Got {chosen}")
    used = np.zeros((2, 1 + max((x for lengths in chosen for x in lengths), default=0)), np.bool_)
    for stream, lengths in enumerate(chosen):
        used[stream, lengths] = True
    none = np.int32(-1)
    return Streams(
        num_actions=2 * letters + 2,
        symbols=np.stack([np.r_[each, each, none, none], np.append(actions, none)]),
        places=np.stack([np.r_[each, each, none, np.int32(letters)], np.append(actions, none)]),
        widths=np.array([letters + 1, 2 * letters + 1], np.int32),
        pairs=np.array([False, True]),
        next_input=np.array([False, True]),
        lengths=used,
        num_inputs=inputs,
    )


def letter_targets(outputs: Sequence[Sequence[int] | Integers], letters: int) -> Targets:
    """Targets where the letters are known and the alignment is hidden."""
    each = np.arange(letters, dtype=np.int32)
    none = np.int32(-1)
    return Targets(
        symbols=np.r_[each, each, none, none],
        strings=_joined(np.asarray(output, np.int32) for output in outputs),
        offsets=_offsets([len(output) for output in outputs]),
    )


def action_targets(paths: Sequence[Sequence[int] | Integers], letters: int) -> Targets:
    """Targets where the whole sequence of actions is known, with END."""
    return Targets(
        symbols=np.arange(2 * letters + 2, dtype=np.int32),
        strings=_joined(np.asarray(path, np.int32) for path in paths),
        offsets=_offsets([len(path) for path in paths]),
    )


def alignment_actions(alignment: Alignment, output: Sequence[int], letters: int) -> list[int]:
    """The actions that make an alignment, with END; `output` has the numbers of its letters."""
    actions = []
    for (_, k), step in zip(alignment.edges, alignment.steps(), strict=True):
        actions.append({NEXT: output[k], SAME: letters + output[k], SHARE: 2 * letters}[step])
    return [*actions, 2 * letters + 1]


def alignment_of_actions(
    actions: Sequence[int] | Integers, symbols: Sequence[str], letters: Sequence[str]
) -> Alignment:
    """The alignment that actions (END is ignored) make of an input.

    >>> print(alignment_of_actions([1, 4, 0, 6, 7], ["B", "AH", "L"], ["a", "b", "l"]))
    | B  | AH L |
    | bb | a    |
    """
    v = len(letters)
    edges = [action for action in actions if action <= 2 * v]
    output = [letters[action % v] for action in edges if action < 2 * v]
    steps = [NEXT if action < v else SAME if action < 2 * v else SHARE for action in edges]
    return Alignment.from_steps(symbols, output, steps)


def _offsets(sizes: Sequence[int] | Integers) -> Numbers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def _joined(parts: Iterable[NDArray[np.int32]]) -> Integers:
    listed = list(parts)
    return np.concatenate(listed) if listed else np.zeros(0, np.int32)
