"""A hash table of integer rows: each distinct row gets a number, in order of appearance."""

from __future__ import annotations

import numpy as np

from inout._core.cpu.compiling import compiled, inner

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(29)


@inner
def _hash(rows, r):
    code = MULTIPLIER
    for c in range(rows.shape[1]):
        code = (code ^ np.uint64(rows[r, c])) * MULTIPLIER
        code ^= code >> SHIFT
    return code


@inner
def _copy_rows(target, first, source, start, size):
    # Written out: numba takes seconds to compile an assignment of slices, and this is on the way
    # of every first call.
    for r in range(size):
        for c in range(source.shape[1]):
            target[first + r, c] = source[start + r, c]


@inner
def _rehash(slots, store, count):
    for s in range(slots.shape[0]):
        slots[s] = -1
    mask = np.uint64(slots.shape[0] - 1)
    for r in range(count):
        slot = _hash(store, r) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = r


@compiled
def intern(slots, store, count, rows):
    """(number [n] of every row, slots, store, count) with the new rows added.

    `slots` [power of two] holds row numbers or -1, `store` [capacity, arity] the rows; both are
    replaced by larger copies when they fill up.
    """
    numbers = np.empty(rows.shape[0], dtype=np.int64)
    for r in range(rows.shape[0]):
        if 2 * (count + 1) > slots.shape[0]:
            slots = np.empty(4 * slots.shape[0], dtype=np.int64)
            _rehash(slots, store, count)
        mask = np.uint64(slots.shape[0] - 1)
        slot = _hash(rows, r) & mask
        while True:
            known = slots[slot]
            if known < 0:
                if count == store.shape[0]:
                    larger = np.empty((2 * count + 16, store.shape[1]), dtype=np.int64)
                    _copy_rows(larger, 0, store, 0, count)
                    store = larger
                _copy_rows(store, count, rows, r, 1)
                slots[slot] = count
                known = count
                count += 1
                break
            same = True
            for c in range(rows.shape[1]):
                if store[known, c] != rows[r, c]:
                    same = False
                    break
            if same:
                break
            slot = (slot + np.uint64(1)) & mask
        numbers[r] = known
    return numbers, slots, store, count
