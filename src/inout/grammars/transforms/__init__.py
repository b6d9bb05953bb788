"""Transforms of grammars that preserve their trees, with the mapping back."""

from inout._core.lazy import lazy_package

# All of them import torch, which grammars do not need.
__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
