"""Inside algorithms as equations: text -> rules -> grounded forest."""

from inout._core.lazy import lazy_package

# Facts and forests import torch; the language itself does not.
__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
