"""inout: exact inference and learning in structured models with an inside algorithm."""

from inout._core.errors import ArgumentError as ArgumentError
from inout._core.errors import CycleError as CycleError
from inout._core.errors import FileError as FileError
from inout._core.errors import ForestError as ForestError
from inout._core.errors import GroundingError as GroundingError
from inout._core.errors import InoutError as InoutError
from inout._core.errors import ProgramError as ProgramError
from inout.deduction import Facts as Facts
from inout.deduction import Program as Program
from inout.forest import Derivation as Derivation
from inout.forest import Derivations as Derivations
from inout.forest import Forest as Forest
from inout.forest import ForestBuilder as ForestBuilder
from inout.forest import Item as Item

__all__ = [
    "ArgumentError",
    "CycleError",
    "Derivation",
    "Derivations",
    "Facts",
    "FileError",
    "Forest",
    "ForestBuilder",
    "ForestError",
    "GroundingError",
    "InoutError",
    "Item",
    "Program",
    "ProgramError",
]
