"""Readers and writers: text files, facts."""

from inout._core.lazy import lazy_package

# Facts import torch, other files do not.
__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
