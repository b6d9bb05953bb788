"""The cache of compiled code, and when it is valid.

numba reuses code as long as the function's own file does not change. But imported functions and
constants become part of a kernel. Here the name of the cache file contains a hash of the function's
module and of all modules of its package that it imports, directly or not. Bundles of arrays that a
kernel takes may come from other modules: their fields are part of the key in that file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import getfile
from pathlib import Path
from pickle import UnpicklingError  # noqa: TID251  # numba's own files
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime.nrt import rtsys
from numba.core.types import BaseTuple

from inout._core.compilation import tell

_FROM = re.compile(rb"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)", re.MULTILINE)
_IMPORT = re.compile(rb"^[ \t]*import[ \t]+([^\n]+)", re.MULTILINE)
_WORD = re.compile(rb"[\w.]+")


@cache
def _read(path: Path, root: Path) -> tuple[bytes, list[Path]]:
    """The hash of a file, and the files below `root` that it may import."""
    text = path.read_bytes()
    names = {word for line in _IMPORT.findall(text) for word in _WORD.findall(line)}
    for module, what in _FROM.findall(text):
        names |= {module, *(module + b"." + word for word in _WORD.findall(what))}
    found = []
    for name in sorted(names):
        if name.startswith(root.name.encode() + b"."):
            stem = root.parent.joinpath(*name.decode().split("."))
            found += [p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()]
    return hashlib.sha256(text).digest(), found


@cache
def source_stamp(path: Path) -> str:
    """A hash of a module and of all modules of its package that it imports, directly or not."""
    root = path.parent
    while (root.parent / "__init__.py").exists():
        root = root.parent
    digests: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file not in digests:
            digests[file], imported = _read(file, root)
            waiting += imported
    parts = (str(file.relative_to(root)).encode() + digests[file] for file in sorted(digests))
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


@contextmanager
def making(library: type[JITCodeLibrary], codegen: Any) -> Iterator[None]:
    """The code that numba makes in this context goes into libraries of this class."""
    before, codegen._library_class = codegen._library_class, library
    try:
        yield
    finally:
        codegen._library_class = before


def _fields(types: Iterable[Any]) -> tuple[Any, ...]:
    """The names of the fields of all named tuples among types, those within others as well."""
    tuples: list[Any] = [kind for kind in types if isinstance(kind, BaseTuple)]
    return tuple((getattr(kind, "fields", ()), _fields(kind)) for kind in tuples)


class _StampedFiles(CompileResultCacheImpl):
    """numba's cache of one function in a file whose name ends in the stamp of the sources."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._file = Path(getfile(function))
        super().__init__(function)

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        name: str = super().get_filename_base(fullname, abiflags)
        return f"{name}-{source_stamp(self._file)}"


class KernelCache(FunctionCache):
    """The compiled code of one function on disk, opened lazily.

    In NUMBA_CACHE_DIR, beside the source, or in the user's cache folder: the first that is
    writable.
    """

    _impl_class = _StampedFiles

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._open = False
        self._enabled = True
        # Hashed at import, not when compiled: by then a file may have changed.
        source_stamp(Path(getfile(function)))

    @property
    def cache_path(self) -> str | None:
        """The folder, or None if none is writable."""
        self._ensure_open()
        return self._cache_path if self._enabled else None

    @property
    def is_kept(self) -> bool:
        """Whether there is code for any signature on disk."""
        return self.cache_path is not None and Path(self._cache_file._index_path).exists()

    def _ensure_open(self) -> None:
        if self._open:
            return
        self._open = True
        try:
            super().__init__(self._function)
        except RuntimeError:  # no writable folder: compile in every process
            self.disable()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for a signature, or None: then it is compiled, and listeners are told."""
        self._ensure_open()
        found = None
        try:
            # numba would call `target_context.refresh()`, which imports all that compiling needs
            # and takes half a second. Code that is loaded needs no more than memory for arrays.
            rtsys.initialize(target_context)
            codegen = target_context.codegen()
            with making(JITCodeLibrary, codegen), self._guard_against_spurious_io_errors():
                found = self._load_overload(sig, target_context)
        except (AttributeError, ImportError, EOFError, LookupError, ValueError, UnpicklingError):
            # A bundle that is an argument of kept code has another name or stands elsewhere, or
            # the file is damaged.
            self._cache_file.flush()
        if found is None:
            tell(f"{self._function.__module__}.{self._function.__qualname__}")
        return found

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """numba's key, and the fields of bundles: their modules need not be imported here."""
        return (*super()._index_key(sig, codegen), _fields(sig))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the code, and remove code compiled from older sources."""
        super().save_overload(sig, data)
        if self._enabled:
            folder, base = Path(self._cache_path), self._impl.filename_base
            function, stamp = base.split("-")[0], base.split("-")[-1]
            for file in folder.glob(f"{function}-*.nb[ic]"):
                if stamp not in file.name:
                    file.unlink(missing_ok=True)
