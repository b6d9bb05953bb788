"""EM from uniform emissions in every setting: accuracy, context length and time of each pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from benchmarks.contexts_decipher.data import Task, load
from inout.contexts.hidden_markov import ContextExpectation, ContextHiddenMarkovModel
from inout.contexts.language_model import NGramLanguageModel
from inout.learning import HiddenMarkovModel
from inout.learning.context_hidden_markov import fit_context_hidden_markov

SMOOTHING = 0.01
ANY = 1000  # labels, more than any sentence has
EXACT, BEAM, RECOMBINING, CONTEXTS = "exact", "beam", "recombining beam", "contexts"


@dataclass(frozen=True)
class Setting:
    """How to infer: order of the language model, kind, size; and the language model."""

    order: int
    kind: str
    size: int = 0
    discount: float = 0.25
    any_length: bool = False  # contexts remember any number of labels
    lines: bool = False  # see `load`

    @property
    def name(self) -> str:
        """As tables have it, without the discount and what follows."""
        order = {1: "1st", 2: "2nd"}[self.order]
        return f"{order} order, {self.kind}" + (f" {self.size}" if self.size else "")


@dataclass(frozen=True)
class Plan:
    """A setting, and which text it deciphers."""

    setting: Setting
    text: int
    passes: int
    labels: int
    sentences: int
    seed: int

    @property
    def task(self) -> Task:
        """The text."""
        return load(self.labels, self.sentences, self.seed, self.text, self.setting.lines)


@dataclass
class Curve:
    """What each pass of EM gave; accuracies are of the model after it."""

    accuracies: list[float] = field(default_factory=list)  # by the largest p(symbol | label)
    posterior_accuracies: list[float] = field(default_factory=list)  # p(label | symbol)
    log_likelihoods: list[float] = field(default_factory=list)
    context_lengths: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of one core

    def add(self, task: Task, emission: Tensor, found: ContextExpectation, seconds: float) -> None:
        """One more pass."""
        self.accuracies.append(task.accuracy(emission.numpy()))
        self.posterior_accuracies.append(task.accuracy(found.counts))
        self.log_likelihoods.append(found.log_likelihood)
        self.context_lengths.append(found.context_length)
        self.seconds.append(seconds)


def uniform(labels: int) -> Tensor:
    """Emissions that know nothing."""
    return torch.full((labels, labels), 1 / labels, dtype=torch.float64).log()


def model(
    setting: Setting, words: NGramLanguageModel, emission: Tensor
) -> ContextHiddenMarkovModel:
    """The model of a setting that is not exact."""
    if setting.kind == BEAM:
        return ContextHiddenMarkovModel.beam(words, emission, setting.size)
    escape = -np.inf if setting.kind == RECOMBINING else 0.0
    memory = ANY if setting.any_length else None
    return ContextHiddenMarkovModel(words, emission, setting.size, escape=escape, memory=memory)


def learn(plan: Plan) -> Curve:
    """EM in one setting."""
    torch.set_num_threads(1)
    task, setting, iterations = plan.task, plan.setting, plan.passes
    words = NGramLanguageModel.estimated(
        task.plain, plan.labels, setting.order, discount=setting.discount
    )
    curve = Curve()
    emission = uniform(words.labels)
    start = time.process_time()

    def note(emission: Tensor, found: ContextExpectation) -> None:
        nonlocal start
        curve.add(task, emission, found, time.process_time() - start)
        start = time.process_time()

    if setting.kind == EXACT:
        expect = exact_expectation(task, words)
        for _ in range(iterations):
            found = expect(emission)
            counts = torch.from_numpy(found.counts) + SMOOTHING
            emission = (counts / counts.sum(1, keepdim=True)).log()
            note(emission, found)
    else:
        fit_context_hidden_markov(
            model(setting, words, emission),
            task.cipher,
            iterations=iterations,
            smoothing=SMOOTHING,
            after=lambda done: note(done.model.emission, done.expectation),
        )
    return curve


def exact_expectation(
    task: Task, words: NGramLanguageModel
) -> Callable[[Tensor], ContextExpectation]:
    """The E step of the hidden Markov model of first order, as a function of the emissions."""
    initial, transition = (torch.from_numpy(part) for part in words.chain())
    start = HiddenMarkovModel(initial, transition, uniform(words.labels))
    likelihood = start.likelihood(task.cipher)
    # The average over all positions that have a label before them, each of which remembers one.
    length = 1.0

    def expect(emission: Tensor) -> ContextExpectation:
        emission = emission.clone().requires_grad_()
        parts = (initial.reshape(-1), transition.reshape(-1), emission.reshape(-1))
        log_z = likelihood(torch.cat(parts))
        (counts,) = torch.autograd.grad(log_z.sum(), emission)
        return ContextExpectation(log_z.detach().numpy(), counts.numpy(), length)

    return expect
