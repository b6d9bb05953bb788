"""Lazy properties, sequences and imports."""

from __future__ import annotations

import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")
Element = TypeVar("Element", covariant=True)

_EXPORT = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)


class lazy_property(Generic[Value]):
    """`functools.cached_property` without the lock that it has before Python 3.12.

    That lock belongs to the class, so threads with different objects would wait for each other.
    Here two threads with the same object may both compute its property, and one result is kept.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self.make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy_property[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        # From now on the instance attribute takes precedence over this descriptor.
        value = instance.__dict__[self.name] = self.make(instance)
        return value


class LazySequence(Sequence[Element]):
    """A sequence whose elements are created on access; slices are lists."""

    @abstractmethod
    def _made(self, index: int) -> Element:
        """The element at `index`, 0 <= index < len."""

    @overload
    def __getitem__(self, index: int) -> Element: ...
    @overload
    def __getitem__(self, index: slice) -> list[Element]: ...
    def __getitem__(self, index: int | slice) -> Element | list[Element]:
        if isinstance(index, slice):
            return [self._made(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"element {index} of {len(self)}")
        return self._made(index % len(self))


class LazyModule:
    """A module that is imported when one of its attributes is first used.

    Unlike with `importlib.util.LazyLoader`, it is not in `sys.modules` before that.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def lazy_package(
    name: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package that imports its names on first use.

    The names are listed once, in the stub `__init__.pyi` beside `file`, the package's
    `__init__.py`: a line `from MODULE import NAME as NAME` each. Type checkers read it too.
    """
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    homes = {attribute: home for home, attribute in _EXPORT.findall(stub)}
    namespace = vars(sys.modules[name])

    def get(attribute: str) -> Any:
        home = homes.get(attribute)
        if home is None:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        if home == name:
            value: Any = import_module(f"{name}.{attribute}")
        else:
            value = getattr(import_module(home), attribute)
        namespace[attribute] = value
        return value

    return get, lambda: sorted({*namespace, *homes}), sorted(homes)
