"""Grammars in other forms with the same trees, and the way back."""

from inout._core.lazy import lazy_package

# All of them import torch, and a grammar knows them without it.
__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
