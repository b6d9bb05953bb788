"""`lazy_property`: made once, without a lock; `LazySequence`: its elements are made on demand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")
Element = TypeVar("Element", covariant=True)


class lazy_property(Generic[Value]):
    """`functools.cached_property` without the lock that it has before Python 3.12.

    That lock belongs to the class: threads that each make the property of an object of their own
    would wait for each other. Here two threads with one object may both make its property, and
    one of the results is kept.
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
        # Found there from now on: attributes of an object go before those of this kind.
        value = instance.__dict__[self.name] = self.make(instance)
        return value


class LazySequence(Sequence[Element]):
    """A sequence that makes an element each time it is asked for; slices are lists."""

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
