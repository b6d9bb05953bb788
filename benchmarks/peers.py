"""Importing the libraries we compare ourselves with, when a workload needs them."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from benchmarks.data import DataMissingError


def peer(module: str, package: str) -> Any:
    """The imported module of a peer; the error says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise DataMissingError(
            f"this workload compares with {package}, which is not installed ({error}); "
            "`make bench NAME=...` and `pip install -c constraints.txt -e '.[bench]'` install it"
        ) from error


def torch_struct() -> Any:
    """torch-struct, quiet about the `arg_constraints` that its classes lack."""
    warnings.filterwarnings("ignore", message=r".*does not define `arg_constraints`")
    return peer("torch_struct", "torch-struct")
