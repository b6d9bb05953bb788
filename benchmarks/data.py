"""Where shared data files are: $INOUT_DATA, or ../shared/data beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

BESIDE = Path(__file__).parents[2] / "shared" / "data"


class DataMissingError(Exception):
    """A data file that a workload needs is not there."""


def data_file(name: str) -> Path:
    """The path of a data file, such as "grammars/toy.cfg"."""
    folder = Path(os.environ.get("INOUT_DATA", BESIDE))
    path = folder / name
    if not path.is_file():
        raise DataMissingError(
            f"this workload needs {name}, which is neither in the folder that INOUT_DATA names "
            "nor in ../shared/data beside the repository"
        )
    return path
