"""inout: exact inference and learning in structured models with an inside algorithm."""

from inout._core.lazy import lazy_package

# Most of what `__init__.pyi` lists imports torch, which takes seconds.
__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
