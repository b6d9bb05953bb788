"""Forests: explicit sets of weighted derivations, and queries about them."""

from inout.forest.builder import ForestBuilder as ForestBuilder
from inout.forest.derivation import Derivation as Derivation
from inout.forest.derivation import Derivations as Derivations
from inout.forest.forest import Forest as Forest
from inout.forest.labels import Item as Item
from inout.forest.local import LocalForest as LocalForest
from inout.forest.marginals import Marginals as Marginals
