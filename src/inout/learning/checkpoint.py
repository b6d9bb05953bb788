"""Checkpoints: the state of a training run in one file, written atomically, for that run only.

A file is safetensors: the tensors of the state, and in its header, as JSON, everything else and
the *identity* of the run, which is a digest of each thing that the result depends on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from inout._core.errors import ArgumentError, FileError, InoutError, Remedy
from inout.deduction import Facts
from inout.grammars import Grammar
from inout.io.files import check_writable, write_bytes
from inout.learning.model import GenerativeModel, Parameters

VERSION = 1
_TENSOR = "tensor"


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a run is kept, and what it is: `identity` has a short text for each ingredient."""

    path: Path
    kind: str
    identity: Mapping[str, str]

    @staticmethod
    def opened(
        path: str | Path | None,
        kind: str,
        identity: Callable[[], Mapping[str, str]],
        *,
        resume: bool,
    ) -> tuple[Checkpoint | None, Any]:
        """The checkpoint, if there is a path, and the state to resume from, if it is resumed.

        Raises where a file would be overwritten, or is not a checkpoint of this run.
        """
        if path is None:
            if resume:
                raise ArgumentError("resume", "needs a checkpoint. Got checkpoint=None")
            return None, None
        checkpoint = Checkpoint(Path(path), kind, identity())
        check_writable(path)
        if resume:
            return checkpoint, checkpoint.load()
        if checkpoint.path.exists():
            raise FileError("this checkpoint exists already", file=path, remedy=Remedy.RESUME)
        return checkpoint, None

    def save(self, state: Any) -> None:
        """Write the state: nested dicts and lists of tensors, numbers, texts and None.

        The former checkpoint stays where this one cannot be written.
        """
        tensors: dict[str, Tensor] = {}
        content = {
            "version": VERSION,
            "kind": self.kind,
            "identity": dict(self.identity),
            "state": _packed(state, tensors),
        }
        data = save_tensors(tensors, {"inout": json.dumps(content)})
        existed = self.path.exists()
        try:
            write_bytes(self.path, data)
        except FileError as error:
            rest = "the former one is still there" if existed else "there is none yet"
            raise FileError(
                f"{error.message} (while a checkpoint was written; {rest})", file=error.file
            ) from error

    def load(self) -> Any:
        """The state in the file; refused if it belongs to another run."""
        content, tensors = _read(self.path)
        if content.get("kind") != self.kind:
            given = f"{self.path}, which is one of {content.get('kind')}"
            raise ArgumentError("checkpoint", f"must be one of {self.kind}. Got {given}")
        before = content.get("identity", {})
        changed = [
            f"{name} was {before.get(name, 'nothing')} and is {value}"
            for name, value in self.identity.items()
            if before.get(name) != value
        ]
        if changed:
            given = f"{self.path}, where {'; '.join(changed)}"
            raise ArgumentError("checkpoint", f"must be of the same run. Got {given}")
        return _unpacked(content["state"], tensors)


@contextmanager
def discarded_if_refused(checkpoint: Checkpoint | None, resumed: Any) -> Iterator[None]:
    """Remove the checkpoint of a new run that cannot be trained: it would fail again.

    Left, it would stand in the way of the next run. After a crash, an interrupt or a full disk,
    and where a run was resumed, it stays.
    """
    try:
        yield
    except InoutError as error:
        if checkpoint is not None and resumed is None and not isinstance(error, FileError):
            checkpoint.path.unlink(missing_ok=True)
        raise


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FileError("there is no checkpoint to resume", file=path) from None
    except OSError as error:
        raise FileError(error.strerror or str(error), file=path) from error
    try:
        tensors = load_tensors(data)
        size = int.from_bytes(data[:8], "little")
        content = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["inout"])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise FileError("not a checkpoint, or a damaged one", file=path) from error
    found = content.get("version")
    if found != VERSION:
        raise FileError(f"the checkpoint must have version {VERSION}. Got {found}", file=path)
    return content, tensors


def _packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The value as JSON, with numbers in place of its tensors, which are collected."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, np.ndarray):
        return _packed(torch.from_numpy(value.copy()), tensors)
    if isinstance(value, Mapping):
        return {"keys": list(value), "values": [_packed(v, tensors) for v in value.values()]}
    if isinstance(value, list | tuple):
        return [_packed(v, tensors) for v in value]
    return value


def _unpacked(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpacked(v, tensors) for v in value]
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        values = [_unpacked(v, tensors) for v in value["values"]]
        return dict(zip(value["keys"], values, strict=True))
    return value


def digest(value: Any) -> str:
    """Sixteen hexadecimal digits of what a value says: texts, numbers, arrays, and nested ones.

    The same in every process. Objects of other kinds count with their `repr`, unless that names
    a place in memory; then with their class only.

    >>> digest([["a", "b"], ["c"]]) == digest((("a", "b"), ("c",)))
    True
    >>> digest([["a", "b"], ["c"]]) == digest([["a"], ["b", "c"]])
    False
    """
    sha = hashlib.sha256()
    for piece in _pieces(value):
        sha.update(len(piece).to_bytes(8, "little"))
        sha.update(piece)
    return sha.hexdigest()[:16]


def model_digest(model: GenerativeModel, parameters: Parameters) -> str:
    """A digest of a model: its structure, where it has a fingerprint, and its parameters."""
    if hasattr(model, "fingerprint"):
        structure = model.fingerprint()
    elif isinstance(model, Grammar):
        structure = model.to_text("json")
    else:
        structure = type(model).__qualname__
    return digest([structure, parameters.log_weights, parameters.groups])


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield f"array {value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, str):
        yield b"str"
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, bool | int | float | np.generic) or value is None:
        yield repr(value.item() if isinstance(value, np.generic) else value).encode()
    elif isinstance(value, bytes):
        yield b"bytes"
        yield value
    elif isinstance(value, Facts):
        yield from _pieces([value.rows, value.log_weights])
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key, item in value.items():
            yield from _pieces(key)
            yield from _pieces(item)
    elif isinstance(value, Sequence | np.ndarray):
        label = value.label() if hasattr(value, "label") else None  # of nltk's trees
        yield f"sequence {len(value)} {label!r}".encode()
        for item in value:
            yield from _pieces(item)
    elif isinstance(value, set | frozenset):
        yield f"set {len(value)}".encode()
        yield from sorted(digest(item).encode() for item in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value).__qualname__.encode()
        for field in dataclasses.fields(value):
            yield from _pieces(getattr(value, field.name))
    else:
        text = repr(value)
        yield (type(value).__qualname__ if " at 0x" in text else text).encode()
