"""Forests: explicit sets of weighted derivations, and queries about them."""

from inout.forest.builder import ForestBuilder as ForestBuilder
from inout.forest.decoding import LocalForest as LocalForest
from inout.forest.derivation import Derivation as Derivation
from inout.forest.derivation import Derivations as Derivations
from inout.forest.expectations import Marginals as Marginals
from inout.forest.forest import Forest as Forest
from inout.forest.labels import Item as Item
