"""`ContextHiddenMarkovModel` against sums over all labellings, with contexts chosen naively."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch

from inout import HiddenMarkovModel, em
from inout._core.errors import ArgumentError
from inout.contexts.hidden_markov import ContextHiddenMarkovModel
from inout.contexts.language_model import NGramLanguageModel
from inout.learning import Additive, TrainingError
from inout.learning.context_hidden_markov import fit_context_hidden_markov
from tests.support import assert_close

LABELS, SYMBOLS = 3, 4
TEXT = [[0, 1, 2, 1], [2], [0, 1, 2, 1, 0, 2, 2], [1, 1, 1], [2, 0, 0, 1, 2]]
CORPUS = [[0, 1, 3, 2, 1], [2], [], [1, 1, 0], [3, 0, 2, 2], [1, 2]]
BOS = "BOS"


def emission(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(LABELS, SYMBOLS, generator=generator, dtype=torch.float64).log_softmax(1)


def language_model(order: int, *, end: bool = False) -> NGramLanguageModel:
    return NGramLanguageModel.estimated(TEXT, LABELS, order, end=end)


class Naive:
    """Everything about one sequence, by going through all labellings."""

    def __init__(self, model: ContextHiddenMarkovModel, symbols: list[int]) -> None:
        self.model, self.symbols = model, symbols
        self.memory = 10**9 if model.memory is None else model.memory
        self.sets: list[list[tuple]] = [[(BOS,)]]
        self.masses: list[dict[tuple, float]] = []
        for place in range(1, len(symbols) + model.language_model.end):
            self._select(place)
        paths = {
            labels: self.weight(labels, len(symbols))
            for labels in product(range(LABELS), repeat=len(symbols))
        }
        if model.language_model.end:
            paths = {
                labels: weight * self.probability(self.context(labels, len(symbols)), LABELS)
                for labels, weight in paths.items()
            }
        self.paths = paths
        self.total = sum(paths.values())

    def probability(self, context: tuple, label: int) -> float:
        """What the label adds after the context."""
        words = self.model.language_model
        history = [words.beginning if symbol == BOS else symbol for symbol in context]
        escape = math.exp(self.model.escape) if not context else 1.0
        return math.exp(words.log_probabilities(history)[label]) * escape

    def context(self, labels: tuple, place: int) -> tuple:
        """The context after so many labels."""
        context: tuple = (BOS,)
        for k in range(1, place + 1):
            context = self.longest((*context, labels[k - 1]), self.sets[k])
        return context

    def longest(self, string: tuple, contexts: list[tuple]) -> tuple:
        return max((c for c in contexts if string[len(string) - len(c) :] == c), key=len)

    def weight(self, labels: tuple, place: int) -> float:
        """The product over the first labels of what each adds and emits."""
        weight = 1.0
        for k in range(place):
            weight *= self.probability(self.context(labels, k), labels[k])
            weight *= math.exp(self.model.emission[labels[k], self.symbols[k]])
        return weight

    def _select(self, place: int) -> None:
        masses: dict[tuple, float] = {}
        shares: dict[tuple, float] = {}
        for labels in product(range(LABELS), repeat=place):
            before = self.context(labels, place - 1)
            element = (*before, labels[-1])[-self.memory :]
            masses[element] = masses.get(element, 0.0) + self.weight(labels, place)
        allowed = [
            c for c, mass in masses.items() if mass > 0 and (c[0] == BOS or not self.model.anchored)
        ]
        allowed.sort(key=lambda c: -masses[c])
        self.sets.append([*allowed[: self.model.size], ()])
        for labels in product(range(LABELS), repeat=place):
            own = self.context(labels, place)
            shares[own] = shares.get(own, 0.0) + self.weight(labels, place)
        total = sum(shares.values())
        self.masses.append({c: share / total for c, share in shares.items()})

    def counts(self) -> np.ndarray:
        found = np.zeros((LABELS, SYMBOLS))
        for labels, weight in self.paths.items():
            for label, symbol in zip(labels, self.symbols, strict=True):
                found[label, symbol] += weight / self.total
        return found


KINDS = {
    "contexts": {},
    "cheap escape": {"escape": -1.5},
    "long memory": {"memory": 5},
    "beam": {"escape": -np.inf, "anchored": True},
    "recombining beam": {"escape": -np.inf},
    "beam with coverage": {"escape": -2.0, "anchored": True},
}


@pytest.mark.few(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize(("order", "size"), [(0, 2), (1, 2), (2, 3), (2, 100)])
def test_expectation_of_selected_contexts(order: int, size: int, end: bool, kind: str):
    model = ContextHiddenMarkovModel(
        language_model(order, end=end), emission(order + size), size, **KINDS[kind]
    )
    corpus = [CORPUS[0][:4], [], CORPUS[3]]
    truth = [Naive(model, symbols) for symbols in corpus]
    found = model.expectation(corpus)
    assert_close(found.log_likelihoods, [math.log(one.total) for one in truth])
    assert_close(found.counts, sum(one.counts() for one in truth))
    assert found.log_likelihood == pytest.approx(sum(math.log(one.total) for one in truth))
    masses = [masses for one in truth for masses in one.masses]
    lengths = [sum(p * sum(x != BOS for x in c) for c, p in mass.items()) for mass in masses]
    assert found.context_length == pytest.approx(np.mean(lengths), abs=1e-10)
    if order == 2:
        lattice = model.lattice(corpus[:1])
        for column, contexts in enumerate(truth[0].sets):
            nodes = range(*lattice.node_offsets[column : column + 2])
            strings = [(BOS,) * int(lattice.is_anchored[v]) + lattice.string(v) for v in nodes]
            assert set(strings) == set(contexts)


@pytest.mark.parametrize("kind", KINDS)
def test_labels(kind: str):
    model = ContextHiddenMarkovModel(language_model(2), emission(5), 3, **KINDS[kind])
    for symbols, labels in zip(CORPUS, model.decode(CORPUS), strict=True):
        truth = Naive(model, symbols)
        assert tuple(labels) == max(truth.paths, key=truth.paths.__getitem__)
        wanted = np.zeros((len(symbols), LABELS))
        for path, weight in truth.paths.items():
            for place, label in enumerate(path):
                wanted[place, label] += weight / truth.total
        assert_close(model.posteriors(symbols), wanted)


def test_first_order_with_all_contexts_is_a_hidden_markov_model():
    words = language_model(1)
    initial, transition = (torch.from_numpy(part) for part in words.chain())
    ours = ContextHiddenMarkovModel(words, emission(0), LABELS)
    for _ in range(4):
        theirs = HiddenMarkovModel(initial, transition, ours.emission)
        expected = theirs.likelihood(CORPUS)(theirs.log_weights)
        assert_close(ours.expectation(CORPUS).log_likelihoods, expected)
        assert_close(ours.likelihood(CORPUS)(ours.log_weights), expected)
        # `em` changes the transitions as well, so one step at a time.
        step = em(theirs, CORPUS, prior=Additive(0.01), max_iterations=1)
        ours = fit_context_hidden_markov(ours, CORPUS, iterations=1).model
        assert_close(ours.emission, step.model.emission)


@pytest.mark.parametrize("kind", KINDS)
def test_em_with_fixed_contexts_never_falls(kind: str):
    model = ContextHiddenMarkovModel(language_model(2), emission(1), 2, **KINDS[kind])
    result = em(model, CORPUS, prior=Additive(0.01), max_iterations=25, tolerance=0.0)
    assert result.iterations == 25  # a fall would have raised
    assert np.diff(result.objectives).min() > -1e-10
    assert result.objectives[-1] > result.objectives[0] + 1.0
    # The first step, before contexts could change, is that of the other function.
    other = fit_context_hidden_markov(model, CORPUS, iterations=1)
    assert other.log_likelihoods[0] == pytest.approx(result.log_likelihoods[0], abs=1e-9)
    once = em(model, CORPUS, prior=Additive(0.01), max_iterations=1)
    assert_close(once.model.emission, other.model.emission)


@pytest.mark.few(4)
@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_with_fixed_contexts(kind: str, end: bool):
    model = ContextHiddenMarkovModel(language_model(2, end=end), emission(2), 2, **KINDS[kind])
    likelihood = model.likelihood([[0, 1, 3], [2, 2], []])
    start = emission(3).reshape(-1).requires_grad_()
    assert torch.autograd.gradcheck(likelihood, (start,))
    assert torch.autograd.gradgradcheck(likelihood, (start,))


def test_learning_selects_contexts_anew():
    uniform = torch.full((LABELS, SYMBOLS), 1 / SYMBOLS, dtype=torch.float64).log()
    model = ContextHiddenMarkovModel(language_model(2), uniform, 2)
    told = []
    result = fit_context_hidden_markov(model, CORPUS, iterations=5, after=told.append)
    assert [one.iteration for one in told] == [1, 2, 3, 4, 5]
    assert told[-1].model is result.model
    assert len(result.log_likelihoods) == len(result.context_lengths) == 5
    again = model
    for one in told:
        assert_close(again.expectation(CORPUS).log_likelihoods, one.expectation.log_likelihoods)
        counts = one.expectation.counts + 0.01
        assert_close(one.model.emission.exp(), counts / counts.sum(1, keepdims=True))
        again = ContextHiddenMarkovModel(model.language_model, one.model.emission, 2)


def test_threads_and_parts_change_nothing(monkeypatch: pytest.MonkeyPatch):
    model = ContextHiddenMarkovModel(language_model(2), emission(4), 3)
    corpus = CORPUS * 40
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(model.expectation(corpus))
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr("inout.contexts.hidden_markov._EDGES", 100)
    small = model.expectation(corpus)
    assert np.array_equal(found[0].counts, found[1].counts)
    assert found[0].context_length == found[1].context_length
    assert_close(small.counts, found[0].counts)
    assert_close(small.log_likelihoods, found[0].log_likelihoods)
    assert small.context_length == pytest.approx(found[0].context_length)


def test_what_is_impossible():
    words = NGramLanguageModel.estimated([[0, 1, 0]], LABELS, 1, smoothing=0.0)
    model = ContextHiddenMarkovModel(words, torch.eye(LABELS, dtype=torch.float64).log(), 2)
    corpus = [[0, 1], [2, 0], [0, 2], []]
    found = model.expectation(corpus)
    assert (found.log_likelihoods > -np.inf).tolist() == [True, False, False, True]
    assert found.counts.sum() == pytest.approx(2.0)
    assert [labels.tolist() for labels in model.decode(corpus)] == [[0, 1], [-1, -1], [-1, -1], []]
    assert em(model, corpus, max_iterations=2).left_out == (1, 2)
    with pytest.raises(TrainingError, match="no sequence"):
        fit_context_hidden_markov(model, [[2]])


def test_arguments():
    words = language_model(2)
    with pytest.raises(ArgumentError, match="a row for each of 3 labels"):
        ContextHiddenMarkovModel(words, emission(0)[:2], 2)
    with pytest.raises(ArgumentError, match="size must be an integer of at least 1"):
        ContextHiddenMarkovModel(words, emission(0), 0)
    with pytest.raises(ArgumentError, match="memory must be an integer of at least 2"):
        ContextHiddenMarkovModel(words, emission(0), 2, memory=1)
    with pytest.raises(ArgumentError, match="memory must be None where anchored"):
        ContextHiddenMarkovModel(words, emission(0), 2, memory=2, anchored=True)
    with pytest.raises(ArgumentError, match="escape must be a number"):
        ContextHiddenMarkovModel(words, emission(0), 2, escape=np.nan)
    with pytest.raises(ArgumentError, match="emission must be finite or -inf"):
        ContextHiddenMarkovModel(words, emission(0) * np.nan, 2)
    model = ContextHiddenMarkovModel(words, emission(0), 2)
    with pytest.raises(ArgumentError, match=r"symbols in 0\.\.3. Got 4 in sequence 1"):
        model.expectation([[0], [4]])
    with pytest.raises(ArgumentError, match="sequences of symbol numbers"):
        model.decode([[0.5]])
    with pytest.raises(ArgumentError, match="smoothing must be a finite number"):
        fit_context_hidden_markov(model, CORPUS, smoothing=-1.0)
    with pytest.raises(ArgumentError, match="at least one sentence"):
        fit_context_hidden_markov(model, [])
    assert "order 2, contexts of size 2" in repr(model)
