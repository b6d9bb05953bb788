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


@compiled
def intern(slots, store, count, rows, numbers):
    """Writes the number of every row into `numbers`, until half the slots are taken.

    Returns how many rows were numbered, and how many are stored now. `slots` [power of two] holds
    numbers or -1, `store` [half as many, arity] the rows.
    """
    mask = np.uint64(slots.shape[0] - 1)
    for r in range(rows.shape[0]):
        slot = _hash(rows, r) & mask
        while True:
            known = slots[slot]
            if known < 0:
                if count == store.shape[0]:
                    return r, count
                for c in range(rows.shape[1]):
                    store[count, c] = rows[r, c]
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
    return rows.shape[0], count
