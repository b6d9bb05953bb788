"""Semirings: the algebras in which an inside algorithm can be run."""

from inout._core.errors import CountOverflowError as CountOverflowError
from inout.semirings.algebra import Algebra as Algebra
from inout.semirings.algebra import Real as Real
from inout.semirings.base import Semiring as Semiring
from inout.semirings.boolean import Boolean as Boolean
from inout.semirings.counting import Counting as Counting
from inout.semirings.expectation import Expectation as Expectation
from inout.semirings.expectation import SecondOrderExpectation as SecondOrderExpectation
from inout.semirings.jet import Jet as Jet
from inout.semirings.log import Log as Log
from inout.semirings.maximum import Max as Max
from inout.semirings.polynomial import Polynomial as Polynomial
from inout.semirings.scaled import Scaled as Scaled
from inout.semirings.scaled import ScaledElements as ScaledElements
