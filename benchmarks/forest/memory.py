"""Peak memory of building a forest and of its passes, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

import numpy as np

from benchmarks.forest.generator import Edges, random_edges
from benchmarks.resident import resident, start_of_phase

ROOT = Path(__file__).parents[2]


def peak_memory(edges: Edges) -> dict[str, int]:
    """Bytes by which memory grows at its peak: {"all": ..., "passes": ...}.

    "all" is from before the input arrays are there to after the passes, "passes" from the
    finished forest on. Imports and compilation come before either.
    """
    with tempfile.TemporaryDirectory() as folder:
        for field in fields(Edges):
            np.save(Path(folder) / f"{field.name}.npy", getattr(edges, field.name))
        script = "import sys; from benchmarks.forest import memory; memory.probe(sys.argv[1])"
        command = [sys.executable, "-c", script, folder]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    peaks: dict[str, int] = json.loads(done.stdout)
    return peaks


def probe(folder: str) -> None:
    """Print the peaks, as JSON, for the edges saved in a folder."""
    random_edges(100, 1000, arity=2, seed=0).build().expected_counts()  # compiles
    at_first = start_of_phase()
    names = [field.name for field in fields(Edges)]
    num_items, *arrays = (np.load(Path(folder) / f"{name}.npy") for name in names)
    edges = Edges(int(num_items), *arrays)
    forest = edges.build()
    building = resident("VmHWM")
    with_forest = start_of_phase()
    forest.expected_counts()
    passes = resident("VmHWM")
    print(json.dumps({"all": max(building, passes) - at_first, "passes": passes - with_forest}))
