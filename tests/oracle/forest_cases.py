"""Random forests as library objects, each with all its derivations enumerated."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from inout import Forest
from inout.kernels.forest.arrays import ForestArrays
from tests.oracle.enumeration import Derivation, EnumeratedForest
from tests.oracle.random_forests import RandomForest, random_forest
from tests.seeds import seeds

# Two in three have many derivations of the first goal; the others may have none at all.
SEEDS = seeds(14)


@dataclass(frozen=True)
class Distribution:
    """The derivations of one goal that have a weight, and what follows from having them all."""

    trees: list[Derivation]
    num_items: int
    num_edges: int

    @cached_property
    def log_weights(self) -> NDArray[np.float64]:
        return np.array([tree.weight for tree in self.trees])

    @cached_property
    def log_partition(self) -> float:
        if not self.trees:
            return -np.inf
        highest = self.log_weights.max()
        return float(highest + np.log(np.exp(self.log_weights - highest).sum()))

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        return np.exp(self.log_weights - self.log_partition)

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """How often every derivation uses every item, [trees, v]."""
        rows = [tree.item_counts(self.num_items) for tree in self.trees]
        return np.array(rows, dtype=np.float64).reshape(len(self.trees), self.num_items)

    @cached_property
    def edge_counts(self) -> NDArray[np.float64]:
        """How often every derivation uses every edge, [trees, e]."""
        rows = [np.bincount(tree.edges, minlength=self.num_edges) for tree in self.trees]
        return np.array(rows, dtype=np.float64).reshape(len(self.trees), self.num_edges)

    def mean(self, values: NDArray[np.float64]) -> Any:
        """The expectation of `values` [trees, ...]; 0 where there is no derivation."""
        return np.tensordot(self.probabilities, values, axes=1)

    def central(self, *values: NDArray[np.float64]) -> float:
        """E of the product of the functions' deviations from their means, [trees] each."""
        product = np.ones(len(self.trees))
        for value in values:
            product = product * (value - self.mean(value))
        return float(self.mean(product))


@dataclass(frozen=True)
class Case:
    """A forest and the distributions over the derivations of its goals."""

    forest: Forest
    random: RandomForest
    oracle: EnumeratedForest
    goals: list[Distribution]

    @property
    def num_items(self) -> int:
        return self.random.num_items

    @cached_property
    def finite(self) -> NDArray[np.bool_]:
        """Which axioms have a weight."""
        return self.random.item_weights[: self.random.num_axioms] > -np.inf

    def rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([purpose, self.num_items, self.random.num_axioms])

    def relation_counts(self, name: str, item_counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Counts of all items [v, ...] as counts of the rows of a relation."""
        sizes = {n: len(w) for n, w in self.forest.relations.items()}
        chained = np.zeros((sum(sizes.values()), *item_counts.shape[1:]))
        chained[self.forest.axiom_rows.numpy()] = item_counts[: self.random.num_axioms]
        first = sum(size for n, size in list(sizes.items())[: list(sizes).index(name)])
        return chained[first : first + sizes[name]]


def library_forest(random: RandomForest, rng: np.random.Generator) -> Forest:
    """The forest with the same numbering, its axioms spread over two relations in random order.

    Some rows of the relations are used by no item.
    """
    num_rows = random.num_axioms + 2
    first = int(rng.integers(0, num_rows + 1))
    axiom_rows = rng.permutation(num_rows)[: random.num_axioms]
    weights = rng.normal(size=num_rows)
    weights[axiom_rows] = random.item_weights[: random.num_axioms]
    return Forest(
        arrays=ForestArrays(*random.arrays, random.level_offsets, random.goals),
        relations={
            "left": torch.from_numpy(weights[:first].copy()),
            "right": torch.from_numpy(weights[first:].copy()),
        },
        axiom_rows=torch.from_numpy(axiom_rows),
        labels=[f"item {i}" for i in range(random.num_items)],
        single_goal=len(random.goals) == 1,
    )


def enumerate_forest(random: RandomForest) -> EnumeratedForest:
    """All derivations with their log-weights."""
    arrays = (a.tolist() if isinstance(a, np.ndarray) else a for a in random.arrays)
    return EnumeratedForest(*arrays, random.item_weights.tolist(), times=operator.add, one=0.0)


@lru_cache(maxsize=256)
def case(seed: int, num_goals: int = 1, integer_weights: bool = False) -> Case:
    """The same case for the same seed."""
    random = random_forest(
        seed,
        num_axioms=3 + seed % 4,
        num_levels=3 + seed % 3,
        num_goals=num_goals,
        derived_weights=False,
        integer_weights=integer_weights,
        zeros=0.15,
        min_derivations=25 * (seed % 3),
        max_derivations=300,
    )
    oracle = enumerate_forest(random)
    num_edges = len(random.tail_offsets) - 1
    goals = [
        Distribution(
            [tree for tree in oracle.derivations(int(goal)) if tree.weight > -np.inf],
            random.num_items,
            num_edges,
        )
        for goal in random.goals
    ]
    forest = library_forest(random, np.random.default_rng([7, seed]))
    return Case(forest, random, oracle, goals)


def with_gradient(forest: Forest) -> tuple[Forest, dict[str, torch.Tensor]]:
    """The forest with fresh leaf tensors for weights, and those leaves."""
    leaves = {n: w.detach().clone().requires_grad_() for n, w in forest.relations.items()}
    return forest.with_weights(**leaves), leaves


def random_values(case: Case, purpose: int) -> torch.Tensor:
    """A number for every item, of either sign."""
    return torch.from_numpy(case.rng(purpose).normal(size=case.num_items))
