"""Files of models: arrays in safetensors, all else as JSON in their header."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from inout._core.errors import ArgumentError, FileError
from inout.io.files import read_bytes, write_bytes

LATENT_GRAMMAR = "inout-latent"
"""The key of files of latent grammars."""

Arrays = Mapping[str, NDArray[Any]]

# What reading a header, or making a model of a damaged file, may raise.
_UNREADABLE = (
    SafetensorError, AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
)  # fmt: skip


def write_model(
    path: str | Path, key: str, version: int, content: Mapping[str, Any], arrays: Arrays
) -> None:
    """Write a model atomically; the `key` of its content tells its kind."""
    try:
        described = json.dumps({"version": version, **content})
    except (TypeError, ValueError) as error:
        raise ArgumentError("training", f"must be plain data to be written. {error}") from error
    write_bytes(path, save(dict(arrays), {key: described}))


def read_model(
    path: str | Path, key: str, version: int, what: str
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """(content, arrays) of a model file; `FileError` if it is not one. `what` names its kind."""
    data = read_bytes(path)
    try:
        arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        content = json.loads(header["__metadata__"][key])
        found = content["version"]
    except _UNREADABLE as error:
        complaint = f"this is no {what} of inout"
        if has_key(path, key):
            complaint = f"the {what} is damaged, or cut short"
        raise FileError(f"{complaint}. {_why(error)}", file=path) from error
    if found != version:
        raise FileError(f"the model must have version {version}. Got {found!r:.80}", file=path)
    return content, arrays


@contextmanager
def made_of(path: str | Path, what: str) -> Iterator[None]:
    """Report errors while a model is made from its content as a damaged file."""
    try:
        yield
    except _UNREADABLE as error:
        raise FileError(f"the {what} is damaged. {_why(error)}", file=path) from error


def has_key(path: str | Path, key: str) -> bool:
    """Whether a file begins like one that `write_model` writes under this key."""
    try:
        with Path(path).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            return f'"{key}"'.encode() in file.read(min(length, 4096))
    except OSError:
        return False


def _why(error: Exception) -> str:
    return f"It has no {error}" if isinstance(error, KeyError) else f"{error}"
