"""inout: exact inference and learning in structured models with an inside algorithm."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from inout._core.errors import ArgumentError as ArgumentError
from inout._core.errors import CycleError as CycleError
from inout._core.errors import FileError as FileError
from inout._core.errors import ForestError as ForestError
from inout._core.errors import GroundingError as GroundingError
from inout._core.errors import InoutError as InoutError
from inout._core.errors import PrecisionError as PrecisionError
from inout._core.errors import ProgramError as ProgramError

if TYPE_CHECKING:
    from inout import contexts as contexts
    from inout import latent as latent
    from inout import moments as moments
    from inout import programs as programs
    from inout import semirings as semirings
    from inout.contexts import ContextChain as ContextChain
    from inout.contexts import ContextModel as ContextModel
    from inout.contexts import ContextSet as ContextSet
    from inout.deduction import Facts as Facts
    from inout.deduction import Program as Program
    from inout.distributions import HMM as HMM
    from inout.distributions import PCFG as PCFG
    from inout.distributions import LinearChain as LinearChain
    from inout.distributions import SemiMarkov as SemiMarkov
    from inout.distributions import SpanTree as SpanTree
    from inout.distributions import StructuredDistribution as StructuredDistribution
    from inout.forest import Derivation as Derivation
    from inout.forest import Derivations as Derivations
    from inout.forest import Forest as Forest
    from inout.forest import ForestBuilder as ForestBuilder
    from inout.forest import Item as Item
    from inout.grammars import Grammar as Grammar
    from inout.grammars import Parser as Parser
    from inout.latent import LPCFG as LPCFG
    from inout.latent import LatentGrammar as LatentGrammar
    from inout.latent import LatentParser as LatentParser
    from inout.learning import HiddenMarkovModel as HiddenMarkovModel
    from inout.learning import em as em
    from inout.learning import fit_conditional as fit_conditional
    from inout.learning.alignment import fit_alignment as fit_alignment
    from inout.learning.contexts import fit_contexts as fit_contexts
    from inout.learning.latent_grammars import latent_grammar as latent_grammar

__all__ = [
    "ArgumentError",
    "ContextChain",
    "ContextModel",
    "ContextSet",
    "CycleError",
    "Derivation",
    "Derivations",
    "Facts",
    "FileError",
    "Forest",
    "ForestBuilder",
    "ForestError",
    "Grammar",
    "GroundingError",
    "HMM",
    "HiddenMarkovModel",
    "InoutError",
    "Item",
    "LPCFG",
    "LatentGrammar",
    "LatentParser",
    "LinearChain",
    "PCFG",
    "Parser",
    "PrecisionError",
    "Program",
    "ProgramError",
    "SemiMarkov",
    "SpanTree",
    "StructuredDistribution",
    "contexts",
    "em",
    "fit_alignment",
    "fit_conditional",
    "fit_contexts",
    "latent",
    "latent_grammar",
    "moments",
    "programs",
    "semirings",
]

# Everything above imports torch, which takes seconds: each comes when it is first asked for, so
# that `inout --help` answers at once.
_HOMES = {
    "ContextChain": "inout.contexts",
    "ContextModel": "inout.contexts",
    "ContextSet": "inout.contexts",
    "Derivation": "inout.forest",
    "Derivations": "inout.forest",
    "Facts": "inout.deduction",
    "Forest": "inout.forest",
    "ForestBuilder": "inout.forest",
    "Grammar": "inout.grammars",
    "HMM": "inout.distributions",
    "HiddenMarkovModel": "inout.learning",
    "Item": "inout.forest",
    "LPCFG": "inout.latent",
    "LatentGrammar": "inout.latent",
    "LatentParser": "inout.latent",
    "LinearChain": "inout.distributions",
    "PCFG": "inout.distributions",
    "Parser": "inout.grammars",
    "Program": "inout.deduction",
    "SemiMarkov": "inout.distributions",
    "SpanTree": "inout.distributions",
    "StructuredDistribution": "inout.distributions",
    "em": "inout.learning",
    "fit_alignment": "inout.learning.alignment",
    "fit_conditional": "inout.learning",
    "fit_contexts": "inout.learning.contexts",
    "latent_grammar": "inout.learning.latent_grammars",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in __all__:
        value = import_module(f"inout.{name}")
    else:
        raise AttributeError(f"module 'inout' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
