"""inout: exact inference and learning in structured models with an inside algorithm."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

# The stub lists every public name: `from HOME import NAME as NAME`. A name is imported when it is
# first used: most need torch, which takes seconds to import, and `inout --help` should not wait.
_STUB = Path(__path__[0], "__init__.pyi").read_text(encoding="utf-8")
_HOMES = {
    words[3]: words[1] for words in map(str.split, _STUB.splitlines()) if words[:1] == ["from"]
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'inout' has no attribute {name!r}")
    value = (
        import_module(f"inout.{name}") if home == "inout" else getattr(import_module(home), name)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
