"""`ProgramModel`: a program with weighted facts as a generative model, for `em`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import as_log_weights
from inout._core.errors import ArgumentError, ForestError, GroundingError, ProgramError
from inout.deduction import Facts, Program
from inout.deduction.desugar import Mistake
from inout.deduction.program import Given
from inout.deduction.reading import parse_totals
from inout.forest import Forest
from inout.learning.checkpoint import digest
from inout.learning.model import LogPartitions

Example = Mapping[str, Given]


class ProgramModel:
    """A program and the facts that all examples share; some of their weights are probabilities.

    Which ones the program says itself, by lines such as `1 = rule(X,_,_) + rule(X,_).`: for each X
    the weights of these facts sum to one. `groups`, a list of such sums, replaces these lines. The
    weights of all other facts are fixed. A corpus is a list of examples, each of which has the
    facts of the remaining relations: {relation: facts}, as `Program.ground` takes them. `options`
    are those of `Program.ground`, for each example (`max_edges`, `max_rounds`).

    `log_weights` has the parameters in the order of the relations and of their rows. The weights
    of a relation, after training as well, are `model.facts[name].log_weights`.

    >>> import inout
    >>> coins = inout.Program('''
    ...     goal += coin(C) * throw(C,X) * first(X) * throw(C,Y) * second(Y).
    ...     1 = coin(_).
    ...     1 = throw(C,_).
    ... ''')
    >>> throws = [(coin, side) for coin in "ab" for side in "ht"]
    >>> start = ProgramModel(
    ...     coins, {"coin": [("a",), ("b",)], "throw": Facts(throws, [-0.5, -1.0, -1.0, -0.5])}
    ... )
    >>> corpus = [{"first": [(x,)], "second": [(y,)]} for x, y in ["hh", "tt", "tt", "ht"]]
    >>> trained = inout.em(start, corpus).model
    >>> trained.facts["throw"].log_weights.exp().round(decimals=2)
    tensor([0.7600, 0.2400, 0.0900, 0.9100], dtype=torch.float64)
    >>> trained.ground(corpus[0]).argmax().tree().label
    'goal'

    Eisner, "Inside-outside and forward-backward algorithms are just backprop" (2016), section 8.3.
    """

    def __init__(
        self,
        program: Program,
        facts: Mapping[str, Given],
        *,
        groups: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        if program.parsed.derived[program.goal]:
            wanted = "must have a goal without arguments"
            raise ArgumentError("program", f"{wanted}. Got {program.goal!r}")
        self.program, self.options = program, options
        self.facts = {name: Facts.of(given) for name, given in facts.items()}
        if isinstance(groups, str):
            raise ArgumentError("groups", f"must be a list of sums. Got {groups!r:.80}")
        try:
            totals = program.parsed.totals
            self._totals = totals if groups is None else parse_totals(groups, program.parsed)
        except Mistake as mistake:
            raise ArgumentError("groups", f": {mistake.message}. Got {groups}") from None
        # The distribution of each row of all facts, -1 where the weight is fixed.
        self._rows = _distributions(self.facts, self._totals)
        if not (self._rows >= 0).any():
            wanted = "must have weights to train, in a sum such as 1 = rule(X,_)."
            raise ArgumentError("facts", f"{wanted} Got {', '.join(self.facts) or 'none'}")

    @property
    def _weights(self) -> Float[Tensor, " rows"]:
        return torch.cat([facts.log_weights.double() for facts in self.facts.values()])

    @property
    def log_weights(self) -> Float[Tensor, " p"]:
        """The logs of all weights that are probabilities."""
        return self._weights[torch.from_numpy(self._rows >= 0)]

    @property
    def distributions(self) -> Int[np.ndarray, " p"]:
        return self._rows[self._rows >= 0]

    @property
    def trained(self) -> list[str]:
        """The relations with weights that are probabilities."""
        parts = np.split(self._rows, np.cumsum([len(facts) for facts in self.facts.values()])[:-1])
        return [name for name, rows in zip(self.facts, parts, strict=True) if (rows >= 0).any()]

    def with_log_weights(
        self, log_weights: Tensor | NDArray[np.float64] | Sequence[float]
    ) -> ProgramModel:
        """The same model with other parameters [p]; a tensor keeps its graph."""
        given = as_log_weights("log_weights", log_weights, len(self.distributions))
        trained = torch.from_numpy(np.flatnonzero(self._rows >= 0)).to(given.device)
        weights = self._weights.to(given).index_put((trained,), given)
        parts = torch.split(weights, [len(facts) for facts in self.facts.values()])
        same = copy(self)
        same.facts = {
            name: facts.with_log_weights(part)
            for (name, facts), part in zip(self.facts.items(), parts, strict=True)
        }
        return same

    def ground(self, example: Example) -> Forest:
        """The forest of one example, with all queries."""
        return self._grounded(example, "example")

    def likelihood(self, corpus: Iterable[Any]) -> LogPartitions:
        """A function of the parameters [p] that gives log Z of each example [b].

        Each example is grounded here, once, whatever the parameters are (0 as well). The function
        is one pass over the edges of all forests; it can be differentiated twice.
        """
        size, shared = len(self.distributions), len(self._rows)
        # Grounded with weights of one, so that forests do not depend on the parameters.
        ones = self.with_log_weights(torch.zeros(size, dtype=torch.float64))
        # The facts of the model come first in a forest, those of the example after them.
        numbers = torch.full((shared + 1,), -1)
        numbers[torch.from_numpy(np.flatnonzero(self._rows >= 0))] = torch.arange(size)
        forests, sources = [], []
        for place, example in enumerate(corpus):
            forest = ones._grounded(example, f"corpus[{place}]")
            sources.append(numbers[forest.axiom_rows.clamp(max=shared)])
            forests.append(_anonymous(forest))
        batch = Forest.batch(forests)
        source, given = torch.cat(sources)[batch.axiom_rows], batch.log_weights.detach()
        rows = torch.where(source < 0, size + torch.arange(len(source)), source)

        def log_partitions(log_weights: Float[Tensor, " p"]) -> Float[Tensor, " b"]:
            relations = {"parameters": log_weights, "given": given.to(log_weights)}
            return replace(batch, relations=relations, axiom_rows=rows).log_partition()

        return log_partitions

    def _grounded(self, example: Any, name: str) -> Forest:
        if not isinstance(example, Mapping):
            raise ArgumentError(name, f"must be facts, {{relation: rows}}. Got {example!r:.80}")
        for relation in example:
            if relation in self.facts:
                raise ArgumentError(name, f": the model has the facts {relation!r} already")
        try:
            return self.program.ground({**self.facts, **example}, **self.options)
        except ArgumentError as error:
            raise ArgumentError(name, f": {error}") from error
        except (ForestError, GroundingError, ProgramError) as error:
            raise GroundingError(f"{name}: {error.message}", remedy=error.remedy) from error

    def lengths(self, corpus: Iterable[Example]) -> Int[np.ndarray, " b"] | None:
        """The number of facts `word` of each example; None where there are none."""
        corpus = list(corpus)
        if not all("word" in example for example in corpus):
            return None
        return np.array([len(Facts.of(example["word"])) for example in corpus], np.int64)

    def fingerprint(self) -> str:
        """A digest of program, facts and sums."""
        rows = {name: facts.rows for name, facts in self.facts.items()}
        fixed = self._weights[torch.from_numpy(self._rows < 0)]
        sums = [str(total) for total in self._totals]
        return digest([str(self.program.parsed), self.program.goal, rows, fixed, sums])

    def __repr__(self) -> str:
        many = f"{len(self.distributions)} probabilities"
        return f"ProgramModel({many} in {len(np.unique(self.distributions))} distributions)"


def _anonymous(forest: Forest) -> Forest:
    """The forest with a fact for each axiom; without labels, which keep all that grounding used."""
    axioms, items = torch.arange(forest.arrays.num_axioms), range(forest.num_items)
    return replace(forest, relations={"facts": forest.log_weights}, axiom_rows=axioms, labels=items)


def _distributions(facts: Mapping[str, Facts], totals: Iterable[Any]) -> Int[np.ndarray, " rows"]:
    """The number of the distribution of each row, relation by relation; -1: in no sum."""
    places = {
        shape: (number, conditions)
        for number, total in enumerate(totals)
        for shape, conditions in total.conditions.items()
    }
    keys: dict[tuple[Any, ...], int] = {}
    found = []
    for name, given in facts.items():
        for row in given.rows:
            number, conditions = places.get((name, len(row)), (-1, ()))
            key = (number, *(row[place] for place in conditions))
            found.append(-1 if number < 0 else keys.setdefault(key, len(keys)))
    return np.array(found, np.int64)
