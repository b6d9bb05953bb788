"""What a fault is: in one function of one file, one text in place of another."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path("src") / "inout"


class StaleFaultError(Exception):
    """The text that a fault replaces is not there, or not there exactly once."""


@dataclass(frozen=True)
class Fault:
    """A mistake that somebody could make, and the tests that must notice it.

    Places are named by function and text, so that a fault still applies when lines move. `tests`
    are what pytest is given: part of the default tier, chosen so that a run takes seconds.
    """

    name: str
    file: str  # below src/inout
    function: str  # its qualified name, as `Forest.kbest`; "" for the module
    text: str
    instead: str
    tests: tuple[str, ...]

    @property
    def family(self) -> str:
        return self.name.partition(":")[0]

    def planted(self, source: str) -> str:
        """`source`, all of the file, with the fault in it."""
        lines = source.splitlines(keepends=True)
        first, last = _lines_of(self.function, source, self.file)
        before, inside = "".join(lines[:first]), "".join(lines[first:last])
        found = inside.count(self.text)
        if found != 1:
            raise StaleFaultError(
                f"fault {self.name!r}: its text must stand once in {self.function or 'the module'} "
                f"of {self.file}. Found {found} times: {self.text!r}"
            )
        changed = inside.replace(self.text, self.instead)
        return before + changed + "".join(lines[last:])

    def plant(self, root: Path) -> None:
        """Change the file in the tree at `root`."""
        path = root / PACKAGE / self.file
        if not path.is_file():
            raise StaleFaultError(f"fault {self.name!r}: there is no file {self.file}")
        path.write_text(self.planted(path.read_text(encoding="utf-8")), encoding="utf-8")


def _lines_of(function: str, source: str, file: str) -> tuple[int, int]:
    """The lines of a function: the first, and the one after the last, counted from 0."""
    node: ast.AST = ast.parse(source)
    if not function:
        return 0, source.count("\n") + 1
    for name in function.split("."):
        inner = (n for n in ast.walk(node) if n is not node and getattr(n, "name", None) == name)
        found = [n for n in inner if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        if len(found) != 1:
            raise StaleFaultError(f"{file} must have one {function}. Found {len(found)}")
        node = found[0]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    assert node.end_lineno is not None
    return node.lineno - 1, node.end_lineno
