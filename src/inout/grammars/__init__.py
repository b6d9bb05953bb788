"""Weighted context-free grammars: rules, formats, diagnoses."""

from inout._core.lazy import lazy_package

# Parsers import torch and compiled code; grammars themselves need neither.
__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
