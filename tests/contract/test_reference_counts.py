"""References to arrays in compiled code: counted where arrays are made, and nowhere lost."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from inout._core.cpu.compiling import compiled, inner

# Every problem twice: the second time, all that is made must be freed again.
EVERY_PROBLEM = """
import gc
from numba.core.runtime import rtsys
from inout.cli.warmup.problems import FAMILIES

for family, problems in FAMILIES.items():
    for number, problem in enumerate(problems):
        problem()
        gc.collect()
        before = rtsys.get_allocation_stats()
        problem()
        gc.collect()
        after = rtsys.get_allocation_stats()
        made, freed = after.mi_alloc - before.mi_alloc, after.mi_free - before.mi_free
        print(family, number, made, freed)
"""


@inner
def doubled(values):
    for i in range(len(values)):
        values[i] *= 2


@inner(returns_arrays=True)
def first_half(values):
    return values[: len(values) // 2]


@inner
def second_half(values):
    return values[len(values) // 2 :]


@inner
def fresh(size):
    return np.zeros(size)


@compiled
def fill_one_half(values):
    doubled(first_half(values))


@compiled
def lose_one_half(values):
    doubled(second_half(values))


@compiled
def make(size):
    values = fresh(size)
    doubled(values)
    return values


def counts(function) -> bool:
    return function.targetoptions["_nrt"]


def test_only_where_arrays_are_made_or_returned():
    assert [counts(f) for f in (doubled, first_half, fresh)] == [False, True, True]
    assert [counts(f) for f in (fill_one_half, make)] == [True, True]
    values = np.ones(4)
    fill_one_half(values)
    assert values.tolist() == [2, 2, 1, 1]
    assert make(2).tolist() == [0, 0]


def test_returning_what_is_not_counted_is_refused():
    with pytest.raises(Exception, match=r"returns_arrays=True|Only accept returning of array"):
        lose_one_half(np.ones(4))


@compiled
def twice_each(values):
    return np.repeat(values, 2)


def test_functions_of_numba_that_kernels_link_serve_other_code():
    values = np.arange(1, 4, dtype=np.int16)
    assert twice_each(values).tolist() == [1, 1, 2, 2, 3, 3]
    assert njit(lambda values: np.repeat(values, 2)[1:])(values).tolist() == [1, 2, 2, 3, 3]


@pytest.mark.exhaustive
def test_no_kernel_loses_an_array():
    environment = os.environ | {"NUMBA_NRT_STATS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", EVERY_PROBLEM], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) > 20
    assert sum(int(made) for *_, made, _ in rows) > 100
    assert [row for row in rows if row[-2] != row[-1]] == []
